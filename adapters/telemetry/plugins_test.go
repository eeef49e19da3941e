package telemetry

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
