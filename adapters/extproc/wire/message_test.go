package wire

import (
	"fmt"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// A gRPC message comes back in one piece, whatever its size and however it was cut on the way, with its flags.
func TestEchoMessage(t *testing.T) {
	for _, size := range []int{0, 1, copyBytes, copyBytes + 1, ChunkBytes + 1, 5 << 20} {
		for _, piece := range []int{1 << 30, 16 << 10} {
			t.Run(fmt.Sprintf("%d bytes in pieces of %d", size, piece), func(t *testing.T) {
				for flags := range 8 {
					echoMessage(t, &extprocv3.StreamedBodyResponse{
						Body: pattern(size), EndOfStream: flags&1 != 0, EndOfStreamWithoutMessage: flags&2 != 0,
						GrpcMessageCompressed: flags&4 != 0,
					}, piece)
				}
			})
		}
	}
}

func echoMessage(t *testing.T, want *extprocv3.StreamedBodyResponse, piece int) {
	t.Helper()
	m := bodyMessage(RequestDirection, want.GetBody(), want.GetEndOfStream())
	m.GetRequestBody().EndOfStreamWithoutMessage = want.GetEndOfStreamWithoutMessage()
	m.GetRequestBody().GrpcMessageCompressed = want.GetGrpcMessageCompressed()
	var e Echo
	var out Response
	e.StartMessage(decoded(t, m, piece))
	if !e.Next(&out) {
		t.Fatal("no answer")
	}
	if got := chunk(t, RequestDirection, sent(t, &out)); !proto.Equal(got, want) {
		t.Errorf("flags %v %v %v: the answer differs", want.GetEndOfStream(), want.GetEndOfStreamWithoutMessage(),
			want.GetGrpcMessageCompressed())
	}
	if e.Next(&out) {
		t.Error("a second answer")
	}
}

func (v *view) body(b *extprocv3.HttpBody) {
	v.EndOfStream, v.Body = b.GetEndOfStream(), string(b.GetBody())
	v.Message = Message{None: b.GetEndOfStreamWithoutMessage(), Compressed: b.GetGrpcMessageCompressed()}
}

func bodyMessage(direction Direction, body []byte, eos bool) *extprocv3.ProcessingRequest {
	b := &extprocv3.HttpBody{Body: body, EndOfStream: eos}
	if direction == ResponseDirection {
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

// TestToldLengthEndsTheGrowth: a buffer is at most twice what came, and ends at the length that was told.
// A wrong one changes nothing.
func TestToldLengthEndsTheGrowth(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct{ told, bytes, want int }{
		"17 MiB":           {17 * mib, 17 * mib, 17 * mib},
		"31 MiB":           {31 * mib, 31 * mib, 31 * mib},
		"no length":        {0, 17 * mib, 32 * mib},
		"less than told":   {31 * mib, 9 * mib, 31 * mib / 2},
		"more than told":   {17 * mib, 18 * mib, 34 * mib},
		"in the pool":      {3 * mib, 3 * mib, 4 * mib},
		"a small one":      {100, 100, 2 << 10},
		"absurd":           {1 << 60, mib, mib},
		"one byte":         {1, 1, 2 << 10},
		"an odd one":       {17*mib + 1, 17*mib + 1, 17*mib + 1},
		"length zero":      {0, 100, 2 << 10},
		"a negative one":   {-5, 100, 2 << 10},
		"a chunk too many": {17 * mib, 17*mib + 1, 34 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			var b Body
			b.Reserve(c.told)
			for came := 0; came < c.bytes; {
				n := min(c.bytes-came, 64<<10)
				took := b.Takes(n)
				b.Append(&Request{Kind: RequestBody, held: mem.BufferSlice{mem.SliceBuffer(make([]byte, n))},
					bodyLen: n})
				came += n
				if got := cap(*b.buf); got != took || got > max(2*came, maxReserveBytes) {
					t.Fatalf("a buffer of %d bytes for %d that came; it was to take %d, and may take twice what came",
						got, came, took)
				}
			}
			if got := cap(*b.buf); got != c.want || b.Len() != c.bytes {
				t.Errorf("a buffer of %d bytes holds %d, want %d and %d", got, b.Len(), c.want, c.bytes)
			}
		})
	}
}
