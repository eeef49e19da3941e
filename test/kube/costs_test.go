package kube

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// built is a command of the product as it is shipped, without symbols.
type built struct {
	path    string
	mb      float64
	started time.Duration // from its start until it serves a file of endpoints, the fastest of several
	own     int           // memory that it has written to, in KiB, the least of several
	mib     int           // resident, with the pages of the file that it has touched; the least of several
}

func build(t *testing.T, flags ...string) *built {
	t.Helper()
	b := &built{path: filepath.Join(t.TempDir(), "signalbox"), started: time.Hour, own: 1 << 30, mib: 1 << 20}
	command := exec.Command("go", slices.Concat([]string{"build", "-ldflags=-s -w", "-o", b.path}, flags,
		[]string{"../../cmd/signalbox"})...)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(b.path)
	if err != nil {
		t.Fatal(err)
	}
	b.mb = float64(info.Size()) / 1e6
	return b
}

// start starts the command with a file of endpoints, and ends it once it serves.
func (b *built) start(t *testing.T, file string) {
	t.Helper()
	begin := time.Now()
	p := startPickerBy(t, []string{b.path}, "--endpoints", file, "--config-text", nothingScraped)
	b.started = min(b.started, time.Since(begin))
	b.own, b.mib = min(b.own, p.memory("RssAnon")), min(b.mib, p.resident())
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	eventually(t, "it ends", func() bool { _, over := p.log.with("no such line"); return over })
}

// A command that is built without Kubernetes is smaller, and starts sooner and smaller with a file of endpoints, each
// by no more than Kubernetes may cost. It says what it cannot do.
func TestWhatKubernetesCosts(t *testing.T) {
	with, without := build(t), build(t, "-tags", "nokubernetes")
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	if err := os.WriteFile(file, []byte("endpoints: [{name: a, address: 10.0.0.1, port: 8000}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 7 {
		with.start(t, file)
		without.start(t, file)
	}
	t.Logf("FIGURES with Kubernetes and without: %.1f and %.1f MB; with a file of endpoints they serve %v and %v "+
		"after the start, have %.1f and %.1f MiB of their own, and %d and %d MiB with the pages of the file", with.mb,
		without.mb, with.started.Round(time.Millisecond), without.started.Round(time.Millisecond),
		float64(with.own)/1024, float64(without.own)/1024, with.mib, without.mib)
	if more := with.mb - without.mb; more > 30 || more < 10 {
		t.Errorf("Kubernetes adds %.1f MB, want 30 MB at most and more than 10", more)
	}
	if more := with.own - without.own; more > 4<<10 { // how long it takes, the machine says too
		t.Errorf("Kubernetes adds %d KiB to the memory with a file of endpoints, want 4 MiB at most", more)
	}
	for flags, want := range map[string]string{
		"--pool-name p": "--pool-name", "preflight --pool-name p": "preflight",
		"--endpoint-selector a=b --endpoint-target-ports 1": "--endpoint-selector",
	} {
		out, err := exec.Command(without.path, strings.Fields(flags)...).CombinedOutput()
		var exit *exec.ExitError
		if want = "signalbox: " + want + ": this signalbox was built without Kubernetes"; !errors.As(err, &exit) ||
			exit.ExitCode() != 1 || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s: %v, %q, want status 1 and %q", flags, err, out, want)
		}
	}
}

// A pick costs the same whether the endpoints are pods or of a file. Rounds alternate, and of each the fewest seconds
// of a processor count. Other processes may take its caches from all of a few rounds, so that there may be more.
func TestPicksCostWhatThoseOfAFileDo(t *testing.T) {
	const pods, rounds, most, picks = 20, 3, 12, 1500
	s := newSpace(t, shared)
	s.pool(8000)
	var want []string
	text := "endpoints:\n"
	for i := range pods {
		s.pod(crowdName(i), crowdIP(i), vllm, nil)
		want = append(want, fmt.Sprintf("%s-rank-0 %s:8000", crowdName(i), crowdIP(i)))
		text += fmt.Sprintf("- {name: %s-rank-0, address: %s, port: \"8000\"}\n", crowdName(i), crowdIP(i))
	}
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	both := []*picker{
		startPicker(t, s.inPool("--config-text", nothingScraped)...),
		startPicker(t, "--endpoints", file, "--config-text", nothingScraped),
	}
	least := []time.Duration{time.Hour, time.Hour}
	for _, p := range both {
		p.knows(want...)
	}
	dear := func() bool { return least[0] > least[1]*13/10 }
	for round := 0; round < rounds || dear() && round < most; round++ {
		for i, p := range both {
			least[i] = min(least[i], p.costOf(picks))
		}
	}
	each := slices.Clone(least)
	for i := range each {
		each[i] /= picks
	}
	t.Logf("FIGURES a pick takes %v of a core with pods, %v with a file of the same endpoints", each[0], each[1])
	if dear() {
		t.Errorf("%d picks took %v of a core with pods, %v with a file: want 1.3 times at most", picks, least[0],
			least[1])
	}
}

// costOf returns how long a processor takes for so many picks.
func (p *picker) costOf(picks int) time.Duration {
	p.t.Helper()
	before := p.processorTime()
	for range picks {
		if to, status, text := p.pick(); status != http.StatusOK {
			p.t.Fatalf("picked %q, %d %s", to, status, text)
		}
	}
	return p.processorTime() - before
}
