// Package window learns how much work an endpoint takes before further work only waits there. It is to an endpoint what
// congestion control is to a path: the window of work in flight grows while it is what limits and nothing waits, and
// shrinks as soon as work waits at the endpoint. The package owns no clock and no endpoint: an actor tells it what
// requests and pages have shown, and puts its limits in force.
//
//	no bound, for nothing tells
//	   │ a page tells, or first tokens or a refusal under load
//	   ▼
//	growing: + a quarter ──── work waits ────► found: the work that does not wait, and two requests
//	(until work waited once)                      │   ▲
//	                       the window limits,     │   │ work waits
//	                       and nothing waits      ▼   │
//	                           probing: + 1 or 2, and more the farther it is from what was found
//
// From any state, an endpoint that is ejected grows anew from a new one's bound.
//
// Two kinds of signs tell that. First tokens tell at once: their time beyond what an endpoint with little to do takes,
// by how many come in a second, is how many requests wait (Little's law). Pages tell every half second, and are read
// only while they account for the work that was sent; a page that does not, or stands still, decides nothing. An
// endpoint of which neither tells has no bound: what it takes cannot be found.
//
// An endpoint that reads prompts in chunks has requests waiting although it takes more: they wait for a step. So beside
// the requests a window bounds the tokens of prompts that are to be computed, by what the endpoint computes in a
// second, which first tokens tell: the tokens that were to be computed before them, by the time they took. While whole
// steps of prompts are to be computed, and are about as fast as they were at best, what a page shows as waiting is no
// queue; once they take twice as long, or the KV cache is full, it is. First tokens are late only by more than that.
// Before first tokens have told, prompts have the time that they take by a guess. Where responses bypass the picker,
// first tokens are known when an answer has ended, and not when they come: there prompts are not bounded, and pages
// count as they are.
package window

import (
	"math"
	"time"
)

// Load is what was sent to the endpoint and has not ended.
type Load struct {
	Requests int
	Tokens   int  // of the requests' prompts, estimated
	Prompts  int  // those of the tokens that are likely to be computed before first tokens
	Held     bool // more would be sent, if it found room

	// Part is up to which share of the window requests of the lowest priority find room; 0 = all of it.
	Part float64
}

// Limits bound the load of the endpoint.
type Limits struct {
	Requests int  // 0 = no bound, for nothing has told that there is one
	Tokens   int  // prompt tokens of other requests, below which one may be added; 0 = no bound
	Found    bool // they are about what the endpoint takes; otherwise they grow until work waits there

	Pace Pace
}

// Window is what is known of one endpoint.
type Window struct {
	requests float64 // the limit, 1 or more; 0 = there is none
	tokens   float64 // the limit; 0 = none is known
	found    float64 // what it was after work had waited last: about as large as the endpoint allows; 0 = never
	changed  time.Time
	from     time.Time // only first tokens of requests that were picked since count
	reading  time.Time // since when it has had whole steps of prompts to compute, if it has now
	step     float64   // by which it grew last; 0 = it shrank last, or is new
	why      Why
	first    firsts
	page     page
	pace     pace
}

const (
	gentle   = 4                      // a window grows by one part in so many at most
	most     = 1 << 20                // requests, of any window
	underWay = 100 * time.Millisecond // after a change, until the requests that a larger window lets in have arrived
	patience = 30 * time.Second       // between two changes of a window of which a part is kept free
	silent   = 10 * time.Second       // without first tokens, after which these tell nothing any more
)

// Initial is how many requests a window begins with at least.
const Initial = 16

// Slack is how many requests of a window wait at an endpoint that is full, so that it never lacks work.
const Slack = 2

// New returns the window of an endpoint whose limits these are.
func New(now time.Time, inForce Limits) *Window {
	w := &Window{
		requests: float64(inForce.Requests), tokens: float64(inForce.Tokens), changed: now, from: now,
		why: Why{Cause: Begun, At: now}, reading: now,
	}
	w.pace.resume(now, inForce.Pace)
	if w.step = w.requests; inForce.Found {
		w.found, w.step = w.requests, 0
	}
	return w
}

// Limits returns what is in force.
func (w *Window) Limits() Limits {
	return Limits{
		Requests: int(w.requests), Tokens: int(math.Ceil(w.tokens)), Found: w.found > 0,
		Pace: w.pace.learned(w.first.last),
	}
}

// Why returns why the limits are what they are.
func (w *Window) Why() Why { return w.why }

// limits reports whether the window is what bounds the load. While it still grows, its divided part counts as well.
func (w *Window) limits(load Load) bool {
	return w.requests > 0 && w.reached(load)
}

func (w *Window) reached(load Load) bool {
	return float64(load.Requests) >= math.Floor(w.requests)-1 || w.tokens > 0 && float64(load.Tokens) >= w.tokens*.9 ||
		w.found == 0 && w.divided(load)
}

// divided reports whether the window would be what bounds the load, but for a part of it that is kept free.
func (w *Window) divided(load Load) bool {
	part := .9 // that crowds leave, at least
	if load.Part > 0 {
		part = max(part*load.Part, .25)
	}
	return load.Held && float64(load.Requests) >= part*(w.requests-Slack-1)-1
}

// FirstToken learns from the first token of a request. load is that at now.
func (w *Window) FirstToken(now time.Time, f First, load Load) {
	w.noteReading(now, load)
	w.pace.add(now, f)
	excess := min(w.first.add(now, f), w.pace.late(now, f))
	if !w.begins(now, load) {
		return
	}
	if f.Picked.Before(w.from) {
		return // it was sent under another window, or with many others
	}
	w.first.note(excess)
	w.judgeFirsts(now, load)
}

func (w *Window) judgeFirsts(now time.Time, load Load) {
	n := w.first.count
	if n < fewFirsts {
		return
	}
	queue, alarm := w.first.queue(now), Slack+w.burst(now)
	switch {
	case queue > alarm && w.page.contradicts(now, w.changed.Add(w.first.settling())):
		w.first.relax()
		w.first.restart()
	case queue > alarm:
		w.shrink(now, load, queue, Why{Cause: FirstTokens, Queue: queue})
	case queue < 1 && w.limits(load) && float64(n) >= min(w.step, manyFirsts) &&
		(!w.page.waits(now) || w.reads(now, load)):
		w.grow(now, load, 1, Why{Cause: FirstTokens, Queue: queue})
	case float64(n) >= max(manyFirsts, w.step) && w.step > 0: // those that come from now on come one by one
		w.step, w.from = 0, now
		w.first.restart()
	}
}

// burst returns how many requests may seem to wait because a larger window has just let so many in, which the endpoint
// computes one after the other. Where a page will tell soon, only many more than that, and than chance, do wait.
func (w *Window) burst(now time.Time) float64 {
	if w.page.credible(now) {
		return 2*w.step + w.requests/16
	}
	return w.step / 2
}

// Sampled learns from a page. load is that at now.
func (w *Window) Sampled(now time.Time, s Sample, load Load) {
	w.noteReading(now, load)
	usable := w.page.read(s, load)
	if s.known() {
		w.begin(now, load)
	}
	if w.page.lied >= liesOften {
		w.Ended(now, load) // the page tells as little of the work as an end does
	}
	if !usable || s.Began.Before(w.changed.Add(underWay)) {
		return
	}
	queue, settled := w.page.queue(load), !s.Began.Before(w.changed.Add(w.first.settling()))
	if queue >= 1 && w.reads(now, load) {
		return // first tokens tell whether it is more than that
	}
	if queue >= 1 {
		w.first.tighten()
	}
	switch {
	case queue > Slack+w.first.passing(now) && w.page.before >= Slack && settled:
		if w.page.last.CacheUsed >= fullCache {
			w.shrinkTokens(load, queue)
		}
		w.shrink(now, load, queue, Why{Cause: Page, Queue: queue})
	case queue >= Slack && w.page.before > 0 && load.Held && w.found > 0 && !w.limits(load):
		why := Why{Cause: Page, Queue: queue, From: int(w.requests)}
		w.requests = max(w.requests-1, 1) // what is kept free is not there
		w.change(now, 0, why)
	case queue >= 1 || !w.first.quiet(now) && w.first.queue(now) > Slack:
	case w.limits(load):
		w.grow(now, load, 2, Why{Cause: Page, Queue: queue})
	case w.divided(load) && now.Sub(w.changed) >= patience: // how much more it takes cannot be seen
		w.creep(now, Why{Cause: Page, Queue: queue})
	}
}

// noteReading notes that the endpoint does not have a whole step of prompts to compute, if so.
func (w *Window) noteReading(now time.Time, load Load) {
	if load.Prompts < StepTokens {
		w.reading = now
	}
}

// reads reports whether the endpoint reads prompts in chunks, for which others wait: that is no queue. For the KV cache
// they wait as long as it is full.
func (w *Window) reads(now time.Time, load Load) bool {
	return load.Prompts >= StepTokens && !(w.page.last.CacheUsed >= fullCache) &&
		w.pace.reads(now, w.reading, load.Prompts)
}

// Ended learns from a request that was served without a first token that was seen. It matters only at an endpoint of
// which nothing else tells any more: there the window grows, for nothing says that work waits, and without a page that
// ever told of its work there is no bound any more.
func (w *Window) Ended(now time.Time, load Load) {
	if !w.first.quiet(now) || w.page.credible(now) || now.Sub(w.changed) < silent/10 || !w.limits(load) {
		return
	}
	if w.page.told() {
		w.grow(now, load, 1, Why{Cause: Blind})
		return
	}
	from := int(w.requests)
	w.requests, w.tokens, w.found = 0, 0, 0
	w.change(now, 0, Why{Cause: Blind, From: from})
}

// Passed does what Ended does at an endpoint at which nothing ends either, once nothing has changed for a while.
func (w *Window) Passed(now time.Time, load Load) {
	if now.Sub(w.changed) >= silent {
		w.Ended(now, load)
	}
}

// Refused learns from a request that the endpoint refused because it is full. That says something of the window only if
// the endpoint has as much to do as the window allows.
func (w *Window) Refused(now time.Time, load Load) {
	if !w.begins(now, load) || !w.limits(load) ||
		now.Sub(w.changed) < max(w.first.settling(), time.Second) && w.step == 0 {
		return // or it is one of several of the same moment
	}
	w.shrink(now, load, math.Ceil(float64(load.Requests)/10)+1, Why{Cause: Refusal})
}

// Lost begins a window anew: the endpoint does not answer, and may come back as another one, without anything of what
// it held.
func (w *Window) Lost(now time.Time) {
	if w.why.Cause == Begun && w.requests == Initial && w.first.last.IsZero() {
		return // it is as a new one
	}
	from := int(w.requests)
	w.first, w.page, w.pace = firsts{}, page{}, pace{}
	w.reading = now
	if w.requests == 0 {
		return // as before, nothing tells of a bound
	}
	w.requests, w.tokens, w.found = Initial, 0, 0
	w.change(now, Initial, Why{Cause: Begun, From: from})
}

// begins reports whether there is a bound. An endpoint that has little to do shows nothing of what it takes.
func (w *Window) begins(now time.Time, load Load) bool {
	if load.Requests >= Initial {
		w.begin(now, load)
	}
	return w.requests > 0
}

// begin bounds the load, unless it is bounded already: what the endpoint works on is no less than it takes.
func (w *Window) begin(now time.Time, load Load) {
	if w.requests > 0 {
		return
	}
	w.requests = max(Initial, float64(load.Requests))
	w.change(now, w.requests, Why{Cause: Begun})
}

// grow makes the window larger, by at least so much.
func (w *Window) grow(now time.Time, load Load, least float64, why Why) {
	why.From = int(w.requests)
	step := max(2, w.requests/gentle)
	switch {
	case w.found > 0:
		step = min(step, max(least, math.Abs(w.requests-w.found)/2))
	case why.Cause == Blind:
		step = w.requests
	}
	if w.tokens > 0 && float64(load.Tokens) >= w.tokens*.9 {
		w.tokens *= 1 + max(step/w.requests, 1./32)
	}
	if float64(load.Requests) >= math.Floor(w.requests)-1 || w.divided(load) {
		w.requests = min(w.requests+step, most)
	}
	w.change(now, step, why)
}

// creep makes the window a little larger, and more once it is far from what was found.
func (w *Window) creep(now time.Time, why Why) {
	why.From = int(w.requests)
	step := max(1, math.Abs(w.requests-w.found)/8)
	w.requests = min(w.requests+step, most)
	w.change(now, step, why)
}

// shrink leaves room for the work that does not wait, and for as much that does that the endpoint never lacks
// work.
func (w *Window) shrink(now time.Time, load Load, queue float64, why Why) {
	smaller := max(1, float64(load.Requests)-queue+Slack, w.requests*least)
	if smaller >= w.requests {
		w.found = w.requests
		w.first.restart()
		return
	}
	why.From = int(w.requests)
	w.requests, w.found = smaller, smaller
	w.change(now, 0, why)
}

// least is the part of a window that is left at least when it shrinks once.
const least = .5

// fullCache is the share of the KV cache in use from which on prompts wait for it.
const fullCache = .9

// shrinkTokens bounds the tokens of prompts by those of the work that does not wait.
func (w *Window) shrinkTokens(load Load, queue float64) {
	if load.Requests == 0 {
		return
	}
	runs := max(1-queue/float64(load.Requests), least)
	if tokens := float64(load.Tokens) * runs; w.tokens == 0 || tokens < w.tokens {
		w.tokens = max(tokens, 1)
	}
}

func (w *Window) change(now time.Time, step float64, why Why) {
	w.changed, w.from, w.step, w.why = now, now, step, why
	w.why.At = now
	w.first.restart()
}
