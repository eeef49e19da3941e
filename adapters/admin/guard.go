package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/spelling"
	"github.com/signalbox-epp/signalbox/messages"
)

// guard passes on requests of peers that may see debug paths, and refuses all others.
func (h *handler) guard(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if !h.OpenDebug {
			if why := notLocal(r); why != "" {
				fail(w, http.StatusForbidden, "not-loopback", "debug paths answer loopback peers only: "+why)
				return
			}
		}
		next(w, r)
	})
}

// Access says whether a request may be answered.
type Access uint8

const (
	// Granted is for a request that may be.
	Granted Access = iota
	// NoToken is for one without a token, or with one that is not known.
	NoToken
	// NoRight is for one whose token does not give the right.
	NoRight
	// Undecided is for one about which nobody says whether it may be answered.
	Undecided
)

// Guarded answers requests that may be answered, by what access says of them. The two health paths need no right,
// because probes have no token.
func Guarded(next http.Handler, access func(*http.Request) Access) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		is := Granted
		if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" {
			is = access(r)
		}
		if is == Granted {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		switch is {
		case NoRight:
			fail(w, http.StatusForbidden, "no-right", "the token is known, and does not give the right to "+
				strings.ToLower(clean(r.Method))+" "+clip(clean(r.URL.Path), 80))
		case Undecided:
			fail(w, http.StatusServiceUnavailable, "undecided",
				"whether the token gives the right is not known, for the Kubernetes API server does not say")
		case NoToken, Granted:
			w.Header().Set("WWW-Authenticate", `Bearer realm="signalbox"`)
			fail(w, http.StatusUnauthorized, "no-token",
				"want the header Authorization: Bearer, with a token that this process takes")
		}
	})
}

// Authenticated asks for an Authorization header that accept takes.
func Authenticated(next http.Handler, accept func(authorization string) bool) http.Handler {
	return Guarded(next, func(r *http.Request) Access {
		if accept(r.Header.Get("Authorization")) {
			return Granted
		}
		return NoToken
	})
}

// profiles adds the paths of net/http/pprof, if profiles are shown, for peers that may see debug paths.
func (h *handler) profiles(mux *http.ServeMux) {
	if !h.Profiles {
		return
	}
	mux.Handle("GET /debug/pprof/", h.guard(pprof.Index))
	mux.Handle("GET /debug/pprof/cmdline", h.guard(pprof.Cmdline))
	mux.Handle("GET /debug/pprof/profile", h.guard(pprof.Profile))
	mux.Handle("GET /debug/pprof/symbol", h.guard(pprof.Symbol))
	mux.Handle("POST /debug/pprof/symbol", h.guard(pprof.Symbol)) // go tool pprof uses POST
	mux.Handle("GET /debug/pprof/trace", h.guard(pprof.Trace))
}

// notLocal returns why a request does not count as one from this machine; "" = it does. The peer's address alone is not
// enough: a proxy on this machine passes on requests of others, and a web page's own name may resolve to 127.0.0.1.
func notLocal(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	switch {
	case err != nil || !peer.Addr().IsLoopback():
		return "the peer is " + clean(r.RemoteAddr)
	case r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("Forwarded") != "":
		return "a proxy passed this request on"
	case !localHost(r.Host):
		return "the Host header must be an IP address or localhost"
	}
	return ""
}

// notOurs returns why a request that changes something does not count as one from this machine; "" = it does. A web
// page that a browser on this machine shows may not send one.
func notOurs(r *http.Request) string {
	if why := notLocal(r); why != "" {
		return why
	}
	if r.Header.Get("Origin") != "" {
		return "a web page sent this request"
	}
	return ""
}

func localHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	_, err := netip.ParseAddr(host)
	return err == nil || host == "" || strings.EqualFold(host, "localhost")
}

// wantsJSON reports whether the client asks for JSON. The parameter wins over the header.
func wantsJSON(r *http.Request) bool {
	switch r.URL.Query().Get("format") {
	case "json":
		return true
	case "text":
		return false
	}
	for _, accept := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(accept, ",") {
			kind, _, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(kind), "application/json") {
				return true
			}
		}
	}
	return false
}

// failure is the body of every error.
type failure struct {
	Error string `json:"error"`
	Code  string `json:"code"`
}

func fail(w http.ResponseWriter, status int, code, text string) {
	writeJSON(w, status, failure{Error: text, Code: code})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		status = http.StatusInternalServerError
		b.Reset()
		b.WriteString(`{"error": "the answer has no JSON form", "code": "internal"}` + "\n")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(escapeUnseen(b.Bytes())) // fails only if the client left, and then needs no answer
}

// escapeUnseen writes characters that a terminal would obey or hide as JSON escapes, so that the value stays exact.
// encoding/json does so only for those below U+0020. Such characters can stand only within strings.
func escapeUnseen(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\n' || seen(r):
			out = append(out, text[:n]...)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = appendEscape(appendEscape(out, hi), lo)
		default:
			out = appendEscape(out, r)
		}
		text = text[n:]
	}
	return out
}

func appendEscape(out []byte, r rune) []byte {
	hex := strconv.FormatUint(uint64(r), 16)
	return append(append(append(out, '\\', 'u'), "0000"[len(hex):]...), hex...)
}

// strict passes on requests whose query holds nothing but the parameters of takes and format, each once. Others are
// refused: a misspelt parameter that was ignored would answer another question.
func strict(takes []string, next http.HandlerFunc) http.HandlerFunc {
	known := append([]string{"format"}, takes...)
	slices.Sort(known)
	return func(w http.ResponseWriter, r *http.Request) {
		values, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			fail(w, http.StatusBadRequest, "bad-query", "the query cannot be read: "+clean(err.Error()))
			return
		}
		for _, name := range sortedKeys(values) {
			switch {
			case !slices.Contains(known, name):
				fail(w, http.StatusBadRequest, "unknown-parameter", unknown("parameter", name, known))
				return
			case len(values[name]) > 1:
				fail(w, http.StatusBadRequest, "repeated-parameter", name+" must stand there once")
				return
			}
		}
		switch values.Get("format") {
		case "", "json", "text":
			next(w, r)
		default:
			fail(w, http.StatusBadRequest, "bad-format", "format must be json or text")
		}
	}
}

func sortedKeys(values url.Values) []string {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// unknown returns a text which says that there is no such thing, which name is similar, and which there are.
func unknown(what, name string, known []string) string {
	text := fmt.Sprintf("unknown %s %s", what, clip(clean(strconv.Quote(name)), 80))
	if near := spelling.Nearest(name, known); near != "" {
		text += ", did you mean " + near + "?"
	}
	if len(known) == 0 {
		return text + "; there is none"
	}
	return text + "; known are " + strings.Join(known, ", ")
}

// limits says how many of something a page shows.
type limits struct {
	usual int // if the client does not say
	most  int
}

// howMany returns the number in the first of these parameters that is given. If it is not a number within the limits,
// howMany refuses the request and returns false.
func howMany(w http.ResponseWriter, r *http.Request, l limits, names ...string) (int, bool) {
	query := r.URL.Query()
	for _, name := range names {
		text := query.Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > l.most {
			fail(w, http.StatusBadRequest, "bad-number", fmt.Sprintf("%s must be 1 to %d", name, l.most))
			return 0, false
		}
		return n, true
	}
	return l.usual, true
}

// listParameters holds the parameters of a list of requests. n is short for limit.
var listParameters = []string{"ended_within", "endpoint", "limit", "model", "n", "reason", "status", "x-request-id"}

// filter returns which requests a list shows. If that cannot be read, filter refuses the request and returns false.
func (h *handler) filter(w http.ResponseWriter, r *http.Request) (messages.RecordFilter, bool) {
	query := r.URL.Query()
	f := messages.RecordFilter{Model: records.Label(query.Get("model"))}
	if text := query.Get("status"); text != "" {
		var ok bool
		if f.Status, ok = statuses(text); !ok {
			fail(w, http.StatusBadRequest, "bad-status", "status must be a code such as 503, or a class such as 5xx")
			return f, false
		}
	}
	if text := query.Get("ended_within"); text != "" {
		within, err := time.ParseDuration(text)
		if err != nil || within <= 0 {
			fail(w, http.StatusBadRequest, "bad-duration", "ended_within must be a duration such as 2s")
			return f, false
		}
		f.Ended = h.Now().Add(-within)
	}
	if text := query.Get("reason"); text != "" {
		list, ok := reasons(text)
		if !ok {
			fail(w, http.StatusBadRequest, "unknown-reason", unknown("reason", text, Reasons()))
			return f, false
		}
		f.Reasons = messages.TakeList(list)
	}
	if text := query.Get("endpoint"); text != "" && !h.place(text, &f) {
		fail(w, http.StatusNotFound, "no-such-endpoint", unknown("endpoint", text, h.endpointNames())+
			"; any address such as 10.0.0.1:8000 may be given too")
		return f, false
	}
	return f, true
}

// statuses reads a status or a class of them.
func statuses(text string) (messages.StatusRange, bool) {
	if class, ok := strings.CutSuffix(strings.ToLower(text), "xx"); ok && len(class) == 1 && class >= "1" &&
		class <= "5" {
		from := 100 * int(class[0]-'0')
		return messages.StatusRange{From: from, To: from + 99}, true
	}
	code, err := strconv.Atoi(text)
	return messages.StatusRange{From: code, To: code}, err == nil && code >= 100 && code <= 599
}

const (
	anyReason = "any"  // all but none
	noReason  = "none" // the request was served
)

// Reasons returns the values of the parameter reason.
func Reasons() []string {
	all := []string{anyReason, noReason}
	for r := messages.NoReason + 1; r.String() != "unknown"; r++ {
		all = append(all, r.String())
	}
	return all
}

// reasons reads a reason, with or without the prefix that lists leave out.
func reasons(text string) ([]messages.Reason, bool) {
	if text == noReason {
		return []messages.Reason{messages.NoReason}, true
	}
	var list []messages.Reason
	for r := messages.NoReason + 1; r.String() != "unknown"; r++ {
		if name := r.String(); text == anyReason || text == name || rejectedPrefix+text == name {
			list = append(list, r)
		}
	}
	return list, len(list) > 0
}

// place reads an endpoint into f: a name in the pool, or any address. It returns false if the text is neither.
func (h *handler) place(text string, f *messages.RecordFilter) bool {
	addresses := map[messages.Address]bool{}
	if at, err := netip.ParseAddrPort(text); err == nil {
		f.Elsewhere = messages.Address(at.String())
		addresses[f.Elsewhere] = true
	}
	for _, e := range h.views() {
		if e.Name == text || e.Namespace+"/"+e.Name == text {
			addresses[messages.Address(e.Address)] = true
		}
	}
	var ids []messages.EndpointID
	for address := range addresses {
		if h.Incarnations != nil {
			ids = append(ids, h.Incarnations(address)...)
		}
	}
	f.Endpoints = messages.TakeList(ids)
	return len(addresses) > 0
}

// endpointNames returns names and addresses of endpoints, of a large pool only the first.
func (h *handler) endpointNames() []string {
	const most = 20
	var names []string
	for _, e := range h.views() {
		names = append(names, clean(e.Name), clean(e.Address))
	}
	return names[:min(len(names), most)]
}
