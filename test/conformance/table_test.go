package conformance

import (
	"context"
	goruntime "runtime"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"

	"github.com/signalbox-epp/signalbox/adapters/lab/conformance"
	"github.com/signalbox-epp/signalbox/engine/displacements"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/fairness"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/orderings"
	"github.com/signalbox-epp/signalbox/engine/queues"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

var addresses = []string{"127.0.0.1:18001", "127.0.0.1:18002", "127.0.0.1:18003", "[::1]:18004"}

// noRoom is a gate that finds no room anywhere.
type noRoom struct{}

func (noRoom) Saturation(*schedule.Input) float64  { return 1 }
func (noRoom) Room(_ *schedule.Input, keep []bool) { clear(keep) }
func (noRoom) Bounds(float64) endpoints.Room       { return endpoints.Room{} }

// lines returns settings under which requests wait, for so long; 0 = as long as their clients do.
func lines(ttl time.Duration) *flow.Settings {
	band := flow.BandSettings{TTL: ttl, Policies: flow.Policies{
		Ordering: new(orderings.FCFS), Queue: new(queues.ListQueue), Fairness: new(fairness.GlobalStrict),
		Displacement: new(displacements.LongestFlow),
	}}
	return &flow.Settings{Default: band, Negative: band, BuiltIn: band.Policies}
}

// options are what the table needs to play every row against rigs.
func options(t *testing.T, r *rig) conformance.Options {
	t.Helper()
	queue, full := startRig(t, addresses, lines(0)), startRig(t, addresses, lines(time.Millisecond))
	empty := startRig(t, nil, nil)
	hasty := startPatient(t, addresses, nil, 300*time.Millisecond)
	// Health and shutdown are the command's own.
	lasting := serve(t).instance(t)
	return conformance.Options{
		Client: r.client(t), Endpoints: addresses, Model: "m",
		Health: lasting.Health,
		Narrow: extprocv3.NewExternalProcessorClient(r.dial(t, grpc.WithStaticStreamWindowSize(64<<10),
			grpc.WithStaticConnWindowSize(64<<20))),
		Patience: 20 * time.Second, BodyWait: 20 * time.Second, BodyLimit: bodyLimit, Destinations: 3, RoutesAll: true,
		Inside: conformance.Inside{
			Load: r.load, Open: r.streams.Open, Held: r.streams.Held, Heap: heapInUse, Ended: r.ending,
			Empty: empty.client(t), Saturated: full.client(t), Impatient: hasty.client(t),
			Queue: &conformance.Queue{Client: queue.client(t), Waiting: queue.picker.Waiting},
			Fresh: func() (*conformance.Instance, error) { return serve(t).instance(t), nil },
		},
	}
}

func heapInUse() int64 {
	goruntime.GC()
	goruntime.GC() // pools let go of what they keep only at the second
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestEveryRow plays the whole table. Nothing may be left out, and nothing may be left behind.
func TestEveryRow(t *testing.T) {
	r := startRig(t, addresses, nil)
	results, err := conformance.Run(context.Background(), options(t, r))
	if err != nil {
		t.Fatal(err)
	}
	played := map[int]bool{}
	for _, result := range results {
		if result.Outcome != conformance.Passed {
			t.Error(result.Line())
		} else if result.Figures != "" {
			t.Log(result.Line())
		}
		played[result.Check.Number] = true
	}
	for n := 1; n <= 68; n++ {
		if !played[n] {
			t.Errorf("row %d was not played", n)
		}
	}
	names, scores := conformance.Scores(results)
	for _, name := range names {
		t.Logf("%-46s %d / %d", name, scores[name].Passed, scores[name].Applicable)
	}
	compareReadme(t, scores)
	r.until(t, "every stream is closed", func() bool { return r.streams.Open() == 0 })
	r.until(t, "no body is held", func() bool { return r.streams.Held() == 0 })
	for _, a := range addresses {
		r.until(t, "no load is left at "+a, func() bool { return r.load(a) == 0 })
	}
	r.countedOnce(t)
}

// countedOnce looks at all requests that had a name of their own, once they have ended.
func (r *rig) countedOnce(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, all := range r.ended {
		if id != "" && len(all) != 1 {
			t.Errorf("%s was counted %d times", id, len(all))
		}
	}
}
