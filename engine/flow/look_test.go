package flow_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/messages"
)

var exported = cmp.Exporter(func(reflect.Type) bool { return true })

// named returns settings of a band with names for its policies.
func named(b flow.BandSettings) flow.BandSettings {
	b.Names = messages.PolicyNames{Ordering: fcfs, Queue: "list-queue", Fairness: robin}
	return b
}

func TestLookSaysWhatWaits(t *testing.T) {
	q, w := flow.New(everywhere(named(band(fcfs, robin, flow.Limits{Requests: 9})), flow.Limits{})), new(waiting)
	for i, fairness := range []string{"a", "b", "b", "b", "c"} {
		e := w.of(fairness, 0)
		e.Arrived = start.Add(time.Duration(-i) * time.Second) // the order of arrival is that of numbers
		e.Class, e.Prompt = flow.Class(i), 7
		push(t, q, e)
	}
	push(t, q, w.of("a", 5))
	q.Next(anyRoom) // of priority 5
	q.Next(anyRoom) // a's of priority 0
	got := q.Look(start.Add(time.Minute), 2, func(e *flow.Entry) bool { return e.Class != 1 })
	names := messages.PolicyNames{Ordering: fcfs, Queue: "list-queue", Fairness: robin}
	want := []messages.BandState{{
		Priority: 5, Limits: messages.Held{Requests: 9}, Policies: names, Served: 1, Service: 1, Known: 1,
		Flows: messages.ListOf(messages.FlowState{Fairness: "a", Weight: 1, Service: 1, Served: 1}),
	}, {
		Waiting: messages.Held{Requests: 4, Bytes: 40}, Limits: messages.Held{Requests: 9}, Oldest: 64 * time.Second,
		Policies: names, Served: 1, Service: 7, Known: 3, Next: messages.NextTurn{Request: 3, Flow: "b"},
		Flows: messages.ListOf(
			messages.FlowState{
				Fairness: "b", Weight: 1, Waiting: messages.Held{Requests: 3, Bytes: 30}, Oldest: 63 * time.Second,
			},
			messages.FlowState{
				Fairness: "c", Weight: 1, Waiting: messages.Held{Requests: 1, Bytes: 10}, Oldest: 64 * time.Second,
			},
		),
	}}
	if diff := cmp.Diff(want, got, exported); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	classes := q.Classes([]flow.Class{3, 1, 40})
	if diff := cmp.Diff([]messages.ClassState{{Class: 1, Waiting: 1, Next: 2}, {Class: 3, Waiting: 1, Next: 4},
		{Class: 40}}, classes); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

// What waits under older policies is shown as such, and ids beyond those that are told apart share a flow.
func TestLookTellsOlderBandsAndSharedFlows(t *testing.T) {
	s := everywhere(band(fcfs, robin, flow.Limits{}), flow.Limits{})
	s.Flows = 2
	q, w := flow.New(s), new(waiting)
	for i := range 5 {
		push(t, q, w.of(fmt.Sprint("tenant-", i), 0))
	}
	next := everywhere(band(edf, strict, flow.Limits{}), flow.Limits{})
	q.Configure(next)
	push(t, q, w.of("new", 0))
	got := q.Look(start, 9, anyRoom)
	if len(got) != 2 || !got[0].Older || got[1].Older || got[0].Known != 3 || got[1].Known != 1 {
		t.Fatalf("bands %+v, want an older one with three flows, and a newer one with one", got)
	}
	first := got[0].Flows.At(0)
	if !first.Shared || first.Fairness != "" || first.Waiting.Requests != 3 {
		t.Errorf("the longest flow is %+v, want the shared one with three requests", first)
	}
}

// In a band whose first request is not the oldest one, the oldest is looked for, as long as that takes little time.
func TestOldestOfAnotherOrder(t *testing.T) {
	q, w := flow.New(everywhere(band(edf, robin, flow.Limits{}), flow.Limits{})), new(waiting)
	for i := range 10_001 {
		e := w.of(fmt.Sprint(i%2), 0)
		later := time.Duration(i) * time.Second
		e.Arrived, e.Deadline = start.Add(later), start.Add(time.Hour-later)
		push(t, q, e)
	}
	now := start.Add(24 * time.Hour)
	if got := q.Look(now, 1, anyRoom)[0]; got.Oldest != 0 || got.Flows.At(0).Waiting.Requests != 5001 {
		t.Errorf("%+v, want that the oldest of 10 001 is not looked for", got)
	}
	q.Remove(2)
	got := q.Look(now, 2, anyRoom)[0]
	if got.Oldest != 24*time.Hour || got.Flows.At(1).Oldest != 24*time.Hour-3*time.Second {
		t.Errorf("the oldest have waited %v, and %v of the second flow", got.Oldest, got.Flows.At(1).Oldest)
	}
}

func TestFillsAreByPriority(t *testing.T) {
	s := everywhere(band(fcfs, robin, flow.Limits{Requests: 7}), flow.Limits{Bytes: 5000})
	s.Bands = map[int]flow.BandSettings{3: band(fcfs, robin, flow.Limits{Requests: 2})}
	q, w := flow.New(s), new(waiting)
	push(t, q, w.of("a", 0), w.of("b", 0), w.of("a", 3))
	s.Default = band(edf, robin, flow.Limits{Requests: 8})
	q.Configure(s)
	push(t, q, w.of("a", 0))
	var got []flow.Fill
	for f := range q.Fills() {
		got = append(got, f)
	}
	want := []flow.Fill{
		{3, flow.Total{Requests: 1, Bytes: 10}, flow.Limits{Requests: 2}},
		{0, flow.Total{Requests: 3, Bytes: 30}, flow.Limits{Requests: 8}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	if c := q.Configured(); len(c) != 1 || c[0] != (flow.Fill{Priority: 3, Most: flow.Limits{Requests: 2}}) ||
		q.Limits() != s.Limits {
		t.Errorf("configured %+v, limits %+v", c, q.Limits())
	}
}

// BenchmarkLook looks at 100 000 waiting requests of 10 000 flows.
func BenchmarkLook(b *testing.B) {
	q := flow.New(everywhere(band(fcfs, robin, flow.Limits{}), flow.Limits{}))
	crowd(b, q, 10_000, 100_000)
	for b.Loop() {
		q.Look(start, 20, anyRoom)
	}
}
