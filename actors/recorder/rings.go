package recorder

import (
	"cmp"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// rings is a query for the newest events of loops.
type rings struct {
	asked   messages.RingsQueried
	waiting int // loops that have not answered
	got     []messages.Ring
	partial bool          // a shard did not take the question, or time is up
	timer   runtime.Timer // nil = not set
}

func (r *Recorder) onRingsQueried(ctx runtime.Context[messages.RecorderMsg], m messages.RingsQueried) {
	if len(r.queries)+len(r.rings) >= maxQueries {
		m.Admin.Tell(messages.RingsAnswered{Loops: len(r.shards), Partial: true})
		return
	}
	r.next++
	q := &rings{asked: m}
	r.rings[r.next] = q
	for i, s := range r.shards {
		if m.Loop >= 0 && m.Loop != i {
			continue
		}
		if s.Tell(messages.RingQueried{Query: r.next, Newest: m.Newest, Recorder: ctx.Self()}) {
			q.waiting++
		} else {
			q.partial = true
		}
	}
	if q.waiting == 0 {
		r.finishRings(r.next)
		return
	}
	q.timer = ctx.After(patience, messages.RecorderDeadlinePassed{Query: r.next})
}

func (r *Recorder) onRingFound(m messages.RingFound) {
	q := r.rings[m.Query]
	if q == nil {
		return
	}
	q.got = append(q.got, m.Ring)
	q.waiting--
	if q.waiting == 0 {
		r.finishRings(m.Query)
	}
}

func (r *Recorder) finishRings(id messages.QueryID) {
	q := r.rings[id]
	delete(r.rings, id)
	if q.timer != nil {
		q.timer.Cancel()
	}
	slices.SortFunc(q.got, func(a, b messages.Ring) int { return cmp.Compare(a.Loop, b.Loop) })
	q.asked.Admin.Tell(messages.RingsAnswered{
		Rings: messages.TakeList(q.got), Loops: len(r.shards), Partial: q.partial,
	})
}

// cutRings answers the open queries for rings with what has come.
func (r *Recorder) cutRings() {
	for _, id := range sorted(r.rings) {
		r.rings[id].partial = true
		r.rings[id].timer = nil
		r.finishRings(id)
	}
}
