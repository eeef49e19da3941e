// Package chaos runs the picker that the command serves with, behind its stream server and real gRPC connections in
// this process, and has thousands of clients misbehave towards it while actors, plugins, connections and scrapes fail.
// What each client does and what goes wrong for it follows from the seed; what the scheduler makes of it does not. It
// never starts an Envoy or the binary.
//
//	go test ./test/chaos                             one fixed seed
//	go test ./test/chaos -seed 7 -requests 1000000   one seed; prints what happened
//
// README.md says what must come, what may be left, and what a million requests came to.
package chaos

import (
	"context"
	"net"
	"runtime/metrics"
	"testing"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/signalbox-epp/signalbox"
	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/actors/outlier"
	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/adapters/accesslog"
	"github.com/signalbox-epp/signalbox/adapters/extproc"
	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/engine/config"
	machine "github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	loops     = 2
	highWater = 24 // items: a burst of clients is refused
	instance  = 1
	bodyLimit = 1 << 20
	heldLimit = 3 << 20                // some bodies do not fit
	blocks    = 2000                   // of an endpoint in the prefix index
	impatient = 250 * time.Millisecond // for a body
)

// limits are short, so that every deadline passes now and then.
var limits = cycle.Limits{
	Queue: time.Second, Pick: 500 * time.Millisecond, FirstToken: 300 * time.Millisecond,
	ResponseIdle: 600 * time.Millisecond, Logged: 400 * time.Millisecond,
}

// rig is the picker that the command serves with, its stream server, and faults between their parts.
type rig struct {
	testing.TB
	faults   *faults
	ledger   *ledger
	registry *prometheus.Registry
	farm     *farm
	picker   *signalbox.Picker
	logs     *accesslog.Server

	streams *extproc.Server
	grpc    *grpc.Server
	at      string
	ended   chan struct{} // closed once the server serves no more
}

const settings = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: decode-filter
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
- type: lora-affinity-scorer
- type: active-request-scorer
- type: running-requests-size-scorer
- type: load-aware-scorer
- type: max-score-picker`

// startRig brings an EPP up whose bodies may take so long. If that is far longer than the test, a timer that is left
// keeps its stream.
func startRig(t testing.TB, seed uint64, requests int, bodyWait time.Duration) *rig {
	r := &rig{TB: t, faults: newFaults(seed), ledger: newLedger(requests), registry: prometheus.NewRegistry()}
	r.farm = &farm{faults: r.faults}
	cfg, err := config.Load([]byte(settings), config.Settings{Destinations: 3, Stale: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	values := r.values(cfg, seed)
	telemetry.NewPlugins(r.registry, zap.NewNop()).Observe(values.Plan)
	r.picker, err = signalbox.New(values, signalbox.World{
		Metrics: r.registry, Fetcher: r.farm, Checker: r.farm,
		Report: func(*messages.Record) {}, Status: extproc.Status, Panicked: r.onPanic, Release: r.farm.rest.Wait,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.logs = accesslog.NewServer(accesslog.Deps{
		ParseID: func(s string) (messages.RequestID, bool) { return extproc.ParseID(instance, s) },
		Ended:   r.picker.Ended, Ongoing: r.picker.Ongoing, Silent: r.picker.LogStreamEnded,
		Metrics: accesslog.NewMetrics(r.registry),
	})
	r.serve(bodyWait)
	return r
}

func (r *rig) values(cfg *config.Config, seed uint64) signalbox.Config {
	return signalbox.Config{
		Runtime: runtime.Config{Loops: loops, Seed: seed, HighWater: highWater, Intercept: intercept{r}},
		Plan:    r.faults.plan(cfg.Plan),
		Limits:  limits,
		Scraper: scraper.Config{
			Scraping: messages.Scraping{
				Metrics: true, Models: true, Interval: 50 * time.Millisecond, ModelsEvery: 200 * time.Millisecond,
			},
			Timeout: 100 * time.Millisecond,
		},
		Outlier: outlier.Config{MaxEjectionPercent: 50, Config: machine.Config{
			FirstEjection: 20 * time.Millisecond, LongestEjection: 100 * time.Millisecond,
		}},
		Records:  signalbox.Records{Entries: 256 * loops, Bytes: loops << 20},
		PoolName: "pool", PrefixBlocks: blocks, FlowSeed: seed,
	}
}

func (r *rig) onPanic(p runtime.Panic, _ []string) {
	if _, drawn := p.Value.(fault); !drawn {
		r.Errorf("%s panicked at %s: %v\n%s", p.Actor, p.Message, p.Value, p.Stack)
	}
}

// serve makes a server as the command does: windows, codec and all.
func (r *rig) serve(bodyWait time.Duration) {
	inForce := &extproc.Configuration{
		Number: 1, Start: r.start, Parser: poisoned{parsers.NewOpenAI(parsers.Config{Seed: 1}), r.faults},
		Scan: func(contentType string) extproc.Scanner { return parsers.NewResponseScanner(contentType) },
	}
	r.streams = extproc.NewServer(extproc.Config{
		Instance: instance, MaxBodyBytes: bodyLimit, MaxHeldBytes: heldLimit, BodyTimeout: bodyWait,
		AnswerWithin: limits.Queue + limits.Pick, ResponseIdle: limits.ResponseIdle, WholeRequest: time.Hour,
		Metrics: extproc.NewMetrics(r.registry),
	}, extproc.Deps{
		InForce: func() *extproc.Configuration { return inForce },
		Refused: r.picker.Refused, Now: r.picker.System().Now,
		Panicked: func(value any, stack []byte) {
			if _, drawn := value.(fault); !drawn {
				r.Errorf("a stream panicked: %v\n%s", value, stack)
			}
		},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.Fatal(err)
	}
	r.at = listener.Addr().String()
	r.ended = make(chan struct{})
	r.grpc = grpc.NewServer(append(wire.ServerOptions(), grpc.MaxRecvMsgSize(bodyLimit+1<<20),
		grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(16<<20), grpc.NumStreamWorkers(64))...)
	wire.Register(r.grpc, tracked{r.streams, r.ledger})
	accesslogv3.RegisterAccessLogServiceServer(r.grpc, r.logs)
	go func() {
		defer close(r.ended)
		_ = r.grpc.Serve(listener) // it ends with Stop
	}()
}

// start spawns a cycle, and follows what its stream is told.
func (r *rig) start(first messages.RequestArrived) (messages.Port[messages.CycleMsg], bool) {
	if n, ok := numberOf(first.Request.ClientID); ok {
		first.Stream = overheard{first.Stream, r.ledger.line(n)}
	}
	port, ok := r.picker.InForce().Start(first)
	if !ok {
		r.faults.met("inbox full")
	}
	return port, ok
}

// close ends everything, in the order of the command.
func (r *rig) close() {
	r.logs.Close()
	r.grpc.Stop()
	<-r.ended
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.picker.Close(ctx); err != nil {
		r.Error(err)
	}
}

// liveHeap is what the last collection left.
func liveHeap() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
