package endpoints

import (
	"math"
	"sync/atomic"
	"time"

	learned "github.com/signalbox-epp/signalbox/engine/window"
)

// Counters are the load of an endpoint as this process counts it.
type Counters struct {
	Inflight int // requests that were sent to the endpoint and have not ended
	Tokens   int // that are to be computed of their prompts, and those that are expected in their answers; estimated
	Since    int // those of the requests that were sent after the scrape of the sample in force began

	Held       int // requests that wait in the picker for room at the endpoint
	HeldTokens int // their tokens, likewise
}

// Computing is what an endpoint has to do before first tokens, as this process counts it.
type Computing struct {
	Requests int       // that were sent, of which the first token is awaited: it has not come, and will be seen
	Tokens   int       // that are to be computed of their prompts, estimated
	Since    time.Time // when the last of those before them had its first token, or the first of them came
}

// load holds what Counters are read from. Cycles of all loops write it: single words, changed by atomic operations, in
// a cache line of their own. A cycle that adds a Pick keeps it and removes it once.
type load struct {
	_        [64]byte
	word     atomic.Uint64 // a scrapes, packed
	requests atomic.Int64
	tokens   atomic.Int64

	computing atomic.Int64 // requests whose first token is awaited
	prompts   atomic.Int64 // tokens of their prompts
	advanced  atomic.Int64 // when computing grew from 0 or shrank last, in nanoseconds of Unix
	unseen    pool         // tokens of prompts whose first tokens are not seen
	waits     atomic.Int64 // requests that wait in the picker for room here
	waiting   atomic.Int64 // their tokens
	arrivals  arrivals     // requests that were sent of late
}

// Work is what a request has an endpoint do.
type Work struct {
	Prompt int // tokens that are to be computed, estimated
	Output int // tokens that are expected in the answer; 0 = they do not count

	Unseen bool // nothing will tell when the first token comes
}

// Begun returns what is left of it once the first token has come: nothing, or all of it until the end if tokens of the
// answer count.
func (w Work) Begun() Work {
	if w.Output > 0 {
		w.Output += w.Prompt
	}
	w.Prompt = 0
	return w
}

// Tokens returns all of them.
func (w Work) Tokens() int { return w.Prompt + w.Output }

// Pick is what one request added to the load of an endpoint.
type Pick struct {
	Scrape uint32 // number of the newest scrape that had begun
	Work          // that is left of it; without its prompt once the first token has come

	computing bool // the first token is awaited
}

// scrapes counts the live picks that samples do not include, in one word. The scrape in force is the one whose sample
// is. Numbers of scrapes wrap after 16 million and are compared by their difference.
type scrapes struct {
	newest  uint32 // 24 bits: number of the newest scrape that began
	behind  uint32 // 8 bits: newest minus the number of the scrape in force; stops at 255
	inForce uint32 // 16 bits: live picks since the scrape in force began; stops at 65535
	begun   uint32 // 16 bits: live picks since the newest scrape began; stops at 65535
}

const (
	scrapeMask = 1<<24 - 1
	behindMax  = 1<<8 - 1
	countMax   = 1<<16 - 1
)

func (s scrapes) pack() uint64 {
	return uint64(s.newest)<<40 | uint64(s.behind)<<32 | uint64(s.inForce)<<16 | uint64(s.begun)
}

func unpack(w uint64) scrapes {
	return scrapes{uint32(w >> 40), uint32(w>>32) & behindMax, uint32(w>>16) & countMax, uint32(w) & countMax}
}

// notBefore reports whether scrape a is b or began after it.
func notBefore(a, b uint32) bool { return (a-b)&scrapeMask < 1<<23 }

func (l *load) change(f func(scrapes) scrapes) scrapes {
	for {
		old := l.word.Load()
		s := f(unpack(old))
		if l.word.CompareAndSwap(old, s.pack()) {
			return s
		}
	}
}

// Room bounds the load of an endpoint. The zero Room has no bounds.
type Room struct {
	Requests int // at most; 0 = no bound
	Tokens   int // prompt tokens of requests beside the one that is added: below that; 0 = no bound
	Waiting  int // requests that wait at the endpoint, by its newest page and what was sent since; 0 = no bound

	// Prompts bounds the tokens of prompts that are to be computed before first tokens, with those of the request that
	// is added, unless that is the only one; 0 = no bound.
	Prompts int
	Rate    int // of those, how many the endpoint computes in a second

	Learned bool    // the endpoint's window bounds its load, too
	Share   float64 // of that window; 0 = all of it
	Found   bool    // of a window: it is about what the endpoint takes; otherwise it grows until work waits there
}

// Part returns the first whole number that is not below a share of a limit, at least 1. What is above a whole number by
// no more than an error of rounding counts as that number.
func Part(limit int, share float64) int {
	return max(int(min(math.Ceil(float64(limit)*share-1e-6), math.MaxInt32)), 1)
}

// Part returns the room up to a share of a window; 0 = all of it. Requests that would wait at the endpoint are in no
// part of it, nor is one by which a window may be too large.
func (r Room) Part(share float64) Room {
	if share == 0 || share >= 1 {
		return r
	}
	if r.Requests > 0 {
		r.Requests = Part(r.Requests-learned.Slack-1-r.Requests/128, share)
	}
	if r.Tokens > 0 {
		r.Tokens = Part(r.Tokens, share)
	}
	if r.Prompts > 0 {
		r.Prompts = Part(r.Prompts, share)
	}
	return r
}

// and returns the lesser bounds of two.
func (r Room) and(other Room) Room {
	if r.Requests == 0 || other.Requests > 0 && other.Requests < r.Requests {
		r.Requests = other.Requests
	}
	if r.Tokens == 0 || other.Tokens > 0 && other.Tokens < r.Tokens {
		r.Tokens = other.Tokens
	}
	return r
}

// window is the learned bound of an endpoint's load, as Room has it. One actor writes it.
type window struct {
	requests, tokens atomic.Int64
	rate             atomic.Int64 // tokens of prompts that the endpoint computes in a second; 0 = unknown
	marginal         atomic.Int64 // as learned.Pace has it
	perRequest       atomic.Int64 // likewise, in nanoseconds
	firsts           atomic.Int64 // by how many first tokens
	found            atomic.Bool  // a part of it can be kept free
	why              atomic.Pointer[learned.Why]
	awaited          atomic.Bool // SampleWriter: the first page is to come, which may tell of the endpoint's work
	loadReported     atomic.Bool // SampleWriter: the newest sample says how many requests run and wait
}

// FirstWindow is the window of an endpoint of which no more is known than that its pages tell of its work: how many
// requests it may have in flight.
const FirstWindow = learned.Initial

// take adds a request if there is room. Two that take at once never exceed a bound together.
// The bound of prompts is no hard one: two may take its last part.
func (l *load) take(w Work, room Room, rate int, now time.Time) (Pick, bool) {
	if room.Prompts > 0 {
		if ahead := l.backlog(rate, now); ahead > 0 && ahead+w.Prompt > room.Prompts {
			return Pick{}, false
		}
	}
	if !add(&l.requests, 1, room.Requests) {
		return Pick{}, false
	}
	if !add(&l.tokens, int64(w.Tokens()), room.Tokens) {
		l.requests.Add(-1)
		return Pick{}, false
	}
	return l.count(w, rate, now), true
}

// add adds to a word that is below a bound; 0 = no bound.
func add(word *atomic.Int64, n int64, below int) bool {
	if below == 0 {
		word.Add(n)
		return true
	}
	for {
		old := word.Load()
		if old >= int64(below) {
			return false
		}
		if word.CompareAndSwap(old, old+n) {
			return true
		}
	}
}

func (l *load) hold(requests, tokens int) {
	l.waits.Add(int64(requests))
	l.waiting.Add(int64(tokens))
}

func (l *load) add(w Work, rate int, now time.Time) Pick {
	l.requests.Add(1)
	l.tokens.Add(int64(w.Tokens()))
	return l.count(w, rate, now)
}

// count counts a pick that was added since the newest scrape began, at an endpoint that computes so many tokens of
// prompts in a second.
func (l *load) count(w Work, rate int, now time.Time) Pick {
	l.arrivals.add(now)
	if w.Unseen {
		l.unseen.add(w.Prompt, rate, now)
	} else {
		l.prompts.Add(int64(w.Prompt))
		if l.computing.Add(1) == 1 {
			l.advanced.Store(now.UnixNano())
		}
	}
	s := l.change(func(s scrapes) scrapes {
		s.inForce = min(s.inForce+1, countMax)
		s.begun = min(s.begun+1, countMax)
		return s
	})
	return Pick{Scrape: s.newest, Work: w, computing: !w.Unseen}
}

// begin takes what a pick has of the prompt back: its first token has come. If tokens of the answer count, the prompt
// counts with them until the end.
func (l *load) begin(p Pick, now time.Time) Pick {
	if p.computing {
		l.tell(p)
		l.advanced.Store(now.UnixNano())
		p.computing = false
	}
	before := p.Work
	p.Work = p.Work.Begun()
	l.tokens.Add(int64(p.Tokens() - before.Tokens()))
	return p
}

// tell has the first token of a pick be awaited no more.
func (l *load) tell(p Pick) {
	l.computing.Add(-1)
	l.prompts.Add(-int64(p.Prompt))
}

// remove takes a pick back, and out of those of the two counts that include it.
func (l *load) remove(p Pick) {
	l.requests.Add(-1)
	l.tokens.Add(-int64(p.Tokens()))
	if p.computing {
		l.tell(p)
	}
	l.change(func(s scrapes) scrapes {
		if s.inForce > 0 && notBefore(p.Scrape, s.newest-s.behind) {
			s.inForce--
		}
		if s.begun > 0 && notBefore(p.Scrape, s.newest) {
			s.begun--
		}
		return s
	})
}

func (l *load) beginScrape() uint32 {
	return l.change(func(s scrapes) scrapes {
		s.newest = (s.newest + 1) & scrapeMask
		s.behind = min(s.behind+1, behindMax)
		s.begun = 0
		return s
	}).newest
}

func (l *load) sampleInForce(number uint32) {
	l.change(func(s scrapes) scrapes {
		if s.newest == number {
			s.behind, s.inForce = 0, s.begun
		}
		return s
	})
}

func (l *load) since() int    { return int(unpack(l.word.Load()).inForce) }
func (l *load) inflight() int { return int(l.requests.Load()) }

// counters reads the words one after the other, so that a pick made meanwhile may be in some of them only.
func (l *load) counters() Counters {
	return Counters{
		Inflight: l.inflight(), Tokens: int(l.tokens.Load()), Since: l.since(),
		Held: int(l.waits.Load()), HeldTokens: int(l.waiting.Load()),
	}
}

// backlog returns how many tokens of prompts are likely to be left at an endpoint that computes so many in a second:
// one prompt after the other, of which the first has no token yet, however long ago it was sent. Prompts whose first
// tokens are not seen are not among them.
func (l *load) backlog(rate int, now time.Time) int {
	c := l.unfinished()
	if c.Requests <= 0 {
		return 0
	}
	done := float64(rate) * max(now.Sub(c.Since).Seconds(), 0)
	return c.Tokens - int(min(done, float64(c.Tokens)/float64(c.Requests)))
}

func (l *load) unfinished() Computing {
	return Computing{
		Requests: int(l.computing.Load()), Tokens: int(l.prompts.Load()),
		Since: time.Unix(0, l.advanced.Load()),
	}
}
