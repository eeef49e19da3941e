package endpoints

import (
	"math"

	"github.com/signalbox-epp/signalbox/engine/attributes"
)

// Places is what the metrics pages of an endpoint have shown of how many requests of this process it takes before
// others wait there. The scraper brings it from one page to the next, and it bounds what is sent until the page after:
// what is in flight falls with each end at once. The zero Places is of an endpoint without a page. It is immutable.
type Places struct {
	Known    bool    // the newest page says how many wait; otherwise the rest is what was known before
	Inflight int     // requests of this process, when the scrape of the newest page began
	Waiting  float64 // requests at the endpoint that wait, of the newest page, and those on their way there
	Share    float64 // part of the work at the endpoint that is this process's own, from 0 to 1

	taken float64 // requests of this process that it takes at once, as far as it has shown
	step  float64 // further ones that it may take: it doubles with each page on which it is busy and none waits
}

const (
	// onTheirWay is how many requests that a page does not have may arrive at the endpoint just after it.
	onTheirWay = 2
	// mostMore is how many more than were taken may be sent until the next page, by those. More are tried only after
	// busyPart of them was in flight, and none waited.
	mostMore, busyPart = .5, .75
	// mostTold is how many requests a page tells of at most; more count as so many.
	mostTold = 1 << 30
	// An honest page has at least this part of what is in flight, but for so many requests.
	honestPart, honestLack = .75, 3
)

// Next returns what is known once another page has come. inflight is how many requests of this process were in flight
// when its scrape began.
func (p Places) Next(inflight int, page *Values) Places {
	if p.taken == 0 {
		p.taken, p.step = FirstWindow, FirstWindow*mostMore
	}
	own := float64(inflight)
	waiting, running := page.BuiltIn(attributes.WaitingRequests), page.BuiltIn(attributes.RunningRequests)
	if p.Known = !math.IsNaN(waiting); !p.Known {
		return p
	}
	waiting = min(max(waiting, 0), mostTold)
	if math.IsNaN(running) {
		running = own - waiting
	}
	running = min(max(running, 0), mostTold)
	p.Inflight, p.Share = inflight, 1
	if all := waiting + running; all > own {
		p.Share = own / all
	}
	absent := max(own-waiting-running, 0)
	if p.Waiting = waiting; waiting > 0 {
		p.Waiting += min(absent, onTheirWay)
	}
	if waiting+running < honestPart*own-honestLack {
		return p // the page tells of something else, and nothing is learned from it
	}
	if waiting > 0 {
		queue := p.Waiting * p.Share
		p.taken = own - queue + max(p.taken-own+queue, 0)*math.Exp2(-queue)
		p.step = max(p.step/2-queue, 0)
		return p
	}
	if own >= busyPart*p.taken {
		p.step = max(2*p.step, 1)
	}
	p.taken = max(p.taken, own-absent/2)
	p.step = min(p.step, p.taken*mostMore)
	return p
}

// bound returns how many requests of this process may be in flight at most so that no more wait at the endpoint than
// are allowed to; 0 or less = none.
func (p *Places) bound(waiting int) int {
	allowed := float64(waiting)
	if p.Waiting >= allowed {
		return int(float64(p.Inflight) - (p.Waiting-allowed)*p.Share)
	}
	return int(p.taken + max(math.Ceil(allowed*p.Share), p.step, 1))
}

// Bound returns what a room amounts to at this moment: bounds of requests and tokens alone. It reports false if there
// is no room, however small the load is.
func (e *Endpoint) Bound(r Room) (Room, bool) {
	of := Room{Requests: r.Requests, Tokens: r.Tokens}
	if r.Learned {
		window, _ := e.Window()
		of = window.Part(r.Share).and(of)
	}
	if r.Waiting == 0 {
		return of, true
	}
	switch s := e.sample.Load(); {
	case s == nil && e.window.awaited.Load(): // all that was sent there waits, as far as is known
		of = of.and(Room{Requests: r.Waiting})
	case s != nil && s.Places.Known:
		most := s.Places.bound(r.Waiting)
		if most < 1 {
			return Room{}, false
		}
		of = of.and(Room{Requests: most})
	}
	return of, true
}
