package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	prefixGroups = 16       // distinct system prompts
	chunkBytes   = 16 << 10 // of a request body in one message, as Envoy reads them
	marker       = "#00000000"
	anyServed    = "127.0.0.1:00000" // as long as every address of the bench
)

// script is what Envoy sends for one request: gRPC messages, each with its prefix of 5 bytes, that are copied and then patched
// with the number of the request and who served it.
type script struct {
	bodyBytes int
	request   []byte // headers and body, one after the other
	sizes     []int  // of the messages in request
	markers   []int  // where the request's number stands in request
	headers   []byte // of the response
	served    int    // where the address stands in headers
	chunks    [][]byte
	sent      []int // bytes of the body in each chunk
}

// scripts are those of all prefix groups for request bodies of one size.
func scripts(bodyBytes int) ([]*script, error) {
	var all []*script
	for g := range prefixGroups {
		s, err := newScript(g, bodyBytes)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func newScript(group, bodyBytes int) (*script, error) {
	body := chatBody(group, bodyBytes)
	s := &script{bodyBytes: len(body)}
	s.addRequest(requestHeaders(len(body)))
	for at := 0; at < len(body); at += chunkBytes {
		end := min(at+chunkBytes, len(body))
		s.addRequest(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
			RequestBody: &extprocv3.HttpBody{Body: body[at:end], EndOfStream: end == len(body)},
		}})
	}
	for at := 0; ; {
		i := bytes.Index(s.request[at:], []byte(marker))
		if i < 0 {
			break
		}
		at += i + 1
		s.markers = append(s.markers, at)
	}
	if len(s.markers) != 2 {
		return nil, fmt.Errorf("the number of a request of %d bytes stands in %d places, want 2: its id and its prompt", bodyBytes, len(s.markers))
	}
	s.headers = framed(responseHeaders())
	s.served = bytes.Index(s.headers, []byte(anyServed))
	for i, text := range answerChunks {
		s.chunks = append(s.chunks, framed(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{
			ResponseBody: &extprocv3.HttpBody{Body: []byte(text), EndOfStream: i == len(answerChunks)-1},
		}}))
		s.sent = append(s.sent, len(text))
	}
	return s, nil
}

func (s *script) addRequest(m *extprocv3.ProcessingRequest) {
	b := framed(m)
	s.request, s.sizes = append(s.request, b...), append(s.sizes, len(b))
}

// patch writes the number of a request where the markers stand.
func (s *script) patch(request []byte, number uint64) {
	var digits [8]byte
	for i := range digits {
		digits[7-i] = '0' + byte(number%10)
		number /= 10
	}
	for _, at := range s.markers {
		copy(request[at:], digits[:])
	}
}

func framed(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err) // the messages are fixed
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

// chatBody is a chat completion: a system prompt that its group shares, about three fifths of the body, and a turn of its own.
func chatBody(group, size int) []byte {
	const head = `{"model":"meta-llama/Llama-3.1-8B-Instruct","stream":true,"stream_options":{"include_usage":true},` +
		`"max_tokens":256,"temperature":0.7,"messages":[{"role":"system","content":"`
	const middle, tail = `"},{"role":"user","content":"`, `"}]}`
	room := size - len(head) - len(middle) - len(tail)
	system := prose("You are assistant number "+strconv.Itoa(group)+" of a large company. ", room*3/5)
	user := prose("Ticket "+marker+". ", room-len(system))
	return []byte(head + system + middle + user + tail)
}

// prose is n bytes of English as JSON carries it, with an escaped line break now and then.
func prose(begin string, n int) string {
	const text = `Answer politely and briefly, cite the paragraph of the handbook that you rely on, and say so if you do not know.\n` +
		`Orders are shipped within two working days; returns are accepted for a month with the receipt. Never promise a refund.\n`
	s := begin + strings.Repeat(text, n/len(text)+1)
	s = s[:n]
	for strings.HasSuffix(s, `\`) { // half an escape
		s = s[:len(s)-1] + "."
	}
	return s
}

func headerMap(pairs ...string) *corev3.HeaderMap {
	h := &corev3.HeaderMap{}
	for i := 0; i < len(pairs); i += 2 {
		h.Headers = append(h.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return h
}

func requestHeaders(length int) *extprocv3.ProcessingRequest {
	const full = extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	return &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headerMap(
			":method", "POST", ":path", "/v1/chat/completions", ":authority", "llm.example.com", ":scheme", "http",
			"content-type", "application/json", "content-length", strconv.Itoa(length), "accept", "*/*",
			"user-agent", "OpenAI/Python 1.54.0", "authorization", "Bearer sk-0123456789abcdef0123456789abcdef",
			"x-forwarded-for", "10.1.2.3", "x-forwarded-proto", "http", "x-request-id", "5f2c0f3e-6a3b-4f6d-9c1e-"+marker,
			"x-envoy-expected-rq-timeout-ms", "300000", "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		)}},
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: full, ResponseBodyMode: full},
	}
}

func responseHeaders() *extprocv3.ProcessingRequest {
	served := &structpb.Struct{Fields: map[string]*structpb.Value{destinationKey + "-served": structpb.NewStringValue(anyServed)}}
	return &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{Headers: headerMap(
			":status", "200", "content-type", "text/event-stream; charset=utf-8", "date", "Sat, 21 Nov 2026 12:00:00 GMT",
			"server", "uvicorn", "x-envoy-upstream-service-time", "41",
		)}},
		MetadataContext: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb": served}},
	}
}

// answerChunks are a streamed chat completion; the last brings the usage.
var answerChunks = []string{
	event(`"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]`),
	event(`"choices":[{"index":0,"delta":{"content":"Orders are shipped"},"finish_reason":null}]`),
	event(`"choices":[{"index":0,"delta":{"content":" within two days."},"finish_reason":"stop"}]`),
	event(`"choices":[],"usage":{"prompt_tokens":1801,"total_tokens":1809,"completion_tokens":8}`) + "data: [DONE]\n\n",
}

func event(rest string) string {
	return `data: {"id":"chatcmpl-7d9a4b0f1c2e","object":"chat.completion.chunk","created":1795262400,"model":"meta-llama/Llama-3.1-8B-Instruct",` +
		rest + "}\n\n"
}

// reply is what a ProcessingResponse says.
type reply struct {
	field     protowire.Number // of the oneof
	bodyBytes int
	end       bool
	content   []byte // of the whole message
}

var errReply = errors.New("an answer that cannot be read")

// readReply reads the member of the oneof, and of a streamed body its length and its end.
func readReply(b []byte) (reply, error) {
	r := reply{content: b}
	for len(b) > 0 {
		num, value, rest, err := field(b)
		if err != nil {
			return r, err
		}
		b = rest
		if num < 1 || num > 7 {
			continue
		}
		r.field = num
		if num != 3 && num != 4 {
			continue
		}
		for _, step := range []protowire.Number{1, 3, 3} { // response, body_mutation, streamed_response
			if value, err = inside(value, step); err != nil {
				return r, err
			}
		}
		if err := r.readStreamed(value); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (r *reply) readStreamed(b []byte) error {
	for len(b) > 0 {
		num, value, rest, err := field(b)
		if err != nil {
			return err
		}
		switch num {
		case 1:
			r.bodyBytes += len(value)
		case 2:
			r.end = true
		}
		b = rest
	}
	return nil
}

// inside gives the last field of that number.
func inside(b []byte, want protowire.Number) (found []byte, err error) {
	for len(b) > 0 {
		num, value, rest, err := field(b)
		if err != nil {
			return nil, err
		}
		if num == want {
			found = value
		}
		b = rest
	}
	return found, nil
}

func field(b []byte) (num protowire.Number, value, rest []byte, err error) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		return 0, nil, nil, errReply
	}
	if typ == protowire.BytesType {
		v, m := protowire.ConsumeBytes(b[n:])
		if m < 0 {
			return 0, nil, nil, errReply
		}
		return num, v, b[n+m:], nil
	}
	m := protowire.ConsumeFieldValue(num, typ, b[n:])
	if m < 0 {
		return 0, nil, nil, errReply
	}
	return num, nil, b[n+m:], nil
}
