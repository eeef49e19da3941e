package scraper

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// step gives up what is lost, begins what is due, and sets the timer. Every message that changes anything ends here.
func (s *Scraper) step(ctx runtime.Context[messages.ScraperMsg]) {
	now := ctx.Now()
	if s.lost(&s.page, now) {
		s.metrics.metrics.lose()
		s.pageFailed("the fetch was never answered")
	}
	if s.lost(&s.list, now) {
		s.metrics.models.lose()
		s.list.pending = false
		s.list.failures++
	}
	if s.cfg.Metrics && !s.page.pending && !now.Before(s.pageDue()) {
		s.page.begin(now, s.target.BeginScrape())
		if !s.fetcher.FetchMetrics(s.spec, s.page.number, ctx.Port()) {
			s.metrics.metrics.fail()
			s.pageFailed("the fetcher is closed")
		}
	}
	if s.cfg.Models && !s.list.pending && !now.Before(s.listDue()) {
		s.list.begin(now, s.list.number+1)
		if !s.fetcher.FetchModels(s.spec, s.list.number, ctx.Port()) {
			s.metrics.models.fail()
			s.list.pending = false
			s.list.failures++
		}
	}
	s.arm(ctx)
}

func (f *source) begin(now time.Time, number uint32) {
	f.pending, f.began, f.number = true, now, number
	f.due = time.Time{}
}

// lostAt is when a fetch that runs is given up.
func (s *Scraper) lostAt(f *source) time.Time { return f.began.Add(s.cfg.Timeout + lostMargin) }

func (s *Scraper) lost(f *source, now time.Time) bool { return f.pending && !now.Before(s.lostAt(f)) }

func (s *Scraper) loaded() bool { return s.target.Inflight() > 0 }

func (s *Scraper) interval() time.Duration { return s.intervalIf(s.loaded()) }

func (s *Scraper) intervalIf(loaded bool) time.Duration {
	return interval(s.cfg.Interval, s.pageBytes, s.cfg.Endpoints(), loaded)
}

// pageDue is when the next metrics page is due, by the load of this moment.
func (s *Scraper) pageDue() time.Time {
	if !s.page.due.IsZero() {
		return s.page.due
	}
	if s.page.failures > 0 {
		return s.page.began.Add(backoff(s.interval(), s.page.failures, s.loaded()))
	}
	return s.page.began.Add(s.interval())
}

func (s *Scraper) listDue() time.Time {
	if !s.list.due.IsZero() {
		return s.list.due
	}
	if s.list.failures > 0 {
		return s.list.began.Add(min(s.cfg.ModelsEvery, backoff(idleFloor, s.list.failures, false)))
	}
	return s.list.began.Add(s.cfg.ModelsEvery)
}

// arm sets the timer to the next thing that can be due. Load may come while nothing was in flight, so that what waits for
// longer than the interval under load is looked at again after that.
func (s *Scraper) arm(ctx runtime.Context[messages.ScraperMsg]) {
	if s.timer != nil {
		s.timer.Cancel()
		s.timer = nil
	}
	now := ctx.Now()
	var next time.Time
	sooner := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if s.cfg.Metrics {
		if s.page.pending {
			sooner(s.lostAt(&s.page))
		} else {
			sooner(s.pageDue())
			if !s.loaded() && s.page.due.IsZero() {
				sooner(now.Add(s.intervalIf(true)))
			}
		}
	}
	if s.cfg.Models {
		if s.list.pending {
			sooner(s.lostAt(&s.list))
		} else {
			sooner(s.listDue())
		}
	}
	if next.IsZero() {
		return
	}
	s.armed++
	s.timer = ctx.After(max(next.Sub(now), time.Millisecond), messages.ScrapeDue{Generation: s.armed})
}
