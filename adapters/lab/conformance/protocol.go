package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// protocolChecks are about what a mode demands, and about the server itself.
var protocolChecks = []Check{
	{
		Number: 27, Name: "observability mode", in: observed,
		Sends: "a whole exchange with observability_mode", Wants: "no answer at all",
		run: watched,
	},
	{
		Number: 28, Name: "buffered: headers are let go", alone: true,
		in:    request(exchange.Mode{Body: exchange.Buffered}, exchange.Mode{Body: exchange.BufferedPartial}),
		Sends: "headers", Wants: "an empty headers answer at once, before any body",
		run: func(t *checkRun) error {
			c, err := t.open(t.ctx)
			if err != nil {
				return err
			}
			m := t.chat()
			if err := c.head(exchange.Request, m); err != nil {
				return err
			}
			if w := c.look(exchange.Request); c.refused() || w.pickIn != exchange.Nothing {
				return errors.New("the headers answer carries a pick or a refusal, although the body is to come")
			}
			if err := errors.Join(c.sendBody(exchange.Request, t.modes.Request, m), c.settle(exchange.Request),
				c.served()); err != nil {
				return err
			}
			return t.soon("headers answers", t.AtOnce, t.headersAnswers)
		},
	},
	{
		Number: 29, Name: "buffered: the body is answered",
		in:    func(m Modes) bool { return headed(m) && m.Request.Buffers() },
		Sends: "headers, the body", Wants: "one body answer with header and metadata, without a body",
		run: func(t *checkRun) error {
			c, err := t.start(t.chat())
			if err != nil {
				return err
			}
			if c.look(exchange.Request).replaced {
				return errors.New("the body answer carries a body, although nothing was changed")
			}
			return c.served()
		},
	},
	{
		Number: 30, Name: "streamed: an answer a chunk", in: request(exchange.Mode{Body: exchange.Streamed}),
		Sends: "headers, 10 chunks", Wants: "a pick, 10 body answers, no streamed_response",
		run: func(t *checkRun) error { return t.pick(post(chatPath, pieces(t.prompt("Say hello."), 10)...)) },
	},
	{
		Number: 61, Name: "1000 slow readers", in: plain(repliedBody), alone: true,
		Sends: "1000 exchanges whose answers nobody reads, 4 of them of 20 MiB, or 1 MiB in one message; others on " +
			"the same connection and on another",
		Wants: "the EPP stops to take what nobody reads, but for one message, serves the others at their usual " +
			"speed, and once it is read gives every byte or answer",
		run: slowReaders,
	},
	{
		Number: 64, Name: "health", in: once,
		Sends: "Check and Watch of each service name; a stop, where the EPP may be stopped",
		Wants: "SERVING; NOT_SERVING once it is to end",
		run:   healthy,
	},
}

// healthNames are the services that a proxy or a kubelet asks for. The first says that the process works, which it
// does until it is gone; the others say whether it serves.
var healthNames = []string{"liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"}

const (
	serving    = healthpb.HealthCheckResponse_SERVING
	notServing = healthpb.HealthCheckResponse_NOT_SERVING
)

func healthy(t *checkRun) error {
	if t.Health == nil {
		return notRun("needs the health service")
	}
	ctx, cancel := context.WithTimeout(t.ctx, t.Patience)
	defer cancel()
	// An EPP that has only just started may have to scrape its endpoints first: the watches wait for that.
	if _, err := watchHealth(ctx, t.Health, healthNames...); err != nil {
		return err
	}
	for _, name := range healthNames {
		got, err := t.Health.Check(ctx, &healthpb.HealthCheckRequest{Service: name})
		if err != nil {
			return fmt.Errorf("check of %q: %w", name, err)
		}
		if got.GetStatus() != serving {
			return fmt.Errorf("check of %q: %v", name, got.GetStatus())
		}
	}
	if t.Inside.Fresh == nil {
		return nil
	}
	epp, err := t.Inside.Fresh()
	if err != nil {
		return err
	}
	all, err := watchHealth(ctx, epp.Health, healthNames[1:]...)
	epp.Stop()
	if err == nil {
		err = all.hear(notServing)
	}
	cancel()
	return errors.Join(err, epp.Wait())
}

// slowReader is a stream of which nothing is read at first.
type slowReader struct {
	load
	stream *exchange.Stream
	sent   atomic.Int64  // bytes of the response
	over   chan struct{} // closed when all is sent, or nothing more can be
}

// load is a response whose answers are not read.
type load struct {
	bytes, chunk int
	end          bool // it comes
}

const slowOnes, heldOnes = 1000, 4

// loads are a short response, whose answers the smallest windows take, and a long one, whose answers the largest of
// gRPC do not. Where a chunk is answered by a few bytes, that takes many chunks; where the body is one message,
// nothing can hold back its answer.
func (t *checkRun) loads() (short, long load) {
	switch mode := t.modes.Response; {
	case mode.Buffers():
		return load{8 << 10, 8 << 10, true}, load{1 << 20, 1 << 20, true}
	case mode.Duplex():
		return load{8 << 10, 8 << 10, false}, load{20 << 20, 32 << 10, true}
	}
	return load{8 << 10, 8 << 10, false}, load{20 << 20, 256, true}
}

// slowReaders needs a client whose windows are so small that answers that are not read make the EPP wait.
func slowReaders(t *checkRun) error {
	if t.Narrow == nil {
		return notRun("needs a connection with small windows")
	}
	ctx, cancel := context.WithTimeout(t.ctx, 5*time.Minute) // for all of them, on a busy machine too
	var readers []*slowReader
	defer func() {
		cancel()
		for _, r := range readers {
			<-r.over
		}
	}()
	var streams []*exchange.Stream
	for range slowOnes {
		s, err := t.ignored(ctx)
		if err != nil {
			return err
		}
		streams = append(streams, s)
	}
	short, long := t.loads()
	for i, s := range streams {
		r := &slowReader{load: short, stream: s, over: make(chan struct{})}
		if i < heldOnes {
			r.load = long
		}
		readers = append(readers, r)
		go r.fill()
	}
	for _, r := range readers[heldOnes:] {
		<-r.over
	}
	held := readers[:heldOnes]
	if err := t.beside(held); err != nil {
		return err
	}
	read := make(chan error, heldOnes)
	for _, r := range held {
		go func() { read <- r.read(t.modes.Response.Duplex()) }()
	}
	var all []error
	for range held {
		all = append(all, <-read)
	}
	return errors.Join(all...)
}

// ignored plays an exchange up to the response body, whose answers are not to be read.
func (t *checkRun) ignored(ctx context.Context) (*exchange.Stream, error) {
	s, err := exchange.Open(ctx, t.Narrow, t.config())
	if err != nil {
		return nil, err
	}
	if err := s.SendHeaders(exchange.Request, t.chat().headers, true, exchange.Context{}); err != nil {
		return nil, err
	}
	if _, err := s.Recv(); err != nil {
		return nil, err
	}
	err = s.SendHeaders(exchange.Response, completion().headers, false, exchange.Context{})
	if err == nil && !t.modes.Response.Duplex() {
		_, err = s.Recv() // Envoy sends no body before
	}
	return s, err
}

// fill sends the response. What is lost shows in what comes back.
func (r *slowReader) fill() {
	defer close(r.over)
	chunk := make([]byte, r.chunk)
	for n := r.chunk; n <= r.bytes; n += r.chunk {
		if r.stream.SendBody(exchange.Response, chunk, r.end && n == r.bytes) != nil {
			return
		}
		r.sent.Store(int64(n))
	}
}

// beside plays exchanges until the readers' streams stand still meanwhile,
// which they must do before they are at their end.
func (t *checkRun) beside(readers []*slowReader) error {
	for before := int64(-1); before != taken(readers); {
		if err := t.still(readers); err != nil {
			return err
		}
		before = taken(readers)
		for _, t.client = range []extprocv3.ExternalProcessorClient{t.Narrow, t.Client} {
			began := time.Now()
			if err := t.respond(completion()); err != nil {
				return fmt.Errorf("an exchange beside slow readers: %w", err)
			}
			if took := time.Since(began); took > t.Patience/2 {
				return fmt.Errorf("an exchange beside slow readers took %v", took)
			}
		}
	}
	return nil
}

// still waits until nothing more is taken for 200 ms.
func (t *checkRun) still(readers []*slowReader) error {
	looks, before := 0, int64(-1)
	err := t.eventually("what nobody reads is taken no more", func() bool {
		now := taken(readers)
		if looks++; now != before {
			looks, before = 0, now
		}
		return looks == 100
	})
	for _, r := range readers {
		if r.chunk < r.bytes && r.sent.Load() == int64(r.bytes) {
			return fmt.Errorf("%d bytes of a response that nobody reads were taken", r.bytes)
		}
	}
	return err
}

func taken(readers []*slowReader) (bytes int64) {
	for _, r := range readers {
		bytes += r.sent.Load()
	}
	return bytes
}

// read takes all that comes up to the end, which could not be sent before: the bytes, or an answer for each chunk.
func (r *slowReader) read(echoes bool) error {
	got, want, what := 0, r.bytes/r.chunk, "chunks"
	if echoes {
		want, what = r.bytes, "bytes"
	}
	for {
		a, err := r.stream.Recv()
		switch {
		case err != nil:
			return fmt.Errorf("a slow reader that reads: %d of %d %s came back: %w", got, want, what, err)
		case echoes:
			got += len(a.Chunk)
		case a.Kind == exchange.BodyAnswer:
			got++
		}
		if a.Ended && a.Direction == exchange.Response {
			if got != want {
				return fmt.Errorf("a slow reader that reads: %d of %d %s came back", got, want, what)
			}
			return nil
		}
	}
}
