package schedule

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// newShadowRand returns the source of the random numbers of shadow runs, so that picks draw the same ones with them and
// without.
func newShadowRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// Shadow runs the shadow profiles of a plan for the request of the last Run, over what that saw, and adds their runs to
// its decision. They change nothing: not the pick, and not the random numbers of the next one. A plugin of theirs that
// panics fails its own run alone.
func (s *Scheduler) Shadow(p *Plan, req *messages.Request, d *messages.Decision, now time.Time) {
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
	s.view.show(&rec, of, s.run.values, now)
	return rec, why
}
