package cycle

import (
	"cmp"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// meter has the metrics of the requests with one set of labels, of all loops.
type meter struct {
	*Families
	labels                                                []string
	arrivals, dispatches                                  prometheus.Counter
	live                                                  prometheus.Gauge
	took, bodies, answers, wait, tokenTime, streamed      prometheus.Observer
	prompts, cachedTokens, outputs, streamTTFT, plainTTFT prometheus.Observer

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
	l := []string{set.model, set.targetModel(), set.fairness, strconv.Itoa(set.priority)}
	const dispatched = "Dispatched"
	return &meter{
		Families: f, labels: l,
		arrivals: f.total.WithLabelValues(l...), live: f.running.WithLabelValues(l...),
		took: f.duration.WithLabelValues(l...), bodies: f.size.WithLabelValues(l...),
		answers:   f.response.WithLabelValues(l...),
		tokenTime: f.ntpot.WithLabelValues(l...), streamed: f.tpot.WithLabelValues(l...),
		prompts: f.input.WithLabelValues(l...), cachedTokens: f.cached.WithLabelValues(l...),
		outputs:    f.output.WithLabelValues(l...),
		streamTTFT: f.ttft.WithLabelValues(append(l, "true")...),
		plainTTFT:  f.ttft.WithLabelValues(append(l, "false")...),
		dispatches: f.admitted.WithLabelValues(dispatched, l[3]),
		wait:       f.queued.WithLabelValues(append(l, dispatched)...),
	}
}

// account says where one request is counted. While one of its names is unknown, the request counts only as running,
// with other for that name: its own answer may make the name known. Then, or at its end, the account is settled: it
// gets its final meter and counts there what it has put off.
type account struct {
	*meter
	settled    bool                // the meter is final
	dispatched bool                // while not settled: the request left the queue
	picked     *endpoints.Endpoint // while not settled: the endpoint that was picked; nil = none
	split      *split              // while not settled: how the request was split; nil = not, or it is counted
	away       bool                // the request is not among those in flight
}

// split is how a profile handler split a request between servers.
type split struct {
	by  schedule.HandlerLabels
	how string
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

// unseen returns the account of a conformance checker's request, which no page shows.
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

// responded settles the account if the response's status is below 400, which makes the request's names known.
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
	if a.split != nil {
		a.countSplit(*a.split)
		a.split = nil
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

// onSplit counts how a request was split.
func (a *account) onSplit(s split) {
	if a.settled {
		a.countSplit(s)
		return
	}
	later := s
	a.split = &later
}

func (m *meter) countSplit(s split) {
	m.splits.WithLabelValues(s.by.Name, s.by.Type, cmp.Or(m.model(), "unknown"), s.how).Inc()
}

// onAnswered observes how long a request took to its pick.
func (a *account) onAnswered(took time.Duration) { a.processing.Observe(took.Seconds()) }

func (a *account) ended(r *messages.Record) {
	a.settle(r)
	a.leave()
	a.meter.ended(r)
}

func (m *meter) model() string { return m.labels[1] }

func (m *meter) arrived(r *messages.Record) {
	m.arrivals.Inc()
	m.bodies.Observe(float64(r.BodyBytes))
}

func (m *meter) ended(r *messages.Record) {
	if r.Reason != messages.NoReason || r.Status >= 400 {
		m.failure(r).Inc()
	}
	m.took.Observe(r.Ended.Seconds())
	if r.ResponseBytes > 0 || r.Reason == messages.NoReason && r.Status > 0 {
		m.answers.Observe(float64(r.ResponseBytes))
	}
	m.tokens(r)
}

func (m *meter) tokens(r *messages.Record) {
	if r.FirstToken > 0 && r.Stream {
		m.streamTTFT.Observe(r.FirstToken.Seconds())
	} else if r.FirstToken > 0 {
		m.plainTTFT.Observe(r.FirstToken.Seconds())
	}
	m.usage[r.Usage.Source].Inc()
	if r.Usage.PromptTokens > 0 {
		m.prompts.Observe(float64(r.Usage.PromptTokens))
		m.cachedTokens.Observe(float64(r.Usage.CachedTokens))
	}
	total, known := m.outputTokens[r.Usage.Source]
	if !known || r.Usage.OutputTokens <= 0 {
		return
	}
	total.Add(float64(r.Usage.OutputTokens))
	m.outputs.Observe(float64(r.Usage.OutputTokens))
	m.tokenTime.Observe(r.Ended.Seconds() / float64(r.Usage.OutputTokens))
	if each, ok := perToken(r.Ended, r.FirstToken, r.Usage.OutputTokens); ok && r.Stream {
		m.streamed.Observe(each)
	}
}

// failure returns the counter of what went wrong, by the name of our reason or by the model server's status.
func (m *meter) failure(r *messages.Record) prometheus.Counter {
	code, name := otherCode, other
	switch {
	case r.Reason != messages.NoReason && r.Reason < firstStatusCode:
		code, name = int(r.Reason), r.Reason.String()
	case r.Reason == messages.NoReason && r.Status < 600:
		code = firstStatusCode + r.Status - 400
	}
	if c := m.errors[code].Load(); c != nil {
		return c
	}
	if code != otherCode && m.codes.Add(1) >= errorCodes { // the last counter is for all other codes
		m.codes.Add(-1)
		code, name = otherCode, other
	} else if code >= firstStatusCode && code < otherCode {
		name = strconv.Itoa(r.Status)
	}
	c := &errorCounter{m.failed.WithLabelValues(append(m.labels[:4:4], name)...)}
	if !m.errors[code].CompareAndSwap(nil, c) && code != otherCode { // another loop was faster
		m.codes.Add(-1)
	}
	return c
}
