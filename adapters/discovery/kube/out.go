package kube

import (
	"time"

	"github.com/signalbox-epp/signalbox/adapters/discovery"
	"github.com/signalbox-epp/signalbox/messages"
)

// out is the set that the pool took last, and whether it is to be told another one.
type out struct {
	to      messages.Port[messages.PoolMsg]
	dirty   bool // the set may differ from what was told
	known   bool // the pool was told of the pods, of those that there are since the InferencePool came
	set     []messages.EndpointSpec
	owners  map[messages.Address]process // of each address, also of those that do not serve
	version uint64                       // counts the sets; 0 = it took none
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
	set, unready, owners := d.set()
	// A process that took the place of another one, with its name and address, is an endpoint of its own: without a set
	// between the two the pool would see one that stayed, or came back.
	stay := func(all []messages.EndpointSpec) (stayed []messages.EndpointSpec) {
		for _, s := range all {
			if before, ok := d.out.owners[s.Address]; !ok || before == owners[s.Address] {
				stayed = append(stayed, s)
			}
		}
		return stayed
	}
	stayed, waits := stay(set), stay(unready)
	if len(stayed) != len(set) && !d.out.post(stayed, waits, time.Now()) {
		return
	}
	if !d.out.post(set, waits, time.Now()) {
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

// post tells the pool a set that was found then, and which others are not ready. It returns false if the pool refuses.
func (o *out) post(set, unready []messages.EndpointSpec, found time.Time) bool {
	next := messages.EndpointsDiscovered{
		Version: o.version + 1, Found: found, Endpoints: messages.ListOf(set...), Unready: messages.ListOf(unready...),
		Whole: true,
	}
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
