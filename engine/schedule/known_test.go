package schedule_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// What a scheduler keeps of endpoints has no effect on what plugins see: while pools, samples, loads, subsets and the
// threshold change, they see the same as with a new scheduler.
func TestAUsedSchedulerShowsWhatANewOneDoes(t *testing.T) {
	s := newScene(t, 5)
	var seen schedule.Seen
	reads := s.reads(attributes.BuiltIn()...)
	s.filter("not the last", func(in *schedule.Input, keep []bool) {
		if last := len(keep) - 1; last > 0 {
			keep[last] = false
		}
	})
	s.scorer("look", 1, reads, func(in *schedule.Input, _ []float32) { seen = in.Seen() })
	random := rand.New(rand.NewPCG(3, 4))
	at, born := now, 5
	for round := range 3000 {
		es := slices.Clone(s.snap.Endpoints)
		some := es[random.IntN(len(es))]
		switch random.IntN(8) {
		case 0:
			endpoints.SampleWriter{Endpoint: some}.Publish(&endpoints.Sample{
				At: at, Interval: time.Second,
				Values: endpointstest.Told{
					attributes.WaitingRequests: random.IntN(9) - 1, attributes.KVCacheUsage: random.Float64(),
					attributes.ActiveLoRAs: []string{"a"},
				}.Values(),
			})
		case 1:
			endpoints.LoadWriter{Endpoint: some}.Add(endpoints.Work{Prompt: random.IntN(100)}, time.Time{})
		case 2:
			random.Shuffle(len(es), func(i, j int) { es[i], es[j] = es[j], es[i] })
		case 3:
			if len(es) > 1 {
				es = es[1:]
			}
		case 4:
			if len(es) < 20 {
				id := messages.EndpointID{Slot: uint32(born), Generation: 1}
				es, born = append(es, endpoints.New(id, messages.EndpointSpec{Address: address(born % 50)})), born+1
			}
		case 5:
			s.plan, s.stale = nil, time.Duration(1+random.IntN(5))*time.Second
		case 6:
			s.req.Subset = messages.Subset{Given: random.IntN(2) == 0, Addresses: messages.ListOf(some.Spec.Address)}
		case 7:
			at = at.Add(time.Second)
		}
		s.snap = endpoints.NewSnapshot(uint64(round), es)
		s.scheduler.Run(s.planned(), &s.req, nil, s.snap, at)
		got := seen
		schedule.NewScheduler(s.tools).Run(s.planned(), &s.req, nil, s.snap, at)
		if diff := cmp.Diff(seen, got, cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("round %d, with a new scheduler -, with a used one +:\n%s", round, diff)
		}
	}
}

// The endpoints of a subset are those of its request alone, though the pool stays the same.
func TestASubsetIsOfItsRequest(t *testing.T) {
	s := newScene(t, 3)
	s.scorer("queue", 1, nil, fixed(0.3, 0.2, 0.1))
	s.ranked(s.run(), 0, 1, 2)
	s.req.Subset = messages.Subset{Given: true, Addresses: messages.ListOf(address(2))}
	s.ranked(s.run(), 2)
	s.req.Subset = messages.Subset{Given: true, Addresses: messages.ListOf(address(1))}
	s.ranked(s.run(), 1)
	s.req.Subset = messages.Subset{}
	s.ranked(s.run(), 0, 1, 2)
}

// The scheduler lives as long as its loop. However a request ended, the scheduler must not keep it from being
// collected.
func TestASchedulerHoldsNothingOfARequest(t *testing.T) {
	tests := map[string]filterFunc{
		"picked for":      func(*schedule.Input, []bool) {},
		"left nothing":    func(_ *schedule.Input, keep []bool) { clear(keep) },
		"a plugin panics": func(*schedule.Input, []bool) { panic("a plugin") },
	}
	for name, f := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 2)
			s.filter("f", f)
			of := func() (of weak.Pointer[messages.Request]) {
				defer func() { _ = recover() }()
				subset := messages.Subset{Given: true, Addresses: messages.ListOf(address(1))}
				req := &messages.Request{ID: 7, Model: "m", Subset: subset}
				of = weak.Make(req)
				s.scheduler.Run(s.planned(), req, nil, s.snap, now)
				return of
			}()
			runtime.GC()
			if req := of.Value(); req != nil {
				t.Errorf("request %d is still referred to after its cycle", req.ID)
			}
			runtime.KeepAlive(s)
		})
	}
}
