package memory

import (
	"maps"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/signalbox-epp/signalbox/messages"
)

// Limits of what is kept of adapters, for all plugins together.
const (
	mostAdapters  = 64      // of one endpoint
	mostEndpoints = 1 << 12 // that have any
)

// Adapters has the adapters that requests of each endpoint had, the last one first. All plugins share it, since it is a
// fact of the endpoint. A server that makes room for the adapter in hand by dropping the least recently used one still
// has those at the begin of its list.
type Adapters struct{}

// Key returns what stands for the name of an adapter.
func (Adapters) Key(name string) uint64 { return max(xxhash.Sum64String(name), 1) }

// Of returns the list of an endpoint, for reading only.
func (Adapters) Of(v View, endpoint messages.EndpointID) Recent {
	if v.tables == nil {
		return Recent{}
	}
	return v.tables.adapters.of(endpoint)
}

// Keep makes an adapter the last one of an endpoint.
func (a Adapters) Keep(n *Notes, at messages.EndpointID, name string) {
	n.list = append(n.list, messages.Kept{Table: messages.AdapterTable, Key: a.Key(name), Endpoint: at})
}

// Recent lists the adapters of an endpoint, the last one first. It never changes. The zero Recent is empty.
type Recent struct{ list []adapterUse }

type adapterUse struct {
	key uint64
	at  uint64 // ordered over all endpoints; from 1
}

// Len returns how many adapters are listed.
func (r Recent) Len() int { return len(r.list) }

// Rank returns how many others were used since an adapter was; -1 = it is not listed.
func (r Recent) Rank(key uint64) int {
	for i := range r.list {
		if r.list[i].key == key {
			return i
		}
	}
	return -1
}

// Last returns a number that is the larger the later the adapter of a rank was used, whatever its endpoint.
func (r Recent) Last(rank int) uint64 { return r.list[rank].at }

// recents are the lists of all endpoints. One goroutine writes them, and any number read them, because the writer
// replaces a list, and the map to add an endpoint to it.
type recents struct {
	all atomic.Pointer[map[messages.EndpointID]*atomic.Pointer[Recent]] // nil = empty
	// The writer alone uses what follows.
	uses  uint64
	stats Stats
}

func (r *recents) of(endpoint messages.EndpointID) Recent {
	all := r.all.Load()
	if all == nil {
		return Recent{}
	}
	list := (*all)[endpoint]
	if list == nil {
		return Recent{}
	}
	return *list.Load()
}

// put makes an adapter the last one of an endpoint.
func (r *recents) put(key uint64, endpoint messages.EndpointID) {
	list := r.list(endpoint)
	if list == nil {
		return
	}
	before := list.Load().list
	r.uses++
	next := make([]adapterUse, 1, min(len(before)+1, mostAdapters))
	next[0] = adapterUse{key, r.uses}
	for _, u := range before {
		if u.key == key {
			continue
		}
		if len(next) == mostAdapters {
			r.stats.Evicted++
			continue
		}
		next = append(next, u)
	}
	r.stats.Entries += len(next) - len(before)
	list.Store(&Recent{next})
}

// list returns the list of an endpoint; nil = a newer incarnation has one. It adds one if there is none: an older
// incarnation makes way for it, or that endpoint whose last use was the first, if there are too many.
func (r *recents) list(endpoint messages.EndpointID) *atomic.Pointer[Recent] {
	var now map[messages.EndpointID]*atomic.Pointer[Recent]
	if all := r.all.Load(); all != nil {
		now = *all
	}
	if list := now[endpoint]; list != nil {
		return list
	}
	next := make(map[messages.EndpointID]*atomic.Pointer[Recent], len(now)+1)
	maps.Copy(next, now)
	for id := range now {
		switch {
		case id.Slot != endpoint.Slot:
		case id.Generation > endpoint.Generation:
			return nil
		default:
			r.drop(next, id)
		}
	}
	for len(next) >= mostEndpoints {
		oldest, least := endpoint, r.uses+1
		for id, list := range next {
			if at := list.Load().Last(0); at < least {
				oldest, least = id, at
			}
		}
		r.drop(next, oldest)
	}
	list := new(atomic.Pointer[Recent])
	list.Store(new(Recent))
	next[endpoint] = list
	r.all.Store(&next)
	return list
}

func (r *recents) drop(from map[messages.EndpointID]*atomic.Pointer[Recent], endpoint messages.EndpointID) {
	n := from[endpoint].Load().Len()
	r.stats.Entries -= n
	r.stats.Evicted += uint64(n)
	delete(from, endpoint)
}

func (r *recents) reset() {
	r.all.Store(nil)
	r.stats.Entries = 0
}
