package extproc

import (
	"sync/atomic"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
)

// A proxy of the light lane that sends no share of its requests through the full one is asked to show the body of one response in
// askEvery: from those the output tokens of the others are estimated. Envoy ignores it without a word unless its filter allows it.
const (
	askEvery     = 20
	ignoredInRow = 3                // by chance their clients left before a body came; more do not
	askAgain     = 10 * time.Minute // after so many were ignored
)

// asking is what is known of proxies that were asked. The zero asking knows nothing.
type asking struct {
	row   atomic.Int32 // of requests to show a body that were ignored, without one that was not
	quiet atomic.Int64 // unix nanoseconds: until when none is made
}

// asks reports whether the proxy shall be asked for this response's body. It must not be on the way of a request body that is full duplex,
// for Envoy takes no override there, and has to have read the request's body, or there would be nothing to learn.
func (st *stream) asks() bool {
	return st.teaches && buffered(st.modes.RequestBody) && uint64(st.id)%askEvery == 0 &&
		st.srv.deps.Now().UnixNano() >= st.srv.asking.quiet.Load()
}

// isShown takes the first piece of a body that the proxy was asked for. Its end is to come by us: until then it can be cut.
func (st *stream) isShown() {
	st.mu.Lock()
	st.passed = false
	st.mu.Unlock()
	st.modes.ResponseBody, st.resp.completed = wire.BodyStreamed, false
	st.srv.asking.row.Store(0)
	st.srv.cfg.Metrics.shown.Inc()
}

// ignored notes a stream that ended without the body that was asked for.
func (a *asking) ignored(s *Server) {
	s.cfg.Metrics.ignored.Inc()
	if a.row.Add(1) >= ignoredInRow {
		a.row.Store(0)
		a.quiet.Store(s.deps.Now().Add(askAgain).UnixNano())
	}
}
