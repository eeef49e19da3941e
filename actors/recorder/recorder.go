// Package recorder answers queries for records of requests and for the newest events of loops: it asks every loop's
// shard, gathers answers for at most a second, and tells the admin adapter. It remembers queries, never requests.
package recorder

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	patience   = time.Second // from a query to its answer, at most
	maxQueries = 64          // open at once; further ones are answered empty
)

// Recorder is the actor.
type Recorder struct {
	shards []messages.Sink[messages.ShardMsg]
	open   map[messages.QueryID]question
	next   messages.QueryID
}

// question is what was asked of shards: for records, or for rings.
type question interface {
	progress() *gathering
	answer() // tells the admin adapter what has come
}

// gathering is how far the answers of shards have come.
type gathering struct {
	silent  int           // shards that have not answered
	partial bool          // a shard did not take the question, or time is up
	timer   runtime.Timer // nil = not set
}

func (g *gathering) progress() *gathering { return g }

// query is a question for records.
type query struct {
	gathering
	asked   messages.RequestQueried
	missing map[messages.RequestID]struct{} // requests whose cycles were asked and have not answered
	heard   map[messages.RequestID]struct{} // requests whose records have come
	got     []messages.Record               // those that match
	unasked int                             // as in messages.RecordsAnswered
	lost    uint64                          // as in messages.RecordsAnswered
}

// New returns a recorder over the shards of all loops.
func New(shards []messages.Sink[messages.ShardMsg]) *Recorder {
	return &Recorder{shards: shards, open: map[messages.QueryID]question{}}
}

// Receive takes queries and the answers of shards and cycles.
func (r *Recorder) Receive(ctx runtime.Context[messages.RecorderMsg], m messages.RecorderMsg) {
	switch m := m.(type) {
	case messages.RecorderStarted:
		r.next = messages.QueryID(ctx.Now().UnixNano()) // answers to an earlier incarnation's queries match none
	case messages.RequestQueried:
		r.onRequestQueried(ctx, m)
	case messages.RecordsFound:
		r.onRecordsFound(ctx, m)
	case messages.MissedFound:
		r.onMissedFound(ctx, m)
	case messages.RingsQueried:
		r.onRingsQueried(ctx, m)
	case messages.RingFound:
		r.onRingFound(m)
	case messages.RecorderDeadlinePassed:
		r.onRecorderDeadlinePassed(m)
	}
}

// ask puts a question to shards, and answers it at once if none takes it. put reports whether a shard has taken it.
func (r *Recorder) ask(
	ctx runtime.Context[messages.RecorderMsg], q question, shards []messages.Sink[messages.ShardMsg],
	put func(messages.QueryID, messages.Sink[messages.ShardMsg]) bool,
) {
	r.next++
	r.open[r.next] = q
	g := q.progress()
	for _, s := range shards {
		if put(r.next, s) {
			g.silent++
		} else {
			g.partial = true
		}
	}
	if g.silent == 0 {
		r.finish(r.next)
		return
	}
	g.timer = ctx.After(patience, messages.RecorderDeadlinePassed{Query: r.next})
}

func (r *Recorder) full() bool { return len(r.open) >= maxQueries }

func (r *Recorder) onRequestQueried(ctx runtime.Context[messages.RecorderMsg], m messages.RequestQueried) {
	if r.full() {
		m.Admin.Tell(messages.RecordsAnswered{Partial: true})
		return
	}
	q := &query{asked: m, missing: map[messages.RequestID]struct{}{}, heard: map[messages.RequestID]struct{}{}}
	r.ask(ctx, q, r.shards, func(id messages.QueryID, s messages.Sink[messages.ShardMsg]) bool {
		return s.Tell(messages.RecordsQueried{
			Query: id, Request: m.Request, IDs: m.IDs, Filter: m.Filter, Newest: m.Newest, Recorder: ctx.Self(),
		})
	})
}

func (r *Recorder) onRecordsFound(ctx runtime.Context[messages.RecorderMsg], m messages.RecordsFound) {
	q, ok := r.open[m.Query].(*query)
	if !ok {
		return
	}
	q.take(m.Records)
	if m.Shard != nil {
		q.silent--
		q.lost += m.Lost
		q.unasked += m.Unasked
		q.miss(ctx, m.Query, m.Shard, m.Asked)
	}
	r.finishComplete(m.Query, q)
}

func (r *Recorder) onMissedFound(ctx runtime.Context[messages.RecorderMsg], m messages.MissedFound) {
	q, ok := r.open[m.Query].(*query)
	if !ok {
		return
	}
	q.take(m.Records)
	for _, id := range m.Gone.All() {
		delete(q.missing, id)
	}
	q.miss(ctx, m.Query, m.Shard, m.Running)
	r.finishComplete(m.Query, q)
}

// take keeps the records that match the query, for a cycle answers without looking at it. A request that answered and
// has ended since may come twice: the first record counts.
func (q *query) take(found messages.List[messages.Record]) {
	for _, rec := range found.All() {
		delete(q.missing, rec.Request)
		if _, again := q.heard[rec.Request]; again {
			continue
		}
		q.heard[rec.Request] = struct{}{}
		if records.HasID(&rec, q.asked.IDs) && records.Meets(&rec, &q.asked.Filter) {
			q.got = append(q.got, rec)
		}
	}
}

// miss asks the shard again for the cycles that have not answered. A cycle that ends before it handles the question
// never answers, and its record is in the shard's book.
func (q *query) miss(
	ctx runtime.Context[messages.RecorderMsg], id messages.QueryID,
	shard messages.Sink[messages.ShardMsg], asked messages.List[messages.RequestID],
) {
	var missed []messages.RequestID
	for _, request := range asked.All() {
		if _, heard := q.heard[request]; !heard {
			q.missing[request] = struct{}{}
			missed = append(missed, request)
		}
	}
	if len(missed) == 0 {
		return
	}
	if !shard.Tell(messages.RecordsMissed{Query: id, Requests: messages.TakeList(missed), Recorder: ctx.Self()}) {
		q.partial = true // the shard has ended, and its cycles before it
		for _, request := range missed {
			delete(q.missing, request)
		}
	}
}

// finishComplete answers a query if no further answer is to come.
func (r *Recorder) finishComplete(id messages.QueryID, q *query) {
	if q.silent <= 0 && len(q.missing) == 0 {
		r.finish(id)
	}
}

func (r *Recorder) onRecorderDeadlinePassed(m messages.RecorderDeadlinePassed) {
	if q := r.open[m.Query]; q != nil {
		q.progress().partial = true
		r.finish(m.Query)
	}
}

// finish answers a question with what has come, and forgets it.
func (r *Recorder) finish(id messages.QueryID) {
	q := r.open[id]
	delete(r.open, id)
	if timer := q.progress().timer; timer != nil {
		timer.Cancel()
	}
	q.answer()
}

func (q *query) answer() {
	slices.SortFunc(q.got, func(a, b messages.Record) int { return cmp.Compare(b.Request, a.Request) })
	got := q.got
	if q.asked.Request == 0 && q.asked.IDs.Len() == 0 {
		got = got[:min(len(got), max(q.asked.Newest, 0))]
	}
	q.asked.Admin.Tell(messages.RecordsAnswered{
		Records: messages.TakeList(got), Unasked: q.unasked, Lost: q.lost, Partial: q.partial,
	})
}

// Stopped answers the open questions with what has come, in the order in which they were asked.
func (r *Recorder) Stopped(runtime.Context[messages.RecorderMsg]) {
	for _, id := range slices.Sorted(maps.Keys(r.open)) {
		g := r.open[id].progress()
		g.partial, g.timer = true, nil
		r.finish(id)
	}
}
