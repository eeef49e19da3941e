package flow_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

// weigh returns the flow that a Chooser puts first.
func (m *model) weigh(by flow.Chooser, all []candidate) candidate {
	var xs, ys []float64
	for _, c := range all {
		p, _ := by.Point(m.now, c.Account, c.Head)
		xs, ys = append(xs, p.X), append(ys, p.Y)
	}
	place := func(all []float64, i int, weight float64) float64 {
		least, greatest := slices.Min(all), slices.Max(all)
		if least == greatest {
			return 0
		}
		return (all[i] - least) * (weight / (greatest - least))
	}
	weights, best, least := by.Weights(), 0, math.Inf(1)
	for i, c := range all {
		cost := place(xs, i, weights.X) + place(ys, i, weights.Y)
		if cost < least || cost == least && c.Head.Number < all[best].Head.Number {
			best, least = i, cost
		}
	}
	return all[best]
}

// asked returns settings of a band, and counts the calls of its policies.
func asked(ordering, fair string, total flow.Limits) (s flow.Settings, calls map[string]int) {
	calls = map[string]int{}
	s, _ = breaking(band(ordering, fair, flow.Limits{}), total, func(call string) bool {
		calls[call]++
		return false
	})
	return s, calls
}

// tenants has so many flows become known, and requests of all wait.
func tenants(t *testing.T, q *flow.Queues, w *waiting, flows, each int) {
	t.Helper()
	names := make([]string, flows)
	for i := range names {
		names[i] = fmt.Sprint("tenant-", i)
	}
	acquaint(t, q, w, names...)
	for range each {
		for _, name := range names {
			push(t, q, w.of(name, 0))
		}
	}
}

// A decision asks no policy about all flows, however many wait.
func TestDecisionsAskAboutFewFlows(t *testing.T) {
	s, calls := asked(edf, program, flow.Limits{Requests: 1600})
	q, w := flow.New(s), new(waiting)
	q.Advance(start)
	tenants(t, q, w, 800, 2)
	if _, ok := q.Push(w.of("tenant-0", 0)); ok { // all flows are asked about once
		t.Fatal("a third request takes the place of one of two")
	}
	clear(calls)
	for i := range 100 {
		if displaced, ok := q.Push(w.of(fmt.Sprint("new-", i/2), 0)); !ok || len(displaced) != 1 {
			t.Fatalf("request %d waits: %v, %d make way", i, ok, len(displaced))
		}
		if q.Next(anyRoom) == nil {
			t.Fatal("none is dispatched")
		}
		push(t, q, w.of("tenant-1", 0))
	}
	for call, most := range map[string]int{"Excess": 6, "Point": 12, "Weights": 1, "Rank": 12, "Tail": 8} {
		if n := calls[call]; n > 100*most {
			t.Errorf("%s is asked %d times in 100 rounds, want %d at most", call, n, 100*most)
		}
	}
}

// What flows were charged is forgotten while they wait, and no request comes or goes.
func TestChoiceFollowsTime(t *testing.T) {
	q, w := flow.New(everywhere(band(fcfs, program, flow.Limits{}), flow.Limits{})), new(waiting)
	q.Advance(start)
	heavy, light := w.of("heavy", 0), w.of("light", 0)
	heavy.Prompt, light.Prompt = 1_000_000, 1
	push(t, q, heavy, light)
	drain(q)
	q.Advance(start.Add(time.Minute))
	push(t, q, w.of("light", 0))
	q.Next(anyRoom)
	push(t, q, w.of("heavy", 0), w.of("light", 0))
	q.Advance(start.Add(time.Hour + time.Second)) // the service of heavy counts no more, and that of light does
	if e := q.Next(anyRoom); e.Flow.Fairness != "heavy" {
		t.Errorf("dispatched %s, want the flow whose service is forgotten", show(e))
	}
}
