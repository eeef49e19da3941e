// Package records holds what is remembered of requests: in the Book of each loop its running cycles and the records of
// requests that have ended, and what answers have taught of tokens. It never holds text of a prompt.
package records

import (
	"unsafe"

	"github.com/signalbox-epp/signalbox/messages"
)

// Book holds the running cycles and the newest records of one loop. Only that loop may use it; others ask the loop's
// shard.
type Book struct {
	running map[messages.RequestID]messages.Sink[messages.CycleMsg]
	ring    []messages.Record // record i stands at i modulo the length
	next    uint64            // number of the next record
	first   uint64            // number of the oldest record that is kept; next if there is none
	bytes   int               // of the records that are kept
	limit   int               // of bytes
	lost    uint64            // records that made way for newer ones
}

// NewBook returns a book that keeps at most entries records, of at most limit bytes together.
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

// End replaces the running cycle of a request by its record. The oldest records make way if there is no room.
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

// Forget removes the running cycle of a request, without a record.
func (b *Book) Forget(id messages.RequestID) { delete(b.running, id) }

func (b *Book) at(i uint64) *messages.Record { return &b.ring[i%uint64(len(b.ring))] }

func (b *Book) dropOldest() {
	old := b.at(b.first)
	b.bytes -= size(old)
	*old = messages.Record{}
	b.first++
	b.lost++
}

// Lost returns how many records made way for newer ones.
func (b *Book) Lost() uint64 { return b.lost }

// Live returns how many cycles run.
func (b *Book) Live() int { return len(b.running) }

// Running returns the running cycle of a request; nil = none runs.
func (b *Book) Running(id messages.RequestID) messages.Sink[messages.CycleMsg] { return b.running[id] }

// RunningIDs returns the requests whose cycles run, in no particular order.
func (b *Book) RunningIDs() []messages.RequestID {
	ids := make([]messages.RequestID, 0, len(b.running))
	for id := range b.running {
		ids = append(ids, id)
	}
	return ids
}

// Newest returns the newest records that match, newest first, at most n.
func (b *Book) Newest(n int, match func(*messages.Record) bool) []messages.Record {
	var out []messages.Record
	for i := b.next; i > b.first && len(out) < n; i-- {
		if r := b.at(i - 1); match(r) {
			out = append(out, *r)
		}
	}
	return out
}

// size returns the memory that a record takes with its strings and lists, in bytes.
func size(r *messages.Record) int {
	n := int(unsafe.Sizeof(*r)) + len(r.ClientID) + len(r.ResponseID) + len(r.Model) + len(r.Flow.Fairness) +
		len(r.Local) + len(r.Elsewhere)
	n += r.Events.Len() * int(unsafe.Sizeof(messages.RecordEvent{}))
	n += r.Decision.Endpoints.Len() * int(unsafe.Sizeof(messages.EndpointID{}))
	n += r.Decision.Outliers.Len() * int(unsafe.Sizeof(messages.Outlier{}))
	n += r.Decision.Stages.Len() * int(unsafe.Sizeof(messages.Stage{}))
	for _, h := range r.Decision.Headers.All() {
		n += int(unsafe.Sizeof(h)) + len(h.Name) + len(h.Value)
	}
	for _, p := range r.Decision.Profiles.All() {
		per := p.Filters.Len() + 4*p.Scorers.Len() + 4
		n += int(unsafe.Sizeof(p)) + per*r.Decision.Endpoints.Len() + 4*p.Ranked.Len() + 4*p.Values.Len() +
			len(p.Failed)
		n += p.Filters.Len()*int(unsafe.Sizeof(messages.FilterRun{})) +
			p.Scorers.Len()*int(unsafe.Sizeof(messages.ScorerRun{}))
	}
	return n
}
