package app

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/signalbox-epp/signalbox/adapters/telemetry"
)

// Frame types and settings of RFC 9113, as far as they occur.
const (
	frameSettings     = 4
	framePing         = 6
	frameGoAway       = 7
	frameWindowUpdate = 8

	maxStreams    = 3 // of settings
	initialWindow = 4
)

// rawConn is the client's side of an HTTP/2 connection without streams.
type rawConn struct {
	net.Conn
	in *bufio.Reader
}

func dialRaw(t *testing.T, at string) rawConn {
	t.Helper()
	nc, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	c := rawConn{nc, bufio.NewReader(nc)}
	if _, err := io.WriteString(nc, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	c.send(t, frameSettings, nil)
	return c
}

func (c rawConn) send(t *testing.T, kind byte, payload []byte) {
	t.Helper()
	frame := append([]byte{0, 0, byte(len(payload)), kind, 0, 0, 0, 0, 0}, payload...)
	if _, err := c.Write(frame); err != nil {
		t.Fatal(err)
	}
}

// next reads a frame: its type, its flags and its payload.
func (c rawConn) next(t *testing.T) (kind, flags byte, payload []byte) {
	t.Helper()
	head := make([]byte, 9)
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c.in, head); err != nil {
		t.Fatal(err)
	}
	payload = make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	if _, err := io.ReadFull(c.in, payload); err != nil {
		t.Fatal(err)
	}
	return head[3], head[4], payload
}

// freePort is one on which nothing listened a moment ago, for flags whose 0 means none.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// A proxy may ask every second or so whether we live, on a connection without streams, on every port: grpc-go by itself
// closes it at the third question.
func TestKeepalivesOfAProxyPass(t *testing.T) {
	s := running(t, "--secure-serving=false", "--xds-port", freePort(t))
	var all sync.WaitGroup
	for _, flag := range []string{"grpc-port", "grpc-health-port", "xds-port"} {
		c := dialRaw(t, s.at(flag))
		all.Go(func() {
			apart := time.NewTicker(keepaliveMinTime + 50*time.Millisecond)
			defer apart.Stop()
			for n := range byte(5) {
				c.send(t, framePing, []byte{n, 1, 2, 3, 4, 5, 6, 7})
				for {
					kind, flags, payload := c.next(t)
					if kind == frameGoAway {
						t.Errorf("%s: the connection is closed at question %d: %q", flag, n+1, payload[8:])
						return
					}
					if kind == framePing && flags == 1 && payload[0] == n {
						break
					}
				}
				<-apart.C
			}
		})
	}
	all.Wait()
}

// bombs is a health service whose calls panic.
type bombs struct {
	healthpb.UnimplementedHealthServer
}

func (bombs) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	panic("the test")
}

func (bombs) Watch(*healthpb.HealthCheckRequest, healthpb.Health_WatchServer) error {
	panic("the test")
}

// A call of the ports for health and xDS that panics ends alone, with an error.
func TestPanicEndsOneCall(t *testing.T) {
	core, logged := observer.New(zapcore.InfoLevel)
	g := grpc.NewServer(guardedOptions(insecure.NewCredentials(), &telemetry.Log{Logger: zap.New(core)})...)
	healthpb.RegisterHealthServer(g, bombs{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = g.Serve(l) }()
	defer g.Stop()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := healthpb.NewHealthClient(conn)
	if _, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Internal {
		t.Errorf("Check: got %v, want an internal error", err)
	}
	w, err := c.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = w.Recv()
	}
	if status.Code(err) != codes.Internal || logged.Len() != 2 {
		t.Errorf("Watch: got %v, want an internal error; %d lines of log, want 2", err, logged.Len())
	}
}

// A prompt comes in few turns: the windows that are given at once are wide, and streams have no limit.
func TestWindowsAndStreamsOfTheConnection(t *testing.T) {
	s := running(t, "--secure-serving=false")
	c := dialRaw(t, s.at("grpc-port"))
	settings, window := map[uint16]uint32{}, uint32(65535)
	c.send(t, framePing, make([]byte, 8)) // what follows the answer is not said at once
	for kind, flags, payload := c.next(t); kind != framePing || flags != 1; kind, flags, payload = c.next(t) {
		switch kind {
		case frameSettings:
			for ; len(payload) > 0; payload = payload[6:] {
				settings[binary.BigEndian.Uint16(payload)] = binary.BigEndian.Uint32(payload[2:])
			}
		case frameWindowUpdate:
			window += binary.BigEndian.Uint32(payload)
		}
	}
	if got := settings[initialWindow]; got != 1<<20 {
		t.Errorf("a stream's window is %d bytes, want 1 MiB", got)
	}
	if window != 16<<20 {
		t.Errorf("the connection's window is %d bytes, want 16 MiB", window)
	}
	if got, said := settings[maxStreams]; said && got < 1<<20 {
		t.Errorf("%d streams at once at most, want no limit", got)
	}
}

// 1 500 streams live on one connection, which is more than Envoy's own default of 1 024.
func TestManyStreamsOnOneConnection(t *testing.T) {
	s := running(t, "--secure-serving=false")
	client := healthClient(t, s.at("grpc-port"), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	const streams = 1500
	heard := make(chan error, streams)
	for n := range streams {
		w, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatalf("stream %d: %v", n+1, err)
		}
		go func() {
			_, err := w.Recv()
			heard <- err
		}()
	}
	for range streams {
		if err := <-heard; err != nil {
			t.Fatal(err)
		}
	}
}
