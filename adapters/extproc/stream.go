package extproc

import (
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/messages"
)

var errOver = errors.New("the stream is over")

// stream is one ext_proc stream: one request of one client.
//
// The handler's goroutine reads the proxy's messages, moves the phases and sends almost everything. Other goroutines
// (of a deadline, a drain, a revocation) only refuse. They hold mu, and so does the handler while it moves a phase, or
// sends; what the handler alone writes it reads without mu.
type stream struct {
	srv    *Server
	proxy               // at the other end
	inbox  inbox        // of its cycle's answer
	in     wire.Request // the message in hand; empty while the handler waits for its cycle
	frames int          // read so far, the one in hand included

	mu  sync.Mutex
	out wire.Response // guarded by mu, like all of ending
	ending
	identity // written under mu, by the handler, or by whoever refuses a stream that has none yet

	cycle    messages.Port[messages.CycleMsg] // set once, in requestAsking; nil = none was started
	request  request
	response response
}

// proxy is who opened a stream. All but modes is fixed when the stream is opened.
type proxy struct {
	wire  wire.Stream
	conn  Connection // nil = unknown
	check bool       // it is a conformance checker
	modes wire.Modes // how it sends bodies; after the first message only overrideTaken changes them
}

// ending is how a stream was closed.
type ending struct {
	closed closeReason
	said   messages.Reason // set with closedRefused: what the stream refused with on its own; NoReason = its cycle did
}

// identity is the request's. The zero identity belongs to streams that are in requestAwaited and were not refused.
type identity struct {
	id      messages.RequestID
	name    string // id, as answers carry it
	arrived time.Time
}

// request is what is known of the request.
type request struct {
	phase requestPhase // moved under mu
	facts facts        // of its headers
	body  requestBody
	model string // as the body names it; "" before it was parsed
	// the answer will tell its tokens, and its bytes can be compared with them; false before it was parsed
	teaches bool
}

// inbox is where the answer of a cycle waits for the handler.
type inbox struct {
	// room for one PickMade or PickFailed: the cycle's, or that of whoever refused before
	answer chan messages.StreamMsg
	due    atomic.Int64 // unix nanoseconds: a later time for the answer; 0 = as configured
}

func newStream(s *Server, w wire.Stream) *stream {
	st := &stream{srv: s, proxy: proxy{wire: w, check: isCheck(w.Context())}}
	st.inbox.answer = make(chan messages.StreamMsg, 1)
	st.request.body.budget = &s.held
	if s.deps.Connection != nil && !st.check {
		st.conn = s.deps.Connection(w.Context())
	}
	return st
}

// Tell is how the cycle answers. It stores, and leaves sending to the stream's own goroutines.
func (st *stream) Tell(m messages.StreamMsg) bool {
	switch m := m.(type) {
	case messages.PickMade, messages.PickFailed:
		select {
		case st.inbox.answer <- m:
			return true
		default:
			return false
		}
	case messages.AnswerDue:
		st.inbox.due.Store(m.At.UnixNano())
	case messages.ServingRevoked:
		go st.refuse(messages.PickFailed{Reason: m.Reason, RetryAfter: m.RetryAfter})
	}
	return true
}

// serve reads messages until the stream is over. The proxy ends almost every stream by a reset, which is no error.
func (st *stream) serve() {
	if !st.next() {
		return
	}
	if st.in.Observability() {
		st.close(closedObserved)
		for st.next() { // the proxy wants it read
		}
		return
	}
	if !st.readModes() {
		return
	}
	for !st.onMessage() && st.next() {
	}
}

// next reads a message. False means that the proxy has ended the stream.
func (st *stream) next() bool {
	if st.wire.Recv(&st.in) != nil {
		return false
	}
	st.frames++
	return true
}

// readModes learns from the first message how the proxy sends bodies. False means that it was refused for that.
func (st *stream) readModes() bool {
	modes, ok := st.in.Modes()
	if !ok { // the endpoint picker protocol's own
		modes = wire.Modes{RequestBody: wire.BodyFullDuplexStreamed, ResponseBody: wire.BodyFullDuplexStreamed}
	}
	st.modes = modes
	for direction, mode := range []wire.BodyMode{modes.RequestBody, modes.ResponseBody} {
		if mode < wire.BodyNone || mode > wire.BodyGRPC {
			st.refuseMode(wire.Direction(direction), mode)
			return false
		}
	}
	return true
}

// refuseMode refuses the request of a proxy that speaks a body mode that this server does not know.
func (st *stream) refuseMode(direction wire.Direction, mode wire.BodyMode) {
	if st.in.Kind == wire.RequestHeaders {
		st.request.facts.read(&st.in)
	}
	st.refuse(messages.PickFailed{
		Reason: messages.Unsupported, Detail: direction.String() + " body mode " + mode.String() + " is not supported",
	})
}

// onMessage serves one message. True ends the stream.
func (st *stream) onMessage() bool {
	var err error
	switch e := eventOf(&st.in); st.in.Kind {
	case wire.RequestHeaders:
		err = st.onRequestHeaders(e)
	case wire.RequestBody:
		err = st.onRequestBody(e)
	case wire.RequestTrailers:
		err = st.onRequestTrailers()
	case wire.ResponseHeaders:
		err = st.onResponseHeaders(e)
	case wire.ResponseBody:
		err = st.onResponseBody(e)
	case wire.ResponseTrailers:
		err = st.onResponseTrailers()
	case wire.None: // metadata, a window update, or something newer: no answer is due
	}
	return err != nil || st.isClosed() || st.isDispensable()
}

// isDispensable reports whether nothing in either direction needs us any more, but trailers that may follow a body that
// bypasses us. Some proxies would keep the stream, and end the response with it.
func (st *stream) isDispensable() bool {
	if st.response.phase != responseBypass {
		return false
	}
	switch mode := st.modes.RequestBody; st.request.phase {
	case requestEnded:
		return true
	case requestForwarded:
		return mode == wire.BodyNone || mode == wire.BodyBufferedPartial
	default:
		return mode == wire.BodyNone
	}
}

// moveRequest applies an event to the request's phase. The request gets its id as it leaves requestAwaited.
func (st *stream) moveRequest(e event) verdict {
	st.mu.Lock()
	defer st.mu.Unlock()
	next, v := st.request.phase.after(e, st.modes.RequestBody)
	if st.request.phase == requestAwaited && next != requestAwaited {
		st.begin()
	}
	st.request.phase = next
	return v
}

// begin gives the request its id, for whoever holds mu.
func (st *stream) begin() {
	st.id, st.arrived = st.srv.nextID(), st.srv.deps.Now()
	st.name = FormatID(st.srv.cfg.Instance, st.id)
}

// moveResponse applies an event to the response's phase.
func (st *stream) moveResponse(e event) verdict {
	next, v := st.response.phase.after(e, st.modes.ResponseBody)
	if next == st.response.phase {
		return v // as after most chunks: the handler alone moves it
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.response.phase = next
	return v
}

// close gives the stream a reason to be over, unless it has one.
func (st *stream) close(why closeReason) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = st.closed.or(why)
}

func (st *stream) isClosed() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.closed != closedNot
}

// send sends what set makes, unless the stream is over.
func (st *stream) send(set func(*wire.Response)) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.sendLocked(set)
}

// sendLocked is send for whoever holds mu.
func (st *stream) sendLocked(set func(*wire.Response)) error {
	if st.closed != closedNot {
		return errOver
	}
	set(&st.out)
	if err := st.wire.Send(&st.out); err != nil {
		st.closed = closedBroken
		return err
	}
	return nil
}

// echo sends a whole body, unless the stream is over.
func (st *stream) echo(e *wire.Echo) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	defer e.Discard()
	if st.closed != closedNot {
		return errOver
	}
	for e.Next(&st.out) {
		if err := st.wire.Send(&st.out); err != nil {
			st.closed = closedBroken
			return err
		}
	}
	return nil
}

// gone runs once, when the handler ends, however it does.
func (st *stream) gone() {
	if r := recover(); r != nil {
		st.srv.cfg.Metrics.panics.Inc()
		if st.srv.deps.Panicked != nil {
			st.srv.deps.Panicked(r, debug.Stack())
		}
		st.refuse(messages.PickFailed{Reason: messages.Internal})
		st.close(closedPanicked)
	}
	st.close(closedReturned)
	st.in.Release()
	st.request.body.release()
	st.mu.Lock()
	st.out.Discard()
	said := st.said
	st.mu.Unlock()
	if st.response.phase == responseAsked {
		st.overrideIgnored()
	}
	switch {
	case st.cycle != nil:
		gone := messages.StreamGone{
			Answered: said, Completed: st.response.phase.completed(),
			FrameCount: st.frames, ResponseBytes: st.response.bytes, Logged: said == messages.NoReason && st.bypasses(),
		}
		if gone.Logged {
			gone.Log = st.log()
		}
		st.cycle.Post(gone)
	case st.id != 0 && st.request.phase != requestUnplaced && !st.check:
		st.srv.deps.Refused(messages.RequestRefused{Record: st.record(said)})
	}
}

// bypasses reports whether the response, if there is one, goes on without us: its body is not shown, and its end is in
// the proxy's access log alone.
func (st *stream) bypasses() bool {
	return st.modes.ResponseBody == wire.BodyNone && st.response.phase != responseEnded
}

// log is what has come of the access log, which is taken to come where no connection is known. None is awaited of a
// request whose pick was not sent: its entry does not name it.
func (st *stream) log() messages.LogState {
	switch {
	case !st.request.phase.picked():
		return messages.LogUnknown
	case st.conn == nil:
		return messages.LogSeen
	}
	return st.conn.Log()
}

// record is what became of a request that never had a cycle: we refused it, its client left, or the proxy answered it.
func (st *stream) record(said messages.Reason) messages.Record {
	status := st.response.status
	switch {
	case said != messages.NoReason:
		status = Status(said)
	case !st.response.phase.completed():
		said = messages.ClientGone
	}
	facts := &st.request.facts
	return messages.Record{
		Request: st.id, ClientID: records.Label(facts.clientID), Model: records.Label(st.request.model),
		Flow: facts.flow(), ArrivedAt: st.arrived, Ended: st.srv.deps.Now().Sub(st.arrived),
		BodyBytes: st.request.body.came, Reason: said, Status: status, ResponseBytes: st.response.bytes,
	}
}
