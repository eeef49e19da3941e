package records

import (
	"slices"
	"unsafe"

	"github.com/signalbox-epp/signalbox/messages"
)

// shape is what the decisions of one configuration have in common: the names and weights of what ran. It never changes.
type shape struct {
	runs    []runShape
	bytes   int
	records int // that have this shape; a shape without one is dropped
}

// runShape is the shape of one profile run.
type runShape struct {
	profile string
	filters []string
	scorers []messages.ScorerRun // without scores
	reads   messages.List[string]
}

// shapes finds the shape of a decision among those that were last used. A decision whose shape is not one of them gets
// a new one, even if an old record has the same: that costs memory, which is counted, and no long search.
type shapes struct {
	recent [8]*shape // nil = free
	turn   int       // index of the recent shape that the next new one replaces
	bytes  int       // of all shapes that records have
}

// take returns the shape of a decision, for one record more.
func (s *shapes) take(d *messages.Decision) *shape {
	for _, each := range s.recent {
		if each != nil && each.fits(d) {
			each.records++
			return each
		}
	}
	made := newShape(d)
	made.records = 1
	s.bytes += made.bytes
	s.recent[s.turn] = made
	s.turn = (s.turn + 1) % len(s.recent)
	return made
}

// giveBack takes note that a record has gone.
func (s *shapes) giveBack(old *shape) {
	if old.records--; old.records > 0 {
		return
	}
	s.bytes -= old.bytes
	if i := slices.Index(s.recent[:], old); i >= 0 {
		s.recent[i] = nil
	}
}

func newShape(d *messages.Decision) *shape {
	s := &shape{runs: make([]runShape, 0, d.Profiles.Len())}
	s.bytes = int(unsafe.Sizeof(*s)) + d.Profiles.Len()*int(unsafe.Sizeof(runShape{}))
	for _, p := range d.Profiles.All() {
		run := runShape{
			profile: p.Profile, filters: make([]string, 0, p.Filters.Len()),
			scorers: make([]messages.ScorerRun, 0, p.Scorers.Len()), reads: p.Reads,
		}
		s.bytes += len(p.Profile) + p.Reads.Len()*int(unsafe.Sizeof(""))
		for _, f := range p.Filters.All() {
			run.filters = append(run.filters, f.Plugin)
			s.bytes += int(unsafe.Sizeof("")) + len(f.Plugin)
		}
		for _, sc := range p.Scorers.All() {
			run.scorers = append(run.scorers, messages.ScorerRun{Plugin: sc.Plugin, Weight: sc.Weight})
			s.bytes += int(unsafe.Sizeof(sc)) + len(sc.Plugin)
		}
		for _, name := range p.Reads.All() {
			s.bytes += len(name)
		}
		s.runs = append(s.runs, run)
	}
	return s
}

func (s *shape) fits(d *messages.Decision) bool {
	if len(s.runs) != d.Profiles.Len() {
		return false
	}
	for i, p := range d.Profiles.All() {
		if !s.runs[i].fits(&p) {
			return false
		}
	}
	return true
}

func (s *runShape) fits(p *messages.ProfileRun) bool {
	if s.profile != p.Profile || len(s.filters) != p.Filters.Len() || len(s.scorers) != p.Scorers.Len() ||
		s.reads.Len() != p.Reads.Len() {
		return false
	}
	for i := range s.filters {
		if s.filters[i] != p.Filters.At(i).Plugin {
			return false
		}
	}
	for i := range s.scorers {
		if sc := p.Scorers.At(i); s.scorers[i].Plugin != sc.Plugin || s.scorers[i].Weight != sc.Weight {
			return false
		}
	}
	for i := range s.reads.Len() {
		if s.reads.At(i) != p.Reads.At(i) {
			return false
		}
	}
	return true
}
