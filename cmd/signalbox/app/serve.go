package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/engine/runtime/supervise"
)

// server is a running Signalbox: a tree, and the ports on which it answers.
type server struct {
	opts    *options
	log     *telemetry.Log
	tree    *tree
	grpc    *grpc.Server // ext_proc
	checks  *grpc.Server // health alone
	xds     *grpc.Server // nil without --xds-port
	health  *readiness
	secrets *portSecrets
	http    *http.Server
	failed  chan error
	addrs   map[string][]netip.AddrPort // by flag, in the order of --bind
}

// serve runs until ctx is done, then drains.
func serve(ctx context.Context, o *options) error {
	s, err := startBounded(ctx, o)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		s.log.Info("shutting down; a second signal ends at once", zap.Duration("drain_delay", o.delay()),
			zap.Duration("drain_timeout", o.drainTimeout))
		return s.stop(o.delay())
	case err = <-s.failed: // nothing is accepted any more, so there is nothing to wait for
		return errors.Join(err, s.stop(0))
	}
}

// startBounded starts the server of a process that does nothing else, and bounds the memory of the process: garbage
// may gather up to leastRoom or gcRoom, memory that a burst took is given back until ctx is done, and the limit of the
// cgroup holds.
func startBounded(ctx context.Context, o *options) (*server, error) {
	signal.Ignore(syscall.SIGPIPE) // a reader of our output may leave: requests go on
	roomyGC(ctx)
	go giveBack(ctx)
	s, err := start(ctx, o)
	if err != nil {
		return nil, err
	}
	go supervise.KeepRunning(ctx, "the watch of model servers", s.tree.watchReach, func(err error) {
		s.log.Error("the watch of model servers panicked", zap.Error(supervise.WithStack(err)))
	})
	for _, w := range append(o.limitOptions.warnings(), o.poolOptions.warnings()...) {
		s.log.Warn("flags", zap.String("warning", w))
	}
	limitMemory(s.log.Logger, memlimit.FromCgroup, o.maxHeld)
	return s, nil
}

// start brings everything up. If it fails, nothing stays up.
func start(ctx context.Context, o *options) (_ *server, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	log, err := o.log.New(cmp.Or[io.Writer](o.hooks.log, os.Stderr))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = log.Close()
		}
	}()
	cfg, err := o.load(ctx)
	if err != nil {
		return nil, err
	}
	cfg.warn(log)
	s := &server{opts: o, log: log, failed: make(chan error, 1), addrs: map[string][]netip.AddrPort{}}
	listeners, portsErr := s.listen()
	defer func() {
		if err != nil {
			closeAll(listeners)
		}
	}()
	var secretsErr error
	s.secrets, secretsErr = o.openSecrets(log)
	defer func() {
		if err != nil && s.secrets != nil {
			s.secrets.close()
		}
	}()
	source, sourceErr := openEndpoints(o, cfg, log)
	if err = errors.Join(portsErr, secretsErr, sourceErr); err != nil { // all of it in one go
		return nil, err
	}
	if s.tree, err = buildTree(ctx, o, cfg, log, s.addrs["grpc-port"][0]); err != nil {
		return nil, err
	}
	s.tree.follow(ctx, source)
	if err = s.tree.configuration.follow(); err != nil {
		return nil, errors.Join(err, s.tree.close(ctx))
	}
	s.tree.registry.MustRegister(s.secrets.metrics()...)
	if all := listeners["xds-port"]; all != nil {
		s.xds = s.serveXds(all)
	}
	s.tree.awaitEndpoints(ctx)
	s.serveAll(listeners)
	s.logServing(cfg.Discovery.Path)
	return s, nil
}

func (s *server) logServing(endpointsFile string) {
	fields := append(s.opts.origin(endpointsFile), zap.Stringers("ext_proc", s.addrs["grpc-port"]),
		zap.Stringers("health", s.addrs["grpc-health-port"]),
		zap.Stringers("http", s.addrs["metrics-port"]), zap.Bool("tls", s.opts.tls.secure),
		zap.Int("loops", s.opts.shards),
		zap.Int("endpoints", len(s.tree.picker.Pool().Snapshot().Endpoints)))
	s.log.Info("serving", fields...)
}

// listen opens every port on every address, or says which cannot be had.
func (s *server) listen() (map[string][]net.Listener, error) {
	bind, err := s.opts.addresses()
	if err != nil {
		return nil, err
	}
	network := "tcp" // :: takes IPv4 too, unless that has an address of its own
	if slices.ContainsFunc(bind, netip.Addr.Is4) {
		network = "tcp6"
	}
	all := map[string][]net.Listener{}
	var problems []error
	for _, p := range s.opts.ports() {
		for _, a := range bind {
			family := network
			if a.Is4() {
				family = "tcp4"
			}
			l, err := net.Listen(family, net.JoinHostPort(a.String(), strconv.Itoa(p.port)))
			if err != nil {
				problems = append(problems, fmt.Errorf("--%s: %w%s", p.flag, err, remedy(err, p.flag)))
				continue
			}
			all[p.flag] = append(all[p.flag], l)
			s.addrs[p.flag] = append(s.addrs[p.flag], netip.MustParseAddrPort(l.Addr().String()))
		}
	}
	if len(problems) > 0 {
		closeAll(all)
		return nil, errors.Join(problems...)
	}
	return all, nil
}

func closeAll(all map[string][]net.Listener) {
	for _, listeners := range all {
		for _, l := range listeners {
			_ = l.Close()
		}
	}
}

func (s *server) serveAll(listeners map[string][]net.Listener) {
	s.health = newReadiness(s.tree.ready, s.tree.known != nil)
	s.tree.health = s.health
	s.grpc = grpc.NewServer(pickerOptions(s.tree.peers.Credentials(s.secrets.credentials(pickerPort)),
		s.opts.maxBody)...)
	wire.Register(s.grpc, s.tree.streams)
	accesslogv3.RegisterAccessLogServiceServer(s.grpc, s.tree.logs)
	if s.opts.healthChecking {
		healthpb.RegisterHealthServer(s.grpc, s.health)
	}
	s.checks = grpc.NewServer(guardedOptions(insecure.NewCredentials(), s.log)...) // probes of Kubernetes know no TLS
	healthpb.RegisterHealthServer(s.checks, s.health)
	s.http = &http.Server{
		Handler: s.guard(s.tree.admin), ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: httpPatience, WriteTimeout: httpPatience, IdleTimeout: httpPatience,
		ErrorLog: zap.NewStdLog(s.log.Logger), // handshakes that fail
	}
	serveHTTP := s.http.Serve
	if p := s.secrets.ports[metricsPort]; p != nil {
		s.http.TLSConfig = p.Server()
		serveHTTP = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
	}
	s.run("ext_proc", listeners["grpc-port"], s.grpc.Serve)
	s.run("health", listeners["grpc-health-port"], s.checks.Serve)
	for i, l := range listeners["metrics-port"] {
		listeners["metrics-port"][i] = &bounded{Listener: l}
	}
	s.run("http", listeners["metrics-port"], serveHTTP)
}

// run serves each listener until it is closed. The first failure ends the server.
func (s *server) run(what string, listeners []net.Listener, serve func(net.Listener) error) {
	for _, l := range listeners {
		go func() {
			err := serve(l)
			if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
				return
			}
			select {
			case s.failed <- fmt.Errorf("%s: %w", what, err):
			default: // one is enough
			}
		}()
	}
}

const (
	// A client that never answers GOAWAY keeps its connection; without a stream on it no request waits for that.
	closeIdleWithin = 500 * time.Millisecond
	// For those that are refused at the deadline to hear of it.
	cutNotice = 250 * time.Millisecond
	// For handlers to return once their connections are closed.
	cutWithin = 2 * time.Second
)

// stop shuts down, in this order: it reports that it shuts down, gives up the lease, gives Envoy the delay to notice,
// refuses what waits for room, lets streams end, cuts the rest, then ends the actors.
func (s *server) stop(delay time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.drainTimeout)
	defer cancel()
	s.health.Shutdown()
	s.tree.draining.Store(true)
	s.tree.giveUpLease()
	sleep(ctx, delay) // Envoy's health checks notice meanwhile: an idle server may be asked any moment
	s.tree.picker.CloseLine()
	s.drain(ctx)
	within(closeIdleWithin, inBackground(s.checks.Stop))
	if s.xds != nil {
		within(closeIdleWithin, inBackground(s.xds.Stop)) // its streams last as long as their proxies
	}
	last, cancelLast := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancelLast()
	err := errors.Join(s.tree.close(last), s.closeHTTP())
	s.secrets.close()
	s.log.Info("stopped")
	_ = s.log.Close() // that the reader of the log is gone does not make the shutdown fail
	return err
}

// drain sends GOAWAY and waits for the streams. At the deadline, requests that still wait are refused, and the other
// streams are cut.
func (s *server) drain(ctx context.Context) {
	graceful := inBackground(s.grpc.GracefulStop)
	patience := closeIdleWithin
	ended := s.awaitRequests(ctx, graceful)
	s.tree.logs.Close() // its streams last as long as their proxies
	if !ended {
		patience = cutWithin
		s.tree.streams.Drain()
		within(cutNotice, graceful)
		if open := s.tree.streams.Open(); open > 0 {
			s.log.Warn("streams cut", zap.Int("streams", open))
		}
	}
	_ = inBackground(s.grpc.Stop) // graceful ends with it
	if !within(patience, graceful) && s.tree.streams.Open() > 0 {
		s.log.Error("streams did not end", zap.Int("streams", s.tree.streams.Open()))
	}
}

// awaitRequests waits until the last stream has ended and the access log has reported the end of the last response that
// bypasses us. It returns false if ctx is done before and a stream is still open. It does not wait for connections
// without a stream.
func (s *server) awaitRequests(ctx context.Context, graceful <-chan struct{}) bool {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for lastUse := time.Now(); time.Since(lastUse) < closeIdleWithin; {
		select {
		case <-graceful:
			return true
		case <-ctx.Done():
			return s.tree.streams.Open() == 0
		case <-look.C:
		}
		if s.tree.streams.Open() > 0 || s.tree.picker.Outlived() > 0 {
			lastUse = time.Now()
		}
	}
	return true
}

// closeHTTP lets answers in flight end. A connection on which nothing was ever asked is closed, and is no error.
func (s *server) closeHTTP() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeIdleWithin)
	defer cancel()
	if s.http.Shutdown(ctx) == nil {
		return nil
	}
	return s.http.Close()
}

func inBackground(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		f()
		close(done)
	}()
	return done
}

// within reports whether done is closed in time.
func within(limit time.Duration, done <-chan struct{}) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// sleep reports whether the time passed before ctx was done.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// remedy returns what to do about a port that cannot be opened.
func remedy(err error, flag string) string {
	if errors.Is(err, syscall.EADDRINUSE) {
		return "; another process has it: end that, or choose another port with --" + flag
	}
	return ""
}
