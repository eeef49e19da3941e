package kube

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/signalbox-epp/signalbox/engine/rewrites"
)

// Extras are what the objects of a pool add to the configuration.
type Extras struct {
	Objectives map[string]int     // priorities by name
	Rewrites   []rewrites.Rewrite // those that count first come first
}

// The groups of InferenceObjectives and InferenceModelRewrites. Of one name the object of the first group counts.
const (
	extraGroup  = "llm-d.ai"
	legacyGroup = "inference.networking.x-k8s.io"
)

var extraGroups = [...]string{extraGroup, legacyGroup}

// extraKinds are the resources beside the pool. Each is followed in both groups, as far as they are installed.
var extraKinds = [...]struct{ name, kind string }{
	{"inferenceobjectives", "InferenceObjective"}, {"inferencemodelrewrites", "InferenceModelRewrite"},
}

const (
	objectives = iota
	modelRewrites
)

// extraView is what is known of a resource of a group. Objects that can be of other pools alone are left out.
type extraView struct {
	of      resource
	kind    int               // objectives or modelRewrites
	group   int               // index into extraGroups
	all     map[string]*extra // that are valid; nil = not known yet
	invalid map[string]*extra
	missing time.Time // since when the resource is not defined; zero = it is, or nothing is known of it
	awaited bool      // nothing follows it: it is not installed, and the look of its group finds when it is
	passed  bool      // readiness does not wait for it, for it cannot be listed
}

// undefinedFor is how long objects stay in force whose resource is not defined any more: an API server that has only
// just started does not know its definitions yet.
const undefinedFor = 30 * time.Second

// extraViews are what is known of all of them.
type extraViews struct {
	views [len(extraKinds)][len(extraGroups)]*extraView
	by    map[*follower]*extraView
	looks [len(extraGroups)]groupLook
	told  *extrasTelling                   // nil = nothing was, or what was may be lost
	next  chan extrasTelling               // what is to be told; the newest counts
	said  [len(extraKinds)]map[string]bool // the deprecations that were said, of objects that are there
	began time.Time                        // since when they are followed
}

// extrasTelling is what is told, and whether that is all that there is.
type extrasTelling struct {
	Extras
	whole bool
}

const (
	// extrasPatience is how long readiness waits for objectives and rewrites whose lists fail.
	extrasPatience = 10 * time.Second
)

// TellExtras has objectives and rewrites told to a function, whenever they change, and again until it reports that it
// has taken them. It is called one at a time, not on the goroutine of Run, and may block. It must be set before Run.
func (d *Discovery) TellExtras(to func(Extras) (taken bool)) { d.cfg.extras = to }

// followExtras begins to follow the objects beside the pool.
func (d *Discovery) followExtras(ctx context.Context) {
	if d.cfg.extras == nil || d.cfg.Pool.Name == "" {
		return
	}
	d.extras.by, d.extras.next = map[*follower]*extraView{}, make(chan extrasTelling, 1)
	d.extras.told, d.extras.began = nil, time.Now()
	for kind, k := range extraKinds {
		d.extras.said[kind] = map[string]bool{}
		for i, group := range extraGroups {
			view := d.extras.views[kind][i] // what is known stays if the loop of Run begins anew
			if view == nil {
				view = &extraView{of: extraResource(group, k.name, k.kind), kind: kind, group: i}
				d.extras.views[kind][i] = view
			}
			d.extras.looks[i].follower = nil
			d.followExtra(ctx, view)
		}
	}
	t := &repeater[extrasTelling]{next: d.extras.next, take: func(newest extrasTelling) (taken bool) {
		taken = d.cfg.extras(newest.Extras)
		if newest.whole {
			d.extrasTold.Store(true)
		}
		return taken
	}}
	d.beside(ctx, "telling objectives and rewrites", t.run)
}

func (d *Discovery) followExtra(ctx context.Context, view *extraView) {
	view.awaited = false
	d.extras.by[d.follow(ctx, view.of, selection{})] = view
}

// takeExtra takes objectives or rewrites.
func (d *Discovery) takeExtra(w event, view *extraView) {
	if w.kind == listed {
		view.all, view.invalid = make(map[string]*extra, len(w.objects)), map[string]*extra{}
		view.missing = time.Time{}
		for _, o := range w.objects {
			d.putExtra(view, o)
		}
		d.problems.endBut(view.of, w.objects)
		d.tellExtras()
		return
	}
	o := w.objects[0]
	delete(view.all, o.Name)
	delete(view.invalid, o.Name)
	if w.kind == stored {
		d.putExtra(view, o)
	} else {
		d.problems.end(objectOf(view.of, o.Name))
	}
	d.tellExtras()
}

// notInstalled takes it that a resource is not defined, which is no problem unless objects of it are in force. Once
// none is it is not followed, until the look of its group finds that it is defined.
func (d *Discovery) notInstalled(ctx context.Context, w event, view *extraView) {
	about := view.of.call(w.verb)
	if view.missing.IsZero() {
		view.missing = time.Now()
	}
	if len(view.all) > 0 && time.Since(view.missing) < undefinedFor {
		d.problems.note(about, view.of, fmt.Errorf("%w; objects that stay in force for %v: %d", w.err, undefinedFor,
			len(view.all)))
		return
	}
	d.awaitExtra(ctx, w.follower, view)
	if view.all == nil || len(view.all) > 0 {
		view.all, view.invalid = map[string]*extra{}, nil
		d.tellExtras()
	}
}

// groupLook looks for resources of a group that are not installed. What the API server says of the group costs it less
// than a list, and is one call for all kinds and versions.
type groupLook struct {
	follower *follower      // whose event is that of the next look; nil = nothing is looked for
	pause    wait.DelayFunc // between two looks
	found    time.Time      // when something was found last
}

// awaitExtra stops following a resource, and has its group looked at until it is installed.
func (d *Discovery) awaitExtra(ctx context.Context, f *follower, view *extraView) {
	f.stop()
	delete(d.extras.by, f)
	for _, verb := range []string{"list", "watch", following} {
		d.problems.end(view.of.call(verb))
	}
	d.problems.endBut(view.of, nil)
	view.awaited = true
	look := &d.extras.looks[view.group]
	if look.follower != nil {
		return // it finds this one too
	}
	// What was found and is not there all the same is looked for as rarely as before.
	if look.pause == nil || time.Since(look.found) > undefinedFor {
		look.pause = backoff(inferencePools("")).DelayFunc()
	}
	d.lookAt(ctx, view.of, look)
}

// lookAt has the loop of Run told, after a pause, which resources of a group are installed, if that can be told.
func (d *Discovery) lookAt(ctx context.Context, r resource, look *groupLook) {
	f, pause := &follower{source: &source{of: r}, events: d.events}, look.pause()
	look.follower = f
	d.beside(ctx, "looking at "+r.Group, func(ctx context.Context) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		there, err := d.client.installed(ctx, r)
		f.tell(ctx, event{kind: looked, there: there, err: err})
	})
}

// takeLook follows what is installed now, and has the group looked at again if anything is not. If that cannot be told,
// as without the right to look, lists tell it.
func (d *Discovery) takeLook(ctx context.Context, w event, group int) {
	look, awaited := &d.extras.looks[group], false
	look.follower = nil
	for kind := range d.extras.views {
		switch view := d.extras.views[kind][group]; {
		case !view.awaited:
		case w.err != nil || w.there[view.of.name]:
			look.found = time.Now()
			d.followExtra(ctx, view)
		default:
			awaited = true
		}
	}
	if awaited {
		d.lookAt(ctx, w.follower.source.of, look)
	}
}

// lookOf returns the group that a follower looks at; -1 = it is not one that looks.
func (x *extraViews) lookOf(f *follower) (group int) {
	return slices.IndexFunc(x.looks[:], func(l groupLook) bool { return l.follower == f })
}

// extraFailed takes it that a resource cannot be listed or watched. What may not be read, and what fails for long, is
// passed over: the pool serves without it.
func (d *Discovery) extraFailed(view *extraView, err error) {
	if reasonOf(err) == "forbidden" || time.Since(d.extras.began) > extrasPatience {
		view.passed = true
		d.tellExtras()
	}
}

// putExtra puts an object that may be of our pool into the view.
func (d *Discovery) putExtra(view *extraView, o *object) {
	e, err := extraOf(view.kind, o, d.cfg.Pool)
	switch {
	case e == nil:
	case err != nil:
		e.wrong = err
		view.invalid[o.Name] = e
	default:
		view.all[o.Name] = e
	}
	d.nameInvalid(view, o.Name)
}

// nameInvalid names an object that is of our pool and invalid.
func (d *Discovery) nameInvalid(view *extraView, name string) {
	about := objectOf(view.of, name)
	if e := view.invalid[name]; e != nil && e.of(d.pool.labels) {
		d.problems.note(about, view.of, invalid{fmt.Errorf("%s %s/%s: %w", view.of.kind, d.cfg.Namespace, name,
			e.wrong)})
		return
	}
	d.problems.end(about)
}

// tellExtras has the objects told if they differ from what was told last.
func (d *Discovery) tellExtras() {
	now := extrasTelling{whole: d.pool.labels != nil}
	for _, views := range d.extras.views {
		for _, view := range views {
			now.whole = now.whole && (view.all != nil || view.passed)
		}
	}
	for name, e := range d.merged(objectives) {
		if now.Objectives == nil {
			now.Objectives = map[string]int{}
		}
		now.Objectives[name] = e.priority
	}
	all := d.merged(modelRewrites)
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(all[a].created.Compare(all[b].created), strings.Compare(a, b))
	})
	for _, name := range names {
		now.Rewrites = append(now.Rewrites, rewrites.Rewrite{Name: name, Rules: all[name].rules})
	}
	if told := d.extras.told; told != nil && reflect.DeepEqual(now, *told) {
		return
	}
	d.extras.told = &now
	select {
	case <-d.extras.next: // it is no longer the newest
	default:
	}
	d.extras.next <- now // there is room, for nothing else fills it
}

// merged returns the objects of our pool of a kind, of one name that of the first group. Those of the legacy group
// alone are deprecated, which is said once.
func (d *Discovery) merged(kind int) map[string]*extra {
	views := d.extras.views[kind]
	all := map[string]*extra{}
	for name, e := range views[0].all {
		if e.of(d.pool.labels) {
			all[name] = e
		}
	}
	for name, e := range views[1].all {
		if all[name] != nil || !e.of(d.pool.labels) {
			continue
		}
		all[name] = e
		if views[0].all != nil { // else the first group may have it too
			d.deprecate(kind, name)
		}
	}
	maps.DeleteFunc(d.extras.said[kind], func(name string, _ bool) bool { return views[1].all[name] == nil })
	return all
}

// of reports whether an object is for our pool, which has these labels; nil = they are not known yet.
func (e *extra) of(pool labels.Set) bool {
	return e.named || e.selector != nil && pool != nil && e.selector.Matches(pool)
}

// labelled takes the labels of our pool, by which objects select it.
func (d *Discovery) labelled(pool labels.Set) {
	if pool == nil {
		pool = labels.Set{}
	}
	if d.pool.labels != nil && maps.Equal(d.pool.labels, pool) {
		return
	}
	d.pool.labels = pool
	if d.extras.next == nil {
		return
	}
	for _, views := range d.extras.views {
		for _, view := range views {
			for name := range view.invalid {
				d.nameInvalid(view, name)
			}
		}
	}
	d.tellExtras()
}

func (d *Discovery) deprecate(kind int, name string) {
	if d.extras.said[kind][name] || d.cfg.Deprecated == nil {
		return
	}
	d.extras.said[kind][name] = true
	d.cfg.Deprecated(fmt.Sprintf("%s %s of the group %s: want the group %s", extraKinds[kind].kind, name, legacyGroup,
		extraGroup))
}
