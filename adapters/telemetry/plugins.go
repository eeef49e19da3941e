// Package telemetry holds what Signalbox reports about itself: metrics of plugins and loops for Prometheus, and the log
// lines of requests. It reads what others count, and never decides anything.
package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// Plugins holds the metrics of plugins. They are registered once; each configuration gets an observer of its own.
type Plugins struct {
	took   *durations
	faults *prometheus.CounterVec
	stale  staleRuns
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

// NewPlugins returns the metrics, registered with r. Warnings go to log.
func NewPlugins(r prometheus.Registerer, log *zap.Logger) *Plugins {
	labels := []string{"extension_point", "plugin_type", "plugin_name"}
	p := &Plugins{
		took: newDurations(labels),
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
	r.MustRegister(p.took, p.faults, p.stale.counter)
	return p
}

// Observer observes the plugins of one plan. It looks up their counters when it is made, and finds them by number
// while plugins run.
type Observer struct {
	stale *staleRuns
	steps []meters
}

type meters struct {
	took         *tally
	clamped, nan prometheus.Counter
}

// Observe numbers the steps of profiles and returns their observer.
func (p *Plugins) Observe(profiles []schedule.Profile) *Observer {
	o := &Observer{stale: &p.stale}
	for i := range profiles {
		for j := range profiles[i].Filters {
			p.meter(o, "Filter", &profiles[i].Filters[j].Step)
		}
		for j := range profiles[i].Scorers {
			p.meter(o, "Scorer", &profiles[i].Scorers[j].Step)
		}
		p.meter(o, "Picker", &profiles[i].Picker.Step)
	}
	return o
}

func (p *Plugins) meter(o *Observer, point string, s *schedule.Step) {
	s.Meter = len(o.steps)
	o.steps = append(o.steps, meters{
		took:    p.took.of(stepLabels{point, s.Type, s.Name}),
		clamped: p.faults.WithLabelValues(point, s.Type, s.Name, "clamped"),
		nan:     p.faults.WithLabelValues(point, s.Type, s.Name, "nan"),
	})
}

// PluginRan counts one call and its time.
func (o *Observer) PluginRan(meter int, took time.Duration) { o.steps[meter].took.observe(took) }

// ScoreClamped counts a score that was out of range.
func (o *Observer) ScoreClamped(meter int) { o.steps[meter].clamped.Inc() }

// ScoreNaN counts a score that was not a number.
func (o *Observer) ScoreNaN(meter int) { o.steps[meter].nan.Inc() }

// AllStale counts a profile run without a fresh sample, and warns of it once a second.
func (o *Observer) AllStale() { o.stale.note() }
