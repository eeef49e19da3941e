package cycle

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// meter observes requests of one set of labels, those of all loops.
type meter struct {
	*Families
	labels                                            []string
	arrivals, dispatches                              prometheus.Counter
	live                                              prometheus.Gauge
	took, bodies, answers, wait, tokenTime, streamed  prometheus.Observer
	prompts, cachedTokens, outputs, streamTTFT, ttft1 prometheus.Observer

	codes  atomic.Int32                                // error codes that have a counter
	errors [otherCode + 1]atomic.Pointer[errorCounter] // by code; nil = none was needed yet
}

type errorCounter struct{ prometheus.Counter }

// Codes of errors: our reasons, the HTTP statuses of model servers, and one for all others.
const (
	firstStatusCode = 32
	otherCode       = firstStatusCode + 200
)

func newMeter(f *Families, set labelSet) *meter {
	l := []string{set.model, set.model, set.fairness, strconv.Itoa(set.priority)}
	const dispatched = "Dispatched"
	return &meter{
		Families: f, labels: l,
		arrivals: f.total.WithLabelValues(l...), live: f.running.WithLabelValues(l...),
		took: f.duration.WithLabelValues(l...), bodies: f.size.WithLabelValues(l...),
		answers:   f.response.WithLabelValues(l...),
		tokenTime: f.ntpot.WithLabelValues(l...), streamed: f.tpot.WithLabelValues(l...),
		prompts: f.input.WithLabelValues(l...), cachedTokens: f.cached.WithLabelValues(l...),
		outputs:    f.output.WithLabelValues(l...),
		streamTTFT: f.ttft.WithLabelValues(append(l, "true")...), ttft1: f.ttft.WithLabelValues(append(l, "false")...),
		dispatches: f.admitted.WithLabelValues(dispatched, l[3]),
		wait:       f.queued.WithLabelValues(append(l, dispatched)...),
	}
}

// account is what one request counts under. While its names are not known it counts as running only, under other in
// their place: they may become known by its own answer. Then, or at its end, the account is settled, and catches up on
// the rest.
type account struct {
	*meter
	settled    bool
	dispatched bool                // while it is not settled: the request left the line
	picked     *endpoints.Endpoint // likewise: what was picked for it
	away       bool                // the request is not among those in flight
}

// arrived opens the account of a request.
func (f *Families) arrived(r *messages.Record) account {
	m, known := f.meter(r)
	a := account{meter: m, settled: known}
	m.live.Inc()
	if known {
		m.arrived(r)
	}
	return a
}

// unseen is the account of a conformance checker's request: what it comes to is no news of the model servers.
func (f *Families) unseen() account { return account{meter: f.checks, settled: true, away: true} }

// leave takes the request out of those in flight, and comeBack makes it one again.
func (a *account) leave() {
	if !a.away {
		a.away = true
		a.live.Dec()
	}
}

func (a *account) comeBack() {
	a.away = false
	a.live.Inc()
}

// Refused counts a request that never had a cycle.
func (f *Families) Refused(r *messages.Record) {
	a := f.arrived(r)
	a.ended(r)
}

// responded looks at the head of the response: one below 400 makes the request's names known.
func (a *account) responded(r *messages.Record) {
	if answeredWell(r) {
		a.settle(r)
	}
}

// answeredWell reports whether a model server answered a request below 400.
func answeredWell(r *messages.Record) bool { return r.Status > 0 && r.Status < 400 && r.Local == "" }

func (a *account) settle(r *messages.Record) {
	if a.settled {
		return
	}
	if answeredWell(r) {
		a.Families.labels.answered(r)
	}
	before := a.meter
	a.meter, _ = a.Families.meter(r)
	a.settled = true
	if !a.away {
		a.live.Inc()
		before.live.Dec()
	}
	a.meter.arrived(r)
	if a.dispatched {
		a.wait.Observe(r.QueueWait.Seconds())
	}
	if a.picked != nil {
		endpoints.LoadWriter{Endpoint: a.picked}.CountModel(a.model())
		a.picked = nil
	}
}

func (a *account) onDispatched(waited time.Duration) {
	a.dispatches.Inc()
	a.dispatched = true
	if a.settled {
		a.wait.Observe(waited.Seconds())
	}
}

func (a *account) onScheduled(took time.Duration, why messages.Reason) {
	a.scheduling.Observe(took.Seconds())
	if why != messages.NoReason {
		a.failures.Add(a.model())
	}
}

// onPicked counts a pick. hit is how many of the prompt's blocks the endpoint held; -1 = nothing looked.
func (a *account) onPicked(e *endpoints.Endpoint, hit, blocks int) {
	if a.settled {
		endpoints.LoadWriter{Endpoint: e}.CountModel(a.model())
	} else {
		a.picked = e
	}
	if hit >= 0 && blocks > 0 {
		a.hitRatio.Observe(float64(hit) / float64(blocks))
		a.hitBytes.Observe(float64(hit * blockindex.BlockBytes))
	}
}

// onAnswered observes how long a request took to its pick.
func (a *account) onAnswered(took time.Duration) { a.processing.Observe(took.Seconds()) }

func (a *account) ended(r *messages.Record) {
	a.settle(r)
	a.leave()
	a.meter.ended(r)
}

func (h *meter) model() string { return h.labels[1] }

func (h *meter) arrived(r *messages.Record) {
	h.arrivals.Inc()
	h.bodies.Observe(float64(r.BodyBytes))
}

func (h *meter) ended(r *messages.Record) {
	if r.Reason != messages.NoReason || r.Status >= 400 {
		h.failure(r).Inc()
	}
	h.took.Observe(r.Ended.Seconds())
	if r.ResponseBytes > 0 || r.Reason == messages.NoReason && r.Status > 0 {
		h.answers.Observe(float64(r.ResponseBytes))
	}
	h.tokens(r)
}

func (h *meter) tokens(r *messages.Record) {
	if r.FirstToken > 0 && r.Stream {
		h.streamTTFT.Observe(r.FirstToken.Seconds())
	} else if r.FirstToken > 0 {
		h.ttft1.Observe(r.FirstToken.Seconds())
	}
	h.usage[r.Usage.Source].Inc()
	if r.Usage.PromptTokens > 0 {
		h.prompts.Observe(float64(r.Usage.PromptTokens))
		h.cachedTokens.Observe(float64(r.Usage.CachedTokens))
	}
	total, known := h.outputTokens[r.Usage.Source]
	if !known || r.Usage.OutputTokens <= 0 {
		return
	}
	total.Add(float64(r.Usage.OutputTokens))
	h.outputs.Observe(float64(r.Usage.OutputTokens))
	h.tokenTime.Observe(r.Ended.Seconds() / float64(r.Usage.OutputTokens))
	if each, ok := perToken(r.Ended, r.FirstToken, r.Usage.OutputTokens); ok && r.Stream {
		h.streamed.Observe(each)
	}
}

// failure is the counter of what went wrong, by the name of our reason or the model server's status.
func (h *meter) failure(r *messages.Record) prometheus.Counter {
	code, name := otherCode, other
	switch {
	case r.Reason != messages.NoReason && r.Reason < firstStatusCode:
		code, name = int(r.Reason), r.Reason.String()
	case r.Reason == messages.NoReason && r.Status < 600:
		code = firstStatusCode + r.Status - 400
	}
	if c := h.errors[code].Load(); c != nil {
		return c
	}
	if code != otherCode && h.codes.Add(1) >= errorCodes { // the last place is that of all others
		h.codes.Add(-1)
		code, name = otherCode, other
	} else if code >= firstStatusCode && code < otherCode {
		name = strconv.Itoa(r.Status)
	}
	c := &errorCounter{h.failed.WithLabelValues(append(h.labels[:4:4], name)...)}
	if !h.errors[code].CompareAndSwap(nil, c) && code != otherCode { // another loop was faster
		h.codes.Add(-1)
	}
	return c
}
