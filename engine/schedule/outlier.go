package schedule

import (
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/messages"
)

// out is an endpoint of this request that is not healthy.
type out struct {
	at int // place in all
	*outlier.Status
}

// inspect notes the status of the endpoint that was read last, if it is an outlier.
func (s *Scratch) inspect(e *endpoints.Endpoint) {
	if status := e.Outlier(); status != nil {
		s.outliers = append(s.outliers, out{len(s.all) - 1, status})
	}
}

// spare drops candidates that are ejected or degraded, as long as others are left: first those that are ejected. An endpoint that
// refuses at once, or hangs, is always idle: scores alone would send all requests there. It notes one of them that this request may
// probe, and those that are degraded: they come last.
func (s *Scratch) spare(now time.Time) {
	s.due, s.last = out{at: -1}, s.last[:0]
	if len(s.outliers) == 0 {
		return
	}
	for _, o := range s.outliers {
		if s.due.at >= 0 || !o.Due(now, s.in.Request.Shown) {
			continue
		}
		if _, here := s.candidate(o.at); here {
			s.due = o
		}
	}
	if !s.without(func(o out) bool { return o.Ejected }) { // a failing endpoint is better than none
		s.due.at = -1
		return
	}
	for _, o := range s.outliers {
		if _, here := s.candidate(o.at); here {
			s.last = append(s.last, uint32(o.at))
		}
	}
	if !s.without(func(out) bool { return true }) {
		s.last = s.last[:0]
	}
}

// without drops candidates that are such outliers. False: no other is left, and all stay.
func (s *Scratch) without(such func(out) bool) bool {
	s.keep = grow(s.keep, len(s.cand))
	for i := range s.keep {
		s.keep[i] = true
	}
	left := len(s.cand)
	for _, o := range s.outliers {
		if i, here := s.candidate(o.at); here && such(o) {
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

// try puts the endpoint first that is due, unless another request is its probe. The others follow, so that the proxy has somewhere
// to go.
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

// statuses returns the outliers as a record has them.
func (s *Scratch) statuses() messages.List[messages.Outlier] {
	if len(s.outliers) == 0 {
		return messages.List[messages.Outlier]{}
	}
	list := make([]messages.Outlier, 0, len(s.outliers))
	for _, o := range s.outliers {
		list = append(list, messages.Outlier{At: o.at, Ejected: o.Ejected, Cause: o.Cause})
	}
	return messages.TakeList(list)
}
