package memory

import (
	"maps"
	"sync/atomic"

	"github.com/signalbox-epp/signalbox/messages"
)

// shelves have what plugins keep of single endpoints, each plugin by itself. One goroutine writes them, and any number
// read them: the writer replaces the map to add a shelf, and a T says itself what of it may be read meanwhile.
type shelves[T any] struct {
	all atomic.Pointer[map[place]*shelf[T]] // nil = empty

	// The writer alone uses what follows.

	most  int // size of all shelves together
	size  int // 0 <= size <= most, unless a single shelf is larger
	uses  uint64
	stats Stats
}

// place is an endpoint, as one plugin knows it.
type place struct {
	owner    uint64
	endpoint messages.EndpointID
}

type shelf[T any] struct {
	has *T

	// The writer alone uses what follows.

	size    int    // of has
	of      uint64 // the newest configuration that has used it
	entries int    // in has
	last    uint64 // as shelves.uses was
}

// of returns what a plugin has of an endpoint; nil = nothing. It takes no lock and does not allocate.
func (s *shelves[T]) of(owner uint64, endpoint messages.EndpointID) *T {
	all := s.all.Load()
	if all == nil {
		return nil
	}
	if at := (*all)[place{owner, endpoint}]; at != nil {
		return at.has
	}
	return nil
}

// take returns the shelf of a place, and adds it if there is none: older incarnations of the endpoint make way for it,
// and so do the least recently used ones if all are too large together. One of another size makes way for that of a
// newer configuration. fresh makes what it has. nil = a newer incarnation has a shelf.
func (s *shelves[T]) take(at place, size int, configuration uint64, fresh func() *T) *shelf[T] {
	var now map[place]*shelf[T]
	if all := s.all.Load(); all != nil {
		now = *all
	}
	s.uses++
	if old := now[at]; old != nil && (old.size == size || configuration < old.of) {
		old.last, old.of = s.uses, max(old.of, configuration)
		return old
	}
	next := make(map[place]*shelf[T], len(now)+1)
	maps.Copy(next, now)
	for p := range now {
		switch older := p.endpoint.Generation <= at.endpoint.Generation; {
		case p.owner != at.owner || p.endpoint.Slot != at.endpoint.Slot:
		case !older:
			return nil
		default:
			s.drop(next, p)
		}
	}
	for len(next) > 0 && s.size+size > s.most {
		oldest, least := place{}, s.uses
		for p, of := range next {
			if of.last < least {
				oldest, least = p, of.last
			}
		}
		s.drop(next, oldest)
	}
	added := &shelf[T]{has: fresh(), size: size, of: configuration, last: s.uses}
	next[at] = added
	s.size += size
	s.all.Store(&next)
	return added
}

func (s *shelves[T]) drop(from map[place]*shelf[T], at place) {
	of := from[at]
	s.size -= of.size
	s.stats.Entries -= of.entries
	s.stats.Evicted += uint64(of.entries)
	delete(from, at)
}

func (s *shelves[T]) reset() {
	s.all.Store(nil)
	s.stats.Entries, s.size = 0, 0
}
