package flow_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/engine/fairness"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/orderings"
	"github.com/signalbox-epp/signalbox/engine/queues"
	"github.com/signalbox-epp/signalbox/messages"
)

// local returns the settings of a band whose requests go by locality, as far as a quantum.
func local(quantum int, queue flow.QueueType) flow.BandSettings {
	return flow.BandSettings{Policies: flow.Policies{
		Ordering: new(orderings.FCFS), Fairness: &fairness.Token{LocalityTokens: quantum}, Queue: queue,
		Displacement: builtIn().Displacement,
	}}
}

// cached says how much of the prompts of requests is held where there is room.
type cached map[messages.RequestID]int

func (c cached) held(e *flow.Entry) int { return c[e.Request] }

func TestRequestsGoWhereTheirPromptsAre(t *testing.T) {
	for name, queue := range queues.Types {
		t.Run(name, func(t *testing.T) {
			q, w := flow.New(everywhere(local(100, queue()), flow.Limits{})), new(waiting)
			held := cached{3: 5, 4: 9, 6: 9, 7: 1000}
			q.Locate(held.held)
			entry := func(fairness string, class flow.Class, prompt int) *flow.Entry {
				e := w.of(fairness, 0)
				e.Class, e.Prompt = class, prompt
				return e
			}
			push(t, q, entry("a", 1, 10), entry("a", 1, 10), entry("b", 1, 10), entry("b", 1, 10), entry("c", 1, 10),
				entry("c", 2, 10), entry("d", 3, 10))
			room := func(e *flow.Entry) bool { return e.Class != 3 }
			var got []messages.RequestID
			for e := q.Next(room); e != nil; e = q.Next(room) {
				got = append(got, e.Request)
			}
			// Of the most, the first flow's; then less, also behind the first of its flow; then in turn.
			if want := []messages.RequestID{4, 6, 3, 1, 2, 5}; !slices.Equal(got, want) {
				t.Errorf("dispatched %v, want %v", got, want)
			}
		})
	}
}

// Without a place to look for prompts, or a quantum, requests go in their order.
func TestLocalityIsOffByDefault(t *testing.T) {
	for name, c := range map[string]struct {
		quantum int
		held    func(*flow.Entry) int
	}{"no quantum": {0, cached{2: 9}.held}, "nowhere to look": {100, nil}} {
		q, w := flow.New(everywhere(local(c.quantum, new(queues.ListQueue)), flow.Limits{})), new(waiting)
		q.Locate(c.held)
		push(t, q, w.of("a", 0), w.of("a", 0))
		if got, want := drain(q), []string{"a1", "a2"}; !slices.Equal(got, want) {
			t.Errorf("%s: dispatched %v, want %v", name, got, want)
		}
	}
}

// However many classes there are, a decision looks at the requests of the few flows whose turn is nearest.
func TestLocalityLooksAtFewRequests(t *testing.T) {
	q, w := flow.New(everywhere(local(1<<30, new(queues.ListQueue)), flow.Limits{})), new(waiting)
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprint("tenant-", i))
	}
	acquaint(t, q, w, names...)
	var looked []*flow.Entry
	for i, name := range names {
		for range 1 + i%2*20 { // half of the flows crowd
			e := w.of(name, 0)
			e.Class = flow.Class(i / 2 % 100)
			push(t, q, e)
		}
		q.Charge(messages.FlowKey{Fairness: name}, flow.Tokens{Prompt: int64(1000 * (200 - i))})
	}
	q.Locate(func(e *flow.Entry) int {
		looked = append(looked, e)
		return 0
	})
	first := q.Next(anyRoom)
	if n := len(looked); n > 16*8+1 || n < 8*8+8 {
		t.Errorf("looked at %d requests, want 129 at most, and 8 flows of eight requests and 8 of one", n)
	}
	for _, e := range looked {
		if !slices.Contains(names[200-16:], e.Flow.Fairness) {
			t.Fatalf("looked at %s, want those of the 16 flows that were charged least", e.Flow.Fairness)
		}
	}
	if first.Flow.Fairness != "tenant-199" {
		t.Errorf("dispatched %s, want the first", show(first))
	}
}

// race is flows of which each always has requests waiting, and what was dispatched of them.
type race struct {
	*flow.Queues
	waiting
	quantum, largest int
	held             cached
	flows            map[string]*runner
	passed           map[*flow.Entry]int // tokens of prompts
}

type runner struct {
	served  int64
	waiting []*flow.Entry
}

func (r *race) add(t *rapid.T, f string) {
	e := r.of(f, 0)
	e.Prompt = rapid.IntRange(1, 100).Draw(t, "prompt")
	r.largest = max(r.largest, e.Prompt)
	r.held[e.Request] = rapid.IntRange(0, 3).Draw(t, "held")
	r.Push(e)
	r.flows[f].waiting = append(r.flows[f].waiting, e)
}

// turn returns the flow whose turn it is.
func (r *race) turn() (turn *runner) {
	for _, l := range r.flows {
		if turn == nil || l.served < turn.served ||
			l.served == turn.served && l.waiting[0].Number < turn.waiting[0].Number {
			turn = l
		}
	}
	return turn
}

// check wants a request to go first that may.
func (r *race) check(t *rapid.T, e *flow.Entry) {
	l, turn := r.flows[e.Flow.Fairness], r.turn()
	if l.served > turn.served+int64(r.quantum) {
		t.Fatalf("%s goes first, %d ahead of the flow whose turn it is, want %d at most", e.Flow.Fairness,
			l.served-turn.served, r.quantum)
	}
	if first := turn.waiting[0]; first != e {
		if r.held[e.Request] <= r.held[first.Request] {
			t.Fatalf("request %d goes before %d, and no more of its prompt is held", e.Request, first.Request)
		}
		if r.passed[first] += e.Prompt; r.passed[first] >= r.quantum+r.largest {
			t.Fatalf("request %d was passed over for %d tokens, want below %d", first.Request, r.passed[first],
				r.quantum+r.largest)
		}
	}
	l.served += int64(e.Prompt)
	l.waiting = slices.DeleteFunc(l.waiting, func(x *flow.Entry) bool { return x == e })
}

// TestLocalityKeepsToItsQuantum draws what prompts are held where: the flow that goes first is never further ahead than
// the quantum of the one whose turn it is, and no request is passed over for more than that and one prompt.
func TestLocalityKeepsToItsQuantum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quantum := rapid.IntRange(1, 300).Draw(t, "quantum")
		r := &race{
			Queues: flow.New(everywhere(local(quantum, new(queues.ListQueue)), flow.Limits{})), quantum: quantum,
			held: cached{}, flows: map[string]*runner{}, passed: map[*flow.Entry]int{},
		}
		r.Locate(r.held.held)
		for i := range rapid.IntRange(1, 5).Draw(t, "flows") {
			f := fmt.Sprint("f", i)
			r.flows[f] = &runner{}
			for range rapid.IntRange(1, 12).Draw(t, "requests") {
				r.add(t, f)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "dispatches") {
			e := r.Next(anyRoom)
			r.check(t, e)
			r.add(t, e.Flow.Fairness)
		}
	})
}

// shelf has places, each of which holds the prompts of the two tenants that it served last.
type shelf struct {
	home   map[string]int // where a tenant's prompt is held
	lately [][]string     // tenants, by place
	free   int            // the place that has room
}

func (s *shelf) has(tenant string) bool {
	at, known := s.home[tenant]
	return known && at == s.free
}

func (s *shelf) held(e *flow.Entry) int {
	if s.has(e.Flow.Fairness) {
		return 30
	}
	return 0
}

// serves has the place compute the prompt of a tenant, and drop the one that it used longest ago.
func (s *shelf) serves(tenant string) {
	s.home[tenant] = s.free
	s.lately[s.free] = append(s.lately[s.free], tenant)
	if len(s.lately[s.free]) <= 2 {
		return
	}
	if old := s.lately[s.free][0]; old != tenant && s.has(old) {
		delete(s.home, old)
	}
	s.lately[s.free] = s.lately[s.free][1:]
}

// shelved plays eight tenants on four places, and returns which part of the prompts was held where they were served,
// and how many tokens a tenant was given more than another one at most.
func shelved(quantum int) (hits, most float64) {
	const turns, tenants, places = 20_000, 8, 4
	q, w := flow.New(everywhere(local(quantum, new(queues.ListQueue)), flow.Limits{})), new(waiting)
	dice, s := rand.New(rand.NewPCG(1, 1)), &shelf{home: map[string]int{}, lately: make([][]string, places)}
	q.Locate(s.held)
	add := func(f string) {
		e := w.of(f, 0)
		e.Prompt = 2000
		q.Push(e)
	}
	given := map[string]float64{}
	for i := range 4 * tenants {
		add(fmt.Sprint("t", i%tenants))
		given[fmt.Sprint("t", i%tenants)] = 0
	}
	for range turns {
		s.free = dice.IntN(places)
		e := q.Next(anyRoom)
		f := e.Flow.Fairness
		if s.has(f) {
			hits++
		} else {
			s.serves(f)
		}
		q.Charge(e.Flow, flow.Tokens{Output: int64(dice.IntN(400))})
		given[f] += 2000
		add(f)
		all := slices.Collect(maps.Values(given))
		most = max(most, slices.Max(all)-slices.Min(all))
	}
	return hits / turns, most
}

// Tenants whose prompts are held at one of several places are served alike, and nearly always where their prompts are.
func TestLocalTenantsAreServedAlike(t *testing.T) {
	const quantum = 20_000
	plain, _ := shelved(0)
	hits, gap := shelved(quantum)
	t.Logf("%.2f of the prompts are held in plain order, %.2f by locality; gap %.0f tokens", plain, hits, gap)
	if hits < .85 || hits < 1.5*plain {
		t.Errorf("%.2f of the prompts are held, in plain order %.2f", hits, plain)
	}
	if gap > 2*quantum {
		t.Errorf("a tenant was given %.0f tokens more than another one, want %d at most", gap, 2*quantum)
	}
}

// Where requests that crowd have no room, policies that look at several flows choose among the others.
func TestCrowdsAreNotChosenWithoutRoom(t *testing.T) {
	programs := band(fcfs, program, flow.Limits{})
	for name, b := range map[string]flow.BandSettings{"program": programs, "local": local(100, new(queues.ListQueue))} {
		q, w := flow.New(everywhere(b, flow.Limits{})), new(waiting)
		q.Locate(cached{1: 9, 2: 9, 4: 5}.held)
		push(t, q, w.of("crowd", 0), w.of("crowd", 0), w.of("a", 0), w.of("b", 0))
		var got []string
		alone := func(e *flow.Entry) bool { return !e.Crowds() }
		for e := q.Next(alone); e != nil; e = q.Next(alone) {
			got = append(got, e.Flow.Fairness)
		}
		if slices.Sort(got); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("%s: dispatched %v, want a and b", name, got)
		}
	}
}
