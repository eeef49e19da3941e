// Package memory keeps what plugins keep of one request for later ones. Its actor is the only writer of the tables that
// engine/memory has.
//
// It never looks anything up for a decision (plugins read the tables themselves, without a message), and never decides
// what is worth keeping.
package memory

import (
	tables "github.com/signalbox-epp/signalbox/engine/memory"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// Memory is the actor. The tables outlive its incarnations, so that their readers need not be told of a new one. They
// are cleared in place when an incarnation ends, whatever state a panic left them in.
type Memory struct {
	tables  *tables.Tables
	metrics *Metrics
}

// New returns an incarnation, which is the only writer of the tables from now on.
func New(of *tables.Tables, metrics *Metrics) *Memory { return &Memory{of, metrics} }

// Receive enters what cycles tell.
func (a *Memory) Receive(ctx runtime.Context[messages.MemoryMsg], m messages.MemoryMsg) {
	switch m := m.(type) {
	case messages.MemoryStarted:
		a.tables.Reset()
	case messages.PickKept:
		for _, kept := range m.Kept.All() {
			a.tables.Keep(kept, m.Configuration, ctx.Now())
		}
	}
	a.metrics.show(a.tables)
}

// Stopped leaves the tables empty, for a panic may have left them half written.
func (a *Memory) Stopped(runtime.Context[messages.MemoryMsg]) {
	a.tables.Reset()
	a.metrics.show(a.tables)
}
