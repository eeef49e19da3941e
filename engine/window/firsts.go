package window

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

// First is the first token of a request.
type First struct {
	Picked time.Time
	Took   time.Duration // from the pick to the token
	Prompt int           // tokens that the endpoint had to compute, estimated
	Ahead  int           // tokens of other prompts that it had to compute before, estimated
	Before int           // requests in flight at the pick
}

const (
	fewFirsts  = 4  // say something
	manyFirsts = 8  // say that a larger window is not too large
	kept       = 16 // of the newest, for a quartile

	// rateOver is the time over which the rate of first tokens is a mean.
	rateOver = 5 * time.Second
	// floorFor is how long the least time of a size is kept at least, and for twice that at most.
	floorFor = time.Minute
	// grain is added to what is expected: steps of an engine, and the way there and back.
	grain = 20 * time.Millisecond
)

// firsts is what first tokens have shown.
type firsts struct {
	floors [24]floor     // least time by size of what was to be computed
	rate   rate          // of first tokens
	since  [kept]float64 // seconds beyond what was expected, of requests that were sent under the window in force
	count  int           // of those; the newest are kept
	slack  float64       // by which what is expected is multiplied, beside doubled; 0 = 1
	last   time.Time
	usual  float64 // seconds to the first token, a moving mean
	least  float64 // seconds to it of prompts like these, at an endpoint with little to do, a moving mean
}

// floor is the least time to the first token, of this epoch and the one before; 0 = there was none. What is older says
// nothing any more.
type floor struct {
	began            time.Time
	newest, previous float64
}

func (f *floor) add(now time.Time, seconds float64) {
	if now.Sub(f.began) > floorFor {
		f.began, f.previous, f.newest = now, f.newest, 0
	}
	if f.newest == 0 || seconds < f.newest {
		f.newest = seconds
	}
}

// least returns the least time; 0 = there was none lately.
func (f *floor) least(now time.Time) float64 {
	if now.Sub(f.began) > 2*floorFor {
		return 0
	}
	if f.newest == 0 || f.previous != 0 && f.previous < f.newest {
		return f.previous
	}
	return f.newest
}

// size returns the class of what is to be computed: those of one class differ by a factor of two at most.
func size(prompt int) int { return min(bits.Len(uint(max(prompt, 0)/64)), len(firsts{}.floors)-1) }

// add takes a first token in, and returns by how much it was later than the endpoint needs, in seconds.
func (f *firsts) add(now time.Time, t First) float64 {
	took, class := t.Took.Seconds(), size(t.Prompt+t.Ahead)
	f.last = now
	f.rate.add(now)
	f.floors[class].add(now, took)
	f.least += (f.floors[class].least(now) - f.least) / 16
	if f.usual == 0 {
		f.usual = took
	}
	f.usual += (took - f.usual) / 16
	return max(took-f.expected(now, class), 0)
}

// expected returns how long a prompt of a class takes at an endpoint that works, at which none waits, in seconds. The
// time of smaller prompts bounds that of larger ones, for computing takes as long as the prompt is.
func (f *firsts) expected(now time.Time, class int) float64 {
	least := f.floors[class].least(now)
	for smaller := range class {
		if s := f.floors[smaller].least(now); s > 0 {
			least = min(least, s*math.Exp2(float64(class-smaller)))
		}
	}
	return 2*least*max(f.slack, 1) + grain.Seconds()
}

// note keeps by how much a first token was late.
func (f *firsts) note(excess float64) {
	f.since[f.count%kept] = excess
	f.count++
}

// queue returns how many requests wait at the endpoint, by how late three quarters of the first tokens were at least:
// some are late because their prompts came with others, but where requests wait, all do.
func (f *firsts) queue(now time.Time) float64 {
	if f.count == 0 {
		return 0
	}
	since := f.since // a copy: the order of the newest must stay
	late := since[:min(f.count, kept)]
	slices.Sort(late)
	return late[len(late)/4] * f.rate.at(now)
}

// passing returns how many requests a page may show as waiting at an endpoint at which none has to: each waits until
// the step under way has ended, which is no longer than the time to the first token at its least.
func (f *firsts) passing(now time.Time) float64 { return f.least * f.rate.at(now) }

// restart forgets how late first tokens were, because the window is another one.
func (f *firsts) restart() { f.count = 0 }

// relax expects less of the endpoint: a page that can be relied on says that none waits.
func (f *firsts) relax() { f.slack = min(max(f.slack, 1)*1.25, 8) }

// tighten takes back a part of relax: a page that can be relied on says that some wait.
func (f *firsts) tighten() { f.slack = max(f.slack/1.1, 1) }

// quiet reports whether no first token has come lately.
func (f *firsts) quiet(now time.Time) bool { return f.last.IsZero() || now.Sub(f.last) > silent }

// settling returns how long it takes until a change of the window shows at the endpoint.
func (f *firsts) settling() time.Duration {
	return min(max(time.Duration(f.usual*float64(time.Second)), 50*time.Millisecond), 2*time.Second)
}

// rate is how many events come in a second, by an exponential mean.
type rate struct {
	began, last time.Time
	sum         float64
}

func (r *rate) add(now time.Time) {
	if r.began.IsZero() {
		r.began, r.last = now, now
	}
	r.sum = r.sum*r.decay(now) + 1
	r.last = now
}

func (r *rate) decay(now time.Time) float64 {
	return math.Exp(-now.Sub(r.last).Seconds() / rateOver.Seconds())
}

// at returns the rate. It is corrected for the time before the first event.
func (r *rate) at(now time.Time) float64 {
	if r.began.IsZero() {
		return 0
	}
	seen := 1 - math.Exp(-max(now.Sub(r.began), 100*time.Millisecond).Seconds()/rateOver.Seconds())
	return r.sum * r.decay(now) / rateOver.Seconds() / seen
}
