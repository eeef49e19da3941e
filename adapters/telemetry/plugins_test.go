package telemetry

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	o := NewPlugins(reg, zap.NewNop()).Observe(profiles)
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
	if p := profiles[0].Picker.Meter; p == meter {
		t.Errorf("scorer and picker share meter %d", p)
	}
}

// Both families show what histograms of their own would: at every bound and right beside it.
func TestDurationsAreThoseOfTwoHistograms(t *testing.T) {
	labels := []string{"extension_point", "plugin_type", "plugin_name"}
	got, want := prometheus.NewRegistry(), prometheus.NewRegistry()
	p := NewPlugins(got, zap.NewNop())
	fine := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "signalbox_plugin_duration_seconds",
		Help: pluginHelp, Buckets: fineBounds}, labels)
	coarse := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "llm_d_epp_plugin_duration_seconds",
		Help: pluginHelp, Buckets: coarseBounds}, labels)
	want.MustRegister(fine, coarse)
	for range 2 { // a second configuration with the same plugin counts on
		profiles := []schedule.Profile{{Picker: schedule.PickerStep{Step: schedule.Step{Type: "max-score-picker",
			Name: "p"}}}}
		o := p.Observe(profiles)
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
