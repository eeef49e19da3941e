package endpoints

import "sync/atomic"

// Load is what one endpoint carries by our own account. It is the one value that many actors write: single words, changed
// by compare-and-swap, in a cache line of their own. Whoever adds keeps the Pick and gives it back.
type Load struct {
	_        [64]byte
	word     atomic.Uint64 // see pack
	requests atomic.Int64
	tokens   atomic.Int64
	_        [40]byte
}

// Pick is what one request added to a Load.
type Pick struct {
	Scrape uint32 // the newest scrape that had begun
	Tokens int    // prompt tokens, estimated
}

// since is the word: the number of the newest scrape that began, how far behind it the scrape is whose sample is in force,
// and the live picks since each of the two began. Numbers wrap after 16 million scrapes and compare by difference.
type since struct {
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

func (s since) pack() uint64 {
	return uint64(s.newest)<<40 | uint64(s.behind)<<32 | uint64(s.inForce)<<16 | uint64(s.begun)
}

func unpack(w uint64) since {
	return since{uint32(w >> 40), uint32(w>>32) & behindMax, uint32(w>>16) & countMax, uint32(w) & countMax}
}

// notBefore says that scrape a did not begin before b.
func notBefore(a, b uint32) bool { return (a-b)&scrapeMask < 1<<23 }

func (l *Load) change(f func(since) since) since {
	for {
		old := l.word.Load()
		s := f(unpack(old))
		if l.word.CompareAndSwap(old, s.pack()) {
			return s
		}
	}
}

// Add counts a pick.
func (l *Load) Add(tokens int) Pick {
	l.requests.Add(1)
	l.tokens.Add(int64(tokens))
	s := l.change(func(s since) since {
		s.inForce = min(s.inForce+1, countMax)
		s.begun = min(s.begun+1, countMax)
		return s
	})
	return Pick{Scrape: s.newest, Tokens: tokens}
}

// Remove takes a pick back, also out of the counts that still include it.
func (l *Load) Remove(p Pick) {
	l.requests.Add(-1)
	l.tokens.Add(-int64(p.Tokens))
	l.change(func(s since) since {
		if s.inForce > 0 && notBefore(p.Scrape, s.newest-s.behind) {
			s.inForce--
		}
		if s.begun > 0 && notBefore(p.Scrape, s.newest) {
			s.begun--
		}
		return s
	})
}

// BeginScrape says that a scrape begins and gives its number.
func (l *Load) BeginScrape() uint32 {
	return l.change(func(s since) since {
		s.newest = (s.newest + 1) & scrapeMask
		s.behind = min(s.behind+1, behindMax)
		s.begun = 0
		return s
	}).newest
}

// SampleInForce says that the sample of a scrape is now what readers see. Picks from before the scrape are in the sample.
func (l *Load) SampleInForce(number uint32) {
	l.change(func(s since) since {
		if s.newest == number {
			s.behind, s.inForce = 0, s.begun
		}
		return s
	})
}

// Since is how many live picks the sample in force does not know of.
func (l *Load) Since() int { return int(unpack(l.word.Load()).inForce) }

// Inflight is how many requests were sent and have not ended.
func (l *Load) Inflight() int { return int(l.requests.Load()) }

// Tokens is how many prompt tokens those have, estimated.
func (l *Load) Tokens() int { return int(l.tokens.Load()) }
