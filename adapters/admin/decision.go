package admin

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// decisionView is the scheduling of one request: its candidates and its profile runs.
type decisionView struct {
	PoolVersion uint64        `json:"pool_version"`
	Pool        int           `json:"pool"`              // endpoints of the pool
	Candidates  int           `json:"candidates"`        // those of them in the request's subset; all without one
	AllStale    bool          `json:"all_samples_stale"` // in-flight load stood in for the scorers that read samples
	Probe       bool          `json:"probe"`             // the request was the probe of an outlier
	Outliers    []outlierSeen `json:"outliers"`          // candidates that were not healthy
	Profiles    []profileView `json:"profiles"`
	Headers     []headerView  `json:"headers"` // that the profile handler set on the request
}

type headerView struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// outlierSeen is a candidate that was ejected or degraded.
type outlierSeen struct {
	endpoint
	Ejected bool   `json:"ejected"` // false: degraded, it came last
	Cause   string `json:"cause"`   // the kind of failure
}

// profileView is one run of a profile.
type profileView struct {
	Profile  string       `json:"profile"`
	Serves   bool         `json:"serves"`   // its pick serves the request
	Shadow   bool         `json:"shadow"`   // it ran beside the pick, and changed nothing
	Optional bool         `json:"optional"` // if it picks nothing, the request is not refused
	Failed   string       `json:"failed"`   // why it picked nothing, with the reason first; "" = it picked
	Stages   []stageView  `json:"stages"`   // that it picked to work for the request before the one that serves
	Filters  []filterView `json:"filters"`
	Stale    []endpoint   `json:"dropped_as_stale"` // by no filter: others had fresh samples
	Scorers  []scorerView `json:"scorers"`
	Picked   *endpoint    `json:"picked"`
	RunnerUp *endpoint    `json:"runner_up"` // the best total apart from the pick
	// Margin is the total of the pick less that of the runner-up. It is negative where the picker preferred a lower
	// total, and null without a runner-up or where totals did not decide.
	Margin    *float32        `json:"margin"`
	Read      []readView      `json:"read"` // what filters and scorers read, in their order
	PickAge   *float64        `json:"pick_sample_age_seconds"`
	RunnerAge *float64        `json:"runner_up_sample_age_seconds"`
	Endpoints []candidateView `json:"endpoints"` // by total, best first; those that were dropped come last
	// Within is by how much the scores may differ from what scorers gave, but for the first three ranked and the
	// runner-up; absent = they are exact. Totals always are.
	Within float32 `json:"scores_within,omitempty"`
}

// stageView is an endpoint that works for the request before the one that serves.
type stageView struct {
	endpoint
	Probe bool `json:"probe"` // the request tries whether it is healthy again
}

// readView is one number that plugins read; null = unknown, or there was no runner-up.
type readView struct {
	Attribute string   `json:"attribute"`
	Pick      *float32 `json:"pick"`
	RunnerUp  *float32 `json:"runner_up"`
}

type filterView struct {
	Plugin  string     `json:"plugin"`
	Kept    int        `json:"kept"`
	Dropped []endpoint `json:"dropped"`
}

type scorerView struct {
	Plugin string  `json:"plugin"`
	Weight float32 `json:"weight"`
}

// candidateView is how one endpoint did in a profile.
type candidateView struct {
	endpoint
	Rank   int        `json:"rank"`   // 1 = the pick, 2 = what Envoy tries next, and so on; 0 = not chosen
	Total  *float32   `json:"total"`  // null = dropped, or no endpoint was scored
	Scores []*float32 `json:"scores"` // before the weight, in the order of scorers; null = not asked
	// DroppedBy is a filter's name, "ejected", "degraded" or "stale-sample"; "" = the endpoint was not dropped.
	DroppedBy string `json:"dropped_by"`

	runnerUp bool
}

const (
	staleSample = "stale-sample"
	ejected     = "ejected"
	degraded    = "degraded"
)

func (h *handler) decision(d *messages.Decision) *decisionView {
	if d.Profiles.Len() == 0 && d.Endpoints.Len() == 0 && d.PoolVersion == 0 {
		return nil
	}
	v := &decisionView{
		PoolVersion: d.PoolVersion, Pool: d.Pool, Candidates: d.Endpoints.Len(), AllStale: d.Stale, Probe: d.Probe,
		Outliers: []outlierSeen{}, Profiles: make([]profileView, 0, d.Profiles.Len()), Headers: []headerView{},
	}
	all := make([]endpoint, 0, d.Endpoints.Len())
	for _, id := range d.Endpoints.All() {
		all = append(all, h.endpoint(id))
	}
	for _, s := range d.Outliers.All() {
		if s.At < len(all) {
			v.Outliers = append(v.Outliers, outlierSeen{all[s.At], s.Ejected, s.Cause.String()})
		}
	}
	for i, run := range d.Profiles.All() {
		of := profile(&run, all, d)
		of.Serves = i == d.Primary
		for _, s := range d.Stages.All() {
			if s.Run == i && s.At < len(all) {
				of.Stages = append(of.Stages, stageView{all[s.At], s.Probe})
			}
		}
		v.Profiles = append(v.Profiles, of)
	}
	for _, h := range d.Headers.All() {
		v.Headers = append(v.Headers, headerView{h.Name, h.Value})
	}
	return v
}

func profile(run *messages.ProfileRun, all []endpoint, d *messages.Decision) profileView {
	v := profileView{
		Profile: run.Profile, Shadow: run.Shadow, Optional: run.Optional, Failed: run.Failed, Stages: []stageView{},
		Filters: make([]filterView, 0, run.Filters.Len()), Stale: []endpoint{},
		Scorers: make([]scorerView, 0, run.Scorers.Len()), Endpoints: make([]candidateView, len(all)),
		Within: run.Within,
	}
	for i := range all {
		v.Endpoints[i] = candidateView{endpoint: all[i], Scores: make([]*float32, 0, run.Scorers.Len())}
	}
	for _, f := range run.Filters.All() {
		v.Filters = append(v.Filters, v.filter(&f))
	}
	for _, s := range run.Scorers.All() {
		v.Scorers = append(v.Scorers, scorerView{s.Plugin, s.Weight})
		for i := range v.Endpoints {
			c := &v.Endpoints[i]
			c.Scores = append(c.Scores, scored(s.Scores, i))
		}
	}
	v.read(run)
	v.spare(run, d)
	v.total(run)
	v.rank(run)
	if d.Probe {
		v.Margin = nil // totals did not decide
	}
	slices.SortStableFunc(v.Endpoints, better)
	return v
}

// filter returns what one filter kept and dropped of the endpoints that were left, and marks those that it dropped.
func (v *profileView) filter(f *messages.FilterRun) filterView {
	out := filterView{Plugin: f.Plugin, Dropped: []endpoint{}}
	for i := range v.Endpoints {
		c := &v.Endpoints[i]
		if c.DroppedBy != "" {
			continue
		}
		if kept, ok := at(f.Kept, i); ok && !kept {
			c.DroppedBy = f.Plugin
			out.Dropped = append(out.Dropped, c.endpoint)
			continue
		}
		out.Kept++
	}
	return out
}

// spare marks the endpoints that were dropped as outliers: those that passed all filters and have no total.
func (v *profileView) spare(run *messages.ProfileRun, d *messages.Decision) {
	for _, s := range d.Outliers.All() {
		if s.At >= len(v.Endpoints) || v.Endpoints[s.At].DroppedBy != "" || scored(run.Totals, s.At) != nil {
			continue
		}
		v.Endpoints[s.At].DroppedBy = degraded
		if s.Ejected {
			v.Endpoints[s.At].DroppedBy = ejected
		}
	}
}

// total takes in the totals. An endpoint that passed all filters and has no total, where others have one, was dropped
// for its stale sample.
func (v *profileView) total(run *messages.ProfileRun) {
	if run.Totals.Len() == 0 {
		return
	}
	for i := range v.Endpoints {
		c := &v.Endpoints[i]
		c.Total = scored(run.Totals, i)
		if c.Total == nil && c.DroppedBy == "" {
			c.DroppedBy = staleSample
			v.Stale = append(v.Stale, c.endpoint)
		}
	}
}

func (v *profileView) rank(run *messages.ProfileRun) {
	var pick, runner *float32
	for rank, i := range run.Ranked.All() {
		if int(i) >= len(v.Endpoints) {
			continue
		}
		c := &v.Endpoints[i]
		c.Rank = rank + 1
		if rank == 0 {
			e := c.endpoint
			v.Picked, pick = &e, c.Total
		}
	}
	if i := run.Runner; i >= 0 && i < len(v.Endpoints) && v.Picked != nil {
		c := &v.Endpoints[i]
		c.runnerUp = true
		e := c.endpoint
		v.RunnerUp, runner = &e, c.Total
	}
	if pick != nil && runner != nil {
		margin := *pick - *runner
		v.Margin = &margin
	}
}

// read takes in what plugins read of the pick and of the runner-up.
func (v *profileView) read(run *messages.ProfileRun) {
	n := run.Reads.Len()
	v.Read = make([]readView, 0, n)
	if run.Values.Len() < n {
		return
	}
	for i, name := range run.Reads.All() {
		v.Read = append(v.Read, readView{name, finite(run.Values, i), finite(run.Values, n+i)})
	}
	v.PickAge, v.RunnerAge = age(run.Ages[0]), age(run.Ages[1])
}

// finite returns number i of a list; nil = there is none, or JSON has no form of it.
func finite(l messages.List[float32], i int) *float32 {
	v, ok := at(l, i)
	if !ok || v != v || math.IsInf(float64(v), 0) {
		return nil
	}
	return &v
}

func age(d time.Duration) *float64 {
	if d < 0 {
		return nil
	}
	s := d.Seconds()
	return &s
}

// scored returns number i of scores or totals; nil = there is none, or it is negative, which means the same.
func scored(l messages.List[float32], i int) *float32 {
	v, ok := at(l, i)
	if !ok || !(v >= 0) || math.IsInf(float64(v), 0) { // NaN and infinity have no JSON form
		return nil
	}
	return &v
}

// better orders candidates: by total, then as the picker had them; without a total last.
func better(a, b candidateView) int {
	if (a.Total == nil) != (b.Total == nil) {
		return cmp.Compare(order(a.Total == nil), order(b.Total == nil))
	}
	if a.Total != nil && *a.Total != *b.Total {
		return cmp.Compare(*b.Total, *a.Total)
	}
	if (a.Rank == 0) != (b.Rank == 0) {
		return cmp.Compare(order(a.Rank == 0), order(b.Rank == 0))
	}
	if a.Rank != b.Rank {
		return cmp.Compare(a.Rank, b.Rank)
	}
	return cmp.Compare(order(!a.runnerUp), order(!b.runnerUp))
}

func order(last bool) int {
	if last {
		return 1
	}
	return 0
}
