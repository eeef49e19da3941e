package exchange

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Config is what the exchanges of a proxy share.
type Config struct {
	Request, Response Mode
	Receive           []string // metadata namespaces that are accepted, default envoy.lb
	Limits            Limits
	DisableImmediate  bool
	Observe           bool            // observability mode: no answer is wanted
	WithoutWaiting    bool            // send_body_without_waiting_for_header_response, of mode STREAMED
	PlainValues       bool            // header values go out in value in place of raw_value
	OnViolation       func(Violation) // called from Recv and Apply, may be nil
}

// Validate returns an error for the first mode that Envoy refuses.
func (c Config) Validate() error {
	if err := c.Request.Validate(); err != nil {
		return fmt.Errorf("request direction: %w", err)
	}
	if err := c.Response.Validate(); err != nil {
		return fmt.Errorf("response direction: %w", err)
	}
	for _, m := range []Mode{c.Request, c.Response} {
		if c.Observe && (m.Buffers() || m.Body == Duplex) {
			return fmt.Errorf("body mode %s: not in observability mode", m.Body)
		}
	}
	return nil
}

// Stream is the ext_proc stream of one exchange. Any goroutine may send; one goroutine receives.
type Stream struct {
	config Config
	client extprocv3.ExternalProcessor_ProcessClient
	cancel context.CancelFunc

	sending sync.Mutex // gRPC allows one sender; also makes direction state and wire order agree
	first   bool

	mu         sync.Mutex
	directions [2]directionState
	context    [2]Context
	received   map[string]*structpb.Struct
	over       bool // the EPP ended the stream: nothing is sent any more
	answered   bool // an immediate response came: what follows has no effect
}

// Open starts an exchange. It blocks until the EPP's connection is ready or has failed.
func Open(ctx context.Context, client extprocv3.ExternalProcessorClient, config Config) (*Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	process, err := client.Process(ctx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("open ext_proc stream: %w", err)
	}
	if config.Receive == nil {
		config.Receive = []string{"envoy.lb"}
	}
	s := &Stream{config: config, client: process, cancel: cancel, first: true, received: map[string]*structpb.Struct{}}
	s.directions[Request] = directionState{id: Request, mode: config.Request}
	s.directions[Response] = directionState{id: Response, mode: config.Response}
	return s, nil
}

// Close resets the stream, as Envoy does at the end of a request. It may be called more than once.
func (s *Stream) Close() { s.cancel() }

// HalfClose ends the sending side and leaves the EPP to end the stream.
func (s *Stream) HalfClose() error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.client.CloseSend()
}

// Recv returns the next answer. Errors are a fatal *Violation, io.EOF when the EPP ended the stream, or the gRPC error.
// Tolerated violations go to OnViolation only.
func (s *Stream) Recv() (Answer, error) {
	for {
		message, err := s.client.Recv()
		if err != nil {
			return Answer{}, s.ended(err)
		}
		s.mu.Lock()
		answer, found := s.judge(message)
		s.mu.Unlock()
		if v := s.report(found); v != nil {
			return answer, v
		}
		if answer.Kind != Nothing {
			return answer, nil
		}
	}
}

// ended waits for a send that is under way, which fails, and reports body bytes that are lost because the EPP closed
// the stream without an error.
func (s *Stream) ended(err error) error {
	s.sending.Lock()
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.sending.Unlock()
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("ext_proc stream: %w", err)
	}
	s.mu.Lock()
	var found []*Violation
	for i := range s.directions {
		d := &s.directions[i]
		if d.owesBody() && !s.answered && !s.config.Observe {
			found = append(found, d.tolerated(EndedEarly, "the EPP ended the stream and still owed body or its end"))
		}
	}
	s.mu.Unlock()
	_ = s.report(found) // all of them tolerated
	return io.EOF
}

// report tells every violation and returns the fatal one.
func (s *Stream) report(found []*Violation) error {
	for _, v := range found {
		if s.config.OnViolation != nil {
			s.config.OnViolation(*v)
		}
	}
	for _, v := range found {
		if v.Fatal {
			return v
		}
	}
	return nil
}

// Report tells a violation that was found outside the stream, such as an endpoint that cannot be parsed.
func (s *Stream) Report(v Violation) { _ = s.report([]*Violation{&v}) }

// Apply changes headers as the direction's answer says and returns a fatal *Violation if the answer is rejected.
func (s *Stream) Apply(id Direction, headers *Headers, m *extprocv3.HeaderMutation) error {
	d := directionState{id: id, mode: s.directions[id].mode}
	return s.report(headers.apply(&d, m, s.config.Limits))
}

// Metadata returns the struct received in a namespace so far, nil if there is none. It must not be changed.
func (s *Stream) Metadata(namespace string) *structpb.Struct {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received[namespace]
}

// BodySent reports whether a direction has sent body bytes: from then on Envoy cannot go on without the EPP.
func (s *Stream) BodySent(id Direction) bool {
	return s.peek(id, func(d *directionState) bool { return d.bodySent })
}

// OwesBody reports whether a direction would lose bytes if the stream ended now.
func (s *Stream) OwesBody(id Direction) bool { return s.peek(id, (*directionState).owesBody) }

// InputEnded reports whether the end of the direction's input was sent.
func (s *Stream) InputEnded(id Direction) bool {
	return s.peek(id, func(d *directionState) bool { return d.inputEnded })
}

// Complete reports whether the EPP owes nothing more in a direction.
func (s *Stream) Complete(id Direction) bool { return s.peek(id, (*directionState).complete) }

func (s *Stream) peek(id Direction, ask func(*directionState) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ask(&s.directions[id])
}
