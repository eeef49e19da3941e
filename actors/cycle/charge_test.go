package cycle_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/fairness"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// roomy is a gate that has room for all.
type roomy struct{}

func (roomy) Saturation(*schedule.Input) float64 { return 0 }
func (roomy) Bounds(float64) endpoints.Room      { return endpoints.Room{} }
func (roomy) Room(*schedule.Input, []bool)       {}

// metered returns a scene whose requests say what they use, and which knows what tokens of streamed chats weigh.
func metered(t *testing.T, fair flow.Fairness) *scene {
	t.Helper()
	s := newScene(t)
	s.queueing = &flow.Settings{Default: flow.BandSettings{Policies: flow.Policies{Fairness: fair}, TTL: turnLimit}}
	s.plan.HaveWait(roomy{}, schedule.Step{Name: "room"})
	for _, tokens := range []int{4, 8, 16, 32, 64, 128} {
		s.life(t, streamedChat, messages.ResponseStarted{Status: 200},
			messages.ResponseEnded{ResponseBytes: int64(500 + 10*tokens), Usage: reported(tokens)})
	}
	s.capacity.Told()
	s.ended = nil
	s.play()
	s.ready(24 * time.Hour)
	return s
}

// turns has the request wait behind others, and gives it its turn.
func (s *scene) turns() {
	s.Helper()
	flow.LineWriter{Line: &s.line}.Set(1, 0)
	s.arrive()
	s.capacity.Told()
	flow.LineWriter{Line: &s.line}.Set(0, 0)
	s.cycle.Tell(messages.Dispatched{})
}

func used(prompt, output int64) messages.TokensUsed {
	return messages.TokensUsed{Flow: line, Prompt: prompt, Output: output}
}

func TestFlowIsChargedAtTheEnd(t *testing.T) {
	began := messages.ResponseStarted{Status: 200}
	over := messages.ResponseEnded{ResponseBytes: 700, Usage: reported(33)}
	other := func(s *scene) { streamedChat(s); s.asked.Form.LogProbs = 6 }
	left := messages.WaitEnded{Request: 7, Endpoint: first}
	for name, c := range map[string]struct {
		turn bool // it waited
		asks func(*scene)
		told []messages.CycleMsg
		want []messages.CapacityMsg
	}{
		"for all of a request that did not wait": {false, streamedChat, []messages.CycleMsg{began, over},
			[]messages.CapacityMsg{used(7, 33)}},
		"for what a request that waited used beyond its prompt": {true, streamedChat, []messages.CycleMsg{began, over},
			[]messages.CapacityMsg{left, used(7-12, 33)}},
		"by an estimate": {true, streamedChat, []messages.CycleMsg{began, messages.ResponseEnded{ResponseBytes: 700}},
			[]messages.CapacityMsg{left, used(0, 20)}},
		"by the events of a stream that is like no other": {false, other, []messages.CycleMsg{began,
			messages.ResponseEnded{
				ResponseBytes: 9000, Pace: messages.Pace{Events: [messages.PaceBuckets]uint32{30, 9}},
			},
		}, []messages.CapacityMsg{used(12, 40)}},
		"by the bytes of a stream that bypassed": {false, other, []messages.CycleMsg{
			messages.ResponseStarted{Status: 200, Bypasses: true},
			messages.ResponseEnded{ResponseBytes: 9000, Logged: messages.Logged{Status: 200, Headers: 1}},
		}, []messages.CapacityMsg{used(12, 45)}},
		"by the bytes of a text": {false, func(s *scene) { other(s); s.asked.Form.Stream = false },
			[]messages.CycleMsg{began, messages.ResponseEnded{ResponseBytes: 900}},
			[]messages.CapacityMsg{used(12, 225)}},
		"by the bytes of what is not known": {false, func(s *scene) { s.asked.Form = messages.AnswerForm{} },
			[]messages.CycleMsg{began, messages.ResponseEnded{ResponseBytes: 900}},
			[]messages.CapacityMsg{used(12, 4)}},
		"for what came before an error": {false, other, []messages.CycleMsg{began, messages.ErrorSeen{Status: 500},
			messages.ResponseEnded{ResponseBytes: 900, Pace: messages.Pace{Events: [messages.PaceBuckets]uint32{9}}},
		}, []messages.CapacityMsg{used(12, 10)}},
		"for nothing, if no server answered": {true, streamedChat,
			[]messages.CycleMsg{messages.ResponseStarted{Status: 503, Local: "no_healthy_upstream"}, over},
			[]messages.CapacityMsg{left, used(-12, 0)}},
		"for the prompt alone, if a server refused it": {false, streamedChat,
			[]messages.CycleMsg{messages.ResponseStarted{Status: 400}, messages.ResponseEnded{ResponseBytes: 700}},
			[]messages.CapacityMsg{used(12, 0)}},
		"for what came before the client left": {false, streamedChat,
			[]messages.CycleMsg{began, messages.StreamGone{ResponseBytes: 600}}, []messages.CapacityMsg{used(12, 10)}},
		"for what was told before the client left": {false, streamedChat,
			[]messages.CycleMsg{began, messages.StreamGone{ResponseBytes: 600, Usage: reported(21)}},
			[]messages.CapacityMsg{used(7, 21)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := metered(t, new(fairness.Token))
			c.asks(s)
			s.play()
			s.ready(24 * time.Hour)
			if c.turn {
				s.turns()
			} else {
				s.arrive()
			}
			for _, m := range c.told {
				s.cycle.Tell(m)
			}
			s.capacity.Got(c.want...)
		})
	}
}

// Output is charged as it comes, but only while others wait.
func TestFlowIsChargedForOutputAsItComes(t *testing.T) {
	for name, c := range map[string]struct {
		began, more messages.CycleMsg
	}{
		"visible": {messages.ResponseStarted{Status: 200}, messages.ResponseProgressed{ResponseBytes: 600}},
		"bypassed": {
			messages.ResponseStarted{Status: 200, Bypasses: true}, messages.ResponseOngoing{ResponseBytes: 600},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := metered(t, new(fairness.Token))
			s.arrive()
			s.cycle.Tell(c.began)
			s.cycle.Tell(c.more)
			s.capacity.Got()
			flow.LineWriter{Line: &s.line}.Set(1, 0)
			s.cycle.Tell(c.more)
			s.cycle.Tell(c.more)
			s.capacity.Got(used(12, 10))
			flow.LineWriter{Line: &s.line}.Set(0, 0)
			s.cycle.Tell(messages.ResponseEnded{ResponseBytes: 700, Usage: reported(25)})
			s.capacity.Got(used(7-12, 25-10))
		})
	}
}

// What was charged of an answer that does not tell its tokens is not given back.
func TestUnknownOutputIsNotGivenBack(t *testing.T) {
	s := metered(t, new(fairness.Token))
	s.asked.Form.LogProbs = 6
	s.play()
	s.ready(24 * time.Hour)
	s.arrive()
	s.cycle.Tell(messages.ResponseStarted{Status: 200})
	flow.LineWriter{Line: &s.line}.Set(1, 0)
	s.cycle.Tell(messages.ResponseProgressed{ResponseBytes: 6000})
	s.capacity.Got(used(12, 30))
	flow.LineWriter{Line: &s.line}.Set(0, 0)
	s.cycle.Tell(messages.ErrorSeen{Status: 500})
	s.cycle.Tell(messages.ResponseEnded{
		ResponseBytes: 9000, Pace: messages.Pace{Events: [messages.PaceBuckets]uint32{9}},
	})
	s.capacity.Got()
}

func TestRequestIsChargedOnlyIfItsBandAsks(t *testing.T) {
	s := metered(t, new(fairness.RoundRobin))
	s.turns()
	flow.LineWriter{Line: &s.line}.Set(1, 0)
	s.cycle.Tell(messages.ResponseStarted{Status: 200})
	s.cycle.Tell(messages.ResponseProgressed{ResponseBytes: 600})
	flow.LineWriter{Line: &s.line}.Set(0, 0)
	s.cycle.Tell(messages.ResponseEnded{ResponseBytes: 700, Usage: reported(33)})
	s.capacity.Got(messages.WaitEnded{Request: 7, Endpoint: first})
}

// What a turn charged is taken back with it, by capacity, also if the turn led nowhere.
func TestTurnInVainIsNotCharged(t *testing.T) {
	s, release := queuedUpMetered(t)
	s.cycle.Tell(messages.Dispatched{})
	s.capacity.Got(messages.TurnFailed{Request: 7, Class: s.class(), Cycle: s.cycle})
	s.cycle.Tell(messages.StreamGone{})
	s.capacity.Got(messages.WaitEnded{Request: 7})
	release()

	s, release = queuedUpMetered(t)
	release()
	s.plan.Profiles()[0].Picker.Picker = pickFunc(func() []int { return nil })
	s.cycle.Tell(messages.Dispatched{})
	s.capacity.Got(messages.WaitEnded{Request: 7})
}

// queuedUpMetered is queuedUp with a band whose requests say what they use.
func queuedUpMetered(t *testing.T) (s *scene, release func()) {
	t.Helper()
	s = gated(t)
	s.queueing.Default.Fairness = new(fairness.Token)
	s.play()
	s.ready(24 * time.Hour)
	release = s.fill()
	s.arrive()
	s.capacity.Told()
	s.cycle.Tell(messages.Queued{RetryAfter: time.Second})
	return s, release
}
