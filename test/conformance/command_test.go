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

	"github.com/signalbox-epp/signalbox/adapters/lab/conformance"
)

// serving is the line that a picker logs once it serves.
var serving = regexp.MustCompile(`"ext_proc":\s*\["(127\.0\.0\.1:\d+)"`)

// TestCommand plays the table against the real binary by its own command.
// The rows that need a look inside are listed as not run.
func TestCommand(t *testing.T) {
	at := serve(t).at
	check := func(args ...string) (string, int) {
		args = append([]string{"conformance", "--addr", at, "--patience", "20s", "--body-wait", "15s"}, args...)
		command := exec.Command(binary(t), args...)
		out, err := command.CombinedOutput()
		var status *exec.ExitError
		if err != nil && !errors.As(err, &status) {
			t.Fatal(err)
		}
		return string(out), command.ProcessState.ExitCode()
	}
	if out, status := check("--endpoints", strings.Join(addresses, ","), "--model", "m", "--destinations", "3",
		"--body-limit", fmt.Sprint(32<<20), "--routes-all"); status != 0 ||
		strings.Contains(out, "FAIL") || !strings.Contains(out, "pass     1 chat request") ||
		!strings.Contains(out, "not run 12 ") {
		t.Errorf("exit status %d\n%s", status, out)
	}
	if out, status := check("--endpoints", "192.0.2.1:80", "--check", "1", "--mode", "NONE"); status != 1 ||
		!strings.Contains(out, "is not of the pool") {
		t.Errorf("a pool of strangers: exit status %d, want 1\n%s", status, out)
	}
	if out, status := check("--endpoints", addresses[0], "--insecure"); status != 1 ||
		!strings.Contains(out, "no connection") {
		t.Errorf("plaintext to a port with TLS: exit status %d, want 1\n%s", status, out)
	}
}

// binary is the command, built once.
func binary(t *testing.T) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(folder, "signalbox")
	if out, err := exec.Command("go", "build", "-o", path, "../../cmd/signalbox").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building signalbox: %w\n%s", err, out)
	}
	return path, nil
})

// folder is where the command is built.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "signalbox-conformance-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	if err := os.RemoveAll(folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

// picker is the command serving.
type picker struct {
	command *exec.Cmd
	log     *log
	at      string       // of its ext_proc port
	wait    func() error // until it has ended
}

// serve starts the command on free ports.
func serve(t *testing.T) *picker {
	t.Helper()
	p := &picker{command: exec.Command(binary(t), "serve", "--endpoints", endpointsFile(t), "--grpc-port", "0",
		"--grpc-health-port", "0",
		"--metrics-port", "0", "--drain-delay", "0s", "--body-timeout", "4s"),
		log: &log{found: make(chan string, 1), over: make(chan struct{})}}
	out, err := p.command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	go p.log.follow(out)
	p.wait = sync.OnceValue(func() error {
		<-p.log.over
		return p.command.Wait()
	})
	t.Cleanup(func() {
		p.stop()
		if err := p.wait(); err != nil || strings.Contains(p.log.text(), "panicked") {
			t.Errorf("signalbox: %v\n%s", err, p.log.text())
		}
	})
	select {
	case p.at = <-p.log.found:
		return p
	case <-p.log.over:
	case <-time.After(20 * time.Second):
	}
	t.Fatalf("signalbox does not serve:\n%s", p.log.text())
	return nil
}

// stop says that it shall end. It may have ended.
func (p *picker) stop() { _ = p.command.Process.Signal(syscall.SIGTERM) }

// instance is a picker as a check sees it, on a connection of its own.
func (p *picker) instance(t *testing.T) *conformance.Instance {
	t.Helper()
	o := &conformance.Options{}
	hangUp, err := o.Connect(t.Context(), p.at, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hangUp)
	return &conformance.Instance{Client: o.Client, Health: o.Health, Stop: p.stop, Wait: p.wait}
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
