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
	shards  []messages.Sink[messages.ShardMsg]
	queries map[messages.QueryID]*query
	rings   map[messages.QueryID]*rings
	next    messages.QueryID
}

type query struct {
	asked   messages.RequestQueried
	silent  int                             // shards that have not answered
	missing map[messages.RequestID]struct{} // requests whose cycles were asked and have not answered
	heard   map[messages.RequestID]struct{} // requests whose records have come
	got     []messages.Record               // those that match
	unasked int                             // as in messages.RecordsAnswered
	lost    uint64                          // as in messages.RecordsAnswered
	partial bool                            // a shard did not take the question, or time is up
	timer   runtime.Timer                   // nil = not set
}

// New returns a recorder over the shards of all loops.
func New(shards []messages.Sink[messages.ShardMsg]) *Recorder {
	return &Recorder{shards: shards, queries: map[messages.QueryID]*query{}, rings: map[messages.QueryID]*rings{}}
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

func (r *Recorder) onRequestQueried(ctx runtime.Context[messages.RecorderMsg], m messages.RequestQueried) {
	if len(r.queries)+len(r.rings) >= maxQueries {
		m.Admin.Tell(messages.RecordsAnswered{Partial: true})
		return
	}
	r.next++
	q := &query{asked: m, missing: map[messages.RequestID]struct{}{}, heard: map[messages.RequestID]struct{}{}}
	r.queries[r.next] = q
	for _, s := range r.shards {
		ok := s.Tell(messages.RecordsQueried{
			Query: r.next, Request: m.Request, IDs: m.IDs, Filter: m.Filter, Newest: m.Newest, Recorder: ctx.Self(),
		})
		if !ok {
			q.partial = true
			continue
		}
		q.silent++
	}
	if q.silent == 0 {
		r.finish(r.next)
		return
	}
	q.timer = ctx.After(patience, messages.RecorderDeadlinePassed{Query: r.next})
}

func (r *Recorder) onRecordsFound(ctx runtime.Context[messages.RecorderMsg], m messages.RecordsFound) {
	q := r.queries[m.Query]
	if q == nil {
		return
	}
	q.take(m.Records)
	if m.Shard != nil {
		q.silent--
		q.lost += m.Lost
		q.unasked += m.Unasked
		q.miss(ctx, m.Query, m.Shard, m.Asked)
	}
	r.finishComplete(m.Query)
}

func (r *Recorder) onMissedFound(ctx runtime.Context[messages.RecorderMsg], m messages.MissedFound) {
	q := r.queries[m.Query]
	if q == nil {
		return
	}
	q.take(m.Records)
	for _, id := range m.Gone.All() {
		delete(q.missing, id)
	}
	q.miss(ctx, m.Query, m.Shard, m.Running)
	r.finishComplete(m.Query)
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
func (r *Recorder) finishComplete(id messages.QueryID) {
	if q := r.queries[id]; q.silent <= 0 && len(q.missing) == 0 {
		r.finish(id)
	}
}

func (r *Recorder) onRecorderDeadlinePassed(m messages.RecorderDeadlinePassed) {
	if q := r.queries[m.Query]; q != nil {
		q.partial = true
		r.finish(m.Query)
	}
	if q := r.rings[m.Query]; q != nil {
		q.partial = true
		r.finishRings(m.Query)
	}
}

// finish answers a query with what has come, and forgets it.
func (r *Recorder) finish(id messages.QueryID) {
	q := r.queries[id]
	delete(r.queries, id)
	if q.timer != nil {
		q.timer.Cancel()
	}
	slices.SortFunc(q.got, func(a, b messages.Record) int { return cmp.Compare(b.Request, a.Request) })
	got := q.got
	if q.asked.Request == 0 && q.asked.IDs.Len() == 0 {
		got = got[:min(len(got), max(q.asked.Newest, 0))]
	}
	q.asked.Admin.Tell(messages.RecordsAnswered{
		Records: messages.TakeList(got), Unasked: q.unasked, Lost: q.lost, Partial: q.partial,
	})
}

// Stopped answers the open queries with what has come.
func (r *Recorder) Stopped(runtime.Context[messages.RecorderMsg]) {
	for _, id := range sorted(r.queries) {
		r.queries[id].partial = true
		r.queries[id].timer = nil
		r.finish(id)
	}
	r.cutRings()
}

// sorted returns the open queries in the order in which they came.
func sorted[Q any](open map[messages.QueryID]Q) []messages.QueryID {
	return slices.Sorted(maps.Keys(open))
}
