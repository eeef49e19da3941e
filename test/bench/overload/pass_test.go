package overload

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox"
	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// picked notes the pick of one request.
type picked struct{ to messages.Address }

func (p *picked) Tell(m messages.StreamMsg) bool {
	if made, ok := m.(messages.PickMade); ok {
		p.to = made.Destinations.At(0)
	}
	return true
}

// pages has none.
type pages struct{}

func (pages) FetchMetrics(messages.EndpointSpec, string, uint32, messages.Port[messages.ScraperMsg]) bool {
	return false
}
func (pages) FetchModels(messages.EndpointSpec, uint32, messages.Port[messages.ScraperMsg]) bool {
	return false
}

// open starts a picker over so many servers, which is closed when the benchmark ends.
func open(b *testing.B, text string, loops, servers int) *signalbox.Picker {
	b.Helper()
	cfg, err := config.Load([]byte(text), config.Settings{Destinations: 1, Stale: time.Second})
	if err != nil {
		b.Fatal(err)
	}
	cfg.Plan.Observe(unseen{})
	long := 24 * time.Hour
	p, err := signalbox.New(signalbox.Config{
		Runtime: runtime.Config{Loops: loops}, Plan: cfg.Plan, Queueing: cfg.Queueing,
		Limits:  cycle.Limits{Queue: long, Pick: long, FirstToken: long, ResponseIdle: long, Logged: long},
		Records: signalbox.Records{Entries: 64, Bytes: 1 << 20}, PoolName: "pool",
	}, signalbox.World{
		Metrics: prometheus.NewRegistry(), Fetcher: pages{}, Checker: absent{},
		Report: func(*messages.Record) {}, Status: func(messages.Reason) int { return 0 },
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	var specs []messages.EndpointSpec
	for i := range servers {
		at := messages.Address(fmt.Sprintf("127.0.0.1:%d", i+1))
		specs = append(specs, messages.EndpointSpec{Name: string(at), Namespace: "n", Address: at})
	}
	p.Discovery().Post(messages.EndpointsDiscovered{Version: 1, Endpoints: messages.TakeList(specs)})
	for len(p.Pool().Snapshot().Endpoints) == 0 {
		<-time.After(time.Millisecond)
	}
	return p
}

// BenchmarkPass is the life of a request that does not have to wait, from its arrival to its end, without flow control
// and with it.
func BenchmarkPass(b *testing.B) {
	quiet := "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins:\n- type: active-request-scorer\n" +
		"- type: concurrency-detector\ndataLayer: {injectDefaults: false}\n"
	gate := "featureGates: [flowControl]\nflowControl: {"
	for _, c := range []struct{ name, text string }{
		{"without", quiet},
		{"learning", quiet + gate + "}\n"},
		{"concurrency", quiet + gate + "saturationDetector: {pluginRef: concurrency-detector}}\n"},
	} {
		b.Run(c.name, func(b *testing.B) {
			p, stream := open(b, c.text, 1, 10), &picked{}
			b.ReportAllocs()
			for id := messages.RequestID(1); b.Loop(); id++ {
				now := p.System().Now()
				port, ok := p.InForce().Start(messages.RequestArrived{
					Request:       messages.Request{ID: id, Model: "m", PromptTokens: 100, Stream: true},
					Configuration: 1, Flow: flow("a", 0), ArrivedAt: now, Deadline: now.Add(time.Hour), Stream: stream,
				})
				if !ok {
					b.Fatal("refused")
				}
				port.Post(messages.ResponseStarted{Status: 200, At: now})
				port.Post(messages.FirstTokenSeen{At: now.Add(time.Millisecond)})
				port.Post(messages.ResponseEnded{At: now, ResponseBytes: 900})
				port.Post(messages.StreamGone{Completed: true})
			}
			if stream.to == "" {
				b.Error("none was picked for")
			}
		})
	}
}
