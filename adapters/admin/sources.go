package admin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// longestTTL bounds how long a document that was pushed stays in force.
const longestTTL = 24 * time.Hour

const sourcesPath = "/sources/"

// NoSource is an error of Push: the configuration in force has no such source. Any other error is what is wrong with
// the document.
type NoSource string

func (e NoSource) Error() string { return string(e) }

// pushedView answers a document that is in force.
type pushedView struct {
	Source     string         `json:"source"`
	TTLSeconds float64        `json:"ttl_seconds"`
	Values     map[string]int `json:"values"` // that the document has, by attribute
}

// push takes a document for a source of the configuration.
func (h *handler) push(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	source := r.PathValue("source")
	if why := h.mayNotPush(r); why != "" {
		fail(w, http.StatusForbidden, "not-loopback",
			"without --metrics-token-file, values are taken from loopback peers only: "+why)
		return
	}
	text := r.URL.Query().Get("ttl")
	ttl, err := time.ParseDuration(text)
	if err != nil || ttl <= 0 || ttl > longestTTL {
		fail(w, http.StatusBadRequest, "bad-query",
			fmt.Sprintf("ttl: got %q, want a duration such as 30s, at most %v", clean(text), longestTTL))
		return
	}
	document, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.PushBytes))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		fail(w, http.StatusRequestEntityTooLarge, "too-long", fmt.Sprintf("want at most %d bytes", h.PushBytes))
		return
	}
	if err != nil {
		fail(w, http.StatusBadRequest, "bad-body", "the body cannot be read: "+clean(err.Error()))
		return
	}
	values, err := h.Push(source, document, ttl)
	var none NoSource
	switch {
	case err == nil:
		writeJSON(w, http.StatusOK, pushedView{source, ttl.Seconds(), values})
	case errors.As(err, &none):
		fail(w, http.StatusNotFound, "no-source", err.Error())
	default:
		fail(w, http.StatusBadRequest, "refused", "nothing changed: "+err.Error())
	}
}

// mayNotPush returns why a request may not push values; "" = it may. A request with a token may come from anywhere;
// what guards this port has looked at it. Without tokens only this machine may,
// and no web page that a browser on it shows.
func (h *handler) mayNotPush(r *http.Request) string {
	if h.Tokens {
		return ""
	}
	return notOurs(r)
}

// pushOnly answers requests for sources that are no pushes.
func (h *handler) pushOnly(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", "PUT")
	fail(w, http.StatusMethodNotAllowed, "method-not-allowed", "want PUT "+sourcesPath+"NAME?ttl=30s with a document")
}
