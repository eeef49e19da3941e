package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	ask    = extprocv3.ProcessingRequest
	answer = extprocv3.ProcessingResponse
)

// fakeEPP answers correctly: it holds the request headers until the first body chunk, names the destination and echoes
// both directions. A fault is called before each step and may send something else; true means that the step is done.
type fakeEPP struct {
	extprocv3.UnimplementedExternalProcessorServer
	t           *testing.T
	destination string
	fault       func(step string, stream *eppStream) (bool, error)

	mu      sync.Mutex
	asks    []*ask
	ended   int
	address string
	server  *grpc.Server
}

type eppStream struct {
	extprocv3.ExternalProcessor_ProcessServer
	epp    *fakeEPP
	headed bool
	busy   bool // inside a fault that gives the right answer
}

func startEPP(t *testing.T, destination string) *fakeEPP {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &fakeEPP{t: t, destination: destination, address: listener.Addr().String(),
		server: grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))}
	extprocv3.RegisterExternalProcessorServer(e.server, e)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = e.server.Serve(listener)
	}()
	t.Cleanup(func() {
		e.server.Stop()
		<-served
	})
	return e
}

func (e *fakeEPP) Process(raw extprocv3.ExternalProcessor_ProcessServer) error {
	defer func() {
		e.mu.Lock()
		e.ended++
		e.mu.Unlock()
	}()
	s := &eppStream{ExternalProcessor_ProcessServer: raw, epp: e}
	for {
		m, err := raw.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		e.mu.Lock()
		e.asks = append(e.asks, m)
		e.mu.Unlock()
		if err := s.answer(m); err != nil {
			if errors.Is(err, errDone) {
				return nil
			}
			return err
		}
	}
}

var errDone = errors.New("the script ends the stream")

func (s *eppStream) answer(m *ask) error {
	step := stepOf(m)
	if s.epp.fault != nil {
		if done, err := s.epp.fault(step, s); done || err != nil {
			return err
		}
	}
	switch r := m.Request.(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		if r.RequestHeaders.EndOfStream {
			return s.pick()
		}
		return nil
	case *extprocv3.ProcessingRequest_RequestBody:
		if err := s.pick(); err != nil {
			return err
		}
		return s.echo(exchange.Request, r.RequestBody)
	case *extprocv3.ProcessingRequest_RequestTrailers:
		if err := s.pick(); err != nil {
			return err
		}
		return s.Send(trailersAnswer(exchange.Request, nil))
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		return s.Send(headersAnswer(exchange.Response, setHeaders("x-seen", "yes")))
	case *extprocv3.ProcessingRequest_ResponseBody:
		return s.echo(exchange.Response, r.ResponseBody)
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		return s.Send(trailersAnswer(exchange.Response, setHeaders("x-trailer-seen", "yes")))
	}
	return errors.New("unknown message")
}

func (s *eppStream) pick() error {
	if s.headed {
		return nil
	}
	s.headed = true
	m := headersAnswer(exchange.Request, setHeaders("x-gateway-destination-endpoint", s.epp.destination))
	m.DynamicMetadata = metadata("envoy.lb", "x-gateway-destination-endpoint", s.epp.destination)
	return s.Send(m)
}

func (s *eppStream) echo(direction exchange.Direction, b *extprocv3.HttpBody) error {
	rest := b.Body
	for len(rest) > 62000 {
		if err := s.Send(bodyAnswer(direction, rest[:62000], false)); err != nil {
			return err
		}
		rest = rest[62000:]
	}
	return s.Send(bodyAnswer(direction, rest, b.EndOfStream))
}

func stepOf(m *ask) string {
	switch r := m.Request.(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return "qH"
	case *extprocv3.ProcessingRequest_RequestBody:
		if r.RequestBody.EndOfStream {
			return "qE"
		}
		return "qB"
	case *extprocv3.ProcessingRequest_RequestTrailers:
		return "qT"
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		return "rH"
	case *extprocv3.ProcessingRequest_ResponseBody:
		if r.ResponseBody.EndOfStream {
			return "rE"
		}
		return "rB"
	}
	return "rT"
}

func setHeaders(pairs ...string) *extprocv3.HeaderMutation {
	m := &extprocv3.HeaderMutation{}
	for i := 0; i < len(pairs); i += 2 {
		m.SetHeaders = append(m.SetHeaders, &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: pairs[i],
			RawValue: []byte(pairs[i+1])}})
	}
	return m
}

func metadata(namespace, key, value string) *structpb.Struct {
	inner := &structpb.Struct{Fields: map[string]*structpb.Value{key: structpb.NewStringValue(value)}}
	return &structpb.Struct{Fields: map[string]*structpb.Value{namespace: structpb.NewStructValue(inner)}}
}

func headersAnswer(direction exchange.Direction, m *extprocv3.HeaderMutation) *answer {
	h := &extprocv3.HeadersResponse{Response: &extprocv3.CommonResponse{HeaderMutation: m}}
	if direction == exchange.Request {
		return &answer{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: h}}
	}
	return &answer{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: h}}
}

func bodyAnswer(direction exchange.Direction, chunk []byte, end bool) *answer {
	streamed := &extprocv3.StreamedBodyResponse{Body: chunk, EndOfStream: end}
	return commonBody(direction,
		&extprocv3.CommonResponse{
			BodyMutation: &extprocv3.BodyMutation{
				Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: streamed},
			},
		})
}

func commonBody(direction exchange.Direction, c *extprocv3.CommonResponse) *answer {
	b := &extprocv3.BodyResponse{Response: c}
	if direction == exchange.Request {
		return &answer{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: b}}
	}
	return &answer{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: b}}
}

func trailersAnswer(direction exchange.Direction, m *extprocv3.HeaderMutation) *answer {
	t := &extprocv3.TrailersResponse{HeaderMutation: m}
	if direction == exchange.Request {
		return &answer{Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: t}}
	}
	return &answer{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: t}}
}
