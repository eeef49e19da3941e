package cycle

import (
	"reflect"
	"time"

	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// record is what explain will show of the request.
type record struct {
	rec    messages.Record                  // Events stays empty until the record is read or closed
	events [eventSlots]messages.RecordEvent // those before count are in use
	count  int                              // 0 <= count <= eventSlots
}

const eventSlots = 16

// Receivers, as records name them.
const (
	toStream = "stream"
	toFlow   = "flow"
	toPrefix = "prefix"
)

// tell tells another actor a message and notes that in the record. It reports whether the message was taken, and
// returns when it was told, since the request's arrival.
//
// For an actor of the tree that time is when the message in hand began, and the receiver's loop notes the message in
// its ring. The stream lives outside the runtime: for it the clock is read, and this loop's ring has the message.
func tell[M any](
	c *Cycle, ctx runtime.Context[messages.CycleMsg], to messages.Sink[M], receiver string, m M,
) (bool, time.Duration) {
	taken := to.Tell(m)
	at := ctx.Now().Sub(c.rec.ArrivedAt)
	if receiver == toStream {
		_, elapsed := ctx.Told(receiver, uint64(c.req.ID), m)
		at += elapsed
	}
	c.note(m, receiver, at)
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
	slot := c.note(m, "", ctx.Now().Sub(c.rec.ArrivedAt))
	if slot >= 0 {
		c.events[slot].Waited = ctx.Arrival().Waited
	}
	return slot
}

// handled notes how long the message in hand took, also when its handler panicked.
func (c *Cycle) handled(ctx runtime.Context[messages.CycleMsg], slot int) {
	if slot >= 0 {
		c.events[slot].Took = ctx.Elapsed()
	}
}

// note keeps a message as an event and returns its slot; -1 = all slots are taken, which is counted. Without a receiver
// it is a message that the cycle handled.
func (r *record) note(m any, receiver string, at time.Duration) int {
	if r.count == eventSlots {
		r.rec.Dropped++
		return -1
	}
	r.events[r.count] = messages.RecordEvent{Name: reflect.TypeOf(m).Name(), To: receiver, At: at}
	r.count++
	return r.count - 1
}

func (c *Cycle) onCycleQueried(m messages.CycleQueried) {
	rec := c.rec
	rec.Running = true
	rec.Ended = 0
	rec.Events = messages.ListOf(c.events[:c.count]...)
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
	c.rec.Events = messages.ListOf(c.events[:c.count]...)
}

// countTokens learns from a response that reported its tokens, and estimates the tokens of one that did not, was cut,
// or bypassed us. An error has none.
func (c *Cycle) countTokens() {
	r := &c.rec
	if r.Status < 200 || r.Status >= 400 || r.Local != "" || c.bodyStatus != 0 {
		return
	}
	a := records.Answer{
		Model: r.Model, Form: c.req.Form, Usage: c.req.Usage, Bytes: r.ResponseBytes,
		Whole: c.whole && (r.Reason == messages.NoReason),
	}
	if r.Usage.Source == messages.UsageReported {
		c.deps.Estimates.Learn(&a, &r.Usage)
		return
	}
	r.Usage = c.deps.Estimates.Usage(&a)
	if a.Whole && !r.Bypassed && r.Usage.Source == messages.UsageNotLearned {
		r.Usage.Source = messages.UsageNotReported
	}
}
