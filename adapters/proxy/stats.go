package proxy

import "sync/atomic"

// Stats are counts since the proxy was made.
type Stats struct {
	Requests   int64 // HTTP requests taken
	Streams    int64 // ext_proc streams opened
	Failures   int64 // exchanges that failed: no stream, gRPC error, spurious answer
	Picks      int64 // requests for which the EPP named at least one usable endpoint
	Fallbacks  int64 // attempts at an endpoint of the fallback list
	Retries    int64 // attempts after the first
	Immediate  int64 // immediate responses taken over
	Violations int64 // answers that broke a rule, tolerated or not
	Active     int64 // requests running now
}

type counters struct {
	requests, streams, failures, picks, fallbacks, retries, immediate, violations, active atomic.Int64
}

func (c *counters) snapshot() Stats {
	return Stats{
		Requests:   c.requests.Load(),
		Streams:    c.streams.Load(),
		Failures:   c.failures.Load(),
		Picks:      c.picks.Load(),
		Fallbacks:  c.fallbacks.Load(),
		Retries:    c.retries.Load(),
		Immediate:  c.immediate.Load(),
		Violations: c.violations.Load(),
		Active:     c.active.Load(),
	}
}
