package e2e

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"
)

// An answer of longTokens takes such a server some seconds.
const longTokens = 200

var leisurely = []string{"--model", model, "--decode-rate", "50", "--prefill-rate", "1000000"}

// TestEnvoyBypassingAnswersAreLeftAlone: in the light lane no limit on silence counts for an answer whose body is not
// shown to us, nor one on its log that is shorter than it, and none is a failure of its server; the access log tells
// how it goes.
func TestEnvoyBypassingAnswersAreLeftAlone(t *testing.T) {
	seenElsewhere(t)
	t.Parallel() // it mostly waits
	flags := []string{
		"--first-token-timeout", "500ms", "--response-idle-timeout", "1s", "--access-log-timeout", "1s",
	}
	s := startChanged(t, overrideHost, simulated(t, 2, leisurely...), flags, share(t, 0))
	for range 3 {
		a := s.client.stream(t.Context(), "a long story", longTokens)
		if !a.whole() {
			t.Error(a.String())
		}
		if took := a.ended.Sub(a.sent); took < 2*time.Second {
			t.Errorf("the answer took %v: too short to prove anything", took)
		}
	}
	s.picker.idle(t)
	if n := s.picker.failures(); n != 0 {
		t.Errorf("%v failures of healthy servers", n)
	}
	if n := s.picker.metric("signalbox_unlogged_total"); n != 0 {
		t.Errorf("%v requests ended without an entry", n)
	}
}

// TestEnvoyDrainWaitsForBypassingAnswers: an answer that runs on past its stream when Signalbox is told to stop is
// waited for, and recorded as what it was.
func TestEnvoyDrainWaitsForBypassingAnswers(t *testing.T) {
	t.Parallel() // it mostly waits
	s := startChanged(t, overrideHost, simulated(t, 2, leisurely...), []string{"--drain-timeout", "25s"}, share(t, 0))
	for range 20 { // each of Envoy's workers opens its log
		s.client.chat(model, "hello", 2)
	}
	answers := make(chan answer, 1)
	go func() { answers <- s.client.stream(context.Background(), "a long story", longTokens) }()
	eventually(t, 5*time.Second, "the answer runs",
		func() bool { return s.picker.metric("signalbox_outlived_requests") == 1 })
	s.picker.signal(t, syscall.SIGTERM)
	if code := s.picker.exitCode(t, 20*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if a := <-answers; !a.whole() {
		t.Error(a.String())
	}
	if strings.Contains(s.picker.log.text(), "request not served") || s.picker.served() != 21 {
		t.Error("want 21 requests that were served in the log, and no other")
	}
}

// TestEnvoyDiesWithItsAnswers: an Envoy that dies while an answer bypasses Signalbox ends it without a word. Within the
// time of an entry, or once Signalbox ends, the request is lost: neither served nor the fault of its server.
func TestEnvoyDiesWithItsAnswers(t *testing.T) {
	seenElsewhere(t)
	t.Parallel() // it mostly waits
	for name, stop := range map[string]bool{"its load ends": false, "Signalbox ends": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startChanged(t, overrideHost, simulated(t, 1, leisurely...), nil, share(t, 0))
			for range 20 { // each of Envoy's workers opens its log
				s.client.chat(model, "hello", 2)
			}
			eventually(t, 5*time.Second, "all are told", func() bool { return s.picker.served() == 20 })
			ended := make(chan answer, 1)
			go func() { ended <- s.client.stream(context.Background(), "a long story", 50*longTokens) }()
			running := func() float64 { return s.picker.metric("signalbox_outlived_requests") }
			eventually(t, 5*time.Second, "the answer runs", func() bool { return running() == 1 })
			s.envoy.kill()
			if a := <-ended; a.whole() {
				t.Error("the answer came whole: the test proves nothing")
			}
			if stop {
				s.picker.signal(t, syscall.SIGTERM)
				s.picker.exitCode(t, 20*time.Second)
			} else {
				eventually(t, 12*time.Second, "its load ends", func() bool { return running() == 0 })
				s.explains(t, "lost", "first token   not known", "never told its end")
				if n := s.picker.failures(); n != 0 {
					t.Errorf("%v failures of a healthy server", n)
				}
			}
			if log := s.picker.log.text(); s.picker.served() != 20 || !strings.Contains(log, `"reason":"lost"`) {
				t.Errorf("%d requests were served, want 20; and one is lost\n%s", s.picker.served(), log)
			}
		})
	}
}

// served counts the requests that the log says were served.
func (p *picker) served() int { return strings.Count(p.log.text(), `"request served"`) }
