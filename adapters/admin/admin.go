// Package admin is the HTTP side of the metrics port: metrics, health, and what became of single requests and
// endpoints, as JSON and as pages for a terminal. Package client, below it, fetches those pages for the commands that
// show them.
//
// It owns the forms of what it shows. It never decides, never logs, keeps nothing between two HTTP requests, and never
// sees text of a prompt.
package admin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/signalbox-epp/signalbox/messages"
)

// Config says what the handler shows, and to which peers. Gatherer, Recorder, FormatID, ParseID and Address are
// required, and for rings MessageName and ActorName.
type Config struct {
	Gatherer prometheus.Gatherer
	Recorder messages.Port[messages.RecorderMsg]

	FormatID func(messages.RequestID) string         // our id as clients get it
	ParseID  func(string) (messages.RequestID, bool) // its reverse; false = not an id of this process
	Address  func(messages.EndpointID) messages.Address

	// Incarnations returns the endpoints that had an address, as far as records may name them. nil = there are none.
	Incarnations func(messages.Address) []messages.EndpointID

	MessageName func(kind uint16) string // of a message type, "" = unknown
	ActorName   func(kind uint16) string

	Ready      func() error          // nil error = ready; the error's text is the answer. nil = always ready
	Concern    func() string         // what a ready process has to say; "" = nothing. nil = nothing
	Endpoints  func() []EndpointView // in any order. nil = none are shown
	NotScraped func() string         // why no endpoint's metrics page is read; "" = they are read. nil = they are
	Proxies    func() []ProxyView    // in the order in which they are shown. nil = none are shown
	Flow       FlowConfig
	// Configuration returns the configuration in force. nil = it is not shown
	Configuration func() ConfigurationView
	// Reload brings into force what the source of the configuration holds now, and Restore what was in force before.
	// An error says why nothing changed. nil = the configuration never changes
	Reload, Restore func() error

	// Push brings a document into force as the values of a source, for a time. It returns the number of values of each
	// attribute. A NoSource says that there is no such source. nil = nothing is pushed
	Push      func(source string, document []byte, ttl time.Duration) (map[string]int, error)
	PushBytes int64 // the longest document
	Tokens    bool  // requests that get here have a token

	Profiles     bool          // show profiles of the process
	OpenDebug    bool          // answer /debug to every peer; false = to loopback peers only
	AnswerWithin time.Duration // how long the recorder may take; 0 = 2 s
	Now          func() time.Time
}

const answerWithin = 2 * time.Second

type handler struct {
	Config
	asking chan struct{} // has an item for each query to capacity that has no answer yet
}

// mostAsking is how many queries to capacity may be without an answer: it gives turns meanwhile, which matter more.
const mostAsking = 4

// NewHandler serves the metrics port: the paths of handler.routes, and / which lists them.
//
// Debug paths answer with text, or with JSON if ?format=json or the Accept header asks for it. Their errors are always
// JSON: {"error": what is wrong, "code": one word for programs}.
func NewHandler(cfg Config) http.Handler {
	if cfg.AnswerWithin <= 0 {
		cfg.AnswerWithin = answerWithin
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	h := &handler{cfg, make(chan struct{}, mostAsking)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", strict(nil, h.index))
	for _, r := range h.routes() {
		switch {
		case !r.debug():
			mux.Handle("GET "+r.path, r.serve)
		case r.path != profilesPath:
			mux.Handle("GET "+r.path, h.guard(strict(r.takes, r.serve)))
		}
	}
	for _, c := range h.changes() {
		mux.Handle("POST "+c.path, h.guard(h.change(c.do)))
	}
	if h.Push != nil {
		mux.Handle("PUT "+sourcesPath+"{source}", strict([]string{"ttl"}, h.push))
		mux.HandleFunc(sourcesPath, h.pushOnly)
	}
	h.profiles(mux)
	mux.Handle("/debug/", h.guard(h.noSuchPath))
	return mux
}

// route is a path that the port answers.
type route struct {
	path  string
	about string   // what it shows, in few words
	takes []string // parameters of its query, in alphabetical order; "format" goes without saying
	serve http.HandlerFunc
	none  bool // this process has nothing to show there
}

// debug reports whether a path tells of single requests or endpoints.
func (r route) debug() bool { return strings.HasPrefix(r.path, "/debug/") }

const profilesPath = "/debug/pprof/"

// routes returns all paths but /.
func (h *handler) routes() []route {
	// One broken collector must not hide the metrics of all others.
	metrics := promhttp.HandlerFor(h.Gatherer, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, EnableOpenMetrics: true, // which has exemplars
	})
	all := []route{
		{path: "/metrics", about: "metrics, in the text format of Prometheus", serve: metrics.ServeHTTP},
		{path: "/healthz", about: "200 while the process lives", serve: h.alive},
		{path: "/readyz", serve: h.ready,
			about: "200 when this picker answers requests, or 503 with the reason; names model servers that fail"},
		{path: "/debug/requests", about: "the newest requests, of a model, status, endpoint or reason if one is given",
			takes: listParameters, serve: h.requests},
		{path: "/debug/requests/{id}",
			about: "why a request went where it went, by any of its ids; all shows every endpoint",
			takes: []string{"all", "limit", "n"}, serve: h.request},
		{path: "/debug/endpoints", about: "the endpoints: samples, load, outlier states", serve: h.endpoints,
			none: h.Endpoints == nil},
		{path: "/debug/proxies", about: "the proxies that are connected: version, lane, access log", serve: h.proxies,
			none: h.Proxies == nil},
		{path: "/debug/flow", about: "what waits for room: bands, flows, shares, turns, ends, room at the endpoints",
			takes: []string{"flows"}, serve: h.flow, none: h.Flow.Capacity == nil},
		{path: "/debug/config", about: "the configuration in force", serve: h.configuration,
			none: h.Configuration == nil},
		{path: "/debug/rings", about: "the messages that each loop handled last", takes: []string{"loop", "newest"},
			serve: h.rings},
		{path: profilesPath, about: "profiles of the process, as net/http/pprof has them", none: !h.Profiles},
	}
	return all
}

// change is a path that takes a POST.
type change struct {
	path  string
	about string
	do    func() error
}

// changes returns all of them.
func (h *handler) changes() []change {
	return []change{
		{"/debug/config/reload", "brings into force what the configuration's source holds now", h.Reload},
		{"/debug/config/restore", "brings back the configuration that was in force before", h.Restore},
	}
}

// indexView is the JSON form of the list of paths.
type indexView struct {
	Paths []pathView `json:"paths"`
}

type pathView struct {
	Path       string   `json:"path"`
	About      string   `json:"about"`
	Parameters []string `json:"parameters"` // of its query
}

// index lists the paths that the client may see.
func (h *handler) index(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	hidden := ""
	if !h.OpenDebug {
		hidden = notLocal(r)
	}
	v := indexView{Paths: []pathView{}}
	rows := [][]string{}
	for _, route := range h.routes() {
		if route.none || route.debug() && hidden != "" {
			continue
		}
		p := pathView{route.path, route.about, append([]string{}, route.takes...)}
		if route.debug() && route.path != profilesPath {
			p.Parameters = append(p.Parameters, "format")
			slices.Sort(p.Parameters)
		}
		v.Paths = append(v.Paths, p)
		rows = append(rows, []string{p.Path, p.About})
		if len(p.Parameters) > 0 {
			rows = append(rows, []string{"", "?" + strings.Join(p.Parameters, " ?")})
		}
	}
	for _, c := range h.changes() {
		if c.do != nil && hidden == "" {
			v.Paths = append(v.Paths, pathView{"POST " + c.path, c.about, []string{"format"}})
			rows = append(rows, []string{"POST " + c.path, c.about}, []string{"", "?format"})
		}
	}
	if h.Push != nil && h.mayNotPush(r) == "" {
		p := pathView{"PUT " + sourcesPath + "{source}", "takes a document as the values of a source that waits for it",
			[]string{"format", "ttl"}}
		v.Paths = append(v.Paths, p)
		rows = append(rows, []string{p.Path, p.About}, []string{"", "?format ?ttl"})
	}
	if wantsJSON(r) {
		writeJSON(w, http.StatusOK, v)
		return
	}
	var b strings.Builder
	table(&b, "", "ll", rows)
	if hidden != "" {
		b.WriteString("\n/debug answers loopback peers only, unless --open-debug: " + hidden + "\n")
	}
	plain(w, http.StatusOK, b.String())
}

// noSuchPath answers requests to debug paths that do not exist.
func (h *handler) noSuchPath(w http.ResponseWriter, r *http.Request) {
	if slices.ContainsFunc(h.changes(), func(c change) bool { return c.path == r.URL.Path }) {
		w.Header().Set("Allow", "POST")
		fail(w, http.StatusMethodNotAllowed, "method-not-allowed", "this path answers POST only")
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, "method-not-allowed", "debug paths answer GET only")
		return
	}
	var paths []string
	for _, route := range h.routes() {
		if route.debug() && !route.none {
			paths = append(paths, route.path)
		}
	}
	text := "no such path; there are " + strings.Join(paths, ", ")
	if !h.Profiles {
		text += " and, with --enable-pprof, " + profilesPath
	}
	fail(w, http.StatusNotFound, "no-such-path", text)
}

func (h *handler) alive(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok\n") }

func (h *handler) ready(w http.ResponseWriter, _ *http.Request) {
	if h.Ready != nil {
		if err := h.Ready(); err != nil {
			plain(w, http.StatusServiceUnavailable, clean(err.Error())+"\n")
			return
		}
	}
	text := "ok\n"
	if h.Concern != nil {
		if concern := h.Concern(); concern != "" {
			text += clean(concern) + "\n"
		}
	}
	plain(w, http.StatusOK, text)
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // fails only if the client left, and then needs no answer
}

// ConfigurationView is the configuration in force, as /debug/config shows it.
type ConfigurationView struct {
	Config   string    `json:"config"` // with its defaults, as config check prints it
	Number   uint64    `json:"number"` // from 1, by the order in which configurations came into force
	Since    time.Time `json:"since"`
	Source   string    `json:"source"` // the file, or what else it was read from
	SHA256   string    `json:"sha256"` // of its text
	Restored uint64    `json:"restored_from,omitempty"`
	Before   uint64    `json:"before,omitempty"` // the number that restore brings back; 0 = there is none
	// Waits names what the configuration says and only the next start does.
	Waits   []string              `json:"waits_for_restart"`
	Problem *ConfigurationProblem `json:"problem"` // null = the source holds what is in force, or is not followed
}

// ConfigurationProblem is why what the source holds is not in force.
type ConfigurationProblem struct {
	Since time.Time `json:"since"`
	Text  string    `json:"text"`
}

// NotPossible is an error of Reload or Restore: there is nothing that it could bring into force. Any other error is
// what is wrong with the text that was read.
type NotPossible string

func (e NotPossible) Error() string { return string(e) }

func (v *ConfigurationView) text() string {
	var b strings.Builder
	b.WriteString(v.Config + "\n")
	field(&b, "number", fmt.Sprintf("%d, in force since %s", v.Number, stamp(v.Since)))
	source := clean(v.Source)
	if v.Restored != 0 {
		source += fmt.Sprintf(", brought back from number %d", v.Restored)
	}
	field(&b, "source", source)
	field(&b, "sha256", v.SHA256)
	if v.Before != 0 {
		field(&b, "before", fmt.Sprintf("%d, which POST /debug/config/restore brings back", v.Before))
	}
	for _, w := range v.Waits {
		field(&b, "at next start", clean(w))
	}
	if v.Problem != nil {
		field(&b, "problem", "since "+stamp(v.Problem.Since)+", nothing changed:")
		for line := range strings.SplitSeq(v.Problem.Text, "\n") {
			b.WriteString("  " + clean(line) + "\n")
		}
	}
	return b.String()
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 MST") }

func (h *handler) configuration(w http.ResponseWriter, r *http.Request) {
	if h.Configuration == nil {
		fail(w, http.StatusNotFound, "not-shown", "this process does not show its configuration")
		return
	}
	v := h.Configuration()
	if v.Waits == nil {
		v.Waits = []string{}
	}
	if wantsJSON(r) {
		writeJSON(w, http.StatusOK, v)
		return
	}
	plain(w, http.StatusOK, v.text())
}

// change answers a request that changes the configuration in force, with what is in force afterwards. Peers on this
// machine alone may ask for it, whatever may see debug pages, and no web page may that a browser here shows.
func (h *handler) change(do func() error) http.HandlerFunc {
	return strict(nil, func(w http.ResponseWriter, r *http.Request) {
		why := notOurs(r)
		switch {
		case why != "":
			fail(w, http.StatusForbidden, "not-loopback", "the configuration is changed by loopback peers only: "+why)
		case do == nil:
			fail(w, http.StatusNotFound, "not-shown", "the configuration of this process does not change")
		default:
			h.changed(w, r, do())
		}
	})
}

func (h *handler) changed(w http.ResponseWriter, r *http.Request, err error) {
	var none NotPossible
	switch {
	case err == nil:
		h.configuration(w, r)
	case errors.As(err, &none):
		fail(w, http.StatusConflict, "not-possible", err.Error())
	default:
		fail(w, http.StatusUnprocessableEntity, "refused", "nothing changed: "+err.Error())
	}
}
