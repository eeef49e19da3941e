package flow_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/orderings"
	"github.com/signalbox-epp/signalbox/engine/queues"
	"github.com/signalbox-epp/signalbox/messages"
)

// A band whose priority no request may have any more drains, and leaves nothing behind.
func TestRemovedBandsDrain(t *testing.T) {
	s := everywhere(band(fcfs, token, flow.Limits{}), flow.Limits{})
	q, w := flow.New(s), new(waiting)
	for priority := range 100 {
		push(t, q, w.of("a", priority))
	}
	for range 99 {
		q.Next(anyRoom)
	}
	bands := func() int { return len(slices.Collect(q.Fills())) }
	if bands() != 100 {
		t.Fatalf("%d bands are known, want 100: what flows were charged counts on", bands())
	}
	s.Priorities = []int{5, 0}
	q.Configure(s)
	if bands() != 2 { // 0, of which one waits, and 5
		t.Errorf("%d bands are known, want 2", bands())
	}
	if e := q.Next(anyRoom); e == nil || e.Flow.Priority != 0 {
		t.Errorf("dispatched %s", show(e))
	}
}

// While requests wait, the work that they are counts as less and less: one is passed over only by those that come
// before it would go without any work.
func TestAgeingBoundsStarvation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ageing := rapid.Float64Range(1, 1000).Draw(t, "tokens a second")
		b := flow.BandSettings{Policies: flow.Policies{
			Ordering: &orderings.ShortestWork{AgeingTokensPerSecond: ageing}, Queue: new(queues.MaxMinHeap),
			Fairness: builtIn().Fairness, Displacement: builtIn().Displacement,
		}}
		q := flow.New(everywhere(b, flow.Limits{}))
		made, waits := messages.RequestID(0), map[*flow.Entry]bool{}
		now := start
		t.Repeat(map[string]func(*rapid.T){
			"comes": func(t *rapid.T) {
				made++
				now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
				e := &flow.Entry{
					Request: made, Flow: messages.FlowKey{Fairness: "a"}, Wait: flow.Wait{Arrived: now, Deadline: now},
					Work: flow.Work{
						Prompt: rapid.IntRange(0, 100_000).Draw(t, "prompt"),
						Output: rapid.IntRange(0, 10_000).Draw(t, "output"),
					},
				}
				q.Push(e)
				waits[e] = true
			},
			"next": func(t *rapid.T) {
				e := q.Next(anyRoom)
				delete(waits, e)
				for x := range waits {
					seconds := float64(x.Prompt+2*x.Output) / ageing
					if late := e.Arrived.Sub(x.Arrived).Seconds() - seconds; late > 1e-6 {
						t.Fatalf("request %d goes before %d, which came %v before: want within %v s", e.Request,
							x.Request, e.Arrived.Sub(x.Arrived), seconds)
					}
				}
			},
			"": func(t *rapid.T) {
				if int(q.Total().Requests) != len(waits) {
					t.Fatalf("%d wait, want %d", q.Total().Requests, len(waits))
				}
			},
		})
	})
}

// Requests of one flow and class go in the order of their keys, and of their arrival, whatever flows and classes there
// are beside them, and those that are put back have their places again.
func TestOrderHoldsWithinAFlow(t *testing.T) {
	for _, ordering := range slices.Sorted(maps.Keys(orderings.Types)) {
		t.Run(ordering, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				fair := rapid.SampledFrom([]string{strict, robin, token, program}).Draw(t, "fairness")
				g := newGame(everywhere(band(ordering, fair, flow.Limits{}), flow.Limits{}))
				moves := g.moves()
				for _, change := range []string{"charge", "advance", "remove"} {
					delete(moves, change)
				}
				moves["next"] = func(t *rapid.T) {
					before := len(g.dispatched)
					if g.next(t); len(g.dispatched) == before {
						return
					}
					e := g.dispatched[len(g.dispatched)-1]
					for _, x := range g.model.entries {
						if x.Flow == e.Flow && x.Class == e.Class && x.Before(e) {
							t.Fatalf("%s goes before %s", show(e), show(x))
						}
					}
				}
				t.Repeat(moves)
			})
		})
	}
}
