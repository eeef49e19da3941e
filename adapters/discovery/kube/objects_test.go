package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"
)

// hint is a kind of objects with a namespace, and rack is one without.
var (
	hint = Kind{Group: "example.com", Version: "v1", Kind: "Hint"}
	rack = Kind{Group: "example.com", Version: "v1", Kind: "Rack"}
)

const (
	versionPath = "/apis/example.com/v1"
	hintsPath   = versionPath + "/namespaces/" + namespace + "/hints"
	racksPath   = versionPath + "/racks"
)

// define has the API server know both kinds, with a part of an object and a kind that nobody asks for.
func (f *fake) define() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.others[versionPath] = text{"kind": "APIResourceList", "apiVersion": "v1", "resources": []text{
		{"name": "hints/status", "kind": "Hint", "namespaced": true}, {"name": "other", "kind": "Other"},
		{"name": "hints", "kind": "Hint", "namespaced": true}, {"name": "racks", "kind": "Rack", "namespaced": false},
	}}
	f.others[hintsPath] = text{"kind": "Hint", "apiVersion": "example.com/v1"}
	f.others[racksPath] = text{"kind": "Rack", "apiVersion": "example.com/v1"}
}

// toldObjects is what was told of kinds last.
type toldObjects struct {
	mu    sync.Mutex
	by    map[Kind]string // "name:spec name:spec", or what is wrong
	count map[Kind]int
}

func (x *toldObjects) take(k Kind, document []byte, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.count[k]++
	if err != nil {
		x.by[k] = err.Error()
		return
	}
	var all map[string]struct {
		Kind string
		Spec any
	}
	if err := json.Unmarshal(document, &all); err != nil {
		x.by[k] = err.Error() + " in " + string(document)
		return
	}
	x.by[k] = fmt.Sprint(all)
}

func (x *toldObjects) of(k Kind) (text string, count int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.by[k], x.count[k]
}

func newObjectScene(t *testing.T) (*scene, *toldObjects) {
	t.Helper()
	x := &toldObjects{by: map[Kind]string{}, count: map[Kind]int{}}
	s := newScene(t, standalone())
	s.put(podsPath, "a", podAt("1", "10.0.0.1"))
	s.TellObjects(x.take)
	return s, x
}

// objectsAre waits until a text is told of a kind.
func (s *scene) objectsAre(x *toldObjects, k Kind, want string) {
	s.t.Helper()
	s.until("of "+k.Kind+" "+want, func() bool {
		got, _ := x.of(k)
		return want == got || strings.HasPrefix(want, "…") && strings.Contains(got, strings.TrimPrefix(want, "…"))
	})
}

func hintOf(spec any) text {
	return text{"kind": "Hint", "apiVersion": "example.com/v1", "metadata": text{}, "spec": spec}
}

// Objects of a kind that comes later are told whole, and followed; those of a kind that nobody asks for are not.
func TestObjectsOfAKindAreFollowed(t *testing.T) {
	s, x := newObjectScene(t)
	s.put(hintsPath, "h", hintOf(text{"cost": 3}))
	s.FollowObjects([]Kind{hint, {Group: "", Version: "v7", Kind: "Pod"}})
	s.run()
	s.tells("a-rank-0 10.0.0.1:8000")
	s.lacks("") // picks need none of it
	s.objectsAre(x, hint, "…find hint.example.com: ")
	counter := s.metrics.errors.WithLabelValues("hint.example.com", "not-found")
	s.until("the failure counted", func() bool { return testutil.ToFloat64(counter) > 1 })
	s.define()
	s.objectsAre(x, hint, "map[h:{Hint map[cost:3]}]")
	s.put(hintsPath, "h", hintOf(text{"cost": 4}))
	s.put(hintsPath, "odd", hintOf("nonsense"))
	s.objectsAre(x, hint, "map[h:{Hint map[cost:4]} odd:{Hint nonsense}]")
	s.put(hintsPath, "h", nil)
	s.objectsAre(x, hint, "map[odd:{Hint nonsense}]")

	_, before := x.of(hint)
	s.FollowObjects([]Kind{hint, rack})
	s.objectsAre(x, rack, "map[]")
	s.reports("") // the kind that is not there is no problem any more
	s.until("the hints again", func() bool { _, now := x.of(hint); return now > before })
	s.put(racksPath, "r", text{"kind": "Rack", "apiVersion": "example.com/v1", "metadata": text{}, "spec": 1})
	s.objectsAre(x, rack, "map[r:{Rack 1}]")
	if !s.asked("watch "+hintsPath) || s.asked("list "+versionPath+"/hints") {
		t.Error("objects with a namespace are asked for elsewhere than there")
	}

	s.FollowObjects([]Kind{rack})
	s.put(racksPath, "r", nil)
	s.objectsAre(x, rack, "map[]")
	_, before = x.of(hint)
	s.put(hintsPath, "late", hintOf(1))
	s.put(racksPath, "later", text{"kind": "Rack", "apiVersion": "example.com/v1", "metadata": text{}, "spec": 2})
	s.objectsAre(x, rack, "map[later:{Rack 2}]")
	if _, after := x.of(hint); after != before {
		t.Error("hints are told, and nobody asks for them")
	}
	s.FollowObjects([]Kind{hint})
	s.objectsAre(x, hint, "map[late:{Hint 1} odd:{Hint nonsense}]")
}

// While objects may not be read those known before stay, as does all else; that is said and counted.
func TestObjectsThatMayNotBeRead(t *testing.T) {
	s, x := newObjectScene(t)
	s.define()
	s.put(hintsPath, "h", hintOf(1))
	s.FollowObjects([]Kind{hint})
	s.fake.refuse(http.StatusForbidden)
	s.run()
	s.objectsAre(x, hint, "…find hint.example.com: ")
	s.fake.refuse(0)
	s.objectsAre(x, hint, "map[h:{Hint 1}]")
	s.lacks("")
	s.fake.refuse(http.StatusForbidden)
	counter := s.metrics.errors.WithLabelValues("hints.example.com", "forbidden")
	s.until("the failure counted", func() bool { return testutil.ToFloat64(counter) > 0 })
	s.put(hintsPath, "h", hintOf(2))
	if got, _ := x.of(hint); got != "map[h:{Hint 1}]" || s.Known() != nil {
		t.Errorf("told %q, not known: %v; want what was known before", got, s.Known())
	}
	s.fake.refuse(0)
	s.objectsAre(x, hint, "map[h:{Hint 2}]")
}

// A kind that is dropped and asked for again while it is told is told one at a time, the newest last.
func TestKindThatIsAskedForAgain(t *testing.T) {
	s, _ := newObjectScene(t)
	s.define()
	s.put(hintsPath, "h", hintOf(1))
	var at, most atomic.Int32
	began, goOn, racks := make(chan string, 10), make(chan struct{}), make(chan struct{}, 10)
	s.TellObjects(func(k Kind, document []byte, _ error) {
		if k == rack {
			racks <- struct{}{}
			return
		}
		most.Store(max(most.Load(), at.Add(1)))
		began <- string(document)
		<-goOn
		at.Add(-1)
	})
	s.FollowObjects([]Kind{hint})
	s.run()
	<-began
	s.put(hintsPath, "h", hintOf(2))
	s.FollowObjects([]Kind{rack})
	<-racks
	s.FollowObjects([]Kind{hint, rack})
	<-racks
	<-time.After(2 * gatherFor)
	close(goOn)
	if last := <-began; !strings.Contains(last, `"spec":2`) || most.Load() != 1 {
		t.Errorf("%d calls at once, the last of %s; want 1, of the newest", most.Load(), last)
	}
}

// What whom it is told could not take, because it panicked, is told again.
func TestKindIsToldAgainAfterAPanic(t *testing.T) {
	s, x := newObjectScene(t)
	s.define()
	s.put(hintsPath, "h", hintOf(1))
	var failed atomic.Bool
	s.TellObjects(func(k Kind, document []byte, err error) {
		if !failed.Swap(true) {
			panic("the test")
		}
		x.take(k, document, err)
	})
	s.FollowObjects([]Kind{hint})
	s.run()
	s.objectsAre(x, hint, "map[h:{Hint 1}]")
}

// Objects that are too large for a document are named, and that is told instead of them.
func TestObjectsThatAreTooLarge(t *testing.T) {
	s, x := newObjectScene(t)
	s.define()
	s.put(hintsPath, "h", hintOf(1))
	s.FollowObjects([]Kind{hint})
	s.run()
	s.objectsAre(x, hint, "map[h:{Hint 1}]")
	s.put(hintsPath, "h", hintOf(strings.Repeat("x", mostObjectBytes)))
	s.reports("hints.example.com: 1 objects have ")
	s.objectsAre(x, hint, "…those told before stay")
	s.put(hintsPath, "h", hintOf(2))
	s.objectsAre(x, hint, "map[h:{Hint 2}]")
	s.reports("")
}

// oddObjects are objects of forms that an aggregated API server may answer, and whether they have a name.
var oddObjects = map[string]bool{
	`null`: false, `5`: false, `"text"`: false, `[]`: false, `[null]`: false, `{}`: false, `{"metadata":null}`: false,
	`{"metadata":"x"}`: false, `{"metadata":[{"name":"x"}]}`: false, `{"metadata":{"name":7}}`: false,
	`{"metadata":{"name":null,"labels":[]}}`: false, `{"kind":5,"apiVersion":[],"metadata":{"name":"k"}}`: true,
	`{"metadata":{"name":"labels","labels":"x","annotations":[null]}}`:                       true,
	`{"metadata":{"name":"times","creationTimestamp":"soon","deletionTimestamp":{}}}`:        true,
	`{"metadata":{"name":"owners","ownerReferences":5,"finalizers":{},"managedFields":"x"}}`: true,
	`{"metadata":{"name":"version","resourceVersion":9,"uid":[]},"spec":[null],"status":7}`:  true,
	`{"metadata":{"name":"\u0007\"é"},"spec":{"list":[null,{"a":[null]}]}}`:                  true,
}

// Objects of the oddest forms neither hide the others nor end the process; those without a name are named by their
// text.
func TestOddObjectsHurtNoOther(t *testing.T) {
	s, x := newObjectScene(t)
	s.define()
	var items []string
	names := 0
	for o, named := range oddObjects {
		items = append(items, o)
		if named {
			names++
		}
	}
	items = append(items, `{"kind":"Hint","metadata":{"name":"good"},"spec":"fine"}`)
	s.odd = map[string]string{hintsPath: "[" + strings.Join(items, ",") + "]"}
	var document []byte
	var mu sync.Mutex
	s.TellObjects(func(_ Kind, text []byte, err error) {
		mu.Lock()
		defer mu.Unlock()
		if document = text; err != nil {
			t.Error(err)
		}
	})
	s.FollowObjects([]Kind{hint})
	s.run()
	s.reports("hints.example.com: an object has no metadata.name that is a text: ")
	var all map[string]any
	s.until("the objects", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return document != nil && json.Unmarshal(document, &all) == nil
	})
	if len(all) != names+1 || all["good"].(map[string]any)["spec"] != "fine" || all["\a\"é"] == nil {
		t.Errorf("%d objects, want %d: %v", len(all), names+1, all)
	}
	s.tells("a-rank-0 10.0.0.1:8000")
	s.lacks("")
	x.take(hint, nil, nil)
}

// FuzzObjects looks that no object, whatever its form, spoils a list, or makes a document that is none.
func FuzzObjects(f *testing.F) {
	for o := range oddObjects {
		f.Add([]byte(o))
	}
	f.Fuzz(func(t *testing.T, o []byte) {
		if !json.Valid(o) {
			return // no JSON has it in a list
		}
		list := wholes{}
		text := `{"items":[` + string(o) + `,{"metadata":{"name":"good"}}]}`
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		d, err := Open(Config{Cluster: &rest.Config{Host: "http://127.0.0.1:1"}, Namespace: "n",
			Target: Target{Selector: "a=b", Ports: []int{1}}})
		if err != nil {
			t.Fatal(err)
		}
		of := resource{name: "hints", kind: "Hint", optional: true, whole: true}
		view := &objectView{kind: hint, follower: &follower{source: &source{of: of}}, next: make(chan telling, 1)}
		d.objects.by = map[*follower]*objectView{view.follower: view}
		w := event{follower: view.follower, kind: listed}
		for i := range list.DeepCopyObject().(*wholes).Items {
			if err := w.add(&list.Items[i]); err != nil {
				t.Fatal(err)
			}
		}
		d.takeObject(t.Context(), w, view)
		for _, kind := range []eventKind{stored, removed, stored} {
			d.takeObject(t.Context(), event{follower: view.follower, kind: kind, objects: w.objects[:1],
				texts: w.texts[:1]}, view)
		}
		d.tellObjects()
		var all map[string]json.RawMessage
		if got := <-view.next; json.Unmarshal(got.document, &all) != nil || all["good"] == nil {
			t.Fatalf("%s becomes %s", o, got.document)
		}
	})
}

// What is told of objects that are too large, or not known, reaches a source that comes later as well.
func TestWhyThereAreNoObjectsIsToldAnew(t *testing.T) {
	for name, c := range map[string]struct {
		spec any
		want string
	}{
		"too large": {strings.Repeat("x", mostObjectBytes), "1 objects have "},
		"forbidden": {1, "list hints.example.com: "},
	} {
		t.Run(name, func(t *testing.T) {
			s, x := newObjectScene(t)
			s.define()
			s.put(hintsPath, "h", hintOf(c.spec))
			if name == "forbidden" {
				s.hold(hintsPath, http.StatusForbidden)()
			}
			s.FollowObjects([]Kind{hint})
			s.run()
			s.objectsAre(x, hint, "…"+c.want)
			s.fake.hold(hintsPath, 0) // nothing is heard of the objects any more
			<-time.After(3 * gatherFor)
			_, before := x.of(hint)
			s.FollowObjects([]Kind{hint})
			s.until("it is told anew", func() bool { _, now := x.of(hint); return now > before })
			s.objectsAre(x, hint, "…"+c.want)
		})
	}
}
