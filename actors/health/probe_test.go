package health_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// takesProbe takes the probe of the first endpoint, if there is one now for a request whose answer is shown.
func (s *scene) takesProbe() bool {
	h := s.all[0].Health()
	return h.Due(s.actor.Clock(), true) && h.Probe()
}

// probe takes the probe of the first endpoint, once its time has come, and gives how long that took.
func (s *scene) probe() time.Duration {
	s.Helper()
	for waited := time.Duration(0); waited < time.Minute; waited += 100 * time.Millisecond {
		if s.takesProbe() {
			return waited
		}
		s.actor.Advance(100 * time.Millisecond)
	}
	s.Fatal("no probe within a minute")
	return 0
}

// tried is what became of a request that tried the first endpoint under what is held against it.
func (s *scene) tried(ended messages.ProbeEnded) messages.ProbeEnded {
	ended.Endpoint, ended.Since = s.all[0].ID, s.all[0].Health().Since
	return ended
}

func TestBackOffGrowsAndAProbeHeals(t *testing.T) {
	s := newScene(t)
	s.sees(0, messages.ServerError, 3)
	since := s.all[0].Health().Since
	for _, want := range []time.Duration{900 * time.Millisecond, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
		if got := s.probe(); got != want {
			t.Errorf("tried after %v, want %v", got, want)
		}
		if s.takesProbe() {
			t.Fatal("two requests try at a time")
		}
		s.actor.Tell(s.tried(messages.ProbeEnded{Evidence: messages.ServerError}))
		s.suspended(0, true)
	}
	if got := s.all[0].Health().Since; !got.Equal(since) {
		t.Errorf("suspended since %v, want %v", got, since)
	}
	s.probe()
	s.actor.Tell(s.tried(messages.ProbeEnded{Answered: true}))
	if h := s.all[0].Health(); h != nil {
		t.Errorf("it answered, and %+v is held against it", h)
	}
	s.actor.Advance(2 * time.Minute)
	s.sees(0, messages.ServerError, 3)
	if got := s.probe(); got != 900*time.Millisecond {
		t.Errorf("tried after %v, want as after the first suspension", got)
	}
}

func TestProbeOfWhichNothingCameIsGivenBack(t *testing.T) {
	s := newScene(t)
	s.sees(0, messages.ConnectionBroken, 2)
	s.probe()
	s.actor.Tell(s.tried(messages.ProbeEnded{}))
	s.suspended(0, true)
	if got := s.probe(); got != 0 {
		t.Errorf("the next request may try after %v, want at once", got)
	}
}

// Requests that were picked for before it recovered tell of it late.
func TestOldEvidenceIsVoid(t *testing.T) {
	s := newScene(t)
	picked := s.actor.Clock()
	s.sees(0, messages.ServerError, 3)
	s.probe()
	s.actor.Tell(s.tried(messages.ProbeEnded{Answered: true}))
	for range 5 {
		s.actor.Tell(messages.EvidenceSeen{Endpoint: s.all[0].ID, Evidence: messages.NoFirstToken, Picked: picked})
	}
	if h := s.all[0].Health(); h != nil {
		t.Errorf("%+v is held against it", h)
	}
	s.sees(0, messages.NoFirstToken, 2)
	s.suspended(0, true)
}

// The end of a try under an earlier suspension says nothing about the one in force.
func TestProbeOfAnEarlierSuspensionIsVoid(t *testing.T) {
	s := newScene(t)
	s.sees(0, messages.ServerError, 3)
	old := s.tried(messages.ProbeEnded{Answered: true})
	s.actor.Tell(old)
	s.sees(0, messages.ConnectionBroken, 2)
	s.actor.Tell(old)
	s.suspended(0, true)
}

// What was no suspension ends by one good answer, and one bad one decides. Who is busy is only left alone for longer.
func TestDoubtEndsByOneProbe(t *testing.T) {
	const first = 1900 * time.Millisecond
	for name, c := range map[string]struct {
		first, then messages.Evidence // NoEvidence = it answers well
		waits       []time.Duration   // for the probes that end so, and for the one behind them
		suspended   bool
	}{
		"well after a failure":             {messages.ServerError, messages.NoEvidence, []time.Duration{first}, false},
		"well after it was busy":           {messages.Overload, messages.NoEvidence, []time.Duration{first}, false},
		"failed again":                     {messages.ServerError, messages.ServerError, []time.Duration{first, time.Second}, true},
		"failed otherwise":                 {messages.ServedElsewhere, messages.ErrorInStream, []time.Duration{first, time.Second}, true},
		"silent":                           {messages.ServerError, messages.NoFirstToken, []time.Duration{first, time.Second}, true},
		"busy after a failure":             {messages.ServerError, messages.Overload, []time.Duration{first, 4 * time.Second, 4 * time.Second}, false},
		"busy again and again":             {messages.Overload, messages.Overload, []time.Duration{first, 4 * time.Second, 4 * time.Second}, false},
		"busy in the stream, again":        {messages.OverloadInStream, messages.OverloadInStream, []time.Duration{first, 4 * time.Second}, false},
		"failed for the first time, later": {messages.Overload, messages.ServerError, []time.Duration{first, 2 * time.Second}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.sees(0, c.first, 1)
			for i, want := range c.waits {
				if got := s.probe(); got != want {
					t.Errorf("tried after %v, want %v", got, want)
				}
				if s.takesProbe() {
					t.Fatal("two requests try at a time")
				}
				if i < len(c.waits)-1 || c.then == messages.NoEvidence {
					s.actor.Tell(s.tried(messages.ProbeEnded{Answered: c.then == messages.NoEvidence, Evidence: c.then}))
				}
			}
			s.suspended(0, c.suspended)
			if h := s.all[0].Health(); c.then == messages.NoEvidence && h != nil {
				t.Errorf("it answered, and %+v is held against it", h)
			}
		})
	}
}

// A failure among good answers is one failure, also if a probe meets it.
func TestProbeThatFailsAmongGoodAnswers(t *testing.T) {
	for what, shown := range map[messages.Evidence]bool{messages.ServerError: false, messages.ErrorInStream: true} {
		t.Run(what.String(), func(t *testing.T) {
			s := newScene(t)
			s.sees(0, what, 1)
			s.all[0].Picks.Add(2000)
			s.probe()
			s.all[0].Answered(s.actor.Clock())
			s.all[0].Proved(s.actor.Clock(), shown)
			s.actor.Tell(s.tried(messages.ProbeEnded{Evidence: what}))
			s.suspended(0, false)
			if got := s.probe(); got != 2*time.Second {
				t.Errorf("tried after %v, want 2s", got)
			}
		})
	}
}

// Evidence that comes while a probe is awaited neither puts it off nor makes its end void.
func TestDoubtIsNotRenewed(t *testing.T) {
	s := newScene(t)
	s.all[0].Picks.Add(2000)
	s.sees(0, messages.Overload, 15)
	if got := s.probe(); got != 500*time.Millisecond {
		t.Errorf("tried after another %v, want 500ms", got)
	}
	probe := s.tried(messages.ProbeEnded{Answered: true})
	s.sees(0, messages.Overload, 1)
	s.sees(0, messages.ServerError, 1)
	s.actor.Tell(probe)
	if h := s.all[0].Health(); h != nil {
		t.Errorf("it answered, and %+v is held against it", h)
	}
}

// Who was tried and found silent is well again if the answer comes after all.
func TestLateAnswerOfAProbeHeals(t *testing.T) {
	s := newScene(t)
	s.sees(0, messages.ServerError, 1)
	s.probe()
	probe := s.tried(messages.ProbeEnded{Evidence: messages.NoFirstToken})
	s.actor.Tell(probe)
	s.suspended(0, true)
	probe.Answered, probe.Evidence = true, messages.NoEvidence
	s.actor.Tell(probe)
	if h := s.all[0].Health(); h != nil {
		t.Errorf("it answered, and %+v is held against it", h)
	}
}

// A probe whose answer began well and failed after all has failed. Nothing of an earlier one counts.
func TestProbeThatFailsBehindItsFirstToken(t *testing.T) {
	for what, suspended := range map[messages.Evidence]bool{messages.ErrorInStream: true, messages.OverloadInStream: false} {
		t.Run(what.String(), func(t *testing.T) {
			s := newScene(t)
			s.sees(0, messages.ErrorInStream, 1)
			s.probe()
			probe := s.tried(messages.ProbeEnded{Answered: true})
			s.actor.Tell(probe)
			probe.Answered, probe.Evidence = false, what
			s.actor.Tell(probe)
			s.suspended(0, suspended)
			if h := s.all[0].Health(); h == nil || h.Why != what {
				t.Errorf("held against it: %+v", h)
			}
			s.probe()
			s.actor.Tell(s.tried(messages.ProbeEnded{Answered: true}))
			probe.Since = probe.Since.Add(-time.Hour)
			s.actor.Tell(probe)
			if h := s.all[0].Health(); h != nil {
				t.Errorf("%+v is held against it for an earlier probe", h)
			}
		})
	}
}

// Nobody who tried it before it was suspended can end that.
func TestProbeOfADoubtSaysNothingOfASuspension(t *testing.T) {
	s := newScene(t)
	s.sees(0, messages.ServerError, 1)
	s.probe()
	probe := s.tried(messages.ProbeEnded{Answered: true})
	s.sees(0, messages.NoFirstToken, 1)
	s.suspended(0, true)
	s.actor.Tell(probe)
	s.suspended(0, true)
}

// A busy endpoint that recovered is left alone as shortly as at first.
func TestGoodAnswerMakesTheNextPauseShort(t *testing.T) {
	s := newScene(t)
	for range 2 {
		s.sees(0, messages.Overload, 1)
		for _, want := range []time.Duration{1900 * time.Millisecond, 4 * time.Second} {
			if got := s.probe(); got != want {
				t.Errorf("tried after %v, want %v", got, want)
			}
			s.actor.Tell(s.tried(messages.ProbeEnded{Answered: want == 4*time.Second, Evidence: messages.Overload}))
		}
	}
}

// Only what a probe's own answer takes back takes it back, and once: many requests may have been picked when all were suspended.
func TestHealingIsTakenBackOnce(t *testing.T) {
	s := newScene(t)
	s.sees(0, messages.ServerError, 3)
	well := s.tried(messages.ProbeEnded{Answered: true})
	late := s.tried(messages.ProbeEnded{Evidence: messages.ErrorInStream})
	s.probe()
	s.actor.Tell(well)
	s.actor.Tell(late)
	s.suspended(0, true)
	s.actor.Tell(well) // of another request that was picked then
	s.suspended(0, true)
	s.probe()
	s.actor.Tell(s.tried(messages.ProbeEnded{Answered: true}))
	s.actor.Tell(late)
	if h := s.all[0].Health(); h != nil {
		t.Errorf("%+v is held against it", h)
	}
}

// A probe that nothing came of is given back also if only some requests may take it.
func TestProbeGivenBackCanBeTakenAtOnce(t *testing.T) {
	s := newScene(t)
	s.sees(0, messages.ErrorInStream, 3)
	s.actor.Advance(2 * time.Minute)
	for range 2 {
		if h := s.all[0].Health(); !h.Due(s.actor.Clock(), false) || !h.Probe() {
			t.Fatal("it cannot be tried by a request whose answer is not shown")
		}
		s.actor.Tell(s.tried(messages.ProbeEnded{}))
	}
}
