// Package health learns from what requests meet which endpoints to leave alone for a while: it weighs the evidence, suspends
// with a growing back-off, and lets single requests try whether an endpoint is well again. It never looks at a request, never
// connects to anybody itself, and suspends nobody if that made more than a share of the pool as it is.
package health

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// Checker connects to an endpoint and tells sink exactly once whether that worked. False: it is full or closed and tells nothing.
type Checker interface {
	Check(id messages.EndpointID, at messages.Address, sink messages.Sink[messages.HealthMsg]) bool
}

// Config are the settings. The zero Config holds nothing against anybody.
type Config struct {
	MaxShare float64       // of the pool that may be suspended at a time, 0 to 1; 0 = evidence is counted, and that is all
	First    time.Duration // of the first suspension; it doubles with each probe that fails
	Longest  time.Duration // of all, and of what an overload is held against an endpoint before the next probe
}

// Health is the actor.
type Health struct {
	cfg     Config
	pool    *endpoints.Pool
	checker Checker
	metrics *Metrics
	files   map[messages.EndpointID]*file
}

// file is what is known of one endpoint. What never had evidence has none.
type file struct {
	points    int       // of evidence since a pick that was answered well
	newest    time.Time // evidence
	window    time.Time // begin of the span in which failures are counted
	picks     uint64    // of the endpoint when the span began
	failures  int       // in the span
	suspended bool
	backoff   time.Duration // of the newest suspension; 0 = none in the last minute
	healed    time.Time     // the end of the newest suspension
	pause     time.Duration // for which it is passed by; it doubles with each probe that finds it busy, 0 = none did
	well      time.Time     // when a probe was answered well
	forgiven  time.Time     // Since of what that ended
	checked   time.Time     // begin of the newest check
	checking  bool
}

const (
	enough     = 3 // points suspend
	memory     = 30 * time.Second
	span       = 10 * time.Second
	fewest     = 5               // failures in a span, for its share to count
	worstShare = 0.2             // of the picks in a span
	avoided    = 2 * time.Second // for evidence that is not enough
	forgetting = time.Minute     // without a suspension: the next one is short again
	checkEvery = time.Second
)

// points say how much each kind of evidence weighs. Silence is enough alone: whoever hangs looks idle, so that all would go there.
var points = map[messages.Evidence]int{
	messages.ServerError: 1, messages.ErrorInStream: 1, messages.ServedElsewhere: 1, messages.ConnectionBroken: 2,
	messages.NoFirstToken: enough, messages.ConnectFailed: enough,
}

// New is a health actor to which every endpoint is well.
func New(cfg Config, pool *endpoints.Pool, checker Checker, metrics *Metrics) *Health {
	return &Health{cfg: cfg, pool: pool, checker: checker, metrics: metrics, files: map[messages.EndpointID]*file{}}
}

// Receive weighs.
func (h *Health) Receive(ctx runtime.Context[messages.HealthMsg], m messages.HealthMsg) {
	switch m := m.(type) {
	case messages.HealthStarted: // what an earlier incarnation held against anybody is forgotten
		for _, e := range h.pool.Snapshot().Endpoints {
			e.SetHealth(nil)
		}
	case messages.EvidenceSeen:
		h.onEvidenceSeen(ctx, m)
	case messages.ProbeEnded:
		h.onProbeEnded(ctx, m)
	case messages.EndpointChecked:
		h.onEndpointChecked(ctx, m)
	}
}

func (h *Health) onEvidenceSeen(ctx runtime.Context[messages.HealthMsg], m messages.EvidenceSeen) {
	e := h.pool.Snapshot().ByID(m.Endpoint)
	if e == nil {
		return // it is gone, and so is all that was held against it
	}
	h.metrics.seen(m.Evidence)
	f := h.file(e)
	switch {
	case f.suspended, h.cfg.MaxShare == 0: // nothing new, or nothing is to come of it
	case !m.Picked.IsZero() && m.Picked.Before(f.well): // it was met before the endpoint recovered
	case m.Evidence.Busy():
		h.avoid(e, f, m.Evidence, ctx.Now())
	case m.Evidence == messages.EndedBare, m.Evidence == messages.ScrapeFailed: // by itself it says nothing about answers
		h.check(ctx, e, f)
	default:
		h.weigh(e, f, m.Evidence, m.Picked, ctx.Now())
	}
}

// weigh suspends once there is enough against an endpoint; until then it is passed by.
func (h *Health) weigh(e *endpoints.Endpoint, f *file, what messages.Evidence, picked, now time.Time) {
	if !h.count(e, f, what, picked, now) || !h.suspend(e, f, what, now, now) {
		h.avoid(e, f, what, now)
	}
}

// count adds evidence of a request that was picked then; zero = nobody knows. True = it is enough to suspend: in a row, or as a share
// of the endpoint's requests. Requests that were under way together are no row.
func (h *Health) count(e *endpoints.Endpoint, f *file, what messages.Evidence, picked, now time.Time) bool {
	good := e.LastAnswer()
	if what.InBody() { // to which headers are no answer
		good = e.LastShown()
	}
	if good > f.newest.UnixNano() || now.Sub(f.newest) > memory {
		f.points = 0
	}
	weight := points[what]
	if what == messages.NoFirstToken && !picked.IsZero() && e.LastProof() > picked.UnixNano() { // others were answered meanwhile
		weight = 1
	}
	if weight >= enough || !picked.Before(f.newest) || picked.IsZero() {
		f.points += weight
	}
	f.newest = now
	if now.Sub(f.window) > span {
		f.window, f.picks, f.failures = now, e.Picks.Load(), 0
	}
	f.failures++
	all := e.Picks.Load() - f.picks
	return f.points >= enough || f.failures >= fewest && float64(f.failures) >= worstShare*float64(all)
}

// suspend takes an endpoint out, against which something is held since then. False = too many are out already.
func (h *Health) suspend(e *endpoints.Endpoint, f *file, why messages.Evidence, since, now time.Time) bool {
	if !f.suspended && !h.room() {
		return false
	}
	if f.backoff == 0 || now.Sub(f.healed) > forgetting && !f.suspended {
		f.backoff = h.cfg.First
	} else {
		f.backoff = min(2*f.backoff, h.cfg.Longest)
	}
	if !f.suspended {
		h.metrics.suspended(why)
	}
	f.suspended, f.points, f.failures = true, 0, 0
	e.SetHealth(&endpoints.Health{Suspended: true, Why: why, Since: since, Until: now.Add(f.backoff)})
	return true
}

// room says that one more may be suspended.
func (h *Health) room() bool {
	all, out := h.pool.Snapshot().Endpoints, 0
	for _, e := range all {
		if is := e.Health(); is != nil && is.Suspended {
			out++
		}
	}
	return float64(out+1) <= h.cfg.MaxShare*float64(len(all))
}

// avoid has an endpoint passed by for a moment, and then until a probe is answered well. If it is that already the probe decides, and is
// not put off.
func (h *Health) avoid(e *endpoints.Endpoint, f *file, why messages.Evidence, now time.Time) {
	if e.Health() == nil {
		h.pause(e, f, why, now, now)
	}
}

// pause has an endpoint passed by until the next probe, because of what is held against it since then.
func (h *Health) pause(e *endpoints.Endpoint, f *file, why messages.Evidence, since, now time.Time) {
	e.SetHealth(&endpoints.Health{Why: why, Since: since, Until: now.Add(max(avoided, f.pause))})
}

func (h *Health) onProbeEnded(ctx runtime.Context[messages.HealthMsg], m messages.ProbeEnded) {
	e := h.pool.Snapshot().ByID(m.Endpoint)
	if e == nil {
		return
	}
	h.metrics.seen(m.Evidence)
	f, is := h.file(e), e.Health()
	held := is != nil && is.Since.Equal(m.Since)
	switch unknown := m.Evidence == messages.NoEvidence || m.Evidence == messages.EndedBare; {
	case is == nil && !m.Answered && !unknown && m.Since.Equal(f.forgiven): // its answer began well, and failed after all
		f.forgiven = time.Time{} // once: many may have been picked then
		if m.Evidence.Busy() || !h.suspend(e, f, m.Evidence, ctx.Now(), ctx.Now()) {
			h.pause(e, f, m.Evidence, ctx.Now(), ctx.Now())
		}
	case !held: // it was forgiven meanwhile, and perhaps suspected anew
	case m.Answered:
		h.heal(e, f, is, ctx.Now())
	case unknown: // the next request may try
		e.SetHealth(&endpoints.Health{Suspended: is.Suspended, Why: is.Why, Since: is.Since, Until: is.Until})
		if m.Evidence == messages.EndedBare {
			h.check(ctx, e, f)
		}
	default:
		h.failed(e, f, is, m.Evidence, ctx.Now())
	}
}

// failed has an endpoint left alone that failed a probe: for longer, if it was left alone already; else from now on, unless it was only
// busy, or failed now and then among good answers.
func (h *Health) failed(e *endpoints.Endpoint, f *file, is *endpoints.Health, what messages.Evidence, now time.Time) {
	if f.suspended {
		h.suspend(e, f, what, is.Since, now)
		return
	}
	if what.Busy() {
		f.pause = min(2*max(avoided, f.pause), h.cfg.Longest)
		h.pause(e, f, what, is.Since, now)
		return
	}
	good := e.LastProof()
	if what.InBody() {
		good = e.LastShown()
	}
	again := !is.Why.Busy() && good <= f.newest.UnixNano()
	again = h.count(e, f, what, is.Until, now) || again
	if !again || !h.suspend(e, f, what, is.Since, now) {
		h.pause(e, f, what, is.Since, now)
	}
}

// heal forgives what was held against an endpoint.
func (h *Health) heal(e *endpoints.Endpoint, f *file, is *endpoints.Health, now time.Time) {
	e.SetHealth(nil)
	f.well, f.forgiven, f.pause = now, is.Since, 0
	if !f.suspended {
		return
	}
	f.suspended, f.points, f.failures, f.healed = false, 0, 0, now
	f.window = time.Time{}
	h.metrics.healed.Inc()
}

// check has somebody connect to an endpoint, at most once a second.
func (h *Health) check(ctx runtime.Context[messages.HealthMsg], e *endpoints.Endpoint, f *file) {
	if f.checking || ctx.Now().Sub(f.checked) < checkEvery {
		return
	}
	if h.checker.Check(e.ID, e.Spec.Address, ctx.Self()) {
		f.checking, f.checked = true, ctx.Now()
	}
}

func (h *Health) onEndpointChecked(ctx runtime.Context[messages.HealthMsg], m messages.EndpointChecked) {
	e := h.pool.Snapshot().ByID(m.Endpoint)
	if e == nil {
		return
	}
	f := h.file(e)
	f.checking = false
	if m.Connected {
		return
	}
	h.metrics.seen(messages.ConnectFailed)
	switch {
	case !f.suspended:
		h.weigh(e, f, messages.ConnectFailed, time.Time{}, ctx.Now())
	case !e.Health().Probing():
		h.suspend(e, f, messages.ConnectFailed, e.Health().Since, ctx.Now())
	}
}

// file finds the file of an endpoint, and throws away those of endpoints that are gone.
func (h *Health) file(e *endpoints.Endpoint) *file {
	if f := h.files[e.ID]; f != nil {
		return f
	}
	if s := h.pool.Snapshot(); len(h.files) > 2*len(s.Endpoints) {
		for id := range h.files {
			if s.ByID(id) == nil {
				delete(h.files, id)
			}
		}
	}
	f := &file{}
	h.files[e.ID] = f
	return f
}

// Stopped forgives everybody: without this actor nobody would let them back.
func (h *Health) Stopped(runtime.Context[messages.HealthMsg]) {
	for _, e := range h.pool.Snapshot().Endpoints {
		e.SetHealth(nil)
	}
}
