package schedule_test

import (
	"testing"

	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// A plan reads what any of its filters, scorers and pickers reads, in whichever profile.
func TestPlanReadsWhatItsPluginsRead(t *testing.T) {
	reads := func(r schedule.Reads) schedule.Step { return schedule.Step{Reads: r} }
	filter := schedule.Profile{Filters: []schedule.FilterStep{{}, {Step: reads(schedule.ReadsSample)}}}
	scorer := schedule.Profile{Scorers: []schedule.ScorerStep{{Step: reads(schedule.ReadsLoRA)}, {}}}
	picker := schedule.Profile{Picker: schedule.PickerStep{Step: reads(schedule.ReadsPrefix)}}
	for name, c := range map[string]struct {
		profiles []schedule.Profile
		want     schedule.Reads
	}{
		"no profile": {nil, 0},
		"a filter":   {[]schedule.Profile{{}, filter}, schedule.ReadsSample},
		"a scorer":   {[]schedule.Profile{scorer, {}}, schedule.ReadsLoRA},
		"a picker":   {[]schedule.Profile{picker}, schedule.ReadsPrefix},
		"one of each": {
			[]schedule.Profile{filter, scorer, picker},
			schedule.ReadsSample | schedule.ReadsLoRA | schedule.ReadsPrefix,
		},
	} {
		if got := schedule.NewPlan(c.profiles, nil, 0).Reads(); got != c.want {
			t.Errorf("%s: reads %b, want %b", name, got, c.want)
		}
	}
}
