package schedule

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// lessPreferred is the factor of the total of an endpoint that something is held against. Who refuses at once is always idle: at one half it
// would have more picks than the other of two.
const lessPreferred = 0.25

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

// spare drops suspended candidates if another is left, and notes one candidate with a blemish that this request may try. Of the others it drops those of
// which one request waits in vain, as long as nothing is held against another: a server that hangs looks idle.
func (s *Scratch) spare(now time.Time) {
	s.due = blemish{at: -1}
	if len(s.blemishes) == 0 {
		return
	}
	for _, b := range s.blemishes {
		if _, here := s.candidate(b.at); here && s.due.at < 0 && b.Due(now, s.in.Request.Shown) {
			s.due = b
		}
	}
	if !s.without(func(b blemish) bool { return b.Suspended }) { // that is no reason to serve nobody
		s.due.at = -1
		return
	}
	s.without(func(b blemish) bool { return b.Why == messages.NoFirstToken })
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

// candidate finds a place of all among the candidates.
func (s *Scratch) candidate(at int) (int, bool) {
	for i, p := range s.place {
		if p == at {
			return i, true
		}
	}
	return 0, false
}

// disfavour lowers the totals of candidates that something is held against.
func (s *Scratch) disfavour() {
	for _, b := range s.blemishes {
		i, here := s.candidate(b.at)
		if here && !b.Suspended {
			s.totals[i] *= lessPreferred
		}
	}
}

// try puts the endpoint first that is due, unless another request tries it. The others follow, so that the proxy has somewhere to go.
func (s *Scratch) try(run *messages.ProfileRun, most int) bool {
	if s.due.at < 0 || !s.due.Probe() {
		return false
	}
	first := uint32(s.due.at)
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
