package main

import (
	"context"
	"net"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/proto"
)

// TestGeneratorAgainstTheFloor loads the floor in this process: every answer is checked by the generator itself, in both loops,
// with bodies of one message and of several.
func TestGeneratorAgainstTheFloor(t *testing.T) {
	ports, err := freePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	address := "127.0.0.1:" + ports[0]
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serveFloor(ctx, address, "127.0.0.1:"+ports[1], false) }()
	await(t, address)
	for _, size := range []int{1 << 10, 64 << 10} {
		all, err := scripts(size)
		if err != nil {
			t.Fatal(err)
		}
		g, err := newGenerator(address, 2, all)
		if err != nil {
			t.Fatal(err)
		}
		for name, run := range map[string]load{
			"closed": func(g *generator) (result, error) { return g.closed(8, 50*time.Millisecond) },
			"open":   func(g *generator) (result, error) { return g.open(200, 50*time.Millisecond) },
		} {
			r, err := run(g)
			if err != nil {
				t.Fatalf("%s loop, %d bytes: %v", name, size, err)
			}
			if r.requests < 8 || r.requests != len(r.picks) || r.late != 0 {
				t.Errorf("%s loop, %d bytes: %d requests, %d picks, %d late; want 8 or more, as many, none", name, size, r.requests, len(r.picks), r.late)
			}
		}
		if err := g.close(); err != nil {
			t.Error(err)
		}
	}
	cancel()
	<-ended
}

func await(t *testing.T, address string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody listens on %s", address)
		}
	}
}

func TestReadReplyKnowsEndAndLength(t *testing.T) {
	body, err := proto.Marshal(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: streamed(&extprocv3.HttpBody{Body: make([]byte, 300), EndOfStream: true}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := readReply(body)
	if err != nil || r.field != 3 || r.bodyBytes != 300 || !r.end {
		t.Errorf("read %d, %d bytes, end %v, %v; want 3, 300, true", r.field, r.bodyBytes, r.end, err)
	}
	for n := 1; n < len(body); n++ {
		if r, err := readReply(body[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes read as %+v", n, len(body), r)
		}
	}
}

func TestBenchmarksAreReadByName(t *testing.T) {
	const output = "goos: linux\nBenchmarkPick/1-2  10  800 ns/op  3 B/op  6 allocs/op\nBenchmarkPick/1-2  10  900 ns/op  3 B/op  6 allocs/op\n" +
		"BenchmarkPick/1-2  10  700 ns/op  3 B/op  6 allocs/op\nBenchmarkLife-2 one loop 3 ns\n  1  5 ns/op  4.5 a/b  18.0 allocs/request\nPASS\n"
	all, err := readBenchmarks(output)
	if err != nil || all["BenchmarkPick/1"] != (measured{800, 6}) {
		t.Errorf("%v, %v; want 800 ns and 6 allocations", all, err)
	}
	for unit, want := range map[string]float64{"a/b": 4.5, "allocs/request": 18, "none": 0} {
		if got := reported(output, unit); got != want {
			t.Errorf("%s: %v, want %v", unit, got, want)
		}
	}
}
