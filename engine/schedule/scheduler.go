package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// Tools holds what a loop supplies to its scheduler.
type Tools struct {
	Clock   Clock
	Matcher Matcher // nil = no prefix index
	Rand    *rand.Rand
}

// Scheduler picks for the requests of one loop. It owns buffers, which grow to the largest pool seen. From one request
// to the next it keeps what was read of endpoints, and nothing of the request.
type Scheduler struct {
	tools Tools
	view  view
	run   profileRun

	names   []string              // of the plan's profiles
	results []Result              // of the profiles that have run, in their order
	probes  []probe               // probes[i] belongs to results[i]
	ran     []bool                // ran[i] = profile i has run
	best    []*endpoints.Endpoint // the buffer of Outcome.Ranked
}

// NewScheduler returns a scheduler for one loop.
func NewScheduler(tools Tools) *Scheduler {
	s := &Scheduler{tools: tools}
	s.run.tools, s.run.view = &s.tools, &s.view
	return s
}

// Outcome is the result of scheduling a request.
type Outcome struct {
	// Ranked is the pick of the primary profile run, best first; empty exactly if Reason is set. It is valid until the
	// next Run.
	Ranked   []*endpoints.Endpoint
	Reason   messages.Reason
	Detail   string // as in messages.PickFailed
	Decision messages.Decision
	Took     time.Duration

	Probe        bool // this request is the probe of Ranked[0]
	PrefixBlocks int  // lead blocks of the request that Ranked[0] holds; -1 = no index was asked
}

// Run runs the profiles of a plan for one request over the endpoints of a snapshot.
func (s *Scheduler) Run(p *Plan, req *messages.Request, snap *endpoints.Snapshot, now time.Time) Outcome {
	began := s.tools.Clock.Nanos()
	s.run.observer = p.observer
	out := s.schedule(p, req, snap, now)
	s.run.observer = nil // an idle loop must not keep the observer of a plan that has gone
	out.Took = time.Duration(s.tools.Clock.Nanos() - began)
	return out
}

func (s *Scheduler) schedule(p *Plan, req *messages.Request, snap *endpoints.Snapshot, now time.Time) Outcome {
	s.view.gather(p, req, snap, now)
	s.view.match(req, snap.Slots(), s.tools.Matcher)
	out := Outcome{Decision: s.begin(p, snap), PrefixBlocks: -1}
	switch {
	case len(snap.Endpoints) == 0:
		return out.fail(messages.NoEndpoints, "the pool has no endpoints")
	case len(s.view.all) == 0:
		return out.fail(messages.NoEndpoints, "no endpoint of the pool is in the subset")
	}
	var runs []messages.ProfileRun
	for {
		i := p.handler.Next(req, s.names, s.results)
		if i < 0 {
			break
		}
		if i >= len(p.profiles) {
			return out.fail(messages.Internal, fmt.Sprintf("the profile handler named profile %d of %d", i,
				len(p.profiles)))
		}
		if s.ran[i] {
			return out.fail(messages.Internal, fmt.Sprintf("the profile handler named profile %s twice",
				p.profiles[i].Name))
		}
		s.ran[i] = true
		s.run.in.Earlier = s.results
		rec, reason, detail := s.run.profile(req, &p.profiles[i], now)
		runs = append(runs, rec)
		out.Decision.Profiles = messages.TakeList(runs)
		out.Decision.Stale = out.Decision.Stale || s.run.stale
		if reason != messages.NoReason {
			return out.fail(reason, detail)
		}
		s.results = append(s.results, s.result(p.profiles[i].Name, &rec))
		s.probes = append(s.probes, probe{&p.profiles[i], s.run.due, p.profiles[i].Picker.most(rec.Ranked.Len())})
		s.view.show(&runs[len(runs)-1], &p.profiles[i], s.run.values, now)
	}
	out.rank(s, runs, p.handler.Primary(s.results), now)
	return out
}

// begin clears the buffers for a request, and returns its decision so far: the endpoints, and no profile run.
func (s *Scheduler) begin(p *Plan, snap *endpoints.Snapshot) messages.Decision {
	s.names, s.results, s.probes = s.names[:0], s.results[:0], s.probes[:0]
	for i := range p.profiles {
		s.names = append(s.names, p.profiles[i].Name)
	}
	s.ran = grow(s.ran, len(p.profiles))
	clear(s.ran)
	ids := make([]messages.EndpointID, len(s.view.all))
	for i := range s.view.all {
		ids[i] = s.view.all[i].id
	}
	return messages.Decision{
		PoolVersion: snap.Version, Pool: len(snap.Endpoints), Endpoints: messages.TakeList(ids),
		Outliers: s.view.statuses(),
		Primary:  -1,
	}
}

// result returns a profile run as handlers and later profiles see it.
func (s *Scheduler) result(profile string, rec *messages.ProfileRun) Result {
	ids := make([]messages.EndpointID, 0, rec.Ranked.Len())
	for _, at := range rec.Ranked.All() {
		ids = append(ids, s.view.all[at].id)
	}
	return Result{Profile: profile, Ranked: ids}
}

func (o Outcome) fail(why messages.Reason, detail string) Outcome {
	o.Reason, o.Detail, o.Ranked = why, detail, nil
	return o
}

// rank sets the outcome to the pick of the primary profile run. It may make the request the probe of an outlier, which
// then comes first.
func (o *Outcome) rank(s *Scheduler, runs []messages.ProfileRun, primary int, now time.Time) {
	if primary < 0 || primary >= len(runs) {
		o.Reason, o.Detail = messages.Internal, "the profile handler named no profile that ran"
		return
	}
	rec := &runs[primary]
	if o.Probe = s.probes[primary].try(rec); o.Probe {
		of := s.probes[primary].of
		s.view.show(rec, of, make([]float32, 2*len(of.read)), now)
	}
	o.Decision.Probe, o.Decision.Primary = o.Probe, primary
	o.Decision.Profiles = messages.TakeList(runs)
	s.best = slices.Grow(s.best[:0], rec.Ranked.Len())
	for _, at := range rec.Ranked.All() {
		s.best = append(s.best, s.view.sources[at])
	}
	o.Ranked = s.best
	if s.view.matched {
		o.PrefixBlocks = s.view.matches[s.view.all[rec.Ranked.At(0)].id.Slot]
	}
}
