package memory

import (
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// ways is how many entries a bucket has. A key can stand in one bucket only, so that neither a look-up nor an eviction
// searches further, whatever keys clients choose.
const ways = 8

// Table maps keys to entries, and is never larger than it was made. One goroutine writes it, and any number read it.
// Readers are safe because an entry never changes: the writer replaces it.
type Table struct {
	buckets atomic.Pointer[[]bucket] // nil = nothing was entered; its length is size, a power of two

	// The writer alone uses what follows.

	size  int
	uses  uint64 // entries so far, which orders them
	swept int    // the bucket that was swept last
	stats Stats
}

// Stats describes a table. A reset clears Entries, but not its counters.
type Stats struct {
	Entries int    // those that expired and were not swept included
	Evicted uint64 // that made way before they expired
}

// bucket has the entries of some keys. keys[i] is the key of entries[i] or, while the writer replaces that entry, of
// the entry before.
type bucket struct {
	keys    [ways]atomic.Uint64 // 0 = free
	entries [ways]atomic.Pointer[entry]
}

type entry struct {
	key      uint64
	endpoint messages.EndpointID
	use      uint64    // as Table.uses was, counted from 1
	until    time.Time // zero = it does not expire
}

func (e *entry) expired(now time.Time) bool { return !e.until.IsZero() && now.After(e.until) }

// find returns the entry of a key; nil = there is none. It takes no lock and does not allocate.
func (t *Table) find(key uint64) *entry {
	all := t.buckets.Load()
	if all == nil {
		return nil
	}
	b := &(*all)[key&uint64(len(*all)-1)]
	for i := range b.keys {
		if b.keys[i].Load() != key {
			continue
		}
		if e := b.entries[i].Load(); e != nil && e.key == key {
			return e
		}
	}
	return nil
}

// put enters an endpoint under a key. If the bucket is full, the least recently used entry of it goes.
func (t *Table) put(key uint64, endpoint messages.EndpointID, until, now time.Time) {
	all := t.buckets.Load()
	if all == nil {
		made := make([]bucket, t.size)
		all = &made
		t.buckets.Store(all)
	}
	t.sweep(*all, now)
	b := &(*all)[key&uint64(t.size-1)]
	b.sweep(now, &t.stats)
	at := b.place(key)
	switch old := b.entries[at].Load(); {
	case old == nil:
		t.stats.Entries++
	case old.key != key:
		t.stats.Evicted++
	}
	t.uses++
	b.entries[at].Store(&entry{key, endpoint, t.uses, until})
	b.keys[at].Store(key) // last: a reader that sees the key sees its entry
}

// sweep removes what has expired in the next bucket, so that sessions that ended give their memory back.
func (t *Table) sweep(all []bucket, now time.Time) {
	t.swept = (t.swept + 1) & (t.size - 1)
	all[t.swept].sweep(now, &t.stats)
}

// sweep removes what has expired.
func (b *bucket) sweep(now time.Time, stats *Stats) {
	for i := range b.entries {
		if e := b.entries[i].Load(); e != nil && e.expired(now) {
			b.keys[i].Store(0)
			b.entries[i].Store(nil)
			stats.Entries--
		}
	}
}

// place returns where a key stands or is to stand: at its old entry, a free one, or the least recently used one.
func (b *bucket) place(key uint64) int {
	at, least := 0, ^uint64(0)
	for i := range b.entries {
		e, use := b.entries[i].Load(), uint64(0)
		if e != nil {
			if use = e.use; e.key == key {
				return i
			}
		}
		if use < least {
			at, least = i, use
		}
	}
	return at
}

// reset removes everything.
func (t *Table) reset() {
	t.buckets.Store(nil)
	t.stats.Entries, t.swept = 0, 0
}
