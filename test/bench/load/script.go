// Package load is the proxy's side of the bench: connections that carry ext_proc streams, the requests on them, and the
// access log, as Envoy would send them. It owns what is sent and checks what comes back. It never measures the server.
package load

import (
	"fmt"
	"slices"

	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/encoding/protowire"
)

// Mode is how the proxy shows the bodies of a request and its response.
type Mode struct {
	request, response extprocfilterv3.ProcessingMode_BodySendMode
}

// The modes. In the light lane the response's body bypasses the server,
// and the access log tells the end of the request.
var (
	FullDuplex = Mode{extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED,
		extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED}
	Light    = Mode{extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED, extprocfilterv3.ProcessingMode_NONE}
	Streamed = Mode{extprocfilterv3.ProcessingMode_STREAMED, extprocfilterv3.ProcessingMode_STREAMED}
	Buffered = Mode{extprocfilterv3.ProcessingMode_BUFFERED, extprocfilterv3.ProcessingMode_BUFFERED}
)

// Shape is what the requests of one load have in common.
type Shape struct {
	Mode      Mode
	BodyBytes int // of the request
	Chunks    int // of the response, each an event of its own; at least 3
}

const (
	prefixGroups = 16       // distinct system prompts
	chunkBytes   = 16 << 10 // of a request body in one message, as Envoy reads them
	marker       = "#00000000"
	servedHost   = "127.0.0.1"
	anyServed    = servedHost + ":00000" // as long as every address of the bench
)

// AddressBytes is the length of every server's address: scripts are patched in place.
const AddressBytes = len(anyServed)

// The members of a ProcessingResponse's oneof.
const (
	requestHeadersAnswer protowire.Number = iota + 1
	responseHeadersAnswer
	requestBodyAnswer
	responseBodyAnswer
)

// Script is what the proxy sends for one request, turn by turn, and what it wants back.
type Script struct {
	shape         Shape
	light         bool
	responseBytes int
	turns         []*turn
}

// turn are messages that are sent one after the other, and their answers. Messages are copied and then patched with the
// number of the request and the server that served it.
type turn struct {
	messages []byte // gRPC messages, each with its prefix of 5 bytes
	sizes    []int  // of each of them
	markers  []int  // where the request's number stands
	served   int    // where the address stands; 0 = nowhere
	picks    bool   // one of the answers names the endpoint
	wants    []want
}

// want is an answer: of bodies that come back, all of it until bytes have come, and the end.
type want struct {
	field protowire.Number
	bytes int
	end   bool
	picks bool // it names the endpoint
}

// Scripts are those of all prefix groups for requests of one shape.
func Scripts(shape Shape) ([]*Script, error) {
	response := responseTurns(shape)
	var all []*Script
	for g := range prefixGroups {
		s := &Script{shape: shape, light: shape.Mode == Light, responseBytes: responseBytes(shape.Chunks)}
		s.turns = requestTurns(g, shape)
		markers := 0
		for _, t := range s.turns {
			markers += len(t.markers)
		}
		if markers != 2 {
			return nil, fmt.Errorf("the number of a request of %d bytes stands in %d places, want 2: its id and its "+
				"prompt", shape.BodyBytes, markers)
		}
		s.turns = append(s.turns, response...)
		all = append(all, s)
	}
	return all, nil
}

// requestTurns are a request's headers and body.
func requestTurns(group int, shape Shape) []*turn {
	body := chatBody(group, shape.BodyBytes)
	headers := framed(requestHeaders(len(body), shape.Mode))
	piece := chunkBytes
	if shape.Mode == Buffered {
		piece = len(body)
	}
	var chunks [][]byte
	for at := 0; at < len(body); at += piece {
		end := min(at+piece, len(body))
		chunks = append(chunks, framed(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
			RequestBody: &extprocv3.HttpBody{Body: body[at:end], EndOfStream: end == len(body)},
		}}))
	}
	picked := want{field: requestHeadersAnswer, picks: true}
	switch shape.Mode {
	case Streamed: // the pick goes with the headers, and the body passes
		return []*turn{newTurn([][]byte{headers}, picked),
			newTurn(chunks, slices.Repeat([]want{{field: requestBodyAnswer}}, len(chunks))...)}
	case Buffered: // the pick goes with the body
		return []*turn{
			newTurn([][]byte{headers}, want{field: requestHeadersAnswer}),
			newTurn(chunks, want{field: requestBodyAnswer, picks: true}),
		}
	}
	return []*turn{newTurn(append([][]byte{headers}, chunks...), picked,
		want{field: requestBodyAnswer, bytes: len(body), end: true})}
}

// responseTurns are a response's headers and the chunks of its body, one after the other.
func responseTurns(shape Shape) []*turn {
	headers := framed(responseHeaders())
	first := newTurn([][]byte{headers}, want{field: responseHeadersAnswer})
	first.served = places(headers, []byte(anyServed))[0]
	all := []*turn{first}
	switch shape.Mode {
	case Light:
		return all
	case Buffered:
		whole := ""
		for i := range shape.Chunks {
			whole += chunk(i, shape.Chunks)
		}
		return append(all, chunkTurn(whole, true, false))
	}
	back := shape.Mode == FullDuplex
	middle := chunkTurn(middleEvent, false, back)
	for i := range shape.Chunks {
		if t := chunk(i, shape.Chunks); t == middleEvent {
			all = append(all, middle)
		} else {
			all = append(all, chunkTurn(t, i == shape.Chunks-1, back))
		}
	}
	return all
}

// chunk is an event of an answer of n.
func chunk(i, n int) string {
	switch i {
	case 0:
		return firstEvent
	case n - 2:
		return stopEvent
	case n - 1:
		return usageEvent
	}
	return middleEvent
}

func responseBytes(n int) int {
	return len(firstEvent) + (n-3)*len(middleEvent) + len(stopEvent) + len(usageEvent)
}

// chunkTurn sends a piece of a response; back says that its answer holds it.
func chunkTurn(text string, end, back bool) *turn {
	w := want{field: responseBodyAnswer}
	if back {
		w.bytes, w.end = len(text), end
	}
	return newTurn([][]byte{framed(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{
		ResponseBody: &extprocv3.HttpBody{Body: []byte(text), EndOfStream: end},
	}})}, w)
}

func newTurn(messages [][]byte, wants ...want) *turn {
	t := &turn{wants: wants}
	for _, m := range messages {
		t.messages, t.sizes = append(t.messages, m...), append(t.sizes, len(m))
	}
	for _, at := range places(t.messages, []byte(marker)) {
		t.markers = append(t.markers, at+1)
	}
	for _, w := range wants {
		t.picks = t.picks || w.picks
	}
	return t
}

// patch writes the number of a request where the markers stand.
func patch(messages []byte, markers []int, number uint64) {
	var digits [8]byte
	for i := range digits {
		digits[7-i] = '0' + byte(number%10)
		number /= 10
	}
	for _, at := range markers {
		copy(messages[at:], digits[:])
	}
}
