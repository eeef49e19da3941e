package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// call is one exchange, with its ext_proc stream.
type call struct {
	*checkRun
	id     string // x-request-id
	stream *exchange.Stream
	over   chan struct{} // closed when the EPP's side has ended

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced with each answer
	ways      [2]way
	immediate *extprocv3.ImmediateResponse
	answers   []exchange.Answer
	found     []exchange.Violation
	err       error // how the stream ended
}

// way is what one direction has brought so far.
type way struct {
	sent     message
	headers  exchange.Headers // as the EPP left them
	back     []byte           // body bytes that were given back, or that stand in for the body
	chunks   [][]byte
	replaced bool
	ended    bool
	at       time.Time // of the newest answer
	counts
	pickIn  exchange.Kind
	mutated int // header mutations in the answer that carried the pick
}

// counts are the answers of each kind, and what a body's are held against.
type counts struct {
	headersN, bodyN, trailersN int
	bodySent                   int // body messages
}

// open starts a call that lives as long as ctx does, or until the run of its check is closed.
func (t *checkRun) open(ctx context.Context) (*call, error) {
	id := "conformance-" + strconv.FormatInt(t.salt, 36) + "-" + strconv.FormatInt(t.numbers.Add(1), 10)
	c := &call{checkRun: t, id: id, over: make(chan struct{}), changed: make(chan struct{})}
	config := t.config()
	config.OnViolation = func(v exchange.Violation) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.found = append(c.found, v)
	}
	stream, err := exchange.Open(ctx, t.client, config)
	if err != nil {
		return nil, err
	}
	c.stream = stream
	t.calls = append(t.calls, c)
	go c.receive()
	return c, nil
}

func (c *call) receive() {
	defer close(c.over)
	for {
		answer, err := c.stream.Recv()
		if err != nil {
			c.mu.Lock()
			c.err = err
			c.mu.Unlock()
			return
		}
		c.take(answer)
	}
}

func (c *call) take(a exchange.Answer) {
	c.mu.Lock()
	headers := append(exchange.Headers(nil), c.ways[a.Direction].headers...)
	c.mu.Unlock()
	if a.Mutation != nil && a.Kind != exchange.TrailersAnswer {
		_ = c.stream.Apply(a.Direction, &headers, a.Mutation) // a violation is told
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append(c.answers, a)
	w := &c.ways[a.Direction]
	w.at = time.Now()
	if a.Kind == exchange.ImmediateAnswer {
		c.immediate = a.Immediate
	} else if w.ended = w.ended || a.Ended; headers.Get(destinationKey) != w.headers.Get(destinationKey) {
		w.pickIn = a.Kind
		w.mutated = len(a.Mutation.GetSetHeaders()) + len(a.Mutation.GetRemoveHeaders())
	}
	w.headers = headers
	switch a.Kind {
	case exchange.HeadersAnswer:
		w.headersN++
	case exchange.TrailersAnswer:
		w.trailersN++
	case exchange.BodyAnswer:
		w.bodyN++
		w.back = append(w.back, a.Chunk...)
		w.chunks = append(w.chunks, a.Chunk)
		w.replaced = w.replaced || a.Replaced
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// await waits until holds, which sees the call locked. An immediate response ends every wait.
func (c *call) await(what string, holds func() bool) error {
	return c.awaitFor(c.Patience, what, holds)
}

func (c *call) awaitFor(patience time.Duration, what string, holds func() bool) error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		done, changed := c.immediate != nil || holds(), c.changed
		c.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-c.over:
			c.mu.Lock()
			done = c.immediate != nil || holds()
			c.mu.Unlock()
			if done {
				return nil
			}
			return c.ending("waiting for " + what)
		case <-deadline.C:
			if err := c.clean(); err != nil {
				return err // most likely why
			}
			return fmt.Errorf("no answer within %v: %s", patience, what)
		}
	}
}

// ending is the error of a stream that ended while something was due.
func (c *call) ending(during string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var v *exchange.Violation
	switch {
	case errors.As(c.err, &v):
		return v
	case errors.Is(c.err, io.EOF):
		return fmt.Errorf("the EPP ended the stream, %s", during)
	}
	return fmt.Errorf("%w, %s", c.err, during)
}

// finish ends the proxy's side, waits for the EPP's, and returns what is wrong: a broken rule, or an error at the end.
func (c *call) finish() error {
	if err := c.stream.HalfClose(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	deadline := time.NewTimer(c.Patience)
	defer deadline.Stop()
	select {
	case <-c.over:
	case <-deadline.C:
		return fmt.Errorf("the stream is open %v after its half-close", c.Patience)
	}
	if err := c.clean(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !errors.Is(c.err, io.EOF) {
		return fmt.Errorf("at the end of the stream: %w", c.err)
	}
	return nil
}

// clean is the first rule that an answer broke.
func (c *call) clean() error { return c.cleanBut("") }

// cleanBut is clean without one rule.
func (c *call) cleanBut(rule exchange.Rule) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.found {
		if c.found[i].Rule != rule {
			return &c.found[i]
		}
	}
	return nil
}

func (c *call) refused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.immediate != nil
}

// look returns what a direction has brought.
func (c *call) look(id exchange.Direction) way {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ways[id]
}

// reset ends the stream as Envoy does, and waits until it has ended.
func (c *call) reset() {
	c.stream.Close()
	<-c.over
}

// finishAnyhow is a half-close after which the EPP may end the stream with or without an error.
func (c *call) finishAnyhow() error {
	if err := c.stream.HalfClose(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	deadline := time.NewTimer(c.Patience)
	defer deadline.Stop()
	select {
	case <-c.over:
		return nil
	case <-deadline.C:
		return fmt.Errorf("the stream is open %v after its half-close", c.Patience)
	}
}

// ended waits until the EPP knows how the request ended, which it must count once.
func (c *call) ended(good func(Ending) error) error {
	var e Ending
	err := c.eventually("the EPP remembers the request", func() (ok bool) {
		e, ok = c.Inside.Ended(c.id)
		return ok
	})
	switch {
	case err != nil:
		return err
	case e.Times != 1:
		return fmt.Errorf("counted %d times, want 1", e.Times)
	}
	return good(e)
}

// released waits until nothing is counted as running. Only for checks that run alone.
func (t *checkRun) released() error {
	if t.Inside.Load == nil {
		return nil
	}
	return t.eventually("all load is given back", func() bool {
		for _, e := range t.Endpoints {
			if t.Inside.Load(e) != 0 {
				return false
			}
		}
		return true
	})
}
