package endpoints

import "sync/atomic"

// Counters are what an endpoint carries by our own account.
type Counters struct {
	Inflight int // requests that were sent there and have not ended
	Tokens   int // prompt tokens of those, estimated
	Since    int // of those requests, how many the sample in force does not know of
}

// load is the cell behind Counters. Many actors write it: single words, changed by compare-and-swap, in a cache line of
// their own. Whatever adds a Pick keeps it and removes it.
type load struct {
	_        [64]byte
	word     atomic.Uint64 // see scrapes
	requests atomic.Int64
	tokens   atomic.Int64
	_        [40]byte
}

// Pick is what one request added to the load of an endpoint.
type Pick struct {
	Scrape uint32 // the newest scrape that had begun
	Tokens int    // prompt tokens, estimated
}

// scrapes is the word: the number of the newest scrape that began, how far behind it the scrape is whose sample is in
// force, and the live picks since each of the two began. Numbers wrap after 16 million scrapes and compare by
// difference.
type scrapes struct {
	newest  uint32 // 24 bits
	behind  uint32 // 8 bits, stops at 255
	inForce uint32 // 16 bits: live picks since the scrape in force began
	begun   uint32 // 16 bits: live picks since the newest scrape began
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

// notBefore reports whether scrape a began with b or after it.
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

func (l *load) add(tokens int) Pick {
	l.requests.Add(1)
	l.tokens.Add(int64(tokens))
	s := l.change(func(s scrapes) scrapes {
		s.inForce = min(s.inForce+1, countMax)
		s.begun = min(s.begun+1, countMax)
		return s
	})
	return Pick{Scrape: s.newest, Tokens: tokens}
}

// remove takes a pick back, also out of the counts that still include it.
func (l *load) remove(p Pick) {
	l.requests.Add(-1)
	l.tokens.Add(-int64(p.Tokens))
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

func (l *load) since() int        { return int(unpack(l.word.Load()).inForce) }
func (l *load) inflight() int     { return int(l.requests.Load()) }
func (l *load) promptTokens() int { return int(l.tokens.Load()) }
