package cycle

import (
	"cmp"
	"sort"
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
	set                                                   labelSet
	labels                                                []string
	arrivals, dispatches                                  prometheus.Counter
	live                                                  prometheus.Gauge
	took, bodies, answers, wait, tokenTime, streamed      prometheus.Observer
	prompts, cachedTokens, outputs, streamTTFT, plainTTFT prometheus.Observer

	pace paceCounters

	tookShown, streamTTFTShown, plainTTFTShown shown

	codes  atomic.Int32                                // error codes that have a counter
	errors [otherCode + 1]atomic.Pointer[errorCounter] // by code; nil = none was needed yet

	// Metrics of requests that have to wait, or leave the line without a pick. Most sets need none of them. Each is
	// made when it is needed first, if the page has room for it then; if not, the request counts under rest.

	waits   atomic.Pointer[depth]
	entries [messages.Outcomes]atomic.Pointer[entry]
	endings [messages.Outcomes]atomic.Pointer[ending]
}

type errorCounter struct{ prometheus.Counter }

// Codes of errors: our reasons, the HTTP statuses of model servers, and one for all others.
const (
	firstStatusCode = 32
	otherCode       = firstStatusCode + 200
)

func newMeter(f *Families, set labelSet) *meter {
	l := []string{set.model, set.targetModel(), set.fairness, strconv.Itoa(set.priority)}
	dispatched := messages.OutcomeDispatched.String()
	return &meter{
		Families: f, set: set, labels: l,
		arrivals: f.total.WithLabelValues(l...), live: f.running.WithLabelValues(l...),
		took: f.duration.WithLabelValues(l...), bodies: f.size.WithLabelValues(l...),
		answers:   f.response.WithLabelValues(l...),
		tokenTime: f.ntpot.WithLabelValues(l...), streamed: f.tpot.WithLabelValues(l...),
		prompts: f.input.WithLabelValues(l...), cachedTokens: f.cached.WithLabelValues(l...),
		outputs:    f.output.WithLabelValues(l...),
		streamTTFT: f.ttft.WithLabelValues(append(l, "true")...),
		plainTTFT:  f.ttft.WithLabelValues(append(l, "false")...),
		dispatches: f.line.admitted.WithLabelValues(dispatched, l[3]),
		wait:       f.line.queued.WithLabelValues(append(l, dispatched)...),
	}
}

// account says where one request is counted. While one of its names is unknown, the request counts only as running,
// with other for that name: its own answer may make the name known. Then, or at its end, the account is settled: it
// gets its final meter and counts there what it has put off.
type account struct {
	*meter
	settled bool                // the meter is final
	picked  *endpoints.Endpoint // while not settled: the endpoint that was picked; nil = none
	split   *split              // while not settled: how the request was split; nil = not, or it is counted
	away    bool                // the request is not among those in flight
	inLine  accountOfWait
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
	a.settleWait(r)
	if a.picked != nil {
		endpoints.LoadWriter{Endpoint: a.picked}.CountModel(a.model())
		a.picked = nil
	}
	if a.split != nil {
		a.countSplit(*a.split)
		a.split = nil
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

// paced counts how the events of a streamed response came, if it was answered well.
func (a *account) paced(r *messages.Record, p *messages.Pace) {
	if r.Stream && answeredWell(r) {
		a.settle(r)
		a.pace.add(p)
	}
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
	m.leftInVain(r)
	m.observe(m.took, &m.tookShown, r, r.Ended)
	if r.ResponseBytes > 0 || r.Reason == messages.NoReason && r.Status > 0 {
		m.answers.Observe(float64(r.ResponseBytes))
	}
	m.tokens(r)
}

func (m *meter) tokens(r *messages.Record) {
	if r.FirstToken > 0 && r.Stream {
		m.observe(m.streamTTFT, &m.streamTTFTShown, r, r.FirstToken)
	} else if r.FirstToken > 0 {
		m.observe(m.plainTTFT, &m.plainTTFTShown, r, r.FirstToken)
	}
	m.usage[r.Usage.Source].Inc()
	if r.Usage.PromptTokens > 0 {
		m.prompts.Observe(float64(r.Usage.PromptTokens))
	}
	if r.Usage.CachedKnown {
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

// shown has the second in which each bucket of a histogram was last given an exemplar. The last one has no bound.
type shown [maxBuckets + 1]atomic.Uint32

const maxBuckets = 35

// observe observes a duration of a request. The request becomes the exemplar of its bucket, if the bucket has got none
// within this second: an exemplar costs more than all other metrics of a request.
func (m *meter) observe(in prometheus.Observer, last *shown, r *messages.Record, took time.Duration) {
	second := uint32(r.ArrivedAt.Add(r.Ended).Unix())
	bucket := &last[sort.SearchFloat64s(durationBuckets, took.Seconds())]
	with, can := in.(prometheus.ExemplarObserver)
	if m.id == nil || !can || bucket.Load() == second || bucket.Swap(second) == second {
		in.Observe(took.Seconds())
		return
	}
	with.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"request_id": m.id(r.Request)})
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

// depth is how many requests wait, and the bytes of their bodies, each under both names.
type depth struct{ requests, bytes [2]prometheus.Gauge }

// add counts requests of the same length, which may be fewer than none.
func (d *depth) add(requests, bytes int64) {
	for i := range d.requests {
		d.requests[i].Add(float64(requests))
		d.bytes[i].Add(float64(requests * bytes))
	}
}

// entry is how long it took to be let into the line, or not to be.
type entry struct{ took prometheus.Observer }

// ending is how many requests left the line with an outcome, and after how long.
type ending struct {
	total prometheus.Counter
	took  prometheus.Observer
}

// needed returns the metrics at one place of a meter, and makes them if there are none yet. at returns the place, and
// fresh makes them.
func needed[T any](m *meter, c *cost, at func(*meter) *atomic.Pointer[T], fresh func(*meter) *T) *T {
	if made := at(m).Load(); made != nil {
		return made
	}
	bytes := c.of(m.set)
	if m.set != rest && !m.Families.labels.reserve(bytes, room(m.set)) {
		return needed(m.admit(rest), c, at, fresh)
	}
	made := fresh(m)
	if !at(m).CompareAndSwap(nil, made) { // another loop was faster: its series are the same
		if m.set != rest {
			m.Families.labels.taken.Add(-bytes)
		}
	}
	return at(m).Load()
}

func (m *meter) depth() *depth {
	return needed(m, &m.line.depthCost, func(m *meter) *atomic.Pointer[depth] { return &m.waits },
		func(m *meter) *depth {
			d := &depth{}
			for i := range d.requests {
				d.requests[i] = m.line.size[i].WithLabelValues(m.labels...)
				d.bytes[i] = m.line.bytes[i].WithLabelValues(m.labels...)
			}
			return d
		})
}

func (m *meter) entry(how messages.Outcome) *entry {
	return needed(m, &m.line.entryCost, func(m *meter) *atomic.Pointer[entry] { return &m.entries[how] },
		func(m *meter) *entry {
			return &entry{m.line.enqueue.WithLabelValues(m.set.fairness, m.labels[3], how.String())}
		})
}

func (m *meter) ending(how messages.Outcome) *ending {
	return needed(m, &m.line.endingCost, func(m *meter) *atomic.Pointer[ending] { return &m.endings[how] },
		func(m *meter) *ending {
			return &ending{
				m.line.admitted.WithLabelValues(how.String(), m.labels[3]),
				m.line.queued.WithLabelValues(append(m.labels[:4:4], how.String())...),
			}
		})
}

// accountOfWait says where the wait of one request is counted.
type accountOfWait struct {
	depth *depth // where the request counts as waiting; nil = it does not wait

	// While the account is not settled:

	dispatched bool             // the request left the queue
	entered    messages.Outcome // what became of its asking for a place; NoOutcome = it did not ask
	took       time.Duration    // until then
}

// joined counts a request that waits, and how long it took to be let into the line.
func (a *account) joined(r *messages.Record, took time.Duration) {
	a.inLine.depth = a.depth()
	a.inLine.depth.add(1, r.BodyBytes)
	a.enter(messages.OutcomeNotYetFinalized, took)
}

// enter counts how long it took to be let into the line, or not to be.
func (a *account) enter(how messages.Outcome, took time.Duration) {
	if a.settled {
		a.entry(how).took.Observe(took.Seconds())
		return
	}
	a.inLine.entered, a.inLine.took = how, took
}

// onLeft takes the request out of those that wait, if it is one of them.
func (a *account) onLeft(r *messages.Record) {
	if d := a.inLine.depth; d != nil {
		d.add(-1, r.BodyBytes)
		a.inLine.depth = nil
	}
}

func (a *account) onDispatched(waited time.Duration) {
	a.dispatches.Inc()
	a.inLine.dispatched = true
	if a.settled {
		a.wait.Observe(waited.Seconds())
	}
}

// settleWait counts in the final meter what was put off.
func (a *account) settleWait(r *messages.Record) {
	if a.inLine.dispatched {
		a.wait.Observe(r.QueueWait.Seconds())
	}
	if how := a.inLine.entered; how != messages.NoOutcome {
		a.enter(how, a.inLine.took)
	}
}

// leftInVain counts a request that left the line without a pick, or was not let into it.
func (m *meter) leftInVain(r *messages.Record) {
	switch how := r.Wait.Outcome; how {
	case messages.NoOutcome, messages.OutcomeNotYetFinalized, messages.OutcomeDispatched:
	default:
		e := m.ending(how)
		e.total.Inc()
		e.took.Observe(r.QueueWait.Seconds())
	}
}
