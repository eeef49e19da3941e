package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// fullPipe is a pipe that is not read and has no room left.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	if err := w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for page := make([]byte, 4096); err == nil; {
		_, err = w.Write(page)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return w
}

// unread starts Signalbox with a standard error that is not read.
func unread(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{name: "signalbox", cmd: exec.Command(binary, args...), log: &lineLog{grew: make(chan struct{})},
		ended: make(chan struct{})}
	p.cmd.Stderr = fullPipe(t)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.result = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.stop)
	return p
}

func TestLogThatNobodyReadsHoldsNothingUp(t *testing.T) {
	file, ports := filepath.Join(t.TempDir(), "endpoints.yaml"), freePorts(t, 3)
	writeFile(t, file, endpointsFile(t, []string{"127.0.0.1:9"}))
	p := unread(t, "serve", "--endpoints", file, "--grpc-port", strconv.Itoa(ports[0]), "--grpc-health-port",
		strconv.Itoa(ports[1]),
		"--metrics-port", strconv.Itoa(ports[2]), "--drain-delay", "0s")
	eventually(t, 10*time.Second, "signalbox serves its health page", func() bool {
		status, _ := get(fmt.Sprintf("http://127.0.0.1:%d/healthz", ports[2]))
		return status == http.StatusOK
	})
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.exitCode(t, 10*time.Second); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
}

func TestStartThatFailsEndsWithoutAReader(t *testing.T) {
	p := unread(t, "serve", "--endpoints", filepath.Join(t.TempDir(), "none.yaml"))
	if code := p.exitCode(t, 10*time.Second); code != 1 {
		t.Errorf("exit status %d, want 1", code)
	}
}
