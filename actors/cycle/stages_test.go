package cycle_test

import (
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

const sidecar = messages.Address("10.0.0.1:9000")

// split has the second endpoint read the prompt and the first one generate, or only sends the request to a sidecar.
type split struct {
	once
	sent messages.Address
}

func (h split) Finish(c *schedule.Course, f *schedule.Final) {
	f.Destinations = f.Destinations[:1]
	f.Destinations[0].Sent = h.sent
	if h.sent == "" {
		f.Stages, f.Split = append(f.Stages, schedule.Stage{At: 1, Prompt: true}), "prefill-decode"
		f.Headers = append(f.Headers, messages.Header{Name: messages.PrefillHeader,
			Value: string(c.Endpoint(1).Address())})
	}
}

// playing returns a scene whose cycle has its pick by this handler.
func (h split) playing(t *testing.T) *scene {
	t.Helper()
	s := h.coming(t)
	s.arrive()
	return s
}

// coming returns a scene whose request is about to come, and is picked for by this handler.
func (h split) coming(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	s.plan = schedule.NewPlan([]schedule.Profile{{
		Name: "default", Picker: schedule.PickerStep{Step: schedule.Step{Name: "all"}, Picker: inOrder{}},
	}}, nil, h, 0)
	s.play()
	s.ready(24 * time.Hour)
	return s
}

// A stage is load from the pick until the first token, or until the response's headers where the token is not seen. It
// is given back once, however the request ends.
func TestStageIsLoadUntilTheFirstToken(t *testing.T) {
	started, bypasses := messages.ResponseStarted{Status: 200}, messages.ResponseStarted{Status: 200, Bypasses: true}
	token, ended := messages.FirstTokenSeen{}, messages.ResponseEnded{}
	gone := messages.StreamGone{Logged: true, Log: messages.LogAwaited}
	for name, c := range map[string]struct {
		told  []messages.CycleMsg
		first int // load of the destination afterwards
		stage int // load of the stage
	}{
		"picked":                   {nil, 1, 1},
		"headers":                  {[]messages.CycleMsg{started}, 1, 1},
		"first token":              {[]messages.CycleMsg{started, token}, 1, 0},
		"whole":                    {[]messages.CycleMsg{started, token, ended}, 0, 0},
		"whole without a token":    {[]messages.CycleMsg{started, ended}, 0, 0},
		"bypasses":                 {[]messages.CycleMsg{bypasses}, 1, 0},
		"client gone":              {[]messages.CycleMsg{messages.StreamGone{}}, 0, 0},
		"lingers":                  {[]messages.CycleMsg{gone}, 0, 0},
		"lingers, then runs again": {[]messages.CycleMsg{gone, messages.ResponseOngoing{}}, 1, 0},
		"revoked": {
			[]messages.CycleMsg{
				messages.Revoked{Reason: messages.NoCapacity}, messages.StreamGone{Answered: messages.NoCapacity},
			}, 0, 0,
		},
		"moved": {[]messages.CycleMsg{messages.ResponseStarted{Status: 200, Served: addresses[second]}},
			0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := split{}.playing(t)
			for _, m := range c.told {
				s.cycle.Tell(m)
			}
			if name == "first token" {
				s.answering(c.first, c.stage)
			} else {
				s.load(c.first, c.stage)
			}
			s.cycle.Crash()
			s.load(0, 0)
		})
	}
}

func TestStagesAreToldToTheStreamAndToThePrefixIndex(t *testing.T) {
	s := split{}.playing(t)
	header := messages.ListOf(messages.Header{Name: messages.PrefillHeader, Value: string(addresses[second])})
	s.stream.Got(messages.PickMade{Destinations: messages.ListOf(addresses[first]), Headers: header})
	s.prefix.Got(messages.PromptPlaced{Request: 7, Endpoint: first, Stages: messages.ListOf(second), Model: "m",
		Salt: "s", Blocks: hello.Blocks})
	s.cycle.Tell(messages.ResponseStarted{Status: 200})
	s.cycle.Tell(messages.FirstTokenSeen{})
	s.cycle.Tell(messages.ResponseEnded{})
	r := s.over(messages.NoReason)
	if d := r.Decision; d.Stages.Len() != 1 || d.Stages.At(0) != (messages.Stage{At: 1}) ||
		d.Headers.At(0) != header.At(0) {
		t.Errorf("record has stages %+v and headers %+v", d.Stages, d.Headers)
	}
}

// A request is counted as split once it is sent: not if its pick came too late.
func TestSplitRequestIsCountedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		handler split
		late    time.Duration // of the pick
		want    float64
	}{"split": {want: 1}, "not split": {handler: split{sent: sidecar}}, "too late": {late: 2 * pickLimit}} {
		t.Run(name, func(t *testing.T) {
			s := c.handler.coming(t)
			s.clock.step = int64(c.late)
			s.arrive()
			s.cycle.Tell(messages.ResponseStarted{Status: 200})
			s.cycle.Crash()
			if got := s.metric("llm_d_epp_disagg_decision_total"); got != c.want {
				t.Errorf("%v requests counted, want %v", got, c.want)
			}
		})
	}
}

// A request that is sent to another address than its endpoint's is served by the endpoint if that address answers: no
// failure of it, and no move.
func TestServedIsComparedWithTheAddressThatWasSent(t *testing.T) {
	for name, c := range map[string]struct {
		served messages.Address
		want   messages.EndpointID
		doubts int
	}{
		"where it was sent":       {sidecar, first, 0},
		"Envoy does not say":      {"", first, 0},
		"another endpoint":        {addresses[second], second, 1},
		"the endpoint's own port": {addresses[first], first, 1},
		"a stranger":              {"10.9.9.9:9000", messages.EndpointID{}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := split{sent: sidecar}.playing(t)
			s.stream.Got(messages.PickMade{Destinations: messages.ListOf(sidecar)})
			s.outlier.Told()
			s.cycle.Tell(messages.ResponseStarted{Status: 200, Served: c.served})
			if got := len(s.outlier.Told()); got != c.doubts {
				t.Errorf("%d reports to the outlier actor, want %d", got, c.doubts)
			}
			s.cycle.Tell(messages.ResponseEnded{})
			if r := s.over(messages.NoReason); r.Served != c.want {
				t.Errorf("served by %v, want %v", r.Served, c.want)
			}
		})
	}
}

// Shadow profiles run once the stream has its answer, and see the prompt as the pick saw it.
func TestShadowsRunAfterTheAnswer(t *testing.T) {
	s, saw := newScene(t), 0
	s.plan = schedule.NewPlan([]schedule.Profile{
		{Name: "live", Picker: schedule.PickerStep{Picker: inOrder{}}},
		{Name: "tried", Shadow: true, Picker: schedule.PickerStep{Picker: pickFor(func(in *schedule.Input) []int {
			saw = in.Request().PromptBlocks()
			if len(s.stream.Told()) != 1 {
				t.Error("the stream had no answer yet")
			}
			return []int{1}
		})}},
	}, nil, once{}, 0)
	s.play()
	s.ready(24 * time.Hour)
	s.arrive()
	if saw != hello.Blocks.Len() {
		t.Errorf("the shadow saw %d blocks, want %d", saw, hello.Blocks.Len())
	}
	s.load(1, 0)
	s.cycle.Crash()
	if r := s.over(messages.Internal); r.Decision.Profiles.Len() != 2 || !r.Decision.Profiles.At(1).Shadow {
		t.Errorf("%d runs in the record, want the shadow second", r.Decision.Profiles.Len())
	}
}

// A stage that is tried has its result from the answer, in either lane: the proxy says nothing of a server that it does
// not ask.
func TestStageThatIsTriedHasItsResultFromTheAnswer(t *testing.T) {
	recovered := messages.SuccessReported{Endpoint: second, Incident: incident}
	gaveUp := messages.ProbeAbandoned{Endpoint: second, Incident: incident}
	fails := func(kind messages.FailureKind) func(*scene) messages.OutlierMsg {
		return func(s *scene) messages.OutlierMsg {
			return messages.FailureReported{
				Endpoint: second, Kind: kind, Pick: messages.Pick{At: s.began, Incident: incident},
			}
		}
	}
	is := func(m messages.OutlierMsg) func(*scene) messages.OutlierMsg {
		return func(*scene) messages.OutlierMsg { return m }
	}
	started, bypasses := messages.ResponseStarted{Status: 200}, messages.ResponseStarted{Status: 200, Bypasses: true}
	for name, c := range map[string]struct {
		told []messages.CycleMsg
		want func(*scene) messages.OutlierMsg
	}{
		"first token":        {[]messages.CycleMsg{started, messages.FirstTokenSeen{}}, is(recovered)},
		"a refusal of a 4xx": {[]messages.CycleMsg{messages.ResponseStarted{Status: 400}}, is(recovered)},
		"bytes in the access log": {[]messages.CycleMsg{
			bypasses, messages.StreamGone{Logged: true, Log: messages.LogSeen},
			messages.ResponseOngoing{ResponseBytes: 1},
		}, is(recovered)},
		"its end in the access log": {[]messages.CycleMsg{
			bypasses, messages.StreamGone{Logged: true, Log: messages.LogSeen},
			messages.ResponseEnded{Logged: messages.Logged{Status: 200, Served: addresses[first]}},
		}, is(recovered)},
		"a sidecar could not reach it": {[]messages.CycleMsg{messages.ResponseStarted{Status: 502}},
			fails(messages.ServerError)},
		"an error within the answer": {[]messages.CycleMsg{started, messages.ErrorSeen{Status: 500}},
			fails(messages.ErrorInStream)},
		"the client leaves": {[]messages.CycleMsg{started, messages.StreamGone{}}, is(gaveUp)},
	} {
		t.Run(name, func(t *testing.T) {
			s := tryingStage(t, true)
			for _, m := range c.told {
				s.cycle.Tell(m)
			}
			s.cycle.Crash()
			s.toldOfStage(c.want(s))
		})
	}
}

// tryingStage returns a scene whose second endpoint is ejected and works before the first, and whose request is the
// probe of it.
func tryingStage(t *testing.T, streamed bool) *scene {
	t.Helper()
	s := newScene(t)
	s.asked.Stream = streamed
	s.eject(second)
	s.plan = schedule.NewPlan([]schedule.Profile{
		{Name: "decode", Filters: []schedule.FilterStep{{Filter: at(0)}},
			Picker: schedule.PickerStep{Picker: inOrder{}}},
		{Name: "prefill", Filters: []schedule.FilterStep{{Filter: at(1)}},
			Picker: schedule.PickerStep{Picker: inOrder{}}},
	}, nil, inStages{}, 0)
	s.play()
	s.ready(24 * time.Hour)
	s.arrive()
	return s
}

// toldOfStage wants these to be all that the outlier actor was told of the second endpoint since it was asked last.
func (s *scene) toldOfStage(want ...messages.OutlierMsg) {
	s.Helper()
	var got []messages.OutlierMsg
	for _, m := range s.outlier.Told() {
		if of(m) == second {
			got = append(got, m)
		}
	}
	if !slices.Equal(got, want) {
		s.Errorf("told %+v of the stage, want %+v", got, want)
	}
}

// An answer that is not streamed is silent until it is whole, so its request lets others try the stage meanwhile. If it
// ends well, the stage serves again all the same.
func TestUnstreamedAnswerLetsOthersTryTheStage(t *testing.T) {
	s := tryingStage(t, false)
	s.cycle.Advance(tokenLimit)
	s.toldOfStage(messages.ProbeAbandoned{Endpoint: second, Incident: incident})
	s.cycle.Tell(messages.ResponseStarted{Status: 200})
	s.cycle.Tell(messages.ResponseEnded{})
	s.toldOfStage(messages.SuccessReported{Endpoint: second, Incident: incident})
}

// of returns the endpoint that a report is about.
func of(m messages.OutlierMsg) messages.EndpointID {
	switch m := m.(type) {
	case messages.FailureReported:
		return m.Endpoint
	case messages.SuccessReported:
		return m.Endpoint
	case messages.ProbeAbandoned:
		return m.Endpoint
	case messages.OutlierStarted, messages.EndpointChecked:
	}
	return messages.EndpointID{}
}

// inStages runs two profiles, of which the second picks a stage that may be left out.
type inStages struct{}

func (inStages) Next(c *schedule.Course) schedule.Run {
	n := c.Results().Len()
	if n == 2 {
		n = -1
	}
	return schedule.Run{Profile: n, Optional: n == 1}
}

func (inStages) Primary(*schedule.Course) int { return 0 }

func (inStages) Finish(c *schedule.Course, f *schedule.Final) {
	if r := c.Results().At(1); r.Ranked.Len() > 0 {
		f.Stages = append(f.Stages, schedule.Stage{Run: 1, At: int(r.Ranked.At(0)), Prompt: true})
	}
}

// at is a filter that keeps one place.
type at int

func (f at) Filter(_ *schedule.Input, keep []bool) {
	for i := range keep {
		keep[i] = i == int(f)
	}
}

type pickFor func(*schedule.Input) []int

func (f pickFor) Pick(in *schedule.Input, _ []float32, _ []int) []int { return f(in) }

// A sidecar answers 502 for a stage that it cannot reach, and for its own engine: the status is a failure of neither.
func TestGatewayErrorsOfRequestsWithStagesAreNoFailures(t *testing.T) {
	for status, reports := range map[int]int{500: 1, 502: 0, 503: 1, 504: 0} {
		s := split{}.playing(t)
		s.outlier.Told()
		s.cycle.Tell(messages.ResponseStarted{Status: status})
		if got := len(s.outlier.Told()); got != reports {
			t.Errorf("%d: %d reports to the outlier actor, want %d", status, got, reports)
		}
	}
}
