package proxy

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// Names of the endpoint picker protocol.
const (
	namespaceLB       = "envoy.lb"
	namespaceSubset   = "envoy.lb.subset_hint"
	destinationKey    = "x-gateway-destination-endpoint" // also the prefix of what clients may not send
	destinationServed = "x-gateway-destination-endpoint-served"
	destinationSubset = "x-gateway-destination-endpoint-subset"
)

// requestHeaders is the header map as the EPP sees it: pseudo headers, then lower-case names in order,
// nothing of the connection.
func requestHeaders(r *http.Request) exchange.Headers {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	path := r.RequestURI
	if path == "" || path[0] != '/' && path != "*" {
		path = r.URL.RequestURI()
	}
	h := exchange.Headers{{Name: ":method", Value: r.Method}, {Name: ":path", Value: path},
		{Name: ":authority", Value: r.Host}, {Name: ":scheme", Value: scheme}}
	h = appendFields(h, r.Header, func(name string) bool {
		return strings.HasPrefix(name, destinationKey) ||
			name == "content-length"
	})
	if r.ContentLength > 0 || r.Header.Get("Content-Length") == "0" {
		h.Add("content-length", strconv.FormatInt(r.ContentLength, 10))
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		h.Set("x-forwarded-for", strings.TrimPrefix(h.Get("x-forwarded-for")+", "+host, ", "))
	}
	h.Set("x-forwarded-proto", scheme)
	if h.Get("x-request-id") == "" {
		h.Set("x-request-id", newID())
	}
	return h
}

// appendFields adds the lines of a header that do not belong to the connection, names in order.
func appendFields(to exchange.Headers, from http.Header, skip func(name string) bool) exchange.Headers {
	named := strings.ToLower(strings.Join(from["Connection"], ","))
	ofConnection := func(name string) bool {
		return named != "" && slices.ContainsFunc(strings.Split(named, ","),
			func(s string) bool { return strings.TrimSpace(s) == name })
	}
	for _, key := range slices.Sorted(maps.Keys(from)) {
		name := strings.ToLower(key)
		if hopByHop(name) || ofConnection(name) || skip(name) {
			continue
		}
		for _, value := range from[key] {
			to.Add(name, value)
		}
	}
	return to
}

func hopByHop(name string) bool {
	switch name {
	case "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization",
		"te", "trailer", "transfer-encoding", "upgrade", "expect", "host":
		return true
	}
	return false
}

// newID is a random UUID (version 4).
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// requestContext carries the subset a request is limited to.
func (t *transaction) requestContext() exchange.Context {
	subset := t.p.config.Subset(t.r)
	if subset == nil {
		return exchange.Context{}
	}
	list := &structpb.ListValue{}
	for _, endpoint := range subset {
		list.Values = append(list.Values, structpb.NewStringValue(endpoint))
	}
	hint := &structpb.Struct{Fields: map[string]*structpb.Value{destinationSubset: structpb.NewListValue(list)}}
	return exchange.Context{Metadata: map[string]*structpb.Struct{namespaceSubset: hint}}
}

// readBody starts sending the client's body on.
func (t *transaction) readBody() {
	if t.noBody {
		return
	}
	t.readDone = make(chan struct{})
	// HTTP/1 only: without it the server would read the rest of the body before the first response byte.
	_ = http.NewResponseController(t.w).EnableFullDuplex()
	through := t.stream != nil && t.p.config.Request.Duplex()
	t.tasks.Add(1)
	go func() {
		defer t.tasks.Done()
		source := &noticed{Reader: t.r.Body, done: t.readDone}
		trailers := func() exchange.Headers { return appendFields(nil, t.r.Trailer, noField) }
		if err := t.pump(exchange.Request, source, trailers, through); err != nil {
			t.cancel() // the client broke its request off
		}
	}()
}

// noticed closes done when the body has been read to its end or to an error, before anything can act on it: from then
// on the connection must not be touched any more.
type noticed struct {
	io.Reader
	done  chan struct{}
	ended bool
}

func (n *noticed) Read(p []byte) (int, error) {
	count, err := n.Reader.Read(p)
	if err != nil && !n.ended {
		n.ended = true
		close(n.done)
	}
	return count, err
}

func noField(string) bool { return false }

// pump reads a body to its end and sends it to the EPP, or straight on when through is false or the EPP is out of the
// way.
func (t *transaction) pump(id exchange.Direction, body io.Reader, trailers func() exchange.Headers,
	through bool) error {
	buffer := make([]byte, t.p.config.ChunkBytes)
	for {
		n, err := body.Read(buffer)
		if err != nil && err != io.EOF {
			return err
		}
		var last exchange.Headers
		if err == io.EOF {
			last = trailers()
		}
		end := err == io.EOF && len(last) == 0
		if n > 0 || end {
			through = t.passChunk(id, buffer[:n], end, through)
		}
		if len(last) > 0 {
			t.passTrailers(id, last, through)
		}
		if errors.Is(err, io.EOF) || t.ctx.Err() != nil {
			return nil //nolint:nilerr // the caller that cancelled knows why
		}
	}
}

// passChunk reports whether the next chunk still goes through the EPP.
func (t *transaction) passChunk(id exchange.Direction, chunk []byte, end, through bool) bool {
	if through && !t.direct() {
		if t.stream.SendBody(id, chunk, end) == nil {
			return true
		}
		if !t.verdict() {
			return false
		}
	}
	body := t.ways[id].body
	body.push(slices.Clone(chunk))
	if end {
		body.end(nil)
	}
	return false
}

func (t *transaction) passTrailers(id exchange.Direction, trailers exchange.Headers, through bool) {
	if through && !t.direct() {
		t.mu.Lock()
		t.ways[id].trailers = trailers
		t.mu.Unlock()
		if t.stream.SendTrailers(id, trailers) == nil || !t.verdict() {
			return
		}
	}
	t.ways[id].body.end(trailers)
}

// verdict waits, after a failed send, for what the receiving goroutine makes of the end of the stream:
// true means go on without the EPP.
func (t *transaction) verdict() bool {
	select {
	case <-t.bypassed:
		return true
	case <-t.ctx.Done():
		return false
	}
}
