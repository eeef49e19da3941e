package app

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// upRig is an up without an Envoy: in its place a command ends at once.
type upRig struct {
	*up
	b bytes.Buffer
}

func startUp(t *testing.T, flags ...string) *upRig {
	t.Helper()
	limit := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(limit) })
	t.Setenv("TMPDIR", t.TempDir())
	none, err := exec.LookPath("false")
	if err != nil {
		t.Fatal(err)
	}
	o, set := &upOptions{options: newOptions(nil)}, pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.register(set)
	if err := set.Parse(append(anyPorts(), flags...)); err != nil {
		t.Fatal(err)
	}
	if err := o.check(); err != nil {
		t.Fatal(err)
	}
	if err := o.tryPorts(); err != nil {
		t.Fatal(err)
	}
	r := &upRig{}
	r.up = &up{upOptions: o, out: newConsole(&r.b)}
	if err := r.start(t.Context(), none, "1.40.0"); err != nil {
		t.Fatal(err, r.close())
	}
	return r
}

func anyPorts() []string {
	return strings.Fields("--listen 127.0.0.1:0 --admin 127.0.0.1:0 --grpc-port 0 --grpc-health-port 0 " +
		"--metrics-port 0 --shards 1")
}

func (r *upRig) text() string {
	r.out.mu.Lock()
	defer r.out.mu.Unlock()
	return r.b.String()
}

// end ends all. The whole log is in the text then.
func (r *upRig) end(t *testing.T) {
	t.Helper()
	if p := r.envoy.Settle(); p != nil {
		p.End()
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

// soonTrue waits until what is told is so.
func soonTrue(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); !holds(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func TestUpKeepsItsMemoryInBounds(t *testing.T) {
	r := startUp(t, "--sim", "1", "-v1")
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if !bytes.Contains(stacks, []byte("giveBack(")) {
		t.Error("what a burst took is not given back")
	}
	if r.end(t); !strings.Contains(r.text(), "memory limit") {
		t.Errorf("the log does not say which memory limit is in force:\n%s", r.text())
	}
}

func TestUpSaysThatTheEndpointsFileIsWellAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	writeText(t, file, "endpoints: []\n")
	r := startUp(t, "--endpoints", file)
	defer r.end(t)
	const well = "endpoints: all is well again\n"
	writeText(t, file, "endpoints: 5\n")
	soonTrue(t, "the problem is said", func() bool { return strings.Contains(r.text(), "endpoints: a problem") })
	if strings.Contains(r.text(), well) {
		t.Error("all is well before it was mended")
	}
	writeText(t, file, "endpoints: []\n")
	soonTrue(t, "the mended file is said to be well", func() bool {
		return strings.HasSuffix(r.text(), well) ||
			strings.Contains(r.text(), "\n"+well)
	})
}
