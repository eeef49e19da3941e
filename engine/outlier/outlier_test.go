package outlier_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/messages"
)

var update = flag.Bool("update", false, "write the transcripts anew")

// TestTranscripts plays every transcript of testdata: a line that begins with "= " is a new machine, one that begins
// with "> " is what the machine says to the commands of the line above it. A command is one of
//
//	fail KIND [picked=AGO] [try=INCIDENT]   a failure; of a request that was picked so long ago, that tried under an
//	                                        incident
//	success INCIDENT, abandon INCIDENT      the result of a request that tried under it; now = the one in force
//	refused                                 the endpoint took no connection
//	wait DURATION
//	picks N, began, proved, visible [AGO]     what the endpoint did well otherwise
//	probe [hidden]                          waits until a request may be the probe, whose response is hidden or
//	                                        not, and takes it
//	full, room                              of the pool, for ejected endpoints
//
// and "N*(COMMANDS)" repeats commands that are separated by semicolons.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file) // #nosec G304 -- of testdata
		if err != nil {
			t.Fatal(err)
		}
		got := transcript(t, string(text))
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		} else if got != string(text) {
			t.Errorf("%s: got\n%s\nwant\n%s", file, got, text)
		}
	}
}

func transcript(t *testing.T, text string) string {
	var out strings.Builder
	var s *scene
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "> "):
			continue
		case strings.HasPrefix(line, "= "):
			s = newScene(t)
			fmt.Fprintln(&out, line)
			continue
		case line == "" || strings.HasPrefix(line, "#"):
			fmt.Fprintln(&out, line)
			continue
		}
		fmt.Fprintln(&out, line)
		said := s.play(line)
		fmt.Fprintf(&out, "> %s\n", strings.Join(append(said, s.state()), "; "))
	}
	return out.String()
}

// scene is one machine, its endpoint and its clock.
type scene struct {
	*testing.T
	machine outlier.Machine
	status  *outlier.Status
	answers outlier.Answers
	now     time.Time
	full    bool
}

func newScene(t *testing.T) *scene {
	settings := outlier.Config{FirstEjection: time.Second, LongestEjection: 4 * time.Second}
	return &scene{T: t, machine: outlier.Machine{Config: settings}, now: time.Unix(1_000_000, 0)}
}

func (s *scene) play(commands string) (said []string) {
	for rest := strings.TrimSpace(commands); rest != ""; rest = strings.TrimSpace(strings.TrimPrefix(rest, ";")) {
		times, body, ok := strings.Cut(rest, "*(")
		if n, err := strconv.Atoi(times); ok && err == nil {
			end := s.closing(body)
			for range n {
				said = append(said, s.play(body[:end])...)
			}
			rest = strings.TrimSpace(body[end+1:])
			continue
		}
		var command string
		command, rest, _ = strings.Cut(rest, ";")
		if word := s.do(strings.Fields(command)); word != "" {
			said = append(said, word)
		}
	}
	return said
}

// closing returns where the parenthesis closes that was opened just before text.
func (s *scene) closing(text string) int {
	depth := 1
	for i, c := range text {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 {
			return i
		}
	}
	s.Fatalf("no parenthesis closes in %q", text)
	return 0
}

// do plays one command, and returns what it says by itself.
func (s *scene) do(words []string) string {
	switch words[0] {
	case "fail":
		return s.step(s.failure(words[1:]))
	case "success":
		return s.step(outlier.Event{What: outlier.SuccessSeen, Pick: messages.Pick{Incident: s.number(words[1])}})
	case "abandon":
		return s.step(outlier.Event{What: outlier.ProbeAbandoned, Pick: messages.Pick{Incident: s.number(words[1])}})
	case "refused":
		return s.step(outlier.Event{What: outlier.ConnectRefused, Kind: messages.ConnectFailed})
	case "probe":
		return s.probe(len(words) == 1)
	case "wait":
		s.now = s.now.Add(s.duration(words[1]))
	case "picks":
		s.answers.Picks += s.number(words[1])
	case "began":
		s.answers.Began = s.ago(words)
	case "proved":
		s.answers.Proved = s.ago(words)
	case "visible":
		s.answers.Proved, s.answers.Visible = s.ago(words), s.ago(words)
	case "full", "room":
		s.full = words[0] == "full"
	default:
		s.Fatalf("unknown command %q", words)
	}
	return ""
}

func (s *scene) failure(words []string) outlier.Event {
	e := outlier.Event{What: outlier.FailureSeen}
	for e.Kind = messages.Overload; e.Kind.String() != words[0]; e.Kind++ {
		if e.Kind.String() == "unknown" {
			s.Fatalf("unknown kind of failure %q", words[0])
		}
	}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "picked":
			e.Pick.At = s.now.Add(-s.duration(value))
		case "try":
			e.Pick.Incident = s.number(value)
		default:
			s.Fatalf("unknown word %q", word)
		}
	}
	return e
}

func (s *scene) step(e outlier.Event) string {
	e.Answers, e.Room = s.answers, func() bool { return !s.full }
	e.Probing = s.status != nil && s.status.Probing()
	effect := s.machine.Step(s.now, e)
	if effect.Changed {
		s.status = s.machine.Status()
	}
	if (s.status == nil) != (s.machine.State(s.now) == outlier.Healthy) {
		s.Errorf("status %+v in state %v", s.status, s.machine.State(s.now))
	}
	if effect.Check {
		return "check"
	}
	return ""
}

// probe waits for the time of the probe, and takes it.
func (s *scene) probe(visible bool) string {
	for waited := time.Duration(0); waited < 2*time.Minute && s.status != nil; waited += 100 * time.Millisecond {
		if s.status.Due(s.now, visible) {
			if !s.status.Probe() || s.status.Probe() || s.status.Due(s.now, visible) {
				s.Error("two requests are the probe")
			}
			return fmt.Sprintf("probe of %d after %v", s.status.Incident, waited)
		}
		s.now = s.now.Add(100 * time.Millisecond)
	}
	return "no probe"
}

func (s *scene) state() string {
	state := s.machine.State(s.now)
	if s.status == nil {
		return state.String()
	}
	under := "degraded"
	if s.status.Ejected {
		under = "ejected"
	}
	if state != outlier.HalfOpen {
		return fmt.Sprintf("%s by %s, incident %d, for %v", under, s.status.Cause, s.status.Incident,
			s.status.Until.Sub(s.now))
	}
	return fmt.Sprintf("half-open, %s by %s, incident %d", under, s.status.Cause, s.status.Incident)
}

func (s *scene) number(word string) uint64 {
	if word == "now" && s.status != nil {
		return s.status.Incident
	}
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		s.Fatal(err)
	}
	return n
}

func (s *scene) duration(word string) time.Duration {
	d, err := time.ParseDuration(word)
	if err != nil {
		s.Fatal(err)
	}
	return d
}

// ago returns the time that the second word names, now without one.
func (s *scene) ago(words []string) time.Time {
	if len(words) == 1 {
		return s.now
	}
	return s.now.Add(-s.duration(words[1]))
}
