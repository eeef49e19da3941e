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

// A terminal that is closed is a first signal to up. A second one leaves no folder behind, either.
func TestClosedTerminalEndsUp(t *testing.T) {
	folder, temporary := t.TempDir(), t.TempDir()
	lasting := filepath.Join(folder, "envoy")
	if err := os.WriteFile(lasting, []byte(lastingEnvoy), 0o700); err != nil {
		t.Fatal(err)
	}
	// a process that this one starts would ignore SIGHUP as it does, under nohup for one
	unignored := make(chan os.Signal, 1)
	signal.Notify(unignored, syscall.SIGHUP)
	defer signal.Stop(unignored)
	up := exec.Command(os.Args[0])
	up.Env = append(os.Environ(), "ENVOY="+lasting, "TMPDIR="+temporary, "SIGNALBOX_TEST_LINE=up --sim 1 "+
		strings.Join(anyPorts(), " "))
	out := &shared{}
	up.Stdout, up.Stderr = out, out
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	ended := inBackground(func() { _ = up.Wait() })
	t.Cleanup(func() {
		_ = up.Process.Kill()
		<-ended
	})
	soonTrue(t, "up runs", func() bool {
		_, err := os.Stat(lasting + ".runs")
		return err == nil && strings.Contains(out.String(), "server ")
	})
	if all := foldersOfUp(t, temporary); len(all) != 1 {
		t.Fatalf("folders are %q, want one", all)
	}
	if err := up.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	soonTrue(t, "up ends in good order, in\n"+out.String(),
		func() bool { return strings.Contains(out.String(), "Ending: what runs is finished") })
	again := time.NewTicker(sameSignalWithin / 5) // the first that comes after sameSignalWithin counts
	defer again.Stop()
	for first := time.Now(); !within(0, ended); <-again.C {
		_ = up.Process.Signal(syscall.SIGTERM) // fails once it has ended
		if time.Since(first) > 20*time.Second {
			t.Fatal("a second signal does not end up within 20 s")
		}
	}
	if !strings.Contains(out.String(), "ended at once by a second signal") {
		t.Errorf("up does not say that a second signal ended it:\n%s", out)
	}
	if all := foldersOfUp(t, temporary); len(all) != 0 {
		t.Errorf("folders are left behind: %q", all)
	}
}

func foldersOfUp(t *testing.T, in string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(in, "signalbox-up-*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}
