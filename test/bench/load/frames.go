package load

import (
	"encoding/binary"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

const destinationKey = "x-gateway-destination-endpoint"

func framed(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err) // the messages are fixed
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

// chatBody is a chat completion: a system prompt that its group shares, about three fifths of the body,
// and a turn of its own.
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

func requestHeaders(length int, m Mode) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headerMap(
			":method", "POST", ":path", "/v1/chat/completions", ":authority", "llm.example.com", ":scheme", "http",
			"content-type", "application/json", "content-length", strconv.Itoa(length), "accept", "*/*",
			"user-agent", "OpenAI/Python 1.54.0", "authorization", "Bearer sk-0123456789abcdef0123456789abcdef",
			"x-forwarded-for", "10.1.2.3", "x-forwarded-proto", "http", "x-request-id", "5f2c0f3e-6a3b-4f6d-9c1e-"+
				marker,
			"x-envoy-expected-rq-timeout-ms", "300000", "traceparent",
			"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		)}},
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: m.request, ResponseBodyMode: m.response},
	}
}

func responseHeaders() *extprocv3.ProcessingRequest {
	served := &structpb.Struct{Fields: map[string]*structpb.Value{destinationKey +
		"-served": structpb.NewStringValue(anyServed)}}
	return &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseHeaders{
			ResponseHeaders: &extprocv3.HttpHeaders{Headers: headerMap(
				":status", "200", "content-type", "text/event-stream; charset=utf-8", "date",
				"Sat, 21 Nov 2026 12:00:00 GMT",
				"server", "uvicorn", "x-envoy-upstream-service-time", "41",
			)},
		},
		MetadataContext: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb": served}},
	}
}

// A streamed chat completion: its first event, one in the middle, the one that says why it ends, and the usage.
var (
	firstEvent  = event(`"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]`)
	middleEvent = event(`"choices":[{"index":0,"delta":{"content":"Orders are shipped"},"finish_reason":null}]`)
	stopEvent   = event(`"choices":[{"index":0,"delta":{"content":" within two days."},"finish_reason":"stop"}]`)
	usageEvent  = event(`"choices":[],"usage":{"prompt_tokens":1801,"total_tokens":1809,"completion_tokens":8}`) +
		"data: [DONE]\n\n"
)

func event(rest string) string {
	return `data: {"id":"chatcmpl-7d9a4b0f1c2e","object":"chat.completion.chunk","created":1795262400,"model":"meta-llama/Llama-3.1-8B-Instruct",` +
		rest + "}\n\n"
}
