package evictions_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/evictions"
	"github.com/signalbox-epp/signalbox/engine/reclaim"
	"github.com/signalbox-epp/signalbox/messages"
)

func running(priority, second int) *reclaim.Running {
	return &reclaim.Running{Flow: messages.FlowKey{Priority: priority}, Since: time.Unix(int64(second), 0)}
}

func TestSheddable(t *testing.T) {
	p := evictions.Types["sheddable-eviction-filter"]()
	for priority, want := range map[int]bool{-1 << 31: true, -1: true, 0: false, 1: false} {
		if got := p.Evictable(running(priority, 0)); got != want {
			t.Errorf("priority %d: %t, want %t", priority, got, want)
		}
	}
	if got := p.Compare(running(-2, 1), running(-1, 2)); got != 0 {
		t.Errorf("it orders: %d", got)
	}
}

func TestPriorityThenTime(t *testing.T) {
	p := evictions.Types["priority-then-time-eviction-order-policy"]()
	for _, c := range []struct {
		a, b *reclaim.Running
		want int
	}{
		{running(-2, 1), running(-1, 2), -1},
		{running(-1, 2), running(-2, 1), 1},
		{running(-1, 2), running(-1, 1), -1},
		{running(-1, 1), running(-1, 2), 1},
		{running(-1, 1), running(-1, 1), 0},
	} {
		if got := p.Compare(c.a, c.b); got != c.want {
			t.Errorf("%v and %v: %d, want %d", c.a, c.b, got, c.want)
		}
		if !p.Evictable(c.a) {
			t.Errorf("%v is left out", c.a)
		}
	}
}
