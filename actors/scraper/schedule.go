package scraper

import (
	"cmp"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	// costPerKiB is the CPU time that a page costs its server: vLLM takes 10 ms for 48 KiB.
	costPerKiB = 200 * time.Microsecond
	// share is how much of one of its cores a server may spend on our pages.
	share = 0.02

	// ownCost and ownCostPerKiB are the CPU time that a page costs us. Measured on a small virtual machine at a page
	// every 6 to 10 ms: 0.45 to 0.65 ms for 60 KiB. Most of it is waking up, which costs a bare HTTP client 0.3 ms
	// there.
	ownCost       = 450 * time.Microsecond
	ownCostPerKiB = 4 * time.Microsecond
	// ownShare is how much of one of our cores the pages of all endpoints may cost together.
	ownShare = 0.05

	loadedFloor = 500 * time.Millisecond // between two scrapes while requests are in flight
	idleFloor   = time.Second            // between two scrapes while none is
	startSpread = 100 * time.Millisecond // the first scrape comes within this time
	modelsEvery = 30 * time.Second       // between two model lists, unless the configuration says otherwise

	// backoffCap is the longest pause between two scrapes of a server that fails, and so bounds how long one that is
	// back gets no requests because its page has not been read. In a large pool a pause is at least the interval, which
	// is longer, so that servers which are gone for good leave room for the fetches of others.
	backoffCap       = 3 * time.Second
	backoffCapLoaded = time.Second     // while requests are in flight
	lostMargin       = time.Second     // beyond the timeout, until a fetch without an answer is given up
	newAdapterPause  = 5 * time.Second // at least, between two early fetches of the model list
)

// interval returns the time from the start of one scrape to the start of the next, if nothing fails. It is long enough
// that the page takes no more than its share of a core from the server, that the pages of all endpoints take no more
// than theirs from us, and not less than the floor. fixed > 0 overrides all of this.
func interval(fixed time.Duration, pageBytes, endpoints int, loaded bool) time.Duration {
	if fixed > 0 {
		return fixed
	}
	kib := float64(pageBytes) / 1024
	theirs := float64(costPerKiB) * kib / share
	ours := (float64(ownCost) + float64(ownCostPerKiB)*kib) * float64(endpoints) / ownShare
	floor := idleFloor
	if loaded {
		floor = loadedFloor
	}
	return max(floor, time.Duration(max(theirs, ours)))
}

// backoff returns the time from the start of a scrape that failed to the start of the next one. failures counts those
// in a row, this one included.
func backoff(interval time.Duration, failures int, loaded bool) time.Duration {
	most := backoffCap
	if loaded {
		most = backoffCapLoaded
	}
	d := interval
	for i := 1; i < failures && d < most; i++ {
		d *= 2
	}
	return max(interval, min(d, most))
}

// source is the state of one page that is fetched again and again.
type source struct {
	pending  bool      // a fetch runs
	number   uint32    // of the newest fetch
	began    time.Time // the newest fetch
	due      time.Time // of the next fetch; zero = the interval decides
	answered bool      // at least once, since the server's last restart
	failures int       // in a row
	inflight int       // requests at the endpoint when the newest fetch began; set for the metrics page
}

func (f *source) begin(now time.Time, number uint32) {
	f.pending, f.began, f.number = true, now, number
	f.due = time.Time{}
}

// alarm is the timer of what is due next. At most one is set, and a message of an earlier one carries another
// generation.
type alarm struct {
	timer      runtime.Timer // nil = none
	generation uint32
}

// step gives up fetches that are lost, begins those that are due, and sets the timer. The handler of every message that
// may change what is due calls it last.
func (s *Scraper) step(ctx runtime.Context[messages.ScraperMsg]) {
	now := ctx.Now()
	if s.lost(&s.page, now) {
		s.metrics.metrics.lose()
		s.pageFailed("the fetch was never answered")
	}
	if s.lost(&s.list, now) {
		s.metrics.models.lose()
		s.list.pending = false
		s.listFailed()
	}
	if s.readsPage() && !s.page.pending && !now.Before(s.pageDue()) {
		s.page.begin(now, s.target.BeginScrape())
		s.page.inflight = s.target.Inflight()
		if !s.fetcher.FetchMetrics(s.assigned.Spec, "", s.page.number, ctx.Port()) {
			s.metrics.metrics.fail()
			s.pageFailed("the fetcher is closed")
		}
	}
	if s.readsList() && !s.list.pending && !now.Before(s.listDue()) {
		s.list.begin(now, s.list.number+1)
		if !s.fetcher.FetchModels(s.assigned.Spec, s.list.number, ctx.Port()) {
			s.metrics.models.fail()
			s.list.pending = false
			s.listFailed()
		}
	}
	for _, f := range s.further {
		s.stepFurther(ctx, f)
	}
	s.arm(ctx)
}

func (s *Scraper) readsPage() bool { return ReadsPage(&s.cfg.Scraping, s.assigned.Spec) }

func (s *Scraper) readsList() bool { return s.cfg.Models != "" && s.selected(s.cfg.SelectModels) }

// ReadsPage reports whether the metrics page of an endpoint is read.
func ReadsPage(of *messages.Scraping, spec messages.EndpointSpec) bool {
	return of.Metrics && selects(of.Select, spec)
}

// selected reports whether the endpoint has these labels.
func (s *Scraper) selected(labels messages.Map[string, string]) bool {
	return selects(labels, s.assigned.Spec)
}

func selects(labels messages.Map[string, string], spec messages.EndpointSpec) bool {
	for key, want := range labels.All() {
		if got, ok := spec.Labels.Get(key); !ok || got != want {
			return false
		}
	}
	return true
}

// lostAt returns when a fetch that runs is given up.
func (s *Scraper) lostAt(f *source) time.Time { return f.began.Add(s.cfg.Timeout + lostMargin) }

func (s *Scraper) lost(f *source, now time.Time) bool { return f.pending && !now.Before(s.lostAt(f)) }

func (s *Scraper) loaded() bool { return s.target.Inflight() > 0 }

func (s *Scraper) interval() time.Duration { return s.intervalIf(s.loaded()) }

func (s *Scraper) intervalIf(loaded bool) time.Duration {
	return interval(s.cfg.Interval, s.server.pageBytes, s.cfg.Endpoints(), loaded)
}

// pageDue returns when the next metrics page is due, by the load of this moment.
func (s *Scraper) pageDue() time.Time {
	return s.dueAt(&s.page, s.interval())
}

// dueAt returns when the next fetch of a page with this interval is due.
func (s *Scraper) dueAt(f *source, every time.Duration) time.Time {
	switch {
	case !f.due.IsZero():
		return f.due
	case f.failures > 0:
		return f.began.Add(backoff(every, f.failures, s.loaded()))
	}
	return f.began.Add(every)
}

func (s *Scraper) listDue() time.Time {
	if !s.list.due.IsZero() {
		return s.list.due
	}
	if s.list.failures > 0 && s.cfg.ModelsEvery == 0 {
		return s.list.began.Add(backoff(idleFloor, s.list.failures, false))
	}
	return s.list.began.Add(s.listEvery())
}

// listEvery returns the time from one model list to the next.
func (s *Scraper) listEvery() time.Duration { return cmp.Or(s.cfg.ModelsEvery, modelsEvery) }

// arm sets the timer to the next time at which a fetch may be due or lost. While nothing is in flight, it is not later
// than the interval under load, because requests may come meanwhile.
func (s *Scraper) arm(ctx runtime.Context[messages.ScraperMsg]) {
	if s.alarm.timer != nil {
		s.alarm.timer.Cancel()
		s.alarm.timer = nil
	}
	now := ctx.Now()
	var next time.Time
	sooner := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if s.readsPage() {
		if s.page.pending {
			sooner(s.lostAt(&s.page))
		} else {
			sooner(s.pageDue())
			if !s.loaded() && s.page.due.IsZero() {
				sooner(now.Add(s.intervalIf(true)))
			}
		}
	}
	if s.readsList() {
		if s.list.pending {
			sooner(s.lostAt(&s.list))
		} else {
			sooner(s.listDue())
		}
	}
	for _, f := range s.further {
		if f.pending {
			sooner(s.lostAt(&f.source))
		} else {
			sooner(s.dueAt(&f.source, s.every(f, s.loaded())))
		}
		if !f.pending && !s.loaded() && f.due.IsZero() {
			sooner(now.Add(s.every(f, true)))
		}
	}
	if next.IsZero() {
		return
	}
	s.alarm.generation++
	s.alarm.timer = ctx.After(max(next.Sub(now), time.Millisecond), messages.ScrapeDue{Generation: s.alarm.generation})
}
