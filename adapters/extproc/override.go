package extproc

import (
	"maps"
	"sync"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/messages"
)

// A proxy of the light lane that sends no share of its requests through the full one is asked, by a mode_override, to
// show the body of one response in overrideEvery: from those the output tokens of the others are estimated. Envoy
// ignores it without a word unless its filter allows it.
const (
	overrideEvery = 20
	ignoredInRow  = 3                // by chance their clients left before a body came; more do not
	overrideAgain = 10 * time.Minute // after so many were ignored
)

// overrides is what is known of proxies that were asked, by their connection; 0 is all whose connection is not known.
// The zero overrides know nothing.
type overrides struct {
	mu      sync.Mutex
	ignored map[messages.ConnectionID]ignorance // without those who took the last, or whose time has passed
}

// ignorance is how often a proxy ignored what it was asked.
type ignorance struct {
	row  int       // of requests to show a body, without one that it did not ignore
	last time.Time // of them
}

// overrides reports whether the proxy shall be asked for this response's body. It must not be on the way of a request
// body that is full duplex, for Envoy takes no override there, and has to have read the request's body, or there would
// be nothing to learn.
func (st *stream) overrides() bool {
	return st.request.teaches && buffered(st.modes.RequestBody) && uint64(st.id)%overrideEvery == 0 &&
		!st.srv.overrides.pause(st.connection(), st.srv.deps.Now())
}

// overrideTaken notes the first chunk of a body that the proxy was asked for. The body is visible now.
func (st *stream) overrideTaken() {
	st.modes.ResponseBody = wire.BodyStreamed
	st.srv.overrides.taken(st.connection())
	st.srv.cfg.Metrics.shown.Inc()
}

// overrideIgnored notes a response that ended, or whose stream did, without the body that was asked for.
func (st *stream) overrideIgnored() {
	st.srv.cfg.Metrics.ignored.Inc()
	st.srv.overrides.ignore(st.connection(), st.srv.deps.Now())
}

// connection is the number of the stream's connection; 0 = it is not known.
func (st *stream) connection() messages.ConnectionID {
	if st.conn == nil {
		return 0
	}
	return st.conn.ID()
}

// pause reports whether a connection is not to be asked now.
func (o *overrides) pause(c messages.ConnectionID, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.ignored[c]
	return known.row >= ignoredInRow && !known.over(now)
}

func (o *overrides) taken(c messages.ConnectionID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.ignored, c)
}

// ignore counts. It forgets what is over, so that nothing is left of connections that ended.
func (o *overrides) ignore(c messages.ConnectionID, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.ignored, func(_ messages.ConnectionID, known ignorance) bool { return known.over(now) })
	if o.ignored == nil {
		o.ignored = map[messages.ConnectionID]ignorance{}
	}
	o.ignored[c] = ignorance{row: o.ignored[c].row + 1, last: now}
}

func (i ignorance) over(now time.Time) bool { return !now.Before(i.last.Add(overrideAgain)) }
