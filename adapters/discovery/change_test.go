package discovery

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestChangesAndDoublesAreSaid(t *testing.T) {
	s := newScene(t)
	changes, doubles := make(chan Change, 9), make(chan Doubles, 9)
	s.write("endpoints:\n- {name: a, address: 10.0.0.1, port: 1}\n- {name: a, address: 10.0.0.2, port: 1}\n" +
		"- {name: b, address: 10.0.0.3, port: 1}\n")
	s.run(Config{Told: func(c Change) { changes <- c }, Doubles: func(p Doubles) { doubles <- p }})
	says := func(want Change) {
		t.Helper()
		if diff := cmp.Diff(want, <-changes); diff != "" {
			t.Errorf("change, -want +got: %s", diff)
		}
	}
	s.tells("10.0.0.2:1", "10.0.0.3:1")
	says(Change{Endpoints: 2, Added: []string{"a (10.0.0.2:1)", "b (10.0.0.3:1)"}})
	if got := strings.Join(lines(<-doubles),
		"\n"); got != "line 2: name: a stands in line 3 again: this entry is left out" {
		t.Errorf("doubles: %s", got)
	}
	s.write("endpoints:\n- {name: a, address: 10.0.0.1, port: 1}\n- {name: a, address: 10.0.0.2, port: 1}\n")
	s.tells("10.0.0.2:1")
	says(Change{Endpoints: 1, Removed: []string{"b (10.0.0.3:1)"}})
	s.rename("endpoints:\n- {name: c, address: 10.0.0.2, port: 1}\n" +
		"- {name: b, address: 10.0.0.3, port: 1, labels: {x: y}}\n")
	s.tells("10.0.0.2:1", "10.0.0.3:1")
	says(Change{Endpoints: 2, Added: []string{"b (10.0.0.3:1)", "c (10.0.0.2:1)"}, Removed: []string{"a (10.0.0.2:1)"}})
	s.rename("endpoints: []\n")
	s.tells()
	says(Change{Removed: []string{"b (10.0.0.3:1)", "c (10.0.0.2:1)"}})
	if len(doubles) > 0 {
		t.Errorf("doubles were said again: %v", <-doubles)
	}
}

// TestASetSaysWhenItWasThere: neither what it waits for nor a pool that refuses it makes it look newer or older.
func TestASetSaysWhenItWasThere(t *testing.T) {
	s, book := newScene(t), newPhonebook()
	s.write(endpointsAt("10.0.0.1"))
	began := time.Now()
	s.run(Config{Resolver: book, LookEvery: 20 * time.Millisecond})
	m := s.tells("10.0.0.1:8000")
	within(t, m.Found, began, time.Now())

	began = time.Now()
	s.write(endpointsAt("10.0.0.2"))
	m = s.tells("10.0.0.2:8000")
	within(t, m.Found, began, time.Now())

	for range 28 { // longer than names are waited for
		s.refuse <- struct{}{}
	}
	began = time.Now()
	s.write(endpointsAt("10.0.0.3"))
	m = s.tells("10.0.0.3:8000")
	within(t, m.Found, began, time.Now().Add(-namesWait))

	began = time.Now()
	s.write(endpointsAt("10.0.0.4", "vllm")) // which hangs
	m = s.tells("10.0.0.4:8000")
	within(t, m.Found, began.Add(namesWait), time.Now())
}

func within(t *testing.T, at, from, until time.Time) {
	t.Helper()
	if at.Before(from) || at.After(until) {
		t.Errorf("found at %v, want between %v and %v", at, from, until)
	}
}
