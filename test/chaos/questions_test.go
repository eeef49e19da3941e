package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	curious = 3  // clients that ask the recorder at a time
	kept    = 64 // records of the last answer, which is held while streams are counted
)

// asker is the address of one question to the recorder, which must have exactly one end.
type asker struct {
	*rig
	what string
	came chan messages.AdminMsg // the first answer; nil = the question was lost with an incarnation of the recorder
	ends atomic.Int32
}

// Tell takes an answer. It must be the only end.
func (a *asker) Tell(m messages.AdminMsg) bool {
	if n := a.ends.Add(1); n > 1 {
		a.Errorf("%s: %d answers, or one after it was refused or lost", a.what, n)
		return true
	}
	a.came <- m
	return true
}

// lose ends a question that its recorder falls with: a restart loses the message in hand.
func lose(m any) {
	switch m := m.(type) {
	case messages.RequestQueried:
		m.Admin.Tell(nil)
	case messages.RingsQueried:
		m.Admin.Tell(nil)
	}
}

// inquire asks one question after the other until it is over.
func (s *session) inquire(over <-chan struct{}) {
	var known messages.RequestID // of which there was a record
	for {
		dice := s.faults.next("question")
		select {
		case <-over:
			return
		case <-time.After(upTo(dice, 40*time.Millisecond)):
		}
		if dice.IntN(3) == 0 {
			s.askRings(messages.RingsQueried{Loop: dice.IntN(loops+2) - 1, Newest: 1 + dice.IntN(200)})
			continue
		}
		for _, r := range s.askRecords(s.drawQuestion(dice, known)).Records.All() {
			known = r.Request
		}
	}
}

// drawQuestion asks for one request by either of its names, or for the newest.
func (s *session) drawQuestion(dice *rand.Rand, known messages.RequestID) messages.RequestQueried {
	switch dice.IntN(3) {
	case 0:
		return messages.RequestQueried{IDs: messages.ListOf(nameOf(dice.IntN(s.requests)))}
	case 1:
		if known != 0 {
			return messages.RequestQueried{Request: known}
		}
	}
	return messages.RequestQueried{Newest: 1 + dice.IntN(50)}
}

// ask waits for the one end of a question, and gives the answer; nil = it was refused or lost.
func (s *session) ask(what string,
	question func(messages.Sink[messages.AdminMsg]) messages.RecorderMsg) messages.AdminMsg {
	a := &asker{rig: s.rig, what: what, came: make(chan messages.AdminMsg, 1)}
	if !s.picker.Recorder().Post(question(a)) {
		a.ends.Add(1)
		s.faults.met("question refused")
		return nil
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case m := <-a.came:
		if m == nil {
			s.faults.met("question lost")
		}
		return m
	case <-late.C:
		s.Errorf("%s: no answer within %v", what, patience)
		return nil
	}
}

// askRecords checks what comes, and gives it.
func (s *session) askRecords(q messages.RequestQueried) messages.RecordsAnswered {
	what := fmt.Sprintf("records of %v, %q, newest %d", q.Request, q.IDs.Append(nil), q.Newest)
	m := s.ask(what, func(to messages.Sink[messages.AdminMsg]) messages.RecorderMsg {
		q.Admin = to
		return q
	})
	if m == nil {
		return messages.RecordsAnswered{Partial: true}
	}
	got, ok := m.(messages.RecordsAnswered)
	if !ok {
		s.Errorf("%s: the answer is a %T", what, m)
	}
	s.answered(got.Partial)
	most, before := q.Newest, ^messages.RequestID(0)
	if q.Request != 0 || q.IDs.Len() > 0 {
		most = got.Records.Len()
	}
	if got.Records.Len() > most {
		s.Errorf("%s: %d came", what, got.Records.Len())
	}
	for _, r := range got.Records.All() {
		if wrong := misfit(q, &r); wrong != "" || r.Request >= before {
			s.Errorf("%s: after %v came %v of %q: %s", what, before, r.Request, r.ClientID, wrong)
		}
		before = r.Request
	}
	return got
}

// misfit reads all of a record, and says what does not fit.
func misfit(q messages.RequestQueried, r *messages.Record) string {
	switch _, ours := numberOf(r.ClientID); {
	case q.Request != 0 && r.Request != q.Request, !records.HasID(r, q.IDs), r.ClientID != "" && !ours:
		return "nobody asked for it"
	case r.ArrivedAt.IsZero() || r.Ended < 0 || r.Running && r.Ended != 0:
		return fmt.Sprintf("arrived at %v, ended after %v, running %v", r.ArrivedAt, r.Ended, r.Running)
	}
	for i, e := range r.Events.All() {
		if e.Name == "" || e.At < 0 || e.Waited < 0 || e.Took < 0 {
			return fmt.Sprintf("event %d is %+v", i, e)
		}
	}
	for _, p := range r.Decision.Profiles.All() {
		if n := p.Totals.Len(); n != r.Decision.Endpoints.Len() && n > 0 || p.Ranked.Len() > n {
			return fmt.Sprintf("profile %q has %d totals and %d ranks of %d endpoints", p.Profile, n, p.Ranked.Len(),
				r.Decision.Endpoints.Len())
		}
	}
	return ""
}

// askRings checks what comes, and gives it.
func (s *session) askRings(q messages.RingsQueried) messages.RingsAnswered {
	what := fmt.Sprintf("rings of loop %d, newest %d", q.Loop, q.Newest)
	m := s.ask(what, func(to messages.Sink[messages.AdminMsg]) messages.RecorderMsg {
		q.Admin = to
		return q
	})
	if m == nil {
		return messages.RingsAnswered{Partial: true}
	}
	got, ok := m.(messages.RingsAnswered)
	if !ok {
		s.Errorf("%s: the answer is a %T", what, m)
	}
	s.answered(got.Partial)
	var want, came []int
	for i := range loops {
		if q.Loop < 0 || q.Loop == i {
			want = append(want, i)
		}
	}
	for _, r := range got.Rings.All() {
		came = append(came, r.Loop)
		if n := r.Events.Len(); n > q.Newest || uint64(n) > r.Total {
			s.Errorf("%s: %d events of %d", what, n, r.Total)
		}
		for i, e := range r.Events.All() {
			if e.Begin > r.Read || e.Took < 0 || e.Waited < 0 {
				s.Errorf("%s: event %d is %+v, read at %v", what, i, e, r.Read)
			}
		}
	}
	if got.Loops != loops || !got.Partial && !slices.Equal(came, want) {
		s.Errorf("%s: those of %v came, of %d loops", what, came, got.Loops)
	}
	return got
}

func (s *session) answered(partial bool) {
	if partial {
		s.faults.met("question answered in part")
		return
	}
	s.faults.met("question answered")
}

// told is what the recorder says when nothing runs any more. Whoever holds it must hold no stream.
type told struct {
	records messages.RecordsAnswered
	rings   messages.RingsAnswered
}

// asked reads what is left to tell: all of it, for nothing fails any more.
func (s *session) asked() told {
	s.Helper()
	all := told{s.askRecords(messages.RequestQueried{Newest: kept}),
		s.askRings(messages.RingsQueried{Loop: -1, Newest: 256})}
	last := s.askRecords(messages.RequestQueried{IDs: messages.ListOf(nameOf(s.last))})
	if all.records.Partial || all.rings.Partial || last.Partial || all.records.Records.Len() != kept ||
		last.Records.Len() != 1 {
		s.Errorf("after all faults came %d records, partial %v, %d of the last request, partial %v, rings partial %v",
			all.records.Records.Len(), all.records.Partial, last.Records.Len(), last.Partial, all.rings.Partial)
	}
	for _, r := range all.records.Records.All() {
		if r.Running || r.Ended == 0 {
			s.Errorf("%v of %q is told to run when nothing runs", r.Request, r.ClientID)
		}
	}
	s.until("no timer is set", func() bool {
		return s.atRest(func(i int) int { return runtimetest.Inspect(s.picker.System()).Timers(i) }) == 0
	})
	return all
}
