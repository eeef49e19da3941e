package signalbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// crowd plays many clients of a picker that runs, whose servers take three requests each.
type crowd struct {
	*Picker
	*testing.T
	most atomic.Int64 // requests that a server had at a time
	mu   sync.Mutex
	went []messages.RequestID // in the order in which they were picked for
}

const bound = 3

func newCrowd(t *testing.T, loops int) *crowd {
	t.Helper()
	return newCrowdUnder(t, loops, fmt.Sprintf(`plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: %d}}
- {type: round-robin-fairness-policy}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultPriorityBand: {fairnessPolicyRef: round-robin-fairness-policy}
`, bound))
}

// newCrowdUnder has the clients of a picker with a configuration, whose gate is on and which reads no pages.
func newCrowdUnder(t *testing.T, loops int, text string) *crowd {
	t.Helper()
	cfg, err := config.Load([]byte(`apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
featureGates: [flowControl]
dataLayer: {injectDefaults: false}
`+text), config.Settings{Destinations: 1, Stale: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{t: t, registry: prometheus.NewRegistry()}
	settings := s.settings(1)
	settings.Runtime = runtime.Config{Loops: loops}
	settings.Plan, settings.Queueing, settings.Scraper = cfg.Plan, cfg.Queueing, scraper.Config{}
	world := s.world()
	world.Report = func(*messages.Record) {}
	p, err := New(settings, world)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &crowd{Picker: p, T: t}
}

// discover tells of so many servers.
func (c *crowd) discover(n int) {
	var specs []messages.EndpointSpec
	for i := range n {
		at := messages.Address(fmt.Sprintf("127.0.0.1:%d", i+1))
		specs = append(specs, messages.EndpointSpec{Name: string(at), Namespace: "n", Address: at})
	}
	c.Discovery().Post(messages.EndpointsDiscovered{Version: uint64(n), Endpoints: messages.TakeList(specs)})
}

// look notes how full servers are.
func (c *crowd) look() {
	for _, e := range c.Pool().Snapshot().Endpoints {
		for n := int64(e.Inflight()); ; {
			most := c.most.Load()
			if n <= most || c.most.CompareAndSwap(most, n) {
				break
			}
		}
	}
}

// client is one request.
type client struct {
	*crowd
	id       messages.RequestID
	answered chan messages.StreamMsg
}

func (c *client) Tell(m messages.StreamMsg) bool {
	if _, due := m.(messages.AnswerDue); due {
		return true
	}
	c.look()
	if _, picked := m.(messages.PickMade); picked {
		c.mu.Lock()
		c.went = append(c.went, c.id)
		c.mu.Unlock()
	}
	c.answered <- m
	return true
}

// asks begins a request.
func (c *crowd) asks(id messages.RequestID, key messages.FlowKey) (*client, messages.Port[messages.CycleMsg]) {
	c.Helper()
	return c.begins(messages.Request{ID: id, Model: "m", PromptTokens: 10, Priority: key.Priority}, key)
}

func (c *crowd) begins(r messages.Request, key messages.FlowKey) (*client, messages.Port[messages.CycleMsg]) {
	c.Helper()
	now, stream := c.System().Now(), &client{c, r.ID, make(chan messages.StreamMsg, 1)}
	port, ok := c.InForce().Start(messages.RequestArrived{
		Request: r, Configuration: 1, Flow: key, ArrivedAt: now, Deadline: now.Add(time.Hour), Stream: stream,
	})
	if !ok {
		c.Errorf("request %d was refused", r.ID)
	}
	return stream, port
}

// fill has so many servers be full, and returns the ports of what they run.
func (c *crowd) fill(servers int) (ports []messages.Port[messages.CycleMsg]) {
	for id := range messages.RequestID(servers * bound) {
		stream, port := c.asks(100_000+id, messages.FlowKey{Fairness: "first"})
		<-stream.answered
		ports = append(ports, port)
	}
	return ports
}

// The bound of a server holds whatever loops pick at once, nobody is forgotten, and some leave while they wait.
func TestBoundIsNeverExceeded(t *testing.T) {
	for _, loops := range []int{1, 4, 16} {
		t.Run(fmt.Sprint(loops, " loops"), func(t *testing.T) {
			defer goleak.VerifyNone(t)
			c := newCrowd(t, loops)
			c.discover(2)
			first := c.fill(2)
			var all sync.WaitGroup
			var served, left atomic.Int64
			for worker := range 64 {
				all.Go(func() {
					dice := rand.New(rand.NewPCG(uint64(worker), 1))
					for i := range 40 {
						id := messages.RequestID(worker*1000 + i + 1)
						stream, port := c.asks(id, messages.FlowKey{
							Fairness: fmt.Sprint(worker % 5), Priority: worker % 3,
						})
						patience := time.NewTimer(20 * time.Second)
						if dice.IntN(10) == 0 {
							patience.Reset(time.Duration(dice.IntN(1000)) * time.Microsecond)
						}
						select {
						case m := <-stream.answered:
							if _, ok := m.(messages.PickMade); !ok {
								t.Errorf("request %d was told %+v", id, m)
							}
							served.Add(1)
						case <-patience.C:
							left.Add(1)
						}
						port.Post(messages.StreamGone{Completed: true})
					}
				})
			}
			c.until("others wait", func() bool { return c.line.Len() >= bound })
			for _, port := range first {
				port.Post(messages.StreamGone{Completed: true})
			}
			all.Wait()
			t.Logf("%d served, %d left", served.Load(), left.Load())
			if served.Load() < 1000 {
				t.Errorf("%d were served", served.Load())
			}
			if most := c.most.Load(); most != bound {
				t.Errorf("a server had %d requests at a time, want %d at most and once", most, bound)
			}
			c.empty()
		})
	}
}

// empty wants nothing to be left.
func (c *crowd) empty() {
	c.Helper()
	c.until("no load is left", func() bool {
		load := 0
		for _, e := range c.Pool().Snapshot().Endpoints {
			load += e.Inflight()
		}
		return load == 0
	})
	c.until("nobody waits", func() bool { return !c.line.Waits() })
}

// until waits until something is so.
func (c *crowd) until(what string, so func() bool) {
	c.Helper()
	for end := time.Now().Add(10 * time.Second); !so(); {
		if time.Now().After(end) {
			c.Fatalf("never: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

// The line has one order over all loops: by priority, then the flows in turn, then by arrival.
func TestOrderHoldsOverAllLoops(t *testing.T) {
	for _, loops := range []int{1, 2, 16} {
		t.Run(fmt.Sprint(loops, " loops"), func(t *testing.T) {
			c := newCrowd(t, loops)
			c.discover(1)
			ports := map[messages.RequestID]messages.Port[messages.CycleMsg]{}
			for id := range messages.RequestID(bound) { // the server is full
				stream, port := c.asks(id+1, messages.FlowKey{Fairness: "x"})
				<-stream.answered
				ports[id+1] = port
			}
			keys := []messages.FlowKey{
				{Fairness: "a"}, {Fairness: "a"}, {Fairness: "a"}, {Fairness: "b"}, {Fairness: "a", Priority: 1},
				{Fairness: "b"}, {Fairness: "a", Priority: -1},
			}
			streams := map[messages.RequestID]*client{}
			for i, key := range keys {
				id := messages.RequestID(10 + i)
				streams[id], ports[id] = c.asks(id, key)
				c.until("it waits", func() bool { return c.line.Len() == i+1 })
			}
			want := []messages.RequestID{14, 10, 13, 11, 15, 12, 16}
			for i, id := range want {
				ports[1].Post(messages.StreamGone{Completed: true}) // one of those that are served ends
				ports[1] = ports[id]
				if i < bound-1 {
					ports[1] = ports[messages.RequestID(i)+2]
				}
				select {
				case <-streams[id].answered:
				case <-time.After(10 * time.Second):
					t.Fatalf("request %d was not next; they went as %v", id, c.went)
				}
			}
			for _, port := range ports {
				port.Post(messages.StreamGone{Completed: true})
			}
			if got := c.went[bound:]; !slices.Equal(got, want) {
				t.Errorf("they went as %v, want %v", got, want)
			}
			c.empty()
		})
	}
}

// A request is not held up by those that wait for room at other servers: neither by ones of another subset, nor by ones
// that filters send elsewhere.
func TestRequestsWaitForTheirOwnServersAlone(t *testing.T) {
	to := func(i int) messages.Request {
		return messages.Request{
			Model: fmt.Sprint("model-", i),
			Subset: messages.Subset{
				Given: true, Addresses: messages.ListOf(messages.Address(fmt.Sprintf("127.0.0.1:%d", i%2+1))),
			},
		}
	}
	header := func(i int) messages.Request {
		return messages.Request{Model: "m", Headers: messages.ListOf(messages.HeaderValue{
			Given: true, Text: fmt.Sprintf("127.0.0.1:%d", i%2+1),
		})}
	}
	for name, c := range map[string]struct {
		request func(i int) messages.Request
		filter  string
	}{
		"subset": {to, ""},
		"filter": {header, "- {type: header-based-testing-filter}\nschedulingProfiles:\n- name: default\n" +
			"  plugins: [{pluginRef: header-based-testing-filter}]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			crowd := newCrowdUnder(t, 2, fmt.Sprintf("plugins:\n"+
				"- {type: concurrency-detector, parameters: {maxConcurrency: %d}}\n%s"+
				"flowControl: {saturationDetector: {pluginRef: concurrency-detector}}\n", bound, c.filter))
			crowd.discover(2)
			var ports []messages.Port[messages.CycleMsg]
			id := messages.RequestID(0)
			ask := func(i int) *client {
				id++
				r := c.request(i)
				r.ID, r.PromptTokens = id, 10
				stream, port := crowd.begins(r, messages.FlowKey{Fairness: "a"})
				ports = append(ports, port)
				return stream
			}
			for range bound {
				<-ask(0).answered
			}
			for i := range 80 { // of as many models as there are subsets, where that matters
				ask(2 * i)
			}
			crowd.until("they wait", func() bool { return crowd.line.Len() == 80 })
			for i := range bound {
				select {
				case <-ask(2*i + 1).answered:
				case <-time.After(10 * time.Second):
					t.Fatal("a request for the server that has room waits")
				}
			}
			for _, port := range ports {
				port.Post(messages.StreamGone{Completed: true})
			}
			crowd.empty()
		})
	}
}

// Requests that waited for the same server do not hold up each other when another one joins that would do for some of
// them. The others still wait for room at the first.
func TestNewServerIsForThoseThatMayUseIt(t *testing.T) {
	for _, loops := range []int{1, 4, 16} {
		t.Run(fmt.Sprint(loops, " loops"), func(t *testing.T) {
			c := newCrowdUnder(t, loops, fmt.Sprintf(headed, bound))
			c.discover(1)
			var ports []messages.Port[messages.CycleMsg]
			ask := func(priority int, servers string) *client {
				stream, port := c.begins(messages.Request{
					ID: messages.RequestID(len(ports) + 1), Model: "m", PromptTokens: 10, Priority: priority,
					Headers: messages.ListOf(messages.HeaderValue{Given: true, Text: servers}),
				}, messages.FlowKey{Fairness: "a", Priority: priority})
				ports = append(ports, port)
				return stream
			}
			for range bound {
				<-ask(0, "127.0.0.1:1").answered
			}
			var bide, move []*client
			for i := range 40 {
				bide = append(bide, ask(i%2, "127.0.0.1:1"))
			}
			for range bound {
				move = append(move, ask(0, "127.0.0.1:1,127.0.0.1:2"))
			}
			c.until("they wait", func() bool { return c.line.Len() == len(bide)+len(move) })
			c.discover(2)
			for _, stream := range move {
				select {
				case <-stream.answered:
				case <-time.After(10 * time.Second):
					t.Fatal("a request for the new server waits")
				}
			}
			c.until("the others wait", func() bool { return c.line.Len() == len(bide) })
			for _, port := range ports[:bound] {
				port.Post(messages.StreamGone{Completed: true})
			}
			c.until("they have the room of those that ended", func() bool { return c.line.Len() == len(bide)-bound })
			for _, port := range ports[bound:] {
				port.Post(messages.StreamGone{Completed: true})
			}
			c.empty()
		})
	}
}

// headed is a gate whose servers take so many requests each, under a filter by which a header names them.
const headed = `plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: %d}}
- {type: header-based-testing-filter}
schedulingProfiles: [{name: default, plugins: [{pluginRef: header-based-testing-filter}]}]
flowControl: {saturationDetector: {pluginRef: concurrency-detector}}
`

// So it is for requests that came while the pool was empty, when it could not be known where they would go.
func TestRequestsOfAnEmptyPoolWaitForTheirOwnServersAlone(t *testing.T) {
	c := newCrowdUnder(t, 2, fmt.Sprintf(headed, bound))
	var ports []messages.Port[messages.CycleMsg]
	ask := func(server int) *client {
		stream, port := c.begins(messages.Request{
			ID: messages.RequestID(len(ports) + 1), Model: "m", PromptTokens: 10,
			Headers: messages.ListOf(messages.HeaderValue{Given: true, Text: fmt.Sprintf("127.0.0.1:%d", server)}),
		}, messages.FlowKey{Fairness: "a"})
		ports = append(ports, port)
		return stream
	}
	for range 20 {
		ask(1)
	}
	var others []*client
	for range bound {
		others = append(others, ask(2))
	}
	c.until("they wait", func() bool { return c.line.Len() == len(ports) })
	c.discover(2)
	for _, other := range others {
		select {
		case <-other.answered:
		case <-time.After(10 * time.Second):
			t.Fatal("a request for the server that has room waits")
		}
	}
	for _, port := range ports {
		port.Post(messages.StreamGone{Completed: true})
	}
	c.empty()
}
