package schedule_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/admitters"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/ceilings"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/deciders"
	"github.com/signalbox-epp/signalbox/engine/detectors"
	"github.com/signalbox-epp/signalbox/engine/displacements"
	"github.com/signalbox-epp/signalbox/engine/evictions"
	"github.com/signalbox-epp/signalbox/engine/fairness"
	"github.com/signalbox-epp/signalbox/engine/filters"
	"github.com/signalbox-epp/signalbox/engine/orderings"
	"github.com/signalbox-epp/signalbox/engine/pickers"
	"github.com/signalbox-epp/signalbox/engine/points"
	"github.com/signalbox-epp/signalbox/engine/profiles"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/scorers"
)

// idle is a scorer that no profile has.
type idle struct{}

func (*idle) Score(*schedule.Input, []float32) {}

// defaultTypes are the types without which the default configuration is not built.
var defaultTypes = []string{
	"expected-completion", "max-score-picker", "single-profile-handler",
	"learning-detector", "round-robin-fairness-policy", "global-strict-fairness-policy", "fcfs-ordering-policy",
	"longest-flow-displacement-policy", "reserve-policy",
}

// register leaves the default's types alone in a table, until they are put back.
func register[T any](table map[string]T) out {
	all := maps.Clone(table)
	maps.DeleteFunc(table, func(name string, _ T) bool { return !slices.Contains(defaultTypes, name) })
	return out{len(all) - len(table), len(table), func() { maps.Copy(table, all) }}
}

// out is what register has taken out of a table.
type out struct {
	gone, left int
	putBack    func()
}

// withDefaultTypes returns the default pick among 10 endpoints where no other type is registered, and how many others
// there are.
func withDefaultTypes(t testing.TB) (s *scene, others int) {
	tables := []out{
		register(scorers.Types), register(filters.Types), register(pickers.Types), register(profiles.Types),
		register(deciders.Types), register(admitters.Types), register(detectors.Types),
		register(fairness.Types), register(orderings.Types), register(displacements.Types),
		register(ceilings.Types), register(evictions.Types), register(points.Types),
	}
	left := 0
	for _, table := range tables {
		defer table.putBack()
		left, others = left+table.left, others+table.gone
	}
	if left != len(defaultTypes) {
		t.Fatalf("%d types are left, want %v", left, defaultTypes)
	}
	return withTypes(t, 0), others
}

// withTypes returns the default pick among 10 endpoints under the whole catalogue and so many types more, none of which
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
	without, others := withDefaultTypes(t)
	if others < 50 {
		t.Errorf("%d further types are built in, want 50 or more", others)
	}
	with := withTypes(t, 300)
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

// BenchmarkUnusedTypes picks in turns with the default's types alone, and with the whole catalogue and 300 types more,
// and reports the ratio.
func BenchmarkUnusedTypes(b *testing.B) {
	without, _ := withDefaultTypes(b)
	with := withTypes(b, 300)
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
