// Package shard is the parent of the cycles that one loop carries. It answers what the loop remembers of requests, and what
// it did last. It holds no request and does nothing that could fail, for its restart would end every cycle of the loop.
package shard

import (
	"cmp"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// Shard is the shard of one loop.
type Shard struct{ book *records.Book }

// New is a shard over the loop's book.
func New(book *records.Book) *Shard { return &Shard{book: book} }

// Receive answers queries.
func (s *Shard) Receive(ctx runtime.Context[messages.ShardMsg], m messages.ShardMsg) {
	switch m := m.(type) {
	case messages.ShardStarted:
	case messages.RecordsQueried:
		s.onRecordsQueried(m)
	case messages.RingQueried:
		m.Recorder.Tell(messages.RingFound{Query: m.Query, Ring: ctx.Ring(m.Newest)})
	}
}

func (s *Shard) onRecordsQueried(m messages.RecordsQueried) {
	m.Newest = max(m.Newest, 0)
	asked, n := s.askRunning(m), m.Newest
	if m.Request != 0 || m.ClientID != "" {
		n = 16 // several requests may share the client's id
	}
	found := s.book.Newest(n, func(r *messages.Record) bool {
		return (m.Request == 0 || r.Request == m.Request) && (m.ClientID == "" || r.ClientID == m.ClientID)
	})
	m.Recorder.Tell(messages.RecordsFound{Query: m.Query, Running: asked, Lost: s.book.Lost(), Records: messages.TakeList(found)})
}

// askRunning passes the query to the cycles that may match; they answer by themselves.
func (s *Shard) askRunning(m messages.RecordsQueried) int {
	query := messages.CycleQueried{Query: m.Query, Recorder: m.Recorder}
	if m.Request != 0 {
		if c := s.book.Running(m.Request); c != nil && c.Tell(query) {
			return 1
		}
		return 0
	}
	most := 256
	if m.ClientID == "" {
		most = m.Newest
	}
	asked := 0
	for _, id := range s.newestRunning(most) {
		if s.book.Running(id).Tell(query) {
			asked++
		}
	}
	return asked
}

func (s *Shard) newestRunning(most int) []messages.RequestID {
	ids := s.book.RunningIDs()
	slices.SortFunc(ids, func(a, b messages.RequestID) int { return cmp.Compare(b, a) })
	return ids[:min(most, len(ids))]
}

// Stopped gives nothing back: children end before their parent.
func (s *Shard) Stopped(runtime.Context[messages.ShardMsg]) {}
