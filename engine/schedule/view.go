package schedule

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// view is what one request sees of the pool: every endpoint that it may go to, read once. It keeps what was read of
// endpoints, so that the next request reads only what has changed, and keeps nothing of the request.
type view struct {
	allowed  allowed
	all      []Endpoint            // those that the request may go to; an index in it is called a place
	sources  []*endpoints.Endpoint // sources[i] is the endpoint of all[i]
	outliers []unhealthy           // those of all, by place, ascending

	known []known       // known[i] is what all[i] was read from; len(known) = cap(all)
	stale time.Duration // the threshold by which known was read

	matches []int // lead blocks of the request's prompt, by slot
	matched bool  // matches is of this request
}

// fewAddresses is the length up to which a subset is searched one by one, which then costs less than a map.
const fewAddresses = 8

// allowed says which endpoints a request may go to. It belongs to one loop, and its map is used again.
type allowed struct {
	subset messages.Subset
	many   map[messages.Address]struct{} // the addresses of a subset longer than fewAddresses; else empty
}

// restrict sets the subset of a request. Its time grows with the length of a long subset.
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

// forget drops the subset.
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

// match notes how many lead blocks of the prompt each endpoint holds.
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

// known says what an Endpoint was read from. While that stays the same, only load and freshness are read again.
type known struct {
	endpoint *endpoints.Endpoint
	sample   *endpoints.Sample // nil = it had none
	waiting  int               // of the sample
	until    time.Time         // the last moment at which the sample is fresh
}

// room makes all large enough for n endpoints. It drops what is known if all moves to other memory, or the threshold
// changes.
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

// read appends an endpoint to all. What depends on its identity and its sample alone is written only if one of them has
// changed since this place was read last, because most of it is pointers, and samples are seldom in the processor's
// cache.
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

// grow returns a slice of length n, which is buf if that is large enough. Its elements are not cleared.
func grow[T any](buf []T, n int) []T {
	if cap(buf) >= n {
		return buf[:n]
	}
	return make([]T, n, n+n/2)
}
