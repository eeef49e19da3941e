package capacity

import "time"

// drain measures how fast requests leave the line for an endpoint. Its clock stands still while no request waits.
type drain struct {
	now    time.Time     // of the message in hand
	since  time.Time     // from when on requests have waited that are not in passed; zero = none waits
	passed time.Duration // of the window, in which requests waited
	count  int           // dispatches in the window
	rate   float64       // requests a second, of the last whole window; 0 = unknown
}

// drainWindow is how long dispatches are counted for a rate. A window ends with a dispatch.
const drainWindow = 5 * time.Second

// waits notes whether requests wait.
func (d *drain) waits(some bool) {
	switch {
	case some && d.since.IsZero():
		d.since = d.now
	case !some && !d.since.IsZero():
		d.passed, d.since = d.span(), time.Time{}
	}
}

// span returns how long requests have waited in the window.
func (d *drain) span() time.Duration {
	if d.since.IsZero() {
		return d.passed
	}
	return d.passed + d.now.Sub(d.since)
}

func (d *drain) dispatched() {
	d.count++
	if span := d.span(); span >= drainWindow {
		d.rate = float64(d.count) / span.Seconds()
		d.since, d.passed, d.count = d.now, 0, 0
	}
}

// perSecond returns how many requests leave in a second; 0 = unknown. A window that has become long because few leave
// counts before it ends, as if one left now.
func (d *drain) perSecond() float64 {
	span := d.span()
	if span < drainWindow {
		return d.rate
	}
	slow := float64(d.count+1) / span.Seconds()
	if d.rate == 0 {
		return slow
	}
	return min(d.rate, slow)
}

// whole returns how long so many requests take to leave, a second at least and a minute at most.
func (d *drain) whole(requests int64) time.Duration {
	rate := d.perSecond()
	if rate == 0 {
		return time.Second
	}
	return min(max(time.Duration(float64(requests)/rate*float64(time.Second)), time.Second), time.Minute)
}
