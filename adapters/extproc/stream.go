package extproc

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/messages"
)

// stream is one ext_proc stream: one request of one client.
type stream struct {
	srv  *Server
	wire wire.Stream
	conn Connection // nil = unknown
	in   wire.Request

	check bool // a conformance checker opened it

	modes wire.Modes // how the proxy sends bodies; set by the first frame

	answer chan messages.StreamMsg // PickMade or PickFailed, once
	due    atomic.Int64            // unix nanoseconds: a later time for the answer; 0 = as configured

	mu       sync.Mutex // held while anything is sent
	out      wire.Response
	over     bool               // an immediate response was sent, or the handler has returned: nothing may follow
	answered bool               // the pick was sent, or a response began without one: the request waits for nothing
	passed   bool               // the response's end has been sent, or is about to be: it is too late to refuse
	said     messages.Reason    // what we refused with on our own; NoReason = we did not
	timer    *time.Timer        // of the body
	whole    bool               // the body is here: its deadline is void
	id       messages.RequestID // 0 before the request's headers; written by the handler only
	name     string             // likewise: the id as answers carry it

	// Until the body is whole these two are under mu, so that a refusal lets go of what has come; then they are the handler's.
	body wire.Body
	held int64 // bytes of it that the server counts

	// All below belongs to the handler's goroutine.
	frames   int
	cycle    messages.Port[messages.CycleMsg] // nil before the cycle starts
	facts    facts
	arrived  time.Time
	model    string // as the body names it; "" before it was parsed
	bytes    int64  // of the body so far
	request  laneState
	response laneState
	resp     responseFacts
	full     bool // the loop had no room for a cycle
	picked   bool // the pick was sent
	teaches  bool // the answer will tell its tokens, and its bytes are worth to be compared with them
	panicked bool // the handler
	observed bool // observability mode: read, never answer
}

// laneState is how far a lane has come, by what the proxy sent.
type laneState uint8

const (
	laneNew     laneState = iota
	laneHeaders           // headers came
	laneEnded             // end of stream or trailers came
)

// Tell is how the cycle answers. It stores, and leaves sending to the stream's own goroutines.
func (st *stream) Tell(m messages.StreamMsg) bool {
	switch m := m.(type) {
	case messages.PickMade, messages.PickFailed:
		select {
		case st.answer <- m:
			return true
		default:
			return false
		}
	case messages.AnswerDue:
		st.due.Store(m.At.UnixNano())
	case messages.ServingRevoked:
		go st.refuse(messages.PickFailed{Reason: m.Reason, RetryAfter: m.RetryAfter})
	}
	return true
}

// serve reads frames until the stream is over. The proxy ends almost every stream by a reset, which is no error.
func (st *stream) serve() {
	for st.wire.Recv(&st.in) == nil {
		st.frames++
		if st.frames == 1 {
			if done := st.onFirst(); done {
				return
			}
		}
		if st.observed {
			continue
		}
		if done := st.onFrame(); done {
			return
		}
	}
}

// onFirst learns the mode. True ends the stream.
func (st *stream) onFirst() bool {
	if st.in.Observability() {
		st.observed = true
		st.mu.Lock()
		st.over = true
		st.mu.Unlock()
		return false
	}
	modes, ok := st.in.Modes()
	if !ok { // the endpoint picker protocol's own
		modes = wire.Modes{RequestBody: wire.BodyFullDuplexStreamed, ResponseBody: wire.BodyFullDuplexStreamed}
	}
	st.modes = modes
	for lane, mode := range []wire.BodyMode{modes.RequestBody, modes.ResponseBody} {
		if mode < wire.BodyNone || mode > wire.BodyGRPC {
			return st.refuseMode(wire.Lane(lane), mode)
		}
	}
	return false
}

// refuseMode ends the stream: the proxy speaks a body mode that this server does not know.
func (st *stream) refuseMode(lane wire.Lane, mode wire.BodyMode) bool {
	if st.in.Kind == wire.RequestHeaders {
		st.facts.read(&st.in)
	}
	st.refuse(messages.PickFailed{
		Reason: messages.Unsupported, Detail: lane.String() + " body mode " + mode.String() + " is not supported",
	})
	return true
}

// begin gives the request its id.
func (st *stream) begin() {
	st.id, st.arrived = st.srv.nextID(), st.srv.deps.Now()
	st.name = FormatID(st.srv.cfg.Instance, st.id)
}

// onFrame serves one frame. True ends the stream.
func (st *stream) onFrame() bool {
	var err error
	switch st.in.Kind {
	case wire.RequestHeaders:
		err = st.onRequestHeaders()
	case wire.RequestBody:
		err = st.onRequestBody()
	case wire.RequestTrailers:
		err = st.onRequestTrailers()
	case wire.ResponseHeaders:
		err = st.onResponseHeaders()
	case wire.ResponseBody:
		err = st.onResponseBody()
	case wire.ResponseTrailers:
		err = st.onResponseTrailers()
	case wire.None: // metadata, a window update, or something newer: no answer is due
	}
	return err != nil || st.isOver() || st.isPassed()
}

func (st *stream) isOver() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.over
}

// pass puts the response beyond recall; called right before its end is sent.
func (st *stream) pass() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.passed = true
}

// send sends what set makes, unless the stream is over.
func (st *stream) send(set func(*wire.Response)) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.over {
		return errOver
	}
	set(&st.out)
	return st.wire.Send(&st.out)
}

// echo sends a whole body, unless the stream is over.
func (st *stream) echo(e *wire.Echo) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	defer e.Discard()
	if st.over {
		return errOver
	}
	for e.Next(&st.out) {
		if err := st.wire.Send(&st.out); err != nil {
			return err
		}
	}
	return nil
}

// gone runs once, when the handler ends, however it does.
func (st *stream) gone() {
	if r := recover(); r != nil {
		st.panicked = true
		st.srv.cfg.Metrics.panics.Inc()
		if st.srv.deps.Panicked != nil {
			st.srv.deps.Panicked(r, debug.Stack())
		}
		st.refuse(messages.PickFailed{Reason: messages.Internal})
	}
	st.mu.Lock()
	st.over = true
	said := st.said
	if st.timer != nil {
		st.timer.Stop()
	}
	st.out.Discard()
	st.mu.Unlock()
	st.in.Release()
	st.letGo()
	if st.resp.asked && st.modes.ResponseBody == wire.BodyNone {
		st.ignored()
	}
	switch {
	case st.cycle != nil:
		gone := messages.StreamGone{
			Answered: said, Completed: st.resp.completed, FrameCount: st.frames, ResponseBytes: st.resp.bytes,
			Logged: said == messages.NoReason && st.passedBy(),
		}
		if gone.Logged {
			gone.Log = st.log()
		}
		st.cycle.Post(gone)
	case st.id != 0 && !st.full && !st.check:
		st.srv.deps.Refused(messages.RequestRefused{Record: st.record(said)})
	}
}

// log is what has come of the access log, which is taken to come where no connection is known. None is awaited of a request whose
// pick was not sent: its entry does not name it.
func (st *stream) log() messages.LogState {
	switch {
	case !st.picked:
		return messages.LogUnknown
	case st.conn == nil:
		return messages.LogSeen
	}
	return st.conn.Log()
}

// passedBy says that the response, if there is one, goes on without us: its body is not shown, and its end is in the proxy's
// access log alone.
func (st *stream) passedBy() bool {
	return st.modes.ResponseBody == wire.BodyNone && st.response != laneEnded
}

// record is what became of a request that never had a cycle: we refused it, its client left, or the proxy answered it.
func (st *stream) record(said messages.Reason) messages.Record {
	status := st.resp.status
	switch {
	case said != messages.NoReason:
		status = Status(said)
	case !st.resp.completed:
		said = messages.ClientGone
	}
	return messages.Record{
		Request: st.id, ClientID: records.Label(st.facts.clientID), Model: records.Label(st.model), Flow: st.facts.flow(),
		ArrivedAt: st.arrived, Ended: st.srv.deps.Now().Sub(st.arrived), BodyBytes: st.bytes, Reason: said, Status: status,
		ResponseBytes: st.resp.bytes,
	}
}
