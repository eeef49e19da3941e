// Package recorder answers what happened to a request, and what loops did last: it asks every loop's shard, gathers for at
// most a second, and tells the admin adapter. It remembers queries, never requests.
package recorder

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	patience   = time.Second
	maxQueries = 64 // at once; more are answered empty
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
	waiting int // answers that are still to come
	got     []messages.Record
	lost    uint64
	partial bool
	timer   runtime.Timer
}

// New is a recorder over the shards of all loops.
func New(shards []messages.Sink[messages.ShardMsg]) *Recorder {
	return &Recorder{shards: shards, queries: map[messages.QueryID]*query{}, rings: map[messages.QueryID]*rings{}}
}

// Receive takes queries and what comes back for them.
func (r *Recorder) Receive(ctx runtime.Context[messages.RecorderMsg], m messages.RecorderMsg) {
	switch m := m.(type) {
	case messages.RecorderStarted:
		r.next = messages.QueryID(ctx.Now().UnixNano()) // what comes for queries of an earlier incarnation finds none
	case messages.RequestQueried:
		r.onRequestQueried(ctx, m)
	case messages.RecordsFound:
		r.onRecordsFound(m)
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
	q := &query{asked: m}
	r.queries[r.next] = q
	for _, s := range r.shards {
		ok := s.Tell(messages.RecordsQueried{
			Query: r.next, Request: m.Request, ClientID: m.ClientID, Newest: m.Newest, Recorder: ctx.Self(),
		})
		if !ok {
			q.partial = true
			continue
		}
		q.waiting++
	}
	if q.waiting == 0 {
		r.finish(r.next)
		return
	}
	q.timer = ctx.After(patience, messages.RecorderDeadlinePassed{Query: r.next})
}

func (r *Recorder) onRecordsFound(m messages.RecordsFound) {
	q := r.queries[m.Query]
	if q == nil {
		return
	}
	for _, rec := range m.Records.All() {
		if q.asked.ClientID == "" || rec.ClientID == q.asked.ClientID {
			q.got = append(q.got, rec)
		}
	}
	q.lost += m.Lost
	q.waiting += m.Running - 1
	if q.waiting <= 0 {
		r.finish(m.Query)
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

func (r *Recorder) finish(id messages.QueryID) {
	q := r.queries[id]
	delete(r.queries, id)
	if q.timer != nil {
		q.timer.Cancel()
	}
	slices.SortFunc(q.got, func(a, b messages.Record) int { return cmp.Compare(b.Request, a.Request) })
	got := q.got
	if q.asked.Request == 0 && q.asked.ClientID == "" {
		got = got[:min(len(got), max(q.asked.Newest, 0))]
	}
	q.asked.Admin.Tell(messages.RecordsAnswered{Records: messages.TakeList(got), Lost: q.lost, Partial: q.partial})
}

// Stopped answers the queries that are still open with what has come.
func (r *Recorder) Stopped(runtime.Context[messages.RecorderMsg]) {
	for _, id := range sorted(r.queries) {
		r.queries[id].partial = true
		r.queries[id].timer = nil
		r.finish(id)
	}
	r.cutRings()
}

// sorted gives the queries in the order in which they came.
func sorted[Q any](open map[messages.QueryID]Q) []messages.QueryID {
	return slices.Sorted(maps.Keys(open))
}
