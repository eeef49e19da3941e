package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// dial connects to Signalbox as Envoy does: TLS whose certificate is not checked.
func dial(t *testing.T, port int) *grpc.ClientConn {
	t.Helper()
	return dialWith(t, fmt.Sprintf("127.0.0.1:%d", port),
		credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}))
}

func dialPlain(t *testing.T, port int) *grpc.ClientConn {
	t.Helper()
	return dialWith(t, fmt.Sprintf("127.0.0.1:%d", port), insecure.NewCredentials())
}

func dialWith(t *testing.T, address string, how credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(how),
		// they grow by default, and take in what is not read
		grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// goneAway waits until the server has sent GOAWAY: the client gives up a connection then, though streams go on on it.
func goneAway(t *testing.T, conn *grpc.ClientConn, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if !conn.WaitForStateChange(ctx, connectivity.Ready) {
		t.Fatalf("no GOAWAY within %v", within)
	}
}

// healthOf is what a health service says under a name, or UNKNOWN if it cannot be asked.
func healthOf(conn *grpc.ClientConn, service string) healthpb.HealthCheckResponse_ServingStatus {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		return healthpb.HealthCheckResponse_UNKNOWN
	}
	return answer.GetStatus()
}

// exchange is one ext_proc stream, played by hand.
type exchange struct {
	extprocv3.ExternalProcessor_ProcessClient
	t     *testing.T
	begun bool // protocol_config has been sent
}

func openExchange(t *testing.T, conn *grpc.ClientConn) *exchange {
	t.Helper()
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &exchange{ExternalProcessor_ProcessClient: stream, t: t}
}

// picked is an exchange whose request has its destination.
func picked(t *testing.T, conn *grpc.ClientConn) *exchange {
	t.Helper()
	x := openExchange(t, conn)
	x.begin()
	x.finish()
	return x
}

func (x *exchange) send(m *extprocv3.ProcessingRequest) {
	x.t.Helper()
	if !x.begun {
		x.begun = true
		m.ProtocolConfig = &extprocv3.ProtocolConfiguration{
			RequestBodyMode:  filterv3.ProcessingMode_FULL_DUPLEX_STREAMED,
			ResponseBodyMode: filterv3.ProcessingMode_FULL_DUPLEX_STREAMED,
		}
	}
	if err := x.Send(m); err != nil {
		x.t.Fatal(err)
	}
}

func (x *exchange) receive() *extprocv3.ProcessingResponse {
	x.t.Helper()
	answer, err := x.Recv()
	if err != nil {
		x.t.Fatalf("in place of an answer: %v", err)
	}
	return answer
}

func headers(last bool, pairs ...string) *extprocv3.HttpHeaders {
	all := &corev3.HeaderMap{}
	for i := 0; i < len(pairs); i += 2 {
		all.Headers = append(all.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return &extprocv3.HttpHeaders{Headers: all, EndOfStream: last}
}

// begin sends the head of a chat request.
func (x *exchange) begin() {
	x.t.Helper()
	x.send(&extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: headers(false,
			":method", "POST", ":path", "/v1/chat/completions", ":authority", "a", "content-type", "application/json")},
	})
}

// ask sends the body.
func (x *exchange) ask() {
	x.t.Helper()
	x.send(&extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{
			Body: []byte(chatBody(model, "hello", 4, true)), EndOfStream: true,
		}},
	})
}

// finish sends the body, and expects a destination and the body back.
func (x *exchange) finish() {
	x.t.Helper()
	x.ask()
	if answer := x.receive(); destination(answer) == "" {
		x.t.Fatalf("in place of a pick: %v", answer)
	}
	if answer := x.receive(); answer.GetRequestBody() == nil {
		x.t.Fatalf("in place of the body: %v", answer)
	}
}

func destination(answer *extprocv3.ProcessingResponse) string {
	for _, h := range answer.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		if h.GetHeader().GetKey() == "x-gateway-destination-endpoint" {
			return string(h.GetHeader().GetRawValue())
		}
	}
	return ""
}

// respond plays the model server's answer: its head, and the whole body if it shall end.
func (x *exchange) respond(end bool) {
	x.t.Helper()
	x.send(&extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: headers(false,
			":status", "200", "content-type", "text/event-stream")},
	})
	if answer := x.receive(); answer.GetResponseHeaders() == nil {
		x.t.Fatalf("in place of the response headers: %v", answer)
	}
	if end {
		x.last()
	}
}

func (x *exchange) last() {
	x.t.Helper()
	x.send(&extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{
			Body: []byte("data: [DONE]\n\n"), EndOfStream: true,
		}},
	})
	if answer := x.receive(); answer.GetResponseBody() == nil {
		x.t.Fatalf("in place of the response body: %v", answer)
	}
	x.over()
}

// over half-closes, and expects the stream's proper end.
func (x *exchange) over() {
	x.t.Helper()
	if err := x.CloseSend(); err != nil {
		x.t.Fatal(err)
	}
	if answer, err := x.Recv(); !errors.Is(err, io.EOF) {
		x.t.Fatalf("in place of the end: %v, %v", answer, err)
	}
}

// refused expects an immediate response, gives its status and reason, and ends the stream as Envoy does then.
func (x *exchange) refused() (int, string) {
	x.t.Helper()
	answer := x.receive().GetImmediateResponse()
	if answer == nil {
		x.t.Fatal("not an immediate response")
	}
	if err := x.CloseSend(); err != nil {
		x.t.Fatal(err)
	}
	for _, h := range answer.GetHeaders().GetSetHeaders() {
		if h.GetHeader().GetKey() == "x-llm-d-request-dropped-reason" {
			return int(answer.GetStatus().GetCode()), string(h.GetHeader().GetRawValue())
		}
	}
	return int(answer.GetStatus().GetCode()), ""
}
