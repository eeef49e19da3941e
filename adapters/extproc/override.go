package extproc

import (
	"maps"
	"sync"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/messages"
)

// Output tokens of responses that bypass us are estimated from responses that we see. A proxy of the light lane that
// sends none of its requests through the full lane is therefore asked, by a mode_override, to show the body of one
// response in overrideEvery. Envoy silently ignores that unless its filter allows it; then it is asked again later.
const (
	overrideEvery = 20
	ignoredInRow  = 3                // asking pauses then; clients that leave early account for fewer
	overrideAgain = 10 * time.Minute // length of that pause
)

// overrides holds what is known of proxies that were asked, by connection; 0 stands for all connections that are
// unknown. Its zero value knows of none.
type overrides struct {
	mu      sync.Mutex
	ignored map[messages.ConnectionID]ignorance // of connections that ignored the last one, for overrideAgain
}

// ignorance counts how often a proxy ignored an override.
type ignorance struct {
	row  int       // overrides ignored, one after another
	last time.Time // when the last of them was ignored
}

// overrides reports whether the proxy shall be asked for the body of this response. The request has to be buffered:
// Envoy takes no override beside a full-duplex request body, and without having read the request there would be
// nothing to learn.
func (st *stream) overrides() bool {
	return st.request.teaches && buffered(st.modes.RequestBody) && uint64(st.id)%overrideEvery == 0 &&
		!st.srv.overrides.pause(st.connection(), st.srv.deps.Now())
}

// overrideTaken notes the first chunk of a body that the proxy was asked for. The body is visible from now on.
func (st *stream) overrideTaken() {
	st.modes.ResponseBody = wire.BodyStreamed
	st.srv.overrides.taken(st.connection())
	st.srv.cfg.Metrics.shown.Inc()
}

// overrideIgnored notes that a response, or its stream, ended without the body that the proxy was asked for.
func (st *stream) overrideIgnored() {
	st.srv.cfg.Metrics.ignored.Inc()
	st.srv.overrides.ignore(st.connection(), st.srv.deps.Now())
}

// connection returns the number of the stream's connection; 0 = it is unknown.
func (st *stream) connection() messages.ConnectionID {
	if st.conn == nil {
		return 0
	}
	return st.conn.ID()
}

// pause reports whether a connection must not be asked now.
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

// ignore counts an override that was ignored. It drops connections whose pause is over, so that nothing is left of
// those that ended.
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
