package extproc

import (
	"strconv"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/messages"
)

// responseFacts are what a response has shown so far.
type responseFacts struct {
	scan      Scanner // nil = nothing to look for
	status    int     // HTTP; 0 = no headers yet
	bytes     int64
	id        string // that the model server made by itself; "" = none was seen
	first     bool   // the first byte of the body has passed
	failed    bool   // an error within it was told of
	completed bool
	passes    bool      // its body is not shown, and its headers are answered
	asked     bool      // the proxy was asked to show the body nevertheless
	told      time.Time // when the cycle was last told that the response lives
}

const progressEvery = 10 * time.Second // at most; a short idle limit is told of more often

// progressAfter is how often the cycle hears that a response lives: often enough for its idle limit.
func (s *Server) progressAfter() time.Duration {
	if s.cfg.ResponseIdle <= 0 {
		return progressEvery
	}
	return min(progressEvery, s.cfg.ResponseIdle/4)
}

func (st *stream) onResponseHeaders() error {
	if st.response != laneNew {
		return nil
	}
	st.response = laneHeaders
	st.waitIsOver()
	status, contentType := 0, ""
	st.in.Headers(func(key, value []byte) bool {
		switch string(key) {
		case ":status":
			status, _ = strconv.Atoi(string(value))
		case "content-type":
			contentType = string(value)
		}
		return true
	})
	st.resp.status = status
	served, local, end := readServed(&st.in), readLocal(&st.in), st.in.EndOfStream
	passes := !end && st.modes.ResponseBody == wire.BodyNone
	if end || passes {
		st.pass()
	}
	st.resp.asked = passes && status >= 200 && status < 400 && local == "" && st.asks()
	if err := st.answerResponseHeaders(); err != nil {
		return err
	}
	if st.cycle != nil {
		st.resp.told = st.srv.deps.Now()
		st.cycle.Post(messages.ResponseStarted{Status: status, Served: served, Local: local, At: st.resp.told, Passes: passes})
		if status < 400 {
			st.resp.scan = st.srv.deps.Scan(contentType)
		}
	}
	if end {
		st.onResponseEnd()
	} else if passes {
		st.resp.completed, st.resp.passes = true, true // all that we are shown has passed
	}
	return nil
}

// isPassed says that nothing in either lane needs us any more, but trailers that may follow a body of which we see
// no more. Some proxies would keep the stream, and end the response with it.
func (st *stream) isPassed() bool {
	mode := st.modes.RequestBody
	return st.resp.passes && !st.resp.asked && (st.request == laneEnded || mode == wire.BodyNone || mode == wire.BodyBufferedPartial && st.whole)
}

// waitIsOver ends the body's deadline, and keeps a drain away: what has a response waits for nothing, also if the proxy made it
// itself while the body still came.
func (st *stream) waitIsOver() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.answered = true
	if st.timer != nil {
		st.timer.Stop()
	}
}

// answerResponseHeaders lets the headers pass, with our id for whoever wants to ask what happened.
func (st *stream) answerResponseHeaders() error {
	if st.id == 0 {
		return st.send(func(r *wire.Response) { r.SetEmptyHeaders(wire.ResponseLane) })
	}
	answer := wire.HeadersAnswer{
		Lane: wire.ResponseLane,
		Set:  []wire.Header{{Key: requestIDHeader, Value: st.name}},
	}
	if st.resp.asked {
		answer.Override = &wire.Modes{RequestBody: st.modes.RequestBody, ResponseBody: wire.BodyStreamed}
	}
	return st.send(func(r *wire.Response) { r.SetFrame(wire.AppendHeadersAnswer(nil, &answer)) })
}

// onResponseBody gives the bytes back as they are, before anybody is told of them.
func (st *stream) onResponseBody() error {
	if st.response == laneEnded {
		return nil
	}
	if st.response == laneNew {
		st.onHeadlessResponse()
	}
	if st.resp.asked && st.modes.ResponseBody == wire.BodyNone {
		st.isShown()
	}
	end, n := st.in.EndOfStream || st.in.Message.None, st.in.BodyLen()
	if st.resp.scan != nil {
		st.in.BodyPieces(func(piece []byte) bool {
			st.resp.scan.Write(piece)
			return true
		})
	}
	if end {
		st.pass()
	}
	if err := st.answerResponseBody(); err != nil {
		return err
	}
	st.resp.bytes += int64(n)
	st.tellError()
	st.tellProgress(n)
	if end {
		st.onResponseEnd()
	} else if buffered(st.modes.ResponseBody) {
		st.resp.completed = true // it is whole, or the rest passes by us; trailers may not be shown
	}
	return nil
}

// onHeadlessResponse begins a response whose headers are not shown to us: its status stays unknown.
func (st *stream) onHeadlessResponse() {
	st.response = laneHeaders
	st.waitIsOver()
	if st.cycle != nil {
		st.resp.told = st.srv.deps.Now()
		st.cycle.Post(messages.ResponseStarted{Served: readServed(&st.in), At: st.resp.told})
		st.resp.scan = st.srv.deps.Scan("")
	}
}

// answerResponseBody gives the bytes back where the proxy keeps no copy; elsewhere it lets them pass.
func (st *stream) answerResponseBody() error {
	var e wire.Echo
	switch st.modes.ResponseBody {
	case wire.BodyFullDuplexStreamed:
		e.StartRequest(&st.in)
	case wire.BodyGRPC:
		e.StartMessage(&st.in)
	case wire.BodyNone: // nobody waits for an answer
		return nil
	default:
		return st.send(func(r *wire.Response) { r.SetEmptyBody(wire.ResponseLane) })
	}
	return st.echo(&e)
}

// tellError tells of an error in the body before its first token is told of, so that nobody takes it for one.
func (st *stream) tellError() {
	if st.resp.scan == nil || st.resp.failed {
		return
	}
	if status := st.resp.scan.ErrorStatus(); status != 0 {
		st.resp.failed = true
		st.cycle.Post(messages.ErrorSeen{Status: status})
	}
}

// responseID is the id of the response, unless the model server made it of the client's, by which it is found anyway. "" = none was seen.
func (st *stream) responseID() string {
	if st.resp.id != "" || st.resp.scan == nil {
		return st.resp.id
	}
	if id := st.resp.scan.ID(); id != nil && !records.IsMadeOf(id, st.facts.clientID) {
		st.resp.id = string(id)
	}
	return st.resp.id
}

func (st *stream) tellProgress(n int) {
	if st.cycle == nil || n == 0 {
		return
	}
	if !st.resp.first {
		st.resp.first = true
		st.resp.told = st.srv.deps.Now()
		st.cycle.Post(messages.FirstTokenSeen{At: st.resp.told, ResponseID: st.responseID()})
		return
	}
	if now := st.srv.deps.Now(); now.Sub(st.resp.told) >= st.srv.progressAfter() {
		st.resp.told = now
		st.cycle.Post(messages.ResponseProgressed{At: now})
	}
}

func (st *stream) onResponseTrailers() error {
	if st.response == laneEnded {
		return nil
	}
	st.pass()
	if err := st.send(func(r *wire.Response) { r.SetEmptyTrailers(wire.ResponseLane) }); err != nil {
		return err
	}
	st.onResponseEnd()
	return nil
}

func (st *stream) onResponseEnd() {
	st.response, st.resp.completed = laneEnded, true
	if st.cycle == nil {
		return
	}
	end := messages.ResponseEnded{At: st.srv.deps.Now(), ResponseBytes: st.resp.bytes}
	if st.resp.scan != nil {
		end.Usage, end.ResponseID = st.resp.scan.Usage(), st.responseID()
	}
	st.cycle.Post(end)
}
