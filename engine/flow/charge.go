package flow

import "github.com/signalbox-epp/signalbox/messages"

// DispatchPrompt returns for how many tokens of its prompt a request is charged when it is dispatched. One whose prompt
// is unknown counts as one token, so that it does not go for nothing.
func DispatchPrompt(tokens int) int64 { return int64(max(tokens, 1)) }

// Charge charges a flow for what its requests used since they were dispatched: output as it comes, prompt and output of
// those that did not wait, and, below 0, what was charged too much. It does nothing in a band without a Meter.
//
// While nothing of the band waits, the band moves along with the flows that are served: they use what others leave
// idle, which is not held against them once there is not enough for all.
func (q *Queues) Charge(key messages.FlowKey, t Tokens) {
	newest := q.band(key.Priority)
	for _, b := range q.bands {
		if b.priority != key.Priority || !b.settings.metered() {
			continue
		}
		if b != newest && b.flows[key.Fairness] == nil {
			continue // an older band, in which nothing of the flow ever waited
		}
		f := b.flowOf(key.Fairness)
		if f.idle {
			b.idle.remove(f)
			b.idle.add(f)
		}
		if (b.total == Total{}) {
			q.join(b, f)
			b.rank = max(b.rank, q.rank(b, &f.account, nil))
		}
		q.charge(b, f, q.cost(b, t))
	}
}

// charge changes an account, and with it the turn of its flow.
func (q *Queues) charge(b *band, f *flow, cost int64) {
	if cost != 0 {
		f.account.Service = max(f.account.Service+cost, 0)
		q.change(b, func() { q.rerankAll(f) })
	}
}

// Undo takes back what a dispatch did that came to nothing: its flow is not charged for it, and keeps its turn.
func (q *Queues) Undo(e *Entry) {
	f := e.payer
	if f == nil {
		return
	}
	if f.account.Served == e.dispatch {
		f.account.Served = e.before
	}
	e.payer = nil
	q.charge(e.band, f, -e.paid)
}

// metered reports whether the fairness of the band goes by what flows were charged.
func (b *BandSettings) metered() bool {
	_, ok := b.Fairness.(Meter)
	return ok
}

// Metered reports whether the requests of a priority say what they use.
func (s *Settings) Metered(priority int) bool {
	b := s.band(priority)
	return b.metered()
}

// cost asks the Meter. If it panics, or the fairness is none, all tokens cost the same.
func (q *Queues) cost(b *band, t Tokens) (cost int64) {
	m, ok := b.settings.Fairness.(Meter)
	if !ok {
		return t.Prompt + t.Output
	}
	defer func() {
		if recover() != nil {
			cost = t.Prompt + t.Output
			q.panicked(b, fairness)
		}
	}()
	return m.Cost(t)
}
