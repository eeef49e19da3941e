package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// nothingScraped is a configuration that reads no page of the pods, which nobody runs.
const nothingScraped = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{type: random-picker}]
schedulingProfiles: [{name: random, plugins: [{pluginRef: random-picker}]}]
`

// atOnce runs a function for each of n things, 16 at a time.
func atOnce(n int, do func(i int)) {
	var all sync.WaitGroup
	turns := make(chan struct{}, 16)
	for i := range n {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			do(i)
		})
	}
	all.Wait()
}

const (
	crowd     = 1000 // pods
	perSecond = 10   // changes
	// changesFor is how long they come.
	changesFor = 60 * time.Second
	// quietFor is how long the picker is looked at without changes.
	quietFor = 10 * time.Second
	// tookAtMost and took90 are when changes are late, the longest and the tenth part of them, on a machine that has
	// room. How late the machine itself is comes on top.
	tookAtMost, took90 = time.Second, 100 * time.Millisecond
)

func crowdName(i int) string { return fmt.Sprintf("pod-%04d", i) }

func crowdIP(i int) string { return fmt.Sprintf("10.1.%d.%d", i/250, i%250+1) }

// crowded are the endpoints of all pods.
func crowded() (all []string) {
	for i := range crowd {
		all = append(all, fmt.Sprintf("%s-rank-0 %s:8000", crowdName(i), crowdIP(i)))
	}
	return all
}

// soonReady starts a picker that is ready within a second. What computes beside a start takes cores from it, so the
// soonest of three counts.
func soonReady(t *testing.T, flags ...string) (p *picker, began time.Time) {
	t.Helper()
	for try := 1; ; try++ {
		var machine *lateness.Watch
		machine, began = lateness.Begin(), time.Now()
		p = startPicker(t, flags...)
		p.ready(true)
		took := time.Since(began)
		if took <= time.Second || try == 3 {
			machine.Within(t, "ready after the start", took, time.Second)
			return p, began
		}
		machine.End()
		_ = p.cmd.Process.Kill()
	}
}

// A thousand pods are followed while ten change each second and the watch breaks in the middle, and a fifth of them
// that is lost at once is gone while the rest stays. No pick is of a pod that has been gone for long. How long changes
// take, and what all costs, is logged.
func TestThousandPods(t *testing.T) {
	s := newSpace(t, shared)
	m, kubeconfig := newMiddle(t, shared)
	want := crowded()
	atOnce(crowd, func(i int) { s.pod(crowdName(i), crowdIP(i), vllm, nil) })
	s.pool(8000)
	p, began := soonReady(t, s.inPool("--kubeconfig", kubeconfig, "--config-text", nothingScraped,
		"--zap-time-encoding", "rfc3339nano")...)
	p.knows(want...)
	t.Logf("FIGURES complete %v after the start", time.Since(began).Round(time.Millisecond))
	file := p.isSmall()
	idle := p.cores(quietFor)
	watched := p.watchPicks()
	load := p.cores(quietFor)
	var changes []podChange
	machine := lateness.Begin()
	busy := p.coresWhile(func() { changes = s.changeMany(m, &watched.gone) })
	mib := p.resident() // before pages of all endpoints are asked for
	p.knows(want...)
	latest := p.late(changes, machine)
	t.Logf("FIGURES cores: idle %.3f, with picks %.3f, with %d changes/s too %.3f; %d MiB resident", idle, load,
		perSecond, busy, mib)
	isSmall(t, mib, file)
	if idle > 0.02 || busy-load > 0.1 {
		t.Errorf("%.3f cores idle, and %.3f more with changes; want 0.02 and 0.1 at most", idle, busy-load)
	}

	machine = lateness.Begin()
	atOnce(crowd/5, func(i int) {
		s.status(crowdName(i), crowdIP(i), false)
		watched.gone.Store(crowdIP(i), time.Now())
	})
	began = time.Now()
	p.knows(want[crowd/5:]...)
	took := time.Since(began)
	t.Logf("FIGURES %d that are lost at once are gone %v after the last was written", crowd/5,
		took.Round(time.Millisecond))
	<-time.After(time.Second)
	_, longest := machine.End()
	if limit := tookAtMost + 2*longest; took > limit {
		t.Errorf("it took %v until they were gone, want %v at most", took, limit)
	}
	watched.stop(t, tookAtMost+2*max(longest, latest))
}

// isSmall checks the memory of a picker that knows all pods, and returns that of one with a file, in MiB.
func (p *picker) isSmall() (file int) {
	p.t.Helper()
	pods, file := p.resident(), ofAFile(p.t)
	p.t.Logf("FIGURES %d MiB resident, %d MiB with a file of the same endpoints", pods, file)
	isSmall(p.t, pods, file)
	return file
}

func isSmall(t *testing.T, pods, file int) {
	t.Helper()
	if pods > 120 || pods > file+60 {
		t.Errorf("%d MiB resident, and %d MiB with a file: want 120, and 60 more than with a file, at most", pods, file)
	}
}

// ofAFile returns the memory of a picker whose endpoints come from a file, in MiB.
func ofAFile(t *testing.T) int {
	t.Helper()
	text := "endpoints:\n"
	for i := range crowd {
		text += fmt.Sprintf("- {name: %s, address: %s, port: \"8000\"}\n", crowdName(i), crowdIP(i))
	}
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startPicker(t, "--endpoints", file, "--config-text", nothingScraped)
	eventually(t, "all endpoints of the file", func() bool { return len(p.endpoints()) == crowd })
	mib := p.resident()
	_ = p.cmd.Process.Kill()
	return mib
}

// podChange is a change of a pod's readiness.
type podChange struct {
	endpoint string // as the log names it
	ready    bool
	at       time.Time // before it was written
	written  time.Time // when the API server had said so
}

// changeMany has a hundred pods become unready, one after the other, and ready again, and cuts the watch in the middle.
// It keeps in gone when each was lost that is unready.
func (s *space) changeMany(m *middle, gone *sync.Map) (all []podChange) {
	every := time.NewTicker(time.Second / perSecond)
	defer every.Stop()
	const n = int(changesFor/time.Second) * perSecond
	for i := range n {
		<-every.C
		if i == n/2 {
			m.cut()
		}
		pod, ready := 500+i%100, i/100%2 == 1 // ten seconds lie between two changes of a pod, which none hides
		name := fmt.Sprintf("%s-rank-0 (%s:8000)", crowdName(pod), crowdIP(pod))
		if ready {
			gone.Delete(crowdIP(pod))
		}
		c := podChange{endpoint: name, ready: ready, at: time.Now()}
		s.status(crowdName(pod), crowdIP(pod), ready)
		c.written = time.Now()
		if !ready {
			gone.Store(crowdIP(pod), c.written)
		}
		all = append(all, c)
	}
	return all
}

// late fails the test if the picker took changes too late, as its log tells. They are figures from before they were
// written, and late by when the API server had said that they are. It returns how late the machine was at most.
func (p *picker) late(changes []podChange, machine *lateness.Watch) (latest time.Duration) {
	p.t.Helper()
	late90, latest := machine.End()
	var took, after []time.Duration
	last := changes[len(changes)-1]
	eventually(p.t, "the log has the last change", func() bool { return last.in(p.log.sets(p.t)) >= 0 })
	sets := p.log.sets(p.t)
	for _, c := range changes {
		i := c.in(sets)
		if i < 0 {
			p.t.Errorf("the log does not have the change of %s to ready: %v", c.endpoint, c.ready)
			continue
		}
		took, after = append(took, sets[i].TS.Sub(c.at)), append(after, sets[i].TS.Sub(c.written))
	}
	if len(took) == 0 {
		return latest
	}
	slices.Sort(took)
	slices.Sort(after)
	p.t.Logf("FIGURES %d changes, from before each is written until it is in force: p50 %v, p90 %v, longest %v; "+
		"once it is written: p90 %v, longest %v; the machine is late by p90 %v, longest %v", len(took),
		took[len(took)/2], took[len(took)*9/10], took[len(took)-1], after[len(after)*9/10], after[len(after)-1],
		late90, latest)
	if got, limit := after[len(after)*9/10], took90+2*late90; got > limit {
		p.t.Errorf("p90 of the changes took %v once they were written, want %v at most", got, limit)
	}
	if got, limit := after[len(after)-1], tookAtMost+2*latest; got > limit {
		p.t.Errorf("a change took %v once it was written, want %v at most", got, limit)
	}
	return latest
}

// in returns the first of the sets in which a change is in force; -1 = there is none.
func (c *podChange) in(sets []setChanged) int {
	return slices.IndexFunc(sets, func(e setChanged) bool {
		names := e.Removed
		if c.ready {
			names = e.Added
		}
		return !e.TS.Before(c.at) && slices.Contains(names, c.endpoint)
	})
}

// setChanged is a line of the log.
type setChanged struct {
	TS             time.Time
	Added, Removed []string
}

// sets returns the lines that tell of a changed set of endpoints.
func (l *lines) sets(t *testing.T) (all []setChanged) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if !strings.Contains(line, "endpoints changed") {
			continue
		}
		var e setChanged
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, e)
	}
	return all
}

// pickWatch asks for picks one after the other, none of which may fail or be of a pod that has been gone for long.
type pickWatch struct {
	gone  sync.Map // addresses, and when each was lost
	ended chan struct{}
	found chan pickFound
}

type pickFound struct {
	picks, failed int
	oldest        time.Duration // how long a picked pod had been gone
	failure       string        // the last one
}

func (p *picker) watchPicks() *pickWatch {
	w := &pickWatch{ended: make(chan struct{}), found: make(chan pickFound, 1)}
	go func() {
		var f pickFound
		defer func() { w.found <- f }()
		for {
			select {
			case <-w.ended:
				return
			case <-p.t.Context().Done():
				return
			case <-time.After(pickEvery):
			}
			w.look(p, &f)
		}
	}()
	return w
}

func (w *pickWatch) look(p *picker, f *pickFound) {
	asked := time.Now()
	got, status, text := p.pick()
	f.picks++
	first, _, _ := strings.Cut(got, ":")
	if status != http.StatusOK || !strings.HasPrefix(first, "10.1.") {
		f.failed++
		f.failure = fmt.Sprintf("%q, %d %s", got, status, text)
		return
	}
	if at, gone := w.gone.Load(first); gone {
		f.oldest = max(f.oldest, asked.Sub(at.(time.Time)))
	}
}

func (w *pickWatch) stop(t *testing.T, limit time.Duration) {
	t.Helper()
	close(w.ended)
	f := <-w.found
	t.Logf("FIGURES %d picks; one was of a pod gone for %v, the longest", f.picks, f.oldest)
	if f.failed > 0 || f.picks < 10 || f.oldest > limit {
		t.Errorf("%+v: want 10 picks or more, none failed, none of a pod gone for over %v", f, limit)
	}
}

// cores returns how many cores the process takes for a while.
func (p *picker) cores(during time.Duration) float64 {
	return p.coresWhile(func() { <-time.After(during) })
}

func (p *picker) coresWhile(do func()) float64 {
	p.t.Helper()
	began, before := time.Now(), p.processorTime()
	do()
	return (p.processorTime() - before).Seconds() / time.Since(began).Seconds()
}

// resident returns the memory of the process in MiB, as Linux tells it; 0 where it does not.
func (p *picker) resident() (mib int) { return p.memory("VmRSS") >> 10 }

// memory returns a figure of the process's status, in KiB, as Linux tells it; 0 where it does not.
func (p *picker) memory(name string) (kib int) {
	p.t.Helper()
	text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "status"))
	for line := range strings.Lines(string(text)) {
		if figure, ok := strings.CutPrefix(line, name+":"); ok {
			kib, _ = strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(figure), " kB"))
		}
	}
	return kib
}

// processorTime returns the processor time of the process so far, as Linux tells it; 0 where it does not.
func (p *picker) processorTime() time.Duration {
	p.t.Helper()
	text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "stat"))
	fields := strings.Fields(string(text))
	if len(fields) < 15 {
		return 0
	}
	user, _ := strconv.Atoi(fields[13])
	system, _ := strconv.Atoi(fields[14])
	return time.Duration(user+system) * 10 * time.Millisecond
}
