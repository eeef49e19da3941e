package signalbox

import (
	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/actors/shard"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// loop holds the actors that each loop has for itself, and the book that they share.
type loop struct {
	shard runtime.Ref[messages.ShardMsg]
	deps  *cycle.Deps // of the cycles that are children of shard
	book  *records.Book
}

func (p *Picker) spawnLoops() error {
	shards := shard.NewMetrics(p.world.Metrics)
	for i := range p.sys.Loops() {
		if err := p.spawnLoop(i, shards); err != nil {
			return err
		}
	}
	return nil
}

func (p *Picker) spawnLoop(i int, shards *shard.Metrics) (err error) {
	n := p.sys.Loops()
	l := loop{book: records.NewBook(p.cfg.Records.Entries/n, p.cfg.Records.Bytes/n)}
	l.shard, err = spawn[messages.ShardMsg](p, i, "shard", messages.ShardStarted{Shard: i},
		func() runtime.Actor[messages.ShardMsg] { return shard.New(l.book, shards, p.refused) })
	if err != nil {
		return err
	}
	l.deps = p.cycleDeps(i, l.book)
	p.loops = append(p.loops, l)
	return nil
}

// cycleDeps returns what the cycles of loop i work with. They share one scheduler.
func (p *Picker) cycleDeps(i int, book *records.Book) *cycle.Deps {
	return &cycle.Deps{
		Pool:    p.endpoints,
		Prefix:  runtime.Handed[messages.PrefixMsg](p.sys, "cycle", "prefix", p.refs.prefix),
		Memory:  runtime.Handed[messages.MemoryMsg](p.sys, "cycle", "memory", p.refs.memory),
		Outlier: runtime.Handed[messages.OutlierMsg](p.sys, "cycle", "outlier", p.refs.outlier),
		Window:  runtime.Handed[messages.WindowMsg](p.sys, "cycle", "window", p.refs.window),
		Bell:    p.bell("cycle"), Traffic: p.traffic,
		Book: book,
		Scheduler: schedule.NewScheduler(schedule.Tools{
			Clock: p.sys, Matcher: p.index, Memory: p.kept, Rand: p.sys.Rand(i), Ceilings: p.ceilings,
		}),
		Estimates: p.estimates, Status: p.world.Status, Metrics: p.families,
		Report: p.world.Report, Limits: p.cfg.Limits, EmitScores: p.cfg.EmitScores,
	}
}

// refused counts and reports a request that never had a cycle.
func (p *Picker) refused(r *messages.Record) {
	p.families.Refused(r)
	p.world.Report(r)
}

// loopOf returns the loop that runs a request's cycle. The request's number alone decides, so that everything that
// comes for the request finds it.
func (p *Picker) loopOf(id messages.RequestID) *loop { return &p.loops[p.loopIndex(id)] }

func (p *Picker) loopIndex(id messages.RequestID) int { return int(uint64(id) % uint64(len(p.loops))) }

// shards returns the sinks of all shards, by loop, for an actor of the kind from.
func (p *Picker) shards(from string) []messages.Sink[messages.ShardMsg] {
	all := make([]messages.Sink[messages.ShardMsg], 0, len(p.loops))
	for i := range p.loops {
		all = append(all, runtime.Handed[messages.ShardMsg](p.sys, from, "shard", p.loops[i].shard))
	}
	return all
}

// postAll posts a message to every shard.
func (p *Picker) postAll(m messages.ShardMsg) {
	for i := range p.loops {
		p.loops[i].shard.Port().Post(m)
	}
}

// Refused delivers the record of a request that never had a cycle.
func (p *Picker) Refused(m messages.RequestRefused) { p.loopOf(m.Record.Request).shard.Port().Post(m) }

// Ended delivers the access log's last entry of a request.
func (p *Picker) Ended(m messages.ExchangeLogged) { p.loopOf(m.Request).shard.Port().Post(m) }

// Ongoing delivers an intermediate entry of the access log, of a request that runs.
func (p *Picker) Ongoing(m messages.ExchangeOngoing) { p.loopOf(m.Request).shard.Port().Post(m) }

// LogStreamEnded tells every loop that a proxy's access log ended, so that entries may be missing.
func (p *Picker) LogStreamEnded() { p.postAll(messages.LogStreamEnded{}) }

// ConnectionDoubted tells every loop that the access log may have no entries of the requests of a connection.
func (p *Picker) ConnectionDoubted(connection messages.ConnectionID) {
	p.postAll(messages.ConnectionDoubted{Connection: connection})
}
