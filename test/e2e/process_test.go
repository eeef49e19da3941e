package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// process is one child that a test started. It ends with the test at the latest; its output is shown if the test fails.
type process struct {
	name   string
	cmd    *exec.Cmd
	log    *lineLog
	ended  chan struct{} // closed once the process is gone
	result error         // valid after ended
}

func start(t *testing.T, name, path string, args ...string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(path, args...), log: &lineLog{grew: make(chan struct{})},
		ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	go func() {
		p.result = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.stop()
		text := p.log.text()
		if strings.Contains(text, "DATA RACE") {
			t.Errorf("%s reported a data race", name)
		}
		if strings.Contains(text, "\npanic:") || strings.Contains(text, "fatal error:") {
			t.Errorf("%s crashed", name)
		}
		if t.Failed() {
			t.Logf("--- %s (pid %d, %v)\n%s", name, p.cmd.Process.Pid, p.result, tail(text, 80))
		}
	})
	return p
}

// stop asks with SIGTERM and, five seconds later, ends the process.
func (p *process) stop() {
	if p.gone() {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
		p.kill()
	}
}

func (p *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
}

// kill ends the process without a warning and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

func (p *process) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// exitCode waits for the process to end by itself, within a time and twice what the machine is late by.
func (p *process) exitCode(t *testing.T, within time.Duration) int {
	t.Helper()
	ends := func(within time.Duration) bool {
		select {
		case <-p.ended:
			return true
		case <-time.After(within):
			return false
		}
	}
	machine := lateness.Begin()
	ended := ends(within)
	if _, late := machine.End(); !ended && !ends(2*late) {
		t.Fatalf("%s still runs after %v; the machine is late by %v", p.name, within, late)
	}
	var exit *exec.ExitError
	if p.result == nil {
		return 0
	}
	if !errors.As(p.result, &exit) {
		t.Fatalf("%s: %v", p.name, p.result)
	}
	return exit.ExitCode()
}

// linesAfter waits until n lines begin with prefix and returns what follows it in each.
func (p *process) linesAfter(t *testing.T, prefix string, n int, within time.Duration) []string {
	t.Helper()
	deadline := time.After(within)
	for {
		grew := p.log.growth()
		var found []string
		for line := range strings.SplitSeq(p.log.text(), "\n") {
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				found = append(found, strings.TrimSpace(rest))
			}
		}
		if len(found) >= n {
			return found[:n]
		}
		select {
		case <-grew:
		case <-p.ended:
			t.Fatalf("%s ended after %d of %d lines %q: %v", p.name, len(found), n, prefix, p.result)
		case <-deadline:
			t.Fatalf("%s: %d of %d lines %q after %v", p.name, len(found), n, prefix, within)
		}
	}
}

// lineLog keeps a child's output and wakes what waits for more of it.
type lineLog struct {
	mu    sync.Mutex
	bytes []byte
	grew  chan struct{} // closed and replaced at each write
}

func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes = append(l.bytes, p...)
	close(l.grew)
	l.grew = make(chan struct{})
	return len(p), nil
}

func (l *lineLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.bytes)
}

func (l *lineLog) growth() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grew
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(all) > lines {
		all = append([]string{fmt.Sprintf("(%d lines before)", len(all)-lines)}, all[len(all)-lines:]...)
	}
	return strings.Join(all, "\n")
}

// eventually checks every 20 ms until the condition holds, and fails the test if it does not within a time, and twice
// what the machine is late by.
func eventually(t *testing.T, within time.Duration, what string, holds func() bool) time.Duration {
	t.Helper()
	return lateness.Eventually(t, within, 20*time.Millisecond, what, holds)
}

// nextPort is below the ports that systems give to clients, and begins somewhere else in each run.
var nextPort atomic.Int32

// freePorts returns ports on which nothing listens, and that no other call returns soon.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	const first, count = 20_000, 10_000
	nextPort.CompareAndSwap(0, 1+rand.Int32N(count))
	var ports []int
	for range count {
		if len(ports) == n {
			return ports
		}
		port := first + int(nextPort.Add(1))%count
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			l.Close()
			ports = append(ports, port)
		}
	}
	t.Fatalf("no %d free ports from %d to %d", n, first, first+count)
	return nil
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	// Written beside and renamed, so that no reader sees half of it.
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
