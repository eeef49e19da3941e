package cycle

import (
	"cmp"
	"time"

	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// record is what explain will show of the request.
type record struct {
	rec    messages.Record   // Events stays empty until the record is read or closed
	events [eventSlots]event // those before count are in use
	count  int               // 0 <= count <= eventSlots
	before noted             // what had been noted when the message in hand came
}

// noted is how many events a record has, and how many it had no slot for.
type noted struct{ count, dropped int }

const eventSlots = 16

// event becomes a messages.RecordEvent. It takes 16 bytes, and every cycle has sixteen.
type event struct {
	at, waited, took span
	kind             runtime.Kind // of the message
	to               receiver
}

// span is a time.Duration to seven digits, in half the memory.
type span float32

// receiver is an actor that cycles tell.
type receiver uint8

const (
	toCycle receiver = iota // the cycle handled the message
	toStream
	toPrefix
	toMemory
	toCapacity
)

// receivers are the names of receivers in records.
var receivers = [...]string{
	toCycle: "", toStream: "stream", toPrefix: "prefix", toMemory: "memory",
	toCapacity: "capacity",
}

// tell tells another actor a message and notes that in the record. It reports whether the message was taken, and
// returns when it was told, since the request's arrival.
//
// For an actor of the tree that time is when the message in hand began, and the receiver's loop notes the message in
// its ring. The stream lives outside the runtime: for it the clock is read, and this loop's ring has the message.
func tell[M any](
	c *Cycle, ctx runtime.Context[messages.CycleMsg], to messages.Sink[M], r receiver, m M,
) (bool, time.Duration) {
	taken, kind := to.Tell(m), ctx.Kind(m)
	at := ctx.Now().Sub(c.rec.ArrivedAt)
	if r == toStream {
		at += ctx.Told(receivers[r], uint64(c.req.ID), kind)
	}
	c.note(kind, r, at)
	return taken, at
}

// received notes the message in hand as an event, and returns its slot; -1 = it has none.
func (c *Cycle) received(ctx runtime.Context[messages.CycleMsg], m messages.CycleMsg) int {
	switch m := any(m).(type) {
	case messages.RequestArrived:
		c.rec.ArrivedAt = m.ArrivedAt // set before the first event, whose time counts from it
	case messages.ResponseProgressed, messages.ResponseOngoing, messages.EntriesDoubted, messages.CycleQueried:
		return -1 // frequent, and of no use in a record
	}
	c.before = noted{c.count, c.rec.Dropped}
	arrival := ctx.Arrival()
	slot := c.note(arrival.Kind, toCycle, ctx.Now().Sub(c.rec.ArrivedAt))
	if slot >= 0 {
		c.events[slot].waited = span(arrival.Waited)
	}
	return slot
}

// handled notes how long the message in hand took, also when its handler panicked.
func (c *Cycle) handled(ctx runtime.Context[messages.CycleMsg], slot int) {
	if slot >= 0 && slot < c.count {
		c.events[slot].took = span(ctx.Elapsed())
	}
}

// note keeps a message as an event and returns its slot; -1 = all slots are taken, which is counted.
func (r *record) note(kind runtime.Kind, to receiver, at time.Duration) int {
	if r.count == eventSlots {
		r.rec.Dropped++
		return -1
	}
	r.events[r.count] = event{at: span(at), kind: kind, to: to}
	r.count++
	return r.count - 1
}

// forgetMessage takes the message in hand out of the record, with what was told since it came.
func (r *record) forgetMessage() { r.count, r.rec.Dropped = r.before.count, r.before.dropped }

// listEvents returns the events so far, as the record has them.
func (r *record) listEvents(ctx runtime.Context[messages.CycleMsg]) messages.List[messages.RecordEvent] {
	list := make([]messages.RecordEvent, r.count)
	for i, e := range r.events[:r.count] {
		list[i] = messages.RecordEvent{
			Name: ctx.KindName(e.kind), To: receivers[e.to],
			At: time.Duration(e.at), Waited: time.Duration(e.waited), Took: time.Duration(e.took),
		}
	}
	return messages.TakeList(list)
}

func (c *Cycle) onCycleQueried(ctx runtime.Context[messages.CycleMsg], m messages.CycleQueried) {
	rec := c.rec
	rec.Running = true
	rec.Ended = 0
	if c.phase == queued {
		rec.QueueWait = ctx.Now().Sub(c.wait.asked.Arrived)
	}
	rec.Events = c.listEvents(ctx)
	m.Recorder.Tell(messages.RecordsFound{Query: m.Query, Records: messages.ListOf(rec)})
}

// closeRecord completes the record. A request that lingered in vain ended when it began to linger. Times from the
// proxy's log count from the request's first byte, a little before ArrivedAt: Ended is not less than they are.
func (c *Cycle) closeRecord(ctx runtime.Context[messages.CycleMsg]) {
	ended := ctx.Now()
	if !c.log.parted.IsZero() {
		ended = c.log.parted
	}
	c.rec.Ended = max(ended.Sub(c.rec.ArrivedAt), c.rec.Headers, c.rec.FirstToken)
	c.rec.Events = c.listEvents(ctx)
}

// forgetStatus drops a good status of a response whose end is not known, or of which the client had seen nothing when
// it left: it is that of the headers, and no success.
func (c *Cycle) forgetStatus() {
	r := &c.rec
	left := r.Reason == messages.ClientGone && r.FirstToken == 0 && r.ResponseBytes == 0
	if (r.Reason == messages.Lost || left) && r.Status < 400 {
		r.Status = 0
	}
}

// countTokens learns from a response that reported its tokens, and estimates the tokens of one that did not, was cut,
// or bypassed us. An error has none.
func (c *Cycle) countTokens() {
	r := &c.rec
	if !c.goodAnswer() {
		return
	}
	a := c.tokensIn(r.ResponseBytes, c.whole && r.Reason == messages.NoReason)
	if r.Usage.Source == messages.UsageReported {
		c.deps.Estimates.Learn(&a, &r.Usage)
		return
	}
	estimate := c.deps.Estimates.Usage(&a)
	r.Usage.Source, r.Usage.OutputTokens = estimate.Source, estimate.OutputTokens
	if a.Whole && !r.Bypassed && r.Usage.Source == messages.UsageNotLearned {
		r.Usage.Source = messages.UsageNotReported
	}
}

// goodAnswer reports whether the response is one whose tokens count, as far as it came: an error has none.
func (c *Cycle) goodAnswer() bool {
	return c.rec.Status >= 200 && c.rec.Status < 400 && c.rec.Local == "" && c.bodyStatus == 0
}

// tokensIn returns what an estimate of the tokens of so many bytes depends on.
func (c *Cycle) tokensIn(bytes int64, whole bool) records.Answer {
	return records.Answer{
		Model: cmp.Or(c.rec.Target, c.rec.Model), Form: c.req.Form, Usage: c.req.Usage, Bytes: bytes, Whole: whole,
	}
}
