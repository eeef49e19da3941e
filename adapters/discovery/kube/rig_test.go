package kube

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
)

const (
	namespace  = "prod"
	podsPath   = "/api/v1/namespaces/" + namespace + "/pods"
	poolsPath  = "/apis/" + DefaultGroup + "/v1/namespaces/" + namespace + "/inferencepools"
	withinTest = 20 * time.Second // far longer than anything takes, for a busy machine
)

// fake is an API server that keeps objects in memory, and lists and watches them.
type fake struct {
	*httptest.Server
	mu      sync.Mutex
	all     map[string]map[string]text // by path and name
	log     []change
	version int
	oldest  int // a watch from an older version is answered 410
	refusal int // status of every answer; 0 = none
	grew    chan struct{}
	calls   []string // verb and path
	lasts   []string // how long each watch may last, in seconds
	// of resources beside pods and pools
	installed map[string]bool
	others    map[string]text   // answers of other paths: what versions have, and kinds of lists
	odd       map[string]string // the items of lists by path, as they are
	hides     bool              // what groups have may not be read
	held      held
}

// text is an object as JSON has it.
type text map[string]any

type change struct {
	path         string
	version      int
	before, then text // nil = it was not there, or is gone
}

func newFake(t *testing.T) *fake {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	f := &fake{all: map[string]map[string]text{}, grew: make(chan struct{}), installed: map[string]bool{},
		others: map[string]text{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

// put stores an object; nil takes it away.
func (f *fake) put(path, name string, o text) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	before := f.all[path][name]
	if f.all[path] == nil {
		f.all[path] = map[string]text{}
	}
	if o == nil {
		delete(f.all[path], name)
	} else {
		meta := o["metadata"].(text)
		meta["name"], meta["namespace"] = name, namespace
		meta["resourceVersion"] = strconv.Itoa(f.version)
		f.all[path][name] = o
	}
	f.log = append(f.log, change{path, f.version, before, o})
	close(f.grew)
	f.grew = make(chan struct{})
}

// refuse has every call answered with a status, and breaks off the watches; 0 = no more.
func (f *fake) refuse(status int) {
	f.mu.Lock()
	f.refusal = status
	f.mu.Unlock()
	f.CloseClientConnections()
}

// forget makes every version that a watch may begin at too old, and breaks off the watches.
func (f *fake) forget() {
	f.mu.Lock()
	f.version++
	f.oldest = f.version
	f.mu.Unlock()
	f.CloseClientConnections()
}

// held is a path whose lists wait, and then are answered with a status; 0 = as they are.
type held struct {
	path   string
	until  chan struct{}
	status int
}

// wait returns the status that a request gets, once it may; 0 = as usual.
func (h *held) wait(r *http.Request) int {
	if h.path != r.URL.Path {
		return 0
	}
	select {
	case <-h.until:
	case <-r.Context().Done():
	}
	return h.status
}

// hold has the lists of a path wait until the result is called, and answered with a status from then on; 0 = as usual.
func (f *fake) hold(path string, status int) (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = held{path, make(chan struct{}), status}
	return sync.OnceFunc(func() { close(f.held.until) })
}

func (f *fake) asked(what string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.calls, what)
}

// times returns how often something was asked.
func (f *fake) times(what string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c == what {
			n++
		}
	}
	return n
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	verb := "list "
	if q.Get("watch") != "" {
		verb = "watch "
	}
	f.mu.Lock()
	f.calls = append(f.calls, verb+r.URL.Path)
	if verb == "watch " {
		f.lasts = append(f.lasts, q.Get("timeoutSeconds")+" "+q.Get("allowWatchBookmarks"))
	}
	refusal, version, oldest := f.refusal, f.version, f.oldest
	kind, group, there := f.kindAt(r.URL.Path)
	other, odd, said, hides := f.others[r.URL.Path], f.odd[r.URL.Path], f.groupAt(r.URL.Path), f.hides
	matching := matchFunc(q.Get("labelSelector"), q.Get("fieldSelector"))
	var items []text
	for _, o := range f.all[r.URL.Path] {
		if matching(o) {
			items = append(items, o)
		}
	}
	held := f.held
	f.mu.Unlock()
	refusal = cmp.Or(held.wait(r), refusal)
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	switch {
	case refusal != 0:
		answer(w, refusal, statusOf(refusal))
	case other["kind"] == "APIResourceList":
		answer(w, http.StatusOK, other)
	case said != nil && hides:
		answer(w, http.StatusForbidden, statusOf(http.StatusForbidden))
	case said != nil:
		answer(w, http.StatusOK, said)
	case !there:
		http.NotFound(w, r)
	case verb == "watch " && from < oldest:
		answer(w, http.StatusGone, text{"kind": "Status", "apiVersion": "v1", "status": "Failure",
			"code": http.StatusGone, "reason": string(metav1.StatusReasonExpired), "message": "too old"})
	case verb == "watch ":
		f.watch(w, r, from, matching)
	case odd != "":
		answer(w, http.StatusOK, text{"kind": kind + "List", "apiVersion": group, "items": json.RawMessage(odd),
			"metadata": text{"resourceVersion": strconv.Itoa(version)}})
	default:
		answer(w, http.StatusOK, text{"kind": kind + "List", "apiVersion": group, "items": items,
			"metadata": text{"resourceVersion": strconv.Itoa(version)}})
	}
}

// groupAt returns what a group has, or a version of it, by the paths of resources that are defined; nil = the path is
// of neither. Where a right is missing nobody hears whether it is.
func (f *fake) groupAt(path string) text {
	about, isGroup := strings.CutPrefix(path, "/apis/")
	group, version, ofVersion := strings.Cut(about, "/")
	if !isGroup || strings.Contains(version, "/") || !slices.Contains(extraGroups[:], group) {
		return nil
	}
	var versions, resources []text
	for _, at := range slices.Concat(slices.Collect(maps.Keys(f.installed)), slices.Collect(maps.Keys(f.others))) {
		parts := strings.Split(strings.TrimPrefix(at, "/apis/"), "/") // group, version, namespaces, name, resource
		if len(parts) != 5 || parts[0] != group {
			continue
		}
		versions = append(versions, text{"groupVersion": group + "/" + parts[1], "version": parts[1]})
		if parts[1] == version {
			resources = append(resources, text{"name": parts[4]})
		}
	}
	switch {
	case ofVersion && len(resources) > 0:
		return text{"kind": "APIResourceList", "groupVersion": about, "resources": resources}
	case !ofVersion && len(versions) > 0, f.hides:
		return text{"kind": "APIGroup", "name": group, "versions": versions}
	}
	return nil
}

// kindAt returns the kind and the version of the objects of a path, and whether the resource is defined.
func (f *fake) kindAt(path string) (kind, version string, there bool) {
	switch path {
	case podsPath:
		return "Pod", "v1", true
	case poolsPath:
		return "InferencePool", DefaultGroup + "/v1", true
	}
	if other := f.others[path]; other != nil {
		return other["kind"].(string), other["apiVersion"].(string), true
	}
	for _, group := range extraGroups {
		for _, k := range extraKinds {
			if path == extraPath(group, k.name) {
				return k.kind, group + "/v1alpha2", f.installed[path]
			}
		}
	}
	return "", "", false
}

func extraPath(group, resource string) string {
	return "/apis/" + group + "/v1alpha2/namespaces/" + namespace + "/" + resource
}

// install defines a resource.
func (f *fake) install(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.installed[path] = true
}

// uninstall takes the definition of a resource away.
func (f *fake) uninstall(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.installed, path)
}

// serve has objects of a path be of a kind and a version; no kind = the resource is not defined.
func (f *fake) serve(path, kind, version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kind == "" {
		delete(f.others, path)
		return
	}
	f.others[path] = text{"kind": kind, "apiVersion": version}
}

func statusOf(refusal int) text {
	return text{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": refusal,
		"reason": string(reasonFor(refusal)), "message": "no"}
}

func reasonFor(status int) metav1.StatusReason {
	return map[int]metav1.StatusReason{
		http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound,
		http.StatusUnauthorized:    metav1.StatusReasonUnauthorized,
		http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
	}[status]
}

func answer(w http.ResponseWriter, status int, o text) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(o)
}

// watch writes each change after a version, as the selector sees it.
func (f *fake) watch(w http.ResponseWriter, r *http.Request, from int, matching func(text) bool) {
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).Flush()
	for {
		f.mu.Lock()
		grew := f.grew
		var due []change
		for _, c := range f.log {
			if c.version > from && c.path == r.URL.Path {
				due = append(due, c)
			}
		}
		from = f.version
		f.mu.Unlock()
		for _, c := range due {
			if kind, o := c.event(matching); kind != "" {
				_ = json.NewEncoder(w).Encode(text{"type": kind, "object": o})
			}
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-grew:
		case <-r.Context().Done():
			return
		}
	}
}

func (c change) event(matching func(text) bool) (kind string, o text) {
	was, is := c.before != nil && matching(c.before), c.then != nil && matching(c.then)
	switch {
	case was && is:
		return "MODIFIED", c.then
	case is:
		return "ADDED", c.then
	case was:
		return "DELETED", c.before
	}
	return "", nil
}

func matchFunc(selector, field string) func(text) bool {
	name := strings.TrimPrefix(field, "metadata.name=")
	s, err := labels.Parse(selector)
	return func(o text) bool {
		meta := o["metadata"].(text)
		set, _ := meta["labels"].(map[string]string)
		return err == nil && s.Matches(labels.Set(set)) && (name == "" || meta["name"] == name)
	}
}

// podAt is a Pod that is Ready at an address, with the label app=vllm.
func podAt(uid, ip string) text {
	return text{
		"kind": "Pod", "apiVersion": "v1",
		"metadata": text{
			"uid": uid, "labels": map[string]string{"app": "vllm"}, "creationTimestamp": "2026-11-24T10:00:00Z",
		},
		"status": text{"podIP": ip, "conditions": []text{{"type": "Ready", "status": "True"}}},
	}
}

func (o text) with(part, key string, value any) text {
	o[part].(text)[key] = value
	return o
}

// poolOf is an InferencePool.
func poolOf(app string, ports ...int) text {
	var numbers []text
	for _, p := range ports {
		numbers = append(numbers, text{"number": p})
	}
	return text{
		"kind": "InferencePool", "apiVersion": DefaultGroup + "/v1", "metadata": text{},
		"spec": text{"selector": text{"matchLabels": text{"app": app}}, "targetPorts": numbers},
	}
}

// scene is a discovery over a fake API server.
type scene struct {
	*fake
	t *testing.T
	*Discovery
	pool     *heard
	problems chan string // "" = all is well
}

func newScene(t *testing.T, cfg Config) *scene {
	t.Helper()
	return newSceneOver(t, newFake(t), cfg)
}

// newSceneOver is a scene over an API server that is there.
func newSceneOver(t *testing.T, f *fake, cfg Config) *scene {
	t.Helper()
	s := &scene{fake: f, t: t, pool: &heard{}, problems: make(chan string, 1000)}
	if cfg.Cluster == nil {
		cfg.Cluster = &rest.Config{}
	}
	cfg.Cluster.Host, cfg.Namespace = f.URL, namespace
	cfg.Problem = func(err error) {
		if err == nil {
			s.problems <- ""
			return
		}
		s.problems <- err.Error()
	}
	d, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Discovery = d
	return s
}

func (s *scene) run() {
	go s.Run(s.t.Context(), s.pool)
	s.t.Cleanup(s.Discovery.Close)
}

// until waits for a condition.
func (s *scene) until(what string, holds func() bool) {
	s.t.Helper()
	for end := time.Now().Add(withinTest); !holds(); {
		if time.Now().After(end) {
			set, _ := s.pool.now()
			s.t.Fatalf("waited %v for %s; the set is %v, what is not known %v", withinTest, what, set, s.Known())
		}
		<-time.After(2 * time.Millisecond)
	}
}

// tells waits until the pool has exactly these endpoints, each "name address".
func (s *scene) tells(want ...string) {
	s.t.Helper()
	s.until("the set "+strings.Join(want, ", "), func() bool {
		set, count := s.pool.now()
		return count > 0 && slices.Equal(set, want)
	})
}

// lacks waits until readiness waits for something whose text has this in it; "" = for nothing.
func (s *scene) lacks(want string) {
	s.t.Helper()
	s.until("readiness: "+want, func() bool {
		err := s.Known()
		return want == "" && err == nil || want != "" && err != nil && strings.Contains(err.Error(), want)
	})
}

// reports waits for a problem with this in its text; "" = that all is well.
func (s *scene) reports(want string) {
	s.t.Helper()
	end := time.After(withinTest)
	for {
		select {
		case got := <-s.problems:
			if want == "" && got == "" || want != "" && strings.Contains(got, want) {
				return
			}
		case <-end:
			s.t.Fatalf("no problem %q was reported", want)
		}
	}
}
