package cycle_test

import (
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

func TestServedRequestHoldsLoadFromPickToEnd(t *testing.T) {
	s := serving(t)
	s.cycle.Advance(2 * time.Second)
	s.cycle.Tell(messages.ResponseStarted{Status: 200})
	s.prefix.Got(messages.PromptServed{Request: 7, Endpoint: first})
	s.load(1, 0)
	s.cycle.Tell(messages.FirstTokenSeen{At: s.cycle.Clock()})
	s.answering(1, 0)
	s.cycle.Advance(time.Second)
	s.cycle.Tell(messages.ResponseEnded{
		ResponseBytes: 9,
		Usage: messages.Usage{
			Source: messages.UsageReported, PromptKnown: true, PromptTokens: 9, CachedTokens: 3, CachedKnown: true,
			OutputTokens: 4,
		},
	})
	s.stream.Got()
	s.prefix.Got(messages.PromptEnded{Request: 7, Prompt: messages.ReportedPrompt{Stream: true, PromptTokens: 9,
		Media: 1, CachedTokens: 3, CachedKnown: true}})
	r := s.over(messages.NoReason)
	if r.Status != 200 || r.Served != first || r.ResponseBytes != 9 || r.Usage.OutputTokens != 4 ||
		r.FirstToken != 2*time.Second ||
		r.Ended != 3*time.Second || r.QueueWait != 0 || r.Dropped != 0 || r.ArrivedAt != s.began {
		t.Errorf("record %+v", r)
	}
	if r.Decision.PoolVersion != 3 || r.Decision.Profiles.Len() != 1 || r.Decision.Endpoints.At(1) != second {
		t.Errorf("decision %+v", r.Decision)
	}
	var told []string
	for _, e := range r.Events.All() {
		told = append(told, e.To+" "+e.Name)
	}
	want := []string{
		" RequestArrived", "prefix PromptPlaced", "stream PickMade", " ResponseStarted", "prefix PromptServed",
		" FirstTokenSeen", " ResponseEnded", "prefix PromptEnded",
	}
	if !slices.Equal(told, want) || r.Events.At(6).At != 3*time.Second {
		t.Errorf("events %q, want %q", told, want)
	}
}

func TestEveryRefusalAnswersOnceAndHoldsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		tell messages.CycleMsg
		want messages.PickFailed
		back int // places that are given back
	}{
		"rejected": {
			messages.Rejected{Reason: messages.NoCapacity, RetryAfter: 2},
			messages.PickFailed{Reason: messages.NoCapacity, RetryAfter: 2}, 0,
		},
		"evicted": {
			messages.Evicted{Reason: messages.TTLExpired, RetryAfter: 3},
			messages.PickFailed{Reason: messages.TTLExpired, RetryAfter: 3}, 0,
		},
		"revoked before the pick": {
			messages.Revoked{Reason: messages.NoCapacity, RetryAfter: 4}, messages.PickFailed{
				Reason: messages.NoCapacity, RetryAfter: 4,
			}, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := waiting(t)
			s.cycle.Tell(c.tell)
			s.stream.Got(c.want)
			s.prefix.Got()
			if r := s.over(c.want.Reason); r.Events.Len() != 4+c.back {
				t.Errorf("%d events, want arrival, a place asked for, the end, the answer told, %d places given back",
					r.Events.Len(), c.back)
			}
			if s.metric("llm_d_epp_request_error_total") != 1 || s.metric("llm_d_epp_request_running") != 0 {
				t.Error("the refusal is not counted, or still runs")
			}
		})
	}
}

func TestPickThatFailsIsAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*scene)
		want  messages.PickFailed
	}{
		"empty pool": {
			func(s *scene) { endpoints.Publisher{Published: s.pool}.Publish(endpoints.NewSnapshot(4, nil), nil) },
			messages.PickFailed{Reason: messages.NoEndpoints, Detail: "the pool has no endpoints"},
		},
		"filtered": {
			func(s *scene) {
				s.plan.Profiles()[0].Filters = []schedule.FilterStep{
					{Step: schedule.Step{Name: "strict"}, Filter: none{}},
				}
			},
			messages.PickFailed{Reason: messages.NoEndpoints, Detail: "filter strict left no endpoint"},
		},
		"picker at fault": {
			func(s *scene) {
				s.plan.Profiles()[0].Picker.Picker = pickFunc(func() []int { return nil })
			},
			messages.PickFailed{Reason: messages.Internal, Detail: "picker all picked nothing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := coming(t)
			c.spoil(s)
			s.arrive()
			s.stream.Got(c.want)
			s.prefix.Got()
			if n := s.over(c.want.Reason).Events.Len(); n != 2 {
				t.Errorf("%d events, want 2: arrival, the answer told", n)
			}
		})
	}
}

func TestSecondDispatchChangesNothing(t *testing.T) {
	s := serving(t)
	s.cycle.Tell(messages.Dispatched{})
	s.cycle.Tell(messages.Rejected{Reason: messages.NoCapacity})
	s.cycle.Tell(messages.Evicted{Reason: messages.TTLExpired})
	s.stream.Got()
	s.prefix.Got()
	s.load(1, 0)
	if s.metric("llm_d_epp_scheduler_attempts_total") != 1 {
		t.Errorf("the pick counts %v times, want once", s.metric("llm_d_epp_scheduler_attempts_total"))
	}
}

func TestLoadMovesToTheEndpointThatServed(t *testing.T) {
	s := serving(t)
	s.cycle.Tell(messages.ResponseStarted{Status: 200, Served: addresses[second]})
	s.prefix.Got(messages.PromptServed{Request: 7, Endpoint: second})
	s.load(0, 1)
	if n := s.metric("llm_d_epp_scheduler_attempts_total"); n != 1 {
		t.Errorf("%v schedulings counted, want 1: a move is no pick", n)
	}
	if n := s.metric("signalbox_endpoint_inflight_requests"); n != 1 {
		t.Errorf("%v requests in flight, want 1", n)
	}
	s.cycle.Tell(messages.FirstTokenSeen{At: s.cycle.Clock().Add(time.Second)})
	s.cycle.Tell(messages.ResponseEnded{})
	s.prefix.Got(messages.PromptEnded{Request: 7})
	if r := s.over(messages.NoReason); r.Served != second {
		t.Errorf("served by %v, want %v", r.Served, second)
	}
	if n := s.metric("signalbox_endpoint_inflight_requests"); n != 0 {
		t.Errorf("%v requests in flight, want 0", n)
	}
}

// The id that the model server made by itself may come with the first token, or at the end.
func TestResponseIDIsKept(t *testing.T) {
	for name, m := range map[string][2]string{"at once": {"resp_1", "resp_1"}, "at the end": {"", "resp_1"},
		"at the begin": {"resp_1", ""}} {
		t.Run(name, func(t *testing.T) {
			s := serving(t)
			s.cycle.Tell(messages.ResponseStarted{Status: 200, Served: addresses[second]})
			s.cycle.Tell(messages.FirstTokenSeen{At: s.cycle.Clock(), ResponseID: m[0]})
			s.cycle.Tell(messages.ResponseEnded{ResponseID: m[1]})
			if r := s.over(messages.NoReason); r.ResponseID != "resp_1" {
				t.Errorf("the id is %q, want resp_1", r.ResponseID)
			}
		})
	}
}

func TestUnknownServerReleasesTheLoad(t *testing.T) {
	s := serving(t)
	s.cycle.Tell(messages.ResponseStarted{Status: 200, Served: "10.9.9.9:1"})
	s.prefix.Got(messages.PromptServed{Request: 7})
	s.load(0, 0)
	s.cycle.Tell(messages.Dispatched{}) // no reason to pick again
	s.load(0, 0)
	s.cycle.Tell(messages.ResponseEnded{})
	s.prefix.Got(messages.PromptEnded{Request: 7, Failed: true})
	if r := s.over(messages.NoReason); r.Served != (messages.EndpointID{}) || r.Elsewhere != "10.9.9.9:1" {
		t.Errorf("served by %v, elsewhere %q, want none of the pool, and 10.9.9.9:1", r.Served, r.Elsewhere)
	}
}

func TestResponseOfEnvoyItselfNamesNoEndpoint(t *testing.T) {
	s := serving(t)
	s.cycle.Tell(messages.ResponseStarted{Status: 503, Served: addresses[first], Local: "connection_failure"})
	s.prefix.Got(messages.PromptServed{Request: 7})
	s.load(0, 0)
	s.cycle.Tell(messages.FirstTokenSeen{At: s.cycle.Clock().Add(time.Second)})
	s.cycle.Tell(messages.ResponseEnded{})
	s.prefix.Got(messages.PromptEnded{Request: 7, Failed: true})
	r := s.over(messages.NoReason)
	if r.Served != (messages.EndpointID{}) || r.FirstToken != 0 || r.Local != "connection_failure" {
		t.Errorf(
			"served by %v, first token after %v, local %q; want none, none, connection_failure", r.Served, r.FirstToken,
			r.Local,
		)
	}
	if n := s.metric("signalbox_served_elsewhere_total"); n != 0 {
		t.Errorf("%v requests served elsewhere, want 0", n)
	}
}

func TestLoadIsGivenBackToTheIncarnationThatHadIt(t *testing.T) {
	s := serving(t)
	old := s.pool.Snapshot().Endpoints[0]
	anew := endpoints.New(messages.EndpointID{Slot: 0, Generation: 9}, old.Spec)
	endpoints.Publisher{Published: s.pool}.Publish(
		endpoints.NewSnapshot(4, []*endpoints.Endpoint{anew, s.pool.Snapshot().Endpoints[1]}), nil,
	)
	s.cycle.Tell(messages.ResponseEnded{})
	s.over(messages.NoReason)
	if old.Inflight() != 0 {
		t.Errorf("the incarnation that left has %d in flight, want 0", old.Inflight())
	}
}

func TestClientThatLeaves(t *testing.T) {
	gone := messages.StreamGone{}
	for name, c := range map[string]struct {
		before func(*testing.T) *scene
		gone   messages.StreamGone
		want   messages.Reason
		prefix []messages.PrefixMsg
	}{
		"while it waits": {waiting, gone, messages.ClientGone, nil},
		"after the pick": {
			serving, gone, messages.ClientGone, []messages.PrefixMsg{messages.PromptEnded{Request: 7, Failed: true}},
		},
		"in the response": {responding, gone, messages.ClientGone, []messages.PrefixMsg{
			messages.PromptEnded{Request: 7},
		}},
		"once all is done": {responding, messages.StreamGone{Completed: true}, messages.NoReason, []messages.PrefixMsg{
			messages.PromptEnded{Request: 7},
		}},
		"answered by the stream": {
			waiting, messages.StreamGone{Answered: messages.PickTimeout}, messages.PickTimeout, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.before(t)
			s.cycle.Tell(c.gone)
			s.stream.Got()
			s.prefix.Got(c.prefix...)
			s.over(c.want)
		})
	}
}

// responding returns a scene whose client has the first token.
func responding(t *testing.T) *scene {
	t.Helper()
	s := serving(t)
	s.cycle.Advance(time.Second)
	s.cycle.Tell(messages.ResponseStarted{Status: 200})
	s.cycle.Tell(messages.FirstTokenSeen{At: s.cycle.Clock()})
	s.prefix.Got(messages.PromptServed{Request: 7, Endpoint: first})
	return s
}

func TestFailedResponseWithdrawsThePrompt(t *testing.T) {
	s := serving(t)
	s.cycle.Advance(time.Second)
	s.cycle.Tell(messages.ResponseStarted{Status: 500})
	s.cycle.Tell(messages.FirstTokenSeen{At: s.cycle.Clock()})
	s.cycle.Tell(messages.ResponseEnded{})
	s.prefix.Got(messages.PromptServed{Request: 7, Endpoint: first}, messages.PromptEnded{Request: 7, Failed: true})
	if r := s.over(messages.NoReason); r.Status != 500 {
		t.Errorf("status %d, want 500", r.Status)
	}
	if s.metric("llm_d_epp_request_error_total") != 1 {
		t.Error("the model server's 500 is not counted")
	}
}

func TestRunningRequestTellsWhatHappenedSoFar(t *testing.T) {
	s := serving(t)
	asker := runtimetest.NewProbe[messages.RecorderMsg](t)
	for range 30 {
		s.cycle.Tell(messages.Dispatched{})
		s.cycle.Tell(messages.ResponseProgressed{})
	}
	s.cycle.Tell(messages.CycleQueried{Query: 4, Recorder: asker})
	told := asker.Told()
	if len(told) != 1 {
		t.Fatalf("told %d times, want 1", len(told))
	}
	found := told[0].(messages.RecordsFound)
	r := found.Records.At(0)
	if found.Query != 4 || !r.Running || r.Ended != 0 || r.Served != first || r.Events.Len() != 16 || r.Dropped != 17 {
		t.Errorf("found %+v, want a running record with 16 events and 17 dropped", found)
	}
}

// The output that is expected is load with the prompt, at whichever endpoint serves, until the request ends.
func TestExpectedOutputIsLoad(t *testing.T) {
	s := newScene(t)
	s.plan.CountOutput(func(schedule.Request) int { return 90 })
	s.play()
	s.ready(24 * time.Hour)
	shows := func(want ...int) {
		t.Helper()
		for i, e := range s.pool.Snapshot().Endpoints {
			if got := e.Counters().Tokens; got != want[i] {
				t.Errorf("endpoint %d has %d tokens, want %d", i, got, want[i])
			}
		}
	}
	s.arrive()
	shows(hello.PromptTokens+90, 0)
	s.cycle.Tell(messages.ResponseStarted{Status: 200, Served: addresses[second]})
	shows(0, hello.PromptTokens+90)
	s.cycle.Tell(messages.ResponseEnded{})
	shows(0, 0)
}
