package scraper

import (
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// further is a page that is fetched beside the metrics page. It has turns, an interval, failures and an age of its own.
// A failure of it is none of the endpoint, for another process may serve it.
type further struct {
	source
	of        messages.FurtherPage
	pageBytes int // of the newest page
	totals    totals
}

// choose takes the further sources of the configuration that select the endpoint. Those that stay keep what is known.
func (s *Scraper) choose(ctx runtime.Context[messages.ScraperMsg]) {
	before := s.further
	s.further = nil
	for _, of := range s.cfg.Further.All() {
		if !s.selected(of.Select) {
			continue
		}
		at := slices.IndexFunc(before, func(f *further) bool { return f.of.Source == of.Source })
		f := &further{}
		if at >= 0 {
			f = before[at]
		} else {
			f.number = uint32(ctx.Now().UnixNano())
			f.due = ctx.Now().Add(time.Duration(ctx.Rand().Int64N(int64(startSpread))))
		}
		f.of = of
		s.further = append(s.further, f)
	}
	list := ""
	if s.readsList() {
		list = s.cfg.Models
	}
	s.withdraw(func(source string) bool { return s.named(source) == nil && (source != list || list == "") })
}

// publish brings the page of a source into force.
func (s *Scraper) publish(page endpoints.Page) { s.target.PublishPages(s.target.Pages().With(page)) }

// publishFailure notes that the newest fetch of a source brought nothing.
func (s *Scraper) publishFailure(source string) {
	page := endpoints.Page{Source: source}
	if known := s.target.Pages().Of(source); known != nil {
		page = *known
	}
	page.Failing = true
	s.publish(page)
}

// withdraw takes the pages of sources out of force.
func (s *Scraper) withdraw(gone func(source string) bool) {
	if s.target.Pages() != nil {
		s.target.PublishPages(s.target.Pages().Without(gone))
	}
}

// named returns a further source; nil = there is none of this name.
func (s *Scraper) named(source string) *further {
	for _, f := range s.further {
		if f.of.Source == source {
			return f
		}
	}
	return nil
}

// every returns the interval of a further source.
func (s *Scraper) every(f *further, loaded bool) time.Duration {
	return interval(f.of.Interval, f.pageBytes, s.cfg.Endpoints(), loaded)
}

// stepFurther gives up a fetch that is lost, or begins one that is due.
func (s *Scraper) stepFurther(ctx runtime.Context[messages.ScraperMsg], f *further) {
	now := ctx.Now()
	if s.lost(&f.source, now) {
		s.metrics.further(f.of).lose()
		s.furtherFailed(f)
	}
	if f.pending || now.Before(s.dueAt(&f.source, s.every(f, s.loaded()))) {
		return
	}
	f.begin(now, f.number+1)
	if !s.fetcher.FetchMetrics(s.assigned.Spec, f.of.Source, f.number, ctx.Port()) {
		s.metrics.further(f.of).fail()
		s.furtherFailed(f)
	}
}

func (s *Scraper) onFurtherFinished(ctx runtime.Context[messages.ScraperMsg], m messages.ScrapeFinished) {
	f := s.named(m.Source)
	if f == nil || !f.pending || m.Number != f.number {
		return // this fetch was given up
	}
	switch {
	case m.Failure != "" && m.Shared: // asking again at the usual time costs nobody anything
		f.pending, f.failures = false, 0
		s.publishFailure(f.of.Source)
	case m.Failure != "":
		s.metrics.further(f.of).fail()
		s.furtherFailed(f)
	default:
		s.furtherCame(ctx, f, m)
	}
	s.step(ctx)
}

// furtherCame publishes the page of a further source, which is as old as its reading.
func (s *Scraper) furtherCame(
	ctx runtime.Context[messages.ScraperMsg], f *further, m messages.ScrapeFinished,
) {
	if !m.Shared {
		s.metrics.further(f.of).succeed(m.Took)
	}
	if !f.of.Document {
		s.metrics.pageBytes.Add(float64(m.PageBytes))
	}
	f.pageBytes = m.PageBytes
	every := s.every(f, s.loaded())
	if !f.answered { // endpoints that were discovered together are spread over an interval
		f.due = ctx.Now().Add(time.Duration(ctx.Rand().Int64N(int64(every))))
	}
	f.pending, f.answered, f.failures = false, true, 0
	read := f.began.Add(-m.Age)
	page := endpoints.Page{
		Source: f.of.Source, At: read, Interval: every, Values: f.totals.values(m.Reading, read),
	}
	if m.Expires > 0 {
		page.Expires = f.began.Add(m.Expires)
	}
	s.publish(page)
}

// furtherFailed notes that the newest fetch of a further source brought nothing. Its last page stays, and ages.
func (s *Scraper) furtherFailed(f *further) {
	f.pending = false
	f.failures++
	s.publishFailure(f.of.Source)
}
