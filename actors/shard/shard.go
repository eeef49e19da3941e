// Package shard is the parent of one loop's cycles. It answers queries for the loop's records and its newest events,
// and records requests that never had a cycle. It holds no request and does nothing that could fail, for its restart
// would end every cycle of the loop.
package shard

import (
	"cmp"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	ofOneID     = 1000 // ended requests that a query by ids finds, at most: several may have the same client's id
	askedAtOnce = 1024 // cycles that a query by ids or with a filter asks, at most
)

// Shard is the shard of one loop.
type Shard struct {
	book    *records.Book
	metrics *Metrics
	report  func(*messages.Record)
}

// New returns a shard over the loop's book. It reports each request that never had a cycle; report must not block or
// keep the record.
func New(book *records.Book, metrics *Metrics, report func(*messages.Record)) *Shard {
	return &Shard{book: book, metrics: metrics, report: report}
}

// Receive answers queries, takes records and passes the pool's barrier.
func (s *Shard) Receive(ctx runtime.Context[messages.ShardMsg], m messages.ShardMsg) {
	switch m := m.(type) {
	case messages.ShardStarted:
	case messages.RecordsQueried:
		s.onRecordsQueried(ctx, m)
	case messages.ExchangeLogged:
		s.onExchangeLogged(m)
	case messages.ExchangeOngoing:
		if c := s.book.Running(m.Request); c != nil {
			c.Tell(m.Response)
		}
	case messages.LogStreamEnded:
		s.doubt(messages.EntriesDoubted{})
	case messages.ConnectionDoubted:
		s.doubt(messages.EntriesDoubted(m))
	case messages.RecordsMissed:
		s.onRecordsMissed(ctx, m)
	case messages.RingQueried:
		m.Recorder.Tell(messages.RingFound{Query: m.Query, Ring: ctx.Ring(m.Newest)})
	case messages.RequestRefused:
		s.book.End(m.Record)
		s.report(&m.Record)
	case messages.SnapshotReplaced: // the loop ran everything before it
		m.Pool.Tell(messages.LoopPassed{Loop: m.Loop, Version: m.Version})
	}
}

// onExchangeLogged passes the end on to the request's cycle. A cycle that is gone has learned of it from its stream, or
// has given up.
func (s *Shard) onExchangeLogged(m messages.ExchangeLogged) {
	if c := s.book.Running(m.Request); c != nil && c.Tell(m.End) {
		s.metrics.ended.Inc()
		return
	}
	s.metrics.late.Inc()
}

// doubt tells all running cycles that their entries are in doubt.
func (s *Shard) doubt(m messages.EntriesDoubted) {
	for _, id := range s.newestRunning(s.book.Live()) {
		s.book.Running(id).Tell(m)
	}
}

func (s *Shard) onRecordsQueried(ctx runtime.Context[messages.ShardMsg], m messages.RecordsQueried) {
	m.Newest = max(m.Newest, 0)
	asked, unasked := s.askRunning(m)
	n := m.Newest
	if m.Request != 0 || m.IDs.Len() > 0 {
		n = ofOneID
	}
	of := func(id messages.RequestID) bool { return m.Request == 0 || id == m.Request }
	found := s.book.Newest(n, of, func(r *messages.Record) bool {
		return records.HasID(r, m.IDs) && records.Meets(r, &m.Filter)
	})
	m.Recorder.Tell(messages.RecordsFound{
		Query: m.Query, Shard: ctx.Self(), Asked: messages.TakeList(asked), Unasked: unasked, Lost: s.book.Lost(),
		Records: messages.TakeList(found),
	})
}

func (s *Shard) onRecordsMissed(ctx runtime.Context[messages.ShardMsg], m messages.RecordsMissed) {
	missed := map[messages.RequestID]struct{}{}
	for _, id := range m.Requests.All() {
		missed[id] = struct{}{}
	}
	of := func(id messages.RequestID) bool { _, found := missed[id]; return found }
	found := s.book.Newest(len(missed), of, func(*messages.Record) bool { return true })
	for i := range found {
		delete(missed, found[i].Request)
	}
	var running, gone []messages.RequestID
	for _, id := range m.Requests.All() {
		switch _, left := missed[id]; {
		case !left:
		case s.book.Running(id) != nil:
			running = append(running, id)
		default:
			gone = append(gone, id)
		}
	}
	m.Recorder.Tell(messages.MissedFound{
		Query: m.Query, Shard: ctx.Self(), Records: messages.TakeList(found),
		Running: messages.TakeList(running), Gone: messages.TakeList(gone),
	})
}

// askRunning passes a query on to the cycles that may match, which answer by themselves. It returns their requests, and
// the number of further running requests that may match and were not asked.
func (s *Shard) askRunning(m messages.RecordsQueried) (asked []messages.RequestID, unasked int) {
	query := messages.CycleQueried{Query: m.Query, Recorder: m.Recorder}
	if m.Request != 0 {
		if c := s.book.Running(m.Request); c != nil && c.Tell(query) {
			return []messages.RequestID{m.Request}, 0
		}
		return nil, 0
	}
	if !m.Filter.Ended.IsZero() { // they have not ended
		return nil, 0
	}
	most := m.Newest // without a condition, any of the newest requests match
	if m.IDs.Len() > 0 || !records.MeetsAny(&m.Filter) {
		most = askedAtOnce // only a cycle can say whether its request matches
		unasked = max(s.book.Live()-most, 0)
	}
	for _, id := range s.newestRunning(most) {
		if s.book.Running(id).Tell(query) {
			asked = append(asked, id)
		}
	}
	return asked, unasked
}

// newestRunning returns the newest running requests, at most so many, the newest first.
func (s *Shard) newestRunning(most int) []messages.RequestID {
	ids := s.book.RunningIDs()
	slices.SortFunc(ids, func(a, b messages.RequestID) int { return cmp.Compare(b, a) })
	return ids[:min(most, len(ids))]
}

// Stopped gives nothing back: children end before their parent.
func (s *Shard) Stopped(runtime.Context[messages.ShardMsg]) {}
