package discovery

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/signalbox-epp/signalbox/messages"
)

func TestChangesAndWarningsAreSaid(t *testing.T) {
	s := newScene(t)
	changes, warnings := make(chan Change, 9), make(chan Warnings, 9)
	s.write("endpoints:\n- {name: a, address: 10.0.0.1, port: 1}\n- {name: a, address: 10.0.0.2, port: 1}\n" +
		"- {name: b, address: 10.0.0.3, port: 1}\n")
	s.run(Config{Told: func(c Change) { changes <- c }, Warnings: func(p Warnings) { warnings <- p }})
	says := func(want Change) {
		t.Helper()
		if diff := cmp.Diff(want, <-changes); diff != "" {
			t.Errorf("change, -want +got: %s", diff)
		}
	}
	s.tells("10.0.0.2:1", "10.0.0.3:1")
	says(Change{Endpoints: 2, Added: []string{"a (10.0.0.2:1)", "b (10.0.0.3:1)"}})
	if got := strings.Join(lines(<-warnings),
		"\n"); got != "line 2: name: a stands in line 3 again: this entry is left out" {
		t.Errorf("warnings: %s", got)
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
	if len(warnings) > 0 {
		t.Errorf("warnings were said again: %v", <-warnings)
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

// A file that is bad is a concern, in one line, until it is read and good, also if it says then what it said before. A
// name that does not resolve is none.
func TestABadFileIsAConcern(t *testing.T) {
	s := newScene(t)
	good := endpointsAt("10.0.0.1")
	s.write(good)
	s.run(Config{})
	s.tells("10.0.0.1:8000")
	read := func() float64 { return testutil.ToFloat64(s.file.Collectors()[0]) }
	if c := s.file.Concern(); c != "" || read() != 1 {
		t.Errorf("a good file: concern %q, metric %v; want none, 1", c, read())
	}
	s.write("endpoints:\n- {name: a}\n- {name: b}\n")
	s.reports("line 2: ")
	if c := s.file.Concern(); !strings.Contains(c, "line 2: ") || strings.Contains(c, "\n") || read() != 0 {
		t.Errorf("a bad file: concern %q, metric %v; want its first line, 0", c, read())
	}
	s.write(good)
	s.reports("")
	if c := s.file.Concern(); c != "" || read() != 1 {
		t.Errorf("a good file again: concern %q, metric %v; want none, 1", c, read())
	}
}

// A role that no filter reads is named when an endpoint gets it, and not again.
func TestOddRolesAreNamedOnce(t *testing.T) {
	of := func(role string) []messages.EndpointSpec {
		return []messages.EndpointSpec{{Name: "a", Address: "10.0.0.1:1", Labels: messages.MapOf(map[string]string{
			"llm-d.ai/role": role,
		})}}
	}
	for _, c := range []struct {
		before, after []messages.EndpointSpec
		want          []string
	}{
		{nil, of("decod"), []string{"a: decod"}},
		{of("decode"), of("decod"), []string{"a: decod"}},
		{of("decod"), of("decod"), nil},
		{nil, of("both"), nil},
	} {
		if got := Difference(c.before, c.after).OddRoles; !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
