package schedule

import (
	"math"
	"math/bits"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// view is what one request sees of the pool: every endpoint that it may go to, read once. It keeps what was read of
// endpoints, so that the next request reads only what has changed, and keeps nothing of the request. An index in its
// lists is called a place.
type view struct {
	allowed allowed
	places
	columns
	recent
	basis
	matches []int // lead blocks of the request's prompt, by slot
	matched bool  // matches is of this request
	looked  []look
}

// places are the endpoints of a view, and what is known of each. sources and known are as long as all can become.
type places struct {
	snapshot *endpoints.Snapshot // of which all has every endpoint; nil = all has those of a subset
	all      []endpoint          // those that the request may go to
	ids      messages.List[messages.EndpointID]
	slots    []uint32
	sources  []*endpoints.Endpoint // what places were read from
	known    []source
}

// recent is what is read of each endpoint for each request.
type recent struct {
	fresh    []uint64      // bits of sources whose newest answer is not too old, or that do not ask the endpoint
	failing  []uint64      // bits of sources of which the fetch after that answer failed
	now      time.Duration // counted from the epoch
	doubtful int           // endpoints of which a source is not fresh, or failing
	load     []endpoints.Counters
	windows  []endpoints.Room
	outliers []unhealthy // by place, ascending
}

// basis is by what known was read. It is read anew if that changes.
type basis struct {
	fills *fills
	stale time.Duration // the threshold
	epoch time.Time     // that source.at and source.until count from
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
	v.room(len(snap.Endpoints), p, now)
	if req.Subset.Given || v.snapshot != snap {
		v.choose(req.Subset, snap)
	}
	v.outliers, v.matched, v.doubtful = v.outliers[:0], false, 0
	v.read(now)
	v.count()
	v.countPrompts(now)
}

// choose gives a place to each endpoint of a snapshot that is in the subset.
func (v *view) choose(subset messages.Subset, snap *endpoints.Snapshot) {
	v.allowed.restrict(subset)
	defer v.allowed.forget()
	n := 0
	for _, e := range snap.Endpoints {
		if v.allowed.admits(e.Spec.Address) {
			v.put(n, e)
			n++
		}
	}
	v.all, v.snapshot = v.all[:n], nil
	if !subset.Given {
		v.snapshot = snap
	}
	ids := make([]messages.EndpointID, n)
	for i := range v.all {
		ids[i] = v.all[i].id
	}
	v.ids = messages.TakeList(ids)
}

// put puts an endpoint at a place. What is known of the place stays if it was read from the same endpoint.
func (v *view) put(at int, e *endpoints.Endpoint) {
	if v.sources[at] == e {
		return
	}
	v.sources[at], v.slots[at] = e, e.ID.Slot
	v.all[:at+1][at] = endpoint{id: e.ID, address: e.Spec.Address, labels: e.Labels}
	v.known[at].more = nil
	v.resample(at, nil)
}

// match notes how many lead blocks of the prompt each endpoint is the home of, in whole blocks of the first endpoint's
// cache if sizes are tuned by it.
func (v *view) match(req *messages.Request, slots int, m Matcher, sizes messages.PrefixSizes) {
	if len(v.fills.prompts.prefix) == 0 {
		return
	}
	v.matches = grow(v.matches, slots)
	clear(v.matches)
	if len(v.all) > 0 && m != nil && req.Blocks.Len() > 0 {
		v.matched = true
		m.Homes(promptOf(req), v.matches)
		if sizes.Tuned || sizes.BlockTokens > blockindex.BlockTokens {
			v.inUnits(req.Blocks.Len(), blockindex.Unit(sizes, v.known[0].cache))
		}
	}
	for _, slot := range v.fills.prompts.prefix {
		column := v.numbers.columns[slot]
		for i := range v.all {
			column[i] = float64(v.matches[v.slots[i]])
		}
	}
}

// inUnits leaves of what endpoints hold of a prompt of so many blocks what is whole units of so many tokens.
func (v *view) inUnits(prompt, tokens int) {
	if tokens > blockindex.BlockTokens {
		for i, held := range v.matches {
			v.matches[i] = blockindex.Whole(held, prompt, tokens)
		}
	}
}

func promptOf(req *messages.Request) blockindex.Prompt {
	return blockindex.Prompt{Model: req.Model, Salt: req.Salt, Blocks: req.Blocks}
}

// source says what was read of the endpoint at a place. While its answers stay the same, only load and freshness are
// read again.
type source struct {
	sample *endpoints.Sample // nil = it had none
	queued float64           // waiting requests of the sample; NaN = unknown
	at     time.Duration     // when its scrape began, counted from the epoch
	until  time.Duration     // the last moment at which the sample is fresh, likewise
	asleep bool              // the sample says so
	cache  blockindex.CacheSize
	more   *moreSources // nil = the metrics page of every endpoint is all that plugins read
}

// moreSources says what a place was read from beside the metrics page.
type moreSources struct {
	pages   *endpoints.Pages // nil = it had none
	until   []time.Time      // the last moment at which a page is fresh, by further source
	failing uint64           // bits of further sources
	unasked uint64           // bits of sources that do not ask this endpoint
}

// room makes room for n endpoints. It drops what is known if anything moves to other memory, or if the plan has other
// attributes or another threshold.
func (v *view) room(n int, p *Plan, now time.Time) {
	if cap(v.all) < n {
		v.all = make([]endpoint, n, n+n/2)
		most := cap(v.all)
		v.sources, v.known, v.slots = make([]*endpoints.Endpoint, most), make([]source, most), make([]uint32, most)
		v.load, v.fresh, v.failing = make([]endpoints.Counters, most), make([]uint64, most), make([]uint64, most)
		v.windows = make([]endpoints.Room, most)
		v.fills = nil
	}
	if v.fills == p.fills && v.stale == p.stale {
		return
	}
	v.fills, v.stale, v.epoch, v.snapshot = p.fills, p.stale, now, nil
	v.fit(p.fills.layout)
	v.numbers.stretch(cap(v.all))
	v.names.stretch(cap(v.all))
	clear(v.sources)
}

// read reads what may have changed since the request before. What a sample says is read again only if there is another
// one, because samples are seldom in the processor's cache.
func (v *view) read(now time.Time) {
	at := now.Sub(v.epoch)
	v.now = at
	for i, e := range v.sources[:len(v.all)] {
		k := &v.known[i]
		if sample := e.Sample(); k.sample != sample {
			v.resample(i, sample)
		}
		fresh, failing := uint64(0), uint64(0)
		if at <= k.until {
			fresh = metricsPage
		}
		if e.Failing() {
			failing = metricsPage
		}
		if !v.fills.plain {
			fresh, failing = v.readMore(i, fresh, failing, now)
		}
		v.fresh[i], v.failing[i] = fresh, failing
		if fresh != v.fills.every || failing != 0 {
			v.doubtful++
		}
		status := e.Outlier()
		if k.asleep && at <= k.until {
			status = asleep
		}
		if status != nil {
			v.outliers = append(v.outliers, unhealthy{i, status})
		}
		v.load[i] = e.Counters()
	}
}

// readMore reads the further sources of the endpoint at a place, and which sources do not ask it.
func (v *view) readMore(at int, fresh, failing uint64, now time.Time) (uint64, uint64) {
	k, e := &v.known[at], v.sources[at]
	if pages := e.Pages(); k.more == nil || k.more.pages != pages {
		k.more = &moreSources{pages: pages}
		if !v.fills.page.Selects(e.Labels) {
			k.more.unasked = metricsPage
		}
		v.answered(at)
	}
	fresh |= k.more.unasked
	failing = failing&^k.more.unasked | k.more.failing
	for i := range k.more.until {
		if !now.After(k.more.until[i]) {
			fresh |= 2 << i
		}
	}
	return fresh, failing
}

// answered writes what further sources say of the endpoint at a place.
func (v *view) answered(at int) {
	m, e := v.known[at].more, v.sources[at]
	for i, from := range v.fills.further {
		bit, page := uint64(2)<<i, m.pages.Of(from.Name)
		m.until = append(m.until, time.Time{})
		switch {
		case !from.Selects(e.Labels):
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
	case !from.Selects(v.sources[at].Labels):
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
	from := v.fills.layout.Source(attributes.Slot{Type: attributes.Number, Index: slot})
	return v.awaits(1<<v.fills.source(from), at)
}

// answers reports whether a source has a fresh answer of the endpoint at a place and no failed fetch since, or does not
// ask it.
func (v *view) answers(source uint64, at int) bool { return v.fresh[at]&^v.failing[at]&source != 0 }

// awaits reports whether a source, of those that ask the endpoint at a place, has neither answered nor failed.
func (v *view) awaits(source uint64, at int) bool {
	if v.fresh[at]&source != 0 || v.failing[at]&source != 0 { // of one that it does not ask it counts as fresh
		return false
	}
	if source == metricsPage {
		return v.known[at].sample == nil
	}
	further := v.fills.further[bits.TrailingZeros64(source)-1]
	return v.known[at].more.pages.Of(further.Name) == nil
}

// age returns the age of the oldest answer among those that a profile reads of the endpoint at a place; -1 = there is
// none.
func (v *view) age(at int, p *Profile, now time.Time) time.Duration {
	k, age := &v.known[at], time.Duration(-1)
	asked := k.more == nil || k.more.unasked&metricsPage == 0
	if k.sample != nil && asked && (p.shown&metricsPage != 0 || p.shown == 0) {
		age = v.now - k.at
	}
	for i, from := range v.fills.further {
		if page := k.more.pages.Of(from.Name); page != nil && !page.At.IsZero() && p.shown&(2<<i) != 0 {
			age = max(age, now.Sub(page.At))
		}
	}
	return age
}

// resample writes what a sample says of the endpoint at a place; nil = there is none.
func (v *view) resample(at int, sample *endpoints.Sample) {
	k, values := &v.known[at], (*endpoints.Values)(nil)
	k.sample, k.queued, k.until, k.asleep, k.cache = sample, math.NaN(), math.MinInt64, false, sample.Cache()
	if sample != nil {
		k.at = sample.At.Sub(v.epoch)
	}
	if sample != nil && v.fills.page.Selects(v.sources[at].Labels) {
		values, k.until = &sample.Values, sample.FreshUntil(v.stale).Sub(v.epoch)
		k.asleep = sample.Asleep()
		if len(v.fills.queued) > 0 {
			k.queued = values.BuiltIn(attributes.WaitingRequests)
		}
	}
	for i := range v.fills.sampled {
		v.columns.read(&v.fills.sampled[i], at, values)
	}
}

// count writes the columns that change with each pick.
func (v *view) count() {
	for _, slot := range v.fills.queued {
		column := v.numbers.columns[slot]
		for i := range v.all {
			column[i] = v.known[i].queued + float64(v.load[i].Since+v.load[i].Held)
		}
	}
	for sent := range 2 {
		waits := 1 - sent // whether what waits counts
		for _, slot := range v.fills.requests[sent] {
			column := v.numbers.columns[slot]
			for i := range v.all {
				column[i] = float64(v.load[i].Inflight + waits*v.load[i].Held)
			}
		}
		for _, slot := range v.fills.tokens[sent] {
			column := v.numbers.columns[slot]
			for i := range v.all {
				column[i] = float64(v.load[i].Tokens + waits*v.load[i].HeldTokens)
			}
		}
	}
	v.countWindows()
}

// countWindows reads the windows, if a plugin has asked for any, and writes their columns. A bound that there is not is
// unknown.
func (v *view) countWindows() {
	if len(v.fills.windows[0])+len(v.fills.windows[1]) == 0 {
		return
	}
	for i, e := range v.sources[:len(v.all)] {
		v.windows[i], _ = e.Window()
	}
	for _, slot := range v.fills.windows[0] {
		column := v.numbers.columns[slot]
		for i := range v.all {
			column[i] = known(v.windows[i].Requests)
		}
	}
	for _, slot := range v.fills.windows[1] {
		column := v.numbers.columns[slot]
		for i := range v.all {
			column[i] = known(v.windows[i].Tokens)
		}
	}
}

// countPrompts writes the columns of what endpoints have to compute, and how fast they do.
func (v *view) countPrompts(now time.Time) {
	f := &v.fills.prompts
	if len(f.wait)+len(f.rate)+len(f.requests) == 0 {
		return
	}
	for i, e := range v.sources[:len(v.all)] {
		for _, slot := range f.wait {
			v.numbers.columns[slot][i] = e.Wait(v.load[i], now)
		}
		for _, slot := range f.rate {
			v.numbers.columns[slot][i] = known(e.MarginalRate())
		}
		for _, slot := range f.requests {
			v.numbers.columns[slot][i] = e.Arrivals(now)
		}
	}
}

// known returns a bound as a number of a column.
func known(bound int) float64 {
	if bound > 0 {
		return float64(bound)
	}
	return math.NaN()
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

// look is what a MediaTeller has found of one endpoint, or, with the zero endpoint, of a request.
type look struct {
	meter     int
	at        messages.EndpointID
	found, of messages.MediaCounts
}

// tellMedia tells the observer what was found.
func (r *profileRun) tellMedia() {
	o, ok := r.observer.(MediaObserver)
	if !ok {
		return
	}
	for i := range r.view.looked {
		if l := &r.view.looked[i]; l.at == (messages.EndpointID{}) {
			o.MediaAsked(l.meter, l.of)
		} else {
			o.MediaFound(l.meter, l.at, l.found, l.of)
		}
	}
}
