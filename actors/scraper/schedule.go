package scraper

import "time"

const (
	// A page costs its server 0.2 ms of CPU per KiB: vLLM takes 10 ms for 48 KiB.
	costPerKiB = 200 * time.Microsecond
	// share is how much of one of its cores a server may spend on our pages.
	share = 0.02

	// A page costs us this much CPU, and this much per KiB. Measured on a small virtual machine: 0.45 to 0.65 ms for 60 KiB,
	// one page every 6 to 10 ms. Most of it is waking up, which a bare HTTP client does not do for less than 0.3 ms there.
	ownCost       = 450 * time.Microsecond
	ownCostPerKiB = 4 * time.Microsecond
	// ownShare is how much of one of our cores the pages of all endpoints may cost together.
	ownShare = 0.05

	loadedFloor = 500 * time.Millisecond // between two scrapes while requests are in flight
	idleFloor   = time.Second            // between two scrapes while none is
	startSpread = 100 * time.Millisecond // the first scrape comes within this time

	// backoffCap is how long a server that returns may go unseen: it gets no requests until its page is read. In a large pool
	// the interval is longer, so that servers which are gone for good leave places for fetches of the others.
	backoffCap       = 3 * time.Second
	backoffCapLoaded = time.Second // while requests are in flight
	lostMargin       = time.Second // beyond the timeout, until a fetch that nobody answers is given up
	newAdapterPause  = 5 * time.Second
)

// interval is the time from the begin of one scrape to the begin of the next, if nothing fails: what share of a core the
// page may cost its server, what share the pages of all endpoints may cost us, and not less than the floor. fixed > 0
// overrides.
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

// backoff is the time from the begin of a scrape that failed to the begin of the next, after so many failures in a row,
// at least 1.
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
