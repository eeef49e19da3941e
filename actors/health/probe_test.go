package health_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// probe takes the probe of the first endpoint, which is suspended, once its time has come, and gives how long that took.
func (s *scene) probe() time.Duration {
	s.Helper()
	for waited := time.Duration(0); waited < time.Minute; waited += 100 * time.Millisecond {
		if s.all[0].Health().Probe(s.actor.Clock()) {
			return waited
		}
		s.actor.Advance(100 * time.Millisecond)
	}
	s.Fatal("no probe within a minute")
	return 0
}

// tried is what became of a request for which the first endpoint was picked under the suspension in force.
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
		if s.all[0].Health().Probe(s.actor.Clock()) {
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
