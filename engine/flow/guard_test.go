package flow_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/messages"
)

// broken wraps the policies of a band: each call may panic, as fails says.
type broken struct {
	flow.Ordering
	flow.Fairness
	flow.Displacement
	queue flow.QueueType
	fails func(call string) bool
	calls int
	used  bool // an entry was pushed with the handle of another queue
}

func (b *broken) may(call string) {
	b.calls++
	if b.fails(call) {
		panic("out of order: " + call)
	}
}

type brokenOrdering struct{ *broken }

func (b brokenOrdering) Needs() flow.Ability { return b.Ordering.Needs() }
func (b brokenOrdering) Key(e *flow.Entry) int64 {
	b.may("Key")
	return b.Ordering.Key(e)
}

type brokenFairness struct{ *broken }

func (b brokenFairness) Rank(a *flow.Account, head *flow.Entry) int64 {
	b.may("Rank")
	return b.Fairness.Rank(a, head)
}

func (b brokenFairness) Join(a *flow.Account, rank int64) {
	b.may("Join")
	b.Fairness.Join(a, rank)
}

// brokenProgram is a fairness that is charged, and chooses.
type brokenProgram struct{ brokenFairness }

func (b brokenProgram) Charge(a *flow.Account, now time.Time, t flow.Tokens) {
	b.may("Charge")
	b.Fairness.(flow.Meter).Charge(a, now, t)
}

func (b brokenProgram) Point(now time.Time, a *flow.Account, head *flow.Entry) (flow.Point, time.Time) {
	b.may("Point")
	if b.fails("no number") {
		return flow.Point{X: math.NaN()}, now
	}
	return b.Fairness.(flow.Chooser).Point(now, a, head)
}

func (b brokenProgram) Weights() flow.Point {
	b.may("Weights")
	return b.Fairness.(flow.Chooser).Weights()
}

type brokenDisplacement struct{ *broken }

func (b brokenDisplacement) Excess(a *flow.Account, last *flow.Entry) float64 {
	b.may("Excess")
	return b.Displacement.Excess(a, last)
}

type brokenType struct{ *broken }

func (b brokenType) Can() flow.Ability { return b.queue.Can() }
func (b brokenType) New() flow.Queue   { return brokenQueue{b.broken, b.queue.New()} }

type brokenQueue struct {
	broken *broken
	queue  flow.Queue
}

func (q brokenQueue) Len() int { return q.queue.Len() }
func (q brokenQueue) Push(e *flow.Entry) {
	q.broken.may("Push")
	if e.Handle != (flow.Handle{}) {
		q.broken.used = true
	}
	q.queue.Push(e)
	q.broken.may("Pushed")
}

func (q brokenQueue) Remove(e *flow.Entry) {
	q.broken.may("Remove")
	q.queue.Remove(e)
}

func (q brokenQueue) Head() *flow.Entry {
	q.broken.may("Head")
	return q.queue.Head()
}

func (q brokenQueue) Tail() *flow.Entry {
	q.broken.may("Tail")
	return q.queue.Tail()
}

// breaking returns settings whose policies are those of a band, and panic as fails says.
func breaking(b flow.BandSettings, total flow.Limits, fails func(string) bool) (flow.Settings, *broken) {
	p := &broken{
		Ordering: b.Ordering, Fairness: b.Fairness, Displacement: b.Displacement, queue: b.Queue, fails: fails,
	}
	b.Names = messages.PolicyNames{
		Ordering: "broken ordering policy", Queue: "broken queue", Fairness: "broken fairness policy",
		Displacement: "broken displacement policy",
	}
	b.Policies = flow.Policies{
		Ordering: brokenOrdering{p}, Fairness: brokenFairness{p}, Displacement: brokenDisplacement{p},
		Queue: brokenType{p},
	}
	if _, chooses := p.Fairness.(flow.Chooser); chooses {
		b.Fairness = brokenProgram{brokenFairness{p}}
	}
	return everywhere(b, total), p
}

func TestPolicyThatAlwaysPanicsIsReplaced(t *testing.T) {
	for call, fair := range map[string]string{
		"Key": robin, "Rank": robin, "Join": robin, "Push": robin, "Pushed": robin, "Remove": robin, "Head": robin,
		"Tail": robin, "Excess": robin, "Charge": program, "Point": program, "no number": program, "Weights": program,
	} {
		t.Run(call, func(t *testing.T) {
			always := func(c string) bool { return c == call }
			s, p := breaking(band(edf, fair, flow.Limits{}), flow.Limits{Requests: 8}, always)
			q, w := flow.New(s), new(waiting)
			var told []flow.Panic
			q.TellPanics(func(p flow.Panic) { told = append(told, p) })
			for range 4 {
				push(t, q, w.of("a", 0), w.of("b", 0))
			}
			if displaced, ok := q.Push(w.of("c", 1)); !ok || len(displaced) != 1 {
				t.Errorf("of a higher priority: waits %v, %d made way", ok, len(displaced))
			}
			for range 4 {
				if q.Next(anyRoom) == nil {
					t.Fatal("nothing is dispatched")
				}
			}
			for _, e := range q.All() {
				if q.Remove(e.Request) == nil {
					t.Errorf("request %d does not wait", e.Request)
				}
			}
			if (q.Total() != flow.Total{}) {
				t.Errorf("%+v waits, want nothing", q.Total())
			}
			if n := q.Caught().Total(); n == 0 || n > 6 { // three in each of the two bands
				t.Errorf("%d panics, want 1 to 6", n)
			}
			checkTold(t, told, call)
			p.fails = func(string) bool { return false }
			p.calls = 0
			q.Configure(s)
			push(t, q, w.of("a", 0))
			if p.calls == 0 {
				t.Error("another configuration does not bring the policies back")
			}
		})
	}
}

// checkTold wants the first, second and fourth panic of a call of broken policies to have been told, with where it came
// from.
func checkTold(t *testing.T, told []flow.Panic, call string) {
	t.Helper()
	kinds := map[string]string{
		"Key": "ordering policy", "Push": "queue", "Pushed": "queue", "Remove": "queue", "Head": "queue",
		"Tail": "queue", "Excess": "displacement policy",
	}
	if len(told) == 0 {
		t.Error("no panic is told")
	}
	for i, p := range told {
		if want := cmp.Or(kinds[call], "fairness policy"); p.Policy != want || p.Type != "broken "+want {
			t.Errorf("%s of type %s is told, want %s", p.Policy, p.Type, want)
		}
		where := "flow_test.(*broken).may"
		if call == "no number" { // not the policy itself panics
			where = "flow.(*Queues).point"
		}
		if !strings.Contains(fmt.Sprint(p.Value), call) || !strings.Contains(string(p.Stack), where) {
			t.Errorf("%v is told, want %s; of\n%s\nwant %s", p.Value, call, p.Stack, where)
		}
		if p.Times != 1<<i {
			t.Errorf("panic %d is told as %d, want %d", i, p.Times, 1<<i)
		}
	}
}

func TestPolicyThatPanicsNowAndThenStays(t *testing.T) {
	for _, call := range []string{"Key", "Rank", "Charge", "Point", "Weights"} {
		t.Run(call, func(t *testing.T) {
			n := 0
			s, p := breaking(band(edf, program, flow.Limits{}), flow.Limits{}, func(c string) bool {
				if c != call {
					return false
				}
				n++
				return n%3 != 0
			})
			q, w := flow.New(s), new(waiting)
			for range 30 {
				push(t, q, w.of("a", 0))
				q.Next(anyRoom)
			}
			if p.calls = 0; q.Caught().Total() < 15 {
				t.Fatalf("%d panics", q.Caught().Total())
			}
			push(t, q, w.of("a", 0))
			if p.calls == 0 {
				t.Error("never three in a row, and yet it is replaced")
			}
		})
	}
}

// A fairness may panic once too often while a turn is decided: then the built-in one decides it.
func TestFairnessIsReplacedWithinATurn(t *testing.T) {
	s, _ := breaking(band(fcfs, program, flow.Limits{}), flow.Limits{}, func(c string) bool { return c == "Point" })
	q, w := flow.New(s), new(waiting)
	push(t, q, w.of("a", 0), w.of("b", 0))
	if n := q.Caught().Total(); n != 2 {
		t.Fatalf("%d panics before the turn, want 2", n)
	}
	if got, want := drain(q), []string{"a1", "b2"}; !slices.Equal(got, want) {
		t.Errorf("dispatched %v, want %v", got, want)
	}
	if n := q.Caught().Total(); n != 3 {
		t.Errorf("%d panics, want 3", n)
	}
}

func TestFlowWhoseQueuePanickedMakesWay(t *testing.T) {
	fails := true
	s, _ := breaking(band(fcfs, robin, flow.Limits{}), flow.Limits{}, func(c string) bool {
		return fails && c == "Remove"
	})
	s.Flows = 1
	q, w := flow.New(s), new(waiting)
	push(t, q, w.of("a", 0))
	q.Next(anyRoom)
	fails = false
	push(t, q, w.of("b", 0), w.of("b", 0), w.of("c", 0))
	if got, want := drain(q), []string{"b2", "c4", "b3"}; !slices.Equal(got, want) {
		t.Errorf("dispatched %v, want %v: b has the place of a", got, want)
	}
}

// TestNothingIsLostWherePoliciesPanic lets calls panic now and then: each request leaves exactly once.
func TestNothingIsLostWherePoliciesPanic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		often := rapid.IntRange(2, 40).Draw(t, "one call in")
		n := 0
		fair := rapid.SampledFrom([]string{token, program}).Draw(t, "fairness")
		s, p := breaking(band(edf, fair, flow.Limits{}), flow.Limits{Requests: 7}, func(string) bool {
			n++
			return n%often == 0
		})
		q, w := flow.New(s), new(waiting)
		waits := map[messages.RequestID]bool{}
		leave := func(e *flow.Entry) {
			if !waits[e.Request] {
				t.Fatalf("request %d leaves twice", e.Request)
			}
			delete(waits, e.Request)
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				e := w.of(fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "flow")), rapid.IntRange(0, 1).Draw(t, "priority"))
				displaced, ok := q.Push(e)
				for _, d := range displaced {
					leave(d.Entry)
				}
				if ok {
					waits[e.Request] = true
				}
			},
			"next": func(*rapid.T) {
				if e := q.Next(anyRoom); e != nil {
					leave(e)
				} else if len(waits) > 0 {
					t.Fatalf("%d wait, and none is next", len(waits))
				}
			},
			"remove": func(t *rapid.T) {
				id := rapid.Uint64Range(0, uint64(w.made)).Draw(t, "request")
				if e := q.Remove(messages.RequestID(id)); e != nil {
					leave(e)
				}
			},
			"": func(t *rapid.T) {
				if q.Total().Requests != int64(len(waits)) || len(q.All()) != len(waits) {
					t.Fatalf("%d wait, %d are listed, want %d", q.Total().Requests, len(q.All()), len(waits))
				}
				if p.used {
					t.Fatal("an entry was pushed with the handle of another queue")
				}
			},
		})
	})
}

func TestAllIsInTheOrderOfArrival(t *testing.T) {
	q, w := flow.New(everywhere(band(edf, robin, flow.Limits{}), flow.Limits{})), new(waiting)
	for i := range 50 {
		push(t, q, w.of(fmt.Sprint(i%7), i%3))
	}
	if !slices.IsSortedFunc(q.All(), func(a, b *flow.Entry) int { return int(a.Number) - int(b.Number) }) {
		t.Error("it is not")
	}
}
