package signalbox

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// passage takes requests that find room through a picker with one loop and ten servers, one after the other.
type passage struct {
	*Picker
	answer chan messages.StreamMsg
	last   messages.RequestID
}

// ways are how requests pass: without the feature gate flowControl, and with it and a detector.
var ways = []string{"without", "concurrency-detector", "learning-detector"}

// newPassage returns a passage under a configuration for one of the ways.
func newPassage(tb testing.TB, way string) *passage {
	tb.Helper()
	gated, detector := way != ways[0], way
	if !gated {
		detector = ways[1]
	}
	cfg, err := config.Load([]byte(fmt.Sprintf(`apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
featureGates: ["flowControl=%[1]t"]
plugins: [{type: %[2]s}, {type: queue-scorer}, {type: max-score-picker}]
schedulingProfiles:
- {name: default, plugins: [{pluginRef: queue-scorer}, {pluginRef: max-score-picker}]}
flowControl: {saturationDetector: {pluginRef: %[2]s}}
`, gated, detector)), config.Settings{Destinations: 1, Stale: time.Hour})
	if err != nil {
		tb.Fatal(err)
	}
	p, err := New(Config{
		Runtime: runtime.Config{Loops: 1}, Plan: cfg.Plan, Queueing: cfg.Queueing,
		Limits: cycle.Limits{
			Queue: time.Minute, Pick: time.Minute, FirstToken: time.Hour, ResponseIdle: time.Hour, Logged: time.Hour,
		},
		Records: Records{Entries: 4096, Bytes: 16 << 20}, PoolName: "pool", Scraper: scraper.Config{},
	}, World{
		Metrics: prometheus.NewRegistry(), Report: func(*messages.Record) {},
		Status: func(messages.Reason) int { return 503 },
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	var specs []messages.EndpointSpec
	for i := range 10 {
		at := messages.Address(fmt.Sprintf("127.0.0.1:%d", i+1))
		specs = append(specs, messages.EndpointSpec{Name: string(at), Namespace: "n", Address: at})
	}
	p.Discovery().Post(messages.EndpointsDiscovered{Version: 1, Endpoints: messages.TakeList(specs)})
	for len(p.Pool().Snapshot().Endpoints) == 0 {
		<-time.After(time.Millisecond)
	}
	return &passage{Picker: p, answer: make(chan messages.StreamMsg, 1)}
}

func (p *passage) Tell(m messages.StreamMsg) bool {
	if _, due := m.(messages.AnswerDue); !due {
		p.answer <- m
	}
	return true
}

// request takes one request from its arrival to the end of its response.
func (p *passage) request(tb testing.TB) {
	p.last++
	now := p.System().Now()
	port, ok := p.InForce().Start(messages.RequestArrived{
		Request:       messages.Request{ID: p.last, Model: "m", PromptTokens: 100, BodyBytes: 400, Visible: true},
		Configuration: 1, Flow: messages.FlowKey{Fairness: messages.DefaultFairness}, ArrivedAt: now,
		Deadline: now.Add(time.Hour), Stream: p,
	})
	if !ok {
		tb.Fatal("it was refused")
	}
	if m, picked := (<-p.answer).(messages.PickMade); !picked {
		tb.Fatalf("told %+v", m)
	}
	port.Post(messages.ResponseStarted{Status: 200, At: now})
	port.Post(messages.FirstTokenSeen{At: now})
	port.Post(messages.ResponseEnded{At: now, ResponseBytes: 100})
	port.Post(messages.StreamGone{Completed: true})
}

// BenchmarkRequest is what all actors do for a request, with the feature gate flowControl and without.
func BenchmarkRequest(b *testing.B) {
	for _, way := range ways {
		b.Run(way, func(b *testing.B) {
			p := newPassage(b, way)
			b.ReportAllocs()
			for b.Loop() {
				p.request(b)
			}
		})
	}
}

// A request that finds room costs little more with the gate than without.
func TestGateAddsFewAllocations(t *testing.T) {
	allocations := map[string]float64{}
	for _, way := range ways {
		p := newPassage(t, way)
		allocations[way] = testing.AllocsPerRun(1000, func() { p.request(t) })
	}
	t.Logf("allocations: %v", allocations)
	for _, way := range ways[1:] {
		if more := allocations[way] - allocations[ways[0]]; more > 4 {
			t.Errorf("the gate with %s adds %v allocations to a request, want 4 at most", way, more)
		}
	}
}
