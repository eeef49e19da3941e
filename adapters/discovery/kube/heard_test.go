package kube

import (
	"slices"
	"strings"
	"sync"

	"github.com/signalbox-epp/signalbox/messages"
)

// heard is a pool actor that keeps what it is told.
type heard struct {
	mu   sync.Mutex
	sets [][]string // of each set "name address", sorted
	away [][]string // of each set those that are not ready, likewise
	last messages.EndpointsDiscovered

	refusals int // so many sets are refused
}

func (h *heard) Post(m messages.PoolMsg) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refusals > 0 {
		h.refusals--
		return false
	}
	set := m.(messages.EndpointsDiscovered)
	if set.Version <= h.last.Version {
		return true
	}
	h.sets, h.away, h.last = append(h.sets, named(set.Endpoints)), append(h.away, named(set.Unready)), set
	return true
}

func named(set messages.List[messages.EndpointSpec]) []string {
	names := []string{}
	for _, e := range set.All() {
		names = append(names, e.Name+" "+string(e.Address))
	}
	slices.Sort(names)
	return names
}

// all returns all sets so far, each with those that are not ready behind a bar.
func (h *heard) all() (sets []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.sets {
		sets = append(sets, strings.Join(h.sets[i], ",")+"|"+strings.Join(h.away[i], ","))
	}
	return sets
}

func (h *heard) now() (set []string, count int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.sets) == 0 {
		return nil, 0
	}
	return h.sets[len(h.sets)-1], len(h.sets)
}
