package cycle_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/messages"
)

// learned is the form of a check's answer. One more answer of it would be enough for an estimate.
var learned = messages.AnswerForm{API: messages.ChatAPI, Stream: true, Choices: 1}

// checked returns a scene whose request is a conformance checker's, picked for the first endpoint.
func checked(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	s.began = s.cycle.Clock()
	for n := range int64(5) { // one more, and tokens are estimated
		usage := messages.Usage{OutputTokens: 10 * int(1+n), Source: messages.UsageReported}
		s.estimates.Learn(&records.Answer{Model: "m", Form: learned, Bytes: 100 * (1 + n), Whole: true}, &usage)
	}
	asked := hello
	asked.Form = learned
	s.coming = messages.RequestArrived{
		Request: asked, Flow: line, ArrivedAt: s.began, Deadline: s.began.Add(24 * time.Hour), Connection: 1,
		Check: true, Stream: s.stream,
	}
	return s
}

// A conformance checker plays answers that no model server gave. Its requests get a pick, are load while their streams
// last, and leave nothing behind.
func TestCheckLeavesNothingBehind(t *testing.T) {
	full := messages.ResponseEnded{
		ResponseBytes: 1000, Usage: messages.Usage{OutputTokens: 100, Source: messages.UsageReported},
	}
	for name, then := range map[string][]messages.CycleMsg{
		"served": {messages.ResponseStarted{Status: 200}, messages.FirstTokenSeen{}, full},
		"in the light lane": {
			messages.ResponseStarted{Status: 200, Bypasses: true},
			messages.StreamGone{Completed: true, Logged: true, Log: messages.LogSeen},
		},
		"of a silent proxy": {
			messages.ResponseStarted{Status: 200, Bypasses: true},
			messages.StreamGone{Completed: true, Logged: true, Log: messages.LogAwaited},
		},
		"headers not shown": {messages.StreamGone{Logged: true, Log: messages.LogSeen}},
		"overloaded":        {messages.ResponseStarted{Status: 503}, messages.ResponseEnded{}},
		"broken":            {messages.ResponseStarted{Status: 500}, messages.StreamGone{}},
		"cut":               {messages.StreamGone{}},
		"an error in an event": {
			messages.ResponseStarted{Status: 200}, messages.ErrorSeen{Status: 500}, messages.ResponseEnded{},
		},
		"served elsewhere": {
			messages.ResponseStarted{Status: 200, Served: "192.0.2.1:80"}, messages.ResponseEnded{},
		},
		"not reached": {
			messages.ResponseStarted{Status: 503, Local: "upstream_reset_before_response_started{connection_failure}"},
			messages.ResponseEnded{},
		},
		"revoked": {messages.Revoked{Reason: messages.NoCapacity}, messages.StreamGone{Answered: messages.NoCapacity}},
	} {
		t.Run(name, func(t *testing.T) {
			s := checked(t)
			s.arrive()
			s.stream.Got(messages.PickMade{Destinations: messages.ListOf(addresses[first], addresses[second])})
			s.load(1, 0)
			for _, m := range then {
				s.cycle.Tell(m)
			}
			s.leftNothing()
		})
	}
}

// leftNothing checks that a cycle ended, that it gave back what it held, and that no actor was told anything else.
func (s *scene) leftNothing() {
	s.Helper()
	if !s.cycle.Ended() || s.cycle.Timers() != 0 || s.book.Live() != 0 {
		s.Errorf("ended %t, timers %d, live %d", s.cycle.Ended(), s.cycle.Timers(), s.book.Live())
	}
	s.inFlight(0)
	s.outlier.Got()
	s.prefix.Got()
	kept := s.book.Newest(9, nil, func(*messages.Record) bool { return true })
	if len(kept) != 0 || len(s.ended) != 0 {
		s.Errorf("%d records kept, %d reported, want none", len(kept), len(s.ended))
	}
	if e := s.pool.Snapshot().Endpoints[0]; e.Answers() != (outlier.Answers{}) || e.Picks() != 0 {
		s.Errorf("answers %+v, %d picks, want none", e.Answers(), e.Picks())
	}
	for _, name := range []string{"llm_d_epp_request_total", "llm_d_epp_request_error_total",
		"signalbox_served_elsewhere_total", "signalbox_unlogged_total"} {
		if n := s.metric(name); n != 0 {
			s.Errorf("%s is %v, want 0", name, n)
		}
	}
	if got := s.estimates.Usage(&records.Answer{Model: "m", Form: learned, Bytes: 500,
		Whole: true}); got.Source != messages.UsageNotLearned {
		s.Errorf("learned of a made-up answer: %+v", got)
	}
}

// A check that is refused is answered, and leaves no record.
func TestCheckThatIsRefused(t *testing.T) {
	s := checked(t)
	all := s.pool.Snapshot()
	endpoints.Publisher{Published: s.pool}.Publish(endpoints.NewSnapshot(4, nil), nil)
	s.arrive()
	s.stream.Got(messages.PickFailed{Reason: messages.NoEndpoints, Detail: "the pool has no endpoints"})
	endpoints.Publisher{Published: s.pool}.Publish(all, nil)
	s.leftNothing()
}

// A check that tries an ejected endpoint proves nothing, and gives the probe back.
func TestCheckGivesTheProbeBack(t *testing.T) {
	s := checked(t)
	s.plan.Profiles()[0].Picker.Most = func() int { return 2 }
	s.eject(first)
	s.arrive()
	s.cycle.Tell(messages.ResponseStarted{Status: 200})
	s.cycle.Tell(messages.FirstTokenSeen{})
	s.cycle.Tell(messages.ResponseEnded{ResponseBytes: 9})
	s.outlier.Got(abandoned)
}
