package schedule

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// view is what one request sees of the pool: every endpoint that it may go to, read once. It keeps what was read of
// endpoints for the next request, which reads again only what changed, and keeps nothing of the request.
type view struct {
	allowed  allowed
	all      []Endpoint
	sources  []*endpoints.Endpoint // of all, place by place
	outliers []unhealthy           // of all

	known []known       // known[i] is what all[i] was read from; len(known) = cap(all)
	stale time.Duration // the threshold of known

	matches []int // lead blocks of the request's prompt, by slot
	matched bool  // matches are this request's
}

// fewAddresses are looked through one by one; to look them up in a map would cost more.
const fewAddresses = 8

// allowed says which endpoints a request may go to. It belongs to one loop, and its map is used again.
type allowed struct {
	subset messages.Subset
	many   map[messages.Address]struct{} // of a long subset; else empty
}

// restrict begins a request. Its time grows with a long subset; it is constant for a short one.
func (a *allowed) restrict(to messages.Subset) {
	a.subset = to
	if !to.Given || to.Addresses.Len() <= fewAddresses {
		return
	}
	if a.many == nil {
		a.many = make(map[messages.Address]struct{}, to.Addresses.Len())
	}
	for i := range to.Addresses.Len() {
		a.many[to.Addresses.At(i)] = struct{}{}
	}
}

// admits reports whether an endpoint at this address may serve the request.
func (a *allowed) admits(address messages.Address) bool {
	if !a.subset.Given {
		return true
	}
	if len(a.many) > 0 {
		_, ok := a.many[address]
		return ok
	}
	for i := range a.subset.Addresses.Len() {
		if a.subset.Addresses.At(i) == address {
			return true
		}
	}
	return false
}

// forget lets go of what the request brought.
func (a *allowed) forget() {
	a.subset = messages.Subset{}
	clear(a.many)
}

// gather reads every endpoint once, so that all profile runs of the request see the same.
func (v *view) gather(req *messages.Request, snap *endpoints.Snapshot, now time.Time, stale time.Duration) {
	v.room(len(snap.Endpoints), stale)
	v.sources, v.outliers, v.matched = v.sources[:0], v.outliers[:0], false
	v.allowed.restrict(req.Subset)
	defer v.allowed.forget()
	for _, e := range snap.Endpoints {
		if !v.allowed.admits(e.Spec.Address) {
			continue
		}
		v.sources = append(v.sources, e)
		v.read(e, now)
		v.inspect(e)
	}
}

// match counts how much of the prompt each endpoint holds.
func (v *view) match(req *messages.Request, slots int, m Matcher) {
	if len(v.all) == 0 || m == nil || req.Blocks.Len() == 0 {
		return
	}
	v.matches = grow(v.matches, slots)
	clear(v.matches)
	v.matched = true
	m.Match(blockindex.Prompt{Model: req.Model, Salt: req.Salt, Blocks: req.Blocks}, v.matches)
	for i := range v.all {
		v.all[i].PrefixBlocks = v.matches[v.all[i].ID.Slot]
	}
}

// known is what an Endpoint was read from. While endpoint and sample are the same, so is most of the Endpoint.
type known struct {
	endpoint *endpoints.Endpoint
	sample   *endpoints.Sample // nil = it had none
	waiting  int               // of the sample
	until    time.Time         // the end of the sample's freshness
}

// room makes all large enough for n endpoints, and forgets what is of no use: in other memory, or under another
// threshold.
func (v *view) room(n int, stale time.Duration) {
	if cap(v.all) < n {
		v.all = make([]Endpoint, n, n+n/2)
		v.known = make([]known, cap(v.all))
	}
	if v.all = v.all[:0]; v.stale != stale {
		v.stale = stale
		clear(v.known)
	}
}

// read appends an endpoint to all. What depends on its identity and its sample alone is written only if one of them
// is another than when this place was read last: most of it is pointers, and the memory of samples is far away.
func (v *view) read(e *endpoints.Endpoint, now time.Time) {
	at := len(v.all)
	v.all = v.all[:at+1]
	out, k := &v.all[at], &v.known[at]
	load, smp := e.Counters(), e.Sample()
	if k.endpoint != e || k.sample != smp {
		*out = Endpoint{ID: e.ID, Address: e.Spec.Address, Labels: e.Labels}
		*k = known{endpoint: e, sample: smp}
		if smp != nil {
			k.waiting, k.until = smp.Waiting, smp.FreshUntil(v.stale)
			out.Sampled.Running, out.Sampled.KVUsed, out.Sampled.MaxLoRAs = smp.Running, smp.KVUsed, smp.MaxLoRAs
			out.Sampled.ActiveLoRAs, out.Sampled.WaitingLoRAs = smp.ActiveLoRAs, smp.WaitingLoRAs
		}
	}
	if smp != nil {
		out.Fresh, out.Waiting = !now.After(k.until), k.waiting+load.Since
	}
	out.Failing = e.Failing()
	out.Inflight.Requests, out.Inflight.Tokens, out.PrefixBlocks = load.Inflight, load.Tokens, 0
}

// grow returns a slice of length n, from buf if that is large enough. It holds whatever stood there before.
func grow[T any](buf []T, n int) []T {
	if cap(buf) >= n {
		return buf[:n]
	}
	return make([]T, n, n+n/2)
}
