package cycle_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/messages"
)

// streamedChat asks for a streamed answer whose bytes tell its tokens.
func streamedChat(s *scene) {
	s.asked.Form = messages.AnswerForm{API: messages.ChatAPI, Stream: true, Choices: 1}
	s.asked.Visible = true
}

// life plays one request: what it asks for, its response, how it ends.
func (s *scene) life(t *testing.T, change func(*scene), told ...messages.CycleMsg) messages.Record {
	t.Helper()
	change(s)
	s.play()
	s.ready(24 * time.Hour)
	s.arrive()
	for _, m := range told {
		s.cycle.Tell(m)
	}
	return s.ended[len(s.ended)-1]
}

func reported(tokens int) messages.Usage {
	return messages.Usage{Source: messages.UsageReported, PromptKnown: true, PromptTokens: 7, OutputTokens: tokens}
}

// TestOutputIsEstimatedFromBytes: answers that are seen in full are learned from, the tokens of others are estimated,
// and each reason for having no estimate has its name.
func TestOutputIsEstimatedFromBytes(t *testing.T) {
	s := newScene(t)
	began := messages.ResponseStarted{Status: 200}
	for _, tokens := range []int{4, 8, 16, 32, 64, 128} {
		s.life(
			t, streamedChat, began,
			messages.ResponseEnded{ResponseBytes: int64(500 + 10*tokens), Usage: reported(tokens)},
		)
	}
	unread := func(s *scene) { streamedChat(s); s.asked.Form = messages.AnswerForm{} }
	other := func(s *scene) { streamedChat(s); s.asked.Form.LogProbs = 6 }
	passes := messages.ResponseStarted{Status: 200, Bypasses: true}
	logged := messages.ResponseEnded{ResponseBytes: 700, Logged: messages.Logged{Status: 200, Headers: 1}}
	for name, c := range map[string]struct {
		change func(*scene)
		told   []messages.CycleMsg
		want   messages.Usage
	}{
		"bypassed": {
			streamedChat, []messages.CycleMsg{passes, logged},
			messages.Usage{Source: messages.UsageEstimated, OutputTokens: 20},
		},
		"seen, and not reported": {streamedChat, []messages.CycleMsg{began, messages.ResponseEnded{ResponseBytes: 700}},
			messages.Usage{Source: messages.UsageEstimated, OutputTokens: 20}},
		"seen, and the prompt reported": {
			streamedChat, []messages.CycleMsg{began, messages.ResponseEnded{
				ResponseBytes: 700, Usage: messages.Usage{PromptKnown: true, PromptTokens: 7, CachedKnown: true},
			}},
			messages.Usage{
				Source: messages.UsageEstimated, OutputTokens: 20, PromptKnown: true, PromptTokens: 7,
				CachedKnown: true,
			},
		},
		"cut": {streamedChat, []messages.CycleMsg{began, messages.StreamGone{ResponseBytes: 600}},
			messages.Usage{Source: messages.UsageEstimated, OutputTokens: 10}},
		"visible, for the proxy was asked": {other, []messages.CycleMsg{
			passes, messages.FirstTokenSeen{}, messages.ResponseEnded{ResponseBytes: 700, Usage: reported(33)},
		}, reported(33)},
		"another form": {
			other, []messages.CycleMsg{passes, logged}, messages.Usage{Source: messages.UsageNotLearned},
		},
		"a body not read": {
			unread, []messages.CycleMsg{passes, logged}, messages.Usage{Source: messages.UsageNotEstimable},
		},
		"the log never came": {
			streamedChat, []messages.CycleMsg{passes, messages.StreamGone{Logged: true, Log: messages.LogSeen}},
			messages.Usage{Source: messages.UsageNotMeasured},
		},
		"seen, another form": {
			other, []messages.CycleMsg{began, messages.ResponseEnded{ResponseBytes: 700}},
			messages.Usage{Source: messages.UsageNotReported},
		},
		"seen, a body not read": {
			unread, []messages.CycleMsg{began, messages.ResponseEnded{ResponseBytes: 700}},
			messages.Usage{Source: messages.UsageNotEstimable},
		},
		"an error": {
			streamedChat,
			[]messages.CycleMsg{messages.ResponseStarted{Status: 404}, messages.ResponseEnded{ResponseBytes: 700}},
			messages.Usage{},
		},
		"an error in its body": {
			streamedChat,
			[]messages.CycleMsg{began, messages.ErrorSeen{Status: 500}, messages.ResponseEnded{ResponseBytes: 700}},
			messages.Usage{},
		},
		"no response": {streamedChat, []messages.CycleMsg{messages.StreamGone{}}, messages.Usage{}},
		"answered by Envoy": {streamedChat, []messages.CycleMsg{
			messages.ResponseStarted{Status: 200, Local: "direct_response"}, messages.ResponseEnded{ResponseBytes: 700},
		}, messages.Usage{}},
	} {
		n := len(s.ended)
		s.life(t, c.change, c.told...)
		if len(s.ended) == n { // nothing but its deadline is left to come
			s.cycle.Advance(tokenLimit)
			s.cycle.Advance(logLimit)
		}
		if got := s.ended[len(s.ended)-1].Usage; len(s.ended) != n+1 || got != c.want {
			t.Errorf("%s: usage %+v, want %+v", name, got, c.want)
		}
	}
	if got := s.metric("signalbox_usage_total"); got < 18 {
		t.Errorf("%v requests are counted by what is known of their tokens, want 18", got)
	}
}

// TestAnswersWithErrorsTeachNothing: an answer that names an error is not learned from.
func TestAnswersWithErrorsTeachNothing(t *testing.T) {
	s := newScene(t)
	for range 20 {
		s.life(t, streamedChat, messages.ResponseStarted{Status: 200}, messages.ErrorSeen{Status: 500},
			messages.ResponseEnded{ResponseBytes: 900, Usage: reported(20)})
	}
	got := s.life(t, streamedChat, messages.ResponseStarted{Status: 200, Bypasses: true},
		messages.ResponseEnded{ResponseBytes: 900, Logged: messages.Logged{Status: 200, Headers: 1}})
	if got.Usage.Source != messages.UsageNotLearned {
		t.Errorf("usage %+v, want none that was learned", got.Usage)
	}
}

// The record has both names of a rewritten request. What its tokens weigh is learnt of the model that serves: a request
// that names it itself is estimated by it.
func TestRewrittenRequestIsRecordedUnderBothNames(t *testing.T) {
	s := newScene(t)
	rewritten := func(s *scene) {
		streamedChat(s)
		s.asked.Model, s.asked.Rewrite = "target", messages.Rewrite{Made: true, From: "named"}
	}
	var r messages.Record
	for _, tokens := range []int{4, 8, 16, 32, 64, 128} {
		r = s.life(t, rewritten, messages.ResponseStarted{Status: 200},
			messages.ResponseEnded{ResponseBytes: int64(500 + 10*tokens), Usage: reported(tokens)})
	}
	if r.Model != "named" || r.Target != "target" {
		t.Errorf("the record has model %q and target %q, want named and target", r.Model, r.Target)
	}
	for model, want := range map[string]bool{"target": true, "named": false} {
		u := s.estimates.Usage(&records.Answer{Model: model, Form: s.asked.Form, Usage: false, Bytes: 900, Whole: true})
		if learnt := u.Source == messages.UsageEstimated; learnt != want {
			t.Errorf("an answer of %s is estimated: %t, want %t", model, learnt, want)
		}
	}
}
