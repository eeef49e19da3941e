package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

const (
	destinationKey = "x-gateway-destination-endpoint"
	servedKey      = "x-gateway-destination-endpoint-served"
	reasonKey      = "x-llm-d-request-dropped-reason"
	idKey          = "x-signalbox-request-id"
	lbNamespace    = "envoy.lb"

	// patience is far above every deadline of the server: a call that waits longer was forgotten.
	patience = 15 * time.Second
)

// call is one stream while its client plays a script.
type call struct {
	*exchange.Stream
	script *script
	sent   [2]string // bodies, as far as they go
	line   *wireline
	way    way
	moved  chan struct{} // something came; one place
	ended  chan struct{} // closed once nothing more comes

	collateral bool // a connection of its way was torn

	mu        sync.Mutex
	picks     int
	destined  string // first destination
	immediate []string
	echoed    [2]int // bytes of the bodies
	headers   [2]bool
	bodies    [2]int // answers
	err       error
	wrongs    []string
	unsent    []string // answers to what we did not send
}

// open begins a stream, and reads it unless the client is deaf.
func open(ctx context.Context, on *wireline, s *script) (*call, error) {
	c := &call{script: s, line: on, sent: [2]string{s.text(exchange.Request), s.text(exchange.Response)},
		moved: make(chan struct{}, 1), ended: make(chan struct{})}
	config := s.config
	config.OnViolation = func(v exchange.Violation) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case v.Rule == exchange.EndedEarly: // a call that is cut off sees that
		case slices.Contains(unsentRules, v.Rule):
			c.unsent = append(c.unsent, v.Error())
		default:
			c.wrongs = append(c.wrongs, v.Error())
		}
	}
	stream, err := exchange.Open(context.WithValue(ctx, wayKey{}, &c.way),
		extprocv3.NewExternalProcessorClient(on.conn), config)
	if err != nil {
		return nil, err
	}
	c.Stream = stream
	if s.fate == deaf {
		close(c.ended)
		return c, nil
	}
	go c.listen()
	return c, nil
}

// unsentRules are about answers to what was not sent. When a connection breaks, the client takes back what failed to go
// out; but gRPC may have kept it, and sends it where it begins the stream anew.
var unsentRules = []exchange.Rule{exchange.EarlyEnd, exchange.BodyNotSent, exchange.BodyBeforeTrailers,
	exchange.TrailersNotSent}

// listen takes what comes until nothing does.
func (c *call) listen() {
	defer close(c.ended)
	for {
		a, err := c.Recv()
		c.mu.Lock()
		if err != nil {
			c.err = err
			c.mu.Unlock()
			return
		}
		c.take(a)
		c.mu.Unlock()
		select {
		case c.moved <- struct{}{}:
		default:
		}
	}
}

func (c *call) take(a exchange.Answer) {
	if d := headerOf(a.Mutation, destinationKey); d != "" && a.Direction == exchange.Request {
		c.picks++
		c.destined = d
	}
	switch a.Kind {
	case exchange.HeadersAnswer:
		c.headers[a.Direction] = true
	case exchange.BodyAnswer:
		c.bodies[a.Direction]++
		c.compare(a)
	case exchange.ImmediateAnswer:
		c.immediate = append(c.immediate, headerOf(a.Immediate.GetHeaders(), reasonKey))
	case exchange.Nothing, exchange.TrailersAnswer:
	}
}

// compare holds what comes back against what was sent. Only full duplex gives bytes back;
// elsewhere none may stand in for them.
func (c *call) compare(a exchange.Answer) {
	sent := c.sent[a.Direction]
	if rest := sent[min(c.echoed[a.Direction], len(sent)):]; !strings.HasPrefix(rest, string(a.Chunk)) {
		c.wrongs = append(c.wrongs, fmt.Sprintf("%s direction: after %d bytes came others than were sent", a.Direction,
			c.echoed[a.Direction]))
	}
	c.echoed[a.Direction] += len(a.Chunk)
	if a.Replaced {
		c.wrongs = append(c.wrongs, fmt.Sprintf("%s direction: the body was replaced", a.Direction))
	}
}

// short says what did not come back of a direction that was played to its end; "" = nothing.
func (c *call) short(l exchange.Direction, m exchange.Mode) string {
	if n, want := c.echoed[l], len(c.sent[l]); m.Duplex() && n != want {
		return fmt.Sprintf("%s direction: %d of %d bytes came back", l, n, want)
	}
	return ""
}

func headerOf(m *extprocv3.HeaderMutation, key string) string {
	for _, h := range m.GetSetHeaders() {
		if h.GetHeader().GetKey() == key {
			return string(h.GetHeader().GetRawValue())
		}
	}
	return ""
}

// wait waits until something is so. False: the request was refused, or the stream has ended.
func (c *call) wait(what string, so func() bool) bool {
	late := time.NewTimer(patience)
	defer late.Stop()
	for over := false; ; {
		c.mu.Lock()
		refused := len(c.immediate) > 0
		c.mu.Unlock()
		switch {
		case refused:
			return false
		case so():
			return true
		case over:
			return false
		}
		select {
		case <-c.moved:
		case <-c.ended:
			over = true
		case <-late.C:
			c.wrong("waited %v for %s", patience, what)
			return false
		}
	}
}

func (c *call) wrong(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrongs = append(c.wrongs, fmt.Sprintf(format, args...))
}

// answered waits for the headers' answer of a direction.
func (c *call) answered(l exchange.Direction) bool {
	return c.wait("the answer to headers", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.headers[l]
	})
}

// settled waits until a buffered body is answered, before which Envoy sends no trailers.
func (c *call) settled(l exchange.Direction) bool {
	return c.wait("the answer to a body", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.bodies[l] > 0
	})
}

func (c *call) complete(l exchange.Direction) bool {
	return c.wait("the end of a direction", func() bool { return c.Complete(l) })
}

// over waits until nothing more comes.
func (c *call) over(within time.Duration) bool {
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-c.ended:
		return true
	case <-late.C:
		return false
	}
}

// id is the request's id, by the metadata that came with the pick.
func (c *call) id() string {
	return c.Metadata(lbNamespace).GetFields()[idKey].GetStringValue()
}

// judge gives everything that was wrong.
func (c *call) judge(whole bool) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	bad := c.wrongs
	if !c.collateral {
		bad = append(bad, c.unsent...)
	}
	var v *exchange.Violation // one that ended the stream stands above
	failed := c.err != nil && !errors.Is(c.err, io.EOF) && !errors.As(c.err, &v)
	if failed && c.script.fate == stays && !c.script.reset() && !c.collateral {
		bad = append(bad, "the stream failed: "+c.err.Error())
	}
	revoked := false
	for _, reason := range c.immediate { // these may come after the pick, and end what runs
		revoked = revoked || reason == "response-idle" || reason == "internal"
	}
	answers := c.picks + len(c.immediate)
	switch {
	case c.script.config.Observe:
		if answers > 0 {
			bad = append(bad, fmt.Sprintf("%d answers to who only shows", answers))
		}
	case c.picks > 1 || len(c.immediate) > 1 || answers > 1 && !revoked:
		bad = append(bad, fmt.Sprintf("more than one answer: %d picks, refusals %q", c.picks, c.immediate))
	case whole && answers == 0 && !c.collateral:
		bad = append(bad, fmt.Sprintf("no answer: %v", c.err))
	case whole && c.picks == 1 && len(c.immediate) == 0 && !c.collateral:
		for direction, m := range []exchange.Mode{c.script.config.Request, c.script.config.Response} {
			if short := c.short(exchange.Direction(direction), m); short != "" {
				bad = append(bad, short)
			}
		}
	}
	return bad
}

func (s *script) reset() bool { return !s.lastWords }
