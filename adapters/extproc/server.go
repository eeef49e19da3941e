// Package extproc is Envoy's side of a request: ext_proc streams, their headers and bodies in both directions, and the
// immediate responses that refuse. Each stream is an actor to everyone else: it has an address, is told its answer, and
// tells its cycle what it sees. It never picks, and no cycle or loop ever waits for one of its sends.
//
// The goroutine of the gRPC handler reads a stream and sends almost everything. Other goroutines (of a deadline, a
// drain or a revocation) send refusals alone. All of them send under the stream's mutex.
//
// One request, in the order in which it is read: server.go opens the stream, stream.go reads its messages, request.go
// takes the headers and gathers the body, which body.go owns, pick.go asks a cycle and answers, response.go gives the
// response back, and stream.go ends the stream. A requestPhase, a responsePhase and a closeReason say how far a stream
// is; phase.go draws all three:
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

	"github.com/signalbox-epp/signalbox/adapters/extproc/held"
	"github.com/signalbox-epp/signalbox/adapters/extproc/trust"
	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/engine/rewrites"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// Parser reads what a pick needs from the body of a request, which it is given once and whole. An error means that the
// client sent a body that cannot be read.
type Parser interface {
	Parse(path, contentType, contentEncoding string, body []byte, into *messages.Request) error
	// Rename returns what to put in the place of the bytes from..to of a body so that it names another model. Without
	// text it cannot be done.
	Rename(path, contentType, contentEncoding string, body []byte, model string) (from, to int, text []byte)
	// SetPriority does likewise for the priority by which a model server schedules the request.
	SetPriority(path, contentType, contentEncoding string, body []byte, priority int) (from, to int, text []byte)
}

// Scanner looks for what the body of a response says about itself. It is given the body piece by piece.
type Scanner interface {
	Write(p []byte)
	Usage() messages.Usage
	Began() bool      // output may have come, and not only that it is to come
	Events() int      // of a stream, with output, that have come
	ID() []byte       // the response's id, which must not be written to; nil = the body has not named it so far
	ErrorStatus() int // the HTTP status of an error that the body tells; 0 = there was none
}

// Restorer puts the model's name that a client asked for back into the body of a response, which it is given piece by
// piece.
type Restorer interface {
	Append(dst, piece []byte) []byte // appends what becomes of a piece, and of what was held back before
	Flush(dst []byte) []byte         // appends what is held back, at the end of the body
}

// Connection is the connection that a stream came on. Its methods are called by many streams at once.
type Connection interface {
	ID() messages.ConnectionID
	// Name returns what the metadata of a pick carry, so that the access log can bring it back.
	Name() string
	// Asked counts a request. shown says that the body of its response will be shown.
	Asked(shown bool)
	// Log returns what has come of the access log. It is called when a stream ends whose response may run on.
	Log() messages.LogState
}

// CheckMark is the gRPC metadata of a stream that a conformance checker opens. Its request is picked for like any
// other, and leaves nothing behind. Only the peer that opens the stream can set it: a proxy does not turn the HTTP
// headers of a client into metadata of its own streams.
const CheckMark = "x-signalbox-conformance"

func isCheck(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, CheckMark)) > 0
}

// LogMark is the gRPC metadata of the streams of a proxy whose configuration also has an access log for this picker, as
// the shipped files say. It makes the load of a response that outlives its stream certain before the first entry.
const LogMark = "x-signalbox-access-log"

func announcesLog(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, LogMark)) > 0
}

// Config holds the settings of a Server. No duration is zero: 24 hours stand for no limit.
type Config struct {
	Instance     uint64        // names this process in request ids
	MaxBodyBytes int64         // a larger request body is refused
	MaxHeldBytes int64         // memory for all request bodies at a time; a body that goes beyond is refused
	BodyTimeout  time.Duration // from the request's headers to the end of its body
	AnswerWithin time.Duration // from arrival to the cycle's answer, unless the cycle names a later time
	// WaitOtherModes is how long a request waits for room at most unless its body mode is FULL_DUPLEX_STREAMED.
	WaitOtherModes time.Duration
	ResponseIdle   time.Duration // between two signs of life of the response; the cycle enforces it
	WholeRequest   time.Duration // from the request's headers to the end of the response
	WholePool      bool          // subset hints have no effect
	Metrics        *Metrics
}

// Configuration is what a configuration says of streams. It is immutable, and lives as long as a stream has it.
type Configuration struct {
	Number uint64 // from 1
	// Start begins a cycle for a request, which runs under this configuration. It returns false if the loop of the
	// request has no room.
	Start func(messages.RequestArrived) (messages.Port[messages.CycleMsg], bool)
	// MakeWay has requests that wait make way for the body of another one that does not fit. It returns false if that
	// cannot be asked. nil = a body that does not fit is refused as overload.
	MakeWay func(messages.MemoryRequested) bool
	Parser  Parser
	// Scan makes a scanner for a response to a request of this API. Its content type counts if the API is not known.
	// nil = there is nothing to find.
	Scan func(api messages.API, contentType string) Scanner
	// Report returns what plugins tell the proxy of a response, by what its body says of its tokens; nil = none does.
	Report func(*messages.Usage) []schedule.Report
	// Restore makes a Restorer for a response of this content type; nil = the names in it stay as they are.
	Restore func(contentType, served, asked string) Restorer
	// Priorities holds the priority of requests by the name of their objective; of all others it is 0. It is only read.
	Priorities map[string]int
	// Rewrites has the models that serve in place of those that clients name; nil = none does.
	Rewrites *rewrites.Table
	// Headers are the names, in lower case, of the headers and cookies that plugins read. A value's place in a request
	// is that of its name here.
	Headers []string
	// Models returns the models of the whole pool, sorted; it answers GET /v1/models in place of a model server. nil =
	// a model server answers, as it does if none are known.
	Models func() []string
	// VerifiesServed says that a header of responses names the server that served, or that the proxy does not say it.
	VerifiesServed bool
	// SetsPriority says that the priority of a request is written into its body.
	SetsPriority bool
	// Flows are the places of the headers that name the flow of a request without a fairness id, best first.
	Flows []int
	// Trust says which headers clients may not set by themselves; nil = they may set all.
	Trust *trust.Policy
}

// Deps holds what a Server works with.
type Deps struct {
	// InForce returns the configuration in force. Each request takes it with its headers, and keeps it to its end.
	InForce func() *Configuration
	// Refused is told of each request that ended without a cycle, except those that Start had no room for.
	Refused func(messages.RequestRefused)
	// Connection returns the connection of a stream's context; nil = it is unknown, and its access log is assumed to
	// come.
	Connection func(context.Context) Connection
	// Certified returns the names in the verified certificate of a stream's proxy; nil = no proxy has one.
	Certified func(context.Context) []string
	// Accepted reports whether a token lets a client name the endpoint of its request; nil = no token does.
	Accepted func(token string) bool
	// Empty reports whether the pool has no endpoint at all; nil = it has some.
	Empty func() bool
	Now   func() time.Time
	// Panicked is told of a panic in a handler; it may be nil.
	Panicked func(value any, stack []byte)
}

// Server serves ext_proc streams.
type Server struct {
	cfg       Config
	deps      Deps
	last      atomic.Uint64 // request id given out
	draining  atomic.Bool
	held      *held.Budget // memory of request bodies
	overrides overrides
	mu        sync.Mutex // guards streams
	streams   map[*stream]struct{}
}

// NewServer returns a server that takes requests.
func NewServer(cfg Config, deps Deps) *Server {
	return &Server{cfg: cfg, deps: deps, held: held.NewBudget(cfg.MaxHeldBytes), streams: map[*stream]struct{}{}}
}

// Drain refuses new requests, and those that still wait for their body or for their pick. It returns before they are
// refused: a stream whose proxy reads nothing can hold its mutex for as long as the proxy likes.
func (s *Server) Drain() {
	s.draining.Store(true)
	s.mu.Lock()
	waiting := slices.Collect(maps.Keys(s.streams))
	s.mu.Unlock()
	for _, st := range waiting {
		go st.refuseWaiting() // ends with the stream at the latest
	}
}

// Open returns the number of open streams.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Held returns how many bytes the buffers of all request bodies take, their unused capacity included.
func (s *Server) Held() int64 { return s.held.Held() }

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

func (s *Server) accepts(token string) bool {
	return token != "" && s.deps.Accepted != nil && s.deps.Accepted(token)
}

func (s *Server) nextID() messages.RequestID { return messages.RequestID(s.last.Add(1)) }
