package schedule_test

import (
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// eject ejects an endpoint, which may be probed after a while.
func (s *scene) eject(i int, after time.Duration) *outlier.Status {
	h := &outlier.Status{Ejected: true, Cause: messages.ServerError, Until: now.Add(after)}
	endpoints.OutlierWriter{Endpoint: s.snap.Endpoints[i]}.SetOutlier(h)
	return h
}

func TestEjectedEndpointsGetNoRequests(t *testing.T) {
	s := newScene(t, 3)
	s.scorer("s", 1, nil, fixed(.1, .2))
	s.eject(2, time.Second)
	out := s.run()
	s.ranked(out, 1, 0)
	want := messages.ListOf(messages.Outlier{At: 2, Ejected: true, Cause: messages.ServerError})
	if got := out.Decision.Outliers; got.Len() != 1 || got.At(0) != want.At(0) || out.Probe {
		t.Errorf("outliers %+v, probe %v", got, out.Probe)
	}
	if total := out.Decision.Profiles.At(0).Totals.At(2); total >= 0 {
		t.Errorf("it has a total of %v, want none", total)
	}
}

func TestAllEjectedAreServedAll(t *testing.T) {
	s := newScene(t, 2)
	s.scorer("s", 1, nil, fixed(.1, .2))
	s.eject(0, -time.Second)
	s.eject(1, time.Second)
	out := s.run()
	s.ranked(out, 1, 0)
	if out.Probe {
		t.Error("it is a probe, though no endpoint was dropped")
	}
	s.filter("only the ejected", only(0))
	s.ranked(s.run(), 0)
}

func TestOneRequestProbesAnEjectedEndpoint(t *testing.T) {
	s := newScene(t, 3)
	s.scorer("s", 1, nil, fixed(.1, .2))
	s.eject(2, 0)
	s.profiles[0].Picker.Most = func() int { return 3 }
	out := s.run()
	s.ranked(out, 2, 1, 0)
	if !out.Probe || !out.Decision.Probe || out.Decision.Profiles.At(0).Ranked.At(0) != 2 {
		t.Errorf("probe %v, in the record %v, ranked %v", out.Probe, out.Decision.Probe,
			out.Decision.Profiles.At(0).Ranked)
	}
	out = s.run()
	s.ranked(out, 1, 0)
	if out.Probe {
		t.Error("a second request probes at the same time")
	}
}

func TestProbeKeepsToTheNumberOfDestinations(t *testing.T) {
	for most, want := range map[int][]int{1: {2}, 2: {2, 1}} {
		s := newScene(t, 3)
		s.scorer("s", 1, nil, fixed(.1, .2))
		s.eject(2, 0)
		s.profiles[0].Picker = picker("best", func(in *schedule.Input, totals []float32, ranked []int) []int {
			return byTotal(in, totals, ranked)[:most]
		})
		s.profiles[0].Picker.Most = func() int { return most }
		s.ranked(s.run(), want...)
	}
}

func TestFilteredEndpointsAreNotProbed(t *testing.T) {
	s := newScene(t, 3)
	s.scorer("s", 1, nil, fixed(.1, .2))
	h := s.eject(2, 0)
	s.filter("others", only(0, 1))
	s.ranked(s.run(), 1, 0)
	if h.Probing() {
		t.Error("the probe is taken by a request that may not go there")
	}
}

// An endpoint that refuses at once is idle, and has the best total of all.
func TestDegradedEndpointsComeLast(t *testing.T) {
	s := newScene(t, 3)
	s.scorer("s", 1, nil, fixed(.1, .9, .8))
	s.degrade(1, messages.Overload, time.Second)
	s.degrade(2, messages.ServerError, time.Second)
	for most, want := range map[int][]int{1: {0}, 2: {0, 1}, 3: {0, 1, 2}} {
		s.profiles[0].Picker.Most = func() int { return most }
		out := s.run()
		s.ranked(out, want...)
		if out.Probe || out.Decision.Outliers.Len() != 2 {
			t.Errorf("probe %v, outliers %+v", out.Probe, out.Decision.Outliers)
		}
	}
	s.eject(0, time.Second)
	s.ranked(s.run(), 2, 1) // none is healthy
}

// degrade degrades an endpoint, which may be probed after a moment.
func (s *scene) degrade(i int, why messages.FailureKind, moment time.Duration) {
	endpoints.OutlierWriter{Endpoint: s.snap.Endpoints[i]}.SetOutlier(&outlier.Status{Cause: why,
		Until: now.Add(moment)})
}

// After its moment one request probes a degraded endpoint, wherever it ranks, and to all others it still comes last.
func TestOneRequestProbesADegradedEndpoint(t *testing.T) {
	s := newScene(t, 3)
	s.scorer("s", 1, nil, fixed(.5, .4, .3))
	s.profiles[0].Picker.Most = func() int { return 3 }
	s.degrade(1, messages.Overload, 0)
	out := s.run()
	s.ranked(out, 1, 0, 2)
	if !out.Probe || !out.Decision.Probe || out.Decision.Profiles.At(0).Runner != 0 {
		t.Errorf("probe %v, in the record %v, runner-up %d; want 0, which would have been picked",
			out.Probe, out.Decision.Probe, out.Decision.Profiles.At(0).Runner)
	}
	out = s.run()
	s.ranked(out, 0, 2, 1)
	if out.Probe {
		t.Error("a second request probes at the same time")
	}
}

// Only a request whose answer is visible can show what fails within answers. If none comes for a minute, any request
// may be the probe.
func TestProbeThatHasToBeSeen(t *testing.T) {
	for name, c := range map[string]struct {
		why     messages.FailureKind
		ago     time.Duration
		visible bool
		want    bool
	}{
		"visible":                 {messages.OverloadInStream, 0, true, true},
		"not visible":             {messages.ErrorInStream, 0, false, false},
		"not visible for long":    {messages.ErrorInStream, time.Minute, false, true},
		"told by its headers":     {messages.ServerError, 0, false, true},
		"visible, but not so far": {messages.OverloadInStream, -time.Second, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 2)
			s.scorer("s", 1, nil, fixed(.5, .4))
			s.req.Visible = c.visible
			s.degrade(1, c.why, -c.ago)
			if out := s.run(); out.Probe != c.want {
				t.Errorf("probe %v, want %v", out.Probe, c.want)
			}
		})
	}
}

// What a filter dropped is not probed, and the others keep their status.
func TestStatusesFollowTheirEndpoints(t *testing.T) {
	s := newScene(t, 4)
	s.scorer("s", 1, nil, fixed(.5, .9, 1))
	s.filter("others", only(1, 2, 3))
	s.degrade(0, messages.Overload, 0)
	s.degrade(2, messages.Overload, time.Second)
	s.eject(3, time.Second)
	if out := s.run(); out.Probe {
		t.Error("a request probes an endpoint that a filter dropped")
	} else {
		s.ranked(out, 1)
	}
}

// sleeps publishes a page of an endpoint that is so old.
func (s *scene) sleeps(i int, asleep float64, old time.Duration) {
	values := endpointstest.Told{attributes.Asleep: asleep}.Values()
	endpoints.SampleWriter{Endpoint: s.snap.Endpoints[i]}.Publish(&endpoints.Sample{At: now.Add(-old),
		Interval: time.Second, Values: values})
}

// An endpoint that sleeps looks idle, and has the best total of all.
func TestSleepingEndpointsGetNoRequests(t *testing.T) {
	for name, c := range map[string]struct {
		prepare  func(*scene)
		want     []int
		outliers []messages.Outlier
	}{
		"one sleeps": {func(s *scene) { s.sleeps(2, 1, 0) }, []int{1, 0},
			[]messages.Outlier{{At: 2, Ejected: true, Cause: messages.Asleep}}},
		"it wakes": {func(s *scene) {
			s.sleeps(2, 1, 0)
			s.run()
			s.sleeps(2, 0, 0)
		}, []int{2, 1, 0}, nil},
		"its page is stale": {func(s *scene) { s.sleeps(2, 1, 6*time.Second) }, []int{2, 1, 0}, nil},
		"all sleep": {func(s *scene) {
			for i := range 3 {
				s.sleeps(i, 1, 0)
			}
		}, []int{2, 1, 0}, []messages.Outlier{{At: 0, Ejected: true, Cause: messages.Asleep},
			{At: 1, Ejected: true, Cause: messages.Asleep}, {At: 2, Ejected: true, Cause: messages.Asleep}}},
		"the others are ejected": {func(s *scene) {
			s.eject(0, time.Second)
			s.eject(1, time.Second)
			s.sleeps(2, 1, 0)
		}, []int{1, 0}, []messages.Outlier{{At: 0, Ejected: true, Cause: messages.ServerError},
			{At: 1, Ejected: true, Cause: messages.ServerError}, {At: 2, Ejected: true, Cause: messages.Asleep}}},
		"it is due for a probe": {func(s *scene) {
			s.eject(2, 0)
			s.sleeps(2, 1, 0)
		}, []int{1, 0}, []messages.Outlier{{At: 2, Ejected: true, Cause: messages.Asleep}}},
		"the other one is degraded, and a filter drops the third": {func(s *scene) {
			s.degrade(1, messages.Overload, time.Second)
			s.sleeps(2, 1, 0)
			s.filter("not the first", only(1, 2))
		}, []int{1}, []messages.Outlier{{At: 1, Cause: messages.Overload},
			{At: 2, Ejected: true, Cause: messages.Asleep}}},
		"a filter leaves no other": {func(s *scene) {
			s.sleeps(2, 1, 0)
			s.filter("only it", only(2))
		}, []int{2}, []messages.Outlier{{At: 2, Ejected: true, Cause: messages.Asleep}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 3)
			s.scorer("s", 1, nil, fixed(.1, .2, 1))
			c.prepare(s)
			out := s.run()
			s.ranked(out, c.want...)
			if got := out.Decision.Outliers.Append(nil); out.Probe ||
				!slices.Equal(got, c.outliers) {
				t.Errorf("probe %v, outliers %+v, want %+v", out.Probe, got, c.outliers)
			}
		})
	}
}
