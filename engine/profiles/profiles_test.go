package profiles

import (
	"testing"

	"github.com/signalbox-epp/signalbox/engine/schedule"
)

func TestSingleProfile(t *testing.T) {
	h := Types["single-profile-handler"]()
	for name, c := range map[string]struct {
		profiles []string
		earlier  []schedule.Result
		want     int
	}{
		"first":       {[]string{"default"}, nil, 0},
		"then done":   {[]string{"default"}, []schedule.Result{{Profile: "default"}}, -1},
		"no profiles": {nil, nil, -1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := h.Next(schedule.NewCourse(nil, c.profiles, c.earlier...)).Profile; got != c.want {
				t.Errorf("Next(%v, %v) = %d, want %d", c.profiles, c.earlier, got, c.want)
			}
		})
	}
	if got := h.Primary(new(schedule.Course)); got != 0 {
		t.Errorf("Primary = %d, want 0", got)
	}
}
