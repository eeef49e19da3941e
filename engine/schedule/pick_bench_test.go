package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	promptBlocks = 32 // of 256 bytes: a prompt of 8 KB
	sharedBlocks = 19
)

// defaultPick returns the default configuration over n endpoints, of which every second one holds the shared part of
// the prompt.
func defaultPick(t testing.TB, n int) *scene {
	s := newScene(new(testing.T), n)
	c, err := config.Default(config.Settings{Destinations: 3, Stale: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s.plan = c.Plan
	s.plan.Observe(&s.counts)
	index, r := blockindex.NewIndex(0), rand.New(rand.NewPCG(3, 4))
	blocks := make([]uint64, promptBlocks)
	for i := range blocks {
		blocks[i] = r.Uint64()
	}
	for slot := range n {
		if slot%2 == 0 {
			index.Enter(uint32(slot), blockindex.Prompt{Model: "m", Blocks: messages.ListOf(blocks[:sharedBlocks]...)})
		}
		endpoints.SampleWriter{Endpoint: s.snap.Endpoints[slot]}.Publish(&endpoints.Sample{
			At: now, Interval: time.Second, Values: endpointstest.Load(r.IntN(9), r.IntN(99), r.Float64()),
		})
	}
	s.tools.Matcher = index
	s.scheduler = schedule.NewScheduler(s.tools)
	s.req = messages.Request{ID: 1, Model: "m", PromptTokens: 2048, Blocks: messages.ListOf(blocks...)}
	if out := s.run(); out.Reason != messages.NoReason || len(out.Ranked) != min(3, n) {
		t.Fatalf("%v with %d ranked", out.Reason, len(out.Ranked))
	}
	return s
}

// crowded returns a configuration with 30 plugins in its profile, over n endpoints. No filter drops any.
func crowded(t testing.TB, n int) *scene {
	text := "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins:\n"
	for i := range 5 {
		text += fmt.Sprintf("- {type: endpoint-attribute-filter, name: f%d, parameters: {attributeKey: "+
			"queued-requests, "+
			"algorithm: {threshold: {operator: LessThan, value: 1000}}}}\n", i)
	}
	for i, typ := range slices.Repeat([]string{
		"queue-scorer", "kv-cache-utilization-scorer", "prefix-cache-scorer", "running-requests-size-scorer",
		"load-aware-scorer", "active-request-scorer", "lora-affinity-scorer", "prefix-cache-scorer",
	}, 3) {
		text += fmt.Sprintf("- {type: %s, name: s%d}\n", typ, i)
	}
	c, err := config.Load([]byte(text+"- type: max-score-picker\n"),
		config.Settings{Destinations: 3, Stale: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s := defaultPick(t, n)
	s.plan = c.Plan
	s.plan.Observe(&crowd{})
	return s
}

// crowd hears of the steps of a plan and keeps nothing.
type crowd struct{}

func (crowd) PluginRan(int, time.Duration)      {}
func (crowd) PluginDecided(int, int)            {}
func (crowd) ScoreClamped(int)                  {}
func (crowd) ScoreNaN(int)                      {}
func (crowd) AllStale()                         {}
func (crowd) RunFailed(string, messages.Reason) {}
func (crowd) ShadowPicked(string, bool)         {}

// BenchmarkThirtyPlugins schedules a request with 30 plugins in the profile.
func BenchmarkThirtyPlugins(b *testing.B) {
	for _, n := range []int{10, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := crowded(b, n)
			b.ReportAllocs()
			for b.Loop() {
				s.run()
			}
		})
	}
}

func TestAllocationsOfThirtyPluginsDoNotGrowWithEndpoints(t *testing.T) {
	few := crowded(t, 3)
	want := testing.AllocsPerRun(100, func() { few.run() })
	for _, n := range []int{10, 100} {
		s := crowded(t, n)
		if got := testing.AllocsPerRun(100, func() { s.run() }); got != want {
			t.Errorf("%v allocations with %d endpoints, want %v, as with 3", got, n, want)
		}
	}
}

// BenchmarkPick schedules a request with the default configuration and a real prefix index.
func BenchmarkPick(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := defaultPick(b, n)
			b.ReportAllocs()
			for b.Loop() {
				s.run()
			}
		})
	}
}

func TestAllocationsOfTheDefaultPickDoNotGrowWithEndpoints(t *testing.T) {
	few := defaultPick(t, 3)
	want := testing.AllocsPerRun(100, func() { few.run() })
	for _, n := range []int{10, 100, 1000} {
		s := defaultPick(t, n)
		if got := testing.AllocsPerRun(100, func() { s.run() }); got != want {
			t.Errorf("%v allocations with %d endpoints, want %v, as with 3", got, n, want)
		}
	}
}
