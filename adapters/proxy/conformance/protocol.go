package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/signalbox-epp/signalbox/adapters/proxy/exchange"
)

// protocolChecks are about what a mode demands, and about the server itself.
var protocolChecks = []Check{
	{
		Number: 27, Name: "observability mode", in: observed,
		Sends: "a whole exchange with observability_mode", Wants: "no answer at all",
		run: watched,
	},
	{
		Number: 28, Name: "buffered: headers are let go", in: request(exchange.LaneMode{Body: exchange.Buffered}, exchange.LaneMode{Body: exchange.BufferedPartial}),
		Sends: "headers", Wants: "an empty headers answer at once, before any body",
		run: func(t *trial) error {
			c, err := t.open(t.ctx)
			if err != nil {
				return err
			}
			m := t.chat()
			began := time.Now()
			if err := c.head(qLane, m); err != nil {
				return err
			}
			if took := time.Since(began); took > t.AtOnce {
				return fmt.Errorf("answered after %v, want %v at most", took, t.AtOnce)
			}
			if w := c.look(qLane); c.refused() || w.pickIn != exchange.Nothing {
				return errors.New("the headers answer carries a pick or a refusal, although the body is to come")
			}
			return errors.Join(c.sendBody(qLane, t.modes.Request, m), c.settle(qLane), c.served())
		},
	},
	{
		Number: 29, Name: "buffered: the body is answered", in: func(m Modes) bool { return headed(m) && m.Request.Buffers() },
		Sends: "headers, the body", Wants: "one body answer with header and metadata, without a body",
		run: func(t *trial) error {
			c, err := t.start(t.chat())
			if err != nil {
				return err
			}
			if c.look(qLane).replaced {
				return errors.New("the body answer carries a body, although nothing was changed")
			}
			return c.served()
		},
	},
	{
		Number: 30, Name: "streamed: an answer a chunk", in: request(exchange.LaneMode{Body: exchange.Streamed}),
		Sends: "headers, 10 chunks", Wants: "a pick, 10 body answers, no streamed_response",
		run: func(t *trial) error { return t.pick(post(chatPath, pieces(t.prompt("Say hello."), 10)...)) },
	},
	{
		Number: 31, Name: "no body: headers decide", in: request(exchange.LaneMode{Body: exchange.None}),
		Sends: "headers of a request that has a body", Wants: "a pick, and nothing more",
		run: func(t *trial) error {
			c, err := t.start(t.chat())
			if err != nil {
				return err
			}
			if err := c.served(); err != nil {
				return err
			}
			if n := len(c.answers); n != 1 {
				return fmt.Errorf("%d answers, want 1", n)
			}
			return nil
		},
	},
	{
		Number: 32, Name: "response without its body", in: func(m Modes) bool { return repliedHeaders(m) && m.Response.Body == exchange.None },
		Sends: "a request, response headers", Wants: "one headers answer in the response lane",
		run: func(t *trial) error { return t.respond(completion()) },
	},
	{
		Number: 33, Name: "gRPC messages", in: request(exchange.LaneMode{Body: exchange.GRPC}),
		Sends: "messages of 0 bytes to 200 KB, compressed ones, an end without a message", Wants: "each message whole, with its flags; or a clear refusal",
		run: grpcMessages,
	},
	{
		Number: 64, Name: "health", in: once,
		Sends: "Check of each service name, Watch", Wants: "SERVING",
		run: func(t *trial) error { return t.healthy(t.Health) },
	},
	{
		Number: 68, Name: "random interleavings", in: replied,
		Sends: "30 exchanges with random chunks, empty ones too, both lanes together where the mode lets them", Wants: "the order of each lane, one end a lane, every byte",
		run: interleavings,
	},
}

func watched(t *trial) error {
	c, err := t.open(t.ctx)
	if err != nil {
		return err
	}
	for id, m := range []message{t.chat(), completion()} {
		lane := exchange.Lane(id)
		if err := c.head(lane, m); err != nil {
			return err
		}
		if err := c.sendBody(lane, c.mode(lane), m); err != nil {
			return err
		}
	}
	return c.finish()
}

// grpcMessages compares message by message what came back.
func grpcMessages(t *trial) error {
	c, err := t.open(t.ctx)
	if err != nil {
		return err
	}
	m := bare("POST", "/inference.Service/Generate").with("content-type", "application/grpc")
	m.chunks = []string{}
	if err := c.head(qLane, m); err != nil {
		return err
	}
	sent := []*extprocv3.HttpBody{
		{Body: []byte("one")}, {}, {Body: bytes.Repeat([]byte("x"), 200_000)}, {Body: []byte("small"), GrpcMessageCompressed: true},
		{EndOfStream: true, EndOfStreamWithoutMessage: true},
	}
	for _, b := range sent {
		if done, err := c.sent(c.stream.SendHTTPBody(qLane, b)); done {
			return err
		}
	}
	if err := c.settle(qLane); err != nil {
		return err
	}
	if c.refused() {
		return c.turnedAway()
	}
	var got []*extprocv3.StreamedBodyResponse
	for _, a := range c.answers {
		if a.Kind == exchange.BodyAnswer {
			got = append(got, a.Message.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse())
		}
	}
	for i, b := range sent {
		switch {
		case i >= len(got):
			return fmt.Errorf("%d messages came back, want %d", len(got), len(sent))
		case !bytes.Equal(got[i].GetBody(), b.GetBody()):
			return fmt.Errorf("message %d: %d bytes were sent, %d came back", i, len(b.GetBody()), len(got[i].GetBody()))
		case got[i].GetEndOfStream() != b.GetEndOfStream() || got[i].GetEndOfStreamWithoutMessage() != b.GetEndOfStreamWithoutMessage() ||
			got[i].GetGrpcMessageCompressed() != b.GetGrpcMessageCompressed():
			return fmt.Errorf("message %d: flags differ", i)
		}
	}
	if _, err := c.destinations(); err != nil {
		return err
	}
	return c.finish()
}

// healthNames are the services that a proxy or a kubelet asks for.
var healthNames = []string{"liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"}

func (t *trial) healthy(h healthpb.HealthClient) error {
	if h == nil {
		return notRun("needs the health service")
	}
	ctx, cancel := context.WithTimeout(t.ctx, t.Patience)
	defer cancel()
	for _, name := range healthNames {
		got, err := h.Check(ctx, &healthpb.HealthCheckRequest{Service: name})
		if err != nil {
			return fmt.Errorf("check of %q: %w", name, err)
		}
		if got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			return fmt.Errorf("check of %q: %v", name, got.GetStatus())
		}
	}
	watch, err := h.Watch(ctx, &healthpb.HealthCheckRequest{Service: healthNames[1]})
	if err != nil {
		return err
	}
	first, err := watch.Recv()
	if err != nil {
		return fmt.Errorf("watch of %q: %w", healthNames[1], err)
	}
	if first.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("watch of %q: %v", healthNames[1], first.GetStatus())
	}
	return nil
}

func shutdown(t *trial) error {
	if t.Inside.Fresh == nil {
		return notRun("needs an EPP that may be stopped")
	}
	epp, err := t.Inside.Fresh()
	if err != nil {
		return err
	}
	t.client = epp.Client
	c, err := t.start(t.chat())
	if err == nil {
		_, err = c.destinations()
	}
	epp.Stop()
	if err != nil {
		return errors.Join(err, epp.Wait())
	}
	err = t.eventually("health says NOT_SERVING", func() bool {
		got, err := epp.Health.Check(t.ctx, &healthpb.HealthCheckRequest{Service: healthNames[1]})
		return err != nil || got.GetStatus() == healthpb.HealthCheckResponse_NOT_SERVING
	})
	return errors.Join(err, c.play(rLane, completion()), c.answeredWell(), c.finish(), epp.Wait())
}

// interleavings plays random exchanges from one seed. The response begins as soon as the mode can have released the headers.
func interleavings(t *trial) error {
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

func (t *trial) interleaved(q, r message) error {
	c, err := t.open(t.ctx)
	if err != nil {
		return err
	}
	asked := make(chan error, 1)
	go func() { asked <- c.play(qLane, q) }()
	if eager(t.modes) {
		err = c.await("headers answer", c.headersIn(qLane))
	} else {
		err = <-asked
		asked <- nil
	}
	if err == nil && !c.refused() {
		err = c.play(rLane, r)
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
