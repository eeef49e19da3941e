// Package proxy is a small HTTP reverse proxy that asks an EPP over ext_proc which endpoint serves each request, and is
// as strict about the answers as Envoy is.
//
// It owns the way of one HTTP request: to the EPP, to the endpoint the EPP named or the next of its list, and back
// past the EPP to the client. Every answer that breaks a rule is counted and reported.
//
// It never picks by itself: without an EPP it uses a random fallback endpoint, and only where fail-open allows it. It
// does no health checks, no routing by path, and no upgrades.
//
// One deliberate difference from Envoy: where the EPP ends its stream while body bytes are with it, Envoy lets the
// request hang without an end; this proxy replies with the error status, or resets the response.
package proxy

import (
	"errors"
	"net/http"
	"sync/atomic"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// Proxy is an http.Handler. It is safe for concurrent use.
type Proxy struct {
	config     Config
	directions exchange.Config
	conn       *grpc.ClientConn
	client     extprocv3.ExternalProcessorClient
	counters   counters
	owned      *http.Transport // made here, closed here
}

// New makes a proxy. The EPP need not be up.
func New(config Config) (*Proxy, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	conn, err := connect(&config)
	if err != nil {
		return nil, err
	}
	p := &Proxy{config: config, conn: conn, client: extprocv3.NewExternalProcessorClient(conn)}
	if config.Transport == nil {
		p.owned = defaultTransport()
		p.config.Transport = p.owned
	}
	p.directions = exchange.Config{
		Request:     config.Request,
		Response:    config.Response,
		Limits:      config.Limits,
		OnViolation: p.onViolation,
	}
	return p, nil
}

// Close drops the connections. Requests that are running fail.
func (p *Proxy) Close() error {
	if p.owned != nil {
		p.owned.CloseIdleConnections()
	}
	return p.conn.Close()
}

// Stats returns the counts so far.
func (p *Proxy) Stats() Stats { return p.counters.snapshot() }

func (p *Proxy) onViolation(v exchange.Violation) {
	p.counters.violations.Add(1)
	p.config.OnViolation(v)
}

// ServeHTTP proxies one request. It panics with http.ErrAbortHandler where the client's connection must be reset.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.counters.requests.Add(1)
	p.counters.active.Add(1)
	defer p.counters.active.Add(-1)
	t := newTransaction(p, w, r)
	defer t.close()
	if err := t.run(); err != nil {
		t.refuse(err)
	}
}

// refuse answers a request that cannot go on: by a reply while nothing has been written, else by a reset.
func (t *transaction) refuse(err error) {
	var reply *localReply
	if t.wrote || t.r.Context().Err() != nil || !errors.As(err, &reply) {
		panic(http.ErrAbortHandler)
	}
	reply.write(t.w, t.r)
}

// Stats are counts since the proxy was made.
type Stats struct {
	Requests   int64 // HTTP requests taken
	Streams    int64 // ext_proc streams opened
	Failures   int64 // exchanges that failed: no stream, gRPC error, spurious answer
	Picks      int64 // requests for which the EPP named at least one usable endpoint
	Fallbacks  int64 // attempts at an endpoint of the fallback list
	Retries    int64 // attempts after the first
	Immediate  int64 // immediate responses taken over
	Violations int64 // answers that broke a rule, tolerated or not
	Active     int64 // requests running now
}

type counters struct {
	requests, streams, failures, picks, fallbacks, retries, immediate, violations, active atomic.Int64
}

func (c *counters) snapshot() Stats {
	return Stats{
		Requests:   c.requests.Load(),
		Streams:    c.streams.Load(),
		Failures:   c.failures.Load(),
		Picks:      c.picks.Load(),
		Fallbacks:  c.fallbacks.Load(),
		Retries:    c.retries.Load(),
		Immediate:  c.immediate.Load(),
		Violations: c.violations.Load(),
		Active:     c.active.Load(),
	}
}
