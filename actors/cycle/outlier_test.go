package cycle_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/messages"
)

// picking is when a scene picks: its clock begins there.
var picking = time.Unix(1_800_000_000, 0)

// askedPrompt is the prompt of asked, of which no endpoint holds anything.
var askedPrompt = messages.Prompt{Tokens: 12, Computed: 12}

func seen(e messages.EndpointID, what messages.FailureKind) messages.FailureReported {
	m := messages.FailureReported{Endpoint: e, Kind: what, Pick: messages.Pick{At: picking}}
	if what == messages.ClientsLeft {
		m.Prompt = askedPrompt
	}
	return m
}

// incident is the number of the incident under which a scene tries an endpoint.
const incident = 7

// succeeded and abandoned are results of a request that tried the first endpoint, and failed another.
var (
	succeeded = messages.SuccessReported{Endpoint: first, Incident: incident}
	abandoned = messages.ProbeAbandoned{Endpoint: first, Incident: incident}
)

func failed(kind messages.FailureKind) messages.FailureReported {
	return messages.FailureReported{Endpoint: first, Kind: kind, Pick: messages.Pick{At: picking, Incident: incident}}
}

func TestStatusesThatAreFailures(t *testing.T) {
	for name, c := range map[string]struct {
		started messages.ResponseStarted
		want    []messages.OutlierMsg
		well    bool
	}{
		"well":               {messages.ResponseStarted{Status: 200}, nil, true},
		"the client's fault": {messages.ResponseStarted{Status: 404}, nil, true},
		"too many requests":  {messages.ResponseStarted{Status: 429}, nil, true},
		"overload": {
			messages.ResponseStarted{Status: 503}, []messages.OutlierMsg{seen(first, messages.Overload)}, false,
		},
		"an error": {
			messages.ResponseStarted{Status: 500}, []messages.OutlierMsg{seen(first, messages.ServerError)}, false,
		},
		"passed over": {
			messages.ResponseStarted{Status: 200, Served: addresses[second]},
			[]messages.OutlierMsg{seen(first, messages.ServedElsewhere)}, false,
		},
		"passed over, and an error": {
			messages.ResponseStarted{Status: 502, Served: addresses[second]},
			[]messages.OutlierMsg{seen(first, messages.ServedElsewhere), seen(second, messages.ServerError)}, false,
		},
		"served by a stranger": {
			messages.ResponseStarted{Status: 500, Served: "10.9.9.9:1"},
			[]messages.OutlierMsg{seen(first, messages.ServedElsewhere)}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t)
			s.cycle.Tell(c.started)
			s.outlier.Got(c.want...)
			if got := s.pool.Snapshot().Endpoints[0].Answers().Began != (time.Time{}); got != c.well {
				t.Errorf("noted as well: %v, want %v", got, c.well)
			}
		})
	}
}

// An error that an event of an answer names counts like one that the headers name, but comes later.
func TestErrorInAnAnswerIsAFailure(t *testing.T) {
	for name, c := range map[string]struct {
		served messages.Address
		status int
		want   []messages.OutlierMsg
		proof  bool
	}{
		"overload":           {"", 503, []messages.OutlierMsg{seen(first, messages.OverloadInStream)}, false},
		"an error":           {"", 500, []messages.OutlierMsg{seen(first, messages.ErrorInStream)}, false},
		"the client's fault": {"", 404, nil, true},
		"served elsewhere": {
			addresses[second], 500,
			[]messages.OutlierMsg{seen(first, messages.ServedElsewhere), seen(second, messages.ErrorInStream)}, false,
		},
		"served by a stranger": {
			"10.9.9.9:1", 500, []messages.OutlierMsg{seen(first, messages.ServedElsewhere)}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t)
			s.cycle.Tell(messages.ResponseStarted{Status: 200, Served: c.served})
			s.cycle.Tell(messages.ErrorSeen{Status: c.status})
			s.cycle.Tell(messages.FirstTokenSeen{At: s.cycle.Clock().Add(time.Second)})
			s.cycle.Advance(tokenLimit) // it was not silent
			s.cycle.Tell(messages.ResponseEnded{})
			s.outlier.Got(c.want...)
			proof := false
			for _, e := range s.pool.Snapshot().Endpoints {
				proof = proof || e.Answers().Proved != (time.Time{})
			}
			if r := s.ended[0]; proof != c.proof || r.FirstToken != 0 {
				t.Errorf("noted as well: %v, first token after %v; want %v and none", proof, r.FirstToken, c.proof)
			}
		})
	}
}

// A request that Envoy's own limits turned away tells nothing about an endpoint.
func TestOverflowIsNoFailure(t *testing.T) {
	for details, want := range map[string][]messages.OutlierMsg{
		"upstream_reset_before_response_started{overflow}":           nil,
		"upstream_reset_before_response_started{connection_failure}": {seen(first, messages.ConnectionBroken)},
	} {
		s := serving(t)
		s.cycle.Tell(messages.ResponseStarted{Status: 503, Local: details})
		s.outlier.Got(want...)
	}
}

// An error after the first token is newer than the success that was reported, whenever the endpoint was picked, and
// takes that success of a probe back.
func TestErrorBehindTheFirstTokenIsNews(t *testing.T) {
	late := []messages.CycleMsg{
		messages.ResponseStarted{Status: 200}, messages.FirstTokenSeen{}, messages.ErrorSeen{Status: 500},
		messages.ResponseEnded{},
	}
	s := serving(t)
	for _, m := range late {
		s.cycle.Tell(m)
	}
	s.outlier.Got(messages.FailureReported{Endpoint: first, Kind: messages.ErrorInStream})
	s = trying(t)
	for _, m := range late {
		s.cycle.Tell(m)
	}
	behind := failed(messages.ErrorInStream)
	behind.Pick.At = time.Time{}
	s.outlier.Got(succeeded, behind)
}

// Headers alone are no proof: an engine that hangs sends them.
func TestBodyIsProofOfAGoodAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		then   messages.CycleMsg
		want   bool
	}{
		"first byte":           {200, messages.FirstTokenSeen{}, true},
		"an end without bytes": {200, messages.ResponseEnded{}, true},
		"an error has bytes":   {500, messages.FirstTokenSeen{}, false},
		"it refuses":           {404, messages.StreamGone{}, true},
		"no headers are shown": {0, messages.FirstTokenSeen{}, true},
		"the client left":      {200, messages.StreamGone{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t)
			s.cycle.Tell(messages.ResponseStarted{Status: c.status})
			s.cycle.Tell(c.then)
			if got := s.pool.Snapshot().Endpoints[0].Answers().Proved != (time.Time{}); got != c.want {
				t.Errorf("noted as well: %v, want %v", got, c.want)
			}
		})
	}
}

func TestStreamThatEndsWithoutAResponseIsDoubted(t *testing.T) {
	s := serving(t)
	s.cycle.Tell(messages.StreamGone{})
	s.outlier.Got(seen(first, messages.EndedBare), seen(first, messages.ClientsLeft))

	s = serving(t)
	s.cycle.Tell(messages.ResponseStarted{Status: 200})
	s.cycle.Tell(messages.StreamGone{})
	s.outlier.Got(seen(first, messages.ClientsLeft))
}

// A client that leaves before the first token of a streamed answer is told of, by the fairness id that it named.
func TestClientsThatLeaveAreToldOf(t *testing.T) {
	headers := messages.ResponseStarted{Status: 200}
	for name, c := range map[string]struct {
		plain bool
		flow  string
		then  []messages.CycleMsg
		want  []messages.OutlierMsg
	}{
		"it left": {flow: "tenant", then: []messages.CycleMsg{headers, messages.StreamGone{}},
			want: []messages.OutlierMsg{messages.FailureReported{Endpoint: first, Kind: messages.ClientsLeft,
				Pick: messages.Pick{At: picking}, Client: "tenant", Prompt: askedPrompt}}},
		"it has no name": {flow: messages.DefaultFairness, then: []messages.CycleMsg{headers, messages.StreamGone{}},
			want: []messages.OutlierMsg{seen(first, messages.ClientsLeft)}},
		"its answer is not streamed": {plain: true, then: []messages.CycleMsg{headers, messages.StreamGone{}}},
		"its first token had come": {
			then: []messages.CycleMsg{headers, messages.FirstTokenSeen{At: picking.Add(1)}, messages.StreamGone{}},
		},
		"it was refused": {then: []messages.CycleMsg{messages.ResponseStarted{Status: 404}, messages.StreamGone{}}},
		"another server serves": {
			then: []messages.CycleMsg{
				messages.ResponseStarted{Status: 200, Served: addresses[second]}, messages.StreamGone{},
			},
			want: []messages.OutlierMsg{seen(first, messages.ServedElsewhere)},
		},
		"it was answered": {then: []messages.CycleMsg{headers, messages.ResponseEnded{}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.asked.Stream = !c.plain
			s.ready(24 * time.Hour)
			s.coming.Flow.Fairness = c.flow
			s.arrive()
			for _, m := range c.then {
				s.cycle.Tell(m)
			}
			s.outlier.Got(c.want...)
			if r := s.ended[0]; r.Reason == messages.ClientGone && r.FirstToken == 0 && r.Status == 200 {
				t.Error("status 200, though the client left with nothing")
			}
		})
	}
}

func TestSilenceIsToldOnceAndWaitedOut(t *testing.T) {
	for name, started := range map[string]bool{"before the response": false, "after its headers": true} {
		t.Run(name, func(t *testing.T) {
			s := serving(t)
			if started {
				s.cycle.Tell(messages.ResponseStarted{Status: 200})
			}
			s.cycle.Advance(tokenLimit - 1)
			s.outlier.Got()
			s.cycle.Advance(1)
			s.outlier.Got(seen(first, messages.NoFirstToken))
			s.cycle.Advance(idleLimit - tokenLimit - 1)
			s.stream.Got()
			s.outlier.Got()
			s.cycle.Advance(1)
			s.stream.Got(messages.ServingRevoked{Reason: messages.ResponseIdle})
		})
	}
}

// An endpoint that gives first tokens to others is busy: it is silent once it has given none for the timeout, and the
// request is cut when it would be without them.
func TestServerThatAnswersOthersIsNotSilent(t *testing.T) {
	for name, started := range map[string]bool{"before the response": false, "after its headers": true} {
		t.Run(name, func(t *testing.T) {
			s := serving(t)
			if started {
				s.cycle.Tell(messages.ResponseStarted{Status: 200})
			}
			for range 3 {
				s.cycle.Advance(tokenLimit / 2)
				s.gives(first, picking.Add(-time.Hour))
			}
			s.gives(second, picking)
			s.cycle.Advance(tokenLimit - 1)
			s.outlier.Got()
			s.cycle.Advance(1)
			s.outlier.Got(seen(first, messages.NoFirstToken))
			s.gives(first, picking)
			s.cycle.Advance(idleLimit - tokenLimit*5/2 - 1)
			s.stream.Got()
			s.outlier.Got()
			s.cycle.Advance(1)
			s.stream.Got(messages.ServingRevoked{Reason: messages.ResponseIdle})
		})
	}
}

func TestBusyServerDoesNotKeepARequestThatIsIdle(t *testing.T) {
	s := serving(t)
	for range 2*idleLimit/tokenLimit - 1 {
		s.cycle.Advance(tokenLimit / 2)
		s.gives(first, picking)
	}
	s.cycle.Advance(tokenLimit/2 - 1)
	s.stream.Got()
	s.cycle.Advance(1)
	s.stream.Got(messages.ServingRevoked{Reason: messages.ResponseIdle})
	s.outlier.Got()
}

// gives has an endpoint give a first token to another request now.
func (s *scene) gives(e messages.EndpointID, picked time.Time) {
	endpoints.LoadWriter{Endpoint: s.pool.Snapshot().ByID(e)}.Proved(messages.Prompt{}, picked, s.cycle.Clock(), true)
}

// A request that was picked before its endpoint was ejected for silence, and has its first token after all, ends that.
func TestAnyFirstTokenEndsAnIncidentOfSilence(t *testing.T) {
	for name, c := range map[string]struct {
		cause messages.FailureKind
		then  messages.CycleMsg
		want  []messages.OutlierMsg
	}{
		"silence":           {messages.NoFirstToken, messages.FirstTokenSeen{}, []messages.OutlierMsg{succeeded}},
		"silence, an end":   {messages.NoFirstToken, messages.ResponseEnded{}, []messages.OutlierMsg{succeeded}},
		"errors":            {messages.ServerError, messages.FirstTokenSeen{}, nil},
		"clients that left": {messages.ClientsLeft, messages.FirstTokenSeen{}, []messages.OutlierMsg{succeeded}},
		"no answer so far": {
			messages.NoFirstToken, messages.StreamGone{}, []messages.OutlierMsg{seen(first, messages.ClientsLeft)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t)
			s.cycle.Tell(messages.ResponseStarted{Status: 200})
			endpoints.OutlierWriter{Endpoint: s.pool.Snapshot().ByID(first)}.SetOutlier(&outlier.Status{
				Ejected: true, Cause: c.cause, Incident: incident, Since: s.cycle.Clock(),
			})
			s.cycle.Advance(1)
			s.cycle.Tell(c.then)
			s.outlier.Got(c.want...)
		})
	}
}

// An answer that is not streamed is silent until it is whole, and an error's body is no answer.
func TestSilenceThatIsNoFailure(t *testing.T) {
	s := newScene(t)
	s.asked.Stream = false
	s.ready(24 * time.Hour)
	s.arrive()
	s.stream.Told()
	s.cycle.Advance(idleLimit - 1)
	s.stream.Got()
	s.cycle.Advance(1)
	s.stream.Got(messages.ServingRevoked{Reason: messages.ResponseIdle})
	s.outlier.Got()

	s = serving(t)
	s.cycle.Tell(messages.ResponseStarted{Status: 404})
	s.cycle.Advance(idleLimit)
	s.stream.Got(messages.ServingRevoked{Reason: messages.ResponseIdle})
	s.outlier.Got()
}

func TestBrokenConnectionInTheLogIsAFailure(t *testing.T) {
	for name, logged := range map[string]messages.Logged{
		"in the response":  {Status: 200, Served: addresses[first], Headers: 1, Broken: true},
		"before it":        {Status: 503, Served: addresses[first], Broken: true},
		"no server served": {Status: 503, Broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t)
			s.cycle.Tell(messages.StreamGone{Logged: true, Log: messages.LogSeen})
			s.cycle.Tell(messages.ResponseEnded{Logged: logged})
			s.outlier.Got(seen(first, messages.ConnectionBroken))
		})
	}
}

func TestNobodyWaitsLongerThanTheResponseMayBeIdle(t *testing.T) {
	s := serving(t)
	s.cycle.Tell(messages.ResponseStarted{Status: 200})
	s.cycle.Tell(messages.FirstTokenSeen{At: s.cycle.Clock().Add(time.Millisecond)})
	s.cycle.Advance(idleLimit)
	s.stream.Got(messages.ServingRevoked{Reason: messages.ResponseIdle})
	s.outlier.Got()
}
