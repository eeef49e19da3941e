package window

import (
	"testing"
	"time"
)

// The window of an endpoint that is lost begins anew, as a new one's, and grows as fast. Nothing is left of what the
// dead process showed.
func TestLostEndpointBeginsAnew(t *testing.T) {
	s := newScene(t, 64)
	s.play(30*time.Second, honest)
	was := s.Limits()
	if was.Requests < 60 || !was.Found {
		t.Fatalf("learned %+v, want 60 requests or more", was)
	}
	s.Lost(s.now)
	if got := s.Limits(); got != (Limits{Requests: Initial}) || s.Why() != (Why{Begun, 0, s.now, was.Requests}) {
		t.Errorf("lost: %+v, %+v, want that of a new one", got, s.Why())
	}
	s.Lost(s.now.Add(time.Second))
	if s.Why().At != s.now {
		t.Error("it began anew twice")
	}
	s.play(30*time.Second, honest)
	if got := s.Limits(); got.Requests < 60 || !got.Found {
		t.Errorf("30 s later: %+v, want 60 requests or more", got)
	}
	for _, few := range []Limits{
		{Requests: Initial, Found: true}, {Requests: 3, Tokens: 9, Found: true, Pace: Pace{Rate: 100}},
	} {
		w := New(began, few)
		w.FirstToken(began, First{Picked: began, Took: time.Second, Prompt: 64}, Load{Requests: 1})
		if w.Lost(began); w.Limits() != (Limits{Requests: Initial}) || w.first != (firsts{}) {
			t.Errorf("%+v became %+v, and has first tokens of %v", few, w.Limits(), w.first.usual)
		}
	}
	w := New(began, Limits{Pace: Pace{Rate: 100}})
	if w.Lost(began); w.Limits() != (Limits{}) {
		t.Errorf("without a bound: %+v", w.Limits())
	}
}
