// Package telemetry holds what Signalbox reports about itself: metrics of plugins and loops for Prometheus, and the log
// lines of requests. It reads what others count, and never decides anything.
package telemetry

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// Plugins are the metrics of plugins. Register once; each plan gets an observer of its own. Plans that name the same
// step count in the same series. A series lasts as long as a plan that names its step: one that was replaced counts on
// until the last request that began under it has ended.
type Plugins struct {
	took   *durations
	faults *prometheus.CounterVec
	stale  staleRuns
	failed *prometheus.CounterVec
	shadow *prometheus.CounterVec

	registry prometheus.Registerer
	media    *media // registered with the first plan that has a producer that tells of media

	mu        sync.Mutex         // of plans, and of the series that come and go by it
	plans     map[stepLabels]int // steps of living plans, by series; > 0
	deciding  map[decider]int    // filters of living plans that tell how they decided; > 0
	decisions map[string]*prometheus.CounterVec
	tellMedia bool
}

// decider is a filter that tells how it decided: the metric, and the name of the plugin.
type decider struct{ metric, plugin string }

// named are the series that one plan names.
type named struct {
	steps    []stepLabels
	deciders []decider
}

// staleRuns counts the profile runs in which all samples were stale, and logs them at most once a second.
type staleRuns struct {
	counter prometheus.Counter
	log     *zap.Logger
	untold  atomic.Uint64 // runs since the last line
	told    atomic.Int64  // when the last line was written, in nanoseconds since began; 0 = never
	began   time.Time
}

const staleLineEvery = time.Second

func (s *staleRuns) note() {
	s.counter.Inc()
	s.untold.Add(1)
	last, now := s.told.Load(), int64(time.Since(s.began))
	if last != 0 && now-last < int64(staleLineEvery) || !s.told.CompareAndSwap(last, now) {
		return
	}
	s.log.Warn("all samples are stale: in-flight load stands in for the scorers that read them",
		zap.Uint64("profile_runs", s.untold.Swap(0)))
}

// NewPlugins returns the metrics, registered with r, of plugins that pick among the endpoints of pool. Warnings go to
// log.
func NewPlugins(r prometheus.Registerer, log *zap.Logger, pool func() *endpoints.Snapshot) *Plugins {
	labels := []string{"extension_point", "plugin_type", "plugin_name"}
	p := &Plugins{
		registry: r, media: newMedia(pool), took: newDurations(labels),
		plans: map[stepLabels]int{}, deciding: map[decider]int{}, decisions: map[string]*prometheus.CounterVec{},
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "signalbox_plugin_bad_scores_total",
			Help: "Scores that were out of [0,1] and clamped, or NaN and counted as 0.",
		}, append(labels[:3:3], "fault")),
	}
	p.stale.began, p.stale.log = time.Now(), log
	p.stale.counter = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "signalbox_all_samples_stale_total",
		Help: "Profile runs whose samples were all stale, so that in-flight load stood in for them.",
	})
	p.failed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_optional_profile_failures_total",
		Help: "Runs of a profile that picked no endpoint, where the request was served without one.",
	}, []string{"profile", "reason"})
	p.shadow = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_shadow_picks_total",
		Help: "Picks of shadow profiles, by whether the request went to the same endpoint.",
	}, []string{"profile", "agrees"})
	r.MustRegister(p.took, p.faults, p.stale.counter, p.failed, p.shadow)
	return p
}

// Observer observes the plugins of one plan. It looks up their counters when it is made, and finds them by number
// while plugins run.
type Observer struct {
	stale  *staleRuns
	failed *prometheus.CounterVec
	shadow *prometheus.CounterVec
	steps  []meters
}

type meters struct {
	took         *tally
	clamped, nan prometheus.Counter
	outcomes     []prometheus.Counter // of a plugin that tells how it decided
	media        *mediaCounts         // of one that tells what it finds of media
}

// outcomes returns the counters of a filter that tells how it decided, and adds it to series. p.mu is held.
func (p *Plugins) outcomes(f *schedule.FilterStep, series *named) (all []prometheus.Counter) {
	teller, ok := f.Filter.(schedule.DecisionTeller)
	if !ok {
		return nil
	}
	of := teller.Outcomes()
	decisions := p.decisions[of.Metric]
	if decisions == nil {
		decisions = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "llm_d_epp_" + of.Metric, Help: of.Help,
		}, []string{"plugin_name", "outcome"})
		p.registry.MustRegister(decisions)
		p.decisions[of.Metric] = decisions
	}
	series.deciders = append(series.deciders, decider{of.Metric, f.Name})
	for _, name := range of.Names {
		all = append(all, decisions.WithLabelValues(f.Name, name))
	}
	return all
}

// Observe numbers the steps of a plan, which has not run yet, and observes them. The series of its steps go when the
// plan is garbage and no other plan names them: requests need not count the uses of a plan.
func (p *Plugins) Observe(plan *schedule.Plan) *Observer {
	o := &Observer{stale: &p.stale, failed: p.failed, shadow: p.shadow}
	var series named
	meter := func(point string, s *schedule.Step) {
		labels := stepLabels{point, s.Type, s.Name}
		s.Meter = len(o.steps)
		o.steps = append(o.steps, p.meters(labels))
		series.steps = append(series.steps, labels)
		if s.Media {
			o.steps[s.Meter].media = p.mediaOf(labels)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	profiles := plan.Profiles()
	for i := range profiles {
		for j := range profiles[i].Filters {
			meter("Filter", &profiles[i].Filters[j].Step)
			o.steps[len(o.steps)-1].outcomes = p.outcomes(&profiles[i].Filters[j], &series)
		}
		for j := range profiles[i].Scorers {
			meter("Scorer", &profiles[i].Scorers[j].Step)
		}
		meter("Picker", &profiles[i].Picker.Step)
	}
	plan.Points(meter)
	for _, labels := range series.steps {
		p.plans[labels]++
	}
	for _, d := range series.deciders {
		p.deciding[d]++
	}
	runtime.AddCleanup(o, p.release, series)
	plan.Observe(o)
	return o
}

// mediaOf returns the counts of a producer that tells what it finds of media. p.mu is held.
func (p *Plugins) mediaOf(s stepLabels) *mediaCounts {
	if !p.tellMedia {
		p.tellMedia = true
		p.registry.MustRegister(p.media)
	}
	return p.media.of(s)
}

func (p *Plugins) meters(s stepLabels) meters {
	return meters{
		took:    p.took.of(s),
		clamped: p.faults.WithLabelValues(s.point, s.typ, s.name, "clamped"),
		nan:     p.faults.WithLabelValues(s.point, s.typ, s.name, "nan"),
	}
}

// release ends the series that no plan names any more.
func (p *Plugins) release(series named) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range series.steps {
		if p.plans[s]--; p.plans[s] > 0 {
			continue
		}
		delete(p.plans, s)
		p.took.forget(s)
		p.faults.DeleteLabelValues(s.point, s.typ, s.name, "clamped")
		p.faults.DeleteLabelValues(s.point, s.typ, s.name, "nan")
		p.media.forget(s)
	}
	for _, d := range series.deciders {
		if p.deciding[d]--; p.deciding[d] == 0 {
			delete(p.deciding, d)
			p.decisions[d.metric].DeletePartialMatch(prometheus.Labels{"plugin_name": d.plugin})
		}
	}
}

// PluginRan counts one call and its time.
func (o *Observer) PluginRan(meter int, took time.Duration) { o.steps[meter].took.observe(took) }

// PluginDecided counts a decision of a plugin that tells how it decided.
func (o *Observer) PluginDecided(meter, outcome int) { o.steps[meter].outcomes[outcome].Inc() }

// MediaAsked counts the media of a request.
func (o *Observer) MediaAsked(meter int, n messages.MediaCounts) { o.steps[meter].media.asked.add(&n) }

// MediaFound counts those of which the endpoint was sent before.
func (o *Observer) MediaFound(meter int, at messages.EndpointID, found, of messages.MediaCounts) {
	o.steps[meter].media.hit(at, &found, &of)
}

// ScoreClamped counts a score that was out of range.
func (o *Observer) ScoreClamped(meter int) { o.steps[meter].clamped.Inc() }

// ScoreNaN counts a score that was not a number.
func (o *Observer) ScoreNaN(meter int) { o.steps[meter].nan.Inc() }

// AllStale counts a profile run without a fresh sample, and warns of it once a second.
func (o *Observer) AllStale() { o.stale.note() }

// RunFailed counts an optional run that picked nothing.
func (o *Observer) RunFailed(profile string, why messages.Reason) {
	o.failed.WithLabelValues(profile, why.String()).Inc()
}

// ShadowPicked counts a pick of a shadow profile.
func (o *Observer) ShadowPicked(profile string, agrees bool) {
	o.shadow.WithLabelValues(profile, strconv.FormatBool(agrees)).Inc()
}
