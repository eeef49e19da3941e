package schedule_test

import (
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// nobody is a filter and a screener that keeps no endpoint.
type nobody struct{}

func (nobody) Filter(_ *schedule.Input, keep []bool) { clear(keep) }
func (nobody) Screen(_ *schedule.Input, keep []bool) { clear(keep) }

// The endpoint that a client names is picked past filters and screeners, and the record says why. One that the pool
// does not have is refused.
func TestForcedEndpoint(t *testing.T) {
	for name, c := range map[string]struct {
		to     int
		forced bool
		picked string // "" = none
		detail string
	}{
		"forced":         {2, true, "10.0.0.2:80", ""},
		"the same hint":  {2, false, "", "left no endpoint"},
		"not there":      {7, true, "", "the pool has no endpoint 10.0.0.7:80"},
		"hint not there": {7, false, "", "no endpoint of the pool is in the subset"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 3)
			s.profiles = []schedule.Profile{{
				Name: "default", Picker: picker("best", byTotal),
				Filters: []schedule.FilterStep{{Step: schedule.Step{Type: "nobody", Name: "nobody"}, Filter: nobody{}}},
			}}
			s.planned().Serve(schedule.PointStep{Step: schedule.Step{Type: "nobody", Name: "screen"}, Plugin: nobody{}})
			s.req.Forced = c.forced
			s.req.Subset = messages.Subset{Given: true, Addresses: messages.ListOf(address(c.to))}
			out := s.run()
			picked := ""
			if len(out.Ranked) > 0 {
				picked = string(out.Ranked[0].Spec.Address)
			}
			if picked != c.picked || !strings.Contains(out.Detail, c.detail) || len(out.Ranked) > 1 {
				t.Errorf("picked %q, %v, %q; want %q, %q", picked, out.Reason, out.Detail, c.picked, c.detail)
			}
			if c.picked == "" {
				return
			}
			run := out.Decision.Profiles.At(0)
			if run.Filters.Len() != 1 || run.Filters.At(0).Plugin != messages.ForcedHeader ||
				!run.Filters.At(0).Kept.At(0) {
				t.Errorf("the record names the filters %+v, want %s alone", run.Filters, messages.ForcedHeader)
			}
		})
	}
}
