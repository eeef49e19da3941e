package extproc

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testInstance = 0xabc
	testLimit    = 1 << 20
	patience     = 20 * time.Second // for a test that would hang
)

// cycle is a scripted cycle: it writes down what it is told.
type cycle struct {
	arrived messages.RequestArrived
	onTell  func(c *cycle, m messages.CycleMsg) // nil = nothing

	mu   sync.Mutex
	told []messages.CycleMsg
}

func (c *cycle) Post(m messages.CycleMsg) bool {
	c.mu.Lock()
	c.told = append(c.told, m)
	c.mu.Unlock()
	if c.onTell != nil {
		c.onTell(c, m)
	}
	return true
}

func (c *cycle) list() []messages.CycleMsg {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]messages.CycleMsg(nil), c.told...)
}

// lines are what the cycle was told, one line a message.
func (c *cycle) lines() []string {
	var out []string
	for _, m := range c.list() {
		switch m := m.(type) {
		case messages.ResponseStarted:
			line := strings.TrimSpace(fmt.Sprintf("started %d %s", m.Status, m.Served))
			if m.Bypasses {
				line += " passes"
			}
			if m.Local != "" {
				line += " local " + m.Local
			}
			out = append(out, line)
		case messages.FirstTokenSeen:
			out = append(out, strings.TrimSpace("first "+m.ResponseID))
		case messages.ErrorSeen:
			out = append(out, fmt.Sprintf("error %d", m.Status))
		case messages.ResponseProgressed:
			out = append(out, "progressed")
		case messages.ResponseEnded:
			u := m.Usage
			out = append(out, strings.TrimSpace(fmt.Sprintf("ended %d %d/%d/%d %s", m.ResponseBytes, u.PromptTokens,
				u.CachedTokens, u.OutputTokens, m.ResponseID)))
		case messages.StreamGone:
			line := strings.TrimSpace(fmt.Sprintf("gone completed=%v frames=%d %v", m.Completed, m.FrameCount,
				m.Answered))
			if m.Logged {
				line += " logged"
			}
			if u := m.Usage; u.PromptTokens > 0 {
				line += fmt.Sprintf(" %d/%d/%d", u.PromptTokens, u.CachedTokens, u.OutputTokens)
			}
			out = append(out, line)
		default:
			out = append(out, fmt.Sprintf("%T", m))
		}
	}
	return out
}

// parse is a Parser.
type parse func(path string, body []byte) error

func (p parse) Parse(path, _, _ string, body []byte, _ *messages.Request) error { return p(path, body) }

func (parse) SetPriority(string, string, string, []byte, int) (from, to int, text []byte) {
	return 0, 0, nil
}

func (p parse) Rename(string, string, string, []byte, string) (from, to int, text []byte) {
	return 0, 0, nil
}

// setup is what a rig does; the zero setup picks 10.0.0.1:8000 at once.
type setup struct {
	script func(c *cycle) // runs inside Start
	onTell func(c *cycle, m messages.CycleMsg)
	full   bool // Start refuses
	parser parse
	scan   func(api messages.API, contentType string) Scanner
	config func(*Config)

	makeWay    func(*rig, messages.MemoryRequested) bool
	priorities map[string]int
}

func pick(to ...messages.Address) func(*cycle) {
	return func(c *cycle) { c.arrived.Stream.Tell(messages.PickMade{Destinations: messages.ListOf(to...)}) }
}

func fail(m messages.PickFailed) func(*cycle) {
	return func(c *cycle) { c.arrived.Stream.Tell(m) }
}

// elsewhere runs a script on another goroutine.
func elsewhere(script func(*cycle)) func(*cycle) { return func(c *cycle) { go script(c) } }

// rig is a Server with scripted cycles.
type rig struct {
	srv      *Server
	inForce  *Configuration
	registry *prometheus.Registry

	mu       sync.Mutex
	cycles   []*cycle
	refused  []messages.Record
	panicked []any
	empty    atomic.Bool // the pool has no endpoint
}

func newRig(s setup) *rig {
	r := &rig{registry: prometheus.NewRegistry()}
	cfg := Config{
		Instance: testInstance, MaxBodyBytes: testLimit, MaxHeldBytes: 1 << 40, BodyTimeout: time.Hour,
		AnswerWithin: time.Hour, WaitOtherModes: 8 * time.Second,
		WholeRequest: 24 * time.Hour, Metrics: NewMetrics(r.registry),
	}
	if s.config != nil {
		s.config(&cfg)
	}
	if s.script == nil {
		s.script = pick("10.0.0.1:8000")
	}
	if s.parser == nil {
		s.parser = func(string, []byte) error { return nil }
	}
	if s.scan == nil {
		s.scan = func(messages.API, string) Scanner { return nil }
	}
	r.inForce = &Configuration{
		Number: 1, Parser: s.parser, Scan: s.scan, Priorities: s.priorities,
		Start: func(m messages.RequestArrived) (messages.Port[messages.CycleMsg], bool) {
			if s.full {
				return nil, false
			}
			c := &cycle{arrived: m, onTell: s.onTell}
			r.mu.Lock()
			r.cycles = append(r.cycles, c)
			r.mu.Unlock()
			s.script(c)
			return c, true
		},
	}
	if s.makeWay != nil {
		r.inForce.MakeWay = func(m messages.MemoryRequested) bool { return s.makeWay(r, m) }
	}
	r.srv = NewServer(cfg, Deps{
		InForce: func() *Configuration { return r.inForce },
		Refused: func(m messages.RequestRefused) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.refused = append(r.refused, m.Record)
		},
		Now: time.Now, Empty: r.empty.Load,
		Panicked: func(v any, _ []byte) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.panicked = append(r.panicked, v)
		},
	})
	return r
}

// started are the cycles so far.
func (r *rig) started() []*cycle {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*cycle(nil), r.cycles...)
}

// only is the one cycle of a rig.
func (r *rig) only(t *testing.T) *cycle {
	t.Helper()
	cycles := r.started()
	if len(cycles) != 1 {
		t.Fatalf("%d cycles were started, want 1", len(cycles))
	}
	return cycles[0]
}

// settled checks what holds once no handler runs any more: each cycle is told once, as the last thing, that its stream
// is gone.
func (r *rig) settled(t *testing.T) {
	t.Helper()
	if n := r.srv.Open(); n != 0 {
		t.Errorf("%d streams are open after the last handler", n)
	}
	for _, c := range r.started() {
		told, gone := c.list(), 0
		for _, m := range told {
			if _, ok := m.(messages.StreamGone); ok {
				gone++
			}
		}
		if gone != 1 || !isGone(told[len(told)-1]) {
			t.Errorf("a cycle was told %q, want StreamGone once and last", c.lines())
		}
	}
}

func isGone(m messages.CycleMsg) bool { _, ok := m.(messages.StreamGone); return ok }

// serve puts the rig behind a real gRPC server; the test ends with the check of settled.
func (r *rig) serve(t *testing.T) extprocv3.ExternalProcessorClient {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(append(wire.ServerOptions(), grpc.WaitForHandlers(true), grpc.MaxRecvMsgSize(32<<20))...)
	wire.Register(s, r.srv)
	var done sync.WaitGroup
	done.Go(func() {
		// that if it was stopped before it began
		if err := s.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("Serve: %v", err)
		}
	})
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		done.Wait()
		r.settled(t)
	})
	return extprocv3.NewExternalProcessorClient(conn)
}
