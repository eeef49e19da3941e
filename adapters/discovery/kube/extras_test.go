package kube

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/signalbox-epp/signalbox/engine/rewrites"
	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// told is what was told of objectives and rewrites, and of deprecations.
type told struct {
	mu         sync.Mutex
	last       Extras
	count      int
	refusals   int // so many are refused
	deprecated []string
}

func (x *told) take(e Extras) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.refusals > 0 {
		x.refusals--
		return false
	}
	x.last = e
	x.count++
	return true
}

func (x *told) deprecate(what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.deprecated = append(x.deprecated, what)
}

func (x *told) warned() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.Join(x.deprecated, "\n")
}

// extrasAre waits until exactly this was told last.
func (s *scene) extrasAre(x *told, want Extras) {
	s.t.Helper()
	var diff string
	for end := time.Now().Add(withinTest); time.Now().Before(end); <-time.After(2 * time.Millisecond) {
		x.mu.Lock()
		diff = cmp.Diff(want, x.last)
		x.mu.Unlock()
		if diff == "" {
			return
		}
	}
	s.t.Fatalf("extras, -want +got: %s", diff)
}

func newExtrasScene(t *testing.T) (*scene, *told) {
	t.Helper()
	x, cfg := &told{}, inPool()
	cfg.Deprecated = x.deprecate
	s := newScene(t, cfg)
	s.TellExtras(x.take)
	return s, x
}

func objectiveOf(pool string, priority any) text {
	spec := text{"poolRef": text{"name": pool}}
	if priority != nil {
		spec["priority"] = priority
	}
	return text{"kind": "InferenceObjective", "apiVersion": extraGroup + "/v1alpha2", "metadata": text{}, "spec": spec}
}

// Objectives of our pool count, of one name that of the new group; those of the legacy group alone are deprecated.
func TestObjectivesAreFollowed(t *testing.T) {
	s, x := newExtrasScene(t)
	current, legacy := extraPath(extraGroup, "inferenceobjectives"), extraPath(legacyGroup, "inferenceobjectives")
	s.install(legacy)
	s.put(legacy, "both", objectiveOf("llama", 1))
	s.put(legacy, "old", objectiveOf("llama", nil))
	s.run()
	s.extrasAre(x, Extras{Objectives: map[string]int{"both": 1, "old": 0}})
	s.put(current, "both", objectiveOf("llama", 7))
	s.put(current, "other", objectiveOf("qwen", 7))
	s.put(current, "broken", objectiveOf("llama", "high"))
	s.install(current)
	s.extrasAre(x, Extras{Objectives: map[string]int{"both": 7, "old": 0}})
	s.reports("InferenceObjective prod/broken: spec.priority: got string, want a number")
	s.put(current, "broken", objectiveOf("llama", -5))
	s.reports("")
	s.extrasAre(x, Extras{Objectives: map[string]int{"both": 7, "old": 0, "broken": -5}})
	s.put(current, "both", nil)
	s.extrasAre(x, Extras{Objectives: map[string]int{"both": 1, "old": 0, "broken": -5}})
	s.put(legacy, "both", nil)
	s.put(legacy, "old", objectiveOf("llama", 3))
	s.extrasAre(x, Extras{Objectives: map[string]int{"old": 3, "broken": -5}})
	const want = "InferenceObjective old of the group " + legacyGroup + ": want the group " + extraGroup
	if got := x.warned(); strings.Count(got, want) != 1 {
		t.Errorf("deprecated: %q, want once %q", got, want)
	}
}

// A definition that is not installed is no problem, and lacks no readiness. Each list is asked for once, and then what
// the group has, at one go for all of its kinds and versions.
func TestExtrasThatAreNotInstalled(t *testing.T) {
	s, _ := newExtrasScene(t)
	s.put(poolsPath, "llama", poolOf("vllm", 8000))
	s.install(strings.Replace(extraPath(legacyGroup, "inferencepoolimports"), "v1alpha2", "v1alpha1", 1))
	s.run()
	s.lacks("")
	for _, group := range extraGroups {
		s.until("looks at "+group, func() bool { return s.times("list /apis/"+group) > 3 })
	}
	paths := map[string]bool{}
	for _, n := range Needs(Pool{Name: "llama"})[2:] {
		for _, version := range n.Versions {
			paths["list /apis/"+n.Group+"/"+version+"/namespaces/"+namespace+"/"+n.Resource] = true
		}
	}
	for path := range paths {
		if n := s.times(path); n != 1 || len(paths) != 6 {
			t.Errorf("%s, %d times, want once, as each of 6: %v", path, n, paths)
		}
	}
	if n := s.times("list /apis/" + legacyGroup + "/v1alpha1"); n > 0 {
		t.Errorf("a version that is not read was looked at %d times", n)
	}
	if len(s.problems) > 0 {
		t.Errorf("a problem is reported: %s", <-s.problems)
	}
}

// A kind that comes later is followed within 2 s, beside another one of its group that is there, and so is one that
// went.
func TestExtrasThatAreInstalledLater(t *testing.T) {
	s, x := newExtrasScene(t)
	objectivesPath, rewritesPath := extraPath(extraGroup, "inferenceobjectives"),
		extraPath(extraGroup, "inferencemodelrewrites")
	s.install(rewritesPath)
	s.put(objectivesPath, "a", objectiveOf("llama", 1))
	s.run()
	const looks = 3 // until the pauses between them are nearly at their longest
	s.until("looks", func() bool { return s.times("list /apis/"+extraGroup+"/v1alpha2") > looks })
	machine, began := lateness.Begin(), time.Now()
	s.install(objectivesPath)
	s.extrasAre(x, Extras{Objectives: map[string]int{"a": 1}})
	machine.Within(t, "followed after it was installed", time.Since(began), 2*time.Second)
	s.put(objectivesPath, "a", objectiveOf("llama", 2))
	s.extrasAre(x, Extras{Objectives: map[string]int{"a": 2}})
	if n := s.times("list " + rewritesPath); n != 1 {
		t.Errorf("rewrites were listed %d times, want once", n)
	}

	s.put(objectivesPath, "a", nil)
	s.extrasAre(x, Extras{})
	s.uninstall(objectivesPath)
	s.CloseClientConnections()
	before := s.times("list /apis/" + extraGroup)
	s.until("a look", func() bool { return s.times("list /apis/"+extraGroup) > before })
	s.put(objectivesPath, "b", objectiveOf("llama", 3))
	s.install(objectivesPath)
	s.extrasAre(x, Extras{Objectives: map[string]int{"b": 3}})
}

// Where an account may not read what a group has, lists find what is installed.
func TestExtrasWithoutTheRightToLook(t *testing.T) {
	s, x := newExtrasScene(t)
	path := extraPath(legacyGroup, "inferenceobjectives")
	s.hides = true
	s.put(path, "a", objectiveOf("llama", 1))
	s.run()
	s.until("lists", func() bool { return s.times("list "+path) > 2 })
	s.install(path)
	s.extrasAre(x, Extras{Objectives: map[string]int{"a": 1}})
}

// Objects whose definition is gone stay in force for a while, which is said, and then no longer.
func TestDefinitionThatIsTakenAway(t *testing.T) {
	s, _ := newExtrasScene(t)
	r := extraResource(extraGroup, "inferenceobjectives", "InferenceObjective")
	view := &extraView{of: r, kind: objectives, all: map[string]*extra{"a": {named: true, priority: 1}}}
	for kind := range s.extras.views {
		s.extras.views[kind] = [len(extraGroups)]*extraView{{kind: kind}, {kind: kind}}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer s.running.Wait()
	defer cancel()
	f := &follower{source: &source{of: r}, cancel: func() {}}
	s.extras.views[objectives][0], s.extras.next = view, make(chan extrasTelling, 1)
	s.tellExtras()
	if e := <-s.extras.next; len(e.Objectives) != 1 {
		t.Fatalf("told %v, want one objective", e)
	}
	missing := func() { s.notInstalled(ctx, event{follower: f, verb: "list", err: errors.New("not found")}, view) }
	missing()
	s.reports("not found; objects that stay in force for 30s: 1")
	if len(view.all) != 1 {
		t.Error("the objective is gone at once")
	}
	view.missing = view.missing.Add(-undefinedFor)
	missing()
	s.reports("")
	if e := <-s.extras.next; len(e.Objectives) > 0 {
		t.Errorf("told %v, want no objective", e)
	}
}

func rewriteOf(created string, rules ...text) text {
	return text{
		"kind": "InferenceModelRewrite", "apiVersion": extraGroup + "/v1alpha2",
		"metadata": text{"creationTimestamp": created},
		"spec":     text{"poolRef": text{"name": "llama"}, "rules": rules},
	}
}

func ruleTo(model string, targets ...text) text {
	return text{"matches": []text{{"model": text{"value": model}}}, "targets": targets}
}

// The oldest rewrite comes first.
func TestRewritesAreFollowed(t *testing.T) {
	s, x := newExtrasScene(t)
	path := extraPath(extraGroup, "inferencemodelrewrites")
	s.install(path)
	s.put(path, "a", rewriteOf("2026-11-24T11:00:00Z", ruleTo("m", text{"modelRewrite": "late"})))
	s.put(path, "b", rewriteOf("2026-11-24T10:00:00Z", ruleTo("m", text{"modelRewrite": "x"},
		text{"modelRewrite": "y", "weight": 3})))
	s.put(path, "c", rewriteOf("2026-11-24T09:00:00Z", ruleTo("m")))
	s.run()
	s.reports("InferenceModelRewrite prod/c: spec.rules[0].targets: missing")
	to := func(targets ...rewrites.Target) []rewrites.Rule {
		return []rewrites.Rule{{Models: []string{"m"}, Targets: targets}}
	}
	s.extrasAre(x, Extras{Rewrites: []rewrites.Rewrite{
		{Name: "b", Rules: to(rewrites.Target{Model: "x"}, rewrites.Target{Model: "y", Weight: 3})},
		{Name: "a", Rules: to(rewrites.Target{Model: "late", Weight: 1})},
	}})
	s.put(path, "b", nil)
	s.extrasAre(x, Extras{Rewrites: []rewrites.Rewrite{
		{Name: "a", Rules: to(rewrites.Target{Model: "late", Weight: 1})},
	}})
}

// What is wrong with an object is named with its field; what is for another pool is left out.
func TestExtrasThatMakeNoSense(t *testing.T) {
	const notOurs, target, match = "not ours", "spec.rules[0].targets[0].", "spec.rules[0].matches[0].model."
	const noName, noRef = "modelRewrite: want the name of a model", "spec.poolRefs: got number, want a mapping"
	for rest, want := range map[string]string{
		`}`:                           "",
		`,"priority":3000000000}`:     "spec.priority: got 3000000000, want -2147483648 to 2147483647",
		`,"priority":[]}`:             "spec.priority: got array, want a number",
		`,"poolRef":{}}`:              "",
		`,"poolRef":{"group":"x"}}`:   notOurs,
		`,"poolRef":{"kind":"Node"}}`: notOurs,
		`,"poolRef":{"name":"qwen"}}`: notOurs,
		`,"poolRef":"llama"}`:         "spec.poolRef: got string, want a mapping",
		`,"poolRef":{"name":"qwen"},"priority":"high"}`:                                      notOurs,
		`,"poolRef":{"name":"qwen"},"rules":"none"}`:                                         notOurs,
		`,"poolRef":{"name":"qwen"},"poolRefs":[{"name":"opt"},{"name":"llama"}]}`:           "",
		`,"poolRef":{"name":"qwen"},"poolRefs":[{"name":"opt"}]}`:                            notOurs,
		`,"poolRef":{"name":"qwen"},"poolRefs":[{"name":"llama","group":"x"}]}`:              notOurs,
		`,"poolRef":{"name":"qwen"},"poolRefs":[],"poolSelector":{"matchLabels":{"a":"b"}}}`: "",
		`,"poolRefs":{}}`: "spec.poolRefs: got object, want a list",
		`,"poolRef":{"name":"qwen"},"poolRefs":{}}`:                            notOurs,
		`,"poolRef":{"name":"qwen"},"poolRefs":[5,{"name":"llama"}]}`:          noRef,
		`,"poolRef":{"name":"qwen"},"poolSelector":[]}`:                        notOurs,
		`,"poolRef":{"name":"qwen"},"poolSelector":{"matchLabels":{"a":"-"}}}`: notOurs,
		`,"poolRef":{"name":""},"poolRefs":"llama"}`:                           "spec.poolRefs: got string, want a list",
		`,"poolRef":{"name":""},"poolSelector":{"matchLabels":{"a":"-"}}}`:     "spec.poolSelector: ",
		`,"poolSelector":[]}`:                                          "spec.poolSelector: got array, want a mapping",
		`,"poolSelector":{"matchLabels":{"a":"-"}}}`:                   "spec.poolSelector: ",
		`,"rules":{}}`:                                                 "spec.rules: got object, want a list",
		`,"rules":[{"targets":[{"modelRewrite":"a"}]}]}`:               "",
		`,"rules":[{"targets":[{"modelRewrite":""}]}]}`:                target + noName,
		`,"rules":[{"targets":[{"modelRewrite":"a\n"}]}]}`:             target + noName,
		`,"rules":[{"targets":[{"modelRewrite":"a","weight":0}]}]}`:    target + "weight: got 0, want 1 to 1000000",
		`,"rules":[{"matches":[{"model":{"value":""}}]}]}`:             match + "value: missing",
		`,"rules":[{"matches":[{"model":{"type":"R","value":"a"}}]}]}`: match + `type: got "R", want Exact`,
	} {
		kind := objectives
		if strings.Contains(rest, "rules") {
			kind = modelRewrites
		}
		o := &object{ObjectMeta: metav1.ObjectMeta{Name: "o"}, Spec: []byte(`{"poolRef":{"name":"llama"}` + rest)}
		before := o.DeepCopyObject().(*object)
		before.Spec = slices.Clone(o.Spec)
		e, err := extraOf(kind, o, Pool{Name: "llama", Group: DefaultGroup})
		if !reflect.DeepEqual(o, before) {
			t.Errorf("%s was %s before it was read", o.Spec, before.Spec)
		}
		got := errorText(err)
		if e == nil {
			got = notOurs
		}
		if got != want && (want == "" || !strings.HasSuffix(want, ": ") || !strings.HasPrefix(got, want)) {
			t.Errorf("%s: got %q, want %q", o.Spec, got, want)
		}
	}
}

// What is wrong with a field that is of the other kind is no concern of an object.
func TestFieldsOfTheOtherKind(t *testing.T) {
	for kind, spec := range []string{
		objectives:    `{"poolRef":{"name":"llama"},"priority":7,"rules":"none"}`,
		modelRewrites: `{"poolRef":{"name":"llama"},"priority":"high","rules":[{"targets":[{"modelRewrite":"a"}]}]}`,
	} {
		e, err := extraOf(kind, &object{Spec: []byte(spec)}, Pool{Name: "llama", Group: DefaultGroup})
		if err != nil || e == nil {
			t.Errorf("%s %s: %v, %v; want that it counts", extraKinds[kind].kind, spec, e, err)
		}
	}
}

// Where v1 of the group is served and v1alpha2 is not, it is followed, also if it comes later or takes the other one's
// place. What is known stays in force meanwhile.
func TestVersionThatIsServedIsFollowed(t *testing.T) {
	s, x := newExtrasScene(t)
	first, next := extraPath(extraGroup, "inferenceobjectives"), strings.Replace(
		extraPath(extraGroup, "inferenceobjectives"), "v1alpha2", "v1", 1)
	s.put(poolsPath, "llama", poolOf("vllm", 8000))
	listed := func(priority int) text {
		return text{"metadata": text{}, "spec": text{"priority": priority, "poolRefs": []text{{"name": "llama"}}}}
	}
	s.put(first, "a", objectiveOf("llama", 1))
	s.put(next, "a", listed(2))
	s.run()
	s.until("a look at both versions", func() bool { return s.asked("list "+first) && s.asked("list "+next) })
	s.serve(next, "InferenceObjective", extraGroup+"/v1")
	s.extrasAre(x, Extras{Objectives: map[string]int{"a": 2}})
	s.put(next, "b", listed(3))
	s.extrasAre(x, Extras{Objectives: map[string]int{"a": 2, "b": 3}})

	s.serve(next, "", "")
	s.install(first)
	s.CloseClientConnections()
	s.extrasAre(x, Extras{Objectives: map[string]int{"a": 1}})
	s.uninstall(first)
	s.serve(next, "InferenceObjective", extraGroup+"/v1")
	s.CloseClientConnections()
	s.extrasAre(x, Extras{Objectives: map[string]int{"a": 2, "b": 3}})
	s.put(next, "b", nil)
	s.extrasAre(x, Extras{Objectives: map[string]int{"a": 2}})
}

// What is beside the pool is followed again within 3 s of an outage, whatever the API server has said meanwhile.
func TestExtrasComeBackSoon(t *testing.T) {
	s, x := newExtrasScene(t)
	path := extraPath(extraGroup, "inferenceobjectives")
	s.install(path)
	s.put(path, "a", objectiveOf("llama", 1))
	s.run()
	s.extrasAre(x, Extras{Objectives: map[string]int{"a": 1}})
	for _, status := range []int{http.StatusForbidden, http.StatusUnauthorized, http.StatusServiceUnavailable,
		http.StatusTooManyRequests, http.StatusNotFound} {
		s.fake.refuse(status)
		<-time.After(time.Second) // in all long enough for pauses to be at their longest
	}
	s.put(path, "a", objectiveOf("llama", 2))
	s.fake.refuse(0)
	machine, began := lateness.Begin(), time.Now()
	s.extrasAre(x, Extras{Objectives: map[string]int{"a": 2}})
	machine.Within(t, "followed again after the outage", time.Since(began), 3*time.Second)
}

// The problem of an object ends with it, also if the object goes while nothing watches, or goes with its pool.
func TestProblemOfAnObjectEndsWithIt(t *testing.T) {
	s, _ := newExtrasScene(t)
	path := extraPath(extraGroup, "inferenceobjectives")
	s.install(path)
	s.put(poolsPath, "llama", poolOf("vllm", 8000))
	s.put(podsPath, "a", podAt("1", "10.0.0.1"))
	s.put(path, "broken", objectiveOf("llama", "high"))
	s.run()
	s.reports("InferenceObjective prod/broken: spec.priority: ")
	s.fake.refuse(http.StatusTooManyRequests)
	s.put(path, "broken", nil)
	s.forget()
	s.fake.refuse(0)
	s.reports("")
	s.tells("a-rank-0 10.0.0.1:8000")

	s.put(podsPath, "b", podAt("2", "nonsense"))
	s.reports("pod prod/b: status.podIP: ")
	s.put(poolsPath, "llama", nil)
	s.reports("")
}

// Objects of the version to come name their pools by a list, or by the labels of pools, which may change.
func TestPoolsThatAreListedOrSelected(t *testing.T) {
	s, x := newExtrasScene(t)
	path := extraPath(extraGroup, "inferenceobjectives")
	s.install(path)
	of := func(spec text) text { return text{"metadata": text{}, "spec": spec} }
	gold := text{"matchLabels": text{"tier": "gold"}}
	s.put(path, "listed", of(text{"priority": 1, "poolRefs": []text{{"name": "qwen"}, {"name": "llama"}}}))
	s.put(path, "elsewhere", of(text{"priority": 2, "poolRefs": []text{{"name": "qwen"}}}))
	s.put(path, "selected", of(text{"priority": 3, "poolSelector": gold}))
	s.put(path, "both", of(text{"priority": 4, "poolRef": text{"name": "llama"}, "poolSelector": gold}))
	s.put(path, "all", of(text{"priority": 5, "poolSelector": text{}}))
	s.run()
	s.extrasAre(x, Extras{Objectives: map[string]int{"listed": 1, "both": 4}})
	pool := func(tier string) text {
		o := poolOf("vllm", 8000)
		o["metadata"].(text)["labels"] = text{"tier": tier}
		return o
	}
	s.put(poolsPath, "llama", pool("gold"))
	s.extrasAre(x, Extras{Objectives: map[string]int{"listed": 1, "selected": 3, "both": 4, "all": 5}})
	s.put(poolsPath, "llama", pool("silver"))
	s.extrasAre(x, Extras{Objectives: map[string]int{"listed": 1, "both": 4, "all": 5}})
	s.put(poolsPath, "llama", pool("gold"))
	s.extrasAre(x, Extras{Objectives: map[string]int{"listed": 1, "selected": 3, "both": 4, "all": 5}})
}

// An object that is invalid is named only while it is of our pool, whose labels may change.
func TestInvalidObjectsOfOtherPoolsAreNotNamed(t *testing.T) {
	s, x := newExtrasScene(t)
	path := extraPath(extraGroup, "inferenceobjectives")
	s.install(path)
	of := func(spec text) text {
		o := objectiveOf("", nil)
		o["spec"] = spec
		return o
	}
	gold, silver := text{"matchLabels": text{"tier": "gold"}}, text{"matchLabels": text{"tier": "silver"}}
	s.put(path, "gold", of(text{"priority": "high", "poolSelector": gold}))
	s.put(path, "silver", of(text{"priority": "high", "poolSelector": silver}))
	s.put(path, "listed", of(text{"priority": "high", "poolRefs": []text{{"name": "qwen"}}}))
	s.put(path, "good", of(text{"priority": 1, "poolRefs": []text{{"name": "llama"}}}))
	s.run()
	s.extrasAre(x, Extras{Objectives: map[string]int{"good": 1}})
	pool := func(tier string) text {
		o := poolOf("vllm", 8000)
		o["metadata"].(text)["labels"] = text{"tier": tier}
		return o
	}
	named := func(want string) {
		t.Helper()
		select {
		case got := <-s.problems:
			if !strings.Contains(got, want) || want == "" && got != "" {
				t.Errorf("reported %q, want %q and nothing before", got, want)
			}
		case <-time.After(withinTest):
			t.Fatalf("nothing is reported, want %q", want)
		}
	}
	s.put(poolsPath, "llama", pool("silver"))
	named("InferenceObjective prod/silver: spec.priority: got string, want a number")
	s.put(path, "silver", of(text{"priority": 2, "poolSelector": silver}))
	named("")
	s.extrasAre(x, Extras{Objectives: map[string]int{"good": 1, "silver": 2}})
	s.put(poolsPath, "llama", pool("gold"))
	named("InferenceObjective prod/gold: spec.priority: got string, want a number")
	s.put(poolsPath, "llama", pool("none"))
	named("")
}
