package records

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// A packed record is a sequence of bytes: its header, its events, its decision, and the scores of it, which take what
// room is left. Its number, when it arrived and the shape of its decision stand beside it. What packs and what unpacks
// a part stand together, and have the same order.

// packer packs one record after the other. It keeps its buffers.
type packer struct {
	to      []byte
	steps   steps
	columns []column // of the decision in hand
}

// unpacker takes values from the front of a packed record.
type unpacker struct {
	from  []byte
	steps *steps
}

// steps numbers what events say of messages: a message's name and its receiver. Both are names that stay as long as the
// process, and the pairs of them are few.
type steps struct {
	known []step               // known[i] has number i+1; 0 = has no number
	next  [mostSteps + 1]uint8 // next[n] is the number that came after n last: most requests have the same messages
	last  uint8                // the number that came last
}

type step struct{ name, to string }

const mostSteps = math.MaxUint8

func (p *packer) count(n int)       { p.to = binary.AppendUvarint(p.to, uint64(n)) }
func (p *packer) unsigned(n uint64) { p.to = binary.AppendUvarint(p.to, n) }
func (p *packer) signed(n int64)    { p.to = binary.AppendVarint(p.to, n) }
func (p *packer) float(v float32)   { p.to = binary.LittleEndian.AppendUint32(p.to, math.Float32bits(v)) }

func (p *packer) flags(all ...bool) {
	var b byte
	for i, set := range all {
		if set {
			b |= 1 << i
		}
	}
	p.to = append(p.to, b)
}

// take returns the next n bytes; fewer if there are not as many.
func (u *unpacker) take(n int) []byte {
	n = min(max(n, 0), len(u.from))
	taken := u.from[:n]
	u.from = u.from[n:]
	return taken
}

func (u *unpacker) unsigned() uint64 {
	v, n := binary.Uvarint(u.from)
	u.take(n)
	return v
}

func (u *unpacker) signed() int64 {
	v, n := binary.Varint(u.from)
	u.take(n)
	return v
}

// count returns the length of what follows, of which each item takes at least so many bits.
func (u *unpacker) count(bits int) int {
	n := u.unsigned()
	if most := uint64(len(u.from)) * 8 / uint64(bits); n > most {
		return int(most)
	}
	return int(n)
}

// texts packs several texts: all lengths first.
func (p *packer) texts(all ...string) {
	for _, s := range all {
		p.count(len(s))
	}
	for _, s := range all {
		p.to = append(p.to, s...)
	}
}

// texts unpacks texts, which share their memory: a query looks at the header of many records.
func (u *unpacker) texts(all ...*string) {
	var ends [9]int
	end := 0
	for i := range all {
		end += u.count(8)
		ends[i] = end
	}
	text, begin := string(u.take(end)), 0
	for i, s := range all {
		end = min(ends[i], len(text))
		*s, begin = text[begin:end], end
	}
}

func (u *unpacker) float() float32 {
	if b := u.take(4); len(b) == 4 {
		return math.Float32frombits(binary.LittleEndian.Uint32(b))
	}
	return 0
}

func (u *unpacker) flags(all ...*bool) {
	b := u.take(1)
	for i, set := range all {
		*set = len(b) > 0 && b[0]&(1<<i) != 0
	}
}

func (p *packer) id(e messages.EndpointID) {
	p.unsigned(uint64(e.Slot))
	p.unsigned(uint64(e.Generation))
}

func (u *unpacker) id() messages.EndpointID {
	return messages.EndpointID{Slot: uint32(u.unsigned()), Generation: uint32(u.unsigned())}
}

// header packs all of a record but Request, ArrivedAt, its events and its decision.
func (p *packer) header(r *messages.Record) {
	p.unsigned(r.Configuration)
	p.flags(r.Stream, r.Running, r.Bypassed, r.Usage.CachedKnown, r.Usage.PromptKnown)
	p.texts(r.ClientID, r.ResponseID, r.Model, r.Target, r.Flow.Fairness, string(r.Elsewhere), r.Local, r.Agent, r.Path)
	for _, d := range [...]time.Duration{r.Ended, r.QueueWait, r.Decided, r.Headers, r.FirstToken, r.SampleAge} {
		p.signed(int64(d))
	}
	for _, n := range [...]int{
		r.Flow.Priority, r.PromptTokens, r.Status, r.Dropped, r.Usage.PromptTokens, r.Usage.CachedTokens,
		r.Usage.OutputTokens, r.Wait.Ahead, r.Wait.Failed,
	} {
		p.signed(int64(n))
	}
	for _, n := range [...]int64{r.BodyBytes, r.ResponseBytes, r.Usage.OwnBytes} {
		p.signed(n)
	}
	p.to = append(p.to, byte(r.Reason), byte(r.Usage.Source), byte(r.Wait.Outcome), byte(r.Wait.Cause),
		byte(r.RewriteLeft), byte(r.API))
	p.id(r.Served)
}

func (u *unpacker) header(r *messages.Record) {
	r.Configuration = u.unsigned()
	u.flags(&r.Stream, &r.Running, &r.Bypassed, &r.Usage.CachedKnown, &r.Usage.PromptKnown)
	u.texts(&r.ClientID, &r.ResponseID, &r.Model, &r.Target, &r.Flow.Fairness, (*string)(&r.Elsewhere), &r.Local,
		&r.Agent, &r.Path)
	for _, d := range [...]*time.Duration{
		&r.Ended, &r.QueueWait, &r.Decided, &r.Headers, &r.FirstToken, &r.SampleAge,
	} {
		*d = time.Duration(u.signed())
	}
	for _, n := range [...]*int{
		&r.Flow.Priority, &r.PromptTokens, &r.Status, &r.Dropped, &r.Usage.PromptTokens, &r.Usage.CachedTokens,
		&r.Usage.OutputTokens, &r.Wait.Ahead, &r.Wait.Failed,
	} {
		*n = int(u.signed())
	}
	for _, n := range [...]*int64{&r.BodyBytes, &r.ResponseBytes, &r.Usage.OwnBytes} {
		*n = u.signed()
	}
	r.Reason, r.Usage.Source = messages.Reason(u.octet()), messages.UsageSource(u.octet())
	r.Wait.Outcome, r.Wait.Cause = messages.Outcome(u.octet()), messages.WaitCause(u.octet())
	r.RewriteLeft, r.API = messages.RewriteLeft(u.octet()), messages.API(u.octet())
	r.Served = u.id()
}

func (u *unpacker) octet() byte {
	if b := u.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (p *packer) events(list messages.List[messages.RecordEvent]) {
	p.count(list.Len())
	for i := range list.Len() {
		e := list.At(i)
		n := p.steps.of(step{e.Name, e.To})
		if p.to = append(p.to, n); n == 0 {
			p.texts(e.Name, e.To)
		}
		to := binary.AppendVarint(p.to, int64(e.At)) // a local slice costs less to append to
		to = binary.AppendVarint(to, int64(e.Waited))
		p.to = binary.AppendVarint(to, int64(e.Took))
	}
}

func (u *unpacker) events() messages.List[messages.RecordEvent] {
	list := make([]messages.RecordEvent, u.count(4*8))
	for i := range list {
		e := &list[i]
		if n := int(u.octet()); n > 0 && n <= len(u.steps.known) {
			e.Name, e.To = u.steps.known[n-1].name, u.steps.known[n-1].to
		} else {
			u.texts(&e.Name, &e.To)
		}
		e.At, e.Waited, e.Took = time.Duration(u.signed()), time.Duration(u.signed()), time.Duration(u.signed())
	}
	return messages.TakeList(list)
}

// of returns the number of a step. It gives a new step the next one, and 0 if there is none left.
func (s *steps) of(e step) uint8 {
	guess := &s.next[s.last]
	if *guess == 0 || s.known[*guess-1] != e {
		at := slices.Index(s.known, e)
		if at < 0 && len(s.known) < mostSteps {
			at = len(s.known)
			s.known = append(s.known, e)
		}
		*guess = uint8(at + 1)
	}
	s.last = *guess
	return s.last
}
