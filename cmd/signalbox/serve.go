package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
)

// healthServices are the names under which health is asked: all of them, each probe's, and ext_proc's own.
var healthServices = []string{"", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"}

// server is a running Signalbox.
type server struct {
	opts   *options
	log    *telemetry.Log
	tree   *tree
	grpc   *grpc.Server // ext_proc
	checks *grpc.Server // health alone
	health *health.Server
	http   *http.Server
	failed chan error
	addrs  map[string]netip.AddrPort
}

// serve runs until ctx is done, then drains.
func serve(ctx context.Context, o *options) error {
	signal.Ignore(syscall.SIGPIPE) // whoever reads our log may leave: requests go on
	roomyGC()
	s, err := start(ctx, o)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		s.log.Info("shutting down", zap.Duration("drain_timeout", o.drainTimeout))
		return s.stop(o.drainDelay)
	case err = <-s.failed: // nothing is accepted any more, so nobody is waited for
		return errors.Join(err, s.stop(0))
	}
}

// start brings everything up, or nothing.
func start(ctx context.Context, o *options) (_ *server, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	log, err := o.log.New(os.Stderr)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = log.Close()
		}
	}()
	cfg, err := o.load()
	if err != nil {
		return nil, err
	}
	for _, w := range cfg.Warnings {
		log.Warn("configuration", zap.String("warning", w.String()))
	}
	s := &server{opts: o, log: log, failed: make(chan error, 3), addrs: map[string]netip.AddrPort{}}
	listeners, err := s.listen()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
		}
	}()
	creds, err := s.credentials()
	if err != nil {
		return nil, err
	}
	if s.tree, err = buildTree(ctx, o, cfg, log); err != nil {
		return nil, err
	}
	s.tree.awaitEndpoints(ctx)
	s.serveAll(listeners, creds)
	log.Info("serving", zap.Stringer("ext_proc", s.addrs["grpc-port"]), zap.Stringer("health", s.addrs["grpc-health-port"]),
		zap.Stringer("http", s.addrs["metrics-port"]), zap.Bool("tls", o.secure), zap.Int("loops", o.shards))
	return s, nil
}

func (s *server) listen() (map[string]net.Listener, error) {
	all := map[string]net.Listener{}
	var problems []error
	for _, p := range []struct {
		flag string
		port int
	}{{"grpc-port", s.opts.grpcPort}, {"grpc-health-port", s.opts.healthPort}, {"metrics-port", s.opts.metricsPort}} {
		l, err := net.Listen("tcp", net.JoinHostPort(s.opts.bind, strconv.Itoa(p.port)))
		if err != nil {
			problems = append(problems, fmt.Errorf("--%s: %w", p.flag, err))
			continue
		}
		all[p.flag] = l
		s.addrs[p.flag] = netip.MustParseAddrPort(l.Addr().String())
	}
	if len(problems) > 0 {
		for _, l := range all {
			_ = l.Close()
		}
		return nil, errors.Join(problems...)
	}
	return all, nil
}

func (s *server) serveAll(listeners map[string]net.Listener, creds credentials.TransportCredentials) {
	s.health = health.NewServer()
	for _, name := range healthServices {
		s.health.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
	// One message can be as large as Envoy's buffer, whatever the body limit is.
	options := append(wire.ServerOptions(), grpc.Creds(creds), grpc.MaxRecvMsgSize(int(s.opts.maxBody)+1<<20),
		grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(16<<20), grpc.NumStreamWorkers(64),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}))
	s.grpc = grpc.NewServer(options...)
	wire.Register(s.grpc, s.tree.streams)
	if s.opts.healthChecking {
		healthpb.RegisterHealthServer(s.grpc, s.health)
	}
	s.checks = grpc.NewServer()
	healthpb.RegisterHealthServer(s.checks, s.health)
	s.http = &http.Server{Handler: s.tree.admin, ReadHeaderTimeout: 10 * time.Second}
	run := func(what string, f func() error) {
		go func() {
			if err := f(); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, grpc.ErrServerStopped) {
				s.failed <- fmt.Errorf("%s: %w", what, err)
			}
		}()
	}
	run("ext_proc", func() error { return s.grpc.Serve(listeners["grpc-port"]) })
	run("health", func() error { return s.checks.Serve(listeners["grpc-health-port"]) })
	run("http", func() error { return s.http.Serve(listeners["metrics-port"]) })
}

// stop is the one order of shutdown: say so, let Envoy notice, let streams end, cut the rest, then end the actors.
func (s *server) stop(delay time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.drainTimeout)
	defer cancel()
	s.health.Shutdown()
	s.tree.draining.Store(true)
	pause(ctx, delay)
	graceful := make(chan struct{})
	go func() {
		s.grpc.GracefulStop() // GOAWAY, then waits for the streams
		close(graceful)
	}()
	select {
	case <-graceful:
	case <-ctx.Done():
		s.cut(graceful)
	}
	s.checks.Stop()
	last, cancelLast := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancelLast()
	err := errors.Join(s.tree.close(last), s.http.Shutdown(last))
	s.log.Info("stopped")
	_ = s.log.Close() // a reader that is gone is no fault of the shutdown
	return err
}

// cut ends what is left at the deadline: what waits is refused, and gets a moment to hear of it; the rest is cut.
func (s *server) cut(graceful <-chan struct{}) {
	s.tree.streams.Drain()
	moment := time.NewTimer(250 * time.Millisecond)
	defer moment.Stop()
	select {
	case <-graceful:
		return
	case <-moment.C:
	}
	s.log.Warn("streams cut", zap.Int("streams", s.tree.streams.Open()))
	s.grpc.Stop()
	<-graceful
}

// pause keeps accepting while Envoy's health checks notice: an idle server may be asked any moment.
func pause(ctx context.Context, delay time.Duration) {
	d := time.NewTimer(delay)
	defer d.Stop()
	select {
	case <-d.C:
	case <-ctx.Done():
	}
}

// credentials are those of the ext_proc port: the given certificate, a self-signed one, or none.
func (s *server) credentials() (credentials.TransportCredentials, error) {
	if !s.opts.secure {
		return insecure.NewCredentials(), nil
	}
	cert, err := s.certificate()
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
	}), nil
}

func (s *server) certificate() (tls.Certificate, error) {
	if s.opts.certPath == "" {
		return selfSigned(time.Now())
	}
	c, err := tls.LoadX509KeyPair(filepath.Join(s.opts.certPath, "tls.crt"), filepath.Join(s.opts.certPath, "tls.key"))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("--cert-path: %w", err)
	}
	return c, nil
}

// selfSigned makes a certificate that proves nothing: it is for proxies that do not verify the endpoint picker.
func selfSigned(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("self-signed certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("self-signed certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "signalbox", Organization: []string{"self-signed"}},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0), DNSNames: []string{"signalbox", "localhost"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("self-signed certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
