package flow_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/messages"
)

// acquaint has sixteen requests of each id wait and be dispatched, one after the other.
func acquaint(t *testing.T, q *flow.Queues, w *waiting, ids ...string) {
	t.Helper()
	for range 16 {
		for _, id := range ids {
			push(t, q, w.of(id, 0))
			if e := q.Next(anyRoom); e.Flow.Fairness != id {
				t.Fatalf("dispatched %s, want one of %s", show(e), id)
			}
		}
	}
}

// flood is a client that sends each id so many times: again when a request of the id was dispatched. So many of its
// requests wait at a time, and the one that has waited for the longest time leaves for a new one.
type flood struct {
	uses, waits int
	ids         int
	sent        map[string]int
	line        []*flow.Entry
}

// sends has requests wait. Ids that are to come again go first.
func (f *flood) sends(q *flow.Queues, w *waiting, n int, again string) {
	if f.sent == nil {
		f.sent = map[string]int{}
	}
	for range n {
		id := again
		if again = ""; id == "" || f.sent[id] >= f.uses {
			delete(f.sent, id)
			f.ids++
			id = fmt.Sprint("made-up-", f.ids)
		}
		f.sent[id]++
		e := w.of(id, 0)
		q.Push(e)
		if f.line = append(f.line, e); len(f.line) > f.waits {
			if q.Remove(f.line[0].Request) != nil {
				delete(f.sent, f.line[0].Flow.Fairness)
			}
			f.line = f.line[1:]
		}
	}
}

// Eight tenants beside a client that makes up a million ids, each of which it uses once or a few times: it takes the
// share of one tenant, but for the places that were open at first.
func TestMillionIDsTakeOneShare(t *testing.T) {
	for name, c := range map[string]struct {
		fair                     string
		uses, sends, waits, rest int
	}{
		"by turns":                    {robin, 1, 25, 2000, 40_000},
		"by tokens":                   {token, 1, 5, 2000, 10_000},
		"each id twice":               {robin, 2, 5, 500, 10_000},
		"each id fifteen times":       {robin, 15, 5, 500, 20_000},
		"each id twice, by tokens":    {token, 2, 5, 500, 10_000},
		"clients that wait for long":  {robin, 1, 1, 20_000, 10_000},
		"by service and by the waits": {program, 1, 5, 500, 2_000},
	} {
		t.Run(name, func(t *testing.T) {
			q, w := flow.New(everywhere(band(fcfs, c.fair, flow.Limits{}), flow.Limits{})), new(waiting)
			f := &flood{uses: c.uses, waits: c.waits}
			for i := range 8 {
				for range 3 {
					push(t, q, w.of(fmt.Sprint("tenant-", i), 0))
				}
			}
			served, again := map[string]int{}, ""
			for range c.rest {
				f.sends(q, w, c.sends, again)
				e := q.Next(anyRoom)
				if again = ""; strings.HasPrefix(e.Flow.Fairness, "tenant") {
					served[e.Flow.Fairness]++
					push(t, q, w.of(e.Flow.Fairness, 0))
				} else {
					again = e.Flow.Fairness
				}
			}
			share := (c.rest-64*c.uses)/9 - 1
			for i := range 8 {
				if n := served[fmt.Sprint("tenant-", i)]; n < share {
					t.Errorf("tenant %d has %d of %d turns beside %d ids, want %d", i, n, c.rest, f.ids, share)
				}
			}
		})
	}
}

// Where known ids and newcomers are all that a band remembers, a client that makes up an id for each request takes one
// share, too.
func TestFullBandOpensNoPlaces(t *testing.T) {
	s := everywhere(band(fcfs, robin, flow.Limits{}), flow.Limits{})
	s.Flows = 100
	q, w := flow.New(s), new(waiting)
	known := []string{"tenant-0", "tenant-1", "tenant-2", "tenant-3"}
	for i := range 100 - 64 - len(known) {
		known = append(known, fmt.Sprint("idle-", i))
	}
	acquaint(t, q, w, known...)
	for i := range 64 {
		push(t, q, w.of(fmt.Sprint("new-", i), 0))
		q.Next(anyRoom)
	}
	for i := range 4 {
		for range 3 {
			push(t, q, w.of(fmt.Sprint("tenant-", i), 0))
		}
	}
	f, madeUp := &flood{uses: 1, waits: 2000}, 0
	const turns = 5000
	for range turns {
		f.sends(q, w, 5, "")
		if e := q.Next(anyRoom); strings.HasPrefix(e.Flow.Fairness, "tenant") {
			push(t, q, w.of(e.Flow.Fairness, 0))
		} else {
			madeUp++
		}
	}
	if madeUp > turns/5+1 {
		t.Errorf("%d ids have %d of %d turns, want a fifth", f.ids, madeUp, turns)
	}
}

// Ids that are known keep their flows beside others.
func TestKnownIDsKeepTheirFlows(t *testing.T) {
	q, w := flow.New(everywhere(band(fcfs, robin, flow.Limits{}), flow.Limits{})), new(waiting)
	tenants := make([]string, 900)
	for i := range tenants {
		tenants[i] = fmt.Sprint("tenant-", i)
	}
	acquaint(t, q, w, tenants...)
	for i := range 3000 {
		push(t, q, w.of(fmt.Sprint(i), 0))
	}
	for range 2 {
		for _, id := range tenants {
			push(t, q, w.of(id, 0))
		}
	}
	served := 0
	for range 2 * (len(tenants) + 64 + 1) {
		if strings.HasPrefix(q.Next(anyRoom).Flow.Fairness, "tenant") {
			served++
		}
	}
	if served != 2*len(tenants) {
		t.Errorf("in two rounds the tenants have %d turns, want %d", served, 2*len(tenants))
	}
}

// occupy has 64 ids of which nothing is known wait, and each of them served.
func occupy(t *testing.T, q *flow.Queues, w *waiting) {
	t.Helper()
	for i := range 64 {
		push(t, q, w.of(fmt.Sprint("early-", i), 0))
	}
	if n := len(drain(q)); n != 64 {
		t.Fatalf("%d are served", n)
	}
}

// The requests of an id that has a flow of its own from now on go in their order, also those that waited before.
func TestIDBecomesKnownWhileItsRequestsWait(t *testing.T) {
	for _, ordering := range []string{fcfs, edf} {
		t.Run(ordering, func(t *testing.T) {
			q, w := flow.New(everywhere(band(ordering, robin, flow.Limits{}), flow.Limits{})), new(waiting)
			occupy(t, q, w)
			for range 20 {
				push(t, q, w.of("a", 0), w.of("b", 0))
			}
			order := drain(q) // in the shared flow up to the sixteenth request of a, then in turns
			if want := []string{"a65", "b66", "a67", "b68"}; !slices.Equal(order[:4], want) {
				t.Errorf("at first %v, want %v", order[:4], want)
			}
			var each [2][]int
			for _, s := range order {
				n, err := strconv.Atoi(s[1:])
				if err != nil {
					t.Fatal(err)
				}
				each[s[0]-'a'] = append(each[s[0]-'a'], n)
			}
			for i, all := range each {
				if len(all) != 20 || !slices.IsSorted(all) {
					t.Errorf("flow %d goes %v, want its 20 requests in their order", i, all)
				}
			}
			push(t, q, w.of("a", 0), w.of("a", 0), w.of("c", 0), w.of("b", 0), w.of("d", 0))
			if got, want := drain(q), []string{"c107", "a105", "b108", "d109", "a106"}; !slices.Equal(got, want) {
				t.Errorf("dispatched %v, want %v: c and d share a flow", got, want)
			}
		})
	}
}

// A dispatch in vain makes no id known.
func TestDispatchInVainProvesNothing(t *testing.T) {
	q, w := flow.New(everywhere(band(fcfs, robin, flow.Limits{}), flow.Limits{})), new(waiting)
	occupy(t, q, w)
	push(t, q, w.of("a", 0), w.of("a", 0))
	for range 20 {
		q.Return(q.Next(anyRoom))
	}
	push(t, q, w.of("b", 0))
	if got, want := drain(q), []string{"a65", "a66", "b67"}; !slices.Equal(got, want) {
		t.Errorf("dispatched %v, want %v: a and b share a flow", got, want)
	}
}

// Places of newcomers that have left open again, so that tenants which come much later have flows at once.
func TestPlacesOfNewcomersOpenAgain(t *testing.T) {
	q, w := flow.New(everywhere(band(fcfs, robin, flow.Limits{}), flow.Limits{})), new(waiting)
	q.Advance(start)
	occupy(t, q, w)
	for i, want := range [][]string{{"a65", "a66", "b67"}, {"a68", "b70", "a69"}} {
		q.Advance(start.Add(10*time.Minute + time.Duration(i-1)))
		if push(t, q, w.of("a", 0), w.of("a", 0), w.of("b", 0)); i == 0 {
			q.Advance(start)
		}
		if got := drain(q); !slices.Equal(got, want) {
			t.Errorf("the %d time dispatched %v, want %v", i+1, got, want)
		}
	}
}

// An id that the configuration gives a weight needs no place.
func TestIDsWithWeightsAreKnown(t *testing.T) {
	b := band(fcfs, token, flow.Limits{})
	b.Weights = map[string]float64{"a": 1}
	q, w := flow.New(everywhere(b, flow.Limits{})), new(waiting)
	occupy(t, q, w)
	push(t, q, w.of("b", 0), w.of("c", 0), w.of("a", 0), w.of("a", 0))
	if got, want := drain(q), []string{"b65", "a67", "c66", "a68"}; !slices.Equal(got, want) {
		t.Errorf("dispatched %v, want %v: b and c share a flow", got, want)
	}
}

// A client that makes up ids fills the line with one flow, which makes way for tenants.
func TestMadeUpIDsMakeWay(t *testing.T) {
	q, w := flow.New(everywhere(band(fcfs, robin, flow.Limits{Requests: 100}), flow.Limits{})), new(waiting)
	occupy(t, q, w)
	acquaint(t, q, w, "early-0")
	(&flood{uses: 1, waits: 1000}).sends(q, w, 300, "")
	for range 49 {
		if displaced, ok := q.Push(w.of("early-0", 0)); !ok || !strings.HasPrefix(displaced[0].Flow.Fairness, "made") {
			t.Fatalf("waits %v, %d make way", ok, len(displaced))
		}
	}
	if displaced, ok := q.Push(w.of("early-0", 0)); ok {
		t.Errorf("%s makes way for the 50th of a flow", show(displaced[0].Entry))
	}
}

// TestManyIDsAreExact draws requests of more ids than have places. Each leaves once, those of an id in their order, and
// counts are exact.
func TestManyIDsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fair := rapid.SampledFrom([]string{robin, token, program}).Draw(t, "fairness")
		q, w := flow.New(everywhere(band(fcfs, fair, flow.Limits{Requests: 150}), flow.Limits{})), new(waiting)
		waits := map[messages.RequestID]*flow.Entry{}
		leave := func(e *flow.Entry) {
			if waits[e.Request] != e {
				t.Fatalf("%s leaves, and does not wait", show(e))
			}
			delete(waits, e.Request)
		}
		now := start
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				first := rapid.IntRange(0, 200).Draw(t, "first id")
				for i := range rapid.IntRange(1, 80).Draw(t, "requests") {
					e := w.of(fmt.Sprint(first+i%rapid.IntRange(1, 80).Draw(t, "ids")), 0)
					displaced, ok := q.Push(e)
					for _, d := range displaced {
						leave(d.Entry)
					}
					if ok {
						waits[e.Request] = e
					}
				}
			},
			"next": func(t *rapid.T) {
				for range rapid.IntRange(1, 80).Draw(t, "dispatches") {
					e := q.Next(anyRoom)
					if e == nil {
						return
					}
					leave(e)
					for _, x := range waits {
						if x.Flow == e.Flow && x.Number < e.Number {
							t.Fatalf("%s goes before %s", show(e), show(x))
						}
					}
				}
			},
			"remove": func(t *rapid.T) {
				if all := slices.Sorted(maps.Keys(waits)); len(all) > 0 {
					leave(q.Remove(rapid.SampledFrom(all).Draw(t, "request")))
				}
			},
			"return": func(t *rapid.T) {
				if e := q.Next(anyRoom); e != nil {
					q.Return(e)
				}
			},
			"charge": func(t *rapid.T) {
				id := fmt.Sprint(rapid.IntRange(0, 300).Draw(t, "id"))
				q.Charge(messages.FlowKey{Fairness: id}, flow.Tokens{Output: 5})
			},
			"advance": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 11).Draw(t, "minutes")) * time.Minute)
				q.Advance(now)
			},
			"": func(t *rapid.T) {
				shown := q.Look(now, 1000, anyRoom)
				if len(waits) > 0 {
					sum, states := int64(0), shown[0].Flows
					for _, f := range states.All() {
						sum += f.Waiting.Requests
					}
					if sum != int64(len(waits)) {
						t.Fatalf("flows have %d requests waiting, want %d", sum, len(waits))
					}
				}
				if total := q.Total(); total != (flow.Total{int64(len(waits)), 10 * int64(len(waits))}) {
					t.Fatalf("%+v waits, want %d requests", total, len(waits))
				}
			},
		})
	})
}
