package runtime_test

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// The lifecycle of a request, as all variants play it: its stream begins an actor under a parent; the actor asks a flow
// queue for a place; dispatched, it scores 32 endpoints and answers the stream; the stream says that it is complete;
// the actor gives its place back and stops, and its parent hears that it has ended.

const (
	lifeStreams = 64     // at once, each with one request after the other
	lifeRounds  = 16_000 // requests of one variant in one round
)

// lifePlayer plays requests on one variant until all of their places are given back.
type lifePlayer interface {
	play(b *testing.B, requests int)
	close(b *testing.B)
}

// usage is what requests cost, per request.
type usage struct{ cpuNanos, wallNanos, allocs float64 }

func measure(b *testing.B, p lifePlayer) usage {
	var before, after goruntime.MemStats
	goruntime.GC()
	goruntime.ReadMemStats(&before)
	cpu, wall := cpuNanos(b), time.Now()
	p.play(b, lifeRounds)
	u := usage{float64(cpuNanos(b)-cpu) / lifeRounds, float64(time.Since(wall).Nanoseconds()) / lifeRounds, 0}
	goruntime.ReadMemStats(&after)
	u.allocs = float64(after.Mallocs-before.Mallocs) / lifeRounds
	return u
}

// cpuNanos returns the processor time of this process so far.
func cpuNanos(b *testing.B) int64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return r.Utime.Nano() + r.Stime.Nano()
}

// BenchmarkLifecycle plays all variants by turns, a round of each an iteration, and prints medians and their ratios.
func BenchmarkLifecycle(b *testing.B) {
	variants := []struct {
		name string
		make func() lifePlayer
	}{
		{"protoactor", func() lifePlayer { return newProtoPlayer(1) }},
		{"one loop", func() lifePlayer { return newOwnPlayer(runtime.Config{}) }},
		{"one loop, no ring", func() lifePlayer { return newOwnPlayer(runtime.Config{Ring: -1}) }},
		{"protoactor, two shards", func() lifePlayer { return newProtoPlayer(2) }},
		{"two loops, crossing", func() lifePlayer { return newOwnPlayer(runtime.Config{Loops: 2}) }},
		{"two loops, no ring", func() lifePlayer { return newOwnPlayer(runtime.Config{Loops: 2, Ring: -1}) }},
	}
	players := make([]lifePlayer, len(variants))
	for i, v := range variants {
		players[i] = v.make()
		players[i].play(b, 1000) // what is allocated once
	}
	got := make([][]usage, len(variants))
	for b.Loop() {
		for i, p := range players {
			got[i] = append(got[i], measure(b, p))
		}
	}
	for _, p := range players {
		p.close(b)
	}
	cpu := make(map[string]float64, len(variants))
	for i, v := range variants {
		cpu[v.name] = median(got[i], func(u usage) float64 { return u.cpuNanos })
		fmt.Printf("%-24s %7.0f ns CPU  %7.0f ns wall  %5.1f allocations, per request\n", v.name, cpu[v.name],
			median(got[i], func(u usage) float64 { return u.wallNanos }),
			median(got[i], func(u usage) float64 { return u.allocs }))
	}
	b.ReportMetric(cpu["protoactor"]/cpu["one loop"], "protoactor/one-loop")
	b.ReportMetric(cpu["protoactor, two shards"]/cpu["two loops, crossing"], "protoactor/two-loops")
	b.ReportMetric(cpu["one loop"]/cpu["one loop, no ring"], "ring/none")
	b.ReportMetric(cpu["two loops, crossing"]/cpu["two loops, no ring"], "ring/none-two-loops")
	b.ReportMetric(median(got[1], func(u usage) float64 { return u.allocs }), "allocs/request")
}

func median(all []usage, of func(usage) float64) float64 {
	values := make([]float64, len(all))
	for i, u := range all {
		values[i] = of(u)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// playStreams has lifeStreams goroutines play their share, each request with one.
func playStreams(requests int, one func(stream int)) {
	var wg sync.WaitGroup
	for stream := range lifeStreams {
		wg.Go(func() {
			for range requests / lifeStreams {
				one(stream)
			}
		})
	}
	wg.Wait()
}

// score is the work of a request: the best of 32 endpoints.
func score(seed uint64) int {
	best, at := 0.0, 0
	for i := range 32 {
		if v := float64((seed+uint64(i))*0x9e3779b97f4a7c15>>40) * 0.5; v > best {
			best, at = v, i
		}
	}
	return at
}

// What the request's actor hears.
type (
	requestMsg      interface{ requestMsg() }
	requestArrived  struct{ stream chan<- int }
	placeGiven      struct{ at time.Time }
	requestComplete struct{ status int }
)

func (requestArrived) requestMsg()  {}
func (placeGiven) requestMsg()      {}
func (requestComplete) requestMsg() {}

// What the flow queue hears.
type (
	queueMsg   interface{ queueMsg() }
	queueBegun struct{}
	placeAsked struct {
		id      uint64
		request messages.Sink[requestMsg]
	}
	placeLeft struct{ id uint64 }
)

func (queueBegun) queueMsg() {}
func (placeAsked) queueMsg() {}
func (placeLeft) queueMsg()  {}

// ownQueue gives places at once, and counts those that come back.
type ownQueue struct{ left *atomic.Int64 }

func (q ownQueue) Receive(ctx runtime.Context[queueMsg], m queueMsg) {
	switch m := m.(type) {
	case placeAsked:
		m.request.Tell(placeGiven{ctx.Now()})
	case placeLeft:
		q.left.Add(1)
	}
}
func (ownQueue) Stopped(runtime.Context[queueMsg]) {}

type ownRequest struct {
	stream chan<- int
	queue  runtime.Ref[queueMsg]
}

func (r *ownRequest) Receive(ctx runtime.Context[requestMsg], m requestMsg) {
	switch m := m.(type) {
	case requestArrived:
		r.stream = m.stream
		r.queue.Tell(placeAsked{1, ctx.Self()})
	case placeGiven:
		r.stream <- score(uint64(m.at.Nanosecond()))
	case requestComplete:
		ctx.Stop()
	}
}
func (r *ownRequest) Stopped(runtime.Context[requestMsg]) { r.queue.Tell(placeLeft{1}) }

// ownPlayer has a parent on each loop, and the queue of each loop's requests on the next loop.
type ownPlayer struct {
	sys     *runtime.System
	parents []runtime.Ref[queueMsg]
	roles   []runtime.Role[requestMsg]
	left    atomic.Int64
	streams [lifeStreams]chan int
}

func newOwnPlayer(cfg runtime.Config) lifePlayer {
	p := &ownPlayer{sys: runtime.New(cfg)}
	role := runtime.Role[queueMsg]{Name: "queue", New: func() runtime.Actor[queueMsg] { return ownQueue{&p.left} }}
	n := p.sys.Loops()
	for i := range n {
		parent, _ := runtime.Start(p.sys.Root(i), role, queueMsg(queueBegun{}))
		queue, _ := runtime.Start(p.sys.Root((i+1)%n), role, queueMsg(queueBegun{}))
		p.parents = append(p.parents, parent)
		p.roles = append(p.roles, runtime.Role[requestMsg]{
			Name: "request", New: func() runtime.Actor[requestMsg] { return &ownRequest{queue: queue} },
		})
	}
	for i := range p.streams {
		p.streams[i] = make(chan int, 1)
	}
	return p
}

func (p *ownPlayer) play(_ *testing.B, requests int) {
	want := int64(requests/lifeStreams*lifeStreams) + p.left.Load()
	playStreams(requests, func(stream int) {
		i := stream % len(p.parents)
		r, _ := runtime.Start(p.parents[i], p.roles[i], requestMsg(requestArrived{p.streams[stream]}))
		r.Port().Post(requestComplete{<-p.streams[stream]})
	})
	for p.left.Load() < want {
		goruntime.Gosched()
	}
}

func (p *ownPlayer) close(b *testing.B) {
	if err := p.sys.Close(context.Background()); err != nil {
		b.Error(err)
	}
}
