// Package records holds what is remembered of requests: in the Book of each loop its running cycles and the records of
// requests that have ended, and what answers have taught of tokens. It never holds text of a prompt.
package records

import (
	"time"
	"unsafe"

	"github.com/signalbox-epp/signalbox/messages"
)

// Book holds the running cycles and the newest records of one loop. Only that loop may use it; others ask the loop's
// shard. It packs the record of a request at the request's end, and unpacks those that a query finds.
type Book struct {
	running map[messages.RequestID]messages.Sink[messages.CycleMsg]
	ring    []entry // record i stands at i modulo the length
	next    uint64  // number of the next record
	first   uint64  // number of the oldest record that is kept; next if there is none
	lost    uint64  // records that made way for newer ones
	tape    tape
	begin   uint64 // position on the tape of the oldest record
	shapes  shapes
	packer  packer
	most    int // bytes of shapes
}

// entry is one record that is kept.
type entry struct {
	request messages.RequestID
	arrived time.Time
	end     uint64 // position on the tape after the record, which begins where the one before it ends
	shape   *shape // of its decision
}

// NewBook returns a book that keeps at most entries records, of at most limit bytes together; a small book gets a
// few KiB all the same. Of the bytes one in 32 is for the shapes of decisions.
func NewBook(entries, limit int) *Book {
	entries, limit = max(entries, 1), max(limit, blockBytes)
	most := limit / 32
	return &Book{
		running: map[messages.RequestID]messages.Sink[messages.CycleMsg]{},
		ring:    make([]entry, entries),
		tape:    newTape(limit - most - entries*int(unsafe.Sizeof(entry{}))),
		most:    most,
	}
}

// Begin notes that a cycle runs.
func (b *Book) Begin(id messages.RequestID, cycle messages.Sink[messages.CycleMsg]) {
	b.running[id] = cycle
}

// End replaces the running cycle of a request by its record. The oldest records make way if there is no room. If there
// is room for as many records as the book may have, each gets what scores need; otherwise scores are kept with fewer
// bits, so that the record takes its share of the book. A record larger than the book is lost.
func (b *Book) End(r messages.Record) {
	delete(b.running, r.Request)
	of := b.shapes.take(&r.Decision)
	packed := b.pack(&r)
	if uint64(len(packed)) > b.tape.size {
		b.shapes.giveBack(of)
		b.lost++
		return
	}
	for b.first < b.next && !b.fits(len(packed)) {
		b.dropOldest()
	}
	begin := b.begins(b.next)
	b.tape.write(begin, packed)
	*b.at(b.next) = entry{
		request: r.Request, arrived: r.ArrivedAt, end: begin + uint64(len(packed)), shape: of,
	}
	b.next++
}

// pack packs a record, within its share of the tape if that can be.
func (b *Book) pack(r *messages.Record) []byte {
	p := &b.packer
	p.to = p.to[:0]
	p.header(r)
	p.events(r.Events)
	p.decision(&r.Decision, int(b.tape.size)/len(b.ring))
	return p.to
}

// fits reports whether there is room for another record of so many bytes.
func (b *Book) fits(bytes int) bool {
	return b.next-b.first < uint64(len(b.ring)) && b.shapes.bytes <= b.most &&
		b.begins(b.next)-b.begin+uint64(bytes) <= b.tape.size
}

// begins returns where record i begins on the tape, which is where the one before it ends.
func (b *Book) begins(i uint64) uint64 {
	if i == b.first {
		return b.begin
	}
	return b.at(i - 1).end
}

// Forget removes the running cycle of a request, without a record.
func (b *Book) Forget(id messages.RequestID) { delete(b.running, id) }

func (b *Book) at(i uint64) *entry { return &b.ring[i%uint64(len(b.ring))] }

func (b *Book) dropOldest() {
	old := b.at(b.first)
	b.begin = old.end
	b.shapes.giveBack(old.shape)
	*old = entry{}
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

// Newest returns the newest records that match, newest first, at most n. Only those of the requests that of names are
// looked at, which costs much less than to look at all; nil = all. match must not keep the record that it is shown,
// which lacks its events, and lacks its decision too if it names the server.
func (b *Book) Newest(
	n int, of func(messages.RequestID) bool, match func(*messages.Record) bool,
) []messages.Record {
	var out []messages.Record
	buffer := make([]byte, 0, blockBytes)
	r := &messages.Record{}
	for i := b.next; i > b.first && len(out) < n; i-- {
		e, begin := b.at(i-1), b.begins(i-1)
		if of != nil && !of(e.request) {
			continue
		}
		u := unpacker{from: b.tape.read(begin, int(e.end-begin), buffer), steps: &b.packer.steps}
		*r = messages.Record{Request: e.request, ArrivedAt: e.arrived}
		u.header(r)
		whole := r.Served.Generation == 0 && r.Elsewhere == "" // match may ask for what was picked
		if whole {
			u.rest(r, e.shape)
		}
		if !match(r) {
			continue
		}
		if !whole {
			u.rest(r, e.shape)
		}
		out = append(out, *r)
	}
	return out
}

// rest unpacks what follows the header.
func (u *unpacker) rest(r *messages.Record, s *shape) {
	r.Events = u.events()
	u.decision(&r.Decision, s)
}
