package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// responseChecks are about the response, by itself and beside the request.
var responseChecks = []Check{
	{
		Number: 16, Name: "response in chunks", in: replied,
		Sends: "response headers, chunks, the last with the end",
		Wants: "the headers answer, each byte in order, one end",
		run:   func(t *checkRun) error { return t.respond(completion()) },
	},
	{
		Number: 17, Name: "response without a body", in: repliedHeaders,
		Sends: "response headers with the end", Wants: "one headers answer, no body message",
		run: func(t *checkRun) error { return t.respond(reply(204, "text/plain")) },
	},
	{
		Number: 18, Name: "response with trailers", in: both(replied, responseTrailers),
		Sends: "response headers, chunks without an end, trailers; then the same without chunks",
		Wants: "each byte, no end on a chunk, one trailers answer; no body message where none came; in NONE the EPP " +
			"may end its stream instead",
		run: func(t *checkRun) error {
			if err := t.respond(completion().ending(checksum)); err != nil {
				return err
			}
			if err := t.respond(reply(200, "application/grpc").ending(checksum)); err != nil {
				return fmt.Errorf("headers and trailers alone: %w", err)
			}
			return nil
		},
	},
	{
		Number: 19, Name: "response 503", in: repliedHeaders,
		Sends: "response headers with :status 503 and a body", Wants: "passed on; counted once, with that status",
		run: func(t *checkRun) error {
			c, err := t.whole(reply(503, "text/plain", "overloaded"))
			if err != nil {
				return err
			}
			if err := c.finish(); err != nil || t.Inside.Ended == nil || !headed(t.modes) {
				return errors.Join(err, c.clean())
			}
			return c.ended(func(e Ending) error {
				if e.Status != 503 {
					return fmt.Errorf("counted with status %d, want 503", e.Status)
				}
				return nil
			})
		},
	},
	{
		Number: 21, Name: "response headers first", in: func(m Modes) bool {
			return !m.Observe &&
				!m.Response.SkipHeaders
		},
		Sends: "a response, but no request", Wants: "the response direction's answers",
		run: func(t *checkRun) error {
			c, err := t.open(t.ctx)
			if err != nil {
				return err
			}
			if err := c.play(exchange.Response, completion()); err != nil {
				return err
			}
			return errors.Join(c.answeredWell(), c.finish())
		},
	},
	{
		Number: 32, Name: "response without its body", in: func(m Modes) bool {
			return repliedHeaders(m) &&
				m.Response.Body == exchange.None
		},
		Sends: "a request, response headers", Wants: "one headers answer in the response direction",
		run: func(t *checkRun) error { return t.respond(completion()) },
	},
	{
		Number: 54, Name: "who served", in: both(headed, repliedHeaders), alone: true,
		Sends: "the second destination as served: in metadata, as an attribute; nothing",
		Wants: "the load is counted where it runs",
		run:   whoServed,
	},
	{
		Number: 55, Name: "a stranger served", in: both(headed, repliedHeaders), alone: true,
		Sends: "an address outside the pool as served", Wants: "passed on; nothing stays counted at the pick",
		run: func(t *checkRun) error {
			c, _, err := t.servedBy(servedBy("192.0.2.77:8000"))
			if err != nil {
				return err
			}
			return errors.Join(c.finish(), t.released())
		},
	},
	{
		Number: 60, Name: "server-sent events", in: repliedBody, alone: true,
		Sends: "events in 120 chunks split anywhere, CRLF, no last newline, no [DONE]",
		Wants: "every byte; each chunk before the next is sent, at once",
		run:   events,
	},
	{
		Number: 68, Name: "random interleavings", in: replied,
		Sends: "30 exchanges with random chunks, empty ones too, both directions together where the mode lets them",
		Wants: "the order of each direction, one end a direction, every byte",
		run:   interleavings,
	},
}

// respond plays a whole exchange with this response.
func (t *checkRun) respond(m message) error {
	c, err := t.whole(m)
	if err != nil {
		return err
	}
	return c.finish()
}

// watched plays a whole exchange that is only shown.
func watched(t *checkRun) error {
	c, err := t.open(t.ctx)
	if err != nil {
		return err
	}
	for id, m := range []message{t.chat(), completion()} {
		direction := exchange.Direction(id)
		if err := c.head(direction, m); err != nil {
			return err
		}
		if err := c.sendBody(direction, c.mode(direction), m); err != nil {
			return err
		}
	}
	return c.finish()
}

// servedBy plays an exchange up to the response headers, which name the endpoint that served.
func (t *checkRun) servedBy(context exchange.Context) (*call, []string, error) {
	c, err := t.start(t.chat())
	if err != nil {
		return nil, nil, err
	}
	list, err := c.destinations()
	if err != nil {
		return nil, nil, err
	}
	m := completion()
	m.context = context
	return c, list, errors.Join(c.play(exchange.Response, m), c.answeredWell())
}

// whoServed looks at the load between the response's headers and its end.
func whoServed(t *checkRun) error {
	if t.Inside.Load == nil || t.Inside.Ended == nil {
		return needsInside
	}
	if len(t.Endpoints) < 2 {
		return notRun("needs two endpoints")
	}
	ways := map[string]func(string) exchange.Context{"metadata": servedBy, "attribute": upstreamAddress, "": nil}
	for name, say := range ways {
		c, err := t.start(t.chat())
		if err != nil {
			return err
		}
		list, err := c.destinations()
		if err != nil {
			return err
		}
		want := list[0]
		m := completion()
		if say != nil {
			want = t.other(want)
			m.context = say(want)
		}
		if err := c.head(exchange.Response, m); err != nil {
			return err
		}
		if err := c.await("response headers answer", c.headersIn(exchange.Response)); err != nil {
			return err
		}
		closed := t.modes.Response.Body == exchange.None // the EPP may count the exchange as ended
		err = t.eventually(fmt.Sprintf("%s (%s) carries the load, and no other", want, name), func() bool {
			for _, e := range t.Endpoints {
				if n := t.Inside.Load(e); e != want && n != 0 || e == want && n != 1 && !closed {
					return false
				}
			}
			return true
		})
		c.reset()
		if err = errors.Join(err, c.clean(), t.released(), c.ended(func(e Ending) error {
			if e.Served != want {
				return fmt.Errorf("%q is remembered as who served, want %s", e.Served, want)
			}
			return nil
		})); err != nil {
			return err
		}
	}
	return nil
}

// upstreamAddress is a context that names in an attribute the server that answered.
func upstreamAddress(address string) exchange.Context {
	return exchange.Context{Attributes: map[string]string{"upstream.address": address}}
}

// other is an endpoint that is not e.
func (t *checkRun) other(e string) string {
	return t.Endpoints[(slices.Index(t.Endpoints, e)+1)%len(t.Endpoints)]
}

func events(t *checkRun) error {
	text := "data: {\"choices\":[{\"delta\":{\"content\":\"na\u00efve\"}}]}\r\n\r\n" +
		"data: {\"choices\":[{\"delta\":{\"content\":\"\U0001F6A6\"}}]}\n\n" +
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2,\"total_tokens\":6}}"
	if t.modes.Response.Buffers() {
		return t.respond(reply(200, "text/event-stream", pieces(text, 12)...))
	}
	m := reply(200, "text/event-stream", pieces(text, 120)...)
	return t.soon("chunks", t.AtOnce/10, func() ([]time.Duration, error) { return t.oneByOne(m) })
}

// oneByOne plays a response of which each chunk must come back before the next is sent, and times them.
func (t *checkRun) oneByOne(m message) ([]time.Duration, error) {
	c, err := t.begin(t.chat())
	if err != nil {
		return nil, err
	}
	if err := c.head(exchange.Response, m); err != nil {
		return nil, err
	}
	var all []time.Duration
	so := 0
	for i, chunk := range m.chunks {
		began := time.Now()
		if err := c.chunk(exchange.Response, chunk, i == len(m.chunks)-1); err != nil {
			return nil, err
		}
		so += len(chunk)
		if err := c.await(fmt.Sprintf("answer to chunk %d", i), func() bool {
			w := &c.ways[exchange.Response]
			return w.bodyN > i || t.modes.Response.Duplex() && len(w.back) >= so
		}); err != nil {
			return nil, err
		}
		all = append(all, time.Since(began))
	}
	return all, errors.Join(c.settle(exchange.Response), c.answeredWell(), c.finish())
}

// interleavings plays random exchanges from one seed. The response begins as soon as the mode can have released the
// headers.
func interleavings(t *checkRun) error {
	const seed = 5
	dice := rand.New(rand.NewPCG(seed, seed))
	for i := range 30 {
		text := strings.Repeat("héllo ", 1+dice.IntN(3000))
		q, r := post(chatPath, shred(dice, t.prompt(text))...), completion()
		r.chunks = shred(dice, text)
		for _, m := range []*message{&q, &r} {
			if dice.IntN(3) == 0 {
				m.trailers = exchange.Headers{{Name: "x-end", Value: "1"}}
			}
		}
		if err := t.interleaved(q, r); err != nil {
			return fmt.Errorf("exchange %d of seed %d: %w", i, seed, err)
		}
	}
	return nil
}

func (t *checkRun) interleaved(q, r message) error {
	if !eager(t.modes) {
		c, err := t.begin(q)
		if err != nil {
			return err
		}
		return errors.Join(c.play(exchange.Response, r), c.answeredWell(), c.intact(exchange.Request), c.finish())
	}
	c, err := t.open(t.ctx)
	if err != nil {
		return err
	}
	asked := make(chan error, 1)
	go func() { asked <- c.play(exchange.Request, q) }()
	err = c.await("headers answer", c.headersIn(exchange.Request))
	if err == nil && !c.refused() {
		err = c.play(exchange.Response, r)
	}
	return errors.Join(<-asked, err, c.answeredWell(), c.served())
}

// shred cuts a text into a few pieces of any size, none too.
func shred(dice *rand.Rand, text string) []string {
	var out []string
	for len(text) > 0 {
		n := dice.IntN(len(text)/2 + 2)
		out, text = append(out, text[:n]), text[n:]
	}
	if dice.IntN(4) == 0 {
		out = append(out, "")
	}
	return out
}
