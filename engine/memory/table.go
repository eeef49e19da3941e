package memory

import (
	"sync/atomic"
	"time"
)

// ways is how many entries a bucket has. A key can stand in one bucket only, so that neither a look-up nor an eviction
// searches further, whatever keys clients choose.
const ways = 8

// Table maps keys to values, and is never larger than it was made. One goroutine writes it, and any number read it.
// Readers are safe because an entry never changes: the writer replaces it.
type Table[V any] struct {
	buckets atomic.Pointer[[]bucket[V]] // nil = nothing was entered; its length is size, a power of two

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
type bucket[V any] struct {
	keys    [ways]atomic.Uint64 // 0 = free
	entries [ways]atomic.Pointer[entry[V]]
}

type entry[V any] struct {
	key   uint64
	value V
	use   uint64    // as Table.uses was, counted from 1
	until time.Time // zero = it does not expire
}

func (e *entry[V]) expired(now time.Time) bool { return !e.until.IsZero() && now.After(e.until) }

// find returns the entry of a key; nil = there is none. It takes no lock and does not allocate.
func (t *Table[V]) find(key uint64) *entry[V] {
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

// live returns the value of a key whose entry has not expired; false = there is none.
func (t *Table[V]) live(key uint64, now time.Time) (value V, ok bool) {
	if e := t.find(key); e != nil && !e.expired(now) {
		return e.value, true
	}
	return value, false
}

// put enters a value under a key. If the bucket is full, the least recently used entry of it goes.
func (t *Table[V]) put(key uint64, value V, until, now time.Time) {
	all := t.buckets.Load()
	if all == nil {
		made := make([]bucket[V], t.size)
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
	b.entries[at].Store(&entry[V]{key, value, t.uses, until})
	b.keys[at].Store(key) // last: a reader that sees the key sees its entry
}

// sweep removes what has expired in the next bucket, so that sessions that ended give their memory back.
func (t *Table[V]) sweep(all []bucket[V], now time.Time) {
	t.swept = (t.swept + 1) & (t.size - 1)
	all[t.swept].sweep(now, &t.stats)
}

// sweep removes what has expired.
func (b *bucket[V]) sweep(now time.Time, stats *Stats) {
	for i := range b.entries {
		if e := b.entries[i].Load(); e != nil && e.expired(now) {
			b.keys[i].Store(0)
			b.entries[i].Store(nil)
			stats.Entries--
		}
	}
}

// place returns where a key stands or is to stand: at its old entry, a free one, or the least recently used one.
func (b *bucket[V]) place(key uint64) int {
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
func (t *Table[V]) reset() {
	t.buckets.Store(nil)
	t.stats.Entries, t.swept = 0, 0
}
