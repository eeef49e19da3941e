package proxy

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

var errGone = errors.New("client is gone")

// way is what the receiving goroutine hands over for one direction.
type way struct {
	headers  exchange.Headers // changed by the headers answer, then left alone
	trailers exchange.Headers
	body     *spool
	released chan struct{} // closed when the headers may go on
	once     sync.Once
}

func (l *way) release() { l.once.Do(func() { close(l.released) }) }

// transaction is one HTTP request on its way. The handler's goroutine writes to the client; one more goroutine receives
// answers, one sends the request body, one sends the response body.
type transaction struct {
	p      *Proxy
	w      http.ResponseWriter
	r      *http.Request
	ctx    context.Context // ends with the request, or as soon as it cannot succeed
	cancel context.CancelFunc

	stream   *exchange.Stream // nil when it could not be opened
	ways     [2]*way
	mu       sync.Mutex // guards trailers of both ways and result
	result   error      // why the exchange stopped the request
	stopped  chan struct{}
	stopOnce sync.Once
	bypassed chan struct{} // closed when the rest goes on without the EPP
	tasks    sync.WaitGroup

	readDone  chan struct{} // closed when the client's body is read, nil if there is none
	noBody    bool
	announced []string    // trailers the client announced
	finished  atomic.Bool // the stream was closed because nothing was left to do
	wrote     bool        // response headers went to the client
}

func newTransaction(p *Proxy, w http.ResponseWriter, r *http.Request) *transaction {
	t := &transaction{
		p: p, w: w, r: r,
		stopped:  make(chan struct{}),
		bypassed: make(chan struct{}),
		noBody:   r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 && len(r.TransferEncoding) == 0,
	}
	t.announced = slices.Collect(maps.Keys(r.Trailer))
	t.ctx, t.cancel = context.WithCancel(r.Context())
	for i := range t.ways {
		t.ways[i] = &way{released: make(chan struct{})}
	}
	t.ways[exchange.Request].body = newSpool(p.config.RetryBufferBytes, p.config.PendingBytes)
	t.ways[exchange.Response].body = newSpool(0, p.config.PendingBytes)
	t.ways[exchange.Response].body.rewind()
	context.AfterFunc(t.ctx, func() {
		t.ways[exchange.Request].body.fail(errGone)
		t.ways[exchange.Response].body.fail(errGone)
	})
	return t
}

// run takes the request to its end. An error that is no *localReply means that the client's connection is reset.
func (t *transaction) run() error {
	request := t.ways[exchange.Request]
	request.headers = requestHeaders(t.r)
	if err := t.open(); err != nil {
		return err
	}
	t.readBody()
	if err := t.await(exchange.Request); err != nil {
		return err
	}
	response, endpoint, err := t.roundTrip()
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return t.respond(response, endpoint)
}

// open starts the exchange, or decides to go on without one.
func (t *transaction) open() error {
	stream, err := exchange.Open(t.ctx, t.p.client, t.p.directions)
	if err != nil {
		t.p.counters.failures.Add(1)
		if !t.p.config.FailureModeAllow || t.r.Context().Err() != nil {
			return &localReply{status: t.p.config.StatusOnError, body: "endpoint picker unreachable",
				details: "ext_proc_error"}
		}
		close(t.bypassed)
		return nil
	}
	t.p.counters.streams.Add(1)
	t.stream = stream
	t.tasks.Add(1)
	go t.receive()
	// An error here shows in receive with its reason.
	_ = stream.SendHeaders(exchange.Request, t.ways[exchange.Request].headers, t.noBody, t.requestContext())
	return nil
}

// close ends everything the transaction started and waits for it.
func (t *transaction) close() {
	t.cancel()
	if t.stream != nil {
		t.stream.Close()
	}
	t.unblockRead()
	t.tasks.Wait()
}

// unblockRead makes a pending read of the client's body return. The connection cannot be used again afterwards.
func (t *transaction) unblockRead() {
	if t.readDone == nil {
		return
	}
	select {
	case <-t.readDone:
		return
	default:
	}
	if err := http.NewResponseController(t.w).SetReadDeadline(time.Unix(1, 0)); err != nil {
		_ = t.r.Body.Close()
	}
}

// receive takes the EPP's answers until the stream ends.
func (t *transaction) receive() {
	defer t.tasks.Done()
	for {
		answer, err := t.stream.Recv()
		if err == nil {
			err = t.take(answer)
		}
		if err != nil {
			t.ended(err)
			return
		}
	}
}

// take carries out one accepted answer.
func (t *transaction) take(a exchange.Answer) error {
	if a.Kind == exchange.ImmediateAnswer {
		t.p.counters.immediate.Add(1)
		return t.immediateReply(a.Immediate)
	}
	l := t.ways[a.Direction]
	switch a.Kind {
	case exchange.HeadersAnswer:
		if err := t.stream.Apply(a.Direction, &l.headers, a.Mutation); err != nil {
			return err
		}
	case exchange.BodyAnswer:
		l.release()
		l.body.push(a.Chunk)
	case exchange.TrailersAnswer:
		t.mu.Lock()
		trailers := l.trailers
		t.mu.Unlock()
		if err := t.stream.Apply(a.Direction, &trailers, a.Mutation); err != nil {
			return err
		}
		l.body.end(trailers)
	}
	if a.Ended {
		l.body.end(nil)
	}
	if !a.Hold || a.Kind != exchange.HeadersAnswer {
		l.release()
	}
	return nil
}

// ended decides what the end of the exchange means for the request.
func (t *transaction) ended(err error) {
	if t.ctx.Err() != nil || t.finished.Load() {
		return
	}
	var reply *localReply
	if errors.As(err, &reply) {
		t.stop(err)
		return
	}
	failed := !errors.Is(err, io.EOF)
	if failed {
		t.p.counters.failures.Add(1)
	}
	lost := t.stream.OwesBody(exchange.Request) || t.stream.OwesBody(exchange.Response)
	if !lost && (!failed || t.failsOpen(err)) {
		t.stream.Close()
		close(t.bypassed)
		return
	}
	t.stop(&localReply{status: t.p.config.StatusOnError, body: "endpoint picker failed: " + err.Error(),
		details: "ext_proc_error"})
}

// failsOpen reports whether the exchange goes on without the EPP: only before any body was seen, and never after an
// invalid header mutation.
func (t *transaction) failsOpen(err error) bool {
	var v *exchange.Violation
	if errors.As(err, &v) && !v.Spurious() {
		return false
	}
	return t.p.config.FailureModeAllow && !t.stream.BodySent(exchange.Request) &&
		!t.stream.BodySent(exchange.Response)
}

// stop ends the request: the handler's goroutine replies or resets.
func (t *transaction) stop(result error) {
	t.stopOnce.Do(func() {
		t.mu.Lock()
		t.result = result
		t.mu.Unlock()
		close(t.stopped)
	})
	t.cancel()
}

// failure is why a step could not go on: what stopped the request, or that the client is gone.
func (t *transaction) failure(otherwise error) error {
	select {
	case <-t.stopped:
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.result
	default:
	}
	if t.ctx.Err() != nil {
		return errGone
	}
	return otherwise
}

// await waits until the direction's headers may go on, with the EPP's leave or without the EPP.
func (t *transaction) await(id exchange.Direction) error {
	var timeout <-chan time.Time
	mode := t.p.config.Request
	if id == exchange.Response {
		mode = t.p.config.Response
	}
	if !mode.Duplex() {
		timer := time.NewTimer(t.p.config.MessageTimeout)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-t.ways[id].released:
		return t.stoppedNow()
	case <-t.bypassed:
		return t.stoppedNow()
	case <-t.ctx.Done():
		return t.failure(errGone)
	case <-timeout:
		return &localReply{status: http.StatusGatewayTimeout, body: "endpoint picker did not answer in time",
			details: "ext_proc_error_per-message_timeout_exceeded"}
	}
}

// stoppedNow prefers a stop over a release that came before it.
func (t *transaction) stoppedNow() error {
	if t.ctx.Err() != nil {
		return t.failure(errGone)
	}
	return nil
}

// direct reports whether the rest goes on without the EPP.
func (t *transaction) direct() bool {
	select {
	case <-t.bypassed:
		return true
	default:
		return false
	}
}

func (t *transaction) immediateReply(r *extprocv3.ImmediateResponse) error {
	var headers exchange.Headers
	// A rejected mutation is reported and dropped: the reply goes out without its headers.
	_ = t.stream.Apply(exchange.Response, &headers, r.GetHeaders())
	return immediate(r, headers)
}
