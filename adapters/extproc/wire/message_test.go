package wire

import (
	"fmt"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/proto"
)

// A gRPC message comes back in one piece, whatever its size and however it was cut on the way, with its flags.
func TestEchoMessage(t *testing.T) {
	for _, size := range []int{0, 1, copyBytes, copyBytes + 1, ChunkBytes + 1, 5 << 20} {
		for _, piece := range []int{1 << 30, 16 << 10} {
			t.Run(fmt.Sprintf("%d bytes in pieces of %d", size, piece), func(t *testing.T) {
				for flags := range 8 {
					echoMessage(t, &extprocv3.StreamedBodyResponse{
						Body: pattern(size), EndOfStream: flags&1 != 0, EndOfStreamWithoutMessage: flags&2 != 0, GrpcMessageCompressed: flags&4 != 0,
					}, piece)
				}
			})
		}
	}
}

func echoMessage(t *testing.T, want *extprocv3.StreamedBodyResponse, piece int) {
	t.Helper()
	m := bodyMessage(RequestLane, want.GetBody(), want.GetEndOfStream())
	m.GetRequestBody().EndOfStreamWithoutMessage = want.GetEndOfStreamWithoutMessage()
	m.GetRequestBody().GrpcMessageCompressed = want.GetGrpcMessageCompressed()
	var e Echo
	var out Response
	e.StartMessage(decoded(t, m, piece))
	if !e.Next(&out) {
		t.Fatal("no answer")
	}
	if got := chunk(t, RequestLane, sent(t, &out)); !proto.Equal(got, want) {
		t.Errorf("flags %v %v %v: the answer differs", want.GetEndOfStream(), want.GetEndOfStreamWithoutMessage(), want.GetGrpcMessageCompressed())
	}
	if e.Next(&out) {
		t.Error("a second answer")
	}
}

func (v *view) body(b *extprocv3.HttpBody) {
	v.EndOfStream, v.Body = b.GetEndOfStream(), string(b.GetBody())
	v.Message = Message{None: b.GetEndOfStreamWithoutMessage(), Compressed: b.GetGrpcMessageCompressed()}
}

func bodyMessage(lane Lane, body []byte, eos bool) *extprocv3.ProcessingRequest {
	b := &extprocv3.HttpBody{Body: body, EndOfStream: eos}
	if lane == ResponseLane {
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: b}}
	}
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: b}}
}

func TestReserveIsCapped(t *testing.T) {
	var b Body
	b.Reserve(1_000_000_000_000)
	if got := cap(*b.buf); got > maxReserveBytes {
		t.Errorf("Reserve(10^12) took %d bytes, want at most %d", got, maxReserveBytes)
	}
	b.Reserve(-1)
	b.Release()
}
