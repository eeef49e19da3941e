package schedule

import (
	"math"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// view is what one request sees of the pool: every endpoint that it may go to, read once. It keeps what was read of
// endpoints, so that the next request reads only what has changed, and keeps nothing of the request.
type view struct {
	allowed  allowed
	all      []endpoint            // those that the request may go to; an index in it is called a place
	sources  []*endpoints.Endpoint // sources[i] is the endpoint of all[i]
	outliers []unhealthy           // those of all, by place, ascending

	columns
	doubtful int // endpoints without a fresh sample, or whose newest scrape failed

	load  []endpoints.Counters // load[i] is that of all[i]
	known []source             // known[i] is what place i was read from; len(known) = cap(all)
	fills *fills               // by which known was read
	stale time.Duration        // the threshold by which known was read

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
func (v *view) gather(p *Plan, req *messages.Request, snap *endpoints.Snapshot, now time.Time) {
	v.room(len(snap.Endpoints), p)
	v.sources, v.outliers, v.matched, v.doubtful = v.sources[:0], v.outliers[:0], false, 0
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
	v.count()
}

// match notes how many lead blocks of the prompt each endpoint holds.
func (v *view) match(req *messages.Request, slots int, m Matcher) {
	if len(v.fills.prefix) == 0 {
		return
	}
	v.matches = grow(v.matches, slots)
	clear(v.matches)
	if len(v.all) > 0 && m != nil && req.Blocks.Len() > 0 {
		v.matched = true
		m.Match(blockindex.Prompt{Model: req.Model, Salt: req.Salt, Blocks: req.Blocks}, v.matches)
	}
	for _, slot := range v.fills.prefix {
		column := v.numbers.columns[slot]
		for i := range v.all {
			column[i] = float64(v.matches[v.all[i].id.Slot])
		}
	}
}

// source says what a place of the view was read from. While that stays the same, only load and freshness are read
// again.
type source struct {
	endpoint *endpoints.Endpoint
	sample   *endpoints.Sample // nil = it had none
	queued   float64           // waiting requests of the sample; NaN = unknown
	until    time.Time         // the last moment at which the sample is fresh
	more     *moreSources      // nil = the metrics page of every endpoint is all that plugins read
}

// moreSources says what a place was read from beside the metrics page.
type moreSources struct {
	endpoint *endpoints.Endpoint
	pages    *endpoints.Pages // nil = it had none
	until    []time.Time      // the last moment at which a page is fresh, by further source
	failing  uint64           // bits of further sources
	unasked  uint64           // bits of sources that do not ask this endpoint
}

// room makes room for n endpoints. It drops what is known if anything moves to other memory, or if the plan has other
// attributes or another threshold.
func (v *view) room(n int, p *Plan) {
	if cap(v.all) < n {
		v.all = make([]endpoint, n, n+n/2)
		v.known = make([]source, cap(v.all))
		v.load = make([]endpoints.Counters, cap(v.all))
		v.fills = nil
	}
	v.all = v.all[:0]
	if v.fills == p.fills && v.stale == p.stale {
		return
	}
	v.fills, v.stale = p.fills, p.stale
	v.fit(p.fills.layout)
	v.numbers.stretch(cap(v.all))
	v.names.stretch(cap(v.all))
	clear(v.known)
}

// read appends an endpoint to all. What depends on its identity and its sample alone is written only if one of them has
// changed since this place was read last, because most of it is pointers, and samples are seldom in the processor's
// cache.
func (v *view) read(e *endpoints.Endpoint, now time.Time) {
	at := len(v.all)
	v.all = v.all[:at+1]
	out, k := &v.all[at], &v.known[at]
	if smp := e.Sample(); k.endpoint != e || k.sample != smp {
		*out = endpoint{id: e.ID, address: e.Spec.Address, labels: e.Labels}
		*k = source{endpoint: e, sample: smp, queued: math.NaN(), more: k.more}
		if smp != nil && v.fills.page.Selects(e.Labels) {
			k.until = smp.FreshUntil(v.stale)
			v.sampled(at, &smp.Values)
		} else {
			v.sampled(at, nil)
		}
	}
	out.fresh, out.failing = 0, 0
	if !now.After(k.until) {
		out.fresh = metricsPage
	}
	if e.Failing() {
		out.failing = metricsPage
	}
	if !v.fills.plain {
		v.readMore(at, now)
	}
	if out.fresh != v.fills.every || out.failing != 0 {
		v.doubtful++
	}
	v.load[at] = e.Counters()
}

// readMore reads the further sources of the endpoint at a place, and which sources do not ask it.
func (v *view) readMore(at int, now time.Time) {
	out, k := &v.all[at], &v.known[at]
	if k.more == nil {
		k.more = new(moreSources)
	}
	m := k.more
	if pages := k.endpoint.Pages(); m.endpoint != k.endpoint || m.pages != pages {
		*m = moreSources{endpoint: k.endpoint, pages: pages, until: m.until[:0]}
		if !v.fills.page.Selects(k.endpoint.Labels) {
			m.unasked = metricsPage
		}
		v.answered(at)
	}
	out.fresh |= m.unasked
	out.failing = out.failing&^m.unasked | m.failing
	for i := range m.until {
		if !now.After(m.until[i]) {
			out.fresh |= 2 << i
		}
	}
}

// answered writes what further sources say of the endpoint at a place.
func (v *view) answered(at int) {
	m := v.known[at].more
	for i, from := range v.fills.further {
		bit, page := uint64(2)<<i, m.pages.Of(from.Name)
		m.until = append(m.until, time.Time{})
		switch {
		case !from.Selects(m.endpoint.Labels):
			m.unasked |= bit
		case page != nil:
			m.until[i] = page.FreshUntil(v.stale)
			if page.Failing {
				m.failing |= bit
			}
		}
	}
	for i := range v.fills.pages {
		f := &v.fills.pages[i]
		var answer *endpoints.Values
		if page := m.pages.Of(v.fills.further[f.source].Name); page != nil && m.unasked&(2<<f.source) == 0 {
			answer = &page.Values
		}
		v.columns.read(f, at, answer)
	}
}

// freshUntil returns the last moment at which the answer is fresh that has a sampled number of the endpoint at a place;
// zero = there is none.
func (v *view) freshUntil(slot, at int, threshold time.Duration) (until time.Time) {
	k := &v.known[at]
	from := v.fills.layout.Source(attributes.Slot{Type: attributes.Number, Index: slot})
	switch {
	case !from.Selects(k.endpoint.Labels):
	case from == nil || from.Name == "":
		if k.sample != nil {
			until = k.sample.FreshUntil(threshold)
		}
	default:
		if page := k.more.pages.Of(from.Name); page != nil {
			until = page.FreshUntil(threshold)
		}
	}
	return until
}

// awaited reports whether a source has neither answered nor failed that asks the endpoint at a place for a number.
func (v *view) awaited(slot, at int) bool {
	k := &v.known[at]
	from := v.fills.layout.Source(attributes.Slot{Type: attributes.Number, Index: slot})
	switch {
	case !from.Selects(k.endpoint.Labels):
		return false
	case from == nil || from.Name == "":
		return k.sample == nil && !k.endpoint.Failing()
	}
	return k.more.pages.Of(from.Name) == nil
}

// age returns the age of the oldest answer among those that a profile reads of the endpoint at a place; -1 = there is
// none.
func (v *view) age(at int, p *Profile, now time.Time) time.Duration {
	k, age := &v.known[at], time.Duration(-1)
	asked := k.more == nil || k.more.unasked&metricsPage == 0
	if k.sample != nil && asked && (p.shown&metricsPage != 0 || p.shown == 0) {
		age = now.Sub(k.sample.At)
	}
	for i, from := range v.fills.further {
		if page := k.more.pages.Of(from.Name); page != nil && !page.At.IsZero() && p.shown&(2<<i) != 0 {
			age = max(age, now.Sub(page.At))
		}
	}
	return age
}

// sampled writes what a sample says of the endpoint at a place; nil = there is none.
func (v *view) sampled(at int, of *endpoints.Values) {
	if len(v.fills.queued) > 0 && of != nil {
		v.known[at].queued = of.BuiltIn(attributes.WaitingRequests)
	}
	for i := range v.fills.sampled {
		v.columns.read(&v.fills.sampled[i], at, of)
	}
}

// count writes the columns that change with each pick.
func (v *view) count() {
	for _, slot := range v.fills.queued {
		column := v.numbers.columns[slot]
		for i := range v.all {
			column[i] = v.known[i].queued + float64(v.load[i].Since)
		}
	}
	for _, slot := range v.fills.requests {
		column := v.numbers.columns[slot]
		for i := range v.all {
			column[i] = float64(v.load[i].Inflight)
		}
	}
	for _, slot := range v.fills.tokens {
		column := v.numbers.columns[slot]
		for i := range v.all {
			column[i] = float64(v.load[i].Tokens)
		}
	}
}

// show notes in a profile run what its plugins read of the pick and of the runner-up. values has room for both.
func (v *view) show(run *messages.ProfileRun, p *Profile, values []float32, now time.Time) {
	run.Ages = [2]time.Duration{-1, -1}
	n := 0
	for i, at := range [2]int{int(run.Ranked.At(0)), run.Runner} {
		if at < 0 {
			continue
		}
		for _, slot := range p.read {
			values[n] = float32(v.numbers.columns[slot][at])
			n++
		}
		run.Ages[i] = v.age(at, p, now)
	}
	run.Reads, run.Values = p.reads, messages.TakeList(values[:n])
}

// number returns a column of the view, as long as the view.
func (v *view) number(slot int) []float64 { return v.numbers.columns[slot][:len(v.all)] }

func (v *view) list(slot int) [][]string { return v.names.columns[slot][:len(v.all)] }

// grow returns a slice of length n, which is buf if that is large enough. Its elements are not cleared.
func grow[T any](buf []T, n int) []T {
	if cap(buf) >= n {
		return buf[:n]
	}
	return make([]T, n, n+n/2)
}
