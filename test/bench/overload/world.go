// Package overload plays more requests than servers can serve, in virtual time, to the picker that the command serves
// with and to simulated servers. It holds one configuration against another; nothing of the machine has an effect.
package overload

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox"
	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// start is what the clock says at first.
var start = time.Unix(1_800_000_000, 0)

// Play is what is played.
type Play struct {
	Text    string // of the configuration; "" = that without a file, with flow control
	Loops   int    // of the picker; 0 = 1
	Seed    uint64
	Length  time.Duration
	Servers []Server
	Load    []Source
	Events  []Event
	Path    time.Duration // between the pick and the server, and what the server does before the engine; both ways
	Light   bool          // responses bypass the picker: the access log tells their first tokens and ends
	Second  bool          // another picker over the same servers has every other request
	Ejects  bool          // servers that fail are ejected, as the command has it
}

// Server is a model server.
type Server struct {
	Engine batch.Config
	Page   Page
	Away   bool // it is not in the pool until an event brings it
}

// Page is how a server's metrics page lies.
type Page uint8

const (
	Honest  Page = iota
	Frozen       // it says what it said after ten seconds
	Hanging      // it does not come
	Lying        // it says that none waits
)

// Source is where requests come from.
type Source struct {
	Name     string
	Flow     messages.FlowKey
	Rate     float64       // requests a second, at random times; 0 = all at once, at From
	Count    int           // at most; 0 = no bound
	Clients  int           // that each send the next request when the one before has ended; 0 = Rate counts
	From, To time.Duration // when they come; To 0 = to the end
	Prompt   Length
	Output   Length
	Prefix   int // tokens that prompts of the source share, of Prompt
	Patience time.Duration

	rand *rand.Rand // of the source alone, so that equal seeds give equal loads
}

// Length is evenly spread from Mean-Spread to Mean+Spread.
type Length struct{ Mean, Spread int }

func (l Length) draw(r *rand.Rand) int {
	if l.Spread == 0 {
		return l.Mean
	}
	return max(1, l.Mean-l.Spread+r.IntN(2*l.Spread+1))
}

// Event changes something at a time.
type Event struct {
	At time.Duration
	Do func(*World)
}

// Answer is what became of a request. Times count from the start of the play.
type Answer struct {
	Source         string
	Flow           messages.FlowKey
	Came           time.Duration
	TTFT           time.Duration // 0 = it was refused
	Ended          time.Duration // 0 = it was not, by the end
	Server         int           // -1 = it was refused
	Prompt, Output int
	Cached         int
	Broke          bool          // its server went down before it had ended
	Waited         time.Duration // at the picker
	Reason         messages.Reason
	RetryAfter     time.Duration // that its client is told; 0 = none
}

// Look is what there is at a moment.
type Look struct {
	At       time.Duration
	Waiting  int     // at the picker
	Queues   []int   // at each server
	Running  []int   // at each server
	Windows  []int   // of each server; 0 = none
	Inflight []int   // as the picker counts
	KVUsed   float64 // of the first server
	Work     float64 // tokens that all servers have computed up to now
}

// Result is what was seen.
type Result struct {
	Answers []*Answer
	Looks   []Look // every 100 ms
}

// World is everything there is.
type World struct {
	play   Play
	rand   *rand.Rand
	tokens *batch.Tokens
	picker *signalbox.Picker
	second *signalbox.Picker // nil = there is none
	self   runtime.Ref[worldMsg]
	ctx    runtime.Context[worldMsg]
	now    time.Time
	due    events
	serial int
	armed  time.Time
	timer  runtime.Timer
	nodes  []*node
	pool   uint64 // version of the endpoints
	last   messages.RequestID
	result Result
}

// node is a server as it runs.
type node struct {
	Server
	index  int
	core   *batch.Core
	at     messages.Address
	open   map[uint64]*exchange
	woken  time.Time
	frozen *endpointstest.Told
	in     bool    // in the pool
	down   bool    // it takes no connections
	before float64 // tokens that engines before this one have computed

	started time.Time // as its page says
}

// work returns the tokens that the engine has computed: those of prompts that were not cached, and of answers.
func (n *node) work() float64 {
	t := n.core.Tally()
	return float64(t.PromptTokens - t.CachedTokens + t.GenerationTokens)
}

// exchange is one request on its way.
type exchange struct {
	*Answer
	world  *World
	source *Source
	picker *signalbox.Picker // that is asked
	id     messages.RequestID
	port   messages.Port[messages.CycleMsg]
	prompt []uint32
	first  bool
	over   bool
}

type worldMsg interface{ worldMsg() }

type (
	opened  struct{}
	ticked  struct{}
	stirred struct{} // something was put into due from elsewhere
)

func (opened) worldMsg()  {}
func (ticked) worldMsg()  {}
func (stirred) worldMsg() {}

type event struct {
	at     time.Time
	serial int
	do     func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].serial < e[j].serial
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// Run plays, and returns what was seen.
func Run(p Play) (*Result, error) {
	p.Load = slices.Clone(p.Load)
	w := &World{play: p, rand: rand.New(rand.NewPCG(p.Seed, 7)), tokens: batch.NewTokens(bytesPerToken), now: start}
	if err := w.begin(); err != nil {
		return nil, err
	}
	end := start.Add(p.Length)
	w.playUntil(end)
	return &w.result, w.close()
}

const bytesPerToken = 4

func (w *World) begin() (err error) {
	if w.picker, err = w.newPicker(); err != nil {
		return err
	}
	if err := w.beginSecond(); err != nil {
		return err
	}
	role := runtime.Role[worldMsg]{Name: "world", New: func() runtime.Actor[worldMsg] { return w }}
	ref, ok := runtime.Start(w.picker.System().Root(0), role, worldMsg(opened{}))
	if !ok {
		return fmt.Errorf("the world was refused")
	}
	w.self = ref
	return nil
}

func (w *World) newPicker() (*signalbox.Picker, error) {
	settings := config.Settings{Destinations: 1, Stale: 2 * time.Second}
	load := func() (*config.Config, error) { return config.Load([]byte(w.play.Text), settings) }
	if w.play.Text == "" {
		settings.Gates = []string{"flowControl"}
		load = func() (*config.Config, error) { return config.Default(settings) }
	}
	cfg, err := load()
	if err != nil {
		return nil, err
	}
	cfg.Plan.Observe(unseen{})
	long := 24 * time.Hour
	return signalbox.New(signalbox.Config{
		Runtime: runtime.Config{Mode: runtime.Stepped, Loops: max(w.play.Loops, 1), Seed: w.play.Seed, Start: start},
		Plan:    cfg.Plan, Queueing: cfg.Queueing,
		Limits:  cycle.Limits{Queue: long, Pick: long, FirstToken: long, ResponseIdle: long, Logged: long},
		Scraper: scraper.Config{Scraping: messages.Scraping{Metrics: true}, Timeout: time.Second},
		Outlier: w.ejection(),
		Records: signalbox.Records{Entries: 64, Bytes: 1 << 20}, PoolName: "pool",
	}, signalbox.World{
		Metrics: prometheus.NewRegistry(), Fetcher: w, Checker: absent{},
		Report: func(*messages.Record) {}, Status: func(messages.Reason) int { return 0 },
		Panicked: func(p runtime.Panic, _ []string) { panic(fmt.Sprintf("%v\n%s", p.Value, p.Stack)) },
	})
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
func (w *World) Receive(ctx runtime.Context[worldMsg], m worldMsg) {
	w.ctx, w.now = ctx, ctx.Now()
	switch m.(type) {
	case opened:
		w.open0()
	case ticked:
		w.armed = time.Time{}
	case stirred:
	}
	for len(w.due) > 0 && !w.due[0].at.After(w.now) {
		heap.Pop(&w.due).(event).do()
	}
	w.arm()
}

// Stopped keeps what was seen.
func (w *World) Stopped(runtime.Context[worldMsg]) {}

// arm sets the timer for the next event.
func (w *World) arm() {
	if len(w.due) == 0 || !w.armed.IsZero() && !w.due[0].at.Before(w.armed) {
		return
	}
	if w.timer != nil {
		w.timer.Cancel()
	}
	w.armed = w.due[0].at
	w.timer = w.ctx.After(max(w.armed.Sub(w.now), 0), ticked{})
}

// After has something happen later.
func (w *World) After(d time.Duration, do func()) {
	w.serial++
	heap.Push(&w.due, event{w.now.Add(d), w.serial, do})
}

func (w *World) open0() {
	for i, s := range w.play.Servers {
		n := &node{Server: s, index: i, at: messages.Address(fmt.Sprintf("10.0.0.%d:80", i+1)), in: !s.Away}
		n.started = start.Add(-time.Hour)
		w.nodes = append(w.nodes, n)
		w.renew(n)
	}
	w.publish()
	for i := range w.play.Load {
		s := &w.play.Load[i]
		s.rand = rand.New(rand.NewPCG(w.play.Seed, uint64(i)+100))
		w.After(s.From, func() { w.flows(s) })
	}
	for _, e := range w.play.Events {
		w.After(e.At, func() { e.Do(w) })
	}
	w.look()
}

func (w *World) renew(n *node) {
	core, err := batch.New(n.Engine, w.tokens)
	if err != nil {
		panic(err) // only plays that are written in this package come here
	}
	n.core, n.open, n.woken = core, map[uint64]*exchange{}, time.Time{}
}

// Bring puts a server into the pool, or takes it out.
func (w *World) Bring(server int, in bool) {
	w.nodes[server].in = in
	w.publish()
}

// Each changes every server's engine, as if it had become another one: what it works on goes on.
func (w *World) Each(change func(*batch.Config)) {
	for _, n := range w.nodes {
		change(&n.Engine)
		n.core.Reconfigure(n.Engine)
	}
}

// Source returns a source of requests, to change it.
func (w *World) Source(name string) *Source {
	for i := range w.play.Load {
		if w.play.Load[i].Name == name {
			return &w.play.Load[i]
		}
	}
	panic("no source " + name)
}

func (w *World) publish() {
	var specs []messages.EndpointSpec
	for _, n := range w.nodes {
		if n.in {
			specs = append(specs, messages.EndpointSpec{Name: string(n.at), Namespace: "n", Address: n.at})
		}
	}
	w.pool++
	for _, p := range w.pickers() {
		p.Discovery().Post(messages.EndpointsDiscovered{Version: w.pool, Endpoints: messages.TakeList(specs)})
	}
}

// look notes what there is.
func (w *World) look() {
	l := Look{At: w.now.Sub(start)}
	for _, p := range w.pickers() {
		l.Waiting += p.Waiting()
	}
	for _, n := range w.nodes {
		w.advance(n)
		stats := n.core.Stats()
		l.Queues, l.Running = append(l.Queues, stats.Waiting), append(l.Running, stats.Running)
		window, inflight := 0, 0
		if e := w.picker.Pool().Snapshot().ByAddress(n.at); e != nil {
			room, _ := e.Window()
			window, inflight = room.Requests, e.Inflight()
		}
		l.Windows, l.Inflight = append(l.Windows, window), append(l.Inflight, inflight)
		if n.index == 0 {
			l.KVUsed = stats.KVUsedRatio
		}
		l.Work += n.before + n.work()
	}
	w.result.Looks = append(w.result.Looks, l)
	w.After(100*time.Millisecond, w.look)
}

// flows has requests of a source come.
func (w *World) flows(s *Source) {
	for range s.Clients {
		w.ask(s)
	}
	switch {
	case s.Clients > 0:
	case s.Rate == 0:
		for range s.Count {
			w.ask(s)
		}
	default:
		w.next(s)
	}
}

func (s *Source) over(at time.Duration) bool { return s.To > 0 && at >= s.To }

func (w *World) next(s *Source) {
	w.After(time.Duration(s.rand.ExpFloat64()/s.Rate*float64(time.Second)), func() {
		if !s.over(w.now.Sub(start)) {
			w.ask(s)
			w.next(s)
		}
	})
}
