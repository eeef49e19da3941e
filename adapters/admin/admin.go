// Package admin is the HTTP side of the metrics port: metrics, health, and what became of single requests and endpoints,
// as JSON and as pages for a terminal. It also fetches those pages, for the command that shows them.
//
// It owns the forms of what it shows. It never decides, never logs, keeps nothing between two HTTP requests, and never
// sees text of a prompt.
package admin

import (
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/signalbox-epp/signalbox/messages"
)

// Config is what the handler shows, and to whom. Gatherer, Recorder, FormatID, ParseID and Address are required, and for
// rings MessageName and ActorName.
type Config struct {
	Gatherer prometheus.Gatherer
	Recorder messages.Sink[messages.RecorderMsg]

	FormatID func(messages.RequestID) string         // our id as clients get it
	ParseID  func(string) (messages.RequestID, bool) // its reverse; false = not an id of this process
	Address  func(messages.EndpointID) messages.Address

	MessageName func(kind uint16) string // of a message type, "" = unknown
	ActorName   func(kind uint16) string

	Ready         func() error          // nil error = ready; the error's text is the answer. nil = always ready
	Endpoints     func() []EndpointView // in any order. nil = none are shown
	Configuration func() string         // the configuration in force, as text. nil = it is not shown

	Profiles     bool          // show profiles of the process
	OpenDebug    bool          // answer /debug to every peer; false = to loopback peers only
	AnswerWithin time.Duration // how long the recorder may take; 0 = 2 s
	Now          func() time.Time
}

const (
	answerWithin = 2 * time.Second
	newest       = 50   // requests that a list shows if the client does not say how many
	mostNewest   = 1000 // requests that a list shows at most
)

type handler struct{ Config }

// NewHandler serves the metrics port.
//
//	GET /metrics              Prometheus' text format
//	GET /healthz              200 while the process lives
//	GET /readyz               200 "ok", or 503 with the reason
//	GET /debug/requests       the newest requests; ?n= how many, ?x-request-id= those of a client's id
//	GET /debug/requests/{id}  one request, by our id or the client's x-request-id; ?all shows every endpoint
//	GET /debug/endpoints      the pool
//	GET /debug/config         the configuration in force
//	GET /debug/rings          what the loops did last; ?loop= one loop, ?newest= how many messages of each
//	GET /debug/pprof/         profiles, in the form of net/http/pprof, if they are shown
//
// Debug paths answer with text, or with JSON if ?format=json or the Accept header asks for it. Their errors are always JSON:
// {"error": what is wrong, "code": one word for programs}.
func NewHandler(cfg Config) http.Handler {
	if cfg.AnswerWithin <= 0 {
		cfg.AnswerWithin = answerWithin
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	h := &handler{cfg}
	mux := http.NewServeMux()
	// One broken collector must not hide the metrics of all others.
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", h.ready)
	mux.Handle("GET /debug/requests", h.guard(h.requests))
	mux.Handle("GET /debug/requests/{id}", h.guard(h.request))
	mux.Handle("GET /debug/endpoints", h.guard(h.endpoints))
	mux.Handle("GET /debug/config", h.guard(h.configuration))
	mux.Handle("GET /debug/rings", h.guard(h.rings))
	h.profiles(mux)
	mux.Handle("/debug/", h.guard(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			fail(w, http.StatusMethodNotAllowed, "method-not-allowed", "debug paths answer GET only")
			return
		}
		fail(w, http.StatusNotFound, "no-such-path", "no such path; there are /debug/requests, /debug/requests/{id}, /debug/endpoints, /debug/config, /debug/rings and, with --enable-pprof, /debug/pprof/")
	}))
	return mux
}

func (h *handler) ready(w http.ResponseWriter, _ *http.Request) {
	if h.Ready != nil {
		if err := h.Ready(); err != nil {
			plain(w, http.StatusServiceUnavailable, clean(err.Error())+"\n")
			return
		}
	}
	plain(w, http.StatusOK, "ok\n")
}

func (h *handler) configuration(w http.ResponseWriter, r *http.Request) {
	if h.Configuration == nil {
		fail(w, http.StatusNotFound, "not-shown", "this process does not show its configuration")
		return
	}
	text := h.Configuration()
	if wantsJSON(r) {
		writeJSON(w, http.StatusOK, struct {
			Config string `json:"config"`
		}{text})
		return
	}
	plain(w, http.StatusOK, text)
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // fails only if the client left: nobody is left to tell
}
