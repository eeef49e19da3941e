// Package extproc is Envoy's side of a request: ext_proc streams, their headers and bodies in both directions, and the
// immediate responses that refuse. Each stream is an actor to everyone else: it has an address, is told its answer, and
// tells its cycle what it sees. It never picks, and no cycle or loop ever waits for one of its sends.
//
// The goroutine of the gRPC handler is the stream's thread. What comes from elsewhere (an answer that comes late, a
// deadline, a revocation) passes the stream's send lock.
//
// One request, in the order in which it is read: server.go opens the stream, stream.go reads its messages, request.go
// takes the headers and gathers the body, which body.go owns, pick.go asks a cycle and answers, response.go gives the
// response back, and stream.go ends. How far a stream is say a requestPhase, a responsePhase and a closeReason, which
// are drawn in phase.go:
//
//	requestAwaited ─► requestGathering ─► requestAsking ─► requestForwarded ─► requestEnded
//	responseAwaited ─► responseVisible ─► responseLast ─► responseBypass or responseAsked ─► responseEnded
package extproc

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/messages"
)

// Parser reads the facts of a request from its body, once. An error is the client's fault.
type Parser interface {
	Parse(path, contentType, contentEncoding string, body []byte, into *messages.Request) error
}

// Scanner looks for what a response's body says about itself, piece by piece.
type Scanner interface {
	Write(p []byte)
	Usage() messages.Usage
	ID() []byte       // of the response, as far as the body has told; nil = it has not. It must not be written to
	ErrorStatus() int // HTTP, that an event of it names; 0 = none
}

// Connection is the connection that a stream came on. Its methods are called by many streams at once.
type Connection interface {
	ID() messages.ConnectionID
	// Name is what the pick's metadata carry, for the access log to bring it back.
	Name() string
	// Asked is told of each request. shown says that the body of its response will be shown.
	Asked(shown bool)
	// Log is what has come of the access log. It is asked when a stream ends whose response may run on.
	Log() messages.LogState
}

// CheckMark is gRPC metadata of a stream that a conformance checker sends: its request is picked for like any other,
// and leaves nothing behind. Only the peer that opens the stream can set it: a proxy does not make a client's HTTP
// headers metadata of its own streams.
const CheckMark = "x-signalbox-conformance"

func isCheck(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, CheckMark)) > 0
}

// Config are the settings of a Server. No duration is zero: no limit is carried as 24 hours.
type Config struct {
	Instance     uint64        // names this process in request ids
	MaxBodyBytes int64         // a larger request body is refused
	MaxHeldBytes int64         // of memory that all request bodies take at a time; what goes beyond is refused
	BodyTimeout  time.Duration // from the request's headers to the end of its body
	AnswerWithin time.Duration // from arrival to the cycle's answer, unless the cycle says later
	ResponseIdle time.Duration // between two signs of life of the response, as the cycle has it
	WholeRequest time.Duration // from the request's headers to the end of the response
	Metrics      *Metrics
}

// Deps are what a Server works with.
type Deps struct {
	// Start begins a cycle for a request; false if its loop is full.
	Start func(messages.RequestArrived) (messages.Port[messages.CycleMsg], bool)
	// Refused is told of each request that ended without a cycle, but not of those that Start had no room for.
	Refused func(messages.RequestRefused)
	Parser  Parser
	// Scan makes a scanner for a response of this content type; nil = there is nothing to find.
	Scan func(contentType string) Scanner
	// Connection is that of a stream's context; nil = it is not known, and its access log is taken to come.
	Connection func(context.Context) Connection
	Now        func() time.Time
	// Panicked is told of a panic in a handler; nil = nobody.
	Panicked func(value any, stack []byte)
}

// Server serves ext_proc streams.
type Server struct {
	cfg       Config
	deps      Deps
	last      atomic.Uint64 // request id
	draining  atomic.Bool
	held      budget // of request bodies
	overrides overrides
	mu        sync.Mutex // of streams
	streams   map[*stream]struct{}
}

// NewServer is a server that takes requests.
func NewServer(cfg Config, deps Deps) *Server {
	return &Server{cfg: cfg, deps: deps, held: budget{limit: cfg.MaxHeldBytes}, streams: map[*stream]struct{}{}}
}

// Drain refuses new requests, and those that still wait for their body or their answer. It waits for nobody: a stream
// whose proxy reads nothing holds its send lock for as long as it likes.
func (s *Server) Drain() {
	s.draining.Store(true)
	s.mu.Lock()
	waiting := slices.Collect(maps.Keys(s.streams))
	s.mu.Unlock()
	for _, st := range waiting {
		go st.refuseWaiting() // it ends with its stream at the latest
	}
}

// Open is how many streams are open.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Held is how many bytes request bodies take, their buffers' room included.
func (s *Server) Held() int64 { return s.held.held.Load() }

// Process serves one stream until it ends.
func (s *Server) Process(w wire.Stream) error {
	st := newStream(s, w)
	defer s.cfg.Metrics.closed(st, s.cfg.Metrics.opened())
	s.mu.Lock()
	s.streams[st] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.streams, st)
		s.mu.Unlock()
	}()
	defer st.gone()
	st.serve()
	return nil
}

func (s *Server) nextID() messages.RequestID { return messages.RequestID(s.last.Add(1)) }
