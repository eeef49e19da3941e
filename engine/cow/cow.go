// Package cow has a map that any goroutine reads without a lock while others add to it: a change replaces the map as a
// whole (copy on write). It suits maps that are read all the time and soon stop growing.
package cow

import "sync/atomic"

// Map is such a map. The zero Map is empty.
type Map[K comparable, V any] struct {
	now atomic.Pointer[map[K]V] // nil = empty; what it points to is never changed
}

// All returns the map as it is now, for reading only; nil = it is empty.
func (m *Map[K, V]) All() map[K]V {
	if now := m.now.Load(); now != nil {
		return *now
	}
	return nil
}

// Get returns the value of a key, and reports whether there is one.
func (m *Map[K, V]) Get(key K) (value V, ok bool) {
	value, ok = m.All()[key]
	return value, ok
}

// Change replaces the map by the one that change returns; nil = nothing changes. change gets the map as it is, must
// return another one, and is called again if another goroutine was faster.
func (m *Map[K, V]) Change(change func(now map[K]V) map[K]V) {
	for {
		old := m.now.Load()
		var now map[K]V
		if old != nil {
			now = *old
		}
		next := change(now)
		if next == nil {
			return
		}
		replacement := next // its address in place of next's keeps a change that changes nothing free of allocations
		if m.now.CompareAndSwap(old, &replacement) {
			return
		}
	}
}
