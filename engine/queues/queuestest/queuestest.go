// Package queuestest holds types of queues against what they say that they can do, for tests beside them, also of other
// modules.
package queuestest

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

// Conform holds the queues of a type against a sorted list, in random plays: what Can says that they can do, they do,
// and they can what every queue must.
func Conform(t *testing.T, typ flow.QueueType) {
	t.Helper()
	if !typ.Can().Has(flow.Needed) {
		t.Fatalf("it can %v, want what every queue must: %v", typ.Can().Names(), flow.Needed.Names())
	}
	rapid.Check(t, func(t *rapid.T) { conform(t, typ) })
}

// model is a queue that sorts. All that ever were in it are numbered in the order of their arrival.
type model struct {
	can      flow.Ability
	byKey    bool
	entries  []*flow.Entry
	arrivals uint64
	out      []*flow.Entry // taken out, and may be put back
}

func (m *model) before(a, b *flow.Entry) bool {
	if m.byKey {
		return a.Before(b)
	}
	return a.Number < b.Number
}

func (m *model) extreme(last bool) *flow.Entry {
	var found *flow.Entry
	for _, e := range m.entries {
		if found == nil || m.before(e, found) != last {
			found = e
		}
	}
	return found
}

// listed wants a queue that can list to give its first entries, each once, the first one first.
func (m *model) listed(t *rapid.T, q flow.Queue, n int) {
	l, ok := q.(flow.Lister)
	if can := m.can.Has(flow.Listing); !can || !ok {
		if can || ok {
			t.Fatalf("it says that it can list: %t; it can: %t", can, ok)
		}
		return
	}
	var got []*flow.Entry
	l.List(func(e *flow.Entry) bool {
		if slices.Contains(got, e) || !slices.Contains(m.entries, e) {
			t.Fatalf("it lists %+v", e)
		}
		got = append(got, e)
		return len(got) < n
	})
	if len(got) != n || got[0] != q.Head() {
		t.Fatalf("it lists %d entries, from %+v on, want %d", len(got), got[0], n)
	}
}

func conform(t *rapid.T, typ flow.QueueType) {
	q, m := typ.New(), &model{can: typ.Can(), byKey: typ.Can().Has(flow.KeyOrder)}
	remove := func(e *flow.Entry) {
		q.Remove(e)
		m.entries = slices.DeleteFunc(m.entries, func(x *flow.Entry) bool { return x == e })
		m.out = append(m.out, e)
	}
	t.Repeat(map[string]func(*rapid.T){
		"push": func(t *rapid.T) {
			m.arrivals++
			e := &flow.Entry{Order: flow.Order{Key: rapid.Int64Range(-3, 9).Draw(t, "key"), Number: m.arrivals}}
			q.Push(e)
			m.entries = append(m.entries, e)
		},
		"put back": func(t *rapid.T) {
			if len(m.out) == 0 {
				t.Skip()
			}
			i := rapid.IntRange(0, len(m.out)-1).Draw(t, "which")
			q.Push(m.out[i])
			m.entries = append(m.entries, m.out[i])
			m.out = slices.Delete(m.out, i, i+1)
		},
		"remove head": func(t *rapid.T) {
			if q.Len() == 0 {
				t.Skip()
			}
			remove(q.Head())
		},
		"remove tail": func(t *rapid.T) {
			if q.Len() == 0 {
				t.Skip()
			}
			remove(q.Tail())
		},
		"remove any": func(t *rapid.T) {
			if q.Len() == 0 {
				t.Skip()
			}
			remove(rapid.SampledFrom(m.entries).Draw(t, "entry"))
		},
		"": func(t *rapid.T) { m.compare(t, q) },
	})
}

// compare wants a queue to hold what the model does, the first and the last in the order that it says it keeps.
func (m *model) compare(t *rapid.T, q flow.Queue) {
	if q.Len() != len(m.entries) {
		t.Fatalf("%d entries, want %d", q.Len(), len(m.entries))
	}
	if q.Len() == 0 {
		return
	}
	head, tail := m.extreme(false), m.extreme(true)
	if m.can&(flow.ArrivalOrder|flow.KeyOrder) == 0 && slices.Contains(m.entries, q.Head()) &&
		slices.Contains(m.entries, q.Tail()) { // its order is its own
		head, tail = q.Head(), q.Tail()
	}
	if q.Head() != head || q.Tail() != tail {
		t.Fatalf("from %+v to %+v, want from %+v to %+v", q.Head(), q.Tail(), head, tail)
	}
	m.listed(t, q, rapid.IntRange(1, len(m.entries)).Draw(t, "listed"))
}
