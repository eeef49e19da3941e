package main

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/test/bench/load"
)

// TestGeneratorAgainstTheFloor loads the floor in this process: every answer is checked by the generator itself, in
// both loops and all modes, with bodies of one message and of several.
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
	for name, shape := range map[string]load.Shape{
		"full duplex, 1 KB":  {Mode: load.FullDuplex, BodyBytes: 1 << 10, Chunks: 4},
		"full duplex, 64 KB": {Mode: load.FullDuplex, BodyBytes: 64 << 10, Chunks: 4},
		"light":              {Mode: load.Light, BodyBytes: 64 << 10, Chunks: 8},
		"streamed":           {Mode: load.Streamed, BodyBytes: 64 << 10, Chunks: 3},
		"buffered":           {Mode: load.Buffered, BodyBytes: 64 << 10, Chunks: 100},
	} {
		t.Run(name, func(t *testing.T) { loadFloor(t, address, shape) })
	}
	cancel()
	<-ended
}

func loadFloor(t *testing.T, address string, shape load.Shape) {
	all, err := load.Scripts(shape)
	if err != nil {
		t.Fatal(err)
	}
	g, err := load.NewGenerator(address, 2, all)
	if err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]loading{
		"closed": func(g *load.Generator) (load.Result, error) { return g.Closed(8, 50*time.Millisecond) },
		"open":   func(g *load.Generator) (load.Result, error) { return g.Open(200, 50*time.Millisecond) },
	} {
		r, err := run(g)
		if err != nil {
			t.Fatalf("%s loop: %v", name, err)
		}
		if r.Requests < 8 || r.Requests != len(r.Picks) || r.Late != 0 {
			t.Errorf("%s loop: %d requests, %d picks, %d late; want 8 or more, as many, none", name, r.Requests,
				len(r.Picks), r.Late)
		}
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
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

func TestBenchmarksAreReadByName(t *testing.T) {
	const output = "goos: linux\nBenchmarkPick/1-2  10  800 ns/op  3 B/op  6 allocs/op\nBenchmarkPick/1-2  10  900 " +
		"ns/op  3 B/op  6 allocs/op\n" +
		"BenchmarkPick/1-2  10  700 ns/op  3 B/op  6 allocs/op\nBenchmarkLife-2 one loop 3 ns\n  1  5 ns/op  4.5 a/b " +
		" 18.0 allocs/request\nPASS\n"
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
