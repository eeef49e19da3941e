// Package scheduletest shows endpoints to one plugin, as a scheduler does.
//
// It owns nothing that decides: the plugin sees what a real scheduler makes of real endpoints.
package scheduletest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// Endpoint is one endpoint that the plugin sees.
type Endpoint struct {
	Labels       map[string]string
	Sample       endpoints.Sample // fresh
	Inflight     int              // requests
	PrefixBlocks int              // of the request
}

// Show binds the plugin and calls look with an input that has these endpoints as candidates, in this order.
func Show(t *testing.T, plugin any, req *messages.Request, look func(*schedule.Input), all ...Endpoint) {
	t.Helper()
	now := time.Unix(1_800_000_000, 0)
	held := make(matches, len(all))
	list := make([]*endpoints.Endpoint, len(all))
	for i, e := range all {
		spec := messages.EndpointSpec{
			Address: messages.Address(fmt.Sprintf("10.0.0.%d:80", i)), Labels: messages.MapOf(e.Labels),
		}
		list[i], held[i] = endpoints.New(messages.EndpointID{Slot: uint32(i), Generation: 1}, spec), e.PrefixBlocks
		e.Sample.At = now
		w := endpoints.SampleWriter{Endpoint: list[i]}
		for range e.Inflight {
			endpoints.LoadWriter{Endpoint: list[i]}.Add(0)
		}
		number := w.BeginScrape() // the queue of the sample has all that is in flight
		w.Publish(&e.Sample)
		w.SampleInForce(number)
	}
	layout, slots := bind(t, plugin)
	plan := schedule.NewPlan([]schedule.Profile{{
		Scorers: []schedule.ScorerStep{{Step: schedule.Step{Reads: slots}, Scorer: looker(look)}},
		Picker:  schedule.PickerStep{Picker: first{}},
	}}, layout, once{}, time.Second)
	s := schedule.NewScheduler(schedule.Tools{Clock: stopped{}, Matcher: held, Rand: rand.New(rand.NewPCG(1, 2))})
	if out := s.Run(plan, req, endpoints.NewSnapshot(1, list), now); out.Reason != messages.NoReason {
		t.Fatalf("%v: %s", out.Reason, out.Detail)
	}
}

// bind has the plugin declare what it reads, of all that is built in, and of example.com/watts of an "extractor".
func bind(t *testing.T, plugin any) (*attributes.Layout, []attributes.Slot) {
	t.Helper()
	var b attributes.Binding
	b.Emit("built in", attributes.BuiltIn()...)
	b.Emit("extractor", attributes.Attribute{Name: "example.com/watts"})
	r := b.Reader("plugin")
	if p, ok := plugin.(schedule.Reader); ok {
		p.Declare(r)
	}
	layout, faults := b.Layout()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return layout, r.Slots()
}

type looker func(*schedule.Input)

func (f looker) Score(in *schedule.Input, _ []float32) { f(in) }

type first struct{}

func (first) Pick(_ *schedule.Input, _ []float32, ranked []int) []int { return append(ranked, 0) }

type once struct{}

func (once) Next(_ *messages.Request, _ []string, earlier []schedule.Result) int {
	return -len(earlier)
}

func (once) Primary([]schedule.Result) int { return 0 }

type stopped struct{}

func (stopped) Nanos() int64 { return 0 }

type matches []int

func (m matches) Match(_ blockindex.Prompt, out []int) int { return copy(out, m) }
