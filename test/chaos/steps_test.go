package chaos

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// step is one thing that a client does, and the point where it stands before. False: the exchange is over, and the next
// step has no meaning.
type step struct {
	at string
	do func(*call) bool
}

// steps are those of a request that goes well, as Envoy takes them.
func (s *script) steps() []step {
	all := []step{{beforeRequest, s.request}}
	if s.body != "" {
		all = append(all, s.direction(exchange.Request, s.config.Request, s.pieces(), s.trailers)...)
	}
	all = append(all, step{requestSent, s.waits(exchange.Request)}, step{answerCame, s.respond})
	if !s.headersOnly {
		all = append(all, s.direction(exchange.Response, s.config.Response, s.events(), s.responseTrailers)...)
	}
	return append(all, step{responseSent, s.waits(exchange.Response)},
		step{allAnswered, func(*call) bool { return true }})
}

// request sends the request's headers.
func (s *script) request(c *call) bool {
	h := exchange.Headers{
		{Name: ":method", Value: "POST"}, {Name: ":path", Value: "/v1/chat/completions"},
		{Name: ":authority", Value: "a"},
		{Name: "content-type", Value: "application/json"}, {Name: "x-request-id", Value: nameOf(s.number)},
		{Name: "x-llm-d-inference-fairness-id", Value: "tenant-" + string(rune('a'+s.number%7))},
	}
	return c.SendHeaders(exchange.Request, h, s.body == "", exchange.Context{}) == nil
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

// events are the chunks in which the response's body comes.
func (s *script) events() []string {
	all := make([]string, s.responses)
	for i := range all {
		all[i] = counted("data: {\"id\":\""+strconv.Itoa(s.number)+"."+strconv.Itoa(i)+".", s.chunk, "\"}\n\n")
	}
	if len(all) > 0 && s.number%16 == 0 { // the engine refuses, or dies
		all[len(all)-1] = fmt.Sprintf(`data: {"error":{"message":"%d","code":50%d}}`+"\n\n", s.number, s.number/16%2*3)
	}
	return all
}

// text is the body of a direction.
func (s *script) text(l exchange.Direction) string {
	switch {
	case l == exchange.Request:
		return s.body
	case s.headersOnly:
		return ""
	}
	return strings.Join(s.events(), "")
}

// waits waits until the EPP owes nothing more in a direction.
func (s *script) waits(l exchange.Direction) func(*call) bool {
	m, bodiless := s.config.Request, s.body == ""
	if l == exchange.Response {
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

// direction sends a body in the way of the direction's mode, and trailers.
func (s *script) direction(l exchange.Direction, m exchange.Mode, pieces []string, trailers bool) []step {
	var all []step
	at := inRequest
	if l == exchange.Response {
		at = inResponse
	}
	next := at.headers
	if waits := !s.config.Observe && !m.Duplex(); waits && (m.Body != exchange.None || trailers) {
		all = append(all, step{next, func(c *call) bool { return c.answered(l) }})
		next = at.begins
	}
	if m.Buffers() {
		pieces = []string{strings.Join(pieces, "")}
	}
	if m.Body == exchange.None {
		pieces = nil
	}
	for i, p := range pieces {
		last := i == len(pieces)-1 && !trailers
		all = append(all, step{next, func(c *call) bool { return c.SendBody(l, []byte(p), last) == nil }})
		next = at.body
	}
	if m.Buffers() && trailers {
		all = append(all, step{at.trails, func(c *call) bool { return c.settled(l) }})
	}
	if trailers {
		all = append(all, step{at.trails, func(c *call) bool {
			return c.SendTrailers(l, exchange.Headers{{Name: "x-last", Value: "1"}}) == nil
		}})
	}
	return all
}

// respond sends the response's headers, with the endpoint that served.
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
		with.Metadata = map[string]*structpb.Struct{
			lbNamespace: {Fields: map[string]*structpb.Value{servedKey: structpb.NewStringValue(served)}},
		}
	}
	return c.SendHeaders(exchange.Response, h, s.headersOnly, with) == nil
}
