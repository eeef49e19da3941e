package kube

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/signalbox-epp/signalbox/messages"
)

// views are what is known of all that is followed.
type views struct {
	pool    poolView
	pods    podView
	extras  extraViews
	objects objectViews
}

// poolView is what is known of the InferencePool. Without one it is the target of the configuration.
type poolView struct {
	follower *follower // nil without an InferencePool
	known    bool      // whether it is there is known
	there    bool
	target   *Target    // of its newest version that is valid; nil = there was none
	labels   labels.Set // of its newest version; nil = not known yet
}

// podView is what is known of the pods.
type podView struct {
	follower *follower // of the pods of the target; nil while there is none
	selector string    // of the follower
	listed   bool      // the follower has listed the pods
	ports    []int     // that count for all
	all      map[string]*pod
}

// takePool takes the InferencePool as it is now.
func (d *Discovery) takePool(ctx context.Context, w event) {
	d.pool.known = true
	if w.kind == removed || len(w.objects) == 0 {
		d.poolGone()
		return
	}
	pool := w.objects[0]
	d.labelled(pool.Labels)
	about := objectOf(w.follower.source.of, pool.Name)
	target, err := targetOf(pool)
	if err != nil {
		d.pool.there = true // the last version that was valid stays in force
		d.problems.note(about, w.follower.source.of, invalid{fmt.Errorf("InferencePool %s/%s: %w", pool.Namespace,
			pool.Name, err)})
		return
	}
	d.problems.end(about)
	d.pool.there, d.pool.target = true, &target
	d.selectPods(ctx)
}

// poolGone forgets the pods of an InferencePool that was deleted.
func (d *Discovery) poolGone() {
	d.problems.end(objectOf(d.pool.follower.source.of, d.cfg.Pool.Name))
	for _, verb := range []string{"list", "watch", following} {
		d.problems.end(pods.call(verb))
	}
	d.problems.endBut(pods, nil)
	d.pods.follower.stop()
	d.pool.there, d.pool.target, d.pods = false, nil, podView{}
	d.out.dirty, d.out.known = d.out.version > 0, false
	d.uncache()
}

// selectPods follows the pods of the target. Those that another selector had found stay in force until the new ones
// are listed.
func (d *Discovery) selectPods(ctx context.Context) {
	target := d.pool.target
	if d.pods.follower == nil || d.pods.selector != target.Selector {
		d.pods.follower.stop()
		d.pods.selector, d.pods.listed = target.Selector, false
		d.pods.follower = d.follow(ctx, pods, selection{labels: target.Selector})
	}
	d.usePorts()
}

// usePorts has the ports of the target count, unless the pods of its selector are still to come.
func (d *Discovery) usePorts() {
	if ports := d.pool.target.Ports; d.pods.listed && !slices.Equal(ports, d.pods.ports) {
		d.pods.ports, d.out.dirty = ports, true
	}
}

// takePods takes pods, or one that changed.
func (d *Discovery) takePods(w event) {
	switch w.kind {
	case listed:
		d.takeList(w)
	case stored:
		if p := d.podOf(w.objects[0]); !p.same(d.pods.all[p.name]) {
			d.pods.all[p.name], d.out.dirty = p, true
		}
	case removed:
		name := w.objects[0].Name
		d.problems.end(objectOf(pods, name))
		if d.pods.all[name] != nil {
			delete(d.pods.all, name)
			d.out.dirty = true
		}
	case failed, answered, found, looked: // take has taken them
	}
}

// takeList takes all pods of the target.
func (d *Discovery) takeList(w event) {
	all := make(map[string]*pod, len(w.objects))
	changed := !d.pods.listed || len(w.objects) != len(d.pods.all)
	for _, o := range w.objects {
		p := d.podOf(o)
		all[p.name] = p
		changed = changed || !p.same(d.pods.all[p.name])
	}
	d.problems.endBut(pods, w.objects)
	d.pods.all, d.pods.listed, d.out.dirty = all, true, d.out.dirty || changed
	d.usePorts()
}

func (d *Discovery) podOf(o *object) *pod {
	p, err := podOf(o)
	if err != nil {
		d.problems.note(objectOf(pods, o.Name), pods, invalid{fmt.Errorf("pod %s/%s: %w", o.Namespace, o.Name, err)})
	} else {
		d.problems.end(objectOf(pods, o.Name))
	}
	return p
}

// set returns the endpoints of the pods that serve, those of the others, and the process of each address.
func (d *Discovery) set() (set, unready []messages.EndpointSpec, owners map[messages.Address]process) {
	ordered := make([]*pod, 0, len(d.pods.all))
	for _, p := range d.pods.all {
		ordered = append(ordered, p)
	}
	slices.SortFunc(ordered, byAge)
	owners = make(map[messages.Address]process, len(ordered))
	own := func(e []messages.EndpointSpec, p *pod) {
		for _, s := range e {
			owners[s.Address] = p.process()
		}
	}
	for _, p := range ordered {
		if !p.serves {
			from := len(unready)
			unready = p.endpoints(unready, d.pods.ports)
			own(unready[from:], p)
		}
	}
	for _, p := range ordered { // these count where a pod that has ended still names the address of one that serves
		if p.serves {
			from := len(set)
			set = p.endpoints(set, d.pods.ports)
			own(set[from:], p)
		}
	}
	return set, unready, owners
}
