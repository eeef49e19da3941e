package prefix_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/actors/prefix"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// clearing is the prefix actor on a loop, whose index holds a long prompt for slot 0 and a short one for slot 1.
type clearing struct {
	sys   *runtime.System
	index *blockindex.Index
	actor runtime.Ref[messages.PrefixMsg]
}

func newClearing(t testing.TB, cfg runtime.Config, blocks int) *clearing {
	metrics, err := prefix.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	c := &clearing{sys: runtime.New(cfg), index: blockindex.NewIndex(0)}
	t.Cleanup(func() {
		if err := c.sys.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	c.actor, _ = runtime.Start(c.sys.Root(0), runtime.Role[messages.PrefixMsg]{
		Name: "prefix", Policy: runtime.RestartOnPanic,
		New: func() runtime.Actor[messages.PrefixMsg] {
			return prefix.New(c.index, endpoints.NewPublished(), metrics)
		},
	}, messages.PrefixMsg(messages.PrefixStarted{}))
	c.place(1, a1, blocks)
	c.place(2, b1, 4)
	return c
}

func (c *clearing) place(id messages.RequestID, e messages.EndpointID, blocks int) {
	list := make([]uint64, blocks)
	for i := range list {
		list[i] = uint64(i+1) * 0x9e3779b97f4a7c15
	}
	c.actor.Tell(messages.PromptPlaced{Request: id, Endpoint: e, Model: "m", Blocks: messages.TakeList(list)})
}

// cleared counts what the pool is told.
type cleared struct{ got []messages.EndpointID }

func (p *cleared) Tell(m messages.PoolMsg) bool {
	p.got = append(p.got, m.(messages.SlotCleared).Endpoint)
	return true
}

func TestFullSlotIsClearedInPartsWithOthersInBetween(t *testing.T) {
	c := newClearing(t, runtime.Config{Mode: runtime.Stepped}, 5000)
	runtimetest.Inspect(c.sys).StepUntil(0)
	pool := new(cleared)
	left := messages.EndpointLeft{Endpoint: a1, Pool: pool}
	c.actor.Tell(left)
	c.actor.Tell(left)       // a pool that was restarted asks again
	c.place(3, a1, 4)        // picked before the endpoint left
	c.place(4, b1, 6)        // longer than before
	parts, before := 0, 5000 // messages that cleared something
	for before > 0 {
		if len(pool.got) != 0 {
			t.Fatalf("reported clear with %d blocks left", before)
		}
		if !c.sys.Step() {
			t.Fatalf("nothing happens any more, and %d blocks are left", before)
		}
		held := c.index.Held(0)
		if held > before || before-held > 512 {
			t.Fatalf("one message took the slot from %d blocks to %d, want at most 512 less", before, held)
		}
		if held < before {
			parts++
		}
		if parts == 2 && c.index.Held(1) != 6 {
			t.Error("what was told before the second part was not handled before it")
		}
		before = held
	}
	runtimetest.Inspect(c.sys).StepUntil(0)
	if want := (5000 + 511) / 512; parts != want {
		t.Errorf("cleared in %d parts, want %d", parts, want)
	}
	if len(pool.got) != 2 || pool.got[0] != a1 || pool.got[1] != a1 {
		t.Errorf("the pool was told %v, want twice of %v", pool.got, a1)
	}
}

func TestNewcomerInASlotThatIsBeingClearedFindsItClear(t *testing.T) {
	for name, generation := range map[string]uint32{"next generation": a1.Generation + 1,
		"later generation": a1.Generation + 7} {
		t.Run(name, func(t *testing.T) {
			c := newClearing(t, runtime.Config{Mode: runtime.Stepped}, 5000)
			runtimetest.Inspect(c.sys).StepUntil(0)
			pool := new(cleared)
			c.actor.Tell(messages.EndpointLeft{Endpoint: a1, Pool: pool})
			c.place(3, messages.EndpointID{Slot: a1.Slot, Generation: generation}, 4)
			runtimetest.Inspect(c.sys).StepUntil(0)
			if held := c.index.Held(a1.Slot); held != 4 || len(pool.got) != 1 {
				t.Errorf("the slot holds %d blocks, the pool was told %v; want 4 and once", held, pool.got)
			}
		})
	}
}

// A restart of the prefix actor frees all slots. A new endpoint may then come to a slot and leave it while the blocks
// of an older one are being cleared.
func TestEndpointThatLeavesWhileItsSlotIsBeingClearedIsGone(t *testing.T) {
	next := messages.EndpointID{Slot: a1.Slot, Generation: a1.Generation + 1}
	pool := new(cleared)
	for name, left := range map[string]messages.PrefixMsg{
		"told":   messages.EndpointLeft{Endpoint: next, Pool: pool},
		"listed": messages.DeparturesListed{Endpoints: messages.ListOf(next)},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClearing(t, runtime.Config{Mode: runtime.Stepped}, 5000)
			runtimetest.Inspect(c.sys).StepUntil(0)
			c.actor.Tell(messages.EndpointLeft{Endpoint: a1, Pool: pool})
			c.actor.Tell(left)
			runtimetest.Inspect(c.sys).StepUntil(time.Second)
			c.place(3, next, 4)
			runtimetest.Inspect(c.sys).StepUntil(time.Second)
			if held := c.index.Held(a1.Slot); held != 0 {
				t.Errorf("the slot holds %d blocks of an endpoint that left, want 0", held)
			}
		})
	}
}

// clearedSignal is closed when the pool is told that the slot is clear.
type clearedSignal chan struct{}

func (p clearedSignal) Tell(messages.PoolMsg) bool {
	close(p)
	return true
}

func TestRestartInTheMiddleOfClearingIsClean(t *testing.T) {
	c := newClearing(t, runtime.Config{Mode: runtime.Stepped}, 5000)
	runtimetest.Inspect(c.sys).StepUntil(0)
	pool := new(cleared)
	c.actor.Tell(messages.EndpointLeft{Endpoint: a1, Pool: pool})
	c.actor.Tell(messages.EndpointLeft{Endpoint: b1}) // no pool: the actor panics
	runtimetest.Inspect(c.sys).StepUntil(time.Second)
	c.place(3, a1, 4)
	runtimetest.Inspect(c.sys).StepUntil(0)
	if held := c.index.Held(0); c.sys.Stats(0).Panics != 1 || held != 4 || len(pool.got) != 0 {
		t.Errorf("%d panics, %d blocks, the pool was told %v; want 1, 4 and nothing", c.sys.Stats(0).Panics, held,
			pool.got)
	}
}

// BenchmarkEndpointLeft clears a full slot; longest-ns is the message that held the loop the longest, the median of all
// runs.
func BenchmarkEndpointLeft(b *testing.B) {
	var longest []int64
	for b.Loop() {
		b.StopTimer()
		c := newClearing(b, runtime.Config{}, blockindex.DefaultCapacity)
		pool := make(clearedSignal)
		b.StartTimer()
		c.actor.Port().Post(messages.EndpointLeft{Endpoint: a1, Pool: pool})
		<-pool // a loop may leave the rest of its messages to another goroutine
		events, err := runtimetest.Inspect(c.sys).Events(context.Background(), 0)
		if err != nil || c.index.Held(0) != 0 {
			b.Fatalf("%d blocks are left, %v", c.index.Held(0), err)
		}
		most := int64(0)
		for _, e := range events[3:] { // after those that entered the blocks
			most = max(most, e.Took)
		}
		longest = append(longest, most)
	}
	slices.Sort(longest)
	b.ReportMetric(float64(longest[len(longest)/2]), "longest-ns")
}
