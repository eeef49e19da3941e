package conformance

import (
	"encoding/json"
	"errors"
	"io"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

type (
	ask    = extprocv3.ProcessingRequest
	answer = extprocv3.ProcessingResponse
)

const (
	eppLimit = 21 << 20
	hasty    = time.Second // for a body that does not come
	patient  = time.Minute
)

var pool = []string{"127.0.0.1:8001", "127.0.0.1:8002", "[::1]:8003"}

// fault changes what the scripted EPP answers to a message. Its step is "qH", "qB", "qE" (body with the end), "qT", the
// same with "r", "-" for a message of none of these, or "." for the half-close.
type fault func(s *session, step string, out []*answer) ([]*answer, error)

// errLeave is a fault that ends the stream without an error.
var errLeave = errors.New("leave")

// epp is a small EPP that is right, with a fault planted.
type epp struct {
	extprocv3.UnimplementedExternalProcessorServer
	*book
	fault   fault
	habits  habits
	refuses int  // status for every request; 0 = they are picked for
	queues  bool // every request waits until it leaves
	wait    time.Duration
}

// session is one stream of it.
type session struct {
	modes    [2]exchange.Mode
	in       *ask
	headers  map[string]string // of the request, the first of each name
	body     []byte
	parts    [][]byte
	limit    []string // subset; nil = none
	limited  bool
	asked    bool // request headers came
	picked   bool
	ended    [2]bool
	replied  bool
	observed bool
	plain    bool // a header came in value
	over     bool
	kept     []*answer // by a fault, until later
	steps    int       // for a fault that counts them

	id      string // x-request-id
	to      string // first destination
	carrier string // endpoint at which it is counted
	counted bool
	holds   int64 // bytes of the body
	waits   bool  // in line
	status  int   // of the response
	whole   bool  // the response has come to its end
}

func (e *epp) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	s := &session{headers: map[string]string{}}
	e.opened()
	defer e.closed(s)
	if e.habits.hoards {
		q := newHoard(stream)
		defer q.close()
		stream = q
	}
	incoming, failed := make(chan *ask), make(chan error, 1)
	go receive(stream, incoming, failed)
	patience := time.NewTimer(time.Hour)
	defer patience.Stop()
	for !s.over {
		var out []*answer
		var step string
		select {
		case m := <-incoming:
			s.in = m
			step, out = s.take(m)
			out = e.note(s, step, out)
			patience.Reset(e.wait)
		case err := <-failed:
			if !errors.Is(err, io.EOF) {
				e.linger()
				return nil
			}
			step, s.over = ".", true
		case <-patience.C:
			if s.picked || !s.asked {
				continue
			}
			step, out, s.over = "timeout", []*answer{refusal(408)}, true
		}
		if e.fault != nil {
			var err error
			if out, err = e.fault(s, step, out); errors.Is(err, errLeave) {
				return e.send(s, out, stream)
			} else if err != nil {
				return err
			}
		}
		if err := e.send(s, out, stream); err != nil {
			return err
		}
	}
	return nil
}

// receive hands on what comes, and how it ends.
func receive(stream extprocv3.ExternalProcessor_ProcessServer, incoming chan<- *ask, failed chan<- error) {
	for {
		m, err := stream.Recv()
		if err != nil {
			failed <- err
			return
		}
		select {
		case incoming <- m:
		case <-stream.Context().Done():
			failed <- stream.Context().Err()
			return
		}
	}
}

// take gives the right answers.
func (s *session) take(m *ask) (string, []*answer) {
	if c := m.GetProtocolConfig(); c != nil {
		s.modes = [2]exchange.Mode{{Body: c.GetRequestBodyMode()}, {Body: c.GetResponseBodyMode()}}
	}
	s.observed = s.observed || m.GetObservabilityMode()
	s.readSubset(m)
	var step string
	var out []*answer
	switch r := m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		step, out = "qH", s.requestHeaders(r.RequestHeaders)
	case *extprocv3.ProcessingRequest_RequestBody:
		step, out = bodyStep("q", r.RequestBody), s.requestBody(r.RequestBody)
	case *extprocv3.ProcessingRequest_RequestTrailers:
		step, out = "qT", s.requestTrailers()
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		step, out = "rH", []*answer{headersAnswer(exchange.Response, nil)}
		s.replied, s.ended[exchange.Response] = true, r.ResponseHeaders.GetEndOfStream()
	case *extprocv3.ProcessingRequest_ResponseBody:
		step, out = bodyStep("r", r.ResponseBody), s.passing(exchange.Response, r.ResponseBody)
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		step, out = "rT", []*answer{trailersAnswer(exchange.Response)}
	default:
		return "-", nil
	}
	if s.observed {
		return step, nil
	}
	return step, out
}

func bodyStep(direction string, b *extprocv3.HttpBody) string {
	if b.GetEndOfStream() {
		return direction + "E"
	}
	return direction + "B"
}

func (s *session) requestHeaders(h *extprocv3.HttpHeaders) []*answer {
	if s.asked {
		return nil
	}
	s.asked = true
	for _, line := range h.GetHeaders().GetHeaders() {
		s.plain = s.plain || line.GetValue() != ""
		if _, ok := s.headers[line.GetKey()]; !ok {
			s.headers[line.GetKey()] = string(line.GetRawValue()) + line.GetValue()
		}
	}
	s.id = s.headers["x-request-id"]
	s.ended[exchange.Request] = h.GetEndOfStream()
	mode := s.modes[exchange.Request]
	switch {
	case h.GetEndOfStream(), mode.Body == exchange.None, mode.Body == exchange.Streamed, mode.Body == exchange.GRPC:
		return []*answer{s.pick(exchange.HeadersAnswer)}
	case mode.Buffers():
		return []*answer{headersAnswer(exchange.Request, nil)}
	}
	return nil
}

func (s *session) requestBody(b *extprocv3.HttpBody) []*answer {
	mode := s.modes[exchange.Request]
	if s.ended[exchange.Request] || mode.Body == exchange.None {
		return nil
	}
	s.ended[exchange.Request] = b.GetEndOfStream()
	if mode.Body == exchange.Streamed || mode.Body == exchange.GRPC {
		if !s.asked { // headers are not sent: nothing can carry a pick
			return []*answer{refusal(500)}
		}
		return s.passing(exchange.Request, b)
	}
	if !s.asked && mode.Body == exchange.Duplex {
		return []*answer{refusal(500)}
	}
	if !s.asked { // a body alone is let through
		return []*answer{bodyAnswer(exchange.Request, nil)}
	}
	s.body = append(s.body, b.GetBody()...)
	cut := mode.Body == exchange.BufferedPartial && !b.GetEndOfStream()
	switch {
	case len(s.body) > eppLimit:
		return []*answer{refusal(413)}
	case mode.Buffers() && !cut && !s.readable():
		return []*answer{refusal(400)}
	case mode.Buffers():
		return []*answer{s.pick(exchange.BodyAnswer)}
	case b.GetEndOfStream():
		return s.gathered(true)
	}
	return nil
}

// readable reports whether the body is what it claims to be.
func (s *session) readable() bool {
	if s.headers["content-type"] != "application/json" || s.headers["content-encoding"] != "" {
		return true
	}
	return json.Valid(s.body)
}

// gathered is what FULL_DUPLEX_STREAMED gets at its end.
func (s *session) gathered(end bool) []*answer {
	if end && !s.readable() {
		return []*answer{refusal(400)}
	}
	out := []*answer{s.pick(exchange.HeadersAnswer)}
	if out[0].GetImmediateResponse() != nil {
		return out
	}
	body := s.body
	for len(body) > 64<<10 {
		out, body = append(out, chunkAnswer(exchange.Request, body[:64<<10], false)), body[64<<10:]
	}
	if end || len(body) > 0 {
		out = append(out, chunkAnswer(exchange.Request, body, end))
	}
	return out
}

func (s *session) requestTrailers() []*answer {
	if s.ended[exchange.Request] {
		return nil
	}
	s.ended[exchange.Request] = true
	if !s.picked && s.modes[exchange.Request].Buffers() {
		return []*answer{refusal(500)}
	}
	if !s.picked {
		return append(s.gathered(false), trailersAnswer(exchange.Request))
	}
	return []*answer{trailersAnswer(exchange.Request)}
}

// passing answers a body message that decides nothing.
func (s *session) passing(id exchange.Direction, b *extprocv3.HttpBody) []*answer {
	switch s.modes[id].Body {
	case exchange.None:
		return nil
	case exchange.Duplex:
		out, body := []*answer(nil), b.GetBody()
		for len(body) > 64<<10 {
			out, body = append(out, chunkAnswer(id, body[:64<<10], false)), body[64<<10:]
		}
		return append(out, chunkAnswer(id, body, b.GetEndOfStream()))
	case exchange.GRPC:
		m := chunkAnswer(id, b.GetBody(), b.GetEndOfStream())
		streamed := bodyOf(m).GetResponse().GetBodyMutation().GetStreamedResponse()
		streamed.EndOfStreamWithoutMessage, streamed.GrpcMessageCompressed = b.GetEndOfStreamWithoutMessage(),
			b.GetGrpcMessageCompressed()
		return []*answer{m}
	}
	return []*answer{bodyAnswer(id, &extprocv3.CommonResponse{})}
}
