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
		f := b.payer(key.Fairness, q.now)
		if (b.total == Total{}) {
			q.join(b, f)
			b.rank = max(b.rank, q.rank(b, &f.account, nil))
		}
		q.charge(b, f, t)
	}
}

// charge changes the account of a flow, and with it its turn.
func (q *Queues) charge(b *band, f *flow, t Tokens) {
	if t != (Tokens{}) {
		q.account(b, &f.account, t)
		q.change(b, func() {
			b.measure(q, f)
			q.recount(f)
		})
	}
}

// account has the fairness change an account. If it is no Meter, or panics, all tokens cost the same.
func (q *Queues) account(b *band, a *Account, t Tokens) {
	defer func() { a.At = q.now }()
	m, ok := b.settings.Fairness.(Meter)
	if !ok {
		a.Service = max(a.Service+t.Prompt+t.Output, 0)
		return
	}
	before := a.Service
	defer func() {
		if value := recover(); value != nil {
			a.Service = before + t.Prompt + t.Output
			q.panicked(b, charging, value)
		}
		a.Service = max(a.Service, 0)
	}()
	m.Charge(a, q.now, t)
	b.faults[charging] = 0
}

// Undo takes back what a dispatch did that came to nothing: its flow is not charged for it, and keeps its turn.
func (q *Queues) Undo(e *Entry) {
	f := e.payer
	if f == nil {
		return
	}
	if q.dispatched == e {
		q.dispatched = nil
	}
	if f.account.Served == e.dispatch {
		f.account.Served = e.before
	}
	e.payer = nil
	q.charge(e.band, f, Tokens{Prompt: -DispatchPrompt(e.Prompt)})
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
