package extproc

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/signalbox-epp/signalbox/adapters/extproc/trust"
	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/messages"
)

// Names of headers, metadata and attributes: those of the endpoint picker protocol, of Envoy, and our own.
const (
	destinationKey  = "x-gateway-destination-endpoint"
	scoresKey       = "x-gateway-destination-endpoint-scores"
	servedKey       = "x-gateway-destination-endpoint-served"
	subsetKey       = "x-gateway-destination-endpoint-subset"
	lbNamespace     = "envoy.lb"
	subsetNamespace = "envoy.lb.subset_hint"
	reasonHeader    = "x-llm-d-request-dropped-reason"
	requestIDHeader = "x-signalbox-request-id"
	queueHeader     = "x-llm-d-flow-queue-duration-ms"
	connectionKey   = "x-signalbox-connection"
	upstreamAddress = "upstream.address"
	sourceAddress   = "source.address"
	codeDetails     = "response.code_details"
	viaUpstream     = "via_upstream"
	usualPath       = "/v1/chat/completions"
	usualType       = "application/json"
)

// Limits of what is read of a request's headers. Headers beyond them are not refused, only not read: the proxy has
// limits of its own, and the headers go on as they are.
const (
	maxHeaders       = 4096 // Envoy's own limit is 100 unless configured
	maxPathBytes     = 8 << 10
	maxTypeBytes     = 2 << 10
	maxEncodingBytes = 256
	maxModelBytes    = 1 << 10
	maxLabelBytes    = records.LabelBytes + utf8.UTFMax // records.Label looks at no more
	maxSubsetEntries = 4096
	maxDurationBytes = 32
	maxTokenBytes    = 4 << 10
)

// unreadable is a content encoding that no parser knows. It stands for the encoding of a body of which the headers do
// not say for certain what it is.
const unreadable = "*"

// facts holds what we need of the headers of a request. Of several lines of one name the first counts, except that
// content encodings add up.
type facts struct {
	route
	contentType, contentEncoding string
	client
	fairness, objective aliased
	target              aliased // the model that is to serve; "" = the one that the body names
	contentLength       int64
	subset              messages.Subset
	aside               aside
	declared            []messages.HeaderValue // nil = the request has none of those that plugins read
}

// route says where the request goes, and by what protocol it goes on.
type route struct {
	paths   [pathHeaders]string
	upgrade upgrade
}

// upgrade says what the headers say of another protocol that the client asks for.
type upgrade struct {
	asked, webSocket bool
	model            string // of the query of a path that has it there; "" = there is none
}

// takes reports whether what follows the headers is no body but frames, which end with the connection.
func (u *upgrade) takes() bool { return u.asked && u.webSocket }

// aside holds what goes no further.
type aside struct {
	dropped         []string // headers, unless the pick sets them
	endpoint, token string   // of messages.ForcedHeader and messages.ForcedTokenHeader; "" = not sent
	forced          bool     // the client may name the endpoint, and does
}

// clientLimits are how long things may take by the client's headers, as in messages.RequestArrived, and whether the
// request is to be refused where its prompt is not cached.
type clientLimits struct {
	patience, ttft, tpot time.Duration
	ifCached             bool
}

// read reads the headers of a message, and those among them that plugins declared. What policy bars is dropped.
func (f *facts) read(in *wire.Request, declared []string, policy *trust.Policy) {
	count := 0
	in.Headers(func(key, value []byte) bool {
		if policy.Bars(key) {
			f.drop(string(key))
		} else {
			f.readDeclared(declared, key, value)
		}
		if count++; count > maxHeaders {
			f.contentEncoding = unreadable // a header further down may say what the body is
			f.drop(policy.Headers()...)    // or may be barred
			return false
		}
		if !policy.Bars(key) {
			f.readHeader(key, value)
			f.upgrade.readHeader(key, value)
		}
		return true
	})
	policy.Stand(in, func(name string, value []byte) {
		f.readDeclared(declared, []byte(name), value)
		f.readHeader([]byte(name), value)
	})
}

// readDeclared takes a header if plugins declared it.
func (f *facts) readDeclared(declared []string, key, value []byte) {
	for i, name := range declared {
		if text, found := declaredValue(name, key, value); found {
			f.declare(i, len(declared), text)
		}
	}
}

// drop notes that headers go no further.
func (f *facts) drop(names ...string) {
	for _, name := range names {
		if !slices.Contains(f.aside.dropped, name) {
			f.aside.dropped = append(f.aside.dropped, name)
		}
	}
}

func (f *facts) readHeader(key, value []byte) {
	switch string(key) {
	case ":path":
		f.readPath(ownPath, value)
	case "x-original-path":
		f.readPath(originalPath, value)
	case "x-forwarded-path":
		f.readPath(forwardedPath, value)
	case "content-type":
		first(&f.contentType, value, maxTypeBytes)
	case "content-encoding":
		f.addEncoding(value)
	case "content-length":
		if n, err := strconv.ParseInt(string(value), 10, 64); err == nil && f.contentLength == 0 {
			f.contentLength = n
		}
	case "x-llm-d-inference-fairness-id":
		f.fairness.byNewName(value, maxLabelBytes)
	case "x-gateway-inference-fairness-id":
		f.fairness.byOldName(value, maxLabelBytes)
	case "x-llm-d-inference-objective":
		f.objective.byNewName(value, maxLabelBytes)
	case "x-llm-d-model-name-rewrite":
		if model(value) {
			f.target.byNewName(value, maxModelBytes)
		}
	case "x-gateway-model-name-rewrite":
		if model(value) {
			f.target.byOldName(value, maxModelBytes)
		}
	case messages.PrefillHeader, messages.EncodeHeader, messages.DataParallelHeader, messages.CacheSourceHeader:
		// only a pick sets these
		f.drop(string(key))
	case messages.ForcedHeader:
		f.drop(messages.ForcedHeader)
		first(&f.aside.endpoint, value, maxLabelBytes)
	case messages.ForcedTokenHeader:
		f.drop(messages.ForcedTokenHeader)
		first(&f.aside.token, value, maxTokenBytes)
	case "x-gateway-inference-objective":
		f.objective.byOldName(value, maxLabelBytes)
	default:
		f.readClient(key, value)
	}
}

// client is who sends the request, how it calls the request, and what it wants; "" = it does not say.
type client struct {
	clientID, agent string
	limits          clientLimits
}

func (c *client) readClient(key, value []byte) {
	switch l := &c.limits; string(key) {
	case "prefer":
		l.ifCached = l.ifCached || prefers(value, "if-available")
	case "x-llm-d-inference-ttl":
		l.patience = cmp.Or(l.patience, duration(value, ""))
	case "x-llm-d-slo-ttft-ms", "x-slo-ttft-ms":
		l.ttft = cmp.Or(l.ttft, duration(value, "ms"))
	case "x-llm-d-slo-tpot-ms", "x-slo-tpot-ms":
		l.tpot = cmp.Or(l.tpot, duration(value, "ms"))
	case "x-request-id":
		first(&c.clientID, value, maxLabelBytes)
	case "user-agent":
		first(&c.agent, value, maxLabelBytes)
	}
}

// The headers that name the path of a request, the one that counts most first.
const (
	ownPath = iota
	originalPath
	forwardedPath
	pathHeaders
)

// pathless is the path by which a parser is chosen for a request of which no header names one.
const pathless = "/v1/completions"

func (f *facts) readPath(header int, value []byte) {
	path, query, _ := bytes.Cut(value, []byte{'?'})
	if header == ownPath && len(query) > 0 && bytes.HasSuffix(path, []byte("/realtime")) {
		f.upgrade.readModel(query)
	}
	if first(&f.paths[header], path, maxPathBytes); len(path) > maxPathBytes && f.path() == f.paths[header] {
		f.contentEncoding = unreadable // the end of the path says what the body is
	}
}

func (u *upgrade) readHeader(key, value []byte) {
	switch string(key) {
	case "upgrade":
		u.webSocket = strings.EqualFold(string(value), "websocket")
	case "connection":
		u.asked = u.asked || prefers(value, "upgrade")
	}
}

// readModel reads the model that a query names.
func (u *upgrade) readModel(query []byte) {
	if all, err := url.ParseQuery(string(query)); err == nil && model([]byte(all.Get("model"))) {
		u.model = all.Get("model")
	}
}

// path returns the path of the request, without its query; "" = no header names one.
func (f *facts) path() string { return cmp.Or(f.paths[:]...) }

// parsedPath returns the path by which a parser is chosen.
func (f *facts) parsedPath() string { return cmp.Or(f.path(), pathless) }

// prefers reports whether a list of preferences, or of other tokens, has one by name.
func prefers(list []byte, name string) bool {
	for item := range bytes.SplitSeq(list, []byte{','}) {
		token, _, _ := bytes.Cut(item, []byte{';'})
		if strings.EqualFold(string(bytes.TrimSpace(token)), name) {
			return true
		}
	}
	return false
}

// duration reads a header that says how long something may take, in a unit or with one of its own. A value that is no
// duration above 0 says nothing.
func duration(value []byte, unit string) time.Duration {
	if len(value) > maxDurationBytes {
		return 0
	}
	d, err := time.ParseDuration(string(value) + unit)
	if err != nil || d < 0 {
		return 0
	}
	return d
}

// declaredValue returns what a header has of one that plugins read: its value, or that of one cookie in it.
func declaredValue(name string, key, value []byte) (text []byte, found bool) {
	wanted, isCookie := attributes.Cookie(name)
	if !isCookie {
		return value, string(key) == name
	}
	if string(key) != "cookie" {
		return nil, false
	}
	for pair := range bytes.SplitSeq(value, []byte{';'}) {
		if of, text, ok := bytes.Cut(bytes.TrimSpace(pair), []byte{'='}); ok && string(of) == wanted {
			return text, true
		}
	}
	return nil, false
}

// declare sets the value of a header that plugins read, one of n.
func (f *facts) declare(i, n int, value []byte) {
	if f.declared == nil {
		f.declared = make([]messages.HeaderValue, n)
	}
	if to := &f.declared[i]; !to.Given {
		*to = messages.HeaderValue{Text: records.Label(string(value[:min(len(value), maxLabelBytes)])), Given: true}
	}
}

// model reports whether a value can name a model: it is no longer than what is read, and has no control characters,
// which could end a part of a form.
func model(value []byte) bool {
	return len(value) <= maxModelBytes && !bytes.ContainsFunc(value, unicode.IsControl)
}

// aliased is the value of a header that has a new and an old name; "" = the request does not have it.
type aliased struct {
	text string
	old  bool // the header had its old name, which a new one replaces
}

// byNewName takes the value of the header by its new name, cut at most bytes. It wins over one by the old name.
func (a *aliased) byNewName(value []byte, most int) {
	if a.old && len(value) > 0 {
		*a = aliased{}
	}
	first(&a.text, value, most)
}

// byOldName takes the value of the header by its old name, cut at most bytes, if there is none yet.
func (a *aliased) byOldName(value []byte, most int) {
	if a.text == "" {
		first(&a.text, value, most)
		a.old = true
	}
}

// unset returns the headers that go no further and that are not among those set.
func (f *facts) unset(set []wire.Header) (list []string) {
	for _, name := range f.aside.dropped {
		if !slices.ContainsFunc(set, func(h wire.Header) bool { return h.Key == name }) {
			list = append(list, name)
		}
	}
	return list
}

// addEncoding joins several lines into one list, as HTTP reads them.
func (f *facts) addEncoding(value []byte) {
	switch {
	case f.contentEncoding == "" && len(value) <= maxEncodingBytes:
		f.contentEncoding = string(value)
	case f.contentEncoding == unreadable || len(f.contentEncoding)+len(value) >= maxEncodingBytes:
		f.contentEncoding = unreadable
	default:
		f.contentEncoding += "," + string(value)
	}
}

// flow returns the flow of the request, by the priorities of objectives in its configuration.
func (f *facts) flow(under *Configuration) messages.FlowKey {
	key := messages.FlowKey{Fairness: messages.DefaultFairness}
	if f.fairness.text != "" {
		key.Fairness = records.Label(f.fairness.text)
	} else if agent := f.firstOf(under.Flows); agent != "" {
		key.Fairness = agent
	}
	if f.objective.text != "" {
		key.Priority = under.Priorities[records.Label(f.objective.text)]
	}
	return key
}

// firstOf returns the first value that the request has of headers that plugins read; "" = it has none.
func (f *facts) firstOf(places []int) string {
	for _, i := range places {
		if i < len(f.declared) && f.declared[i].Text != "" {
			return f.declared[i].Text
		}
	}
	return ""
}

// first sets dst to value, cut at most bytes, unless dst has a value already. It may cut within a character, which no
// text ever shows: records.Label cuts labels again, between characters, and the parser alone reads a path and a type.
func first(dst *string, value []byte, most int) {
	if *dst != "" {
		return
	}
	switch string(value) { // constants for what almost every request says, so that nothing is allocated
	case usualPath:
		*dst = usualPath
	case usualType:
		*dst = usualType
	default:
		*dst = string(value[:min(len(value), most)])
	}
}

// force restricts the request to the endpoint that its client names, if it may. It returns why the request is refused,
// if it is.
func (f *facts) force() messages.PickFailed {
	if !f.aside.forced {
		return messages.PickFailed{}
	}
	to := address(f.aside.endpoint)
	if to == "" {
		detail := fmt.Sprintf("%s: got %q, want the ip:port of an endpoint", messages.ForcedHeader,
			records.Label(f.aside.endpoint))
		return messages.PickFailed{Reason: messages.InvalidRequest, Detail: detail}
	}
	f.subset = messages.Subset{Given: true, Addresses: messages.ListOf(to)}
	return messages.PickFailed{}
}

// fromLoopback reports whether Envoy says that the client of a request is on its own machine. It says nothing unless
// the attribute is among those of its filter.
func fromLoopback(in *wire.Request) bool {
	client, err := netip.ParseAddrPort(in.Attr(sourceAddress))
	return err == nil && client.Addr().Unmap().IsLoopback()
}

// readSubset reads the subset hint of a message, if it has one: a list of strings, or one string with commas. An entry
// that is no ip:port is skipped. A hint without any valid entry allows no endpoint at all.
func (f *facts) readSubset(in *wire.Request) {
	if f.subset.Given {
		return
	}
	var list []messages.Address
	kind := in.Meta(subsetNamespace, []string{subsetKey}, func(value []byte) bool {
		for part := range strings.SplitSeq(string(value), ",") {
			if a := address(part); a != "" && len(list) < maxSubsetEntries {
				list = append(list, a)
			}
		}
		return true
	})
	if kind != wire.MetaAbsent {
		f.subset = messages.Subset{Given: true, Addresses: messages.TakeList(list)}
	}
}

// readServed returns the address that served the request: the one in the load balancer's metadata, else that of the
// upstream connection.
func readServed(in *wire.Request) messages.Address { return address(saysServed(in)) }

// saysServed returns what the proxy says of it; "" = nothing.
func saysServed(in *wire.Request) (served string) {
	in.Meta(lbNamespace, []string{servedKey}, func(value []byte) bool {
		served = string(value)
		return false
	})
	return cmp.Or(served, in.Attr(upstreamAddress))
}

// verified returns the header by which conformance tests of gateways see what the proxy says.
func verified(in *wire.Request) messages.Header {
	h := messages.Header{Name: "x-conformance-test-served-endpoint", Value: saysServed(in)}
	switch {
	case h.Value != "" && attributes.SettableHeader(h.Name, h.Value):
	case in.HasMeta(lbNamespace):
		h.Value = "fail: missing destination endpoint served metadata"
	default:
		h.Value = "fail: missing envoy lb metadata"
	}
	return h
}

// readLocal returns why Envoy made the response itself. It is "" if a model server made the response, or if Envoy is
// not configured to say.
func readLocal(in *wire.Request) string {
	if details := in.Attr(codeDetails); details != viaUpstream {
		return records.Label(details)
	}
	return ""
}

// address returns an ip:port in the form that the pool uses, in which an IPv4 address in IPv6 form is that IPv4
// address. It returns "" for anything else, and for an address with a zone, which means nothing beyond its host.
func address(s string) messages.Address {
	a, err := netip.ParseAddrPort(strings.TrimSpace(s))
	if err != nil || a.Addr().Zone() != "" {
		return ""
	}
	var room [64]byte
	if b := netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).AppendTo(room[:0]); string(b) != s {
		return messages.Address(b)
	}
	return messages.Address(s)
}
