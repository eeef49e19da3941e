package recorder

import (
	"cmp"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// rings is a question for the newest events of loops.
type rings struct {
	gathering
	asked messages.RingsQueried
	loops int // that there are, whether or not they were asked
	got   []messages.Ring
}

func (r *Recorder) onRingsQueried(ctx runtime.Context[messages.RecorderMsg], m messages.RingsQueried) {
	if r.full() {
		m.Admin.Tell(messages.RingsAnswered{Loops: len(r.shards), Partial: true})
		return
	}
	shards := r.shards
	if m.Loop >= 0 {
		shards = shards[min(m.Loop, len(shards)):min(m.Loop+1, len(shards))]
	}
	r.ask(ctx, &rings{asked: m, loops: len(r.shards)}, shards,
		func(id messages.QueryID, s messages.Sink[messages.ShardMsg]) bool {
			return s.Tell(messages.RingQueried{Query: id, Newest: m.Newest, Recorder: ctx.Self()})
		})
}

func (r *Recorder) onRingFound(m messages.RingFound) {
	q, ok := r.open[m.Query].(*rings)
	if !ok {
		return
	}
	q.got = append(q.got, m.Ring)
	q.silent--
	if q.silent == 0 {
		r.finish(m.Query)
	}
}

func (q *rings) answer() {
	slices.SortFunc(q.got, func(a, b messages.Ring) int { return cmp.Compare(a.Loop, b.Loop) })
	q.asked.Admin.Tell(messages.RingsAnswered{
		Rings: messages.TakeList(q.got), Loops: q.loops, Partial: q.partial,
	})
}
