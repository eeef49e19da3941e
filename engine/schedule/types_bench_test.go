package schedule_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// idle is a scorer that no profile has.
type idle struct{}

func (*idle) Score(*schedule.Input, []float32) {}

// withTypes returns the default pick among 10 endpoints under a catalogue that has so many types more, none of which
// the configuration names.
func withTypes(t testing.TB, more int) *scene {
	var types []config.PluginType
	for i := range more {
		types = append(types, config.PluginType{
			Type: fmt.Sprintf("example.com/idle-%d", i), Text: "Does nothing.", New: func() any { return new(idle) },
		})
	}
	catalogue, err := config.NewCatalogue(types...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Default(config.Settings{Destinations: 3, Stale: 5 * time.Second, Catalogue: catalogue})
	if err != nil {
		t.Fatal(err)
	}
	s := defaultPick(t, 10)
	s.plan = c.Plan
	s.plan.Observe(&s.counts)
	s.run()
	return s
}

// A type that no configuration names is no part of a plan, so that a pick reads and allocates the same with it.
func TestUnusedTypesAreNoPartOfAPick(t *testing.T) {
	without, with := withTypes(t, 0), withTypes(t, 300)
	for _, kind := range []attributes.Type{attributes.Number, attributes.Names} {
		if a, b := without.plan.Layout().Of(kind), with.plan.Layout().Of(kind); !slices.Equal(a, b) {
			t.Errorf("a plan reads %v, want %v", b, a)
		}
	}
	if a, b := steps(without.plan), steps(with.plan); a != b {
		t.Errorf("a plan has the steps %s, want %s", b, a)
	}
	a := testing.AllocsPerRun(100, func() { without.run() })
	if b := testing.AllocsPerRun(100, func() { with.run() }); a != b {
		t.Errorf("a pick makes %v allocations, want %v", b, a)
	}
}

// steps are the names of a plan's plugins.
func steps(p *schedule.Plan) (names string) {
	for _, profile := range p.Profiles() {
		for _, f := range profile.Filters {
			names += f.Name + " "
		}
		for _, s := range profile.Scorers {
			names += s.Name + " "
		}
		names += profile.Picker.Name
	}
	return names
}

// BenchmarkUnusedTypes picks in turns with 300 types more and without them, and reports the ratio.
func BenchmarkUnusedTypes(b *testing.B) {
	without, with := withTypes(b, 0), withTypes(b, 300)
	took := [2]time.Duration{time.Hour, time.Hour} // the shortest of each, which nothing else disturbed
	for b.Loop() {
		for i, s := range []*scene{without, with} {
			began := time.Now()
			for range 10 {
				s.run()
			}
			took[i] = min(took[i], time.Since(began))
		}
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "with/without")
	b.ReportMetric(0, "ns/op") // it is that of both
}
