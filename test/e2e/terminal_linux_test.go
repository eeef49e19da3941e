package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/telemetry/terminaltest"
)

const screenColumns = 70

// screen is a terminal as far as a program needs one that writes lines and draws over the last: it wraps at its width.
type screen struct {
	mu     sync.Mutex
	rows   [][]rune
	column int
	rest   string // of an escape sequence that has not come whole
}

var escape = regexp.MustCompile(`^\x1b\[[0-9;?]*[A-Za-z]`)

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.rest + string(p)
	s.rest = ""
	for text != "" {
		if text[0] != '\x1b' {
			r := []rune(text)[0]
			s.put(r)
			text = text[len(string(r)):]
			continue
		}
		sequence := escape.FindString(text)
		if sequence == "" {
			s.rest = text
			break
		}
		if sequence == "\x1b[K" {
			row := s.row()
			*row = (*row)[:min(s.column, len(*row))]
		}
		text = text[len(sequence):]
	}
	return len(p), nil
}

func (s *screen) row() *[]rune {
	if len(s.rows) == 0 {
		s.rows = append(s.rows, nil)
	}
	return &s.rows[len(s.rows)-1]
}

func (s *screen) put(r rune) {
	switch r {
	case '\r':
		s.column = 0
		return
	case '\n':
		s.rows = append(s.rows, nil)
		return
	}
	if s.column == screenColumns {
		s.rows, s.column = append(s.rows, nil), 0
	}
	row := s.row()
	for len(*row) <= s.column {
		*row = append(*row, ' ')
	}
	(*row)[s.column] = r
	s.column++
}

// shown are the rows that are not empty.
func (s *screen) shown() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, row := range s.rows {
		if text := strings.TrimRight(string(row), " "); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// last is the last of them, "" if there is none.
func (s *screen) last() string {
	if rows := s.shown(); len(rows) > 0 {
		return rows[len(rows)-1]
	}
	return ""
}

// onTerminal starts a program on a terminal of its own, at which Ctrl-C reaches its whole group.
func onTerminal(t *testing.T, args ...string) (keys *os.File, seen *screen, ended <-chan error) {
	t.Helper()
	outer, inner := terminaltest.Open(t)
	terminaltest.Resize(t, inner, screenColumns, 40)
	cmd := exec.Command(binary, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inner, inner, inner
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inner.Close()
	seen = &screen{}
	done := make(chan error, 1)
	go func() {
		piece := make([]byte, 4096)
		for {
			n, err := outer.Read(piece)
			_, _ = seen.Write(piece[:n]) // never fails
			if err != nil {
				break // the last of its users is gone
			}
		}
		done <- cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails if it has ended
		outer.Close()
		if t.Failed() {
			t.Logf("on the terminal:\n%s", strings.Join(seen.shown(), "\n"))
		}
	})
	return outer, seen, done
}

// TestEnvoyUpOnATerminal: one line below all others says how it stands, is drawn over, and mixes with none of them.
func TestEnvoyUpOnATerminal(t *testing.T) {
	t.Setenv("ENVOY", envoyPath)
	keys, seen, ended := onTerminal(t, append([]string{"up", "--sim", "3", "-v", "3"}, anyPorts...)...)
	last := seen.last
	eventually(t, 20*time.Second, "the status stands at the end", func() bool {
		return strings.HasPrefix(last(), "requests 0, failed 0, in flight 0 | ") &&
			strings.Contains(strings.Join(seen.shown(), ""), "Ctrl-C ends all")
	})
	url := regexp.MustCompile(`curl -i (http://[0-9.:]+)/`).FindStringSubmatch(strings.Join(seen.shown(), ""))
	if url == nil {
		t.Fatal("no curl line")
	}
	c := newClient(url[1])
	t.Cleanup(c.close)
	for range 3 { // each is a line of the log, at that verbosity
		if a := c.chat("sim-model", "hello", 4); !a.whole() {
			t.Fatal(a.String())
		}
	}
	eventually(t, 10*time.Second, "the status counts requests",
		func() bool { return strings.HasPrefix(last(), "requests 3, failed 0, in flight 0 | ") })
	statusIsApart(t, seen.shown(), 3)
	answers := make(chan answer, 1)
	go func() {
		answers <- c.do(t.Context(), http.MethodPost, "/v1/chat/completions",
			chatBody("sim-model", "A long story.", 60, true), nil)
	}()
	eventually(t, 10*time.Second, "an answer runs", func() bool { return strings.Contains(last(), "in flight 1 | ") })
	if _, err := keys.Write([]byte{3}); err != nil { // Ctrl-C, which the terminal sends to the whole group
		t.Fatal(err)
	}
	if a := <-answers; !a.whole() {
		t.Errorf("the answer that ran: %s", a.String())
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Ctrl-C does not end it")
	}
	rows := seen.shown()
	if last() != "Ended." || strings.Contains(strings.Join(rows, "\n"), "in flight") ||
		strings.Contains(strings.Join(rows, ""), "is started again") {
		t.Errorf("at the end: %q", rows[max(0, len(rows)-4):])
	}
}

// statusIsApart: the status is the last row, and stands in no other; each served request has its line of the log.
func statusIsApart(t *testing.T, rows []string, requests int) {
	t.Helper()
	for i, row := range rows {
		if strings.Contains(row, "in flight") != (i == len(rows)-1) || strings.Contains(row, "\x1b") {
			t.Errorf("row %d of %d: %q", i, len(rows), row)
		}
	}
	if n := strings.Count(strings.Join(rows, "\n"), "request served"); n != requests {
		t.Errorf("%d lines of the log for %d requests", n, requests)
	}
	if n := len([]rune(rows[len(rows)-1])); n > screenColumns-3 { // of which ^C takes two
		t.Errorf("the status takes %d of %d columns", n, screenColumns)
	}
}
