package scorers

import (
	"slices"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
	"github.com/signalbox-epp/signalbox/messages"
)

// asked is one request of a series: who holds the beginning of its prompt, and what the scorer must say.
type asked struct {
	holder int // an endpoint; -1 = none
	ranks  []int
	want   []float32 // by endpoint; -1 = it is no candidate
}

func TestNoHitLRU(t *testing.T) {
	cold := func(want []float32, ranks ...int) asked { return asked{-1, ranks, want} }
	hit := func(want []float32, holder int, ranks ...int) asked { return asked{holder, ranks, want} }
	all := []int{0, 1, 2}
	for name, c := range map[string]struct {
		size  int
		asked []asked
	}{
		"never used come first": {1024, []asked{
			cold([]float32{1, .5, 0}, all...), cold([]float32{0, 1, .5}, all...), cold([]float32{.5, 0, 1}, all...),
		}},
		"then the least recently used": {1024, []asked{
			cold([]float32{-1, 1, -1}, 1), cold([]float32{1, -1, -1}, 0), cold([]float32{-1, -1, 1}, 2),
			cold([]float32{.5, 1, 0}, all...), cold([]float32{1, 0, .5}, all...),
		}},
		"a hit is no use": {1024, []asked{
			hit([]float32{.5, .5, .5}, 2, all...), cold([]float32{1, .5, 0}, all...),
			hit([]float32{-1, .5, -1}, 1, 1), cold([]float32{0, 1, .5}, all...),
		}},
		"no candidate holds anything": {1024, []asked{hit([]float32{1, 0, -1}, 2, 0, 1)}},
		"older uses are forgotten": {1, []asked{
			cold([]float32{1, .5, 0}, all...), cold([]float32{0, 1, .5}, all...),
			cold([]float32{1, 0, .5}, all...),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := scheduletest.NewSeries(t, &NoHitLRU{LRUSize: c.size}, scheduletest.Profile{Name: "default"})
			for i, a := range c.asked {
				endpoints := make([]scheduletest.Endpoint, 3)
				if a.holder >= 0 {
					endpoints[a.holder].PrefixBlocks = 2
				}
				s.Profiles[0].Ranks = a.ranks
				out := s.Pick(scheduletest.Request(), endpoints...)
				got := out.Decision.Profiles.At(0).Scorers.At(0).Scores.Append(nil)
				if !slices.Equal(got, a.want) {
					t.Errorf("request %d: scores %v, want %v", i, got, a.want)
				}
			}
		})
	}
}

// A cold request uses the server that serves it and that of the profile prefill, and is not cold if either profile
// found a server that holds the beginning of its prompt.
func TestNoHitLRUNotesTheStagesOfARequest(t *testing.T) {
	for name, c := range map[string]struct {
		profile string
		prefill []int
		holder  int // an endpoint; -1 = none
		want    []uint32
	}{
		"prefill":          {"prefill", []int{2}, -1, []uint32{0, 2}},
		"the same server":  {"prefill", []int{0}, -1, []uint32{0}},
		"another profile":  {"encode", []int{2}, -1, []uint32{0}},
		"hit at prefill":   {"prefill", []int{1, 2}, 2, nil},
		"hit at the first": {"prefill", []int{1, 2}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := scheduletest.NewSeries(t, &NoHitLRU{LRUSize: 1024},
				scheduletest.Profile{Name: "decode", Ranks: []int{0}},
				scheduletest.Profile{Name: c.profile, Ranks: c.prefill})
			endpoints := make([]scheduletest.Endpoint, 3)
			if c.holder >= 0 {
				endpoints[c.holder].PrefixBlocks = 1
			}
			var got []uint32
			for _, kept := range s.Pick(scheduletest.Request(), endpoints...).Kept.All() {
				if got = append(got, kept.Endpoint.Slot); kept.Table != messages.UseTable {
					t.Errorf("kept in table %d, want that of uses", kept.Table)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("used are %v, want %v", got, c.want)
			}
		})
	}
}

func TestNoHitLRUValidate(t *testing.T) {
	if err := (&NoHitLRU{LRUSize: 1}).Validate(); err != nil {
		t.Error(err)
	}
	if err := new(NoHitLRU).Validate(); err == nil || err.Error() != "lruSize: got 0, want 1 or more" {
		t.Errorf("got %v", err)
	}
}
