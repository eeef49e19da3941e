package proxy

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// served is the endpoint that answered.
type served struct {
	endpoint string // as it stood in the list
	address  string // of the connection
}

// roundTrip tries the endpoints in the EPP's order, then fallback endpoints, until one answers. An attempt is followed
// by another only if nothing of the request was written.
func (t *transaction) roundTrip() (*http.Response, served, error) {
	picks := t.destinations()
	if len(picks) > 0 {
		t.p.counters.picks.Add(1)
	}
	var tried []string
	var last error
	for len(tried) < t.p.config.MaxAttempts {
		endpoint := t.choose(picks, tried)
		if endpoint == "" {
			break
		}
		if len(tried) > 0 {
			t.p.counters.retries.Add(1)
		}
		tried = append(tried, endpoint)
		response, address, again, err := t.attempt(endpoint)
		if err == nil {
			return response, served{endpoint, address}, nil
		}
		if stopped := t.failure(nil); stopped != nil {
			return nil, served{}, stopped
		}
		last = err
		if !again {
			break
		}
	}
	if last == nil {
		return nil, served{}, &localReply{status: http.StatusServiceUnavailable, body: "no healthy upstream",
			details: "no_healthy_upstream"}
	}
	return nil, served{}, &localReply{status: http.StatusServiceUnavailable,
		body: "upstream failed before it answered: " + last.Error(), details: "upstream_reset_before_response_started"}
}

// choose returns the next pick, then a random fallback endpoint that was not tried, then nothing.
func (t *transaction) choose(picks, tried []string) string {
	if len(tried) < len(picks) {
		return picks[len(tried)]
	}
	rest := slices.DeleteFunc(slices.Clone(t.p.config.Fallback()),
		func(e string) bool { return slices.Contains(tried, e) })
	if len(rest) == 0 {
		return ""
	}
	t.p.counters.fallbacks.Add(1)
	return rest[rand.IntN(len(rest))]
}

// destinations reads the EPP's list, without doubles and entries that are no address.
func (t *transaction) destinations() []string {
	if t.stream == nil {
		return nil
	}
	list := t.stream.Metadata(namespaceLB).GetFields()[destinationKey].GetStringValue()
	select {
	case <-t.ways[exchange.Request].released:
		if header := t.ways[exchange.Request].headers.Get(destinationKey); header != list {
			t.report(exchange.DestinationMismatch, fmt.Sprintf("header %q, metadata %q", header, list))
		}
	default:
		return nil // the EPP failed before it answered: what it said before does not count
	}
	var picks []string
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		if _, err := netip.ParseAddrPort(entry); err != nil {
			t.report(exchange.DestinationInvalid, fmt.Sprintf("%q in %q", entry, list))
			continue
		}
		if !slices.Contains(picks, entry) {
			picks = append(picks, entry)
		}
	}
	return picks
}

func (t *transaction) report(rule exchange.Rule, detail string) {
	t.stream.Report(exchange.Violation{Rule: rule, Direction: exchange.Request, Detail: detail})
}

// attempt sends the request to one endpoint. again says that nothing was written,
// so that another endpoint may be tried.
func (t *transaction) attempt(endpoint string) (response *http.Response, address string, again bool, err error) {
	request, err := t.upstreamRequest(endpoint)
	if err != nil {
		return nil, "", false, err
	}
	var wrote atomic.Bool
	var remote atomic.Value
	trace := &httptrace.ClientTrace{
		GotConn:      func(i httptrace.GotConnInfo) { remote.Store(i.Conn.RemoteAddr().String()) },
		WroteHeaders: func() { wrote.Store(true) },
	}
	response, err = t.p.config.Transport.RoundTrip(request.WithContext(httptrace.WithClientTrace(t.ctx, trace)))
	if err != nil {
		return nil, "", !wrote.Load(), err
	}
	address, _ = remote.Load().(string)
	if address == "" {
		address = endpoint
	}
	return response, address, false, nil
}

func (t *transaction) upstreamRequest(endpoint string) (*http.Request, error) {
	headers := t.ways[exchange.Request].headers
	target, err := url.ParseRequestURI(headers.Get(":path"))
	if err != nil {
		return nil, fmt.Errorf("path %q: %w", headers.Get(":path"), err)
	}
	target.Scheme, target.Host = "http", endpoint
	request := &http.Request{
		Method: headers.Get(":method"), URL: target, Host: headers.Get(":authority"),
		Header: http.Header{"User-Agent": nil}, // nil keeps the transport from adding its own
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	for _, f := range headers {
		if f.Name[0] != ':' && f.Name != "content-length" && !hopByHop(f.Name) {
			request.Header.Add(f.Name, f.Value)
		}
	}
	if t.noBody {
		return request, nil
	}
	return request, t.attachBody(request)
}

// attachBody gives the request a reader of the whole body. Where the EPP may have changed it, its length is not known.
func (t *transaction) attachBody(request *http.Request) error {
	spool := t.ways[exchange.Request].body
	reader := spool.rewind()
	if reader == nil {
		return fmt.Errorf("body is larger than the %d bytes kept for another attempt", t.p.config.RetryBufferBytes)
	}
	request.ContentLength = -1
	if t.stream == nil || !t.p.config.Request.Duplex() {
		request.ContentLength = t.r.ContentLength
	}
	t.attachTrailers(request, reader)
	request.Body = reader
	request.GetBody = func() (io.ReadCloser, error) {
		again := spool.rewind()
		if again == nil {
			return nil, errSuperseded
		}
		again.onEnd = reader.onEnd
		return again, nil
	}
	return nil
}

// attachTrailers announces the trailers the client announced and fills them in when the body ends: the transport reads
// the map before the body and after its end, in the goroutine that calls Read.
func (t *transaction) attachTrailers(request *http.Request, reader *spoolReader) {
	if request.ContentLength >= 0 {
		return
	}
	request.Trailer = http.Header{}
	for _, name := range t.announced {
		request.Trailer[name] = nil
	}
	reader.onEnd = func(trailers exchange.Headers) {
		for _, f := range trailers {
			request.Trailer.Add(f.Name, f.Value)
		}
	}
}

// responseHeaders returns the header map of the response, as the EPP sees it.
func responseHeaders(r *http.Response) exchange.Headers {
	h := exchange.Headers{{Name: ":status", Value: strconv.Itoa(r.StatusCode)}}
	return appendFields(h, r.Header, noField)
}
