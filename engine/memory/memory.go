// Package memory is what plugins keep of one request for later ones: the endpoints and the turns of sessions, the order
// in which endpoints were used, and of endpoints the adapters, the media and the times to first tokens. It never grows
// beyond its tables, and what it has lost is as if it had never been: no plugin may depend on it. It holds hashes, no
// session's id.
package memory

import (
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// Sizes of the tables, for all plugins together.
const (
	mostSessions = 1 << 17
	mostUses     = 1 << 14
	mostTurns    = 1 << 16
)

// Tables holds the tables of all plugins. The actor memory alone writes them; any goroutine may read.
type Tables struct {
	tables   [2]Table[messages.EndpointID]
	turns    Table[Turns]
	adapters recents
	media    shelves[items]
	firsts   shelves[firsts]

	sorted []first // the writer's: room for the times of one endpoint
}

// NewTables returns empty tables. They take their memory with their first entries.
func NewTables() *Tables {
	m := new(Tables)
	m.tables[messages.SessionTable].size = mostSessions / ways
	m.tables[messages.UseTable].size = mostUses / ways
	m.turns.size = mostTurns / ways
	m.media.most, m.firsts.most = mostItems, mostFirsts
	return m
}

// Keep enters what a plugin keeps of a request that runs under a configuration. Of several the newest decides how much
// is kept of an endpoint: requests of one before run on beside it for a while.
func (m *Tables) Keep(k messages.Kept, configuration uint64, now time.Time) {
	var until time.Time
	if k.For > 0 {
		until = now.Add(k.For)
	}
	switch k.Table {
	case messages.SessionTable, messages.UseTable:
		m.tables[k.Table].put(k.Key, k.Endpoint, until, now)
	case messages.AdapterTable:
		m.adapters.put(k.Key, k.Endpoint)
	case messages.TurnTable:
		m.keepTurn(&k, until, now)
	case messages.MediaTable:
		m.keepMedia(&k, configuration)
	case messages.FirstTokenTable:
		m.keepFirst(&k, configuration, now)
	}
}

// Reset removes everything, whatever state a panic of the writer left.
func (m *Tables) Reset() {
	for i := range m.tables {
		m.tables[i].reset()
	}
	m.turns.reset()
	m.adapters.reset()
	m.media.reset()
	m.firsts.reset()
}

// Stats returns the figures of a table.
func (m *Tables) Stats(of messages.MemoryTable) Stats {
	switch of {
	case messages.AdapterTable:
		return m.adapters.stats
	case messages.TurnTable:
		return m.turns.stats
	case messages.MediaTable:
		return m.media.stats
	case messages.FirstTokenTable:
		return m.firsts.stats
	case messages.SessionTable, messages.UseTable:
	}
	return m.tables[of].stats
}

// View is what plugins see of the tables at one time. The zero View is empty.
type View struct {
	tables *Tables
	now    time.Time
}

// At returns what the tables hold at a time; nil Tables hold nothing.
func (m *Tables) At(now time.Time) View { return View{m, now} }

// find returns an entry that has not expired; nil = there is none.
func (v View) find(in messages.MemoryTable, key uint64) *entry[messages.EndpointID] {
	if v.tables == nil {
		return nil
	}
	e := v.tables.tables[in].find(key)
	if e == nil || e.expired(v.now) {
		return nil
	}
	return e
}
