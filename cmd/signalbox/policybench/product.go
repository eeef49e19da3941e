package policybench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox"
	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/actors/outlier"
	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/config"
	machine "github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// product is the picker that the command serves with, in front of the servers of a world.
type product struct {
	*world
	picker *signalbox.Picker
	self   runtime.Ref[worldMsg]
	ctx    runtime.Context[worldMsg]
	armed  time.Time
	timer  runtime.Timer
	pool   uint64 // version of the endpoints
}

// worldMsg is what the world's actor receives, by which it has the picker's clock.
type worldMsg interface{ worldMsg() }

type (
	opened  struct{}
	ticked  struct{}
	stirred struct{} // something is due at once
)

func (opened) worldMsg()  {}
func (ticked) worldMsg()  {}
func (stirred) worldMsg() {}

// File is a configuration of the product.
type File struct {
	Text        string // "" = none
	FlowControl bool   // the gate is on, or else off
}

func (f File) load() (*config.Config, error) {
	settings := config.Settings{Destinations: 1, Stale: 2 * time.Second, Gates: []string{"flowControl=false"}}
	if f.FlowControl {
		settings.Gates = []string{"flowControl"}
	}
	if f.Text == "" {
		return config.Default(settings)
	}
	return config.Load([]byte(f.Text), settings)
}

// playProduct plays all to the product.
func (w *world) playProduct(f File) error {
	cfg, err := f.load()
	if err != nil {
		return err
	}
	p := &product{world: w}
	w.product = p
	cfg.Plan.Observe(unseen{})
	p.picker, err = signalbox.New(signalbox.Config{
		Runtime: runtime.Config{Mode: runtime.Stepped, Loops: 1, Seed: w.Seed, Start: start},
		Plan:    cfg.Plan, Queueing: cfg.Queueing,
		Limits: cycle.Limits{
			Queue:        time.Minute,
			Pick:         time.Second,
			FirstToken:   time.Minute,
			ResponseIdle: 15 * time.Minute,
			Logged:       15 * time.Minute,
		},
		Scraper: scraper.Config{Scraping: messages.Scraping{Metrics: true, Interval: w.Page}, Timeout: time.Second},
		Outlier: outlier.Config{
			MaxEjectionPercent: 50,
			Config:             machine.Config{FirstEjection: 2 * time.Second, LongestEjection: 8 * time.Second},
		},
		Records: signalbox.Records{Entries: 16, Bytes: 1 << 16}, PoolName: "pool",
	}, signalbox.World{
		Metrics: prometheus.NewRegistry(), Fetcher: p, Checker: absent{},
		Report: func(*messages.Record) {}, Status: func(messages.Reason) int { return 0 },
		Panicked: func(of runtime.Panic, _ []string) { panic(fmt.Sprintf("%v\n%s", of.Value, of.Stack)) },
	})
	if err != nil {
		return err
	}
	role := runtime.Role[worldMsg]{Name: "world", New: func() runtime.Actor[worldMsg] { return p }}
	ref, ok := runtime.Start(p.picker.System().Root(0), role, worldMsg(opened{}))
	if !ok {
		return errors.New("the world was refused")
	}
	p.self = ref
	for !w.finished() && p.picker.System().Step() {
	}
	return p.picker.Close(context.Background())
}

// unseen keeps nothing of what is observed.
type unseen struct{}

func (unseen) PluginRan(int, time.Duration)      {}
func (unseen) PluginDecided(int, int)            {}
func (unseen) ScoreNaN(int)                      {}
func (unseen) ScoreClamped(int)                  {}
func (unseen) AllStale()                         {}
func (unseen) RunFailed(string, messages.Reason) {}
func (unseen) ShadowPicked(string, bool)         {}

// absent checks nothing.
type absent struct{}

func (absent) Check(messages.EndpointID, messages.Address, messages.Port[messages.OutlierMsg]) bool {
	return false
}

// Receive moves the world.
func (p *product) Receive(ctx runtime.Context[worldMsg], m worldMsg) {
	p.ctx, p.now = ctx, ctx.Now()
	switch m.(type) {
	case opened:
		p.begin()
		p.publish()
	case ticked:
		p.armed = time.Time{}
	case stirred:
	}
	p.happen()
	p.arm()
}

// Stopped keeps what was seen.
func (p *product) Stopped(runtime.Context[worldMsg]) {}

// arm sets the timer for what is due next.
func (p *product) arm() {
	if len(p.due) == 0 || !p.armed.IsZero() && !p.due[0].at.Before(p.armed) {
		return
	}
	if p.timer != nil {
		p.timer.Cancel()
	}
	p.armed = p.due[0].at
	p.timer = p.ctx.After(max(p.armed.Sub(p.now), 0), ticked{})
}

// soon has something happen at once, on the world's own actor.
func (p *product) soon(do func()) {
	p.now = p.picker.System().Now()
	p.after(0, do)
	p.self.Port().Post(stirred{})
}

func (p *product) publish() {
	var specs []messages.EndpointSpec
	for _, n := range p.servers {
		if n.in {
			specs = append(specs, messages.EndpointSpec{Name: string(n.at), Namespace: "n", Address: n.at})
		}
	}
	p.pool++
	p.picker.Discovery().Post(messages.EndpointsDiscovered{Version: p.pool, Endpoints: messages.TakeList(specs)})
}

// stream is the side of a try that the picker talks to.
type stream struct {
	*product
	x *exchange
}

// bytesPerToken is what the picker takes a token for.
const bytesPerToken = 4

func (p *product) ask(x *exchange) {
	port, ok := p.picker.InForce().Start(messages.RequestArrived{
		Request: messages.Request{
			ID: messages.RequestID(
				x.number,
			),
			Model:        "m",
			PromptTokens: x.prompt,
			Stream:       true,
			Usage:        true,
			Visible:      true,
			BodyBytes:    int64(x.prompt * bytesPerToken),
			Blocks:       messages.ListOf(x.blocks...),
		},
		Configuration: 1,
		Flow:          messages.FlowKey{Fairness: x.tenant},
		ArrivedAt:     p.now,
		Deadline:      p.now.Add(24 * time.Hour),
		Stream:        stream{p, x},
	})
	if !ok {
		p.again(x, time.Second)
		return
	}
	x.port = port
}

// Tell hears what becomes of a request.
func (s stream) Tell(m messages.StreamMsg) bool {
	switch m := m.(type) {
	case messages.PickMade:
		to := m.Destinations.At(0)
		s.soon(func() { s.sent(to) })
	case messages.PickFailed:
		s.soon(func() {
			s.x.port.Post(messages.StreamGone{Completed: true})
			s.again(s.x, time.Second)
		})
	case messages.AnswerDue, messages.ServingRevoked, messages.MemoryYielded:
	}
	return true
}

func (s stream) sent(to messages.Address) {
	for i, n := range s.servers {
		if n.at == to {
			s.send(s.x, i)
			return
		}
	}
	panic("no server " + to)
}

func (p *product) first(x *exchange) {
	x.port.Post(messages.ResponseStarted{Status: 200, Served: p.servers[x.server].at, At: p.now})
	x.port.Post(messages.FirstTokenSeen{At: p.now})
}

func (p *product) ended(x *exchange) {
	x.port.Post(messages.ResponseEnded{At: p.now, ResponseBytes: int64(x.output * 100), Usage: messages.Usage{
		Source:      messages.UsageReported,
		PromptKnown: true, PromptTokens: x.prompt,
		OutputTokens: x.output,
		CachedTokens: x.cached,
		CachedKnown:  true,
	}})
	x.port.Post(messages.StreamGone{Completed: true})
}

// broke tells of a try whose server has closed the connection, or did not take it: before the response's headers the
// proxy answers by itself, after them it resets the stream.
func (p *product) broke(x *exchange) {
	if !x.first.IsZero() {
		x.port.Post(messages.StreamGone{})
		return
	}
	x.port.Post(messages.ResponseStarted{
		Status: 503, Local: "upstream_reset_before_response_started{connection_failure}", At: p.now,
	})
	x.port.Post(messages.ResponseEnded{At: p.now})
	x.port.Post(messages.StreamGone{Completed: true})
}

// pageTakes is how long a metrics page takes.
const pageTakes = 2 * time.Millisecond

// FetchMetrics answers a scrape.
func (p *product) FetchMetrics(
	of messages.EndpointSpec, _ string, number uint32, port messages.Port[messages.ScraperMsg],
) bool {
	p.soon(func() {
		m := messages.ScrapeFinished{Number: number, Took: pageTakes, Failure: "connection refused"}
		for _, n := range p.servers {
			if n.at == of.Address && !n.down {
				p.advance(n)
				m.Failure, m.PageBytes, m.Reading = "", 40_000, n.page()
			}
		}
		p.after(pageTakes, func() { port.Post(m) })
	})
	return true
}

// page returns what vLLM's metrics page says, in the order of the attributes' names.
func (n *node) page() messages.Reading {
	numbers := []messages.Extracted{
		{Attribute: attributes.KVBlockTokens.Name, Value: blockTokens},
		{Attribute: attributes.KVBlocks.Name, Value: float64(n.KVBlocks)},
		{Attribute: attributes.KVCacheUsage.Name, Value: n.usage()},
		{Attribute: attributes.RunningRequests.Name, Value: float64(len(n.running))},
		{Attribute: attributes.StartTime.Name, Value: float64(n.started.Unix())},
		{Attribute: attributes.WaitingRequests.Name, Value: float64(len(n.waiting))},
	}
	slices.SortFunc(numbers, func(a, b messages.Extracted) int { return cmp.Compare(a.Attribute, b.Attribute) })
	return messages.Reading{Engine: "vllm", Numbers: messages.TakeList(numbers)}
}

// FetchModels has no list.
func (p *product) FetchModels(messages.EndpointSpec, uint32, messages.Port[messages.ScraperMsg]) bool {
	return false
}
