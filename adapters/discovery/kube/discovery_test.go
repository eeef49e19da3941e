package kube

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"

	"github.com/signalbox-epp/signalbox/adapters/discovery"
)

func inPool() Config { return Config{Pool: Pool{Name: "llama", Group: DefaultGroup}} }

func standalone() Config {
	return Config{Target: Target{Selector: "app in (vllm, sglang)", Ports: []int{8000}}}
}

var unready = []text{{"type": "Ready", "status": "False"}}

// Which pods are endpoints, under which names, and what of them is followed.
func TestPodsOfAPoolAreFollowed(t *testing.T) {
	s := newScene(t, inPool())
	s.put(poolsPath, "llama", poolOf("vllm", 8000, 8001))
	s.put(podsPath, "a", podAt("1", "10.0.0.1"))
	s.put(podsPath, "b", podAt("2", "2001:db8::2").with("metadata", "annotations", map[string]string{
		activePorts: " 8001 ,x,99999", legacyActivePorts: "8000",
	}))
	s.put(podsPath, "c", podAt("3", "10.0.0.3").with("metadata", "annotations", map[string]string{
		legacyActivePorts: "8000",
	}))
	s.put(podsPath, "unready", podAt("4", "10.0.0.4").with("status", "conditions", unready))
	s.put(podsPath, "ends", podAt("5", "10.0.0.5").with("metadata", "deletionTimestamp", "2026-11-24T10:00:00Z"))
	s.put(podsPath, "nowhere", podAt("6", ""))
	s.put(podsPath, "other", podAt("7", "10.0.0.7").with("metadata", "labels", map[string]string{"app": "web"}))
	s.run()
	others := []string{"b-rank-1 [2001:db8::2]:8001", "c-rank-0 10.0.0.3:8000"}
	a := []string{"a-rank-0 10.0.0.1:8000", "a-rank-1 10.0.0.1:8001"}
	s.tells(append(slices.Clone(a), others...)...)
	s.lacks("")

	s.put(podsPath, "a", podAt("1", "10.0.0.1").with("status", "conditions", unready))
	s.tells(others...)
	s.put(podsPath, "a", podAt("1", "10.0.0.1"))
	s.tells(append(slices.Clone(a), others...)...)
	s.put(podsPath, "a", podAt("1", "10.0.0.1").with("metadata", "deletionTimestamp", "2026-11-24T10:00:00Z"))
	s.tells(others...)
	s.put(podsPath, "a", nil)
	s.put(podsPath, "c", podAt("3", "10.0.0.3").with("metadata", "labels", map[string]string{"app": "web"}))
	s.tells(others[0])
	s.put(podsPath, "b", podAt("2", "2001:db8::3"))
	s.tells("b-rank-0 [2001:db8::3]:8000", "b-rank-1 [2001:db8::3]:8001")

	s.put(poolsPath, "llama", poolOf("vllm", 8001))
	s.tells("b-rank-0 [2001:db8::3]:8001")
	s.put(poolsPath, "llama", poolOf("web", 80))
	s.tells("c-rank-0 10.0.0.3:80", "other-rank-0 10.0.0.7:80")
}

// A label of a pod that changes reaches the pool actor, and a change of which it knows nothing does not.
func TestOnlyWhatCountsIsTold(t *testing.T) {
	s := newScene(t, standalone())
	s.put(podsPath, "a", podAt("1", "10.0.0.1"))
	s.run()
	s.tells("a-rank-0 10.0.0.1:8000")
	_, before := s.pool.now()
	s.put(podsPath, "a", podAt("1", "10.0.0.1").with("metadata", "annotations", map[string]string{"x": "y"}))
	s.put(podsPath, "a", podAt("1", "10.0.0.1").with("metadata", "labels", map[string]string{"app": "sglang"}))
	s.until("the label", func() bool {
		s.pool.mu.Lock()
		defer s.pool.mu.Unlock()
		value, _ := s.pool.last.Endpoints.At(0).Labels.Get("app")
		return value == "sglang"
	})
	if _, after := s.pool.now(); after != before+1 {
		t.Errorf("%d sets, want 1 for the label and none for the annotation", after-before)
	}
	if s.asked("list " + poolsPath) {
		t.Error("with a selector of its own it asks for an InferencePool")
	}
}

// A pod that took the place of another one, with its name and address, is an endpoint of its own.
func TestPodMadeAgainIsAnotherEndpoint(t *testing.T) {
	s := newScene(t, standalone())
	s.put(podsPath, "a", podAt("1", "10.0.0.1"))
	s.put(podsPath, "b", podAt("2", "10.0.0.2"))
	s.run()
	s.tells("a-rank-0 10.0.0.1:8000", "b-rank-0 10.0.0.2:8000")
	_, before := s.pool.now()
	s.put(podsPath, "a", podAt("3", "10.0.0.1"))
	s.until("two more sets", func() bool { _, now := s.pool.now(); return now >= before+2 })
	s.tells("a-rank-0 10.0.0.1:8000", "b-rank-0 10.0.0.2:8000")
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if got := s.pool.sets[before]; !slices.Equal(got, []string{"b-rank-0 10.0.0.2:8000"}) {
		t.Errorf("between the two pods the set was %v, want it without the one that was made again", got)
	}
}

// Of two pods with one address the younger one counts, which stands later in the set.
func TestYoungestPodOfAnAddressComesLast(t *testing.T) {
	s := newScene(t, standalone())
	s.put(podsPath, "a", podAt("1", "10.0.0.1").with("metadata", "creationTimestamp", "2026-11-24T11:00:00Z"))
	s.put(podsPath, "b", podAt("2", "10.0.0.1"))
	s.run()
	s.tells("a-rank-0 10.0.0.1:8000", "b-rank-0 10.0.0.1:8000")
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if last := s.pool.last.Endpoints.At(1).Name; last != "a-rank-0" {
		t.Errorf("the last is %s, want a-rank-0, which is younger", last)
	}
}

func TestPoolThatComesLaterGoesAndComesAgain(t *testing.T) {
	s := newScene(t, inPool())
	s.put(podsPath, "a", podAt("1", "10.0.0.1"))
	s.lacks("InferencePool prod/llama is not known yet")
	s.run()
	s.lacks("there is no InferencePool prod/llama")
	if _, count := s.pool.now(); count > 0 {
		t.Error("the pool actor was told a set before there was an InferencePool")
	}
	for range 2 {
		s.put(poolsPath, "llama", poolOf("vllm", 8000))
		s.tells("a-rank-0 10.0.0.1:8000")
		s.lacks("")
		s.put(poolsPath, "llama", nil)
		s.tells()
		s.lacks("there is no InferencePool prod/llama")
	}
}

// A version of the pool that is invalid changes nothing, and is named with its field.
func TestInvalidPool(t *testing.T) {
	s := newScene(t, inPool())
	s.put(podsPath, "a", podAt("1", "10.0.0.1"))
	s.put(poolsPath, "llama", poolOf("vllm", 8000).with("spec", "targetPorts", "8000"))
	s.run()
	s.lacks("InferencePool prod/llama is invalid: InferencePool prod/llama: spec.targetPorts: got string, want a " +
		"list")
	s.put(poolsPath, "llama", poolOf("vllm", 8000))
	s.reports("")
	s.tells("a-rank-0 10.0.0.1:8000")
	for _, bad := range []struct {
		key   string
		value any
		want  string
	}{
		{"targetPorts", []text{}, "spec.targetPorts: got 0 ports, want 1 to 8"},
		{"targetPorts", []text{{"number": 70000}}, "spec.targetPorts: got port 70000, want 1 to 65535"},
		{"targetPorts", []text{{"number": "x"}}, "spec.targetPorts.number: got string, want a number"},
		{"selector", text{}, "spec.selector.matchLabels: got an empty selector"},
		{"selector", []int{1}, "spec.selector: got array, want a mapping"},
		{"selector", text{"matchLabels": text{"app": 5}}, "spec.selector.matchLabels: got number, want a text"},
		{"selector", text{"matchLabels": text{"app": "!"}}, "spec.selector.matchLabels: "},
	} {
		s.put(poolsPath, "llama", poolOf("vllm", 8000).with("spec", bad.key, bad.value))
		s.reports(bad.want)
		if set, _ := s.pool.now(); !slices.Equal(set, []string{"a-rank-0 10.0.0.1:8000"}) || s.Known() != nil {
			t.Errorf("%s: the set is %v, what is not known %v; want the last good pool in force", bad.want, set,
				s.Known())
		}
	}
	nothing := poolOf("vllm")
	nothing["spec"] = 7
	s.put(poolsPath, "llama", nothing)
	s.reports("spec: got number, want a mapping")
	s.put(poolsPath, "llama", poolOf("vllm", 9000))
	s.reports("")
	s.tells("a-rank-0 10.0.0.1:9000")
	counter := s.metrics.errors.WithLabelValues("inferencepools."+DefaultGroup, "invalid-object")
	if got := testutil.ToFloat64(counter); got < 8 {
		t.Errorf("%v invalid objects counted, want one for each of 8 versions", got)
	}
}

// While the API server answers nothing useful, what is known stays; then what changed meanwhile is found.
func TestAPIServerFails(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusForbidden: "forbidden", http.StatusUnauthorized: "unauthorized", http.StatusNotFound: "not-found",
		http.StatusTooManyRequests: "throttled", http.StatusInternalServerError: "other",
	} {
		t.Run(want, func(t *testing.T) {
			s := newScene(t, inPool())
			s.put(poolsPath, "llama", poolOf("vllm", 8000))
			s.put(podsPath, "a", podAt("1", "10.0.0.1"))
			s.run()
			s.tells("a-rank-0 10.0.0.1:8000")
			s.lacks("")
			s.refuse(status)
			counted := func() float64 { return testutil.ToFloat64(s.metrics.errors.WithLabelValues("pods", want)) }
			s.until("failures counted", func() bool { return counted() > 1 })
			s.put(podsPath, "b", podAt("2", "10.0.0.2"))
			s.put(podsPath, "a", nil)
			if set, _ := s.pool.now(); !slices.Equal(set, []string{"a-rank-0 10.0.0.1:8000"}) || s.Known() != nil {
				t.Errorf("the set is %v, what is not known %v; want the last known set", set, s.Known())
			}
			if testutil.ToFloat64(s.metrics.age) <= 0 {
				t.Error("signalbox_discovery_stale_seconds is 0")
			}
			if got := s.Concern(); !strings.Contains(got, "endpoints that stay in force: 1; not followed for ") {
				t.Errorf("what is wrong is %q, want that one endpoint stays in force, and for how long", got)
			}
			s.refuse(0)
			s.tells("b-rank-0 10.0.0.2:8000")
			s.until("nothing is wrong", func() bool { return s.Concern() == "" })
			s.until("fresh", func() bool { return testutil.ToFloat64(s.metrics.age) == 0 })
		})
	}
}

// What is missing at the start is said with its reason.
func TestRightsThatAreMissingAtTheStart(t *testing.T) {
	s := newScene(t, inPool())
	s.put(poolsPath, "llama", poolOf("vllm", 8000))
	s.put(podsPath, "a", podAt("1", "10.0.0.1"))
	s.fake.refuse(http.StatusForbidden)
	s.TellExtras(func(Extras) bool { return true })
	s.run()
	for _, group := range extraGroups { // what is missing beside is not what readiness waits for
		for _, k := range extraKinds {
			counter := s.metrics.errors.WithLabelValues(extraResource(group, k.name, k.kind).String(), "forbidden")
			s.until("the call for "+k.name, func() bool { return testutil.ToFloat64(counter) > 0 })
		}
	}
	s.lacks("InferencePool prod/llama is not known yet: list inferencepools." + DefaultGroup)
	s.reports("list inferencepools." + DefaultGroup)
	s.fake.refuse(0)
	s.tells("a-rank-0 10.0.0.1:8000")
	s.lacks("")
}

// A watch that is too old begins anew with a list, which finds what was missed.
func TestExpiredWatch(t *testing.T) {
	s := newScene(t, standalone())
	s.put(podsPath, "a", podAt("1", "10.0.0.1"))
	s.run()
	s.tells("a-rank-0 10.0.0.1:8000")
	s.fake.refuse(http.StatusTooManyRequests) // so that the watch begins again with the version that it has
	s.put(podsPath, "b", podAt("2", "10.0.0.2"))
	s.forget()
	s.fake.refuse(0)
	s.tells("a-rank-0 10.0.0.1:8000", "b-rank-0 10.0.0.2:8000")
}

// The API server ends watches in time, and is asked for the bookmarks that it sends before it does.
func TestWatchesAreShort(t *testing.T) {
	s := newScene(t, standalone())
	s.run()
	s.until("a watch", func() bool { return s.asked("watch " + podsPath) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, last := range s.lasts {
		var seconds int
		var bookmarks bool
		if _, err := fmt.Sscan(last, &seconds, &bookmarks); err != nil || seconds < 30 || seconds > 40 || !bookmarks {
			t.Errorf("a watch lasts %s, want 30 to 40 s with bookmarks", last)
		}
	}
}

// A panic of the loop ends neither the process nor the set that the pool took last. It is counted and said, and all is
// followed again.
func TestPanicOfTheLoop(t *testing.T) {
	panics, cfg := make(chan struct{}, 2), inPool()
	cfg.Told = func(discovery.Change) {
		select {
		case <-panics:
			panic("the test")
		default:
		}
	}
	s := newScene(t, cfg)
	x := &told{}
	s.TellExtras(x.take)
	path := extraPath(extraGroup, "inferenceobjectives")
	s.install(path)
	s.put(path, "a", objectiveOf("llama", 1))
	s.put(poolsPath, "llama", poolOf("vllm", 8000))
	s.put(podsPath, "a", podAt("1", "10.0.0.1"))
	s.run()
	s.tells("a-rank-0 10.0.0.1:8000")
	s.extrasAre(x, Extras{Objectives: map[string]int{"a": 1}})
	s.lacks("")
	panics <- struct{}{}
	s.put(podsPath, "b", podAt("2", "10.0.0.2"))
	s.reports("discovery has panicked: the test")
	both := []string{"a-rank-0 10.0.0.1:8000", "b-rank-0 10.0.0.2:8000"}
	s.tells(both...)
	if err := s.Known(); err != nil {
		t.Errorf("after a panic it is not ready: %v", err)
	}
	if got := testutil.ToFloat64(s.metrics.errors.WithLabelValues("", "panic")); got != 1 {
		t.Errorf("%v panics are counted, want 1", got)
	}
	s.reports("")
	s.put(podsPath, "c", podAt("3", "10.0.0.3"))
	s.tells(append(both, "c-rank-0 10.0.0.3:8000")...)
	s.put(path, "a", objectiveOf("llama", 2))
	s.extrasAre(x, Extras{Objectives: map[string]int{"a": 2}})
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	for _, set := range s.pool.sets {
		if !slices.Contains(set, both[0]) {
			t.Errorf("the pool was told %v, want that the last set stays", set)
		}
	}
}

func TestCloseBeforeRun(t *testing.T) {
	s := newScene(t, standalone())
	s.Close()
	s.Run(t.Context(), s.pool) // returns at once
}

// The longest time between two tries is under two seconds, of whatever is followed, and no two pickers try at the same
// time.
func TestBackoff(t *testing.T) {
	for name, r := range map[string]resource{
		"pods": pods, "pools": inferencePools(DefaultGroup), "objects of a source": {name: "hints", optional: true},
		"objectives": extraResource(extraGroup, "inferenceobjectives", "InferenceObjective"),
		"legacy":     extraResource(legacyGroup, "inferencemodelrewrites", "InferenceModelRewrite"),
	} {
		next, longest, seen := backoff(r).DelayFunc(), time.Duration(0), map[time.Duration]bool{}
		for range 1000 {
			d := next()
			longest, seen[d] = max(longest, d), true
		}
		if longest > mostPause || longest < time.Second {
			t.Errorf("%s: the longest wait is %v, want 1 s to %v", name, longest, mostPause)
		}
		if len(seen) < 500 {
			t.Errorf("%s: %d different waits of 1000, want jitter", name, len(seen))
		}
	}
	if mostPause >= 2*time.Second {
		t.Errorf("the bound is %v, want less than 2 s", mostPause)
	}
}

func TestTargetsThatAreRefused(t *testing.T) {
	nowhere := &rest.Config{Host: "http://127.0.0.1:1"}
	for name, target := range map[string]Target{
		"no selector": {Ports: []int{1}}, "no port": {Selector: "a=b"},
		"nonsense": {Selector: "a=b=c", Ports: []int{1}},
	} {
		if _, err := Open(Config{Cluster: nowhere, Target: target}); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	if _, err := Open(Config{Cluster: nowhere, Pool: Pool{Name: "p", Group: "g"}}); err != nil {
		t.Errorf("a pool: %v", err)
	}
}

func TestClusterThatIsNotThere(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := Cluster(""); err == nil || !strings.Contains(err.Error(), "there is no cluster: want --kubeconfig") {
		t.Errorf("got %v, want that there is no cluster", err)
	}
	for _, kubeconfig := range []string{"", "/no/such/file"} {
		t.Setenv("KUBECONFIG", "/no/such/file/either")
		if _, err := Cluster(kubeconfig); err == nil {
			t.Errorf("%q: want an error", kubeconfig)
		}
	}
}
