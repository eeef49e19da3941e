package conformance

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// Names of the endpoint picker protocol.
const (
	destinationKey  = "x-gateway-destination-endpoint"
	scoresKey       = "x-gateway-destination-endpoint-scores"
	servedKey       = "x-gateway-destination-endpoint-served"
	subsetKey       = "x-gateway-destination-endpoint-subset"
	lbNamespace     = "envoy.lb"
	subsetNamespace = "envoy.lb.subset_hint"
)

const chatPath = "/v1/chat/completions"

// checksum is a trailer.
var checksum = exchange.Field{Name: "x-checksum", Value: "1"}

// message is an HTTP request or response on its way through a direction.
type message struct {
	headers  exchange.Headers
	chunks   []string // of the body; nil = no body
	trailers exchange.Headers
	context  exchange.Context // metadata with every message of the direction
	onBody   *exchange.Context
	cut      int // BUFFERED_PARTIAL: bytes that the EPP gets to see; 0 = all
}

func (m message) body() string { return strings.Join(m.chunks, "") }

func (m message) with(name, value string) message {
	m.headers = append(m.headers[:len(m.headers):len(m.headers)], exchange.Field{Name: name, Value: value})
	return m
}

func (m message) without(name string) message {
	m.headers = append(exchange.Headers(nil), m.headers...)
	m.headers.Remove(name)
	return m
}

func (m message) ending(trailers ...exchange.Field) message {
	m.trailers = trailers
	return m
}

// post is a request with a body in the given chunks.
func post(path string, chunks ...string) message {
	m := message{headers: exchange.Headers{
		{Name: ":method", Value: "POST"}, {Name: ":path", Value: path}, {Name: ":authority", Value: "models.example"},
		{Name: ":scheme", Value: "http"}, {Name: "content-type", Value: "application/json"},
		{Name: "accept", Value: "*/*"},
	}, chunks: chunks}
	return m.with("content-length", strconv.Itoa(len(m.body())))
}

// bare is a request without a body.
func bare(method, path string) message {
	return message{headers: exchange.Headers{
		{Name: ":method", Value: method}, {Name: ":path", Value: path}, {Name: ":authority", Value: "models.example"},
		{Name: ":scheme", Value: "http"},
	}}
}

// chat is a plain chat request in one chunk.
func (t *checkRun) chat() message { return post(chatPath, t.prompt("Say hello.")) }

// prompt is a chat request's body.
func (t *checkRun) prompt(text string) string {
	return `{"model":` + quote(t.Model) + `,"messages":[{"role":"user","content":` + quote(text) + `}],"max_tokens":8}`
}

// quote is a JSON string.
func quote(text string) string {
	b, _ := json.Marshal(text) // a string never fails
	return string(b)
}

// reply is a response in the given chunks.
func reply(status int, contentType string, chunks ...string) message {
	return message{headers: exchange.Headers{{Name: ":status", Value: strconv.Itoa(status)},
		{Name: "content-type", Value: contentType}}, chunks: chunks}
}

// completion is a plain response.
func completion() message {
	return reply(200, "application/json",
		`{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant",`,
		`"content":"Hello."},"finish_reason":"stop"}],"usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6}}`)
}

// subset limits a request to entries, each a string or something that is none.
func subset(entries ...any) exchange.Context {
	list := &structpb.ListValue{}
	for _, e := range entries {
		v, err := structpb.NewValue(e)
		if err != nil {
			v = structpb.NewNullValue()
		}
		list.Values = append(list.Values, v)
	}
	return hint(structpb.NewListValue(list))
}

func hint(v *structpb.Value) exchange.Context {
	return exchange.Context{
		Metadata: map[string]*structpb.Struct{subsetNamespace: {Fields: map[string]*structpb.Value{subsetKey: v}}},
	}
}

// servedBy says in metadata which endpoint answered.
func servedBy(endpoint string) exchange.Context {
	return exchange.Context{Metadata: map[string]*structpb.Struct{
		lbNamespace: {Fields: map[string]*structpb.Value{servedKey: structpb.NewStringValue(endpoint)}},
	}}
}

// unseen is a message of which a direction shows nothing.
func unseen(mode exchange.Mode, m message) bool {
	return mode.SkipHeaders && m.chunks == nil && m.trailers == nil
}

func (c *call) mode(id exchange.Direction) exchange.Mode {
	if id == exchange.Request {
		return c.modes.Request
	}
	return c.modes.Response
}

// play sends a message through a direction as Envoy does in the direction's mode, and waits for every answer that is
// due. It ends early, without an error, at an immediate response.
func (c *call) play(id exchange.Direction, m message) error {
	mode := c.mode(id)
	if err := c.head(id, m); err != nil || c.refused() || unseen(mode, m) {
		return err
	}
	if m.onBody != nil {
		c.stream.SetContext(id, *m.onBody)
	}
	if done, err := c.sent(c.sendBody(id, mode, m)); done {
		return err
	}
	if !mode.Duplex() {
		if err := c.settle(id); err != nil || c.refused() {
			return err
		}
	}
	if m.trailers == nil || !mode.Trailers {
		return c.settle(id)
	}
	done, err := c.sent(c.stream.SendTrailers(id, m.trailers))
	if !done {
		err = c.settle(id)
	}
	if c.left(id) {
		return nil
	}
	return err
}

// left reports whether the EPP ended the stream, without an error, once it had answered the headers of a response whose
// body it is not shown: it may, and the trailers bypass it as the bodies do.
func (c *call) left(id exchange.Direction) bool {
	select {
	case <-c.over:
	default:
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	hidden := c.mode(id).Body == exchange.None && c.modes.Response.Body == exchange.None
	return hidden && c.ways[exchange.Response].headersN > 0 && errors.Is(c.err, io.EOF)
}

// head begins a direction: it sends the headers, and waits for their answer where Envoy does.
func (c *call) head(id exchange.Direction, m message) error {
	mode := c.mode(id)
	if id == exchange.Request {
		m = m.with("x-request-id", c.id)
	}
	c.mu.Lock()
	c.ways[id].sent, c.ways[id].headers = m, m.headers
	c.mu.Unlock()
	if mode.SkipHeaders {
		c.stream.SetContext(id, m.context)
		return nil
	}
	err := c.stream.SendHeaders(id, m.headers, m.chunks == nil && m.trailers == nil, m.context)
	if done, err := c.sent(err); done {
		return err
	}
	if mode.Duplex() || c.modes.WithoutWaiting || c.modes.Observe {
		return nil
	}
	return c.await("headers answer", c.headersIn(id))
}

// sent reports whether sending is over, and whether that is an error: an EPP may refuse, and leave,
// while it is sent to.
func (c *call) sent(err error) (bool, error) {
	if err == nil {
		return false, nil
	}
	if errors.Is(err, io.EOF) {
		<-c.over
		if c.refused() {
			return true, nil
		}
		return true, c.ending("while it was sent to")
	}
	return true, err
}

// sendBody sends what the mode shows of a body.
func (c *call) sendBody(id exchange.Direction, mode exchange.Mode, m message) error {
	if mode.Body == exchange.None || m.chunks == nil {
		return nil
	}
	if !mode.Buffers() {
		for i, chunk := range m.chunks {
			if err := c.chunk(id, chunk, i == len(m.chunks)-1 && m.trailers == nil); err != nil {
				return err
			}
		}
		return nil
	}
	body, end := m.body(), m.trailers == nil
	if mode.Body == exchange.BufferedPartial && m.cut > 0 && m.cut < len(body) {
		body, end = body[:m.cut], false
	}
	return c.chunk(id, body, end)
}

func (c *call) chunk(id exchange.Direction, chunk string, end bool) error {
	c.mu.Lock()
	c.ways[id].bodySent++
	c.mu.Unlock()
	return c.stream.SendBody(id, []byte(chunk), end)
}

func (c *call) headersIn(id exchange.Direction) func() bool {
	return func() bool { return c.ways[id].headersN > 0 }
}

// settle waits until nothing is due in a direction for what was sent so far.
func (c *call) settle(id exchange.Direction) error {
	mode := c.mode(id)
	return c.await(id.String()+" direction's answers", func() bool {
		w := &c.ways[id]
		switch {
		case w.headersN == 0 && !mode.SkipHeaders:
			return false
		case mode.Duplex():
			return w.ended
		}
		return w.bodyN >= w.bodySent && (w.trailersN > 0 || w.sent.trailers == nil || !mode.Trailers ||
			!c.stream.InputEnded(id))
	})
}

// bomb is made once: it is slow to make.
var bomb = sync.OnceValue(func() string { return gzipped(strings.Repeat("a", 30<<20)) })

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text)) // a buffer takes all
	_ = w.Close()
	return b.String()
}

// brotlied is a Brotli stream of one uncompressed meta-block (RFC 7932, 9.2); 65 536 bytes at most.
func brotlied(text string) string {
	bits := (len(text)-1)<<4 | 1<<20 // window 16 bits, not the last block, length in 4 nibbles, uncompressed
	return string([]byte{byte(bits), byte(bits >> 8), byte(bits >> 16)}) + text + "\x03"
}

// zstded is a Zstandard frame of one raw block (RFC 8878, 3.1.1); 65 791 bytes at most, 256 at least.
func zstded(text string) string {
	size, block := len(text)-256, len(text)<<3|1
	header := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x60, byte(size), byte(size >> 8), byte(block), byte(block >> 8),
		byte(block >> 16)}
	if len(text) < 256 {
		header = []byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, byte(len(text)), byte(block), byte(block >> 8), byte(block >> 16)}
	}
	return string(header) + text
}
