package extproc

import (
	"maps"
	"sync"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/messages"
)

// A proxy of the light lane that sends no share of its requests through the full one is asked to show the body of one response in
// askEvery: from those the output tokens of the others are estimated. Envoy ignores it without a word unless its filter allows it.
const (
	askEvery     = 20
	ignoredInRow = 3                // by chance their clients left before a body came; more do not
	askAgain     = 10 * time.Minute // after so many were ignored
)

// asking is what is known of proxies that were asked, by their connection; 0 is all whose connection is not known. The zero asking knows
// nothing.
type asking struct {
	mu   sync.Mutex
	deaf map[messages.ConnectionID]deafness // without those who heard last, or whose time has passed
}

// deafness is how often a proxy ignored what it was asked.
type deafness struct {
	row  int       // of requests to show a body, without one that it did not ignore
	last time.Time // of them
}

// asks reports whether the proxy shall be asked for this response's body. It must not be on the way of a request body that is full duplex,
// for Envoy takes no override there, and has to have read the request's body, or there would be nothing to learn.
func (st *stream) asks() bool {
	return st.teaches && buffered(st.modes.RequestBody) && uint64(st.id)%askEvery == 0 &&
		!st.srv.asking.pauses(st.connection(), st.srv.deps.Now())
}

// isShown takes the first piece of a body that the proxy was asked for. Its end is to come by us: until then it can be cut.
func (st *stream) isShown() {
	st.mu.Lock()
	st.passed = false
	st.mu.Unlock()
	st.modes.ResponseBody, st.resp.completed = wire.BodyStreamed, false
	st.srv.asking.heard(st.connection())
	st.srv.cfg.Metrics.shown.Inc()
}

// ignored notes a stream that ended without the body that was asked for.
func (st *stream) ignored() {
	st.srv.cfg.Metrics.ignored.Inc()
	st.srv.asking.ignored(st.connection(), st.srv.deps.Now())
}

// connection is the number of the stream's connection; 0 = it is not known.
func (st *stream) connection() messages.ConnectionID {
	if st.conn == nil {
		return 0
	}
	return st.conn.ID()
}

// pauses reports whether a connection is not to be asked now.
func (a *asking) pauses(c messages.ConnectionID, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.deaf[c]
	return d.row >= ignoredInRow && !d.over(now)
}

func (a *asking) heard(c messages.ConnectionID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.deaf, c)
}

// ignored counts. It forgets what is over, so that nothing is left of connections that ended.
func (a *asking) ignored(c messages.ConnectionID, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.deaf, func(_ messages.ConnectionID, d deafness) bool { return d.over(now) })
	if a.deaf == nil {
		a.deaf = map[messages.ConnectionID]deafness{}
	}
	a.deaf[c] = deafness{row: a.deaf[c].row + 1, last: now}
}

func (d deafness) over(now time.Time) bool { return !now.Before(d.last.Add(askAgain)) }
