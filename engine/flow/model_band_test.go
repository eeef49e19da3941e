package flow_test

import (
	"cmp"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/messages"
)

// model holds what waits in one list, and looks at all of it for every decision.
type model struct {
	settings flow.Settings
	now      time.Time
	entries  []*flow.Entry
	in       map[*flow.Entry]*modelBand // where each waits, or was dispatched
	seats    map[*flow.Entry]*modelFlow // likewise
	held     map[*flow.Entry]int        // blocks of its prompt, where there is room
	over     map[*flow.Entry]int64      // tokens of prompts of requests that went before it although its turn had come
	bands    map[int][]*modelBand       // by priority; of one those of older settings first
	last     *flow.Entry                // that was dispatched, and not in vain; nil = none that is to be counted
}

func newModel(s flow.Settings) *model {
	return &model{
		settings: s, now: start, in: map[*flow.Entry]*modelBand{}, seats: map[*flow.Entry]*modelFlow{},
		held: map[*flow.Entry]int{}, over: map[*flow.Entry]int64{}, bands: map[int][]*modelBand{},
	}
}

// modelBand is the requests of one priority that began to wait under the same policies.
type modelBand struct {
	flow.BandSettings
	flows  map[string]*modelFlow     // by id
	turns  map[*flow.Entry][2]uint64 // of dispatched requests: the dispatch before to their flow, and their own
	rank   int64
	served uint64
	due    float64
}

type modelFlow struct{ flow.Account }

// shares reports whether ids may share a flow. The model does not know which do: then any request of the band that is
// next may go, if it has room.
func (m *model) shares() bool { return m.settings.Flows > 0 }

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
	b := &modelBand{BandSettings: s, flows: map[string]*modelFlow{}, turns: map[*flow.Entry][2]uint64{}}
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

// flow returns the flow of an id.
func (b *modelBand) flow(id string) *modelFlow {
	if b.flows[id] == nil {
		b.flows[id] = &modelFlow{flow.Account{Weight: cmp.Or(b.Weights[id], 1)}}
	}
	return b.flows[id]
}

// peek returns the account of a flow in the newest band of its priority.
func (m *model) peek(k messages.FlowKey) flow.Account {
	all := m.bands[k.Priority]
	return all[len(all)-1].flow(k.Fairness).Account
}

func drop[T comparable](list []T, member T) []T {
	return slices.DeleteFunc(list, func(x T) bool { return x == member })
}

func (m *model) push(e *flow.Entry) {
	b := m.band(e.Flow.Priority)
	f := b.flow(e.Flow.Fairness)
	if f.Requests == 0 {
		b.Fairness.Join(&f.Account, b.rank)
	}
	f.Requests++
	m.entries = append(m.entries, e)
	m.in[e], m.seats[e] = b, f
}

func (m *model) remove(e *flow.Entry) {
	b, f, priority := m.in[e], m.seats[e], e.Flow.Priority
	f.Requests--
	m.entries = drop(m.entries, e)
	if all := m.bands[priority]; b != all[len(all)-1] && m.waits(b) == (flow.Total{}) {
		m.bands[priority] = drop(all, b)
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

// crowds reports whether further requests of the flow of one that waits do, too.
func (m *model) crowds(e *flow.Entry) bool {
	if m.shares() {
		return e.Crowds()
	}
	return m.seats[e].Requests > 1
}

// full says for which requests of a class there is no room: those up to a priority, or of that priority only those that
// crowd. A request that is served by a least share is of the highest priority.
type full struct {
	priority int
	crowded  bool
}

func drawFull(t *rapid.T) full {
	return full{
		rapid.SampledFrom([]int{-2, -2, -2, -1, 0, 1, math.MaxInt}).Draw(t, "up to"),
		rapid.Bool().Draw(t, "those that crowd"),
	}
}

func (f full) has(priority int, floored, crowds bool) bool {
	if floored {
		priority = math.MaxInt
	}
	return priority > f.priority || priority == f.priority && f.crowded && !crowds
}

// turn is a decision of the model.
type turn struct {
	entry   *flow.Entry   // whose turn it is; nil = none has room
	may     []*flow.Entry // those of which Queues.Next must return one
	rank    int64         // of the entry's flow
	floored bool          // its band is owed its least share
}

func (d *turn) allows(e *flow.Entry) bool { return slices.Contains(d.may, e) }

// turn returns what Queues.Next must return. Of what waits and has room, one is next.
func (m *model) turn(has func(e *flow.Entry, floored bool) bool) *turn {
	m.settle()
	for _, floored := range []bool{true, false} {
		for _, b := range m.inOrder(floored) {
			if d := m.turnOf(b, func(e *flow.Entry) bool { return has(e, floored) }); d != nil {
				d.floored = floored
				return d
			}
		}
	}
	return &turn{may: []*flow.Entry{nil}}
}

// inOrder returns all bands, those of the highest priority first, or those alone whose priority is owed its least
// share.
func (m *model) inOrder(owed bool) (all []*modelBand) {
	for _, priority := range slices.Backward(slices.Sorted(maps.Keys(m.bands))) {
		if of := m.bands[priority]; len(of) > 0 && (!owed || of[0].due >= 1-1e-9) {
			all = append(all, of...)
		}
	}
	return all
}

// settle counts the last dispatch for what bands are owed.
func (m *model) settle() {
	e := m.last
	if m.last = nil; e == nil {
		return
	}
	for priority, all := range m.bands {
		for i, b := range all {
			if i > 0 {
				b.due = 0
				continue
			}
			share := m.of(priority).MinShare
			if b.due += share; priority == e.Flow.Priority {
				b.due--
			}
			if b.due = min(max(b.due, 0), 1+share); m.waits(b) == (flow.Total{}) {
				b.due = 0
			}
		}
	}
}

// turnOf returns which request of a band is next; nil = none has room.
func (m *model) turnOf(b *modelBand, room func(*flow.Entry) bool) *turn {
	all := m.heads(b, room)
	if len(all) == 0 {
		return nil
	}
	next := m.choose(b, all)
	d := &turn{entry: next.Head, may: []*flow.Entry{next.Head}, rank: b.Fairness.Rank(next.Account, next.Head)}
	if m.shares() {
		d.may = slices.Clone(m.entries)
		d.may = slices.DeleteFunc(d.may, func(e *flow.Entry) bool { return m.in[e] != b || !room(e) })
		return d
	}
	if of, ok := b.Fairness.(flow.Local); ok && m.over[next.Head] < of.Quantum() {
		m.near(b, room, of.Quantum(), d)
	}
	return d
}

// near puts into a turn the requests that may go first by locality: of flows within the quantum, those of whose prompts
// the most is held. Of a line of many requests, not all are looked at.
func (m *model) near(b *modelBand, room func(*flow.Entry) bool, quantum int64, d *turn) {
	most, sure := m.held[d.entry], true
	var near []*flow.Entry
	for _, e := range m.entries {
		f := m.seats[e]
		if m.in[e] == b && room(e) && b.Fairness.Rank(&f.Account, e) <= d.rank+quantum && m.held[e] > m.held[d.entry] {
			near, most = append(near, e), max(most, m.held[e])
			sure = sure && f.Requests <= 8
		}
	}
	if !sure {
		d.may = append(d.may, near...)
		return
	}
	if len(near) > 0 {
		d.may = slices.DeleteFunc(near, func(e *flow.Entry) bool { return m.held[e] < most })
	}
}

// heads returns the first request of each flow and class of a band that has room.
func (m *model) heads(b *modelBand, room func(*flow.Entry) bool) (all []candidate) {
	type line struct {
		flow  *modelFlow
		class flow.Class
	}
	heads := map[line]*flow.Entry{}
	for _, e := range m.entries {
		at := line{m.seats[e], e.Class}
		if h := heads[at]; m.in[e] == b && room(e) && (h == nil || e.Before(h)) {
			heads[at] = e
		}
	}
	for at, e := range heads {
		all = append(all, candidate{&at.flow.Account, e})
	}
	return all
}

// candidate is a flow with its first request.
type candidate struct {
	*flow.Account
	Head *flow.Entry
}

// choose returns which of all flows is next.
func (m *model) choose(b *modelBand, all []candidate) candidate {
	if by, ok := b.Fairness.(flow.Chooser); ok {
		return m.weigh(by, all)
	}
	rank := func(c candidate) int64 { return b.Fairness.Rank(c.Account, c.Head) }
	return slices.MinFunc(all, func(x, y candidate) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x.Head.Number, y.Head.Number))
	})
}

// dispatch takes a request out that a turn allows.
func (m *model) dispatch(e *flow.Entry, d *turn) {
	if e != d.entry {
		m.over[d.entry] += int64(max(e.Prompt, 1))
	}
	m.remove(e)
	b, a := m.in[e], &m.seats[e].Account
	b.rank = d.rank
	b.served++
	b.turns[e] = [2]uint64{a.Served, b.served}
	a.Served = b.served
	m.last = e
	m.add(b, a, flow.Tokens{Prompt: int64(max(e.Prompt, 1))})
}

// putBack takes a dispatch back.
func (m *model) putBack(e *flow.Entry) {
	b, a := m.in[e], &m.seats[e].Account
	turn := b.turns[e]
	if m.last == e {
		m.last = nil
	}
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
		if _, ok := b.Fairness.(flow.Meter); !ok || b != newest && b.flows[k.Fairness] == nil {
			continue
		}
		f := b.flow(k.Fairness)
		if m.waits(b) == (flow.Total{}) {
			b.Fairness.Join(&f.Account, b.rank)
			b.rank = max(b.rank, b.Fairness.Rank(&f.Account, nil))
		}
		if t != (flow.Tokens{}) {
			m.add(b, &f.Account, t)
		}
	}
}
