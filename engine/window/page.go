package window

import (
	"math"
	"time"
)

// Sample is what a page of the endpoint says. NaN = it does not say.
type Sample struct {
	Began     time.Time     // when its scrape began
	Interval  time.Duration // to the next one, as planned
	Waiting   float64       // requests
	Running   float64       // requests
	CacheUsed float64       // share of the KV cache, 0 to 1
}

func (s *Sample) known() bool { return !math.IsNaN(s.Waiting) && !math.IsNaN(s.Running) }

// same reports whether two pages say the same.
func (s *Sample) same(other *Sample) bool {
	cache := s.CacheUsed == other.CacheUsed || math.IsNaN(s.CacheUsed) && math.IsNaN(other.CacheUsed)
	return cache && s.Waiting == other.Waiting && s.Running == other.Running
}

// liesOften is how many pages in a row may lack what was sent: their scrapes may have begun before that.
const liesOften = 3

// frozenAfter is how many pages of an endpoint that works may say the same before they count as one that stands still.
const frozenAfter = 8

// page is what pages have shown.
type page struct {
	last   Sample
	still  int     // pages in a row that said the same while the endpoint worked
	lied   int     // pages in a row that do not account for the work that was sent
	honest bool    // the newest page does
	before float64 // requests that waited by the page before the newest
}

// read takes a page in, and reports whether it can be relied on.
func (p *page) read(s Sample, load Load) bool {
	p.before = p.last.Waiting
	if p.last.same(&s) && load.Requests > 0 {
		p.still++
	} else {
		p.still = 0
	}
	p.last = s
	p.lied++
	p.honest = s.known() && s.Waiting+s.Running >= .75*float64(load.Requests)-3
	if p.honest {
		p.lied = 0
	}
	return p.usable()
}

// told reports whether there was a page, and the newest tells of the endpoint's work.
func (p *page) told() bool { return !p.last.Began.IsZero() && p.last.known() }

func (p *page) usable() bool { return p.honest && p.still < frozenAfter }

// credible reports whether the newest page can be relied on, and is fresh.
func (p *page) credible(now time.Time) bool {
	return p.usable() && now.Sub(p.last.Began) <= max(3*p.last.Interval, time.Second)
}

// contradicts reports whether a page that was read after a time says that none waits.
func (p *page) contradicts(now, after time.Time) bool {
	return p.credible(now) && p.last.Waiting < 1 && p.last.Began.After(after)
}

// waits reports whether the newest page says that some wait.
func (p *page) waits(now time.Time) bool { return p.credible(now) && p.last.Waiting >= 1 }

// queue returns how many of our own requests wait. Other pickers may send to the endpoint too.
func (p *page) queue(load Load) float64 {
	all := p.last.Waiting + p.last.Running
	if all <= 0 {
		return 0
	}
	return p.last.Waiting * min(float64(load.Requests)/all, 1)
}
