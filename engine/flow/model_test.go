package flow_test

import (
	"cmp"
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

func builtIn() flow.Policies {
	return flow.Policies{
		Ordering: new(orderings.FCFS), Queue: new(queues.ListQueue), Fairness: new(fairness.GlobalStrict),
	}
}

// band returns the settings of a band with policies of these types.
func band(ordering, fair string, limits flow.Limits) flow.BandSettings {
	p := flow.Policies{
		Ordering: orderings.Types[ordering](), Fairness: fairness.Types[fair](), Queue: new(queues.ListQueue),
	}
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
	bands    map[int]*modelBand
}

type modelBand struct {
	accounts map[string]*flow.Account
	turns    map[*flow.Entry][2]uint64 // of dispatched requests: the dispatch before to their flow, and their own
	rank     int64
	served   uint64
}

func (m *model) band(priority int) *modelBand {
	if m.bands[priority] == nil {
		m.bands[priority] = &modelBand{accounts: map[string]*flow.Account{}, turns: map[*flow.Entry][2]uint64{}}
	}
	return m.bands[priority]
}

func (m *model) account(k messages.FlowKey) *flow.Account {
	b := m.band(k.Priority)
	if b.accounts[k.Fairness] == nil {
		b.accounts[k.Fairness] = &flow.Account{Weight: 1}
	}
	return b.accounts[k.Fairness]
}

func (m *model) push(e *flow.Entry) {
	a := m.account(e.Flow)
	if a.Requests == 0 {
		m.settings.Default.Fairness.Join(a, m.band(e.Flow.Priority).rank)
	}
	a.Requests++
	m.entries = append(m.entries, e)
}

func (m *model) remove(e *flow.Entry) {
	m.account(e.Flow).Requests--
	m.entries = slices.DeleteFunc(m.entries, func(x *flow.Entry) bool { return x == e })
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
	type line struct {
		flow  messages.FlowKey
		class flow.Class
	}
	heads := map[line]*flow.Entry{}
	highest := 0
	for _, e := range m.entries {
		if !room(e) {
			continue
		}
		at := line{e.Flow, e.Class}
		if h := heads[at]; h == nil || e.Before(h) {
			if len(heads) == 0 || e.Flow.Priority > highest {
				highest = e.Flow.Priority
			}
			heads[at] = e
		}
	}
	var all []flow.Candidate
	for at, e := range heads {
		if at.flow.Priority == highest {
			all = append(all, flow.Candidate{Account: m.account(at.flow), Head: e})
		}
	}
	if len(all) == 0 {
		return nil
	}
	next := m.choose(all)
	m.dispatch(next.Head, m.settings.Default.Fairness.Rank(next.Account, next.Head))
	return next.Head
}

// choose returns which of all flows is next.
func (m *model) choose(all []flow.Candidate) flow.Candidate {
	if by, ok := m.settings.Default.Fairness.(flow.Chooser); ok {
		return all[by.Choose(m.now, all)]
	}
	rank := func(c flow.Candidate) int64 { return m.settings.Default.Fairness.Rank(c.Account, c.Head) }
	return slices.MinFunc(all, func(a, b flow.Candidate) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Head.Number, b.Head.Number))
	})
}

func (m *model) dispatch(e *flow.Entry, rank int64) {
	m.remove(e)
	b, a := m.band(e.Flow.Priority), m.account(e.Flow)
	b.rank = rank
	b.served++
	b.turns[e] = [2]uint64{a.Served, b.served}
	a.Served = b.served
	m.add(a, flow.Tokens{Prompt: int64(max(e.Prompt, 1))})
}

// add charges an account.
func (m *model) add(a *flow.Account, t flow.Tokens) {
	if meter, ok := m.settings.Default.Fairness.(flow.Meter); ok {
		meter.Charge(a, m.now, t)
	} else {
		a.Service += t.Prompt + t.Output
	}
	a.Service, a.At = max(a.Service, 0), m.now
}

// charge charges a flow for what ran, as Queues.Charge must.
func (m *model) charge(k messages.FlowKey, t flow.Tokens) {
	fair, ok := m.settings.Default.Fairness.(flow.Meter)
	if !ok {
		return
	}
	b, a := m.band(k.Priority), m.account(k)
	if m.total(func(e *flow.Entry) bool { return e.Flow.Priority == k.Priority }) == (flow.Total{}) {
		fair.Join(a, b.rank)
		b.rank = max(b.rank, fair.Rank(a, nil))
	}
	if t != (flow.Tokens{}) {
		m.add(a, t)
	}
}

// game plays Queues and the model side by side.
type game struct {
	queues     *flow.Queues
	model      *model
	last       messages.RequestID
	dispatched []*flow.Entry
}

// TestQueuesAgreeWithModel draws what comes and goes: every decision must be the one that a look at everything takes,
// and all counts exact.
func TestQueuesAgreeWithModel(t *testing.T) {
	for ordering := range orderings.Types {
		for fair := range fairness.Types {
			t.Run(ordering+" "+fair, func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					limit := rapid.SampledFrom([]flow.Limits{{}, {Requests: 6}, {Bytes: 40}, {Requests: 9, Bytes: 60}})
					s := everywhere(band(ordering, fair, limit.Draw(t, "of a band")), limit.Draw(t, "of all"))
					g := &game{queues: flow.New(s), model: &model{settings: s, bands: map[int]*modelBand{}}}
					g.model.now = start
					g.queues.Advance(start)
					t.Repeat(map[string]func(*rapid.T){
						"push": g.push, "next": g.next, "remove": g.remove, "return": g.putBack, "charge": g.charge,
						"advance": g.advance,
						"":        g.check,
					})
				})
			})
		}
	}
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
	fits := within(all, e, g.model.settings.Limits) && within(band, e, g.model.settings.Default.Limits)
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
	if !within(all, e, g.model.settings.Limits) || !within(band, e, g.model.settings.Default.Limits) {
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
	case !d.Priority && g.model.account(d.Flow).Requests <= g.model.account(e.Flow).Requests+1:
		t.Fatalf("%v makes way for %v, which has as much waiting", d.Flow, e.Flow)
	}
}

// checkRefused wants a refused request to be one for which no lower priority could have made room.
func (g *game) checkRefused(t *rapid.T, e *flow.Entry) {
	all, band := g.totals(e)
	if !within(band, e, g.model.settings.Default.Limits) {
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
	a, turn := g.model.account(e.Flow), g.model.band(e.Flow.Priority).turns[e]
	g.model.add(a, flow.Tokens{Prompt: -int64(max(e.Prompt, 1))})
	if a.Served == turn[1] {
		a.Served = turn[0]
	}
	g.model.push(e)
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
