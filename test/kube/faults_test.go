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

// faultKinds are all faults. A restart comes last: it is rare, because it takes seconds and all lanes have it.
var faultKinds = []fault{
	{"cut", (*lane).cutOff, (*lane).mend},
	{"stall", func(l *lane) { l.middle.stall(true) }, func(l *lane) { l.middle.stall(false) }},
	{"forget", func(l *lane) { l.middle.forget() }, func(l *lane) { l.middle.cut() }},
	{"slow", func(l *lane) { l.middle.set(false, 20*time.Millisecond+l.upTo(100*time.Millisecond)) }, (*lane).mend},
	{"410", func(l *lane) { l.front.refuse(http.StatusGone) }, (*lane).mend},
	{"403", func(l *lane) { l.front.refuse(http.StatusForbidden) }, (*lane).mend},
	{"429", func(l *lane) { l.front.refuse(http.StatusTooManyRequests) }, (*lane).mend},
	{"restart", (*lane).restart, func(*lane) {}},
}

// restartsOf is one restart for so many faults.
const restartsOf = 25

// shaken is an API server that is restarted while others use it.
type shaken struct {
	*cluster
	up sync.RWMutex // held by who uses the API server past the faults, and by who restarts it
}

// lane is one picker with its faults.
type lane struct {
	t      *testing.T
	space  *space
	server *shaken
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

// restart kills the API server, and starts it again.
func (l *lane) restart() {
	l.server.up.Lock()
	defer l.server.up.Unlock()
	l.server.kill()
	l.server.http.CloseIdleConnections()
	if err := l.server.start(); err != nil {
		l.t.Fatal(err)
	}
}

// Random faults of all kinds between pickers and their API server, while pods change. No pick fails meanwhile, no
// picker is other than ready, and after each fault the picker has exactly the pods that the API server has.
func TestFaults(t *testing.T) {
	server := &shaken{cluster: newCluster(t)}
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
	all.print(t)
}

func newLane(t *testing.T, server *shaken, number uint64) *lane {
	t.Helper()
	server.up.RLock()
	defer server.up.RUnlock()
	l := &lane{t: t, server: server, random: rand.New(rand.NewPCG(*seedFlag, number))}
	l.space = newSpace(t, server.cluster)
	l.space.pod("stays", "10.0.0.1", vllm, nil)
	l.space.pool(8000)
	var kubeconfig string
	l.front, l.middle, kubeconfig = newFront(t, server.cluster)
	l.picker = startPicker(t, l.space.inPool("--kubeconfig", kubeconfig)...)
	l.picker.knows("stays-rank-0 10.0.0.1:8000")
	l.picker.ready(true)
	return l
}

// deck returns the faults of a lane in their order: of each kind the same number, but for restarts.
func (l *lane) deck() (all []fault) {
	n := (*faultsFlag + lanes - 1) / lanes
	kinds := faultKinds[:len(faultKinds)-1]
	for i := range n {
		next := kinds[i%len(kinds)]
		if i%restartsOf == restartsOf-1 {
			next = faultKinds[len(kinds)]
		}
		all = append(all, next)
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
		took := eventuallyWithin(l.t, 2*patience, fmt.Sprintf("the pods that there are, after fault %d, %s", i, f.name),
			func() bool { return slices.Equal(l.picker.endpoints(), l.wanted()) })
		all.add(f.name, took)
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

// change changes a pod: it comes, goes, or changes its readiness.
func (l *lane) change() {
	l.t.Helper()
	l.server.up.RLock()
	defer l.server.up.RUnlock()
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
	l.server.up.RLock()
	defer l.server.up.RUnlock()
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
	for _, f := range faultKinds {
		took := y.took[f.name]
		total += len(took)
		if len(took) == 0 && *faultsFlag >= lanes*restartsOf {
			t.Errorf("no fault %s", f.name)
			continue
		}
		if len(took) > 0 {
			slices.Sort(took)
			fmt.Fprintf(&text, "\n%s: %d, the sets are equal after %v in the median, %v at most", f.name, len(took),
				took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
		}
	}
	t.Logf("FIGURES %d faults, %d picks, none failed unless said%s", total, y.picks, &text)
}
