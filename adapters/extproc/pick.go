package extproc

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/grpcstatus"
	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/messages"
)

// ask makes the pick. It is called once everything has come that the pick waits for; last is the message that
// completed it. It parses the request, starts its cycle, waits for the answer of the cycle and sends it.
func (st *stream) ask(last event) error {
	body, ok := st.request.body.lend()
	if !ok {
		return errOver // the request was refused meanwhile
	}
	st.in.Release() // its bytes are copied, and the wait may be long
	if st.srv.draining.Load() {
		return st.refuseNow(refusalFor(messages.ShuttingDown))
	}
	facts := &st.request.facts
	if failed := facts.force(); failed.Reason != messages.NoReason {
		return st.refuseNow(failed)
	}
	req := messages.Request{
		ID: st.id, ClientID: records.Label(facts.clientID), Path: records.Label(facts.path()),
		Agent:     records.Label(facts.agent),
		BodyBytes: st.request.body.came, Subset: facts.subset, Visible: st.modes.ResponseBody != wire.BodyNone,
		Headers: messages.TakeList(facts.declared), IfCached: facts.limits.ifCached,
		Forced: facts.aside.forced,
	}
	if facts.upgrade.takes() {
		req.Model = facts.upgrade.model
	}
	err := st.parse(last, body, &req)
	st.request.teaches = req.Usage && req.Form.API != messages.UnknownAPI && !req.Form.RepeatsMore
	req.Form.IDLength = uint8((len(facts.clientID) + 7) / 8)
	st.request.model, st.request.api = req.Model, req.Form.API
	if err != nil {
		return st.refuseNow(messages.PickFailed{Reason: messages.InvalidRequest, Detail: err.Error()})
	}
	if failed := st.rewrite(last, body, &req); failed.Reason != messages.NoReason {
		return st.refuseNow(failed)
	}
	if !st.startCycle(req) {
		st.moveRequest(roomDenied)
		return st.refuseNow(refusalFor(messages.Overloaded))
	}
	switch m := st.await().(type) {
	case messages.PickMade:
		if m.Responses.Len() > 0 {
			st.response.added = added{m.Destinations, m.Responses}
		}
		st.response.queue = m.Queue
		return st.forward(m, last)
	case messages.PickFailed:
		return st.relay(m)
	case messages.AnswerDue, messages.ServingRevoked, messages.MemoryYielded:
		// Tell keeps them out of the inbox: they are no answers
	}
	return errOver // the client left, or was refused
}

// parse reads the facts of the body. It returns an error, which is the client's, only for a body that claims a
// format that is known, and only if all of it is here.
func (st *stream) parse(last event, body []byte, req *messages.Request) error {
	switch last {
	case headersCame, headersEnded:
		return nil
	case trailersCame:
		if len(body) == 0 {
			return nil
		}
	}
	unread, facts := *req, &st.request.facts
	err := st.under.Parser.Parse(facts.parsedPath(), facts.contentType, facts.contentEncoding, body, req)
	if err != nil && last == chunkCame && st.modes.RequestBody == wire.BodyBufferedPartial {
		*req = unread // what came may be a part of the body
		return nil
	}
	return err
}

// rewrite puts the model that serves in the place of the one that the body names, in the body and in req, if the
// configuration says so, or else a header. A body that was not read stays, which is counted and noted in req; so does,
// if there are rules at all, one that is not shown or a call of gRPC that names no model, because one may be for its
// model. The number of the request draws between several models. It returns why the request is refused, if it is.
func (st *stream) rewrite(last event, body []byte, req *messages.Request) messages.PickFailed {
	facts := &st.request.facts
	decision, ruled := st.under.Rewrites.Decide(req.Model, uint64(st.id))
	target, ok := decision.Model, ruled
	if !ok {
		target = facts.target.text
		ok = target != "" && target != req.Model
	}
	unknown := last == headersCame || len(body) > 0 && req.Model == "" && grpcstatus.IsType(facts.contentType)
	if !ok && (!unknown || st.under.Rewrites == nil) || last == headersEnded {
		return messages.PickFailed{}
	}
	if left := st.left(body, req); left != messages.NothingLeft {
		req.Rewrite.Left = left
		st.srv.cfg.Metrics.decisions.left[left].Inc()
		return messages.PickFailed{}
	}
	from, to, text := st.under.Parser.Rename(facts.parsedPath(), facts.contentType, facts.contentEncoding, body, target)
	if text == nil {
		detail := "the model of a body of this form cannot be rewritten"
		if facts.contentEncoding != "" {
			detail = "the model of a body with content-encoding " + facts.contentEncoding + " cannot be rewritten"
		}
		return messages.PickFailed{Reason: messages.InvalidRequest, Detail: detail}
	}
	if !st.request.body.splice(from, to, text) {
		return st.noMemory()
	}
	st.request.target, st.request.spliced = target, true
	if ruled {
		st.srv.cfg.Metrics.decisions.count(decision.Rewrite, req.Model, target)
	}
	req.Rewrite, req.Model = messages.Rewrite{Made: true, From: req.Model}, target
	return messages.PickFailed{}
}

// left returns why the model in a body cannot be changed.
func (st *stream) left(body []byte, req *messages.Request) messages.RewriteLeft {
	switch {
	case grpcstatus.IsType(st.request.facts.contentType):
		return messages.LeftGRPC
	case len(body) == 0:
		return messages.LeftUnseen
	case req.Model != "" || req.Form.API != messages.UnknownAPI && req.Form.API != messages.GenerateAPI:
		return messages.NothingLeft
	}
	return messages.LeftUnread
}

// startCycle begins the request's cycle. It returns false if the loop of the request has no room.
func (st *stream) startCycle(req messages.Request) bool {
	facts := &st.request.facts
	flow := facts.flow(st.under)
	req.Priority, req.Fairness, req.Objective = flow.Priority, flow.Fairness, records.Label(facts.objective.text)
	req.TTFT, req.TPOT = facts.limits.ttft, facts.limits.tpot
	first := messages.RequestArrived{
		Request: req, Configuration: st.under.Number, Flow: flow,
		ArrivedAt: st.arrived, Deadline: st.arrived.Add(st.srv.cfg.WholeRequest), Check: st.check, Stream: st,
		Patience: facts.limits.patience,
	}
	if st.modes.RequestBody != wire.BodyFullDuplexStreamed {
		// The proxy waits for an answer to one message, and gives up with an answer of its own.
		most := max(st.srv.cfg.WaitOtherModes-st.request.door.waited, time.Millisecond)
		first.Patience = min(cmp.Or(first.Patience, most), most)
	}
	if st.conn != nil {
		first.Connection = st.conn.ID()
		st.conn.Asked(req.Visible)
	}
	cycle, ok := st.under.Start(first)
	if ok {
		st.cycle = cycle
	}
	return ok
}

// settleAfter is how long a request waits until its body is moved to a buffer of its own size.
const settleAfter = 20 * time.Millisecond

// await waits for the cycle's answer. Most often the answer is there already, because the cycle gave it while it was
// started. It returns nil if the client left, or if the answer is overdue and the client was refused.
func (st *stream) await() messages.StreamMsg {
	select {
	case m := <-st.inbox.answer:
		return m
	default:
	}
	soon := time.NewTimer(settleAfter)
	defer soon.Stop()
	patience := time.NewTimer(st.srv.cfg.AnswerWithin + time.Second)
	defer patience.Stop()
	for {
		select {
		case m := <-st.inbox.answer:
			return m
		case <-st.wire.Context().Done():
			return nil
		case <-soon.C:
			st.request.body.settle()
		case <-patience.C:
			later := time.Duration(st.inbox.due.Load()-st.srv.deps.Now().UnixNano()) + time.Second
			if st.inbox.due.Load() == 0 || later <= 0 {
				st.refuse(refusalFor(messages.PickTimeout))
				return nil
			}
			patience.Reset(later)
		}
	}
}

// forward answers with the pick. Then it gives the body back if the proxy keeps no copy of it, and answers the
// trailers if they came last.
func (st *stream) forward(m messages.PickMade, last event) error {
	if failed := st.setPriority(&m); failed.Reason != messages.NoReason {
		return st.refuseNow(failed)
	}
	if err := st.sendPick(m, last); err != nil {
		return err
	}
	body := &st.request.body
	back := last == lastChunkCame || last == trailersCame && body.came > 0
	if back && st.modes.RequestBody == wire.BodyFullDuplexStreamed {
		var e wire.Echo
		body.echo(&e, last == lastChunkCame)
		if err := st.echo(&e); err != nil {
			return err
		}
	}
	body.release()
	if last == trailersCame {
		return st.send(func(r *wire.Response) { r.SetEmptyTrailers(wire.RequestDirection) })
	}
	return nil
}

// vllm is the engine that serves low priorities first, as none other does.
const vllm = "vllm"

// setPriority writes the request's priority into its body, if the configuration says so, in the place of one that the
// client has sent. It leaves a body alone that is not here or not read. It returns why the request is refused, if it
// is.
func (st *stream) setPriority(m *messages.PickMade) messages.PickFailed {
	if !st.under.SetsPriority {
		return messages.PickFailed{}
	}
	facts, body := &st.request.facts, &st.request.body
	priority := facts.flow(st.under).Priority
	if strings.EqualFold(m.Engine, vllm) {
		priority = -priority
	}
	from, to, text := st.under.Parser.SetPriority(facts.parsedPath(), facts.contentType, facts.contentEncoding,
		body.bytes(), priority)
	if text == nil {
		return messages.PickFailed{}
	}
	if !body.splice(from, to, text) {
		return st.noMemory()
	}
	st.request.spliced = true
	return messages.PickFailed{}
}

// sendPick answers the headers or, in a mode in which the proxy holds both, the body. After it a drain leaves the
// request alone.
func (st *stream) sendPick(m messages.PickMade, last event) error {
	list := st.destinations(m)
	set := []wire.Header{{Key: destinationKey, Value: list}, {Key: requestIDHeader, Value: st.name}}
	for _, h := range m.Headers.All() {
		set = append(set, wire.Header{Key: h.Name, Value: h.Value})
	}
	if st.request.spliced && st.request.facts.contentLength > 0 {
		set = append(set, wire.Header{Key: "content-length", Value: strconv.Itoa(len(st.request.body.bytes()))})
	}
	answer := wire.HeadersAnswer{
		Direction: wire.RequestDirection, OnBody: buffered(st.requestMode()) && last != headersEnded,
		Set: set, Remove: st.request.facts.unset(set), ClearRouteCache: true,
		Metadata: []wire.Namespace{{Name: lbNamespace, Fields: st.metadata(list), Structs: scores(m)}},
	}
	if st.request.spliced && answer.OnBody {
		answer.Body = st.request.body.bytes()
	}
	sent := lastPickSent
	if last == headersCame || last == chunkCame {
		sent = pickSent
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.sendLocked(func(r *wire.Response) { r.SetFrame(wire.AppendHeadersAnswer(nil, &answer)) }); err != nil {
		return err
	}
	st.request.phase, _ = st.request.phase.after(sent, st.requestMode())
	return nil
}

// metadata returns the metadata of a pick: the destinations, and, if the response bypasses us, what its access log
// entry is recognised by.
func (st *stream) metadata(destinations string) []wire.Field {
	fields := append(make([]wire.Field, 0, 3), wire.Field{Key: destinationKey, Value: destinations})
	if !st.bypasses() {
		return fields
	}
	fields = append(fields, wire.Field{Key: requestIDHeader, Value: st.name})
	if st.conn != nil {
		fields = append(fields, wire.Field{Key: connectionKey, Value: st.conn.Name()})
	}
	return fields
}

// scores returns what the metadata of a pick say of the scores of endpoints; nil = nothing.
func scores(m messages.PickMade) []wire.Struct {
	if m.Scores.Len() == 0 {
		return nil
	}
	numbers := make([]wire.Number, 0, m.Scores.Len())
	for _, s := range m.Scores.All() {
		numbers = append(numbers, wire.Number{Key: string(s.Address), Value: float64(s.Score)})
	}
	return []wire.Struct{{Key: scoresKey, Numbers: numbers}}
}

// usualAddressBytes is room for an IPv4 address with its port, and a comma.
const usualAddressBytes = len("255.255.255.255:65535,")

// destinations returns the endpoints of an answer, best first, as the header lists them.
func (st *stream) destinations(m messages.PickMade) string {
	n := m.Destinations.Len()
	var b strings.Builder
	b.Grow(n * usualAddressBytes)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(string(m.Destinations.At(i)))
	}
	return b.String()
}
