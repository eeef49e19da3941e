package extproc

import (
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/messages"
)

// arrival is how the message that made the request whole is answered.
type arrival struct {
	body     bool // there is one, and it is read
	cut      bool // it may be a part: what cannot be read is no error
	onBody   bool // the pick goes with the answer to the body
	echo     bool // the body goes back to the proxy, which keeps no copy
	trailers bool // trailers are to be answered
}

// onArrival has all of the request that the pick can wait for: it is parsed, its cycle starts, its answer is sent.
func (st *stream) onArrival(a arrival) error {
	if !st.bodyIsWhole() {
		return errOver
	}
	st.in.Release() // the frame is copied, and the wait may be long
	if st.srv.draining.Load() {
		return st.refuseNow(messages.PickFailed{Reason: messages.ShuttingDown, RetryAfter: time.Second})
	}
	req := messages.Request{
		ID: st.id, ClientID: records.Label(st.facts.clientID), Path: records.Label(st.facts.path),
		BodyBytes: st.bytes, Subset: st.facts.subset, Shown: st.modes.ResponseBody != wire.BodyNone,
	}
	err := st.parse(a, &req)
	st.teaches = req.Usage && req.Form.API != messages.UnknownAPI && !req.Form.RepeatsMore
	req.Form.IDLength = uint8((len(st.facts.clientID) + 7) / 8)
	st.model = req.Model
	if err != nil {
		return st.refuseNow(messages.PickFailed{Reason: messages.InvalidRequest, Detail: err.Error()})
	}
	first := messages.RequestArrived{
		Request: req, Flow: st.facts.flow(), ArrivedAt: st.arrived, Deadline: st.arrived.Add(st.srv.cfg.WholeRequest), Check: st.check, Stream: st,
	}
	if st.conn != nil {
		first.Connection = st.conn.ID()
		st.conn.Asked(req.Shown)
	}
	cycle, ok := st.srv.deps.Start(first)
	if !ok {
		st.full = true
		return st.refuseNow(messages.PickFailed{Reason: messages.Overloaded, RetryAfter: time.Second})
	}
	st.cycle = cycle
	switch m := st.await().(type) {
	case messages.PickMade:
		return st.forward(m, a)
	case messages.PickFailed:
		return st.relay(m)
	case messages.AnswerDue, messages.ServingRevoked: // no answers; await keeps them to itself
	}
	return errOver // the client left, or was refused
}

// parse reads the body's facts. Only a body that claims to be of a form that we know can be the client's fault.
func (st *stream) parse(a arrival, req *messages.Request) error {
	if !a.body {
		return nil
	}
	unread := *req
	err := st.srv.deps.Parser.Parse(st.facts.path, st.facts.contentType, st.facts.contentEncoding, st.body.Bytes(), req)
	if err != nil && a.cut {
		*req = unread
		return nil
	}
	return err
}

// await waits for the cycle's answer: most often it is there already, given while the cycle was started. Nil means that the
// client left, or that the answer is overdue and the client was refused.
func (st *stream) await() messages.StreamMsg {
	select {
	case m := <-st.answer:
		return m
	default:
	}
	patience := time.NewTimer(st.srv.cfg.AnswerWithin + time.Second)
	defer patience.Stop()
	for {
		select {
		case m := <-st.answer:
			return m
		case <-st.wire.Context().Done():
			return nil
		case <-patience.C:
			later := time.Duration(st.due.Load()-st.srv.deps.Now().UnixNano()) + time.Second
			if st.due.Load() == 0 || later <= 0 {
				st.refuse(messages.PickFailed{Reason: messages.PickTimeout, RetryAfter: time.Second})
				return nil
			}
			patience.Reset(later)
		}
	}
}

// forward answers with the pick, and gives the body back.
func (st *stream) forward(m messages.PickMade, a arrival) error {
	list := st.destinations(m)
	answer := wire.HeadersAnswer{
		Lane: wire.RequestLane, OnBody: a.onBody,
		Set: []wire.Header{
			{Key: destinationKey, Value: list},
			{Key: requestIDHeader, Value: st.name},
		},
		ClearRouteCache: true,
		Metadata:        []wire.Namespace{{Name: lbNamespace, Fields: st.metadata(list)}},
	}
	err := st.send(func(r *wire.Response) {
		st.answered = true
		r.SetFrame(wire.AppendHeadersAnswer(nil, &answer))
	})
	if err != nil {
		return err
	}
	st.picked = true
	if a.echo {
		var e wire.Echo
		e.StartBody(wire.RequestLane, &st.body, !a.trailers)
		if err := st.echo(&e); err != nil {
			return err
		}
	}
	st.letGo()
	if a.trailers {
		return st.send(func(r *wire.Response) { r.SetEmptyTrailers(wire.RequestLane) })
	}
	return nil
}

// metadata are those of a pick: the destinations, and what the access log brings back of a request whose response passes by.
func (st *stream) metadata(destinations string) []wire.Field {
	fields := append(make([]wire.Field, 0, 3), wire.Field{Key: destinationKey, Value: destinations})
	if !st.passedBy() {
		return fields
	}
	fields = append(fields, wire.Field{Key: requestIDHeader, Value: st.name})
	if st.conn != nil {
		fields = append(fields, wire.Field{Key: connectionKey, Value: st.conn.Name()})
	}
	return fields
}

// usualAddressBytes is room for an IPv4 address with its port, and a comma.
const usualAddressBytes = len("255.255.255.255:65535,")

// destinations are those of an answer, best first.
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
