package schedule

import (
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// blemish is something that is held against an endpoint of this request.
type blemish struct {
	at int // place in all
	*endpoints.Health
}

// inspect notes what is held against the endpoint that was read last.
func (s *Scratch) inspect(e *endpoints.Endpoint) {
	if h := e.Health(); h != nil {
		s.blemishes = append(s.blemishes, blemish{len(s.all) - 1, h})
	}
}

// spare drops candidates that something is held against, as long as others are left: first those that are suspended. Who refuses at once,
// or hangs, is always idle: scores alone would send everybody there. It notes one of them that this request may try, and those that are
// not suspended: they come last.
func (s *Scratch) spare(now time.Time) {
	s.due, s.last = blemish{at: -1}, s.last[:0]
	if len(s.blemishes) == 0 {
		return
	}
	for _, b := range s.blemishes {
		if s.due.at >= 0 || !b.Due(now, s.in.Request.Shown) {
			continue
		}
		if _, here := s.candidate(b.at); here {
			s.due = b
		}
	}
	if !s.without(func(b blemish) bool { return b.Suspended }) { // that is no reason to serve nobody
		s.due.at = -1
		return
	}
	for _, b := range s.blemishes {
		if _, here := s.candidate(b.at); here {
			s.last = append(s.last, uint32(b.at))
		}
	}
	if !s.without(func(blemish) bool { return true }) {
		s.last = s.last[:0]
	}
}

// without drops candidates with such a blemish. False = no other is left, and all stay.
func (s *Scratch) without(such func(blemish) bool) bool {
	s.keep = grow(s.keep, len(s.cand))
	for i := range s.keep {
		s.keep[i] = true
	}
	left := len(s.cand)
	for _, b := range s.blemishes {
		if i, here := s.candidate(b.at); here && such(b) {
			s.keep[i] = false
			left--
		}
	}
	if left > 0 && left < len(s.cand) {
		s.compact()
	}
	return left > 0
}

// candidate finds a place of all among the candidates, whose places rise.
func (s *Scratch) candidate(at int) (int, bool) {
	if s.shared {
		return at, true
	}
	return slices.BinarySearch(s.place, at)
}

// try puts the endpoint first that is due, unless another request tries it. The others follow, so that the proxy has somewhere to go.
func (s *Scratch) try(run *messages.ProfileRun, most int) bool {
	if s.due.at < 0 || !s.due.Probe() {
		return false
	}
	first := uint32(s.due.at)
	if best := run.Ranked.At(0); best != first {
		run.Runner = int(best)
	}
	ranked := make([]uint32, 0, run.Ranked.Len()+1)
	ranked = append(ranked, first)
	for _, at := range run.Ranked.All() {
		if at != first {
			ranked = append(ranked, at)
		}
	}
	run.Ranked = messages.TakeList(ranked[:min(len(ranked), most)])
	return true
}

// suspicions are the blemishes as a record has them.
func (s *Scratch) suspicions() messages.List[messages.Suspicion] {
	if len(s.blemishes) == 0 {
		return messages.List[messages.Suspicion]{}
	}
	out := make([]messages.Suspicion, 0, len(s.blemishes))
	for _, b := range s.blemishes {
		out = append(out, messages.Suspicion{At: b.at, Suspended: b.Suspended, Why: b.Why})
	}
	return messages.TakeList(out)
}
