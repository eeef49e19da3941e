// Package signalbox is the picker put together: every actor on its loop, and the ports by which adapters reach them. It
// owns the wiring between actors, the order in which they start and stop, and what all loops share. It does no I/O:
// whatever does comes in through World. It takes no decisions: engine does.
package signalbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/actors/capacity"
	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/actors/memory"
	"github.com/signalbox-epp/signalbox/actors/outlier"
	"github.com/signalbox-epp/signalbox/actors/pool"
	"github.com/signalbox-epp/signalbox/actors/prefix"
	"github.com/signalbox-epp/signalbox/actors/recorder"
	"github.com/signalbox-epp/signalbox/actors/window"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/displacements"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/fairness"
	"github.com/signalbox-epp/signalbox/engine/flow"
	tables "github.com/signalbox-epp/signalbox/engine/memory"
	"github.com/signalbox-epp/signalbox/engine/orderings"
	"github.com/signalbox-epp/signalbox/engine/queues"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// Picker is a running endpoint picker. Its methods may be called by several goroutines at once, but for Running and
// Close.
type Picker struct {
	cfg       Config
	world     World
	sys       *runtime.System
	endpoints *endpoints.Published
	index     *blockindex.Index
	kept      *tables.Tables     // by plugins
	estimates *records.Estimates // of output tokens; all loops learn together
	families  *cycle.Families
	gate
	refs    refs
	loops   []loop
	inForce atomic.Pointer[Configuration] // never nil once New has returned; Bring alone replaces it
}

// gate is what all loops share of the requests that wait for room.
type gate struct {
	line     *flow.Line
	ceilings *flow.Ceilings
	traffic  *flow.Traffic // of all requests that may have to wait
}

// refs holds the references to the actors of which the picker has exactly one.
type refs struct {
	prefix   runtime.Ref[messages.PrefixMsg]
	memory   runtime.Ref[messages.MemoryMsg]
	outlier  runtime.Ref[messages.OutlierMsg]
	capacity runtime.Ref[messages.CapacityMsg]
	window   runtime.Ref[messages.WindowMsg]
	pool     runtime.Ref[messages.PoolMsg]
	recorder runtime.Ref[messages.RecorderMsg]
}

// New starts the actors in the order in which they depend on each other. If it returns an error, every actor that it
// started has been stopped, and world.Release has not been called.
func New(cfg Config, world World) (*Picker, error) {
	p := &Picker{
		cfg: cfg, world: world, endpoints: endpoints.NewPublished(), index: blockindex.NewIndex(cfg.PrefixBlocks),
		kept: tables.NewTables(), estimates: records.NewEstimates(),
		gate: gate{new(flow.Line), new(flow.Ceilings), new(flow.Traffic)},
	}
	p.cfg.Runtime.OnPanic = p.panicked
	p.sys = runtime.New(p.cfg.Runtime)
	p.families = cycle.NewFamilies(world.Metrics, p.endpoints, cfg.PoolName)
	p.families.ShowRequests(world.ID)
	p.families.TellFlows(cmp.Or(cfg.FlowLabels, DefaultFlowLabels))
	if err := p.begin(); err != nil {
		return nil, errors.Join(err, p.sys.Close(context.Background()))
	}
	return p, nil
}

func (p *Picker) panicked(caught runtime.Panic) {
	if p.world.Panicked != nil {
		p.world.Panicked(caught, p.sys.Lines(caught.Recent))
	}
}

func (p *Picker) begin() error {
	for _, spawn := range []func() error{
		p.spawnCapacity, p.spawnWindow, p.spawnPrefix, p.spawnMemory, p.spawnOutlier, p.spawnPool, p.spawnLoops,
		p.spawnRecorder,
	} {
		if err := spawn(); err != nil {
			return err
		}
	}
	p.inForce.Store(p.Prepare(1, p.cfg.Plan, p.cfg.Queueing, p.cfg.Scraper.Scraping))
	p.cfg.Plan, p.cfg.Queueing = nil, nil // the configuration has them, and is garbage once another one is in force
	p.refs.capacity.Port().Post(messages.QueueingReplaced{})
	return p.survey()
}

// spawn starts an actor that lives as long as the picker, on the loop with index on. The new function makes each of its
// incarnations, and first is the first message of each.
func spawn[M any](p *Picker, on int, name string, first M, fresh func() runtime.Actor[M]) (runtime.Ref[M], error) {
	role := runtime.Role[M]{Name: name, Policy: runtime.RestartOnPanic, New: fresh}
	ref, ok := runtime.Start(p.sys.Root(on), role, first)
	if !ok {
		return ref, fmt.Errorf("actor %s: its loop %d refused it", name, on)
	}
	return ref, nil
}

func (p *Picker) spawnCapacity() error {
	metrics, err := capacity.NewMetrics(p.world.Metrics, p.cfg.PoolName)
	if err != nil {
		return err
	}
	deps := capacity.Deps{
		Line: p.line, Ceilings: p.ceilings, Traffic: p.traffic, Settings: p.queueing, Prefixes: p.index,
		Metrics: metrics, Panicked: p.world.PolicyPanicked,
	}
	p.refs.capacity, err = spawn[messages.CapacityMsg](p, 0, "capacity", messages.CapacityStarted{},
		func() runtime.Actor[messages.CapacityMsg] { return capacity.New(deps) })
	return err
}

// queueing returns how requests wait that begin to do so now. Under a configuration without a gate these are requests
// that came under an earlier one.
func (p *Picker) queueing() *flow.Settings {
	if c := p.inForce.Load(); c != nil && c.queueing != nil {
		return c.queueing
	}
	arrival := flow.BandSettings{Policies: builtIn}
	return &flow.Settings{Default: arrival, Negative: arrival, BuiltIn: builtIn}
}

// builtIn are the policies that stand in for those of a configuration that panic.
var builtIn = flow.Policies{
	Ordering: new(orderings.FCFS), Queue: new(queues.ListQueue), Fairness: new(fairness.GlobalStrict),
	Displacement: new(displacements.LongestFlow),
}

// bell returns the bell by which actors of a kind tell that there may be room.
func (p *Picker) bell(from string) flow.Bell {
	return flow.Bell{
		Line: p.line, To: runtime.Handed[messages.CapacityMsg](p.sys, from, "capacity", p.refs.capacity),
	}
}

func (p *Picker) spawnWindow() (err error) {
	metrics := window.NewMetrics(p.world.Metrics)
	p.refs.window, err = spawn[messages.WindowMsg](p, 0, "window", messages.WindowStarted{},
		func() runtime.Actor[messages.WindowMsg] {
			return window.New(p.endpoints, p.ceilings, p.bell("window"), metrics)
		})
	return err
}

func (p *Picker) spawnPrefix() error {
	metrics, err := prefix.NewMetrics(p.world.Metrics)
	if err != nil {
		return err
	}
	p.refs.prefix, err = spawn[messages.PrefixMsg](p, p.sys.Loops()-1, "prefix", messages.PrefixStarted{},
		func() runtime.Actor[messages.PrefixMsg] { return prefix.New(p.index, p.endpoints, metrics) })
	return err
}

func (p *Picker) spawnMemory() error {
	metrics, err := memory.NewMetrics(p.world.Metrics)
	if err != nil {
		return err
	}
	p.refs.memory, err = spawn[messages.MemoryMsg](p, p.sys.Loops()-1, "memory", messages.MemoryStarted{},
		func() runtime.Actor[messages.MemoryMsg] { return memory.New(p.kept, metrics) })
	return err
}

func (p *Picker) spawnOutlier() (err error) {
	metrics := outlier.NewMetrics(p.world.Metrics)
	p.refs.outlier, err = spawn[messages.OutlierMsg](p, 0, "outlier", messages.OutlierStarted{},
		func() runtime.Actor[messages.OutlierMsg] {
			return outlier.New(p.cfg.Outlier, p.endpoints, p.world.Checker, p.bell("outlier"), metrics)
		})
	return err
}

func (p *Picker) spawnPool() error {
	scrapers, err := p.newScrapers()
	if err != nil {
		return err
	}
	deps := pool.Deps{
		Pool: endpoints.Publisher{Published: p.endpoints}, Prefix: p.refs.prefix, Scrape: scrapers.spawn,
		Metrics: pool.NewMetrics(p.world.Metrics), Bell: p.bell("pool"),
		Shards:    func() []messages.Sink[messages.ShardMsg] { return p.shards("pool") },
		Announcer: p.world.Announcer, Hangs: p.world.Hangs,
	}
	p.refs.pool, err = spawn[messages.PoolMsg](p, 0, "pool", messages.PoolStarted{},
		func() runtime.Actor[messages.PoolMsg] { return pool.New(deps) })
	return err
}

func (p *Picker) spawnRecorder() (err error) {
	p.refs.recorder, err = spawn[messages.RecorderMsg](p, 0, "recorder", messages.RecorderStarted{},
		func() runtime.Actor[messages.RecorderMsg] { return recorder.New(p.shards("recorder")) })
	return err
}

// Discovery returns the port that takes the endpoints that discovery finds.
func (p *Picker) Discovery() messages.Port[messages.PoolMsg] { return p.refs.pool.Port() }

// Recorder returns the port that takes queries for records and for event rings.
func (p *Picker) Recorder() messages.Port[messages.RecorderMsg] { return p.refs.recorder.Port() }

// Pool returns the endpoint pool, for readers.
func (p *Picker) Pool() *endpoints.Published { return p.endpoints }

// Prefixes returns the prefix index, for readers.
func (p *Picker) Prefixes() *blockindex.Index { return p.index }

// System returns the runtime, which has the clock, the figures of the loops, and the names of actor and message kinds.
func (p *Picker) System() *runtime.System { return p.sys }

// Outlived returns the number of requests whose response outlives their ext_proc stream.
func (p *Picker) Outlived() int { return p.families.Outlived() }

// Waiting returns how many requests wait for room, or try whether there is some.
func (p *Picker) Waiting() int { return p.line.Len() }

// CloseLine refuses the requests that wait for room, and from now on those that find none.
func (p *Picker) CloseLine() { p.refs.capacity.Port().Post(messages.LineClosed{}) }

// MakeWay has requests that wait make way for the body of another one. It returns false if that cannot be asked.
func (p *Picker) MakeWay(m messages.MemoryRequested) bool { return p.refs.capacity.Port().Post(m) }

// Capacity returns the port that takes queries for what waits.
func (p *Picker) Capacity() messages.Port[messages.CapacityMsg] { return p.refs.capacity.Port() }

// Ends returns the counters of waits that have ended. They are registered with World.Metrics too.
func (p *Picker) Ends() prometheus.Collector { return p.families.Ends() }

// Serves makes the names of models known that a configuration has serve in the place of others. They become labels of
// metrics at once, other than those that clients name.
func (p *Picker) Serves(models ...string) { p.families.Served(models...) }

// Totals returns the counters of requests that arrived and of requests that failed. Both are registered with
// World.Metrics too.
func (p *Picker) Totals() (arrived, failed prometheus.Collector) { return p.families.Totals() }

// Running returns the number of requests that the books of the loops list as running. A book belongs to its loop, so
// call this only on a stepped picker, or while no loop runs.
func (p *Picker) Running() (n int) {
	for _, l := range p.loops {
		n += l.book.Live()
	}
	return n
}

// Close stops the actors in this order: shards with their cycles, flows, capacity, window, prefix, the pool with its
// scrapers, recorder, outlier. Then it calls World.Release and stops the loops. Stop whatever posts to the actors
// before you call it. Once ctx is done, Close waits for no actor any more and returns an error.
func (p *Picker) Close(ctx context.Context) error {
	late := p.end(ctx)
	if p.world.Release != nil {
		p.world.Release()
	}
	if late != nil {
		return late
	}
	return p.sys.Close(ctx)
}

func (p *Picker) end(ctx context.Context) error {
	var late error
	for _, actor := range p.closeOrder() {
		ended := runtime.End(actor)
		p.stepUntil(ended)
		select {
		case <-ended:
		case <-ctx.Done():
			late = fmt.Errorf("actors: %w", ctx.Err())
		}
	}
	return late
}

// stepUntil runs the loops of a stepped picker until an actor has ended, or nothing is left to run. The loops of any
// other picker run by themselves.
func (p *Picker) stepUntil(ended <-chan struct{}) {
	for stepped := p.cfg.Runtime.Mode == runtime.Stepped; stepped; {
		select {
		case <-ended:
			return
		default:
			stepped = p.sys.Step()
		}
	}
}

// closeOrder returns the actors in the order in which Close stops them.
func (p *Picker) closeOrder() []runtime.Target {
	var all []runtime.Target
	for _, l := range p.loops {
		all = append(all, l.shard)
	}
	r := &p.refs
	return append(all, r.capacity, r.window, r.prefix, r.memory, r.pool, r.recorder, r.outlier)
}
