package app

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/signalbox-epp/signalbox/adapters/telemetry/terminaltest"
	"github.com/signalbox-epp/signalbox/messages"
)

// pty is a pseudo-terminal, and what was drawn on it.
type pty struct {
	outer, inner *os.File
	mu           sync.Mutex
	drawn        strings.Builder
}

func newPTY(t *testing.T) *pty {
	t.Helper()
	outer, inner := terminaltest.Open(t)
	p := &pty{outer: outer, inner: inner}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(p, outer) // until nothing has the inner end open
	}()
	t.Cleanup(func() {
		inner.Close()
		_, _ = outer.WriteString("\n") // a read of the inner end that still waits for a key ends
		<-read
		outer.Close()
	})
	return p
}

func (p *pty) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drawn.Write(b)
}

func (p *pty) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drawn.String()
}

// frame is what was drawn last and is complete.
func (p *pty) frame() string {
	frames := strings.Split(p.text(), toTheTop)
	for _, f := range backwards(frames[1:]) {
		if whole, _, ok := strings.Cut(f, clearBelow); ok {
			return strings.ReplaceAll(strings.ReplaceAll(whole, clearToEnd, ""), "\r\n", "\n")
		}
	}
	return ""
}

func backwards(list []string) []string {
	out := make([]string, 0, len(list))
	for i := len(list) - 1; i >= 0; i-- {
		out = append(out, list[i])
	}
	return out
}

func (p *pty) resize(t *testing.T, columns, rows uint16) {
	t.Helper()
	terminaltest.Resize(t, p.outer, columns, rows)
}

func (p *pty) state(t *testing.T) unix.Termios {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(p.inner.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *s
}

// watching is a top that runs in a pseudo-terminal of 100 columns and 20 rows.
func watching(ctx context.Context, t *testing.T, addr string) (*pty, <-chan error) {
	t.Helper()
	t.Setenv("TERM", "xterm")
	p := newPTY(t)
	p.resize(t, 100, 20)
	root := newRoot()
	root.SetArgs([]string{"top", "--addr", addr})
	root.SetIn(p.inner)
	root.SetOut(p.inner)
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	return p, ended
}

func (p *pty) shows(t *testing.T, what string, parts ...string) {
	t.Helper()
	within10s(t, what, func() bool {
		f := p.frame()
		for _, part := range parts {
			if !strings.Contains(f, part) {
				return false
			}
		}
		return true
	})
}

// ends checks that top ended well, and left the terminal as it was.
func (p *pty) ends(t *testing.T, ended <-chan error, before unix.Termios) {
	t.Helper()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("top ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("top did not end")
	}
	if p.state(t) != before {
		t.Error("the terminal is not as it was")
	}
	within10s(t, "the screen that was there before", func() bool { return strings.HasSuffix(p.text(), leaveScreen) })
	if text := p.text(); strings.Count(text, enterScreen) != 1 || strings.Count(text, leaveScreen) != 1 {
		t.Errorf("the screen was taken %d times and given back %d times", strings.Count(text, enterScreen),
			strings.Count(text, leaveScreen))
	}
}

func TestTopIsLiveInATerminal(t *testing.T) {
	s := remembering(t)
	p, ended := watching(t.Context(), t, s.at("metrics-port"))
	before := p.state(t)
	p.shows(t, "endpoints and what was not served", "2 endpoints", "vllm-a", "vllm-b", "not scraped", "503 overloaded",
		"q ends")
	s.tree.picker.Refused(messages.RequestRefused{Record: messages.Record{Request: 99, Model: "late", Status: 503,
		Reason: messages.NoEndpoints, ArrivedAt: time.Now()}})
	p.shows(t, "a request that came later", "503 no-endpoints")
	p.resize(t, 45, 9)
	within10s(t, "a view for the small screen", func() bool {
		lines := strings.Split(p.frame(), "\n")
		for _, l := range lines {
			if utf8.RuneCountInString(l) > 45 {
				return false
			}
		}
		return len(lines) <= 9
	})
	p.resize(t, 150, 40)
	p.shows(t, "a view for the large screen", "engine", "503 no-endpoints")
	if _, err := p.outer.WriteString("xq"); err != nil {
		t.Fatal(err)
	}
	p.ends(t, ended, before)
}

// Two drawings are a second apart, however often the size changes meanwhile.
func TestTopDrawsOnceASecond(t *testing.T) {
	at, began := remembering(t).at("metrics-port"), time.Now()
	p, ended := watching(t.Context(), t, at)
	before := p.state(t)
	drawings := func() int { return strings.Count(p.text(), toTheTop) }
	width := uint16(50)
	within10s(t, "four drawings", func() bool {
		width++
		p.resize(t, width, 20)
		return drawings() >= 4
	})
	if took := time.Since(began); took < 3*shortestInterval-shortestInterval/10 {
		t.Errorf("4 drawings within %v", took)
	}
	if _, err := p.outer.WriteString("\x03"); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	p.ends(t, ended, before)
}

func TestTopOutlivesARestart(t *testing.T) {
	first := started(t)
	addr := first.at("metrics-port")
	ctx, interrupt := context.WithCancel(t.Context())
	p, ended := watching(ctx, t, addr)
	before := p.state(t)
	p.shows(t, "the first process", "0 endpoints", "no requests yet")
	if err := first.stop(0); err != nil {
		t.Fatal(err)
	}
	p.shows(t, "that it is away", "no answer for", "nothing listens on "+addr, "0 endpoints")
	port := fmt.Sprint(netip.MustParseAddrPort(addr).Port())
	second := remembering(t, "--metrics-port", port)
	if second.at("metrics-port") != addr {
		t.Fatal("the second process listens elsewhere")
	}
	p.shows(t, "the second process", "2 endpoints", "503 overloaded")
	if strings.Contains(p.frame(), "no answer") {
		t.Errorf("the problem is still shown\n%s", p.frame())
	}
	interrupt() // as a signal does
	p.ends(t, ended, before)
}

// Without a terminal, or with --once, it is printed once, without a byte for terminals.
func TestTopPrintsOnceWithoutATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	s := remembering(t)
	out, err := command(t, "top", "--addr", s.at("metrics-port"))
	for _, want := range []string{"2 endpoints", "vllm-a", "503 overloaded"} {
		if err != nil || !strings.Contains(out, want) || strings.ContainsAny(out, "\x1b\r") ||
			strings.Contains(out, "q ends") {
			t.Errorf("%v, want %q in\n%q", err, want, out)
		}
	}
	for _, c := range []struct {
		term string
		args []string
	}{{"xterm", []string{"--once"}}, {"dumb", nil}} {
		t.Setenv("TERM", c.term)
		p := newPTY(t)
		p.resize(t, 60, 10)
		root := newRoot()
		root.SetArgs(append([]string{"top", "--addr", s.at("metrics-port")}, c.args...))
		root.SetIn(p.inner)
		root.SetOut(p.inner)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		within10s(t, "all of it", func() bool { return strings.Count(p.text(), "503 overloaded") == 3 })
		if strings.Contains(p.text(), "\x1b") {
			t.Errorf("TERM=%s %q: %q", c.term, c.args, p.text())
		}
	}
}

func TestTopThatCannotBeginSaysWhy(t *testing.T) {
	addr := unused(t)
	p, ended := watching(t.Context(), t, addr)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "nothing listens on "+addr) || p.text() != "" {
		t.Errorf("%v, drawn %q", err, p.text())
	}
	if _, err := command(t, "top", "--interval", "10ms", "--addr", addr); err == nil ||
		!strings.Contains(err.Error(), "--interval: got 10ms, want 1s or more") {
		t.Errorf("%v", err)
	}
}
