package schedule

import (
	"fmt"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// Run runs the profiles of one request over the endpoints of a snapshot.
func (p *Plan) Run(req *messages.Request, snap *endpoints.Snapshot, now time.Time, s *Scratch) Outcome {
	s.gather(req, snap, now, p)
	out := Outcome{Decision: s.begin(snap), PrefixBlocks: -1}
	switch {
	case len(snap.Endpoints) == 0:
		return out.fail(messages.NoEndpoints, "the pool has no endpoints")
	case len(s.all) == 0:
		return out.fail(messages.NoEndpoints, "no endpoint of the pool is in the subset")
	}
	s.names, s.results = s.names[:0], s.results[:0]
	for i := range p.Profiles {
		s.names = append(s.names, p.Profiles[i].Name)
	}
	var runs []messages.ProfileRun
	for len(s.results) <= len(p.Profiles) {
		i := p.Handler.Next(req, s.names, s.results)
		if i < 0 {
			break
		}
		if i >= len(p.Profiles) {
			return out.fail(messages.Internal, fmt.Sprintf("the profile handler named profile %d of %d", i, len(p.Profiles)))
		}
		run, reason, detail := s.profile(req, &p.Profiles[i], &out.Decision, now)
		runs = append(runs, run)
		out.Decision.Profiles = messages.TakeList(runs)
		if reason != messages.NoReason {
			return out.fail(reason, detail)
		}
		s.results = append(s.results, s.result(p.Profiles[i].Name, run))
	}
	out.rank(s, runs, p.Handler.Primary(s.results))
	return out
}

func (o Outcome) fail(why messages.Reason, detail string) Outcome {
	o.Reason, o.Detail, o.Ranked = why, detail, nil
	return o
}

func (o *Outcome) rank(s *Scratch, runs []messages.ProfileRun, primary int) {
	if primary < 0 || primary >= len(runs) {
		o.Reason, o.Detail = messages.Internal, "the profile handler named no profile that ran"
		return
	}
	if primary == len(runs)-1 { // the profile that ran last knows which endpoint to try
		run := &runs[primary]
		o.Probe = s.try(run, s.picker.most(run.Ranked.Len()))
		o.Decision.Probe = o.Probe
		o.Decision.Profiles = messages.TakeList(runs)
	}
	s.best = s.best[:0]
	for _, at := range runs[primary].Ranked.All() {
		s.best = append(s.best, s.sources[at])
	}
	o.Ranked = s.best
	if s.matched {
		o.PrefixBlocks = s.all[runs[primary].Ranked.At(0)].PrefixBlocks
	}
}

func (s *Scratch) begin(snap *endpoints.Snapshot) messages.Decision {
	ids := make([]messages.EndpointID, len(s.all))
	for i := range s.all {
		ids[i] = s.all[i].ID
	}
	return messages.Decision{PoolVersion: snap.Version, Pool: len(snap.Endpoints), Endpoints: messages.TakeList(ids), Outliers: s.statuses()}
}

func (s *Scratch) result(profile string, run messages.ProfileRun) Result {
	ids := make([]messages.EndpointID, 0, run.Ranked.Len())
	for _, at := range run.Ranked.All() {
		ids = append(ids, s.all[at].ID)
	}
	return Result{Profile: profile, Ranked: ids}
}

// profile is one run: filters, outliers, freshness, scorers, picker.
func (s *Scratch) profile(req *messages.Request, p *Profile, d *messages.Decision, now time.Time) (messages.ProfileRun, messages.Reason, string) {
	run := messages.ProfileRun{Profile: p.Name, Runner: -1}
	s.in = Input{Request: req, Profile: p.Name, Earlier: s.results, Rand: s.Rand}
	defer s.forget()
	s.reset()
	if blame := s.filter(p, &run); blame != "" {
		return run, messages.NoEndpoints, "filter " + blame + " left no endpoint"
	}
	s.picker = &p.Picker
	s.spare(now)
	stale := s.freshen(p)
	d.Stale = d.Stale || stale
	s.score(p, &run, stale)
	reason, detail := s.pick(p, &run)
	return run, reason, detail
}

// forget lets go of what plugins were shown: the request stands in its cycle, which stands before its stream.
func (s *Scratch) forget() { s.in = Input{} }

// reset makes everything a candidate again.
func (s *Scratch) reset() {
	s.cand, s.shared = s.all, true
	s.place = grow(s.place, len(s.all))
	for i := range s.place {
		s.place[i] = i
	}
}

// filter runs the chain. It names the filter that left nothing, if one did.
func (s *Scratch) filter(p *Profile, run *messages.ProfileRun) string {
	if len(p.Filters) == 0 {
		return ""
	}
	runs := make([]messages.FilterRun, 0, len(p.Filters))
	kept := make([]bool, len(p.Filters)*len(s.all))
	blame := ""
	for i := range p.Filters {
		f := &p.Filters[i]
		s.keep = grow(s.keep, len(s.cand))
		for j := range s.keep {
			s.keep[j] = true
		}
		s.in.Candidates = s.cand
		began := s.Clock.Nanos()
		f.Filter.Filter(&s.in, s.keep)
		s.Observer.PluginRan(f.Meter, time.Duration(s.Clock.Nanos()-began))
		s.compact()
		mine := kept[i*len(s.all) : (i+1)*len(s.all)]
		for _, at := range s.place {
			mine[at] = true
		}
		runs = append(runs, messages.FilterRun{Plugin: f.Name, Kept: messages.TakeList(mine)})
		if len(s.cand) == 0 {
			blame = f.Name
			break
		}
	}
	run.Filters = messages.TakeList(runs)
	return blame
}

// compact drops the candidates that keep does not.
func (s *Scratch) compact() {
	if s.shared {
		s.own = append(s.own[:0], s.all...)
		s.cand, s.shared = s.own, false
	}
	n := 0
	for i, keep := range s.keep {
		if keep {
			if n != i {
				s.cand[n], s.place[n] = s.cand[i], s.place[i]
			}
			n++
		}
	}
	s.cand, s.place = s.cand[:n], s.place[:n]
}

// score sums the weighted scores into totals. With stale samples in-flight load stands in for the scorers that read them.
func (s *Scratch) score(p *Profile, run *messages.ProfileRun, stale bool) {
	n := len(s.cand)
	s.totals = grow(s.totals, n)
	clear(s.totals)
	s.in.Candidates = s.cand
	slab := make([]float32, (len(p.Scorers)+1)*len(s.all))
	runs := make([]messages.ScorerRun, 0, len(p.Scorers))
	for i := range p.Scorers {
		sc := &p.Scorers[i]
		mine := slab[i*len(s.all) : (i+1)*len(s.all)]
		s.scores = mine[:n]
		if stale && sc.Reads&(ReadsSample|ReadsLoRA) != 0 {
			s.standIn()
		} else {
			s.ask(sc)
		}
		for j, score := range s.scores {
			s.totals[j] += sc.Weight * score
		}
		s.spread(mine)
		runs = append(runs, messages.ScorerRun{Plugin: sc.Name, Weight: sc.Weight, Scores: messages.TakeList(mine)})
	}
	s.scores = nil // the record has them
	totals := slab[len(p.Scorers)*len(s.all):]
	copy(totals, s.totals)
	s.spread(totals)
	run.Scorers, run.Totals = messages.TakeList(runs), messages.TakeList(totals)
}

// spread moves what belongs to candidates, which stands first, to their places among all; the others get -1. Places rise.
func (s *Scratch) spread(list []float32) {
	if s.shared { // every candidate stands at its place
		return
	}
	end := len(list)
	for j := len(s.cand) - 1; j >= 0; j-- {
		v := list[j]
		for end--; end > s.place[j]; end-- {
			list[end] = -1
		}
		list[end] = v
	}
	for i := range end {
		list[i] = -1
	}
}

// ask runs one scorer and puts right what is out of range.
func (s *Scratch) ask(sc *ScorerStep) {
	began := s.Clock.Nanos()
	sc.Scorer.Score(&s.in, s.scores)
	s.Observer.PluginRan(sc.Meter, time.Duration(s.Clock.Nanos()-began))
	for i, v := range s.scores {
		switch {
		case v >= 0 && v <= 1:
		case v != v:
			s.scores[i] = 0
			s.Observer.ScoreNaN(sc.Meter)
		default:
			s.scores[i] = min(max(v, 0), 1)
			s.Observer.ScoreClamped(sc.Meter)
		}
	}
}

func (s *Scratch) pick(p *Profile, run *messages.ProfileRun) (messages.Reason, string) {
	began := s.Clock.Nanos()
	s.ranked = p.Picker.Picker.Pick(&s.in, s.totals, s.ranked[:0])
	s.Observer.PluginRan(p.Picker.Meter, time.Duration(s.Clock.Nanos()-began))
	if fault := s.faulty(); fault != "" {
		return messages.Internal, fmt.Sprintf("picker %s %s", p.Picker.Name, fault)
	}
	ranked := make([]uint32, 0, len(s.ranked)+len(s.last))
	for _, c := range s.ranked {
		ranked = append(ranked, uint32(s.place[c]))
	}
	if room := p.Picker.most(len(ranked)) - len(ranked); room > 0 {
		ranked = append(ranked, s.last[:min(len(s.last), room)]...)
	}
	run.Ranked = messages.TakeList(ranked)
	run.Runner = s.runnerUp()
	return messages.NoReason, ""
}

func (s *Scratch) faulty() string {
	if len(s.ranked) == 0 {
		return "picked nothing"
	}
	s.keep = grow(s.keep, len(s.cand))
	clear(s.keep)
	for _, c := range s.ranked {
		if c < 0 || c >= len(s.cand) {
			return fmt.Sprintf("picked %d of %d", c, len(s.cand))
		}
		if s.keep[c] {
			return fmt.Sprintf("picked %d twice", c)
		}
		s.keep[c] = true
	}
	return ""
}

// runnerUp is the place of the best total apart from the pick, -1 if the pick was alone. Of equals it is the one that the picker
// put second.
func (s *Scratch) runnerUp() int {
	picked, best := s.ranked[0], -1
	if len(s.ranked) > 1 {
		best = s.ranked[1]
	}
	for i, t := range s.totals {
		if i != picked && (best < 0 || t > s.totals[best]) {
			best = i
		}
	}
	if best < 0 {
		return -1
	}
	return s.place[best]
}
