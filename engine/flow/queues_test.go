package flow_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	fcfs   = "fcfs-ordering-policy"
	edf    = "edf-ordering-policy"
	strict = "global-strict-fairness-policy"
	robin  = "round-robin-fairness-policy"
	token  = "token-fairness-policy"

	program = "program-aware-fairness"
)

// waiting makes entries that differ in their flow alone, numbered from 1.
type waiting struct{ made messages.RequestID }

func (w *waiting) of(fairness string, priority int) *flow.Entry {
	w.made++
	return &flow.Entry{
		Request: w.made, Flow: messages.FlowKey{Fairness: fairness, Priority: priority},
		Wait: flow.Wait{Arrived: start, Deadline: start.Add(time.Minute)}, Work: flow.Work{Bytes: 10},
	}
}

// push has entries wait, each of which must fit.
func push(t *testing.T, q *flow.Queues, entries ...*flow.Entry) {
	t.Helper()
	for _, e := range entries {
		if displaced, ok := q.Push(e); !ok || len(displaced) > 0 {
			t.Fatalf("request %d of %v: waits %v, %d made way", e.Request, e.Flow, ok, len(displaced))
		}
	}
}

// drain dispatches all that waits, and returns the flows in order.
func drain(q *flow.Queues) (order []string) {
	for e := q.Next(anyRoom); e != nil; e = q.Next(anyRoom) {
		order = append(order, fmt.Sprintf("%s%d", e.Flow.Fairness, e.Request))
	}
	return order
}

func TestHigherPrioritiesGoFirst(t *testing.T) {
	q, w := flow.New(everywhere(band(fcfs, strict, flow.Limits{}), flow.Limits{})), new(waiting)
	for _, priority := range []int{0, math.MinInt32, 3, math.MaxInt32, -1, 3} {
		push(t, q, w.of("p", priority))
	}
	if got, want := drain(q), []string{"p4", "p3", "p6", "p1", "p5", "p2"}; !slices.Equal(got, want) {
		t.Errorf("dispatched %v, want %v", got, want)
	}
}

// shared returns queues in which priority 0 has a quarter of the dispatches at least, and -1 an eighth.
func shared(w *waiting, entries map[int]int) *flow.Queues {
	s := everywhere(band(fcfs, strict, flow.Limits{}), flow.Limits{})
	s.Bands = map[int]flow.BandSettings{}
	for priority, share := range map[int]float64{0: .25, -1: .125} {
		b := s.Default
		b.MinShare = share
		s.Bands[priority] = b
	}
	q := flow.New(s)
	for _, priority := range []int{1, 0, -1} {
		for range entries[priority] {
			q.Push(w.of("a", priority))
		}
	}
	return q
}

// served dispatches so many requests, and returns how many of them have which priority.
func served(t *testing.T, q *flow.Queues, n int) map[int]int {
	t.Helper()
	counts := map[int]int{}
	for range n {
		e := q.Next(anyRoom)
		if e == nil {
			t.Fatal("none is dispatched")
		}
		if floored := q.Floored(); floored != (e.Flow.Priority < 1) {
			t.Errorf("priority %d, by its least share: %v", e.Flow.Priority, floored)
		}
		counts[e.Flow.Priority]++
	}
	return counts
}

func TestBandsHaveTheirLeastShares(t *testing.T) {
	w := new(waiting)
	q := shared(w, map[int]int{1: 100, 0: 100, -1: 100})
	served(t, q, 2)
	if got, want := served(t, q, 80), map[int]int{1: 50, 0: 20, -1: 10}; !reflect.DeepEqual(got, want) {
		t.Errorf("of 80 dispatches %v, want %v", got, want)
	}
}

// A band whose requests come late has lost nothing and saved nothing, and a dispatch in vain does not count.
func TestLeastSharesAreNotSaved(t *testing.T) {
	w := new(waiting)
	q := shared(w, map[int]int{1: 100})
	served(t, q, 50)
	push(t, q, w.of("a", 0), w.of("a", 0))
	for range 20 {
		e := q.Next(anyRoom)
		if q.Return(e); e.Flow.Priority != 1 {
			t.Fatalf("dispatched %s, and all before in vain", show(e))
		}
	}
	for i, want := range []int{1, 1, 1, 0, 1, 1, 1, 0} {
		if e := q.Next(anyRoom); e.Flow.Priority != want {
			t.Errorf("dispatch %d has priority %d, want %d", i+1, e.Flow.Priority, want)
		}
	}
}

// A band is owed no more than one dispatch while its requests find no room.
func TestLeastSharesWaitForRoom(t *testing.T) {
	w := new(waiting)
	q := shared(w, map[int]int{1: 100, 0: 10})
	for range 40 {
		if e := q.Next(func(e *flow.Entry) bool { return e.Flow.Priority == 1 }); e == nil || q.Floored() {
			t.Fatalf("dispatched %v, by its least share: %v", e, q.Floored())
		}
	}
	counts := map[int]int{}
	q.OpenAll()
	for range 8 {
		counts[q.Next(anyRoom).Flow.Priority]++
	}
	if counts[0] > 3 {
		t.Errorf("%d of 8 dispatches, want a quarter, and one that was owed", counts[0])
	}
}

func TestWhatMakesWay(t *testing.T) {
	type arrival struct {
		flow     string
		priority int
		bytes    int64
	}
	for name, c := range map[string]struct {
		limits flow.Limits // of all
		band   flow.Limits
		before []arrival
		comes  arrival
		want   []messages.RequestID
		reason bool // they made way for a higher priority
		ok     bool
	}{
		"none while there is room": {
			limits: flow.Limits{Requests: 3}, before: []arrival{{"a", -1, 1}, {"a", -1, 1}},
			comes: arrival{"b", 0, 1}, ok: true,
		},
		"the last one of the lowest priority": {
			limits: flow.Limits{Requests: 3}, before: []arrival{{"a", -1, 1}, {"a", -2, 1}, {"a", -2, 1}},
			comes: arrival{"b", 0, 1}, want: []messages.RequestID{3}, reason: true, ok: true,
		},
		"as many as it takes": {
			limits: flow.Limits{Bytes: 10}, before: []arrival{{"a", -1, 4}, {"b", -1, 4}, {"a", 0, 2}},
			comes: arrival{"c", 1, 6}, want: []messages.RequestID{1, 2}, reason: true, ok: true,
		},
		"none if it does not help": {
			limits: flow.Limits{Bytes: 10}, before: []arrival{{"a", -1, 2}, {"b", 0, 8}}, comes: arrival{"c", 0, 3},
		},
		"none of its own flow": {
			limits: flow.Limits{Requests: 2}, before: []arrival{{"a", 0, 1}, {"a", 0, 1}}, comes: arrival{"a", 0, 1},
		},
		"the last one of the flow that has most": {
			limits: flow.Limits{Requests: 4}, before: []arrival{{"a", 0, 1}, {"b", 0, 1}, {"a", 0, 1}, {"a", 0, 1}},
			comes: arrival{"b", 0, 1}, want: []messages.RequestID{4}, ok: true,
		},
		"none of a flow that would have less than the newcomer's": {
			limits: flow.Limits{Requests: 3}, before: []arrival{{"a", 0, 1}, {"b", 0, 1}, {"a", 0, 1}},
			comes: arrival{"b", 0, 1},
		},
		"none of another band for its own band's limit": {
			band: flow.Limits{Requests: 1}, before: []arrival{{"a", -1, 1}, {"a", 0, 1}}, comes: arrival{"b", 0, 1},
		},
		"both, for both limits": {
			limits: flow.Limits{Bytes: 10}, band: flow.Limits{Requests: 2},
			before: []arrival{{"a", -1, 6}, {"a", 0, 2}, {"a", 0, 2}}, comes: arrival{"b", 0, 4},
			want: []messages.RequestID{3, 1}, ok: true,
		},
		"one, if that helps for both limits": {
			limits: flow.Limits{Requests: 3}, band: flow.Limits{Requests: 2},
			before: []arrival{{"a", -1, 1}, {"a", 0, 1}, {"a", 0, 1}}, comes: arrival{"b", 0, 1},
			want: []messages.RequestID{3}, ok: true,
		},
		"none for what never fits": {
			limits: flow.Limits{Bytes: 10}, before: []arrival{{"a", -1, 10}}, comes: arrival{"b", 0, 11},
		},
	} {
		t.Run(name, func(t *testing.T) {
			q, w := flow.New(everywhere(band(fcfs, strict, c.band), c.limits)), new(waiting)
			entry := func(a arrival) *flow.Entry {
				e := w.of(a.flow, a.priority)
				e.Bytes = a.bytes
				return e
			}
			for _, a := range c.before {
				push(t, q, entry(a))
			}
			before := q.Total()
			displaced, ok := q.Push(entry(c.comes))
			var got []messages.RequestID
			for _, d := range displaced {
				got = append(got, d.Request)
				if len(c.want) == 1 && d.Priority != c.reason {
					t.Errorf("request %d made way for a higher priority: %v", d.Request, d.Priority)
				}
			}
			if ok != c.ok || !slices.Equal(got, c.want) {
				t.Errorf("waits: %v, made way: %v, want %v, %v", ok, got, c.ok, c.want)
			}
			if !ok && q.Total() != before {
				t.Errorf("%+v waits after a refusal, want %+v", q.Total(), before)
			}
		})
	}
}

func TestWhatMakesWayForABody(t *testing.T) {
	for name, c := range map[string]struct {
		flow     string
		priority int
		bytes    int64
		want     []messages.RequestID // of a: 1 of -1, 2 of -2, 3 and 4 of 0; of b: 5 of 0; 10 bytes each
		reason   bool                 // they made way for a higher priority
	}{
		"the lowest":                    {"b", 0, 10, []messages.RequestID{2}, true},
		"as many as it takes":           {"b", 0, 11, []messages.RequestID{2, 1}, true},
		"all that matter less":          {"b", 1, 50, []messages.RequestID{2, 1, 4, 3, 5}, true},
		"none if that is not enough":    {"b", 1, 51, nil, false},
		"none of the same priority":     {"b", -2, 10, nil, false},
		"none of a flow with as little": {"c", -1, 20, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			q, w := flow.New(everywhere(band(fcfs, strict, flow.Limits{}), flow.Limits{})), new(waiting)
			push(t, q, w.of("a", -1), w.of("a", -2), w.of("a", 0), w.of("a", 0), w.of("b", 0))
			var got []messages.RequestID
			for _, d := range q.Yield(messages.FlowKey{Fairness: c.flow, Priority: c.priority}, c.bytes) {
				got = append(got, d.Request)
				if d.Priority != c.reason {
					t.Errorf("request %d made way for a higher priority: %v", d.Request, d.Priority)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("made way: %v, want %v", got, c.want)
			}
			if total := q.Total(); total.Requests != int64(5-len(got)) || total.Bytes != int64(50-10*len(got)) {
				t.Errorf("%+v waits after %d have left", total, len(got))
			}
		})
	}
}

// With nothing below it, a body takes the room of one of the flow that has the most waiting.
func TestBodyTakesTheRoomOfAFullFlow(t *testing.T) {
	q, w := flow.New(everywhere(band(fcfs, strict, flow.Limits{}), flow.Limits{})), new(waiting)
	push(t, q, w.of("a", 0), w.of("a", 0), w.of("b", 0))
	if got := q.Yield(messages.FlowKey{Fairness: "a"}, 10); got != nil {
		t.Errorf("%d make way for one of their own flow", len(got))
	}
	if got := q.Yield(messages.FlowKey{Fairness: "c"}, 11); got != nil {
		t.Errorf("%d make way in vain", len(got))
	}
	got := q.Yield(messages.FlowKey{Fairness: "c"}, 10)
	if len(got) != 1 || got[0].Request != 2 || got[0].Priority {
		t.Errorf("%v make way, want request 2, for another flow", got)
	}
}

func TestRoundRobinServesEachFlowInTurn(t *testing.T) {
	q, w := flow.New(everywhere(band(fcfs, robin, flow.Limits{}), flow.Limits{})), new(waiting)
	push(t, q, w.of("a", 0), w.of("a", 0), w.of("a", 0), w.of("b", 0), w.of("c", 0), w.of("c", 0))
	if got, want := drain(q), []string{"a1", "b4", "c5", "a2", "c6", "a3"}; !slices.Equal(got, want) {
		t.Errorf("dispatched %v, want %v", got, want)
	}
}

func TestManyFlowsShareOne(t *testing.T) {
	s := everywhere(band(fcfs, robin, flow.Limits{}), flow.Limits{})
	s.Flows = 2
	q, w := flow.New(s), new(waiting)
	push(t, q, w.of("a", 0), w.of("b", 0))
	for i := range 10_000 {
		push(t, q, w.of(fmt.Sprint("id-", i, "-"), 0))
	}
	push(t, q, w.of("a", 0), w.of("b", 0))
	var got []string
	for range 5 {
		got = append(got, q.Next(anyRoom).Flow.Fairness)
	}
	if want := []string{"a", "b", "id-0-", "a", "b"}; !slices.Equal(got, want) {
		t.Errorf("dispatched %v, want %v: ten thousand ids take the share of one flow", got, want)
	}
}

func TestIdleFlowsMakeWayForOthers(t *testing.T) {
	s := everywhere(band(fcfs, robin, flow.Limits{}), flow.Limits{})
	s.Flows = 2
	q, w := flow.New(s), new(waiting)
	for i := range 1000 {
		push(t, q, w.of(fmt.Sprint(i, "-"), 0))
		q.Next(anyRoom)
	}
	push(t, q, w.of("a", 0), w.of("a", 0), w.of("b", 0))
	if got, want := drain(q), []string{"a1001", "b1003", "a1002"}; !slices.Equal(got, want) {
		t.Errorf("dispatched %v, want %v: a and b are flows of their own", got, want)
	}
}

func TestFlowsThatMadeWayLeaveNoRoomBehind(t *testing.T) {
	s := everywhere(band(fcfs, robin, flow.Limits{}), flow.Limits{})
	s.Flows = 2
	q, w := flow.New(s), new(waiting)
	for i := range 10 {
		push(t, q, w.of(fmt.Sprint(i, "-"), 0))
		q.Next(anyRoom)
	}
	push(t, q, w.of("a", 0), w.of("b", 0), w.of("c", 0), w.of("c", 0), w.of("d", 0))
	if got, want := drain(q), []string{"a11", "b12", "c13", "c14", "d15"}; !slices.Equal(got, want) {
		t.Errorf("dispatched %v, want %v: c and d share a flow", got, want)
	}
}

// TestTokenServiceIsBounded draws flows with requests of any size that wait all the time, and charges for their
// output. What two of them were charged by their weights never differs by more than twice the largest charge.
func TestTokenServiceIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := band(fcfs, token, flow.Limits{})
		heavy := rapid.SampledFrom([]float64{1, 2, 5}).Draw(t, "weight of b")
		b.Weights = map[string]float64{"a": 1, "b": heavy, "c": 1}
		q, w := flow.New(everywhere(b, flow.Limits{})), new(waiting)
		sizes := map[string]int{}
		largest := 0.0
		for _, f := range []string{"a", "b", "c"} {
			sizes[f] = rapid.IntRange(1, 10_000).Draw(t, "tokens of "+f)
			largest = max(largest, 1.5*float64(sizes[f])/b.Weights[f])
		}
		add := func(f string) {
			e := w.of(f, 0)
			e.Prompt = sizes[f]
			q.Push(e)
		}
		given := map[string]float64{}
		for _, f := range []string{"a", "b", "c"} {
			add(f)
			add(f)
		}
		for range rapid.IntRange(1, 300).Draw(t, "dispatches") {
			e := q.Next(anyRoom)
			f := e.Flow.Fairness
			output := rapid.IntRange(0, sizes[f]/2).Draw(t, "output")
			q.Charge(e.Flow, flow.Tokens{Output: int64(output)})
			given[f] += float64(e.Prompt+output) / b.Weights[f]
			add(f)
			for _, other := range []string{"a", "b", "c"} {
				if gap := math.Abs(given[f] - given[other]); gap > 2*largest {
					t.Fatalf("%s was given %v, %s %v: the gap is above %v", f, given[f], other, given[other], 2*largest)
				}
			}
		}
	})
}

func TestIdleFlowSavesNothing(t *testing.T) {
	q, w := flow.New(everywhere(band(fcfs, token, flow.Limits{}), flow.Limits{})), new(waiting)
	for range 100 {
		push(t, q, w.of("busy", 0))
		q.Next(anyRoom)
	}
	for range 4 {
		push(t, q, w.of("busy", 0), w.of("late", 0))
	}
	counts := map[string]int{}
	for range 4 {
		counts[q.Next(anyRoom).Flow.Fairness]++
	}
	if want := map[string]int{"busy": 2, "late": 2}; !reflect.DeepEqual(counts, want) {
		t.Errorf("dispatched %v, want %v", counts, want)
	}
}

func TestSettingsChangeWhileRequestsWait(t *testing.T) {
	q, w := flow.New(everywhere(band(fcfs, strict, flow.Limits{}), flow.Limits{})), new(waiting)
	sooner := func(e *flow.Entry) *flow.Entry {
		e.Deadline = start.Add(time.Duration(60-e.Request) * time.Second)
		return e
	}
	push(t, q, sooner(w.of("a", 0)), sooner(w.of("a", 0)), w.of("b", 7))
	q.Configure(everywhere(band(edf, strict, flow.Limits{Requests: 2}), flow.Limits{Requests: 4}))
	if got := q.Total(); got.Requests != 3 {
		t.Errorf("%d wait, want 3: a lower limit sheds no request", got.Requests)
	}
	if _, ok := q.Push(sooner(w.of("a", 0))); ok {
		t.Error("a third request waits in a band of two")
	}
	q.Next(anyRoom)
	q.Next(anyRoom)
	push(t, q, sooner(w.of("a", 0)))
	q.Configure(everywhere(band(edf, strict, flow.Limits{Requests: 9}), flow.Limits{}))
	push(t, q, sooner(w.of("a", 0)))
	if got, want := drain(q), []string{"a2", "a6", "a5"}; !slices.Equal(got, want) {
		t.Errorf("dispatched %v, want %v: what waited goes first, in the order that it had", got, want)
	}
}

func TestNoRequestMakesWayInVain(t *testing.T) {
	q, w := flow.New(everywhere(band(fcfs, strict, flow.Limits{}), flow.Limits{})), new(waiting)
	push(t, q, w.of("a", 0), w.of("a", 0), w.of("a", 0), w.of("a", 0))
	q.Configure(everywhere(band(fcfs, strict, flow.Limits{Requests: 2}), flow.Limits{}))
	if displaced, ok := q.Push(w.of("b", 0)); ok || len(displaced) > 0 {
		t.Errorf("waits %v, %d made way: four wait where there is room for two", ok, len(displaced))
	}
}

// A request that is put back goes first again, for its flow has had nothing.
func TestReturnedRequestKeepsItsTurn(t *testing.T) {
	for _, fair := range []string{strict, robin, token} {
		q, w := flow.New(everywhere(band(fcfs, fair, flow.Limits{}), flow.Limits{})), new(waiting)
		push(t, q, w.of("a", 0))
		q.Next(anyRoom)
		push(t, q, w.of("b", 0), w.of("a", 0), w.of("a", 0))
		first := q.Next(anyRoom)
		q.Return(first)
		if again := q.Next(anyRoom); again != first {
			t.Errorf("%s: %s goes before %s", fair, show(again), show(first))
		}
	}
}

// counting counts how often an ordering was asked about each request.
type counting struct {
	flow.Ordering
	times map[messages.RequestID]int
}

func (c counting) Key(e *flow.Entry) int64 {
	c.times[e.Request]++
	return c.Ordering.Key(e)
}

// An ordering is asked about a request once: not again when it is put back, nor when its class is another one then.
// Only under another ordering it has another key.
func TestOrderingIsAskedOnce(t *testing.T) {
	b := band(fcfs, robin, flow.Limits{})
	first := counting{b.Ordering, map[messages.RequestID]int{}}
	b.Ordering = first
	q, w := flow.New(everywhere(b, flow.Limits{})), new(waiting)
	push(t, q, w.of("a", 0), w.of("a", 0), w.of("b", 0))
	for i := range 9 {
		e := q.Next(anyRoom)
		e.Class = flow.Class(i % 3)
		q.Return(e)
	}
	if want := map[messages.RequestID]int{1: 1, 2: 1, 3: 1}; !reflect.DeepEqual(first.times, want) {
		t.Errorf("asked %v times, want %v", first.times, want)
	}
	e := q.Next(anyRoom)
	second := counting{b.Ordering, map[messages.RequestID]int{}}
	b.Ordering = second
	q.Configure(everywhere(b, flow.Limits{}))
	q.Return(e)
	if want := map[messages.RequestID]int{e.Request: 1}; !reflect.DeepEqual(second.times, want) {
		t.Errorf("the other ordering was asked %v times, want %v", second.times, want)
	}
}
