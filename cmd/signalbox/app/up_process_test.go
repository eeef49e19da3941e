package app

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMain is signalbox in a process that a test starts with a command line.
func TestMain(m *testing.M) {
	if line := os.Getenv("SIGNALBOX_TEST_LINE"); line != "" {
		os.Args = append([]string{"signalbox"}, strings.Fields(line)...)
		Main()
		return
	}
	os.Exit(m.Run())
}

// shared is a buffer that a process writes while a test reads.
type shared struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// lastingEnvoy has a version, and runs until it is killed: what drains it waits for long. Once it runs there is a file.
const lastingEnvoy = "#!/bin/sh\n[ \"$1\" = --version ] && echo 'envoy  version: x/1.40.0/Clean/RELEASE/BoringSSL' " +
	"&& exit\n: > \"$0.runs\"\nexec sleep 600\n"

// upProcess is up in a process of its own, before an Envoy that lasts.
type upProcess struct {
	*testing.T
	*exec.Cmd
	out       *shared
	temporary string // its folder of temporary files
	ended     <-chan struct{}
}

// killable starts up, and returns once its Envoy runs.
func killable(t *testing.T) *upProcess {
	t.Helper()
	folder := t.TempDir()
	p := &upProcess{T: t, Cmd: exec.Command(os.Args[0]), out: &shared{}, temporary: t.TempDir()}
	lasting := filepath.Join(folder, "envoy")
	if err := os.WriteFile(lasting, []byte(lastingEnvoy), 0o700); err != nil {
		t.Fatal(err)
	}
	p.Env = append(os.Environ(), "ENVOY="+lasting, "TMPDIR="+p.temporary, "SIGNALBOX_TEST_LINE=up --sim 1 "+
		strings.Join(anyPorts(), " "))
	p.Stdout, p.Stderr = p.out, p.out
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.ended = inBackground(func() { _ = p.Wait() })
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
	})
	soonTrue(t, "up runs", func() bool {
		_, err := os.Stat(lasting + ".runs")
		return err == nil && strings.Contains(p.out.String(), "server ")
	})
	return p
}

// leavesNothing wants the folder of temporary files to be empty.
func (p *upProcess) leavesNothing() {
	p.Helper()
	if left, err := os.ReadDir(p.temporary); err != nil || len(left) > 0 {
		p.Errorf("left behind: %v, %v", left, err)
	}
}

// A process that is killed can remove nothing: up writes no file.
func TestKilledUpLeavesNothingBehind(t *testing.T) {
	up := killable(t)
	if err := up.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-up.ended
	up.leavesNothing()
}

// A terminal that is closed is a first signal to up. A second one leaves nothing behind, either.
func TestClosedTerminalEndsUp(t *testing.T) {
	// a process that this one starts would ignore SIGHUP as it does, under nohup for one
	unignored := make(chan os.Signal, 1)
	signal.Notify(unignored, syscall.SIGHUP)
	defer signal.Stop(unignored)
	up := killable(t)
	if err := up.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	soonTrue(t, "up ends in good order, in\n"+up.out.String(),
		func() bool { return strings.Contains(up.out.String(), "Ending: what runs is finished") })
	again := time.NewTicker(sameSignalWithin / 5) // the first that comes after sameSignalWithin counts
	defer again.Stop()
	for first := time.Now(); !within(0, up.ended); <-again.C {
		_ = up.Process.Signal(syscall.SIGTERM) // fails once it has ended
		if time.Since(first) > 20*time.Second {
			t.Fatal("a second signal does not end up within 20 s")
		}
	}
	if !strings.Contains(up.out.String(), "ended at once by a second signal") {
		t.Errorf("up does not say that a second signal ended it:\n%s", up.out)
	}
	up.leavesNothing()
}
