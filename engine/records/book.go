// Package records holds what one loop remembers of requests: the cycles that run on it, and a ring of what became of
// those that ended. Everything in it belongs to its loop; others ask the loop's shard. It never holds text of a prompt.
package records

import (
	"unsafe"

	"github.com/signalbox-epp/signalbox/messages"
)

// Book is the memory of one loop.
type Book struct {
	running map[messages.RequestID]messages.Sink[messages.CycleMsg]
	ring    []messages.Record
	next    uint64
	first   uint64 // of the oldest that is kept; next if none is
	bytes   int
	limit   int
	lost    uint64
}

// NewBook remembers at most entries records of at most limit bytes together.
func NewBook(entries, limit int) *Book {
	return &Book{
		running: map[messages.RequestID]messages.Sink[messages.CycleMsg]{},
		ring:    make([]messages.Record, max(entries, 1)),
		limit:   limit,
	}
}

// Begin notes that a cycle runs.
func (b *Book) Begin(id messages.RequestID, cycle messages.Sink[messages.CycleMsg]) {
	b.running[id] = cycle
}

// End puts the record of a request in the place of its cycle.
func (b *Book) End(r messages.Record) {
	delete(b.running, r.Request)
	bytes := size(&r)
	for b.first < b.next && (b.next-b.first == uint64(len(b.ring)) || b.bytes+bytes > b.limit) {
		b.dropOldest()
	}
	*b.at(b.next) = r
	b.bytes += bytes
	b.next++
}

// Forget ends a request without a record.
func (b *Book) Forget(id messages.RequestID) { delete(b.running, id) }

func (b *Book) at(i uint64) *messages.Record { return &b.ring[i%uint64(len(b.ring))] }

func (b *Book) dropOldest() {
	old := b.at(b.first)
	b.bytes -= size(old)
	*old = messages.Record{}
	b.first++
	b.lost++
}

// Lost is how many records made way for newer ones.
func (b *Book) Lost() uint64 { return b.lost }

// Live is how many cycles run.
func (b *Book) Live() int { return len(b.running) }

// Running is the cycle of a request, nil if none runs.
func (b *Book) Running(id messages.RequestID) messages.Sink[messages.CycleMsg] { return b.running[id] }

// RunningIDs are the requests whose cycles run, in no order.
func (b *Book) RunningIDs() []messages.RequestID {
	ids := make([]messages.RequestID, 0, len(b.running))
	for id := range b.running {
		ids = append(ids, id)
	}
	return ids
}

// Newest gives the newest records that match, newest first, at most n.
func (b *Book) Newest(n int, match func(*messages.Record) bool) []messages.Record {
	var out []messages.Record
	for i := b.next; i > b.first && len(out) < n; i-- {
		if r := b.at(i - 1); match(r) {
			out = append(out, *r)
		}
	}
	return out
}

// size is what a record takes, in bytes, by its lists.
func size(r *messages.Record) int {
	n := int(unsafe.Sizeof(*r)) + len(r.ClientID) + len(r.ResponseID) + len(r.Model) + len(r.Flow.Fairness) +
		len(r.Local) + len(r.Elsewhere)
	n += r.Events.Len() * int(unsafe.Sizeof(messages.RecordEvent{}))
	n += r.Decision.Endpoints.Len() * int(unsafe.Sizeof(messages.EndpointID{}))
	n += r.Decision.Outliers.Len() * int(unsafe.Sizeof(messages.Outlier{}))
	for _, p := range r.Decision.Profiles.All() {
		per := p.Filters.Len() + 4*p.Scorers.Len() + 4
		n += int(unsafe.Sizeof(p)) + per*r.Decision.Endpoints.Len() + 4*p.Ranked.Len()
		n += p.Filters.Len()*int(unsafe.Sizeof(messages.FilterRun{})) +
			p.Scorers.Len()*int(unsafe.Sizeof(messages.ScorerRun{}))
	}
	return n
}
