package flow_test

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
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

// model holds what waits in one list, and looks at all of it for every decision.
type model struct {
	settings flow.Settings
	now      time.Time
	entries  []*flow.Entry
	in       map[*flow.Entry]*modelBand // where each waits, or was dispatched
	bands    map[int][]*modelBand       // by priority; of one those of older settings first
}

// modelBand is the requests of one priority that began to wait under the same policies.
type modelBand struct {
	flow.BandSettings
	accounts map[string]*flow.Account
	turns    map[*flow.Entry][2]uint64 // of dispatched requests: the dispatch before to their flow, and their own
	rank     int64
	served   uint64
}

// of returns the settings of a priority.
func (m *model) of(priority int) flow.BandSettings {
	if b, ok := m.settings.Bands[priority]; ok {
		return b
	}
	if priority < 0 {
		return m.settings.Negative
	}
	return m.settings.Default
}

// same reports whether requests may wait beside each other under two settings.
func same(a, b *flow.BandSettings) bool {
	return reflect.DeepEqual(a.Policies, b.Policies) && reflect.DeepEqual(a.Weights, b.Weights)
}

// band returns the band in which requests of a priority begin to wait.
func (m *model) band(priority int) *modelBand {
	s, all := m.of(priority), m.bands[priority]
	if n := len(all); n > 0 && same(&all[n-1].BandSettings, &s) {
		return all[n-1]
	}
	b := &modelBand{s, map[string]*flow.Account{}, map[*flow.Entry][2]uint64{}, 0, 0}
	m.bands[priority] = append(all, b)
	return b
}

// waits returns how much waits in a band.
func (m *model) waits(b *modelBand) flow.Total {
	return m.total(func(e *flow.Entry) bool { return m.in[e] == b })
}

// configure brings other settings in force, as Queues.Configure must.
func (m *model) configure(s flow.Settings) {
	m.settings = s
	for priority, all := range m.bands {
		now := m.of(priority)
		var kept []*modelBand
		for i, b := range all {
			newest := i == len(all)-1
			if (m.waits(b) != flow.Total{}) || newest && same(&b.BandSettings, &now) {
				kept = append(kept, b)
			}
		}
		m.bands[priority] = kept
	}
}

func (b *modelBand) account(fairness string) *flow.Account {
	if b.accounts[fairness] == nil {
		b.accounts[fairness] = &flow.Account{Weight: 1}
		if w, ok := b.Weights[fairness]; ok {
			b.accounts[fairness].Weight = w
		}
	}
	return b.accounts[fairness]
}

func (m *model) push(e *flow.Entry) {
	b := m.band(e.Flow.Priority)
	a := b.account(e.Flow.Fairness)
	if a.Requests == 0 {
		b.Fairness.Join(a, b.rank)
	}
	a.Requests++
	m.entries = append(m.entries, e)
	m.in[e] = b
}

func (m *model) remove(e *flow.Entry) {
	b, priority := m.in[e], e.Flow.Priority
	b.account(e.Flow.Fairness).Requests--
	m.entries = slices.DeleteFunc(m.entries, func(x *flow.Entry) bool { return x == e })
	if all := m.bands[priority]; b != all[len(all)-1] && m.waits(b) == (flow.Total{}) {
		m.bands[priority] = slices.DeleteFunc(all, func(x *modelBand) bool { return x == b })
	}
}

func (m *model) total(counts func(*flow.Entry) bool) (t flow.Total) {
	for _, e := range m.entries {
		if counts(e) {
			t.Requests++
			t.Bytes += e.Bytes
		}
	}
	return t
}

// next returns what Queues.Next must return.
func (m *model) next(room func(*flow.Entry) bool) *flow.Entry {
	for _, priority := range slices.Backward(slices.Sorted(maps.Keys(m.bands))) {
		for _, b := range m.bands[priority] {
			all := m.heads(b, room)
			if len(all) == 0 {
				continue
			}
			next := m.choose(b, all)
			m.dispatch(next.Head, b.Fairness.Rank(next.Account, next.Head))
			return next.Head
		}
	}
	return nil
}

// heads returns the first request of each flow and class of a band that has room.
func (m *model) heads(b *modelBand, room func(*flow.Entry) bool) (all []flow.Candidate) {
	type line struct {
		flow  string
		class flow.Class
	}
	heads := map[line]*flow.Entry{}
	for _, e := range m.entries {
		at := line{e.Flow.Fairness, e.Class}
		if h := heads[at]; m.in[e] == b && room(e) && (h == nil || e.Before(h)) {
			heads[at] = e
		}
	}
	for at, e := range heads {
		all = append(all, flow.Candidate{Account: b.account(at.flow), Head: e})
	}
	return all
}

// choose returns which of all flows is next.
func (m *model) choose(b *modelBand, all []flow.Candidate) flow.Candidate {
	if by, ok := b.Fairness.(flow.Chooser); ok {
		return all[by.Choose(m.now, all)]
	}
	rank := func(c flow.Candidate) int64 { return b.Fairness.Rank(c.Account, c.Head) }
	return slices.MinFunc(all, func(x, y flow.Candidate) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x.Head.Number, y.Head.Number))
	})
}

func (m *model) dispatch(e *flow.Entry, rank int64) {
	m.remove(e)
	b := m.in[e]
	a := b.account(e.Flow.Fairness)
	b.rank = rank
	b.served++
	b.turns[e] = [2]uint64{a.Served, b.served}
	a.Served = b.served
	m.add(b, a, flow.Tokens{Prompt: int64(max(e.Prompt, 1))})
}

// putBack takes a dispatch back.
func (m *model) putBack(e *flow.Entry) {
	b := m.in[e]
	a, turn := b.account(e.Flow.Fairness), b.turns[e]
	m.add(b, a, flow.Tokens{Prompt: -int64(max(e.Prompt, 1))})
	if a.Served == turn[1] {
		a.Served = turn[0]
	}
	m.push(e)
}

// add charges an account.
func (m *model) add(b *modelBand, a *flow.Account, t flow.Tokens) {
	if meter, ok := b.Fairness.(flow.Meter); ok {
		meter.Charge(a, m.now, t)
	} else {
		a.Service += t.Prompt + t.Output
	}
	a.Service, a.At = max(a.Service, 0), m.now
}

// charge charges a flow for what ran, as Queues.Charge must.
func (m *model) charge(k messages.FlowKey, t flow.Tokens) {
	newest := m.band(k.Priority)
	for _, b := range m.bands[k.Priority] {
		if _, ok := b.Fairness.(flow.Meter); !ok || b != newest && b.accounts[k.Fairness] == nil {
			continue
		}
		a := b.account(k.Fairness)
		if m.waits(b) == (flow.Total{}) {
			b.Fairness.Join(a, b.rank)
			b.rank = max(b.rank, b.Fairness.Rank(a, nil))
		}
		if t != (flow.Tokens{}) {
			m.add(b, a, t)
		}
	}
}

// game plays Queues and the model side by side.
type game struct {
	queues     *flow.Queues
	model      *model
	last       messages.RequestID
	dispatched []*flow.Entry
}

func newGame(s flow.Settings) *game {
	g := &game{queues: flow.New(s), model: &model{
		settings: s, now: start, in: map[*flow.Entry]*modelBand{}, bands: map[int][]*modelBand{},
	}}
	g.queues.Advance(start)
	return g
}

// moves are what may happen.
func (g *game) moves() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"push": g.push, "next": g.next, "remove": g.remove, "return": g.putBack, "charge": g.charge,
		"advance": g.advance, "": g.check,
	}
}

var limits = rapid.SampledFrom([]flow.Limits{{}, {Requests: 6}, {Bytes: 40}, {Requests: 9, Bytes: 60}})

// TestQueuesAgreeWithModel draws what comes and goes: every decision must be the one that a look at everything takes,
// and all counts exact.
func TestQueuesAgreeWithModel(t *testing.T) {
	for ordering := range orderings.Types {
		for fair := range fairness.Types {
			t.Run(ordering+" "+fair, func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					b := band(ordering, fair, limits.Draw(t, "of a band"))
					t.Repeat(newGame(everywhere(b, limits.Draw(t, "of all"))).moves())
				})
			})
		}
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
			Fairness: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "flow"),
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
	case !d.Priority && g.model.crowd(d.Flow, 0) <= g.model.crowd(e.Flow, 1):
		t.Fatalf("%v makes way for %v, which has as much waiting", d.Flow, e.Flow)
	}
}

// crowd returns how many requests of a flow wait in the newest band of its priority, and more, by its weight.
func (m *model) crowd(k messages.FlowKey, more int) float64 {
	all := m.bands[k.Priority]
	b := all[len(all)-1]
	a := b.account(k.Fairness)
	return float64(a.Requests+more) / a.Weight
}

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
	open := rapid.SliceOfN(rapid.Bool(), 3, 3).Draw(t, "room")
	room := func(e *flow.Entry) bool { return open[e.Class] }
	got, want := g.queues.Next(room), g.model.next(room)
	if got != want {
		t.Fatalf("dispatched %s, want %s", show(got), show(want))
	}
	if got != nil {
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
