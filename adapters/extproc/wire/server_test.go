package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// echoServer answers headers and trailers without a change. It echoes response bodies by reference and request bodies
// from one buffer.
type echoServer struct{}

func (echoServer) Process(s Stream) error {
	var e exchange
	defer e.release()
	for {
		if err := s.Recv(&e.req); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := e.answer(s); err != nil {
			return err
		}
	}
}

type exchange struct {
	req  Request
	out  Response
	body Body
	echo Echo
}

func (e *exchange) release() {
	e.req.Release()
	e.body.Release()
	e.echo.Discard()
}

func (e *exchange) answer(s Stream) error {
	direction := e.req.Kind.Direction()
	switch e.req.Kind {
	case None:
		return nil
	case RequestHeaders, ResponseHeaders:
		e.out.SetEmptyHeaders(direction)
		return s.Send(&e.out)
	case RequestTrailers, ResponseTrailers:
		e.out.SetEmptyTrailers(direction)
		return s.Send(&e.out)
	case ResponseBody:
		e.echo.StartRequest(&e.req)
	case RequestBody:
		e.body.Append(&e.req)
		if !e.req.EndOfStream {
			return nil
		}
		e.echo.StartBody(direction, &e.body, true)
	}
	for e.echo.Next(&e.out) {
		if err := s.Send(&e.out); err != nil {
			return err
		}
	}
	return nil
}

// serve starts a server on a loopback port and gives a connection to it.
func serve(t testing.TB, register func(*grpc.Server), options ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(append(options, grpc.MaxRecvMsgSize(32<<20))...)
	register(s)
	var done sync.WaitGroup
	done.Go(func() {
		// that if it was stopped before it began
		if err := s.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() { s.Stop(); done.Wait() })
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func ours(s *grpc.Server) { Register(s, echoServer{}) }

func openStream(t testing.TB, conn *grpc.ClientConn) extprocv3.ExternalProcessor_ProcessClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func send(t testing.TB, stream extprocv3.ExternalProcessor_ProcessClient, m *extprocv3.ProcessingRequest) {
	t.Helper()
	if err := stream.Send(m); err != nil {
		t.Fatal(err)
	}
}

func receive(t testing.TB, stream extprocv3.ExternalProcessor_ProcessClient) *extprocv3.ProcessingResponse {
	t.Helper()
	m, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestServerEchoes(t *testing.T) {
	conn := serve(t, ours, ServerOptions()...)
	for _, direction := range []Direction{RequestDirection, ResponseDirection} {
		for _, size := range []int{0, 1, 61999, 62000, 62001, 1 << 20} {
			t.Run(fmt.Sprintf("%v direction, %d bytes", direction, size), func(t *testing.T) {
				stream, body := openStream(t, conn), pattern(size)
				send(t, stream, bodyMessage(direction, body, true))
				var got []byte
				for end := false; !end; {
					c := chunk(t, direction, receive(t, stream))
					if len(c.GetBody()) > ChunkBytes {
						t.Fatalf("a chunk has %d bytes, limit %d", len(c.GetBody()), ChunkBytes)
					}
					got, end = append(got, c.GetBody()...), c.GetEndOfStream()
				}
				if !bytes.Equal(got, body) {
					t.Errorf("got %d bytes back, not the %d sent", len(got), size)
				}
				if err := stream.CloseSend(); err != nil {
					t.Fatal(err)
				}
				if m, err := stream.Recv(); !errors.Is(err, io.EOF) {
					t.Errorf("after the half-close: message %v, error %v; want io.EOF", m, err)
				}
			})
		}
	}
}

// Many streams at once exchange whole transactions while the buffers go round in the pool;
// some are dropped in the middle.
func TestServerManyStreams(t *testing.T) {
	conn := serve(t, ours, ServerOptions()...)
	golden := goldenRequests(t)
	var done sync.WaitGroup
	for i := range 16 {
		done.Go(func() {
			for round := range 10 {
				if err := transact(conn, golden, pattern(1000*i+9000*round+1), (i+round)%4 == 0); err != nil {
					t.Errorf("stream %d, round %d: %v", i, round, err)
				}
			}
		})
	}
	done.Wait()
}

func transact(conn *grpc.ClientConn, golden map[string]*extprocv3.ProcessingRequest, body []byte, drop bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
	if err != nil {
		return err
	}
	messages := []*extprocv3.ProcessingRequest{golden["request headers"], bodyMessage(RequestDirection, body, true),
		golden["response headers"]}
	for part := range slices.Chunk(body, 20000) {
		messages = append(messages, bodyMessage(ResponseDirection, part, false))
	}
	for _, m := range append(messages, bodyMessage(ResponseDirection, nil, true)) {
		if err := stream.Send(m); err != nil {
			return err
		}
		if drop {
			return nil
		}
	}
	var got [2][]byte
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		q := m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
		r := m.GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse()
		got[0], got[1] = append(got[0], q.GetBody()...), append(got[1], r.GetBody()...)
		if r.GetEndOfStream() {
			break
		}
	}
	if !bytes.Equal(got[0], body) || !bytes.Equal(got[1], body) {
		return fmt.Errorf("%d bytes sent, %d and %d came back, or others", len(body), len(got[0]), len(got[1]))
	}
	return nil
}

func TestServerHealth(t *testing.T) {
	conn := serve(t, func(s *grpc.Server) {
		ours(s)
		healthpb.RegisterHealthServer(s, health.NewServer())
	}, ServerOptions()...)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	got, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("Check: %v, %v; want SERVING", got, err)
	}
}

// patient ends when its stream's context does, as if that were no error.
type patient struct{}

func (patient) Process(s Stream) error {
	<-s.Context().Done()
	return nil
}

// Whose deadline has passed is told so, and sees no clean end if we are faster than its own timer.
func TestEndOfAStreamHasTheStatusOfItsContext(t *testing.T) {
	ended := make(chan codes.Code, 1)
	watch := func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		err := handler(srv, ss)
		ended <- status.Code(err)
		return err
	}
	conn := serve(t, func(s *grpc.Server) { Register(s, patient{}) },
		append(ServerOptions(), grpc.StreamInterceptor(watch))...)
	ctx, leave := context.WithTimeout(t.Context(), time.Second)
	defer leave()
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the client has %v, want the deadline", err)
	}
	if got := <-ended; got == codes.OK {
		t.Error("a clean end")
	}
}
