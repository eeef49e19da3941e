package flow_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/engine/fairness"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/orderings"
	"github.com/signalbox-epp/signalbox/engine/queues"
	"github.com/signalbox-epp/signalbox/messages"
)

var start = time.Unix(1_800_000_000, 0)

// band returns the settings of a band with policies of these types.
func band(ordering, fair string, limits flow.Limits) flow.BandSettings {
	p := builtIn()
	p.Ordering, p.Fairness = orderings.Types[ordering](), fairness.Types[fair]()
	if p.Ordering.Needs().Has(flow.KeyOrder) {
		p.Queue = new(queues.MaxMinHeap)
	}
	return flow.BandSettings{Limits: limits, Policies: p}
}

// everywhere returns settings of which all bands have the same.
func everywhere(b flow.BandSettings, total flow.Limits) flow.Settings {
	return flow.Settings{Limits: total, Default: b, Negative: b, BuiltIn: builtIn()}
}

func anyRoom(*flow.Entry) bool { return true }

// game plays Queues and the model side by side.
type game struct {
	queues     *flow.Queues
	model      *model
	last       messages.RequestID
	dispatched []*flow.Entry
}

func newGame(s flow.Settings) *game {
	g := &game{queues: flow.New(s), model: newModel(s)}
	g.queues.Advance(start)
	g.queues.Locate(func(e *flow.Entry) int { return g.model.held[e] })
	return g
}

// moves are what may happen.
func (g *game) moves() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"push": g.push, "next": g.next, "remove": g.remove, "return": g.putBack, "charge": g.charge,
		"advance": g.advance, "": g.check,
	}
}

var leastShares = rapid.SampledFrom([]float64{0, .2, .3})

var limits = rapid.SampledFrom([]flow.Limits{{}, {Requests: 6}, {Bytes: 40}, {Requests: 9, Bytes: 60}})

// TestQueuesAgreeWithModel draws what comes and goes: every decision must be the one that a look at everything takes,
// and all counts exact.
func TestQueuesAgreeWithModel(t *testing.T) {
	for ordering := range orderings.Types {
		for fair := range fairness.Types {
			t.Run(ordering+" "+fair, func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					b := band(ordering, fair, limits.Draw(t, "of a band"))
					b.MinShare = leastShares.Draw(t, "least share")
					t.Repeat(newGame(everywhere(b, limits.Draw(t, "of all"))).moves())
				})
			})
		}
	}
}

// TestQueuesWhoseIDsShareAFlowAgreeWithModel has ids share a flow: one request goes if there is room for any, of the
// band that is next.
func TestQueuesWhoseIDsShareAFlowAgreeWithModel(t *testing.T) {
	for fair := range fairness.Types {
		t.Run(fair, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				b := band(fcfs, fair, flow.Limits{})
				b.MinShare = leastShares.Draw(t, "least share")
				s := everywhere(b, flow.Limits{})
				s.Flows = rapid.IntRange(1, 3).Draw(t, "flows")
				moves := newGame(s).moves()
				for range 8 {
					t.Repeat(moves)
				}
			})
		})
	}
}

// TestQueuesAgreeWithModelByLocality draws what endpoints that have room hold of prompts, too.
func TestQueuesAgreeWithModelByLocality(t *testing.T) {
	for name, queue := range queues.Types {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				b := local(rapid.SampledFrom([]int{1, 30, 200}).Draw(t, "quantum"), queue())
				b.MinShare = leastShares.Draw(t, "least share")
				moves := newGame(everywhere(b, flow.Limits{})).moves()
				for range 8 { // long enough for bands to be owed
					t.Repeat(moves)
				}
			})
		})
	}
}

// TestQueuesAgreeWithModelUnderOtherSettings also draws other settings while requests wait: bands come and go, their
// policies, weights and limits change, and change back.
func TestQueuesAgreeWithModelUnderOtherSettings(t *testing.T) {
	for fair := range fairness.Types {
		t.Run(fair, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				g := newGame(anySettings(t, fair))
				moves := g.moves()
				moves["configure"] = func(t *rapid.T) {
					s := anySettings(t, fair)
					g.queues.Configure(s)
					g.model.configure(s)
				}
				for range 8 { // long enough for bands to empty, and to fill again
					t.Repeat(moves)
				}
			})
		})
	}
}

// anySettings draws settings. Most have the same policies.
func anySettings(t *rapid.T, fair string) flow.Settings {
	usual := rapid.SampledFrom([]bool{true, true, true, false})
	one := func(name string) flow.BandSettings {
		ordering := fcfs
		if !usual.Draw(t, name+" is usual") {
			ordering = edf
		}
		b := band(ordering, fair, limits.Draw(t, name+" limits"))
		if !usual.Draw(t, name+" weighs alike") {
			b.Weights = map[string]float64{"a": 2, "c": .5}
		}
		b.MinShare = leastShares.Draw(t, name+" least share")
		return b
	}
	s := everywhere(one("default"), limits.Draw(t, "of all"))
	s.Negative = one("negative")
	if !usual.Draw(t, "one") {
		s.Bands = map[int]flow.BandSettings{1: one("band")}
	}
	return s
}

// advance lets time pass, some of it longer than flows are remembered.
func (g *game) advance(t *rapid.T) {
	by := time.Duration(rapid.SampledFrom([]int{1, 20, 300, 4000}).Draw(t, "seconds")) * time.Second
	g.model.now = g.model.now.Add(by)
	g.queues.Advance(g.model.now)
}

func (g *game) push(t *rapid.T) {
	g.last++
	arrived := g.model.now.Add(time.Duration(g.last) * time.Millisecond)
	e := &flow.Entry{
		Request: g.last,
		Flow: messages.FlowKey{
			Fairness: rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "flow"),
			Priority: rapid.IntRange(-1, 1).Draw(t, "priority"),
		},
		Class: flow.Class(rapid.IntRange(0, 2).Draw(t, "class")),
		Wait: flow.Wait{
			Arrived:  arrived,
			Deadline: arrived.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "patience")) * time.Millisecond),
			TTFT:     time.Duration(rapid.IntRange(0, 9).Draw(t, "ttft")) * time.Millisecond,
		},
		Work: flow.Work{
			Bytes:  rapid.Int64Range(0, 20).Draw(t, "bytes"),
			Prompt: rapid.IntRange(0, 50).Draw(t, "prompt"), Output: rapid.IntRange(0, 50).Draw(t, "output"),
		},
	}
	g.model.held[e] = rapid.IntRange(0, 3).Draw(t, "held")
	all, band := g.totals(e)
	displaced, ok := g.queues.Push(e)
	limit := g.model.of(e.Flow.Priority).Limits
	fits := within(all, e, g.model.settings.Limits) && within(band, e, limit)
	if fits && (!ok || len(displaced) > 0) {
		t.Fatalf("it fits, and is refused: %v, %d make way", !ok, len(displaced))
	}
	for _, d := range displaced {
		g.checkDisplaced(t, e, d)
		g.model.remove(d.Entry)
	}
	if !ok {
		g.checkRefused(t, e)
		return
	}
	all, band = g.totals(e)
	if !within(all, e, g.model.settings.Limits) || !within(band, e, limit) {
		t.Fatalf("above a limit: %v in all, %v in its band before it", all, band)
	}
	g.model.push(e)
}

// totals returns what waits, and what waits of the priority of e.
func (g *game) totals(e *flow.Entry) (all, band flow.Total) {
	return g.model.total(anyRoom), g.model.total(func(x *flow.Entry) bool { return x.Flow.Priority == e.Flow.Priority })
}

func within(t flow.Total, e *flow.Entry, l flow.Limits) bool {
	return (l.Requests == 0 || t.Requests < l.Requests) && (l.Bytes == 0 || t.Bytes+e.Bytes <= l.Bytes)
}

func (g *game) checkDisplaced(t *rapid.T, e *flow.Entry, d flow.Displaced) {
	if d.Priority {
		for _, x := range g.model.entries {
			if x.Flow.Priority < d.Flow.Priority {
				t.Fatalf("of priority %d makes way, and one of %d stays", d.Flow.Priority, x.Flow.Priority)
			}
		}
	}
	switch {
	case d.Priority && d.Flow.Priority >= e.Flow.Priority, !d.Priority && d.Flow.Priority != e.Flow.Priority:
		t.Fatalf("%v makes way for %v, of higher priority: %v", d.Flow, e.Flow, d.Priority)
	case !d.Priority && excess(g.model.seats[d.Entry].Account, 0) <= excess(g.model.peek(e.Flow), 1):
		t.Fatalf("%v makes way for %v, which has as much waiting", d.Flow, e.Flow)
	}
}

// excess returns how many requests a flow has waiting, and more, by its weight.
func excess(a flow.Account, more int) float64 { return float64(a.Requests+more) / a.Weight }

// checkRefused wants a refused request to be one for which no lower priority could have made room.
func (g *game) checkRefused(t *rapid.T, e *flow.Entry) {
	all, band := g.totals(e)
	if !within(band, e, g.model.of(e.Flow.Priority).Limits) {
		return
	}
	lower := g.model.total(func(x *flow.Entry) bool { return x.Flow.Priority < e.Flow.Priority })
	all.Requests -= lower.Requests
	all.Bytes -= lower.Bytes
	if within(all, e, g.model.settings.Limits) {
		t.Fatalf("refused, and %v of lower priority waits", lower)
	}
}

func (g *game) next(t *rapid.T) {
	full := rapid.SliceOfN(rapid.Custom(drawFull), 3, 3).Draw(t, "full")
	has := func(e *flow.Entry, floored bool) bool {
		return full[e.Class].has(e.Flow.Priority, floored, g.model.crowds(e))
	}
	turn := g.model.turn(has)
	g.queues.OpenAll()
	got := g.queues.Next(func(e *flow.Entry) bool { return has(e, g.queues.Floored()) })
	if !turn.allows(got) {
		t.Fatalf("dispatched %s, want %s, of a least share: %v", show(got), show(turn.entry), turn.floored)
	}
	if got != nil {
		g.model.dispatch(got, turn)
		g.dispatched = append(g.dispatched, got)
	}
}

func show(e *flow.Entry) string {
	if e == nil {
		return "nothing"
	}
	return fmt.Sprintf("request %d of %v, class %d", e.Request, e.Flow, e.Class)
}

func (g *game) remove(t *rapid.T) {
	id := messages.RequestID(rapid.Uint64Range(0, uint64(g.last)+1).Draw(t, "request"))
	e := g.queues.Remove(id)
	waits := slices.ContainsFunc(g.model.entries, func(x *flow.Entry) bool { return x.Request == id })
	if waits != (e != nil) {
		t.Fatalf("request %d waits: %v, removed %s", id, waits, show(e))
	}
	if e != nil {
		g.model.remove(e)
	}
}

// take draws one of the requests that were dispatched.
func (g *game) take(t *rapid.T) *flow.Entry {
	if len(g.dispatched) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(g.dispatched)-1).Draw(t, "dispatched")
	e := g.dispatched[i]
	g.dispatched = slices.Delete(g.dispatched, i, i+1)
	return e
}

func (g *game) putBack(t *rapid.T) {
	e := g.take(t)
	g.queues.Return(e)
	g.model.putBack(e)
}

func (g *game) charge(t *rapid.T) {
	e := g.take(t)
	used := flow.Tokens{
		Prompt: rapid.Int64Range(-20, 60).Draw(t, "prompt"), Output: rapid.Int64Range(-20, 60).Draw(t, "output"),
	}
	g.queues.Charge(e.Flow, used)
	g.model.charge(e.Flow, used)
}

func (g *game) check(t *rapid.T) {
	if got, want := g.queues.Total(), g.model.total(anyRoom); got != want {
		t.Fatalf("%+v waits, want %+v", got, want)
	}
	all := g.queues.All()
	for i, e := range all {
		inOrder := i == 0 || all[i-1].Number < e.Number
		if !inOrder || !slices.Contains(g.model.entries, e) || g.queues.Waiting(e.Request) != e {
			t.Fatalf("%s is listed at %d", show(e), i)
		}
	}
	if len(all) != len(g.model.entries) {
		t.Fatalf("%d are listed, want %d", len(all), len(g.model.entries))
	}
}
