package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/runtime/supervise"
)

// object is any object of the API server. Its spec and status stay undecoded, so that one object with a field of the
// wrong type spoils neither the list nor the watch that brought it. The API server itself guarantees the types of the
// metadata.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   json.RawMessage `json:"spec"`
	Status json.RawMessage `json:"status"`
}

// objects is a list of objects.
type objects struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []object `json:"items"`
}

// DeepCopyObject makes object a runtime.Object.
func (o *object) DeepCopyObject() runtime.Object {
	c := *o
	o.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c // raw messages are never written to
}

// DeepCopyObject makes objects a runtime.Object.
func (l *objects) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = make([]object, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*object)
	}
	return &c
}

// whole is an object of which everything is kept, as it came.
type whole struct {
	object
	text json.RawMessage
}

// wholes is a list of whole objects.
type wholes struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []whole `json:"items"`
}

// UnmarshalJSON keeps the text, and reads what the reflector needs of the metadata. It takes any text: an aggregated
// API server may answer objects of any form, of which one must not hide the others. What it cannot read is empty.
func (w *whole) UnmarshalJSON(text []byte) error {
	*w = whole{text: bytes.Clone(text)}
	var known struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	_ = json.Unmarshal(text, &known) // one that has no name is left out
	w.Name, w.Namespace = textOf(known.Metadata["name"]), textOf(known.Metadata["namespace"])
	w.ResourceVersion = textOf(known.Metadata["resourceVersion"])
	return nil
}

// textOf returns a JSON string; "" = it is none.
func textOf(raw json.RawMessage) (text string) {
	if json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}

// DeepCopyObject makes whole a runtime.Object.
func (w *whole) DeepCopyObject() runtime.Object {
	return &whole{*w.object.DeepCopyObject().(*object), w.text} // the text is never written to
}

// DeepCopyObject makes wholes a runtime.Object.
func (l *wholes) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = make([]whole, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*whole)
	}
	return &c
}

// one returns an object of a resource to decode into, and all a list of them.
func (r resource) one() runtime.Object {
	if r.whole {
		return &whole{}
	}
	return &object{}
}

func (r resource) all() runtime.Object {
	if r.whole {
		return &wholes{}
	}
	return &objects{}
}

// decode decodes a part of an object, and names the field whose type is wrong. An absent part is left as it is.
func decode(part string, raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	err := json.Unmarshal(raw, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		path := strings.TrimSuffix(part+"."+wrong.Field, ".") // the field of the part itself has no name
		return fmt.Errorf("%s: got %s, want %s", path, wrong.Value, kindOf(wrong))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", part, err)
	}
	return nil
}

// kindOf returns the wanted type of a field as people who write YAML call it.
func kindOf(wrong *json.UnmarshalTypeError) string {
	kinds := map[string]string{
		"map": "a mapping", "struct": "a mapping", "slice": "a list", "string": "a text", "bool": "true or false",
	}
	if text, ok := kinds[wrong.Type.Kind().String()]; ok {
		return text
	}
	return "a number"
}

// annotation returns the value of the first of several names that an object has.
func annotation(all map[string]string, names ...string) (value string, ok bool) {
	for _, name := range names {
		if value, ok = all[name]; ok {
			return value, true
		}
	}
	return "", false
}

// Kind is a kind of objects that somebody asks for, which picks do not need. Group is empty for the core group.
type Kind struct{ Group, Version, Kind string }

func (k Kind) version() schema.GroupVersion {
	return schema.GroupVersion{Group: k.Group, Version: k.Version}
}

// objectView is what is known of the objects of a kind.
type objectView struct {
	kind     Kind
	follower *follower                  // of the objects; until their resource is found, of the kind
	all      map[string]json.RawMessage // by name; nil = not known yet
	failure  error                      // why they are not known; nil = they are, or nothing was heard yet
	dirty    bool                       // what is known may differ from what was told, or was not told to all
	next     chan telling               // what is to be told; the newest counts
	cancel   context.CancelFunc
}

// telling is a document of the objects of a kind, or why there is none.
type telling struct {
	document []byte
	err      error
}

// objectViews are what is known of all kinds that are asked for.
type objectViews struct {
	wanted chan []Kind // the newest counts
	by     map[*follower]*objectView
	asked  []Kind                 // that are followed
	ends   map[Kind]chan struct{} // closed when nothing is told of the kind any more, as it was asked for last
}

const (
	// gatherFor is how long changes of objects are gathered into one document.
	gatherFor = 100 * time.Millisecond
	// mostObjectBytes bounds the objects of a kind.
	mostObjectBytes = 8 << 20
)

// TellObjects has the objects of the kinds that are asked for told to a function, whenever they change: as a JSON
// document that has each object under its name, or else with the reason why they are not known, beside which what was
// told before stays in force. For one kind it is
// called one at a time, not on the goroutine of Run, and may block. It must be set before Run.
func (d *Discovery) TellObjects(to func(k Kind, document []byte, err error)) { d.cfg.objects = to }

// FollowObjects asks for the objects of these kinds, and for no others any more. All are told anew. Any goroutine may
// call it, one at a time.
func (d *Discovery) FollowObjects(kinds []Kind) {
	select {
	case <-d.objects.wanted: // it is no longer the newest
	default:
	}
	d.objects.wanted <- kinds // there is room, for nothing else fills it
}

// due returns when documents are told; never without objects.
func (v *objectViews) due(gather *time.Ticker) <-chan time.Time {
	if len(v.by) == 0 {
		return nil
	}
	return gather.C
}

// wantObjects begins to follow kinds, and stops following others.
func (d *Discovery) wantObjects(ctx context.Context, kinds []Kind) {
	d.objects.asked = kinds
	missing := map[Kind]bool{}
	for _, k := range kinds {
		missing[k] = true
	}
	for f, view := range d.objects.by {
		if missing[view.kind] {
			view.dirty = true
			delete(missing, view.kind)
			continue
		}
		view.cancel()
		delete(d.objects.by, f)
		for _, about := range []string{"find", "list", "watch", following, aboutSize, aboutNames} {
			d.problems.end(f.source.of.call(about))
		}
	}
	for k := range missing {
		d.followKind(ctx, k)
	}
}

// followKind begins to look for the resource of a kind.
func (d *Discovery) followKind(ctx context.Context, k Kind) {
	view := &objectView{kind: k, next: make(chan telling, 1)}
	ctx, view.cancel = context.WithCancel(ctx)
	// Until it is found the resource goes by the name of the kind.
	r := resource{GroupVersion: k.version(), name: strings.ToLower(k.Kind), kind: k.Kind, optional: true,
		whole: true}
	view.follower = &follower{source: &source{of: r}, events: d.events, cancel: view.cancel}
	if d.objects.by == nil {
		d.objects.by, d.objects.ends = map[*follower]*objectView{}, map[Kind]chan struct{}{}
	}
	d.objects.by[view.follower] = view
	before, end := d.objects.ends[k], make(chan struct{})
	d.objects.ends[k] = end
	d.beside(ctx, "finding "+r.String(), func(ctx context.Context) { view.follower.find(ctx, d.client, k) })
	d.running.Go(func() {
		defer close(end)
		if before != nil {
			<-before // a kind that was dropped and is asked for again is told one at a time still
		}
		t := &repeater[telling]{next: view.next, take: func(newest telling) (taken bool) {
			d.cfg.objects(k, newest.document, newest.err)
			return true
		}}
		supervise.KeepRunning(ctx, "telling "+r.String(), t.run, d.panicked)
	})
}

// find tells the resource of a kind, once there is one.
func (f *follower) find(ctx context.Context, c *client, k Kind) {
	pause := backoff(f.source.of).DelayFunc()
	for ctx.Err() == nil {
		r, err := c.find(ctx, k)
		if err == nil {
			f.tell(ctx, event{kind: found, found: r})
			return
		}
		_ = f.note(ctx, "find", err) // it is tried again
		select {
		case <-time.After(pause()):
		case <-ctx.Done():
		}
	}
}

// find asks which resource has the objects of a kind.
func (c *client) find(ctx context.Context, k Kind) (r resource, _ error) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	r = resource{GroupVersion: k.version(), kind: k.Kind, optional: true, whole: true}
	path := "/apis/" + k.version().String()
	if k.Group == "" {
		path = "/api/" + k.Version
	}
	var all metav1.APIResourceList
	if err := c.document(ctx, r, path, &all); err != nil {
		return r, err
	}
	for _, a := range all.APIResources {
		if a.Kind == k.Kind && !strings.Contains(a.Name, "/") { // a name with a slash is of a part of objects
			r.name, r.cluster = a.Name, !a.Namespaced
			return r, nil
		}
	}
	return r, apierrors.NewNotFound(schema.GroupResource{Group: k.Group, Resource: "kinds of " + k.Version}, k.Kind)
}

// installed returns which resources of a group are served in a version that is read.
func (c *client) installed(ctx context.Context, r resource) (there map[string]bool, _ error) {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	var group metav1.APIGroup
	if err := c.document(ctx, r, "/apis/"+r.Group, &group); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	there = map[string]bool{}
	for _, v := range group.Versions {
		if !slices.Contains(r.versions(), v.Version) {
			continue
		}
		var all metav1.APIResourceList
		if err := c.document(ctx, r, "/apis/"+v.GroupVersion, &all); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		for _, a := range all.APIResources {
			there[a.Name] = true
		}
	}
	return there, nil
}

// document reads what the API server says of its groups and versions, which every account may read by default.
func (c *client) document(ctx context.Context, r resource, path string, into any) error {
	api, err := c.api(r)
	if err != nil {
		return err
	}
	text, err := api.Get().AbsPath(path).MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// What problems are about that are not of a call: objects are too large, or have no name.
const (
	aboutSize  = "size of"
	aboutNames = "names of"
)

// takeObject takes what was found of a kind.
func (d *Discovery) takeObject(ctx context.Context, w event, view *objectView) {
	r := w.follower.source.of
	switch w.kind {
	case found:
		d.problems.end(r.call("find"))
		delete(d.objects.by, w.follower)
		before := view.cancel
		view.follower = d.follow(ctx, w.found, selection{})
		after := view.follower.cancel
		view.cancel = func() { before(); after() }
		d.objects.by[view.follower] = view
	case failed:
		d.problems.note(r.call(w.verb), r, w.err)
		if view.all == nil {
			view.failure, view.dirty = w.err, true
		}
	case answered:
		d.problems.end(r.call(w.verb))
		if w.verb == "watch" {
			d.problems.end(r.call(following))
		}
	case listed:
		d.problems.end(r.call(aboutNames))
		view.all, view.dirty = make(map[string]json.RawMessage, len(w.objects)), true
		for i, o := range w.objects {
			d.putObject(r, view, o.Name, w.texts[i])
		}
	case stored:
		d.putObject(r, view, w.objects[0].Name, w.texts[0])
	case removed:
		delete(view.all, w.objects[0].Name)
		view.dirty = true
	case looked: // take has taken it
	}
}

// putObject puts an object into those that are known. One without a name cannot be of an endpoint, and is left out.
func (d *Discovery) putObject(r resource, view *objectView, name string, object json.RawMessage) {
	if name == "" {
		const shown = 100 // bytes
		d.problems.note(r.call(aboutNames), r, invalid{fmt.Errorf("%s: an object has no metadata.name that is a "+
			"text: %s", r, clip.Bytes(string(object), shown))})
		return
	}
	view.all[name], view.dirty = object, true
}

// tellObjects has the objects of those kinds told that may have changed.
func (d *Discovery) tellObjects() {
	for _, view := range d.objects.by {
		if !view.dirty || view.all == nil && view.failure == nil {
			continue
		}
		view.dirty = false
		if view.all == nil {
			view.tell(telling{err: view.failure})
			continue
		}
		r := view.follower.source.of
		bytes := 0
		for _, text := range view.all {
			bytes += len(text)
		}
		if bytes > mostObjectBytes {
			err := invalid{fmt.Errorf("%s: %d objects have %d bytes, want %d at most; those told before stay", r,
				len(view.all), bytes, mostObjectBytes)}
			d.problems.note(r.call(aboutSize), r, err)
			view.tell(telling{err: err})
			continue
		}
		d.problems.end(r.call(aboutSize))
		view.tell(telling{document: documentOf(view.all)})
	}
}

func (v *objectView) tell(t telling) {
	select {
	case <-v.next: // it is no longer the newest
	default:
	}
	v.next <- t // there is room, for nothing else fills it
}

// documentOf returns a JSON object that has each object under its name.
func documentOf(all map[string]json.RawMessage) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			b.WriteByte(',')
		}
		key, _ := json.Marshal(name) // a text has no error
		b.Write(key)
		b.WriteByte(':')
		b.Write(all[name])
	}
	b.WriteByte('}')
	return b.Bytes()
}
