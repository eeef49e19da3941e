package telemetry

import (
	"maps"
	"math"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/engine/schedule"
)

func TestObservingAPluginAllocatesNothing(t *testing.T) {
	reg := prometheus.NewRegistry()
	profiles := []schedule.Profile{{
		Name: "default", Scorers: []schedule.ScorerStep{{Step: schedule.Step{Type: "queue-scorer", Name: "q"}}},
		Picker: schedule.PickerStep{Step: schedule.Step{Type: "max-score-picker", Name: "p"}},
	}}
	o := NewPlugins(reg, zap.NewNop(), nil).Observe(planOf(profiles))
	meter := profiles[0].Scorers[0].Meter
	n := testing.AllocsPerRun(99, func() {
		o.PluginRan(meter, time.Microsecond)
		o.ScoreClamped(meter)
		o.ScoreNaN(meter)
	})
	if n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
	if got := sum(t, reg, "signalbox_plugin_bad_scores_total"); got != 200 {
		t.Errorf("%v bad scores, want 200", got)
	}
	goruntime.KeepAlive(o) // or its series may go
	if p := profiles[0].Picker.Meter; p == meter {
		t.Errorf("scorer and picker share meter %d", p)
	}
}

// Both families show what histograms of their own would: at every bound and right beside it.
func TestDurationsAreThoseOfTwoHistograms(t *testing.T) {
	labels := []string{"extension_point", "plugin_type", "plugin_name"}
	got, want := prometheus.NewRegistry(), prometheus.NewRegistry()
	p := NewPlugins(got, zap.NewNop(), nil)
	fine := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "signalbox_plugin_duration_seconds",
		Help: pluginHelp, Buckets: fineBounds}, labels)
	coarse := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "llm_d_epp_plugin_duration_seconds",
		Help: pluginHelp, Buckets: coarseBounds}, labels)
	want.MustRegister(fine, coarse)
	var observers []*Observer
	for range 2 { // a second configuration with the same plugin counts on
		profiles := []schedule.Profile{{Picker: schedule.PickerStep{Step: schedule.Step{Type: "max-score-picker",
			Name: "p"}}}}
		o := p.Observe(planOf(profiles))
		observers = append(observers, o)
		for _, bound := range allBounds {
			for d := time.Duration(-1); d <= 1; d++ {
				took := time.Duration(bound*1e9) + d
				o.PluginRan(profiles[0].Picker.Meter, took)
				fine.WithLabelValues("Picker", "max-score-picker", "p").Observe(took.Seconds())
				coarse.WithLabelValues("Picker", "max-score-picker", "p").Observe(took.Seconds())
			}
		}
		o.PluginRan(profiles[0].Picker.Meter, time.Second)
		fine.WithLabelValues("Picker", "max-score-picker", "p").Observe(1)
		coarse.WithLabelValues("Picker", "max-score-picker", "p").Observe(1)
	}
	for _, name := range []string{"signalbox_plugin_duration_seconds", "llm_d_epp_plugin_duration_seconds"} {
		g, w := histogram(t, got, name), histogram(t, want, name)
		if len(g.Bucket) != len(w.Bucket) || g.GetSampleCount() != w.GetSampleCount() ||
			math.Abs(g.GetSampleSum()-w.GetSampleSum()) > 1e-9 {
			t.Fatalf("%s: %v, want %v", name, g, w)
		}
		for i, b := range w.Bucket {
			if at := g.Bucket[i]; at.GetUpperBound() != b.GetUpperBound() ||
				at.GetCumulativeCount() != b.GetCumulativeCount() {
				t.Errorf("%s: bucket %d is %v, want %v", name, i, at, b)
			}
		}
	}
	goruntime.KeepAlive(observers) // or their series may go
}

func planOf(profiles []schedule.Profile) *schedule.Plan {
	return schedule.NewPlan(profiles, nil, nil, 0)
}

// TestSeriesLastAsLongAsAPlanNamesThem has two plans at once, which share a step, and counts on in the first after the
// second has replaced it.
func TestSeriesLastAsLongAsAPlanNamesThem(t *testing.T) {
	reg := prometheus.NewRegistry()
	p := NewPlugins(reg, zap.NewNop(), nil)
	plan := func(scorer string) *schedule.Plan {
		return planOf([]schedule.Profile{{
			Scorers: []schedule.ScorerStep{{Step: schedule.Step{Type: scorer, Name: scorer}}},
			Picker:  schedule.PickerStep{Step: schedule.Step{Type: "max-score-picker", Name: "p"}},
		}})
	}
	second := plan("b")
	after := p.Observe(second)
	runs := func(want map[string]uint64) func() bool {
		return func() bool { return maps.Equal(countsByName(t, reg), want) }
	}
	func() {
		first := plan("a")
		before := p.Observe(first)
		for _, o := range []*Observer{before, after, before} { // the last of a request that began before the second
			o.PluginRan(0, time.Microsecond)
			o.PluginRan(1, time.Microsecond)
		}
		goruntime.GC()
		if got := countsByName(t, reg); !maps.Equal(got, map[string]uint64{"a": 2, "b": 1, "p": 3}) {
			t.Fatalf("runs %v, want 2 of a, 1 of b, 3 of p", got)
		}
		goruntime.KeepAlive(first)
	}()
	awaitGarbage(t, runs(map[string]uint64{"b": 1, "p": 3}))
	if n := testutil.CollectAndCount(p.faults); n != 4 { // two of each step that is left
		t.Errorf("%d series of bad scores, want 4", n)
	}
	again := p.Observe(plan("a"))
	again.PluginRan(0, time.Microsecond)
	if !runs(map[string]uint64{"a": 1, "b": 1, "p": 3})() {
		t.Errorf("runs %v, want a to begin anew", countsByName(t, reg))
	}
	goruntime.KeepAlive(second)
	goruntime.KeepAlive(again)
}

// awaitGarbage collects garbage until something is so.
func awaitGarbage(t *testing.T, so func() bool) {
	t.Helper()
	for range 1000 {
		goruntime.GC()
		if so() {
			return
		}
	}
	t.Fatal("what garbage should end has not ended")
}

// countsByName are the calls of each plugin.
func countsByName(t *testing.T, r *prometheus.Registry) map[string]uint64 {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, f := range all {
		if f.GetName() != "signalbox_plugin_duration_seconds" {
			continue
		}
		for _, m := range f.Metric { // its labels are in alphabetical order, the name before the type
			counts[m.Label[1].GetValue()] = m.GetHistogram().GetSampleCount()
		}
	}
	return counts
}

// histogram is the only one of a family.
func histogram(t *testing.T, r *prometheus.Registry, family string) *dto.Histogram {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == family && len(f.Metric) == 1 {
			return f.Metric[0].GetHistogram()
		}
	}
	t.Fatalf("no family %s with one histogram", family)
	return nil
}

// teller is a filter that tells how it decided.
type teller struct{ outcome int }

func (teller) Outcomes() schedule.Outcomes {
	return schedule.Outcomes{Metric: "decisions_total", Help: "Decisions.", Names: []string{"kept", "dropped"}}
}

func (f teller) Filter(in *schedule.Input, _ []bool) { in.Decided(f.outcome) }

// How a filter decided is counted by its name, as long as a plan names it. Two plans share the counters.
func TestDecisionsAreCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	p := NewPlugins(reg, zap.NewNop(), nil)
	planOfType := func(typ, name string) *schedule.Plan {
		return planOf([]schedule.Profile{{
			Filters: []schedule.FilterStep{{Step: schedule.Step{Type: typ, Name: name}, Filter: teller{}}},
			Picker:  schedule.PickerStep{Step: schedule.Step{Type: "max-score-picker", Name: "p"}},
		}})
	}
	plan := func(name string) *schedule.Plan { return planOfType("t", name) }
	count := func() map[string]float64 {
		all := map[string]float64{}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "llm_d_epp_decisions_total" {
					all[m.GetLabel()[1].GetValue()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
		return all
	}
	kept := plan("a")
	again := p.Observe(kept)
	func() {
		gone := plan("b")
		o := p.Observe(gone)
		o.PluginDecided(0, 0)
		again.PluginDecided(0, 1)
		again.PluginDecided(0, 1)
		want := map[string]float64{"a kept": 0, "a dropped": 2, "b kept": 1, "b dropped": 0}
		if got := count(); !maps.Equal(got, want) {
			t.Fatalf("decisions %v, want %v", got, want)
		}
		goruntime.KeepAlive(gone)
	}()
	awaitGarbage(t, func() bool { return maps.Equal(count(), map[string]float64{"a kept": 0, "a dropped": 2}) })
	func() { // a filter of the name is of another type for a while
		other := planOfType("u", "a")
		p.Observe(other).PluginDecided(0, 0)
		goruntime.KeepAlive(other)
	}()
	awaitGarbage(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.plans) == 2 })
	if got := count(); !maps.Equal(got, map[string]float64{"a kept": 1, "a dropped": 2}) {
		t.Errorf("decisions %v, want those of the filter that is left, 1 kept and 2 dropped", got)
	}
	goruntime.KeepAlive(kept)
}
