package schedule

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// newShadowRand returns the source of the random numbers of shadow runs, so that picks draw the same ones with them and
// without.
func newShadowRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// Shadow runs the shadow profiles of a plan for the request of the last Run, over what that saw, and adds their runs to
// its decision. They change nothing: not the pick, and not the random numbers of the next one. A plugin of theirs that
// panics fails its own run alone.
func (s *Scheduler) Shadow(p *Plan, req *messages.Request, d *messages.Decision, now time.Time) {
	if req.Forced {
		return // there is nothing to compare: no plugin has picked
	}
	s.run.observer, s.run.tools = p.observer, &s.shadows
	runs := d.Profiles.Append(make([]messages.ProfileRun, 0, len(p.profiles)))
	for i := len(p.names); i < len(p.profiles); i++ {
		of := &p.profiles[i]
		rec, why := s.shadow(of, req, now)
		if why == messages.NoReason {
			p.observer.ShadowPicked(of.Name, int(rec.Ranked.At(0)) == s.final.Destinations[0].At)
		} else {
			p.observer.RunFailed(of.Name, why)
		}
		runs = append(runs, rec)
	}
	d.Profiles = messages.TakeList(runs)
	s.run.observer, s.run.tools = nil, &s.tools
}

// shadow runs one shadow profile, also if it panics.
func (s *Scheduler) shadow(
	of *Profile, req *messages.Request, now time.Time,
) (rec messages.ProfileRun, why messages.Reason) {
	defer func() {
		if r := recover(); r != nil {
			rec, why = messages.ProfileRun{Profile: of.Name, Runner: -1}, messages.Internal
			rec.Failed = fmt.Sprintf("%v: panic: %v", why, r)
		}
		rec.Shadow = true
	}()
	s.run.in.earlier = s.course.results
	mem, why, detail := s.run.profile(req, of, false, now)
	rec = mem.run[0]
	if why != messages.NoReason {
		rec.Failed = why.String() + ": " + detail
		return rec, why
	}
	s.view.show(&rec, of, req, s.run.values, now)
	return rec, why
}

// Reach returns a name for the endpoints that would do for a request if they all had room: those that the filters of
// each profile keep. Equal sets have equal names; 0 = there is no endpoint. It picks none. If the request would be
// refused with room everywhere, it returns why. before is as in Run.
func (s *Scheduler) Reach(
	p *Plan, req *messages.Request, before *Intake, snap *endpoints.Snapshot, now time.Time,
) (name uint64, refused Refusal) {
	if p.keepsAll(req) {
		return 1, Refusal{}
	}
	s.run.observer, s.run.tools, s.run.full = p.observer, &s.shadows, false
	defer func() { s.run.tools = &s.tools }()
	s.course.request, s.course.values = req, before.slots(p.Layout().Privates())
	defer s.forget()
	s.view.gather(p, req, snap, now)
	s.view.match(req, snap.Slots(), s.tools.Matcher, p.prefixes)
	d := s.begin(p, snap)
	if len(s.view.all) == 0 {
		return 0, Refusal{}
	}
	if refused = s.arrive(p, before, now); refused.Reason != messages.NoReason {
		return 0, refused
	}
	runs, why, detail := s.profiles(p, &d, now)
	if why != messages.NoReason {
		return 0, Refusal{Reason: why, Detail: detail}
	}
	h := xxhash.New()
	for i := range runs {
		_, _ = h.WriteString(runs[i].Profile) // never fails
		if n := runs[i].Filters.Len(); n > 0 {
			s.hash(h, runs[i].Filters.At(n-1))
		}
	}
	return h.Sum64(), Refusal{}
}

// keepsAll reports whether no plugin keeps a request from an endpoint, or refuses it, with room everywhere.
func (p *Plan) keepsAll(req *messages.Request) bool {
	of := &p.points
	return len(p.names) == 1 && len(p.profiles[0].Filters) == 0 &&
		len(of.headers)+len(of.screeners)+len(of.admitters) == 0 && (of.detector.plugin == nil || req.Priority >= 0)
}

// hash adds what a filter kept to a hash.
func (s *Scheduler) hash(h *xxhash.Digest, run messages.FilterRun) {
	var word [8]byte
	for at, kept := range run.Kept.All() {
		if kept {
			id := s.view.all[at].id
			binary.LittleEndian.PutUint32(word[:], id.Slot)
			binary.LittleEndian.PutUint32(word[4:], id.Generation)
			_, _ = h.Write(word[:])
		}
	}
}
