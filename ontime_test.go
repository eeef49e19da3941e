package signalbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	longestWait  = 30 * time.Second
	withoutAny   = 5 * time.Second
	mostLate     = 250 * time.Millisecond
	closedWithin = 300 * time.Millisecond
)

// punctual is a picker in virtual time, whose clients note when they are answered.
type punctual struct {
	*stand
	last    messages.RequestID
	clients []*punctualClient
}

// punctualClient is one request that must wait.
type punctualClient struct {
	*punctual
	due      time.Time
	answered []messages.StreamMsg
	at       time.Time
}

func newPunctual(t *testing.T, loops int) *punctual {
	t.Helper()
	cfg, err := config.Load(fmt.Appendf(nil, `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
featureGates: [flowControl]
dataLayer: {injectDefaults: false}
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: %d}}
- {type: round-robin-fairness-policy}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultRequestTTL: %v
  noEndpointRequestTTL: %v
  defaultPriorityBand: {fairnessPolicyRef: round-robin-fairness-policy}
`, bound, longestWait, withoutAny), config.Settings{Destinations: 1, Stale: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	p := &punctual{stand: &stand{t: t, registry: prometheus.NewRegistry()}}
	settings := p.settings(1)
	settings.Runtime.Loops = loops
	settings.Plan, settings.Queueing, settings.Scraper = cfg.Plan, cfg.Queueing, scraper.Config{}
	if p.Picker, err = New(settings, p.world()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (c *punctualClient) Tell(m messages.StreamMsg) bool {
	if _, due := m.(messages.AnswerDue); !due {
		c.answered, c.at = append(c.answered, m), c.System().Now()
	}
	return true
}

// asks begins a request that waits so long at most, as its client says; 0 = it does not.
func (p *punctual) asks(patience, most time.Duration) {
	p.t.Helper()
	p.last++
	now := p.System().Now()
	c := &punctualClient{punctual: p, due: now.Add(most)}
	if patience > 0 && patience < most {
		c.due = now.Add(patience)
	}
	_, ok := p.InForce().Start(messages.RequestArrived{
		Request: messages.Request{ID: p.last, Model: "m", PromptTokens: 10}, Configuration: 1, Patience: patience,
		Flow: messages.FlowKey{Fairness: fmt.Sprint(p.last % 7)}, ArrivedAt: now, Deadline: now.Add(time.Hour),
		Stream: c,
	})
	if !ok {
		p.t.Fatalf("request %d was refused", p.last)
	}
	p.clients = append(p.clients, c)
}

// passes lets time pass.
func (p *punctual) passes(d time.Duration) { runtimetest.Inspect(p.System()).StepUntil(d) }

// fill has as many requests run as two servers take.
func (p *punctual) fill() {
	p.t.Helper()
	p.discover(2)
	for range 2 * bound {
		p.asks(0, longestWait)
	}
	p.passes(time.Millisecond)
	for _, c := range p.clients {
		if len(c.answered) != 1 {
			p.t.Fatalf("a request for servers that have room was told %+v", c.answered)
		}
	}
	p.clients = nil
}

// crowds has a thousand requests wait that come within two seconds. Many clients say for how long.
func (p *punctual) crowds(most time.Duration) {
	dice := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		patience := time.Duration(0)
		if i%4 > 0 {
			patience = time.Duration(1 + dice.Int64N(int64(2*most)))
		}
		p.asks(patience, most)
		if i%10 == 9 {
			p.passes(20 * time.Millisecond)
		}
	}
}

// wants wants each request to be refused once, for a reason, and no more than so late.
func (p *punctual) wants(why messages.Reason, late time.Duration) {
	p.t.Helper()
	for i, c := range p.clients {
		if len(c.answered) != 1 {
			p.t.Fatalf("request %d was told %+v, want one answer", i, c.answered)
		}
		failed, ok := c.answered[0].(messages.PickFailed)
		if after := c.at.Sub(c.due); !ok || failed.Reason != why || failed.RetryAfter < time.Second || after < 0 ||
			after > late {
			p.t.Fatalf("request %d was told %+v, %v after its time; want %v within %v", i, c.answered[0], after, why,
				late)
		}
	}
	if n := p.Waiting(); n > 0 {
		p.t.Errorf("%d wait", n)
	}
}

// A wait ends when its time is over, whatever other requests wait: 0.25 s late at most.
func TestWaitsEndOnTime(t *testing.T) {
	for _, loops := range []int{1, 4, 16} {
		t.Run(fmt.Sprint(loops, " loops, full servers"), func(t *testing.T) {
			p := newPunctual(t, loops)
			p.fill()
			p.crowds(longestWait)
			p.passes(longestWait + mostLate)
			p.wants(messages.TTLExpired, mostLate)
		})
		t.Run(fmt.Sprint(loops, " loops, no server"), func(t *testing.T) {
			p := newPunctual(t, loops)
			p.crowds(withoutAny)
			p.passes(withoutAny + mostLate)
			p.wants(messages.NoEndpoints, mostLate)
		})
	}
}

// A thousand that wait are answered within 0.3 s when the line is closed.
func TestClosedLineAnswersAllAtOnce(t *testing.T) {
	for _, loops := range []int{1, 4, 16} {
		t.Run(fmt.Sprint(loops, " loops"), func(t *testing.T) {
			p := newPunctual(t, loops)
			p.fill()
			for range 1000 {
				p.asks(0, longestWait)
			}
			p.passes(time.Second)
			if n := p.Waiting(); n != 1000 {
				t.Fatalf("%d wait, want 1000", n)
			}
			for _, c := range p.clients {
				c.due = p.System().Now()
			}
			p.CloseLine()
			p.passes(closedWithin)
			p.wants(messages.ShuttingDown, closedWithin)
		})
	}
}
