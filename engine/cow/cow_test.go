package cow_test

import (
	"maps"
	"sync"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/cow"
)

func TestMap(t *testing.T) {
	var m cow.Map[string, int]
	if _, ok := m.Get("a"); ok || m.All() != nil {
		t.Error("the zero map is not empty")
	}
	m.Change(func(map[string]int) map[string]int { return map[string]int{"a": 1} })
	before := m.All()
	m.Change(func(now map[string]int) map[string]int {
		next := maps.Clone(now)
		next["b"] = 2
		return next
	})
	if v, ok := m.Get("b"); v != 2 || !ok || len(before) != 1 {
		t.Errorf("got %d, %v; the map before has %v, want 2, true and a alone", v, ok, before)
	}
	if n := testing.AllocsPerRun(100, func() {
		m.Get("a")
		m.Change(func(map[string]int) map[string]int { return nil })
	}); n != 0 {
		t.Errorf("%v allocations where nothing changes, want none", n)
	}
}

// Nothing that one of several goroutines adds is lost.
func TestMapKeepsWhatAllAdd(t *testing.T) {
	var m cow.Map[int, int]
	var wg sync.WaitGroup
	const each, writers = 200, 4
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				m.Change(func(now map[int]int) map[int]int {
					next := make(map[int]int, len(now)+1)
					maps.Copy(next, now)
					next[w*each+n] = n
					return next
				})
			}
		})
	}
	wg.Wait()
	if len(m.All()) != each*writers {
		t.Errorf("%d keys, want %d", len(m.All()), each*writers)
	}
}
