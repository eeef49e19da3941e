package kube

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/signalbox-epp/signalbox/adapters/discovery"
	"github.com/signalbox-epp/signalbox/messages"
)

// out is the set that the pool took last, and whether it is to be told another one.
type out struct {
	to      messages.Port[messages.PoolMsg]
	dirty   bool // the set may differ from what was told
	known   bool // the pool was told of the pods, of those that there are since the InferencePool came
	set     []messages.EndpointSpec
	owners  map[messages.Address]types.UID // the pod of each address
	version uint64                         // counts the sets; 0 = it took none
	found   time.Time
	start   *cached         // is to be told, unless the API server answers before; nil = nothing is
	cached  bool            // set is of the cache, and the API server has not said otherwise
	cache   chan *cacheForm // what is to be written; the newest counts
}

// untold reports whether there is something to tell the pool.
func (o *out) untold() bool { return o.dirty || o.start != nil }

// tell tells the pool the set of now. If the pool refuses, the set stays dirty.
func (d *Discovery) tell() {
	d.tellCached()
	if !d.out.dirty || d.pool.there && !d.pods.listed && d.out.version == 0 {
		return
	}
	set, pods := d.set()
	owners := make(map[messages.Address]types.UID, len(pods))
	for i, p := range pods {
		owners[set[i].Address] = p.uid
	}
	// A pod that took the place of another one, with its name and address, is an endpoint of its own: without a set
	// between the two the pool would see one that stayed.
	var stayed []messages.EndpointSpec
	for i, s := range set {
		if before, ok := d.out.owners[s.Address]; !ok || before == pods[i].uid {
			stayed = append(stayed, s)
		}
	}
	if len(stayed) != len(set) && !d.out.post(stayed, time.Now()) {
		return
	}
	if !d.out.post(set, time.Now()) {
		return
	}
	before := d.out.set
	d.out.set, d.out.owners, d.out.dirty = set, owners, false
	d.out.known = d.pool.there && d.pods.listed
	if d.cfg.Told != nil {
		d.cfg.Told(discovery.Difference(before, set))
	}
	d.uncache()
	d.problems.end(aboutPanic)
	d.keepCache()
}

// uncache ends the time of the cache: the API server has answered.
func (d *Discovery) uncache() {
	d.out.cached, d.out.start = false, nil
	d.problems.end(aboutCache)
}

// post tells the pool a set that was found then, and returns false if it refuses.
func (o *out) post(set []messages.EndpointSpec, found time.Time) bool {
	next := messages.EndpointsDiscovered{Version: o.version + 1, Found: found, Endpoints: messages.ListOf(set...)}
	if !o.to.Post(next) {
		return false
	}
	o.version, o.found = next.Version, next.Found
	return true
}

// repeat tells the set that the pool took last once more. A pool that has it ignores it.
func (o *out) repeat() {
	if o.version == 0 {
		return
	}
	o.to.Post(messages.EndpointsDiscovered{Version: o.version, Found: o.found, Endpoints: messages.ListOf(o.set...)})
}
