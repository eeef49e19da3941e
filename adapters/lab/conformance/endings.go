package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

const needsInside = notRun("needs a look inside the EPP")

// endingChecks are about how streams end, on either side.
var endingChecks = []Check{
	{
		Number: 9, Name: "body never comes", in: awaited,
		Sends: "headers, then nothing",
		Wants: "an immediate response 408, 503 or 504 at the EPP's own deadline, nothing before",
		run: func(t *checkRun) error {
			t.impatient()
			c, err := t.open(t.ctx)
			if err != nil {
				return err
			}
			if err := c.head(exchange.Request, t.chat()); err != nil {
				return err
			}
			if err := c.awaitFor(t.BodyWait, "a refusal", func() bool { return false }); err != nil {
				return err
			}
			return c.turnedAway(408, 503, 504)
		},
	},
	{
		Number: 10, Name: "half-close amid the body", in: headed, alone: true,
		Sends: "headers, part of the body, half-close",
		Wants: "the stream ends; no pick where it waits for the body; nothing stays counted",
		run:   func(t *checkRun) error { return t.brokenOff((*call).finishAnyhow) },
	},
	{
		Number: 11, Name: "reset amid the body", in: headed, alone: true,
		Sends: "headers, part of the body, reset", Wants: "as 10, and no load is left",
		run: func(t *checkRun) error {
			if t.Inside.Ended == nil {
				return needsInside
			}
			return t.brokenOff(func(c *call) error { c.reset(); return nil })
		},
	},
	{
		Number: 12, Name: "reset while it waits in the queue", in: headed, alone: true,
		Sends: "a whole request, reset before its answer", Wants: "its place in the queue is given up",
		run: resetInLine,
	},
	{
		Number: 13, Name: "reset after all is answered", in: both(headed, replied),
		Sends: "a whole exchange, reset", Wants: "counted as served",
		run: func(t *checkRun) error {
			if t.Inside.Ended == nil {
				return needsInside
			}
			c, err := t.whole(completion())
			if err != nil {
				return err
			}
			c.reset()
			return errors.Join(c.clean(), c.ended(func(e Ending) error {
				unseen := !repliedBody(t.modes) && e.Reason == "lost" // and no access log tells the end here
				if e.Reason != "" && !unseen {
					return fmt.Errorf("counted as %q, want served", e.Reason)
				}
				return nil
			}))
		},
	},
	{
		Number: 14, Name: "half-close after all is answered", in: replied,
		Sends: "a whole exchange, half-close", Wants: "the stream ends without an error within a second",
		run: func(t *checkRun) error {
			c, err := t.whole(completion())
			if err != nil {
				return err
			}
			began := time.Now()
			if err := c.finish(); err != nil {
				return err
			}
			if took := time.Since(began); took > time.Second {
				return fmt.Errorf("the stream ended after %v", took)
			}
			return nil
		},
	},
	{
		Number: 15, Name: "response never comes", in: headed, alone: true,
		Sends: "a whole request, reset", Wants: "the load is given back, the request is not counted as served",
		run: func(t *checkRun) error {
			if t.Inside.Ended == nil {
				return needsInside
			}
			c, err := t.start(t.chat())
			if err != nil {
				return err
			}
			if _, err := c.destinations(); err != nil {
				return err
			}
			c.reset()
			return errors.Join(c.clean(), c.ended(aborted), t.released())
		},
	},
	{
		Number: 62, Name: "shutdown", in: once, alone: true,
		Sends: "half an exchange, a stop, the other half",
		Wants: "who watches health hears NOT_SERVING before the connection goes, the exchange is served to its end",
		run:   shutdown,
	},
	{
		Number: 63, Name: "deadline of the proxy", in: headed, alone: true,
		Sends: "headers, part of the body, on a call with a deadline of 100 ms",
		Wants: "the stream is gone with the deadline, nothing stays counted",
		run: func(t *checkRun) error {
			if t.Inside.Open == nil {
				return needsInside
			}
			c, ctx, err := t.openBriefly(100 * time.Millisecond)
			if err != nil {
				return err
			}
			if err := c.part(); err != nil && ctx.Err() == nil { // a busy machine may not come so far
				return err
			}
			<-c.over
			if err := t.eventually("the EPP closes its stream",
				func() bool { return t.Inside.Open() == 0 }); err != nil {
				return err
			}
			return errors.Join(c.clean(), t.released())
		},
	},
}

// openBriefly opens a call with a deadline. The deadline counts from before the call, so that none may be left once a
// busy machine has connected: then it opens another one.
func (t *checkRun) openBriefly(limit time.Duration) (*call, context.Context, error) {
	for {
		ctx, cancel := context.WithTimeout(t.ctx, limit)
		context.AfterFunc(ctx, cancel) // the deadline ends the call, and nothing before
		c, err := t.open(ctx)
		if err == nil || ctx.Err() == nil || t.ctx.Err() != nil {
			return c, ctx, err
		}
	}
}

// part sends headers and the first part of a body that is not whole.
func (c *call) part() error {
	m := post(chatPath, c.prompt("Say hello."))
	if err := c.head(exchange.Request, m); err != nil {
		return err
	}
	mode := c.modes.Request
	if mode.Body == exchange.None || mode.Buffers() {
		return nil // Envoy shows no part of it
	}
	return c.chunk(exchange.Request, m.chunks[0][:20], false)
}

// brokenOff is a client that leaves amid its body.
func (t *checkRun) brokenOff(leave func(*call) error) error {
	c, err := t.open(t.ctx)
	if err != nil {
		return err
	}
	if err := c.part(); err != nil {
		return err
	}
	if err := c.arrived(); err != nil {
		return err
	}
	if err := leave(c); err != nil {
		return err
	}
	if awaited(t.modes) && c.look(exchange.Request).pickIn != exchange.Nothing {
		return errors.New("a pick, although the body was not whole")
	}
	// What the EPP owed it owes no longer.
	if err := c.cleanBut(exchange.EndedEarly); err != nil || t.Inside.Ended == nil {
		return err
	}
	return errors.Join(c.ended(aborted), t.released())
}

// arrived waits until the EPP has seen the request: by its answer, or by the bytes that it holds.
func (c *call) arrived() error {
	if !awaited(c.modes) {
		return c.await("headers answer", c.headersIn(exchange.Request))
	}
	if c.modes.Request.Buffers() || c.Inside.Held == nil {
		return nil
	}
	return c.eventually("the EPP holds a part of the body", func() bool { return c.Inside.Held() > 0 })
}

func aborted(e Ending) error {
	if e.Reason == "" {
		return errors.New("counted as served")
	}
	return nil
}

func resetInLine(t *checkRun) error {
	q := t.Inside.Queue
	if q == nil {
		return notRun("needs an EPP in which requests wait")
	}
	t.client = q.Client
	c, err := t.open(t.ctx)
	if err != nil {
		return err
	}
	m := t.chat()
	played := make(chan error, 1)
	go func() { played <- c.play(exchange.Request, m) }()
	err = t.eventually("the request waits in the queue", func() bool { return q.Waiting() == 1 })
	c.reset()
	<-played // it was cut off
	if err != nil {
		return err
	}
	if c.look(exchange.Request).pickIn != exchange.Nothing || c.refused() {
		return errors.New("answered, although it was to wait")
	}
	return errors.Join(c.clean(), t.eventually("its place is given up", func() bool { return q.Waiting() == 0 }))
}

func shutdown(t *checkRun) error {
	if t.Inside.Fresh == nil {
		return notRun("needs an EPP that may be stopped: it serves nobody afterwards")
	}
	epp, err := t.Inside.Fresh()
	if err != nil {
		return err
	}
	t.client = epp.Client
	ctx, cancel := context.WithTimeout(t.ctx, t.Patience)
	defer cancel()
	watch, err := watchHealth(ctx, epp.Health, healthNames[1])
	var c *call
	if err == nil {
		c, err = t.begin(t.chat())
	}
	epp.Stop()
	if err == nil {
		err = watch.hear(notServing)
	}
	cancel() // a watch that goes on may keep the EPP
	if err == nil {
		err = errors.Join(c.play(exchange.Response, completion()), c.answeredWell(), c.finish())
	}
	t.close()
	return errors.Join(err, epp.Wait())
}

func (t *checkRun) heap() int64 {
	if t.Inside.Heap == nil {
		return 0
	}
	return t.Inside.Heap()
}

// heldPeak is the most that was held at a time.
type heldPeak struct {
	bytes atomic.Int64
	stop  func()
}

// watchHeld looks at what is held, 1 ms between looks.
func (t *checkRun) watchHeld() *heldPeak {
	p, done := &heldPeak{}, make(chan struct{})
	var watching sync.WaitGroup
	p.stop = func() { close(done); watching.Wait() }
	watching.Go(func() {
		look := time.NewTicker(time.Millisecond)
		defer look.Stop()
		for t.Inside.Held != nil {
			p.bytes.Store(max(p.bytes.Load(), t.Inside.Held()))
			select {
			case <-look.C:
			case <-done:
				return
			}
		}
	})
	return p
}

// heldFor checks what was held for one body, which must be given back.
func (t *checkRun) heldFor(bytes int, p *heldPeak) error {
	if t.Inside.Held == nil {
		return nil
	}
	if err := t.eventually("no body is held", func() bool { return t.Inside.Held() == 0 }); err != nil {
		return err
	}
	if peak := p.bytes.Swap(0); peak > 2*int64(bytes)+64<<10 {
		return fmt.Errorf("%d bytes were held for a body of %d", peak, bytes)
	}
	return nil
}
