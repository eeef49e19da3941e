package signalbox

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// newcomers is a picker in virtual time whose pool begins empty. Each server's pages take as long as its place says.
type newcomers struct {
	*stand
	took map[messages.Address]time.Duration
	due  []duePage
	told []*newcomersClient
}

type duePage struct {
	page
	at time.Time
}

// newcomersClient is one request.
type newcomersClient struct {
	*newcomers
	asked, at time.Time
	to        messages.Address // "" = it was not picked for
}

func (c *newcomersClient) Tell(m messages.StreamMsg) bool {
	switch m := m.(type) {
	case messages.PickMade:
		c.to, c.at = m.Destinations.At(0), c.System().Now()
	case messages.PickFailed:
		c.t.Errorf("a request was told %+v", m)
	}
	return true
}

func (n *newcomers) FetchMetrics(
	spec messages.EndpointSpec, _ string, number uint32, to messages.Port[messages.ScraperMsg],
) bool {
	n.due = append(n.due, duePage{page{number, to}, n.System().Now().Add(n.took[spec.Address])})
	return true
}

// newNewcomers returns a picker under a file; "" = without one, with flow control.
func newNewcomers(t *testing.T, text string) *newcomers {
	t.Helper()
	defaults := config.Settings{Destinations: 1, Stale: 5 * time.Second}
	cfg, err := config.Load([]byte("apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\n"+text), defaults)
	if text == "" {
		defaults.Gates = []string{"flowControl=true"}
		cfg, err = config.Default(defaults)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := &newcomers{stand: &stand{t: t, registry: prometheus.NewRegistry()}, took: map[messages.Address]time.Duration{}}
	settings, world := n.settings(1), n.world()
	settings.Plan, settings.Queueing, world.Fetcher = cfg.Plan, cfg.Queueing, n
	if n.Picker, err = New(settings, world); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// asks begins a request.
func (n *newcomers) asks(id messages.RequestID) {
	n.t.Helper()
	now := n.System().Now()
	c := &newcomersClient{newcomers: n, asked: now}
	n.told = append(n.told, c)
	if _, ok := n.InForce().Start(messages.RequestArrived{
		Request: messages.Request{ID: id, Model: "m", PromptTokens: 1000}, Configuration: 1,
		Flow:      messages.FlowKey{Fairness: messages.DefaultFairness},
		ArrivedAt: now, Deadline: now.Add(time.Hour), Stream: c,
	}); !ok {
		n.t.Fatalf("request %d was refused", id)
	}
}

// passes lets time pass in which pages come.
func (n *newcomers) passes(d time.Duration) {
	for end := n.System().Now().Add(d); n.System().Now().Before(end); {
		runtimetest.Inspect(n.System()).StepUntil(time.Millisecond)
		due := n.due
		n.due = nil
		for _, p := range due {
			if n.System().Now().Before(p.at) {
				n.due = append(n.due, p)
				continue
			}
			p.to.Post(messages.ScrapeFinished{Number: p.number, Reading: endpointstest.Told{
				attributes.QueuedRequests: 0, attributes.RunningRequests: 0, attributes.KVCacheUsage: 0.0,
			}.Reading("vllm")})
		}
	}
}

// announce tells of four servers that are asked for their first pages at once, and whose pages take so long, one more
// than the other.
func (n *newcomers) announce(step time.Duration) {
	for i := range 4 {
		n.took[messages.Address(fmt.Sprintf("127.0.0.1:%d", i+1))] = time.Duration(i) * step
	}
	n.discover(4)
}

// spread wants requests to be picked for in time after a moment, and evenly.
func (n *newcomers) spread(what string, clients []*newcomersClient, since time.Time) {
	n.t.Helper()
	went := map[messages.Address]int{}
	for i, c := range clients {
		if went[c.to]++; c.to == "" || c.at.Sub(since) > 500*time.Millisecond {
			n.t.Fatalf("%s: %d of %d was picked for after %v, at %q", what, i+1, len(clients), c.at.Sub(since), c.to)
		}
		if went[c.to] > 8 {
			n.t.Fatalf("%s: %s has more than 8 of %d", what, c.to, len(clients))
		}
	}
}

// Servers that come together share the requests, though the first page of one is there long before those of others.
func TestServersThatComeTogetherShareTheRequests(t *testing.T) {
	const weights = `
- {type: queue-scorer}
- {type: kv-cache-utilization-scorer}
- {type: prefix-cache-scorer}
- {type: max-score-picker}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
  - {pluginRef: max-score-picker}
`
	for name, c := range map[string]struct {
		text  string
		waits bool // requests wait for the servers
	}{
		"without a file": {"", true},
		"windows":        {"featureGates: [flowControl]\nplugins:" + weights, true},
		"utilization": {"featureGates: [flowControl]\nplugins:\n- {type: utilization-detector}" + weights +
			"flowControl: {saturationDetector: {pluginRef: utilization-detector}}\n", true},
		"without flow control": {"plugins:" + weights, false},
	} {
		for _, step := range []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, 3 * time.Second} {
			t.Run(fmt.Sprint(name, ", pages ", step, " apart"), func(t *testing.T) {
				n := newNewcomers(t, c.text)
				for id := range messages.RequestID(20) {
					if c.waits {
						n.asks(id + 1)
					}
				}
				n.passes(50 * time.Millisecond)
				n.announce(step)
				n.passes(time.Millisecond)
				announced := n.System().Now()
				if c.waits {
					n.passes(500 * time.Millisecond)
					n.spread("those that waited", n.told, announced)
					return
				}
				n.await("a first page", func() bool { n.passes(time.Millisecond); return n.endpoint().Sample() != nil })
				for id := range messages.RequestID(20) {
					n.asks(id + 101)
				}
				n.passes(time.Millisecond)
				n.spread("those that came then", n.told, n.System().Now())
			})
		}
	}
}

// A server that joins others waits for its first page, as long as they have theirs.
func TestServerThatJoinsOthersWaitsForItsPage(t *testing.T) {
	n := newNewcomers(t, "plugins: [{type: queue-scorer}]\n")
	n.discover(1)
	n.passes(2 * time.Second)
	n.took["127.0.0.1:2"] = time.Hour
	n.discover(2)
	n.passes(150 * time.Millisecond)
	for id := range messages.RequestID(20) {
		n.asks(id + 1)
	}
	n.passes(time.Millisecond)
	for i, c := range n.told {
		if c.to != "127.0.0.1:1" {
			t.Fatalf("request %d went to %q, whose page is to come", i, c.to)
		}
	}
}
