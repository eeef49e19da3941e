package schedule

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/memory"
	"github.com/signalbox-epp/signalbox/messages"
)

// Tools holds what a loop supplies to its scheduler.
type Tools struct {
	Clock   Clock
	Matcher Matcher        // nil = no prefix index
	Memory  *memory.Tables // nil = empty ones
	Rand    *rand.Rand

	Ceilings Ceilings // nil = all are 1
}

// Scheduler picks for the requests of one loop. It owns buffers, which grow to the largest pool seen. From one request
// to the next it keeps what was read of endpoints, and nothing of the request.
type Scheduler struct {
	tools   Tools
	shadows Tools // of shadow runs
	view    view
	run     profileRun

	course  Course
	final   Final
	headers Headers               // that plugins set before the profiles
	probes  []probe               // probes[i] belongs to course.results[i]
	ran     []bool                // ran[i] = profile i has run
	best    []*endpoints.Endpoint // the buffers of Outcome, like the two below
	sent    []messages.Address
	stages  []StageEndpoint
}

// NewScheduler returns a scheduler for one loop.
func NewScheduler(tools Tools) *Scheduler {
	s := &Scheduler{tools: tools}
	s.run.tools, s.run.view = &s.tools, &s.view
	s.course.rand, s.course.view = tools.Rand, &s.view
	s.shadows = tools
	s.shadows.Rand = newShadowRand()
	return s
}

// Outcome is the result of scheduling a request. Its slices are valid until the next Run.
type Outcome struct {
	Ranked   []*endpoints.Endpoint // the destinations, best first; empty exactly if Reason is set
	Sent     []messages.Address    // Sent[i] = where the proxy sends the request for Ranked[i]
	Stages   []StageEndpoint       // what works for the request beside Ranked[0]
	Reason   messages.Reason
	Detail   string // as in messages.PickFailed
	Split    string // as in Final
	Decision messages.Decision
	Took     time.Duration

	Ceiling    float64 // how full an endpoint may be for the request; 1 without a gate
	Saturation float64 // how full the gate found the endpoints; 0 = the plan does not ask

	Full         bool // it has a Reason only because no endpoint that the request may use has room
	Probe        bool // this request is the probe of Ranked[0]
	PrefixBlocks int  // lead blocks of the request that Ranked[0] is taken to hold; -1 = no index was asked

	RetryAfter time.Duration                                 // as in messages.PickFailed
	Responses  messages.List[messages.List[messages.Header]] // as in messages.PickMade; Prepare sets it
	Kept       messages.List[messages.Kept]                  // what plugins keep of the pick; Prepare sets it
	Values     []any                                         // of the private slots of plugins, for Prepare and End
}

// StageEndpoint is the endpoint of a Stage.
type StageEndpoint struct {
	*endpoints.Endpoint
	Prompt bool // as in Stage
	Probe  bool // this request is the probe of the endpoint
}

// Run runs the profiles of a plan for one request over the endpoints of a snapshot. before is what plugins have said of
// the request so far; nil = nothing, and nothing is kept.
func (s *Scheduler) Run(
	p *Plan, req *messages.Request, before *Intake, snap *endpoints.Snapshot, now time.Time,
) Outcome {
	began := s.tools.Clock.Nanos()
	s.run.observer = p.observer
	if p.Gated() {
		s.run.gate = &p.points.gate
		if s.tools.Ceilings != nil {
			s.run.ceiling = s.tools.Ceilings.Of(req.Priority) * cmp.Or(req.Share, 1)
		}
	}
	out := Outcome{Ceiling: cmp.Or(s.run.ceiling, 1), Values: before.slots(p.Layout().Privates())}
	s.course.request, s.course.values = req, out.Values
	defer s.forget()
	s.schedule(&out, p, before, snap, now)
	out.Took = time.Duration(s.tools.Clock.Nanos() - began)
	return out
}

func (s *Scheduler) schedule(
	out *Outcome, p *Plan, before *Intake, snap *endpoints.Snapshot, now time.Time,
) {
	req := s.course.request
	s.view.gather(p, req, snap, now)
	s.view.match(req, snap.Slots(), s.tools.Matcher, p.prefixes)
	out.Decision, out.PrefixBlocks = s.begin(p, snap), -1
	switch {
	case len(snap.Endpoints) == 0:
		out.Full = p.Gated()
		out.fail(messages.NoEndpoints, "the pool has no endpoints")
		return
	case len(s.view.all) == 0:
		detail := "no endpoint of the pool is in the subset"
		if req.Forced {
			detail = fmt.Sprintf("the pool has no endpoint %s", req.Subset.Addresses.At(0))
		}
		out.fail(messages.NoEndpoints, detail)
		return
	}
	if refused := s.arrive(p, before, now); refused.Reason != messages.NoReason {
		out.refuse(refused)
		return
	}
	s.saturation(out, p, now)
	runs, why, detail := s.profiles(p, &out.Decision, now)
	if why != messages.NoReason {
		out.Full = len(runs) > 0 && s.run.full
		out.fail(why, detail)
		return
	}
	s.finish(out, p, runs, now)
}

// saturation notes how full the gate finds the endpoints, if the plan asks for that.
func (s *Scheduler) saturation(out *Outcome, p *Plan, now time.Time) {
	if !p.TellsSaturation() {
		return
	}
	s.run.in = Input{request: s.course.request, rand: s.tools.Rand, run: &s.run, values: s.course.values, now: now}
	defer s.run.forget()
	s.run.visit(&s.run.gate.Step, 0, func() Refusal {
		out.Saturation = s.run.gate.plugin.Saturation(&s.run.in)
		return Refusal{}
	})
}

// profiles runs the profiles that the handler names, and notes them in the decision. It returns why the request is
// refused, if it is.
func (s *Scheduler) profiles(
	p *Plan, d *messages.Decision, now time.Time,
) (runs []messages.ProfileRun, why messages.Reason, detail string) {
	for {
		next := p.handler.Next(&s.course)
		switch i := next.Profile; {
		case next.Refused.Reason != messages.NoReason:
			return runs, next.Refused.Reason, next.Refused.Detail
		case i < 0:
			return runs, messages.NoReason, ""
		case i >= len(s.course.profiles):
			return runs, messages.Internal, fmt.Sprintf("the profile handler named profile %d of %d", i,
				len(s.course.profiles))
		case s.ran[i]:
			return runs, messages.Internal, fmt.Sprintf("the profile handler named profile %s twice",
				s.course.profiles[i])
		}
		s.ran[next.Profile] = true
		of := &p.profiles[next.Profile]
		if s.run.in.earlier, s.run.in.values = s.course.results, s.course.values; next.Alone {
			s.run.in.earlier = nil
		}
		mem, why, detail := s.run.profile(s.course.request, of, next.Optional, now)
		rec := &mem.run[0]
		if why == messages.NoReason {
			s.view.show(rec, of, s.course.request, s.run.values, now)
		} else {
			rec.Failed = why.String() + ": " + detail
		}
		if runs == nil {
			runs = mem.run[:]
		} else {
			runs = append(runs, *rec)
		}
		d.Profiles, d.Stale = messages.TakeList(runs), d.Stale || s.run.stale != 0
		s.course.results = append(s.course.results, Result{
			Index: next.Profile, Profile: of.Name, Optional: next.Optional, Reason: why, Detail: detail,
			Ranked: rec.Ranked, Totals: rec.Totals,
		})
		s.probes = append(s.probes, probe{of, s.run.due, of.Picker.most(rec.Ranked.Len())})
		if why == messages.NoReason {
			continue
		}
		if !next.Optional || s.run.full { // an optional run is not left out because it has to wait
			return runs, why, detail
		}
		p.observer.RunFailed(of.Name, why)
	}
}

// begin clears the buffers for a request, and returns its decision so far: the endpoints, and no profile run.
func (s *Scheduler) begin(p *Plan, snap *endpoints.Snapshot) messages.Decision {
	s.course.profiles, s.course.results, s.probes = p.names, s.course.results[:0], s.probes[:0]
	s.ran = grow(s.ran, len(p.names))
	clear(s.ran)
	return messages.Decision{
		PoolVersion: snap.Version, Pool: len(snap.Endpoints), Endpoints: s.view.ids,
		Outliers: s.view.statuses(),
		Primary:  -1,
	}
}

// Lacking returns the endpoints that would have done for the last request if they had room. It is valid after a Run
// whose outcome is Full, until the next one.
func (s *Scheduler) Lacking() messages.List[messages.EndpointID] {
	if len(s.view.all) == 0 {
		return messages.List[messages.EndpointID]{}
	}
	ids := make([]messages.EndpointID, len(s.run.place))
	for i, at := range s.run.place {
		ids[i] = s.view.all[at].id
	}
	return messages.TakeList(ids)
}

// forget drops the request, and the observer of its plan, which an idle loop must not keep.
func (s *Scheduler) forget() {
	s.course.request, s.course.values, s.run.observer, s.run.gate, s.run.ceiling = nil, nil, nil, nil, 0
}

func (o *Outcome) fail(why messages.Reason, detail string) { o.Reason, o.Detail = why, detail }

func (o *Outcome) refuse(r Refusal) {
	o.Reason, o.Detail, o.RetryAfter = r.Reason, r.Detail, r.RetryAfter
}

// finish sets the outcome to the pick of the primary run, as the handler has it. It may make the request the probe of
// an outlier, which then comes first.
func (s *Scheduler) finish(out *Outcome, p *Plan, runs []messages.ProfileRun, now time.Time) {
	primary := p.handler.Primary(&s.course)
	if primary < 0 || primary >= len(runs) {
		out.fail(messages.Internal, "the profile handler named no profile that ran")
		return
	}
	result := &s.course.results[primary]
	if result.Reason != messages.NoReason {
		out.fail(result.Reason, result.Detail)
		return
	}
	s.tryStages(primary)
	probe, ranked := s.probes[primary], result.Ranked
	if probe.open() {
		result.Ranked = probe.front(ranked)
		if fault := s.settle(p, primary, true); fault != "" {
			out.fail(messages.Internal, fault)
			return
		}
		out.Probe = probe.due.Probe() // only now, for a handler that panics would never give it back
	}
	if !out.Probe {
		result.Ranked = ranked
		if fault := s.settle(p, primary, false); fault != "" {
			out.fail(messages.Internal, fault)
			return
		}
	}
	out.Decision.Probe, out.Decision.Primary = out.Probe, primary
	s.note(&runs[primary], now)
	s.noteStages(runs, now)
	out.Decision.Profiles = messages.TakeList(runs)
	s.deliver(out)
}

// settle sets final to what the handler makes of the primary run. It returns what is wrong with that; "" = nothing.
func (s *Scheduler) settle(p *Plan, primary int, probe bool) string {
	s.final = Final{Primary: primary, Probe: probe, Destinations: s.final.Destinations[:0], Stages: s.final.Stages[:0]}
	ranked := s.course.results[primary].Ranked
	for i := range ranked.Len() {
		s.final.Destinations = append(s.final.Destinations, Destination{At: int(ranked.At(i))})
	}
	if p.finisher == nil {
		return ""
	}
	p.finisher.Finish(&s.course, &s.final)
	if probe {
		s.final.keepFirst(int(ranked.At(0)))
	}
	if fault := s.final.fault(&s.course); fault != "" {
		return "the profile handler " + fault
	}
	return ""
}

// note notes in the record of the primary run what became of its pick.
func (s *Scheduler) note(run *messages.ProfileRun, now time.Time) {
	same := len(s.final.Destinations) == run.Ranked.Len()
	for i, d := range s.final.Destinations {
		same = same && int(run.Ranked.At(i)) == d.At
	}
	if same {
		return
	}
	ranked := make([]uint32, 0, len(s.final.Destinations))
	for _, d := range s.final.Destinations {
		ranked = append(ranked, uint32(d.At))
	}
	s.rerank(s.final.Primary, run, messages.TakeList(ranked), now)
}

// rerank sets the pick of a run in its record. The runner-up is what would have been picked.
func (s *Scheduler) rerank(i int, run *messages.ProfileRun, ranked messages.List[uint32], now time.Time) {
	if best := run.Ranked.At(0); best != ranked.At(0) {
		run.Runner = int(best)
	}
	run.Ranked = ranked
	of := s.probes[i].of
	s.view.show(run, of, s.course.request, make([]float32, 2*of.reads.Len()), now)
}

// Scores returns what the run that serves gave its candidates in the last Run, which did not refuse the request; d is
// its decision. They are totals by the endpoints' own addresses. Endpoints that come last because they are outliers
// have none.
func (s *Scheduler) Scores(d *messages.Decision) messages.List[messages.EndpointScore] {
	totals := d.Profiles.At(d.Primary).Totals
	scores := make([]messages.EndpointScore, 0, totals.Len())
	for at, total := range totals.All() {
		if total >= 0 {
			scores = append(scores, messages.EndpointScore{
				Address: s.view.sources[at].Spec.Address, Score: min(total, math.MaxFloat32),
			})
		}
	}
	return messages.TakeList(scores)
}

// deliver sets what the outcome says of endpoints.
func (s *Scheduler) deliver(out *Outcome) {
	s.best, s.sent, s.stages = s.best[:0], s.sent[:0], s.stages[:0]
	for _, d := range s.final.Destinations {
		e, sent := s.view.sources[d.At], d.Sent
		if sent == "" {
			sent = e.Spec.Address
		}
		s.best, s.sent = append(s.best, e), append(s.sent, sent)
	}
	out.Ranked, out.Sent, out.Split = s.best, s.sent, s.final.Split
	if len(s.final.Stages) > 0 {
		stages := make([]messages.Stage, 0, len(s.final.Stages))
		for _, of := range s.final.Stages {
			probe := s.tries(of)
			s.stages = append(s.stages, StageEndpoint{s.view.sources[of.At], of.Prompt, probe})
			stages = append(stages, messages.Stage{Run: of.Run, At: of.At, Probe: probe})
		}
		out.Stages, out.Decision.Stages = s.stages, messages.TakeList(stages)
	}
	out.Decision.Headers, s.final.Headers = messages.TakeList(append(s.headers.list, s.final.Headers...)), nil
	if s.view.matched {
		slot := s.best[0].ID.Slot
		out.PrefixBlocks = s.tools.Matcher.Credit(promptOf(s.course.request), slot, s.view.matches[slot])
	}
}

// Survey is what the detector of a plan says of all endpoints of a snapshot, apart from any request. It belongs to one
// goroutine, which need not be that of a loop.
type Survey struct {
	view view
	run  profileRun
	by   Detector
}

// NewSurvey reads the endpoints of a snapshot; nil = the plan has no detector, or there is no endpoint.
func NewSurvey(p *Plan, snap *endpoints.Snapshot, clock Clock, now time.Time) *Survey {
	s := &Survey{by: p.points.detector.plugin}
	if p.Gated() {
		s.by = p.points.gate.plugin
	}
	if s.by == nil || len(snap.Endpoints) == 0 {
		return nil
	}
	var none messages.Request
	s.run.view, s.run.tools, s.run.observer = &s.view, &Tools{Clock: clock}, unheard{}
	s.view.gather(p, &none, snap, now)
	s.view.match(&none, snap.Slots(), nil, messages.PrefixSizes{})
	s.run.reset()
	s.run.in = Input{request: &none, run: &s.run, now: now, candidates: Candidates{s.view.all, s.run.place}}
	return s
}

// Saturation returns how full those endpoints are together that a filter keeps; nil = all. known is false if it keeps
// none.
func (s *Survey) Saturation(of Filter) (full float64, known bool) { return s.saturation(s.by, of) }

func (s *Survey) saturation(by Detector, of Filter) (full float64, known bool) {
	s.narrow(of)
	if len(s.run.place) == 0 {
		return 0, false
	}
	return by.Saturation(&s.run.in), true
}

// Parts returns how full those endpoints are together that a filter keeps, as each detector finds of which the one in
// force is made and that counts for a stage, by its name.
func (s *Survey) Parts(stage string, of Filter) map[string]float64 {
	combined, ok := s.detector().(Combined)
	if !ok {
		return nil
	}
	all := map[string]float64{}
	for _, p := range combined.Parts() {
		if len(p.Stages) > 0 && !slices.Contains(p.Stages, stage) {
			continue
		}
		if full, known := s.saturation(p.Detector, of); known {
			all[p.Name] = full
		}
	}
	return all
}

// Outdated returns how many endpoints the detector does not know about, because their samples are too old. known is
// false if the detector reads no samples.
func (s *Survey) Outdated() (count int, known bool) {
	by, ok := s.detector().(SampleReader)
	if !ok {
		return 0, false
	}
	s.narrow(nil)
	return by.Unknown(&s.run.in), true
}

// Room returns for each endpoint of the snapshot whether it has room; nil = the plan has no gate.
func (s *Survey) Room() []bool {
	gate, ok := s.by.(Gate)
	if !ok {
		return nil
	}
	s.narrow(nil)
	keep := slices.Repeat([]bool{true}, len(s.run.place))
	gate.Room(&s.run.in, keep)
	return keep
}

// narrow makes the endpoints the candidates that a filter keeps.
func (s *Survey) narrow(by Filter) {
	s.run.reset()
	s.run.in.candidates = Candidates{s.view.all, s.run.place}
	if by == nil {
		return
	}
	s.run.keep = slices.Repeat([]bool{true}, len(s.run.place))
	by.Filter(&s.run.in, s.run.keep)
	s.run.compact()
	s.run.in.candidates = Candidates{s.view.all, s.run.place}
}

// detector returns the plan's own detector.
func (s *Survey) detector() Detector {
	if whole, ok := s.by.(poolGate); ok {
		return whole.Detector
	}
	return s.by
}
