package conformance

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// serving is the line that a picker logs once it serves.
var serving = regexp.MustCompile(`"ext_proc":\s*\["(127\.0\.0\.1:\d+)"`)

// TestCommand plays the table against the real binary by its own command. The rows that need a look inside are listed as not run.
func TestCommand(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "signalbox")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/signalbox").CombinedOutput(); err != nil {
		t.Fatalf("building signalbox: %v\n%s", err, out)
	}
	at := serve(t, binary)
	check := func(args ...string) (string, int) {
		args = append([]string{"conformance", "--addr", at, "--at-once", "2s", "--patience", "20s", "--body-wait", "15s"}, args...)
		command := exec.Command(binary, args...)
		out, err := command.CombinedOutput()
		var status *exec.ExitError
		if err != nil && !errors.As(err, &status) {
			t.Fatal(err)
		}
		return string(out), command.ProcessState.ExitCode()
	}
	if out, status := check("--endpoints", strings.Join(addresses, ","), "--model", "m", "--destinations", "3", "--body-limit", fmt.Sprint(32<<20), "--routes-all"); status != 0 ||
		strings.Contains(out, "FAIL") || !strings.Contains(out, "pass     1 chat request") || !strings.Contains(out, "not run 12 ") {
		t.Errorf("exit status %d\n%s", status, out)
	}
	if out, status := check("--endpoints", "192.0.2.1:80", "--check", "1", "--mode", "NONE"); status != 1 || !strings.Contains(out, "is not of the pool") {
		t.Errorf("a pool of strangers: exit status %d, want 1\n%s", status, out)
	}
	if out, status := check("--endpoints", addresses[0], "--insecure"); status != 1 || !strings.Contains(out, "no connection") {
		t.Errorf("plaintext to a port with TLS: exit status %d, want 1\n%s", status, out)
	}
}

// serve starts the binary on free ports, and gives the address of its ext_proc port.
func serve(t *testing.T, binary string) string {
	t.Helper()
	epp := exec.Command(binary, "serve", "--endpoints", endpointsFile(t), "--grpc-port", "0", "--grpc-health-port", "0",
		"--metrics-port", "0", "--drain-delay", "0s", "--body-timeout", "4s")
	out, err := epp.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := epp.Start(); err != nil {
		t.Fatal(err)
	}
	log := &log{found: make(chan string, 1), over: make(chan struct{})}
	go log.follow(out)
	t.Cleanup(func() {
		_ = epp.Process.Signal(syscall.SIGTERM)
		<-log.over
		if err := epp.Wait(); err != nil || strings.Contains(log.text(), "panicked") {
			t.Errorf("signalbox: %v\n%s", err, log.text())
		}
	})
	select {
	case at := <-log.found:
		return at
	case <-log.over:
	case <-time.After(20 * time.Second):
	}
	t.Fatalf("signalbox does not serve:\n%s", log.text())
	return ""
}

func endpointsFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	text := "endpoints:\n"
	for i, a := range addresses {
		at := strings.LastIndexByte(a, ':')
		text += fmt.Sprintf("- {name: e%d, address: %q, port: %q}\n", i, strings.Trim(a[:at], "[]"), a[at+1:])
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// log is what a picker writes.
type log struct {
	found chan string // the address that it serves on
	over  chan struct{}
	mu    sync.Mutex
	seen  strings.Builder
}

func (l *log) follow(out io.Reader) {
	defer close(l.over)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		l.mu.Lock()
		l.seen.WriteString(line)
		l.mu.Unlock()
		if m := serving.FindStringSubmatch(line); m != nil {
			l.found <- m[1]
		}
		if err != nil {
			return // it has ended
		}
	}
}

func (l *log) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen.String()
}
