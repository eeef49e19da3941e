package cycle

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// Metrics observe for one loop: handles are looked up once for each set of labels.
type Metrics struct {
	*Families
	sets   map[labelSet]*meter
	models map[string]struct{}
	flows  map[string]struct{}
	other  *meter // nil until it is needed
}

type labelSet struct {
	model, fairness string
	priority        int
}

// meter observes requests of one set of labels.
type meter struct {
	*Families
	labels                                            []string
	errors                                            map[int]prometheus.Counter // by status, or by the negative of a reason
	arrivals, dispatches                              prometheus.Counter
	live                                              prometheus.Gauge
	took, bodies, answers, wait, tokenTime, streamed  prometheus.Observer
	prompts, cachedTokens, outputs, streamTTFT, ttft1 prometheus.Observer
}

const labelValues = 1000 // distinct models, and flows, that a loop names; the rest is "other"

// ForLoop gives the Metrics of one loop.
func (f *Families) ForLoop() *Metrics {
	return &Metrics{Families: f, sets: map[labelSet]*meter{}, models: map[string]struct{}{}, flows: map[string]struct{}{}}
}

// capped keeps label values few and clean: they come from clients.
func capped(seen map[string]struct{}, v string) string {
	if _, ok := seen[v]; !ok {
		if len(seen) >= labelValues {
			return "other"
		}
		seen[v] = struct{}{}
	}
	return strings.ToValidUTF8(v, "�")
}

func (m *Metrics) of(r *messages.Record) *meter {
	key := labelSet{r.Model, r.Flow.Fairness, r.Flow.Priority}
	if h, ok := m.sets[key]; ok {
		return h
	}
	if len(m.sets) >= labelValues { // the product of models and flows is bounded too
		return m.rest()
	}
	h := m.meter(capped(m.models, r.Model), capped(m.flows, r.Flow.Fairness), strconv.Itoa(r.Flow.Priority))
	m.sets[key] = h
	return h
}

func (m *Metrics) meter(model, fairness, priority string) *meter {
	l := []string{model, model, fairness, priority}
	const dispatched = "Dispatched"
	return &meter{
		Families: m.Families, labels: l, errors: map[int]prometheus.Counter{},
		arrivals: m.total.WithLabelValues(l...), live: m.running.WithLabelValues(l...),
		took: m.duration.WithLabelValues(l...), bodies: m.size.WithLabelValues(l...), answers: m.response.WithLabelValues(l...),
		tokenTime: m.ntpot.WithLabelValues(l...), streamed: m.tpot.WithLabelValues(l...),
		prompts: m.input.WithLabelValues(l...), cachedTokens: m.cached.WithLabelValues(l...), outputs: m.output.WithLabelValues(l...),
		streamTTFT: m.ttft.WithLabelValues(append(l, "true")...), ttft1: m.ttft.WithLabelValues(append(l, "false")...),
		dispatches: m.admitted.WithLabelValues(dispatched, priority), wait: m.queued.WithLabelValues(append(l, dispatched)...),
	}
}

// rest is where all goes that finds no set of its own. It takes the one place beyond the limit.
func (m *Metrics) rest() *meter {
	if m.other == nil {
		m.other = m.meter("other", "other", "0")
	}
	return m.other
}

// arrived counts a request and gives what the rest of its life is observed with.
func (m *Metrics) arrived(r *messages.Record) *meter {
	h := m.of(r)
	h.arrivals.Inc()
	h.live.Inc()
	h.bodies.Observe(float64(r.BodyBytes))
	return h
}

// Refused counts a request that never had a cycle.
func (m *Metrics) Refused(r *messages.Record) { m.arrived(r).ended(r) }

func (h *meter) dispatched(waited time.Duration) {
	h.dispatches.Inc()
	h.wait.Observe(waited.Seconds())
}

func (h *meter) scheduled(took time.Duration, why messages.Reason) {
	h.scheduling.Observe(took.Seconds())
	if why != messages.NoReason {
		h.failures.Add(h.model())
	}
}

// picked counts a pick. hit is how many of the prompt's blocks the endpoint held; -1 = nobody looked.
func (h *meter) picked(e *endpoints.Endpoint, hit, blocks int) {
	e.Models.Add(h.model())
	if hit >= 0 && blocks > 0 {
		h.hitRatio.Observe(float64(hit) / float64(blocks))
		h.hitBytes.Observe(float64(hit * blockindex.BlockBytes))
	}
}

func (h *meter) model() string { return h.labels[1] }

// answered observes how long a request took to its pick.
func (h *meter) answered(took time.Duration) { h.processing.Observe(took.Seconds()) }

func (h *meter) ended(r *messages.Record) {
	h.live.Dec()
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
	if r.Usage.PromptTokens > 0 {
		h.prompts.Observe(float64(r.Usage.PromptTokens))
		h.cachedTokens.Observe(float64(r.Usage.CachedTokens))
	}
	if r.Usage.OutputTokens <= 0 {
		return
	}
	h.outputs.Observe(float64(r.Usage.OutputTokens))
	h.tokenTime.Observe(r.Ended.Seconds() / float64(r.Usage.OutputTokens))
	if each, ok := perToken(r.Ended, r.FirstToken, r.Usage.OutputTokens); ok && r.Stream {
		h.streamed.Observe(each)
	}
}

// failure is the counter of what went wrong, by the name of our reason or the model server's status.
func (h *meter) failure(r *messages.Record) prometheus.Counter {
	key, name := r.Status, "other"
	switch {
	case r.Reason != messages.NoReason:
		key = -int(r.Reason)
	case r.Status > 599:
		key = 600
	}
	if c, ok := h.errors[key]; ok {
		return c
	}
	if key < 0 {
		name = r.Reason.String()
	} else if key < 600 {
		name = strconv.Itoa(key)
	}
	c := h.failed.WithLabelValues(append(h.labels[:4:4], name)...)
	h.errors[key] = c
	return c
}
