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
// (of a deadline, a drain, a revocation) only refuse. A goroutine holds mu while it sends, while it writes ending or
// identity, and while it moves a phase. The handler alone moves phases, and may read them without mu.
type stream struct {
	srv    *Server
	proxy               // the other end
	inbox  inbox        // for the answer of the cycle
	in     wire.Request // the message in hand; empty while the handler waits for its cycle
	frames int          // read so far, the one in hand included

	mu  sync.Mutex
	out wire.Response // guarded by mu, like all of ending
	ending
	identity // written once, under mu: by the handler, or by a refusal that comes before the handler has set it

	cycle    messages.Port[messages.CycleMsg] // set once, in requestAsking; nil = none was started
	request  request
	response response
}

// proxy is the peer that opened a stream. All but modes is fixed when the stream is opened.
type proxy struct {
	wire  wire.Stream
	conn  Connection // nil = unknown
	check bool       // the peer is a conformance checker
	modes wire.Modes // how bodies are sent; after the first message only overrideTaken changes them
}

// ending says how a stream was closed.
type ending struct {
	closed closeReason
	said   messages.Reason // why the stream refused the request by itself; NoReason = it did not, or its cycle did
}

// identity names the request. It is zero in requestAwaited, unless the stream was refused there, and never zero
// afterwards.
type identity struct {
	id      messages.RequestID
	name    string // id in the form that answers carry
	arrived time.Time
	under   *Configuration // which was in force when its headers came
}

// request holds what is known of the request.
type request struct {
	phase  requestPhase // moved under mu
	facts  facts        // what its headers say
	body   requestBody
	door   door
	model  string // as the body names it; "" before the body was parsed
	api    messages.API
	target string // the model that the body names by now; "" = not rewritten
	// spliced says that the body has changed, so that the proxy has to send this one.
	spliced bool
	// teaches says that tokens can be learnt from the response: it will report its usage, and its bytes can be compared
	// with that. It is false before the body was parsed.
	teaches bool
}

// inbox is where the answer of a cycle waits for the handler.
type inbox struct {
	// answer has room for one PickMade or PickFailed: that of the cycle, or that of a refusal which came before it.
	answer chan messages.StreamMsg
	due    atomic.Int64 // Unix nanoseconds of a later time for the answer; 0 = Config.AnswerWithin holds
}

func newStream(s *Server, w wire.Stream) *stream {
	st := &stream{srv: s, proxy: proxy{wire: w, check: isCheck(w.Context())}}
	st.inbox.answer = make(chan messages.StreamMsg, 1)
	st.request.body.budget = s.held
	if s.deps.Connection != nil && !st.check {
		st.conn = s.deps.Connection(w.Context())
	}
	return st
}

// Tell takes a message of the cycle. It never sends: it stores an answer for the handler, and starts a goroutine for a
// refusal, so that no loop waits for a proxy. It returns false for a second answer.
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
	case messages.MemoryYielded:
		return false // a claim asked, and is told
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
		for st.next() { // the proxy wants its messages read
		}
		return
	}
	if !st.readModes() {
		return
	}
	for !st.onMessage() && st.next() {
	}
}

// next reads a message. It returns false if the proxy has ended the stream.
func (st *stream) next() bool {
	if st.wire.Recv(&st.in) != nil {
		return false
	}
	st.frames++
	return true
}

// readModes learns from the first message how the proxy sends bodies. It returns false if it refused the request for a
// mode.
func (st *stream) readModes() bool {
	modes, ok := st.in.Modes()
	if !ok { // the mode that the endpoint picker protocol demands
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

// refuseMode refuses a request whose proxy uses a body mode that this server does not know.
func (st *stream) refuseMode(direction wire.Direction, mode wire.BodyMode) {
	if st.in.Kind == wire.RequestHeaders {
		st.request.facts.read(&st.in, nil, nil)
	}
	st.refuse(messages.PickFailed{
		Reason: messages.Unsupported, Detail: direction.String() + " body mode " + mode.String() + " is not supported",
	})
}

// onMessage serves one message. It returns true if the stream is over.
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
	case wire.None: // only metadata, a window update, or something newer: the proxy waits for no answer
	}
	return err != nil || st.isClosed() || st.isDispensable()
}

// isDispensable reports whether neither direction needs this stream any more, except for trailers that may follow a
// body that bypasses us. The stream is ended then, for some proxies would keep it, and end it only with the response.
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
	next, v := st.request.phase.after(e, st.requestMode())
	if st.request.phase == requestAwaited && next != requestAwaited {
		st.begin()
	}
	st.request.phase = next
	return v
}

// requestMode returns the mode by which the body of the request moves its phase. After a pick the frames of an upgraded
// request pass like the body in an eager mode.
func (st *stream) requestMode() wire.BodyMode {
	if st.request.facts.upgrade.takes() && st.request.phase != requestGathering {
		return wire.BodyStreamed
	}
	return st.modes.RequestBody
}

// begin gives the request its id and its configuration. The caller holds mu.
func (st *stream) begin() {
	st.under = st.srv.deps.InForce()
	st.id, st.arrived = st.srv.nextID(), st.srv.deps.Now()
	st.name = FormatID(st.srv.cfg.Instance, st.id)
}

// moveResponse applies an event to the response's phase.
func (st *stream) moveResponse(e event) verdict {
	next, v := st.response.phase.after(e, st.modes.ResponseBody)
	if next == st.response.phase {
		return v // as after most chunks. No lock is needed, for the handler alone moves phases
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.response.phase = next
	return v
}

// close records why the stream is over, unless a reason stands already.
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

// send sends the response that set makes, unless the stream is over.
func (st *stream) send(set func(*wire.Response)) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.sendLocked(set)
}

// sendLocked is send for a caller that holds mu.
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

// gone runs once, when the handler returns or panics. It frees what the stream holds, and tells the cycle, or the
// server, how the stream ended.
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
		if st.response.scan != nil {
			gone.Usage = st.response.scan.Usage()
		}
		st.cycle.Post(gone)
	case st.id != 0 && st.request.phase != requestUnplaced && !st.check:
		st.srv.deps.Refused(messages.RequestRefused{Record: st.record(said)})
	}
}

// bypasses reports whether the rest of the response, if there is one, does not come through this stream: its body is
// not shown, and only the access log of the proxy tells of its end.
func (st *stream) bypasses() bool {
	return st.modes.ResponseBody == wire.BodyNone && st.response.phase != responseEnded
}

// log returns what has come of the access log, which is assumed to come if the connection is unknown, or if the proxy
// says that it has one and no entry is overdue. No entry is awaited for a request whose pick was not sent, because its
// entry would not name the request.
func (st *stream) log() messages.LogState {
	switch {
	case !st.request.phase.picked():
		return messages.LogUnknown
	case st.conn == nil:
		return messages.LogSeen
	}
	state := st.conn.Log()
	if state == messages.LogAwaited && announcesLog(st.wire.Context()) {
		return messages.LogSeen
	}
	return state
}

// record returns the record of a request that never had a cycle: this server refused it, its client left, or the proxy
// answered it.
func (st *stream) record(said messages.Reason) messages.Record {
	status := st.response.status
	switch {
	case said != messages.NoReason:
		status = Status(said)
	case !st.response.phase.completed():
		said = messages.ClientGone
	}
	facts, wait := &st.request.facts, messages.Wait{}
	if st.under.MakeWay != nil { // nobody made way for its body
		switch said {
		case messages.NoCapacity:
			wait.Outcome = messages.OutcomeRejectedCapacity
		case messages.NoEndpoints:
			wait.Outcome = messages.OutcomeRejectedNoEndpoints
		}
	}
	return messages.Record{
		Request: st.id, Configuration: st.under.Number,
		ClientID: records.Label(facts.clientID), Model: records.Label(st.request.model),
		Agent: records.Label(facts.agent), Path: records.Label(facts.path()), API: st.request.api,
		Flow: facts.flow(st.under), ArrivedAt: st.arrived, Ended: st.srv.deps.Now().Sub(st.arrived),
		BodyBytes: st.request.body.came, Reason: said, Status: status, ResponseBytes: st.response.bytes,
		Wait: wait,
	}
}
