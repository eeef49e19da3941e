package app

import (
	"context"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/engine/runtime/supervise"
)

const (
	// A proxy may ask this often whether we live, also on an idle connection: grpc-go's own limit of five minutes makes
	// it close the connection, with every stream on it, at the third question of an Envoy that asks each 30 s.
	keepaliveMinTime = time.Second

	// A proxy whose machine has vanished is noticed after both, and its requests are taken for gone.
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second

	// GOAWAY waits for handshakes that have begun.
	handshakeWithin = 5 * time.Second

	// Bytes that a proxy may send ahead of us: a long prompt then comes in few turns. One request body of the usual
	// size fits the stream's; a stream that stands still leaves the connection to the others.
	streamWindow     = 1 << 20
	connectionWindow = 16 << 20

	// Goroutines that serve one stream after the other, with a stack that has grown already.
	streamWorkers = 64
)

// serverOptions returns the options of every gRPC port. The number of streams on a connection has no limit: Envoy
// resets each stream that it is done with, and a limit would hold requests back until those are cleared away.
func serverOptions(creds credentials.TransportCredentials) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(creds), grpc.ConnectionTimeout(handshakeWithin),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveMinTime,
			PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
	}
}

// guardedOptions are those of a port whose calls do not guard themselves: a panic ends the call alone.
func guardedOptions(creds credentials.TransportCredentials, log *telemetry.Log) []grpc.ServerOption {
	guard := func(method string, call func() error) error {
		err := supervise.Recover(method, call)
		if !supervise.IsPanic(err) {
			return err
		}
		log.Error("a call panicked", zap.Error(supervise.WithStack(err)))
		return status.Error(codes.Internal, err.Error())
	}
	return append(serverOptions(creds),
		grpc.StreamInterceptor(func(s any, stream grpc.ServerStream, of *grpc.StreamServerInfo,
			next grpc.StreamHandler) error {
			return guard(of.FullMethod, func() error { return next(s, stream) })
		}),
		grpc.UnaryInterceptor(func(ctx context.Context, request any, of *grpc.UnaryServerInfo,
			next grpc.UnaryHandler) (answer any, err error) {
			err = guard(of.FullMethod, func() error { answer, err = next(ctx, request); return err })
			return answer, err
		}))
}

// pickerOptions returns the options of the ext_proc port.
func pickerOptions(creds credentials.TransportCredentials, maxBody int64) []grpc.ServerOption {
	// One message can be as large as Envoy's buffer, whatever the body limit is.
	return append(append(serverOptions(creds), wire.ServerOptions()...), grpc.MaxRecvMsgSize(int(maxBody)+1<<20),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connectionWindow),
		grpc.NumStreamWorkers(streamWorkers))
}
