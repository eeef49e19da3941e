package schedule_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// pair runs profile 0, then profile 1, and has the pick of the first one serve.
type pair struct {
	optional bool // the second run
	finish   func(*schedule.Course, *schedule.Final)
}

func (p pair) Next(c *schedule.Course) schedule.Run {
	if n := c.Results().Len(); n < 2 {
		return schedule.Run{Profile: n, Optional: n == 1 && p.optional}
	}
	return schedule.Run{Profile: -1}
}
func (p pair) Primary(*schedule.Course) int { return 0 }
func (p pair) Finish(c *schedule.Course, f *schedule.Final) {
	if p.finish != nil {
		p.finish(c, f)
	}
}

// newPair returns a scene of two profiles, decode and prefill, under a handler.
func newPair(t *testing.T, n int, h pair) *scene {
	s := newScene(t, n)
	s.profiles[0].Name = "decode"
	s.profiles = append(s.profiles, schedule.Profile{Name: "prefill", Picker: picker("best", byTotal)})
	s.handler = h
	return s
}

func (s *scene) prefillFilter(f filterFunc) {
	s.profiles[1].Filters = []schedule.FilterStep{{Step: schedule.Step{Name: "role"}, Filter: f}}
}

func TestOptionalRunThatPicksNothingLeavesAReasonAndACount(t *testing.T) {
	s := newPair(t, 2, pair{optional: true})
	s.prefillFilter(only())
	out := s.run()
	s.ranked(out, 0, 1)
	run := out.Decision.Profiles.At(1)
	if run.Failed != "rejected-no-endpoints: filter role left no endpoint" || !run.Optional || run.Ranked.Len() != 0 {
		t.Errorf("failed %q, optional %t, %d ranked", run.Failed, run.Optional, run.Ranked.Len())
	}
	if want := []string{"prefill: rejected-no-endpoints"}; !reflect.DeepEqual(s.counts.failed, want) {
		t.Errorf("counted %q, want %q", s.counts.failed, want)
	}
}

func TestRequiredRunThatPicksNothingRefusesTheRequest(t *testing.T) {
	s := newPair(t, 2, pair{})
	s.prefillFilter(only())
	out := s.run()
	s.failed(out, messages.NoEndpoints, "filter role left no endpoint")
	if out.Decision.Profiles.Len() != 2 || out.Decision.Profiles.At(1).Failed == "" || len(s.counts.failed) != 0 {
		t.Errorf("%d runs in the record, %q; counted %q", out.Decision.Profiles.Len(),
			out.Decision.Profiles.At(1).Failed, s.counts.failed)
	}
}

func TestPrimaryRunThatPickedNothingRefusesTheRequest(t *testing.T) {
	s := newScene(t, 2)
	s.handler = alone{}
	s.filter("role", only())
	s.failed(s.run(), messages.NoEndpoints, "filter role left no endpoint")
}

// alone runs profile 0, which may pick nothing.
type alone struct{}

func (alone) Next(c *schedule.Course) schedule.Run {
	return schedule.Run{Profile: -c.Results().Len(), Optional: true}
}
func (alone) Primary(*schedule.Course) int { return 0 }

// A handler sees the endpoints, what was read of them, and the totals of each run, so that it can choose for all runs
// together: the second-best decode server wins, because it is in the zone of the prefill server.
func TestHandlerChoosesForAllRunsTogether(t *testing.T) {
	const zone = "topology.kubernetes.io/zone"
	together := func(c *schedule.Course, f *schedule.Final) {
		first := int(c.Results().At(1).Ranked.At(0))
		near, _ := c.Endpoint(first).Label(zone)
		best := -1
		for at := range c.Len() {
			of, _ := c.Endpoint(at).Label(zone)
			total := c.Results().At(0).Totals.At(at)
			if of == near && at != first && (best < 0 || total > c.Results().At(0).Totals.At(best)) {
				best = at
			}
		}
		f.Destinations = []schedule.Destination{{At: best}}
		f.Stages = []schedule.Stage{{Run: 1, At: first, Prompt: true}}
	}
	s := newPair(t, 4, pair{finish: together})
	for i, z := range []string{"a", "b", "b", "a"} {
		e := endpoints.New(messages.EndpointID{Slot: uint32(i), Generation: 1}, messages.EndpointSpec{
			Address: address(i), Labels: messages.MapOf(map[string]string{zone: z}),
		})
		s.snap.Endpoints[i] = e
	}
	s.scorer("load", 1, nil, fixed(.9, .8, .2, .1))
	s.prefillFilter(only(2))
	out := s.run()
	s.ranked(out, 1)
	run := out.Decision.Profiles.At(0)
	if run.Ranked.At(0) != 1 || run.Runner != 0 {
		t.Errorf("pick %d, runner-up %d, want 1 and 0", run.Ranked.At(0), run.Runner)
	}
	if len(out.Stages) != 1 || out.Stages[0].Endpoint != s.snap.Endpoints[2] || !out.Stages[0].Prompt ||
		out.Decision.Stages.At(0) != (messages.Stage{Run: 1, At: 2}) {
		t.Errorf("stages %+v, in the record %+v", out.Stages, out.Decision.Stages)
	}
}

func TestHandlerSetsHeadersAndWhereTheRequestIsSent(t *testing.T) {
	s := newPair(t, 2, pair{finish: func(c *schedule.Course, f *schedule.Final) {
		f.Destinations[0].Sent = "10.9.9.9:8000"
		f.Headers = append(f.Headers, messages.Header{Name: "x-rank", Value: string(c.Endpoint(0).Address())})
	}})
	out := s.run()
	s.ranked(out, 0, 1)
	if want := []messages.Address{"10.9.9.9:8000", address(1)}; !reflect.DeepEqual(out.Sent, want) {
		t.Errorf("sent to %v, want %v", out.Sent, want)
	}
	if h := out.Decision.Headers; h.Len() != 1 ||
		h.At(0) != (messages.Header{Name: "x-rank", Value: string(address(0))}) {
		t.Errorf("headers %+v", h)
	}
	s.handler, s.plan = pair{}, nil
	if out = s.run(); out.Decision.Headers.Len() != 0 || out.Sent[0] != address(0) || len(out.Stages) != 0 {
		t.Errorf("the next request has %+v, sent to %v", out.Decision.Headers, out.Sent)
	}
}

func TestLastWordsThatAreFaultsAreOurs(t *testing.T) {
	for name, c := range map[string]struct {
		finish func(*schedule.Course, *schedule.Final)
		want   string
	}{
		"D95 nothing": {func(_ *schedule.Course, f *schedule.Final) { f.Destinations = nil }, "left no destination"},
		"unknown": {func(_ *schedule.Course, f *schedule.Final) { f.Destinations[0].At = 2 },
			"named endpoint 2 of 2"},
		"twice": {func(_ *schedule.Course, f *schedule.Final) { f.Destinations[0].At = 1 },
			"named destination 1 twice"},
		"stage": {func(_ *schedule.Course, f *schedule.Final) { f.Stages = []schedule.Stage{{Run: 2}} },
			"named endpoint 0 of 2 for run 2 of 2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPair(t, 2, pair{finish: c.finish})
			s.failed(s.run(), messages.Internal, "the profile handler "+c.want)
		})
	}
}

// A probe belongs to the run whose pick serves: with decode chosen before prefill a decode server that was suspended is
// tried. The last word cannot send the probe elsewhere.
func TestFirstRunProbesAndItsHandlerKnows(t *testing.T) {
	probes := 0
	s := newPair(t, 3, pair{finish: func(c *schedule.Course, f *schedule.Final) {
		if f.Probe {
			probes++
		}
		f.Destinations = []schedule.Destination{{At: 0}}
	}})
	s.prefillFilter(only(2))
	s.eject(1, 0)
	out := s.run()
	s.ranked(out, 1, 0)
	if !out.Probe || !out.Decision.Probe || probes != 1 {
		t.Errorf("probe %t, the handler was told %d times", out.Probe, probes)
	}
	if out = s.run(); out.Probe || probes != 1 {
		t.Error("a second request probes, while the first one does")
	}
	s.ranked(out, 0)
}

// Another loop may take the probe while the handler has its last word, which then counts no more.
func TestLastWordIsAskedAgainIfTheProbeIsTaken(t *testing.T) {
	s, asked := newPair(t, 3, pair{}), []bool{}
	status := s.eject(1, 0)
	s.handler = pair{finish: func(_ *schedule.Course, f *schedule.Final) {
		asked = append(asked, f.Probe)
		status.Probe()
	}}
	out := s.run()
	s.ranked(out, 0, 2)
	if out.Probe || !reflect.DeepEqual(asked, []bool{true, false}) {
		t.Errorf("probe %t, asked with %v, want true, then false", out.Probe, asked)
	}
}

// An endpoint that is down is better than none for what a request needs, and worse than none for what it does not.
func TestOptionalRunDoesWithoutEndpointsThatAreDown(t *testing.T) {
	const down = "rejected-no-endpoints: every endpoint is ejected or asleep, or its newest scrape failed"
	fail := func(s *scene, places ...int) {
		for _, i := range places {
			endpoints.SampleWriter{Endpoint: s.snap.Endpoints[i]}.ScrapeFailed()
		}
	}
	for name, c := range map[string]struct {
		breaks func(*scene)
		want   string // failure of the optional run; "" = it picked endpoint 1
	}{
		"all well":               {func(*scene) {}, ""},
		"one fails":              {func(s *scene) { fail(s, 2) }, ""},
		"one is ejected":         {func(s *scene) { s.eject(2, time.Minute) }, ""},
		"all fail":               {func(s *scene) { fail(s, 1, 2) }, down},
		"all are ejected":        {func(s *scene) { s.eject(1, time.Minute); s.eject(2, time.Minute) }, down},
		"one fails, one ejected": {func(s *scene) { fail(s, 1); s.eject(2, time.Minute) }, down},
		"all sleep":              {func(s *scene) { s.sleeps(1, 1, 0); s.sleeps(2, 1, 0) }, down},
		"one sleeps":             {func(s *scene) { s.sleeps(2, 1, 0) }, ""},
		"ejected and failing":    {func(s *scene) { fail(s, 2); s.eject(2, time.Minute) }, ""},
		"due for a probe, but failing": {func(s *scene) {
			fail(s, 1, 2)
			s.eject(1, 0)
			s.eject(2, 0)
		}, down},
		"one is due for a probe": {func(s *scene) { s.eject(1, 0); s.eject(2, time.Minute) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPair(t, 3, pair{optional: true})
			s.prefillFilter(only(1, 2))
			c.breaks(s)
			run := s.run().Decision.Profiles.At(1)
			if run.Failed != c.want || c.want == "" && run.Ranked.At(0) != 1 {
				t.Errorf("failed %q, want %q; ranked %v", run.Failed, c.want, run.Ranked)
			}
		})
	}
}

// staged has what the second run picked work for the request before its destination.
func staged(c *schedule.Course, f *schedule.Final) {
	if r := c.Results().At(1); r.Ranked.Len() > 0 {
		f.Stages = append(f.Stages, schedule.Stage{Run: 1, At: int(r.Ranked.At(0))})
	}
}

// No request goes to a prefill server but by a stage, so a stage is what probes it: once at a time, behind a page that
// can be read, and also where it is the only one.
func TestOneRequestProbesTheServerOfAStage(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(*scene)
		stages []messages.Stage // of the requests, one after the other; At -1 = it had none
	}{
		"others are well": {func(s *scene) { s.eject(2, 0) },
			[]messages.Stage{{Run: 1, At: 2, Probe: true}, {Run: 1, At: 1}}},
		"degraded": {func(s *scene) { s.degrade(2, messages.ConnectFailed, 0) },
			[]messages.Stage{{Run: 1, At: 2, Probe: true}, {Run: 1, At: 1}}},
		"the only one": {func(s *scene) { s.eject(1, time.Minute); s.eject(2, 0) },
			[]messages.Stage{{Run: 1, At: 2, Probe: true}, {At: -1}}},
		"both are due": {func(s *scene) { s.eject(1, 0); s.eject(2, 0) },
			[]messages.Stage{{Run: 1, At: 1, Probe: true}, {Run: 1, At: 2, Probe: true}, {At: -1}}},
		"not yet": {func(s *scene) { s.eject(2, time.Second) }, []messages.Stage{{Run: 1, At: 1}, {Run: 1, At: 1}}},
		"its page cannot be read": {func(s *scene) {
			s.eject(2, 0)
			endpoints.SampleWriter{Endpoint: s.snap.Endpoints[2]}.ScrapeFailed()
		}, []messages.Stage{{Run: 1, At: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPair(t, 3, pair{optional: true, finish: staged})
			s.filter("decode", only(0))
			s.prefillFilter(only(1, 2))
			c.breaks(s)
			for i, want := range c.stages {
				out := s.run()
				s.ranked(out, 0)
				got := messages.Stage{At: -1}
				if d := &out.Decision; d.Stages.Len() > 0 {
					got = d.Stages.At(0)
					if out.Stages[0].Probe != got.Probe || int(d.Profiles.At(1).Ranked.At(0)) != got.At {
						t.Errorf("request %d: probe %t, ranked %v", i, out.Stages[0].Probe, d.Profiles.At(1).Ranked)
					}
				}
				if got != want || out.Probe {
					t.Errorf("request %d: stage %+v, want %+v; probe %t", i, got, want, out.Probe)
				}
			}
		})
	}
}

// A decode server that can be replaced by a fallback is probed too, for no other request would go there.
func TestOptionalPrimaryRunIsProbed(t *testing.T) {
	s := newScene(t, 2)
	s.handler = alone{}
	s.filter("role", only(1))
	s.eject(1, 0)
	if out := s.run(); !out.Probe {
		t.Errorf("probe %t, failed %q", out.Probe, out.Decision.Profiles.At(0).Failed)
	}
	s.failed(s.run(), messages.NoEndpoints,
		"every endpoint is ejected or asleep, or its newest scrape failed")
}
