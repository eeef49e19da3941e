package extproc

import (
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/held"
	"github.com/signalbox-epp/signalbox/adapters/extproc/trust"
	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/messages"
)

func (st *stream) onRequestHeaders(e event) error {
	if st.moveRequest(e) == ignored {
		return nil // headers came a second time: the first count
	}
	facts := &st.request.facts
	facts.read(&st.in, st.under.Headers, st.policy())
	st.readSubset()
	facts.aside.forced = facts.aside.endpoint != "" && (fromLoopback(&st.in) || st.srv.accepts(facts.aside.token))
	if st.request.phase == requestGathering && facts.upgrade.takes() {
		st.moveRequest(upgradeSeen)
	}
	if st.request.phase == requestAsking {
		if models := st.models(); len(models) > 0 {
			return st.listModels(models)
		}
		return st.ask(e)
	}
	st.expectBody()
	st.readyDoor()
	if failed := st.reserve(facts.contentLength); failed.Reason != messages.NoReason {
		return st.refuseNow(failed) // before the body comes
	}
	if buffered(st.modes.RequestBody) {
		if err := st.send(func(r *wire.Response) { r.SetEmptyHeaders(wire.RequestDirection) }); err != nil {
			return err
		}
	}
	return nil
}

// policy returns what the headers of the request may not say; nil = they may say everything.
func (st *stream) policy() *trust.Policy {
	policy, certified := st.under.Trust, st.srv.deps.Certified
	if policy == nil || certified == nil {
		return policy
	}
	return policy.For(certified(st.wire.Context()))
}

// reserve makes room for the beginning of a body whose length the client told. It returns why the request is refused,
// if it is.
func (st *stream) reserve(told int64) (failed messages.PickFailed) {
	body := &st.request.body
	if told <= 0 || told > st.srv.cfg.MaxBodyBytes || body.reserve(int(told)) {
		return failed
	}
	if failed = st.awaitMemory(wire.Reservable(int(told))); failed.Reason == messages.NoReason {
		body.reserve(int(told)) // what it takes is counted
	}
	return failed
}

// expectBody starts the deadline of the body, or that of the whole request if it comes first.
func (st *stream) expectBody() {
	within, late := st.srv.cfg.BodyTimeout, messages.BodyTimeout
	if st.srv.cfg.WholeRequest < within {
		within, late = st.srv.cfg.WholeRequest, messages.RequestTimeout
	}
	st.request.body.expect(within, func() { st.onBodyTimeout(late) })
}

// onBodyTimeout refuses the request, unless its body became whole meanwhile or a response has begun: the proxy may
// answer by itself while the body still comes. It runs on the timer's goroutine.
func (st *stream) onBodyTimeout(why messages.Reason) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.request.phase == requestGathering && st.response.phase == responseAwaited {
		refusal := refusalFor(why)
		if st.request.door.waits {
			refusal = st.saturated(0) // it is not the client that is late
		}
		st.refuseLocked(refusal)
	}
}

func (st *stream) onRequestBody(e event) error {
	switch st.moveRequest(e) {
	case ignored:
		return nil
	case headless, bodiless:
		return st.refuseHeadless()
	case taken:
	}
	if eager(st.requestMode()) {
		return st.answerForwardedBody()
	}
	return st.gather(e)
}

// readSubset reads the subset hint of a message, if it has one that counts.
func (st *stream) readSubset() {
	if !st.srv.cfg.WholePool {
		st.request.facts.readSubset(&st.in)
	}
}

// gather takes a chunk of the body that the pick waits for, and asks for the pick once the body is whole.
func (st *stream) gather(e event) error {
	st.readSubset()
	st.request.door.waited = 0
	if failed := st.take(); failed.Reason != messages.NoReason {
		return st.refuseNow(failed)
	}
	if st.request.phase == requestAsking {
		return st.ask(e)
	}
	return nil
}

// take copies the chunk in hand. It returns why the request is refused, if it is.
func (st *stream) take() messages.PickFailed {
	body, most := &st.request.body, st.srv.cfg.MaxBodyBytes
	switch why := body.take(&st.in, most); why {
	case messages.NoReason:
		return messages.PickFailed{}
	case messages.Overloaded:
		if failed := st.awaitMemory(st.in.BodyLen()); failed.Reason != messages.NoReason {
			return failed
		}
		return messages.PickFailed{Reason: body.take(&st.in, most)} // what it takes is counted
	default:
		return refusalFor(why)
	}
}

// answerForwardedBody answers a chunk of a body that has no part in the pick.
func (st *stream) answerForwardedBody() error {
	switch st.modes.RequestBody {
	case wire.BodyStreamed:
		return st.send(func(r *wire.Response) { r.SetEmptyBody(wire.RequestDirection) })
	case wire.BodyGRPC:
		var e wire.Echo
		e.StartMessage(&st.in)
		return st.echo(&e)
	case wire.BodyFullDuplexStreamed: // of an upgraded request
		var e wire.Echo
		e.StartRequest(&st.in)
		return st.echo(&e)
	default: // NONE: the proxy waits for no answer
		return nil
	}
}

func (st *stream) onRequestTrailers() error {
	switch st.moveRequest(trailersCame) {
	case ignored:
		return nil
	case headless:
		return st.refuseHeadless()
	case bodiless:
		return st.refuseNow(messages.PickFailed{
			Reason: messages.Unsupported,
			Detail: "trailers without a body cannot be routed in request body mode " + st.modes.RequestBody.String(),
		})
	case taken:
	}
	if st.request.phase == requestEnded { // the pick was sent before
		return st.send(func(r *wire.Response) { r.SetEmptyTrailers(wire.RequestDirection) })
	}
	st.readSubset()
	return st.ask(trailersCame)
}

// refuseHeadless refuses a request whose headers are not sent to us, because nothing could carry its pick: Envoy sends
// such headers on at once, so its load balancer has chosen before the body is answered, and ignores changes of headers
// after that.
func (st *stream) refuseHeadless() error {
	return st.refuseNow(messages.PickFailed{
		Reason: messages.Unsupported,
		Detail: "request header mode SKIP is not supported, want SEND",
	})
}

// door is what a stream knows of the memory for its body under a configuration by which others make way for it.
type door struct {
	priority int
	waits    bool          // for memory; guarded by the stream's mu
	waited   time.Duration // for memory, since the message in hand came
}

// spareShare is the share of the budget that is left to requests of priority 0 and above: an eighth.
const spareShare = 8

// readyDoor notes what the body may take of the budget.
func (st *stream) readyDoor() {
	if st.under.MakeWay == nil {
		return
	}
	st.request.door.priority = st.request.facts.flow(st.under).Priority
	if st.request.door.priority < 0 {
		st.request.body.spare = st.srv.held.Limit() / spareShare
	}
}

// noMemory returns the refusal of a request for whose body there is no memory.
func (st *stream) noMemory() messages.PickFailed {
	if st.under.MakeWay == nil {
		return refusalFor(messages.Overloaded)
	}
	return st.saturated(0)
}

// awaitMemory has others make way for n bytes more of the body, and waits for their memory. It returns why the request
// is refused, if it is.
func (st *stream) awaitMemory(n int) messages.PickFailed {
	body, door := &st.request.body, &st.request.door
	bytes := body.lacks(n)
	if st.under.MakeWay == nil || bytes == 0 {
		return st.noMemory()
	}
	began := time.Now()
	c, short := st.srv.held.File(bytes, body.spare, door.priority)
	if c == nil {
		return st.noMemory()
	}
	st.setDoorWaits(true)
	if failed := st.awaitGrant(c, short); failed.Reason != messages.NoReason {
		st.srv.held.Withdraw(c)
		return failed // it still waits for memory, should the body's deadline come before its refusal
	}
	st.setDoorWaits(false)
	body.add(bytes)
	door.waited += time.Since(began)
	return messages.PickFailed{}
}

func (st *stream) setDoorWaits(waits bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.request.door.waits = waits
}

// awaitGrant waits until a claim is granted that is short of so many bytes, or the request is refused.
func (st *stream) awaitGrant(c *held.Claim, short int64) messages.PickFailed {
	if short > 0 && !st.under.MakeWay(messages.MemoryRequested{
		Flow: st.request.facts.flow(st.under), Bytes: short, Stream: c,
	}) {
		return refusalFor(messages.Overloaded)
	}
	patience := time.NewTimer(st.doorPatience())
	defer patience.Stop()
	for {
		select {
		case <-c.Granted():
			return messages.PickFailed{}
		case y := <-c.Yielded():
			if !y.Enough {
				return st.saturated(y.RetryAfter)
			}
		case m := <-st.inbox.answer: // it is refused already
			if failed, ok := m.(messages.PickFailed); ok {
				return failed
			}
		case <-st.wire.Context().Done():
			st.close(closedReturned)
			return messages.PickFailed{Reason: messages.ClientGone} // nobody is told
		case <-patience.C:
			return st.saturated(0)
		}
	}
}

// doorPatience returns how long the stream waits for memory: until its body has to be whole, and no longer than the
// proxy waits for the answer to one message.
func (st *stream) doorPatience() time.Duration {
	cfg := &st.srv.cfg
	left := min(cfg.BodyTimeout, cfg.WholeRequest) - st.srv.deps.Now().Sub(st.arrived)
	if buffered(st.modes.RequestBody) {
		left = min(left, cfg.WaitOtherModes)
	}
	return left
}
