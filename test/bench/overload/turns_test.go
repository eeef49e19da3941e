package overload

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// saturated is a picker with requests, of which some run and all others wait.
type saturated struct {
	*signalbox.Picker
	running chan *client
	last    atomic.Uint64
}

// client is one of them.
type client struct {
	of   *saturated
	port messages.Port[messages.CycleMsg]
	made chan struct{} // closed once port is set
}

func (c *client) Tell(m messages.StreamMsg) bool {
	if _, made := m.(messages.PickMade); made {
		c.of.running <- c
	}
	return true
}

// come has a request come.
func (c *saturated) come(b *testing.B) {
	id, now := messages.RequestID(c.last.Add(1)), c.System().Now()
	r := &client{of: c, made: make(chan struct{})}
	port, ok := c.InForce().Start(messages.RequestArrived{
		Request:       messages.Request{ID: id, Model: "m", PromptTokens: 100, Stream: true, Visible: true},
		Configuration: 1, Flow: flow(fmt.Sprint("tenant-", id%100), 0), ArrivedAt: now, Deadline: now.Add(time.Hour),
		Stream: r,
	})
	if !ok {
		b.Error("refused")
	}
	r.port = port
	close(r.made)
}

// leave has one that runs end, by which another one may run.
func (c *saturated) leave() {
	r := <-c.running
	<-r.made
	r.port.Post(messages.StreamGone{})
}

// BenchmarkTurns is what a turn costs while 100 000 requests wait, with the coming and going of the requests: in each
// step one leaves a full server, another one comes, and the one that is next is picked for.
func BenchmarkTurns(b *testing.B) {
	gate := "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nfeatureGates: [flowControl]\n" +
		"dataLayer: {injectDefaults: false}\n"
	band := "defaultPriorityBand: {maxRequests: 200k, fairnessPolicyRef: round-robin-fairness-policy}"
	for _, c := range []struct{ name, text string }{
		{"learning", gate + "plugins: [{type: round-robin-fairness-policy}]\nflowControl: {" + band + "}\n"},
		{"concurrency", gate + "plugins: [{type: active-request-scorer}, {type: round-robin-fairness-policy}, " +
			"{type: concurrency-detector, parameters: {maxConcurrency: 16}}]\n" +
			"flowControl: {saturationDetector: {pluginRef: concurrency-detector}, " + band + "}\n"},
	} {
		for _, servers := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", c.name, servers), func(b *testing.B) { turns(b, c.text, servers) })
		}
	}
}

func turns(b *testing.B, text string, servers int) {
	const waiting, loops = 100_000, 2
	c := &saturated{Picker: open(b, text, loops, servers), running: make(chan *client, 2*waiting)}
	for _, e := range c.Pool().Snapshot().Endpoints {
		endpoints.WindowWriter{Endpoint: e}.SetWindow(endpoints.Room{Requests: 16, Found: true})
	}
	for range waiting + 16*servers {
		c.come(b)
	}
	if n := len(c.running); n > 16*servers {
		b.Fatalf("%d run, want %d at most", n, 16*servers)
	}
	began := used()
	b.ResetTimer()
	var steps sync.WaitGroup
	for i := range loops {
		steps.Go(func() {
			for range (b.N + i) / loops {
				c.leave()
				c.come(b)
			}
		})
	}
	steps.Wait()
	b.StopTimer()
	b.ReportMetric(float64(used()-began)/float64(b.N), "cpu-ns/op")
}

// used returns how much time of processors the process has used.
func used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
