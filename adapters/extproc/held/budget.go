// Package held counts the memory that the request bodies of all streams take, and keeps it within a limit. It never
// holds a byte of a body, and never decides who makes way for whom.
package held

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/signalbox-epp/signalbox/messages"
)

// Budget bounds the memory that bodies take: 0 <= held <= limit. A stream that finds no room may file a claim, and is
// granted it once enough was given back: claims of higher priority first, then in the order of filing. Its methods may
// be called by any goroutine.
//
// A claim adds to owed before it looks at held, and Take adds to held before it looks at owed: so one of them sees the
// other, and room that is made for a claim is not taken by a stream that files none.
type Budget struct {
	limit int64
	held  atomic.Int64
	owed  atomic.Int64 // sum of the claims

	mu     sync.Mutex // guards claims; nothing else is locked under it
	claims []*Claim
}

// NewBudget returns a budget of which nothing is held.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Limit returns how many bytes may be held.
func (b *Budget) Limit() int64 { return b.limit }

// Held returns how many bytes are.
func (b *Budget) Held() int64 { return b.held.Load() }

// Claim is a stream's wish for bytes of the budget, and the address to which it is told who makes way for it.
type Claim struct {
	bytes    int64
	spare    int64 // as for Take
	priority int
	granted  chan struct{}               // closed once held includes the bytes
	yielded  chan messages.MemoryYielded // has room for one
}

// Granted returns what is closed once the claim is granted.
func (c *Claim) Granted() <-chan struct{} { return c.granted }

// Yielded returns what the answer to a MemoryRequested comes by, if the claim was named in one.
func (c *Claim) Yielded() <-chan messages.MemoryYielded { return c.yielded }

// Tell takes the answer to a MemoryRequested. It never waits.
func (c *Claim) Tell(m messages.StreamMsg) bool {
	y, ok := m.(messages.MemoryYielded)
	if ok {
		c.yielded <- y // there is one answer
	}
	return ok
}

// Take adds bytes to what is held. It returns false, and adds nothing, if they do not fit beside the claims, or would
// leave less than spare.
func (b *Budget) Take(bytes, spare int64) bool {
	for {
		held := b.held.Load()
		if held+b.owed.Load()+bytes > b.limit-spare {
			return false
		}
		if b.held.CompareAndSwap(held, held+bytes) {
			break
		}
	}
	if owed := b.owed.Load(); owed > 0 && b.held.Load()+owed > b.limit {
		b.Give(bytes) // a claim was filed meanwhile
		return false
	}
	return true
}

// Give takes bytes off what is held, and grants claims.
func (b *Budget) Give(bytes int64) {
	b.held.Add(-bytes)
	if b.owed.Load() > 0 {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.grant()
	}
}

// File files a claim. It returns how many bytes others have to give back for it; 0 = none, it is granted or will be at
// once. It returns nil if the claim would not fit though they gave back as much as it asks for: what is to be spared is
// in use.
func (b *Budget) File(bytes, spare int64, priority int) (c *Claim, short int64) {
	c = &Claim{bytes, spare, priority, make(chan struct{}), make(chan messages.MemoryYielded, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held.Load() > b.limit-spare {
		return nil, 0
	}
	at, _ := slices.BinarySearchFunc(b.claims, priority, func(c *Claim, priority int) int {
		if c.priority >= priority {
			return -1
		}
		return 1
	})
	b.claims = slices.Insert(b.claims, at, c)
	owed := b.owed.Add(bytes)
	if b.grant(); !slices.Contains(b.claims, c) {
		return c, 0
	}
	return c, min(bytes, max(b.held.Load()+owed-(b.limit-spare), 0))
}

// Withdraw takes a claim back, and what it was granted.
func (b *Budget) Withdraw(c *Claim) {
	b.mu.Lock()
	at := slices.Index(b.claims, c)
	if at >= 0 {
		b.claims = slices.Delete(b.claims, at, at+1)
		b.owed.Add(-c.bytes)
		b.grant() // the next one may be smaller
	}
	b.mu.Unlock()
	if at < 0 {
		b.Give(c.bytes)
	}
}

// grant grants the claims that fit, in their order. The caller holds mu.
func (b *Budget) grant() {
	for len(b.claims) > 0 {
		c := b.claims[0]
		held := b.held.Load()
		if held+c.bytes > b.limit-c.spare {
			return
		}
		if !b.held.CompareAndSwap(held, held+c.bytes) {
			continue
		}
		b.owed.Add(-c.bytes)
		b.claims = slices.Delete(b.claims, 0, 1)
		close(c.granted)
	}
}
