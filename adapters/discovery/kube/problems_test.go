package kube

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Objects of a source may be pods too. What is wrong with the calls for them neither hides nor ends what is wrong with
// those for the pods that are endpoints.
func TestPodsOfASourceBesideThePods(t *testing.T) {
	s, x := newObjectScene(t)
	pod := Kind{Version: "v1", Kind: "Pod"}
	s.others["/api/v1"] = text{"kind": "APIResourceList", "apiVersion": "v1", "resources": []text{
		{"name": "pods", "kind": "Pod", "namespaced": true},
	}}
	s.FollowObjects([]Kind{pod})
	s.run()
	s.tells("a-rank-0 10.0.0.1:8000")
	s.objectsAre(x, pod, "…map[a:{Pod")
	s.fake.refuse(http.StatusForbidden)
	counter := s.metrics.errors.WithLabelValues("pods", "forbidden")
	s.until("the pods are refused", func() bool { return s.metrics.staleFor() > 0 && s.Concern() != "" })
	stale := func(when string) {
		t.Helper()
		if got := s.Concern(); s.metrics.staleFor() == 0 || !strings.Contains(got, "stay in force: 1") {
			t.Fatalf("%s: stale for %v, concern %q; want that the pods are not followed", when, s.metrics.staleFor(),
				got)
		}
	}
	before := testutil.ToFloat64(counter)
	s.until("more refusals", func() bool {
		stale("while both are refused")
		return testutil.ToFloat64(counter) > before+5
	})
	s.FollowObjects(nil)
	before = testutil.ToFloat64(counter)
	s.until("a refusal of the pods", func() bool {
		stale("once the source is gone")
		return testutil.ToFloat64(counter) > before
	})
}

// processorTime returns how long the process has computed, which other processes hardly change.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// The loop of Run, which follows the pods too, takes a list of objects that are all invalid as fast as any other, and
// their end in any order.
func TestManyInvalidObjects(t *testing.T) {
	const many, within = 10_000, time.Second // of a processor
	m := newMetrics()
	p := newProblems(nil, m)
	for name, r := range map[string]resource{
		"pods": pods, "objectives": extraResource(extraGroup, "inferenceobjectives", "InferenceObjective"),
	} {
		before := processorTime(t)
		all := make([]*object, many)
		for i := range all {
			all[i] = &object{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("o", i)}}
			p.note(objectOf(r, all[i].Name), r, invalid{errors.New("spec: wrong")})
			if (p.first() != "") != (name == "pods") {
				t.Fatalf("the first problem of what endpoints come from is %q with invalid %s", p.first(), name)
			}
		}
		for _, o := range all[:many/2] {
			p.end(objectOf(r, o.Name))
		}
		p.endBut(r, all[many-1:])
		if len(p.open) != 1 {
			t.Errorf("%s: %d problems are left, want 1", name, len(p.open))
		}
		p.endBut(r, nil)
		if took := processorTime(t) - before; took > within {
			t.Errorf("%d invalid %s took %v of a processor, want %v at most", many, name, took, within)
		}
	}
	if len(p.open) > 0 || p.calls.Len() > 0 || p.others.Len() > 0 {
		t.Errorf("%d problems are open, %d and %d in lists; want none", len(p.open), p.calls.Len(), p.others.Len())
	}
}

// The oldest failed call says for how long nothing is followed, whatever fails and is answered meanwhile, and whatever
// the clock is set to.
func TestStaleSinceTheOldestCallThatFails(t *testing.T) {
	m := newMetrics()
	p := newProblems(nil, m)
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	call, failure := pods.call("list"), errors.New("no")
	p.begin(aboutCache, ago(time.Hour), true, failure)
	p.note(call, pods, failure)
	p.note("object pods a", pods, invalid{failure})
	p.note("list objectives", resource{name: "objectives", optional: true}, failure)
	for _, step := range []struct {
		ends        string
		least, most time.Duration
	}{{"", time.Hour, 2 * time.Hour}, {aboutCache, 1, time.Minute}, {call, 0, 0}} {
		p.end(step.ends)
		if got := testutil.ToFloat64(m.age); got < step.least.Seconds() || got > step.most.Seconds() {
			t.Errorf("without %q: %v s, want %v to %v", step.ends, got, step.least, step.most)
		}
	}
	p.note(call, pods, failure)
	if since := *m.since.Load(); !strings.Contains(since.String(), "m=+") {
		t.Errorf("it counts from %v, want a monotonic reading too", since)
	}
}
