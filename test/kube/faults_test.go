package kube

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

var (
	seedFlag   = flag.Uint64("seed", 14, "seed of the faults of TestFaults")
	faultsFlag = flag.Int("faults", 200, "how many faults TestFaults has")
)

// lanes is how many pickers TestFaults has. Each has a namespace and a way to the API server of its own.
const lanes = 4

// fault is what goes wrong between one picker and the API server.
type fault struct {
	name  string
	begin func(l *lane)
	end   func(l *lane)
}

// faultKinds are all faults but restarts.
var faultKinds = []fault{
	{"cut", (*lane).cutOff, (*lane).mend},
	{"stall", func(l *lane) { l.middle.stall(true) }, func(l *lane) { l.middle.stall(false) }},
	{"forget", func(l *lane) { l.middle.forget() }, func(l *lane) { l.middle.cut() }},
	{"slow", func(l *lane) { l.middle.set(false, 20*time.Millisecond+l.upTo(100*time.Millisecond)) }, (*lane).mend},
	{"410", func(l *lane) { l.front.refuse(http.StatusGone) }, (*lane).mend},
	{"403", func(l *lane) { l.front.refuse(http.StatusForbidden) }, (*lane).mend},
	{"429", func(l *lane) { l.front.refuse(http.StatusTooManyRequests) }, (*lane).mend},
}

const (
	// restartsOf is one restart for so many faults: it takes seconds.
	restartsOf = 40
	// knownWithin is how soon after a fault the picker has the pods that there are, and knownAfterRestart how soon once
	// the API server answers again.
	knownWithin, knownAfterRestart = 3 * time.Second, 5 * time.Second
)

// lane is one picker with its faults.
type lane struct {
	t      *testing.T
	space  *space
	front  *front
	middle *middle
	picker *picker
	random *rand.Rand
	pods   []string // beside the one that stays
	made   int
}

func (l *lane) upTo(d time.Duration) time.Duration { return time.Duration(l.random.Int64N(int64(d))) }

func (l *lane) cutOff() {
	l.middle.set(l.random.IntN(2) == 0, 0) // new connections are refused too, or not
	l.middle.cut()
}

// mend ends a fault. Refusals last until the picker has heard of one, for it waits longer after each failure.
func (l *lane) mend() {
	l.middle.set(false, 0)
	if refusal, _ := l.front.now(); refusal != 0 {
		eventuallyWithin(l.t, 2*patience, fmt.Sprint("a call is refused with ", refusal), l.front.heard)
		l.front.refuse(0)
	}
}

// Random faults of all kinds between pickers and their API server, while pods change; then the API server is restarted
// again and again. No pick fails meanwhile, no picker is other than ready, and soon after each fault the picker has
// exactly the pods that the API server has.
func TestFaults(t *testing.T) {
	server := newCluster(t)
	t.Logf("-seed %d -faults %d", *seedFlag, *faultsFlag)
	var all tally
	t.Run("lanes", func(t *testing.T) {
		for i := range lanes {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				l := newLane(t, server, uint64(i))
				l.play(&all)
			})
		}
	})
	t.Run("restarts", func(t *testing.T) { playRestarts(t, server, &all) })
	all.print(t)
}

// playRestarts restarts the API server under two pickers. Nothing else is wrong with it meanwhile.
func playRestarts(t *testing.T, server *cluster, all *tally) {
	both := []*lane{newLane(t, server, lanes), newLane(t, server, lanes+1)}
	var stops []func()
	for _, l := range both {
		stopPicks, stopReady := l.picker.pickAlways(), l.picker.readyAlways()
		stops = append(stops, stopReady, func() { all.count(stopPicks()) })
	}
	for range *faultsFlag / restartsOf {
		for _, l := range both {
			l.change()
		}
		server.kill()
		server.http.CloseIdleConnections()
		if err := server.start(); err != nil {
			t.Fatal(err)
		}
		machine, ended := lateness.Begin(), time.Now()
		for _, l := range both {
			l.change()
		}
		for _, l := range both {
			l.equal("a restart")
		}
		all.add("restart", time.Since(ended))
		machine.Within(t, "known after a restart", time.Since(ended), knownAfterRestart)
	}
	for _, stop := range stops {
		stop()
	}
}

func newLane(t *testing.T, server *cluster, number uint64) *lane {
	t.Helper()
	l := &lane{t: t, random: rand.New(rand.NewPCG(*seedFlag, number))}
	l.space = newSpace(t, server)
	l.space.pod("stays", "10.0.0.1", vllm, nil)
	l.space.pool(8000)
	var kubeconfig string
	l.front, l.middle, kubeconfig = newFront(t, server)
	l.picker = startPicker(t, l.space.inPool("--kubeconfig", kubeconfig)...)
	l.picker.knows("stays-rank-0 10.0.0.1:8000")
	l.picker.ready(true)
	return l
}

// deck returns the faults of a lane in their order: of each kind the same number.
func (l *lane) deck() (all []fault) {
	for i := range (*faultsFlag - *faultsFlag/restartsOf + lanes - 1) / lanes {
		all = append(all, faultKinds[i%len(faultKinds)])
	}
	l.random.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all
}

func (l *lane) play(all *tally) {
	l.t.Helper()
	stopPicks, stopReady := l.picker.pickAlways(), l.picker.readyAlways()
	for i, f := range l.deck() {
		f.begin(l)
		l.change()
		<-time.After(l.upTo(700 * time.Millisecond))
		l.change()
		f.end(l)
		machine, name := lateness.Begin(), fmt.Sprintf("fault %d, %s", i, f.name)
		took := l.equal(name)
		all.add(f.name, took)
		_, late := machine.End()
		if took > knownWithin+2*late {
			l.t.Errorf("%s: known after %v, want %v; the machine is late by %v", name, took, knownWithin, late)
		}
	}
	stopReady()
	page := l.picker.page("/metrics")
	for _, reason := range []string{"unreachable", "expired", "forbidden", "throttled"} {
		if !strings.Contains(page, `signalbox_discovery_errors_total{reason="`+reason+`"`) {
			l.t.Errorf("no failure counts as %s: the faults did not reach the picker", reason)
		}
	}
	picks := stopPicks()
	if picks < 10 {
		l.t.Errorf("%d picks meanwhile, want 10 or more", picks)
	}
	all.count(picks)
}

// equal waits until the picker has the pods that there are.
func (l *lane) equal(after string) time.Duration {
	l.t.Helper()
	return eventuallyWithin(l.t, 2*patience, "the pods that there are, after "+after, func() bool {
		return slices.Equal(l.picker.endpoints(), l.wanted())
	})
}

// change changes a pod: it comes, goes, or changes its readiness.
func (l *lane) change() {
	l.t.Helper()
	at := 0
	if len(l.pods) > 0 {
		at = l.random.IntN(len(l.pods))
	}
	switch what := l.random.IntN(4); {
	case len(l.pods) < 3 || what < 2 && len(l.pods) < 20:
		l.made++
		name := fmt.Sprintf("z%03d", l.made)
		l.pods = append(l.pods, name)
		l.space.pod(name, l.ip(name), vllm, nil)
	case what == 3:
		l.space.status(l.pods[at], l.ip(l.pods[at]), l.random.IntN(2) == 0)
	default:
		l.space.remove(l.space.pods() + "/" + l.pods[at])
		l.pods = slices.Delete(l.pods, at, at+1)
	}
}

// ip returns the address of a pod by its name. No two pods that live at a time have the same.
func (l *lane) ip(name string) string {
	var n int
	if _, err := fmt.Sscanf(name, "z%d", &n); err != nil {
		l.t.Fatal(err)
	}
	return fmt.Sprintf("10.0.0.%d", 2+n%250)
}

// wanted returns the endpoints of the pods that the API server has, as picker.endpoints has them.
func (l *lane) wanted() (all []string) {
	l.t.Helper()
	text, err := json.Marshal(l.space.must(http.MethodGet, l.space.pods(), "", nil))
	if err != nil {
		l.t.Fatal(err)
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				PodIP      string
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		l.t.Fatal(err)
	}
	for _, pod := range list.Items {
		for _, c := range pod.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				all = append(all, fmt.Sprintf("%s-rank-0 %s:8000", pod.Metadata.Name, pod.Status.PodIP))
			}
		}
	}
	slices.Sort(all)
	return all
}

// readyAlways looks whether the picker is ready, and fails the test if it ever is not, until it is stopped.
func (p *picker) readyAlways() (stop func()) {
	failed := false
	over := p.always(20*time.Millisecond, func() {
		if !failed && !p.isReady() && p.t.Context().Err() == nil {
			failed = true
			p.t.Errorf("not ready, or no answer: the log says why\n%s", p.log)
		}
	})
	return func() { over() }
}

// tally is what became of all faults.
type tally struct {
	mu    sync.Mutex
	took  map[string][]time.Duration // from the end of the fault until the sets were equal
	picks int
}

func (y *tally) add(name string, took time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.took == nil {
		y.took = map[string][]time.Duration{}
	}
	y.took[name] = append(y.took[name], took)
}

func (y *tally) count(picks int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.picks += picks
}

func (y *tally) print(t *testing.T) {
	t.Helper()
	var text strings.Builder
	total := 0
	names := []string{"restart"}
	for _, f := range faultKinds {
		names = append(names, f.name)
	}
	for _, name := range names {
		took := y.took[name]
		total += len(took)
		if len(took) == 0 && *faultsFlag >= lanes*restartsOf {
			t.Errorf("no fault %s", name)
			continue
		}
		if len(took) > 0 {
			slices.Sort(took)
			fmt.Fprintf(&text, "\n%s: %d, the sets are equal after %v in the median, %v at most", name, len(took),
				took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
		}
	}
	t.Logf("FIGURES %d faults, %d picks, none failed unless said%s", total, y.picks, &text)
}
