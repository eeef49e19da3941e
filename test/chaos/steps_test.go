package chaos

import (
	"strings"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/adapters/proxy/exchange"
)

// step is one thing that a client does. False: the exchange is over, and the next step has no meaning.
type step func(*call) bool

// steps are those of a request that goes well, as Envoy takes them.
func (s *script) steps() []step {
	all := []step{func(c *call) bool {
		h := exchange.Headers{
			{Name: ":method", Value: "POST"}, {Name: ":path", Value: "/v1/chat/completions"}, {Name: ":authority", Value: "a"},
			{Name: "content-type", Value: "application/json"}, {Name: "x-request-id", Value: nameOf(s.number)},
			{Name: "x-llm-d-inference-fairness-id", Value: "tenant-" + string(rune('a'+s.number%7))},
		}
		return c.SendHeaders(exchange.RequestLane, h, s.body == "", exchange.Context{}) == nil
	}}
	if s.body != "" {
		all = append(all, s.lane(exchange.RequestLane, s.config.Request, s.pieces(), s.trailers)...)
	}
	all = append(all, s.waits(exchange.RequestLane), s.respond)
	if !s.headersOnly {
		piece := strings.Repeat("data: {}\n\n", 1+s.chunk/10)
		pieces := make([]string, s.responses)
		for i := range pieces {
			pieces[i] = piece
		}
		all = append(all, s.lane(exchange.ResponseLane, s.config.Response, pieces, s.responseTrailers)...)
	}
	return append(all, s.waits(exchange.ResponseLane))
}

// pieces are the chunks in which the request's body comes.
func (s *script) pieces() []string {
	size := 16 << 10
	if s.number%3 == 0 {
		size = 700
	}
	if len(s.body) > 8*size {
		size = len(s.body)/8 + 1
	}
	var all []string
	for rest := s.body; rest != ""; {
		n := min(size, len(rest))
		all, rest = append(all, rest[:n]), rest[n:]
	}
	return all
}

// waits waits until the EPP owes nothing more in a lane.
func (s *script) waits(l exchange.Lane) step {
	m, bodiless := s.config.Request, s.body == ""
	if l == exchange.ResponseLane {
		m, bodiless = s.config.Response, s.headersOnly
	}
	return func(c *call) bool {
		switch {
		case s.config.Observe:
			return true
		case m.Body == exchange.None && !bodiless: // its end may not be shown
			return c.answered(l)
		}
		return c.complete(l)
	}
}

// lane sends a body in the way of the lane's mode, and trailers.
func (s *script) lane(l exchange.Lane, m exchange.LaneMode, pieces []string, trailers bool) []step {
	var all []step
	if !s.config.Observe && !m.Duplex() && m.Body != exchange.None {
		all = append(all, func(c *call) bool { return c.answered(l) })
	}
	switch {
	case m.Body == exchange.None:
		if trailers {
			all = append(all, func(c *call) bool { return c.answered(l) })
		}
	case m.Buffers():
		whole := strings.Join(pieces, "")
		all = append(all, func(c *call) bool { return c.SendBody(l, []byte(whole), !trailers) == nil })
		if trailers {
			all = append(all, func(c *call) bool { return c.settled(l) })
		}
	default:
		for i, p := range pieces {
			last := i == len(pieces)-1 && !trailers
			all = append(all, func(c *call) bool {
				b := &extprocv3.HttpBody{Body: []byte(p), EndOfStream: last}
				return c.SendHTTPBody(l, b) == nil
			})
		}
	}
	if trailers {
		all = append(all, func(c *call) bool {
			return c.SendTrailers(l, exchange.Headers{{Name: "x-last", Value: "1"}}) == nil
		})
	}
	return all
}

// respond sends the response's headers, with who served.
func (s *script) respond(c *call) bool {
	h := exchange.Headers{{Name: ":status", Value: s.status}, {Name: "content-type", Value: "text/event-stream"}}
	c.mu.Lock()
	served := c.destined
	c.mu.Unlock()
	switch s.served {
	case "another":
		served = string(addressOf(s.number % servers))
	case "unknown":
		served = "10.9.9.9:1"
	case "none":
		served = ""
	}
	with := exchange.Context{}
	if served, _, _ = strings.Cut(served, ","); served != "" {
		with.Metadata = map[string]*structpb.Struct{lbNamespace: {Fields: map[string]*structpb.Value{servedKey: structpb.NewStringValue(served)}}}
	}
	return c.SendHeaders(exchange.ResponseLane, h, s.headersOnly, with) == nil
}
