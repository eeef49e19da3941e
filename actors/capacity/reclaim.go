package capacity

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/reclaim"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// reclaiming has running requests end for those that wait, a few at a time, in rounds:
//
//	       a turn fails, and there are victims                  the last of them has ended
//	idle ─────────────────────────────────────► revoking ──────────────────────────────────► settling
//	 ▲  ▲                                        │    │                                         │
//	 │  └─── none of them can be ended ──────────┘    │ ReclaimDue: some have not ended         │ ReclaimDue
//	 └────────────────────────────────────────────────┴─────────────────────────────────────────┘
//
// Outside of idle no further request is ended: what was freed has to show first. On the way back to idle turns are
// tried again.
type reclaiming struct {
	running *reclaim.Victims                 // that have not been told to end
	revoked map[messages.RequestID]time.Time // that have, and when; empty unless the round is revoking
	ended   bool                             // one of the round has ended
	round   uint64                           // from 1
	timer   runtime.Timer                    // nil = idle
}

const (
	// mostRevoked is how many requests are ended in one round, and no more than wait.
	mostRevoked = 2
	// revokedWithin is how long a round takes at most, until the next one.
	revokedWithin = 10 * time.Second
)

// newReclaiming returns one under which no request runs. caught has the panics of policies.
func newReclaiming(caught *flow.Caught) reclaiming {
	panicked := func(by reclaim.Policy, value any) { caught.Note("eviction policy", by.Type, value) }
	return reclaiming{running: reclaim.NewVictims(panicked), revoked: map[messages.RequestID]time.Time{}}
}

func (a *Capacity) onServingStarted(m messages.ServingStarted) {
	if _, revoked := a.reclaim.revoked[m.Request]; !revoked {
		a.reclaim.running.Put(&reclaim.Running{
			Request: m.Request, Flow: m.Flow, Endpoint: m.Endpoint, Since: m.At, Cycle: m.Cycle,
		})
	}
}

// onServingEnded goes on once all of the round have ended, or cannot be ended.
func (a *Capacity) onServingEnded(ctx runtime.Context[messages.CapacityMsg], m messages.ServingEnded) {
	r := &a.reclaim
	r.running.Remove(m.Request)
	told, ok := r.revoked[m.Request]
	if !ok {
		return
	}
	delete(r.revoked, m.Request)
	if m.RunsOn {
		a.deps.Metrics.refused.Inc()
	} else {
		r.ended = true
		a.deps.Metrics.confirmed.Inc()
		a.deps.Metrics.confirming.Observe(ctx.Now().Sub(told).Seconds())
	}
	if len(r.revoked) > 0 {
		return
	}
	r.timer.Cancel()
	r.timer = nil
	if !r.ended {
		a.onRoomChanged(messages.EndpointID{}) // there may be others
		return
	}
	r.timer = ctx.After(a.deps.Settings().Settles, messages.ReclaimDue{Round: r.round})
}

func (a *Capacity) onReclaimDue(m messages.ReclaimDue) {
	r := &a.reclaim
	if m.Round != r.round || r.timer == nil {
		return
	}
	a.deps.Metrics.late.Add(float64(len(r.revoked)))
	clear(r.revoked)
	r.timer = nil
	a.onRoomChanged(messages.EndpointID{})
}

// reclaimFor ends running requests of lower priority for one that found no room at these endpoints.
func (a *Capacity) reclaimFor(
	ctx runtime.Context[messages.CapacityMsg], e *flow.Entry, lacking messages.List[messages.EndpointID],
) {
	r, s := &a.reclaim, a.deps.Settings()
	if len(s.Evictions) == 0 || r.timer != nil || a.line.Closed() {
		return
	}
	want := int64(0)
	for f := range a.queues.Fills() {
		if f.Priority >= e.Flow.Priority {
			want += f.Waiting.Requests
		}
	}
	chosen := r.running.Choose(s.Evictions, int(min(want, mostRevoked)), e.Flow.Priority, lacking)
	for _, v := range chosen {
		r.running.Remove(v.Request)
		if v.Cycle.Tell(messages.Revoked{
			Reason: messages.Preempted, RetryAfter: a.drain.whole(a.queues.Total().Requests),
		}) {
			r.revoked[v.Request] = ctx.Now()
			a.deps.Metrics.revokes(v.Flow.Priority)
		}
	}
	if len(r.revoked) > 0 {
		r.round++
		r.ended = false
		r.timer = ctx.After(revokedWithin, messages.ReclaimDue{Round: r.round})
	}
	a.deps.Metrics.target.Set(float64(len(r.revoked)))
}

// evictionMetrics are those of requests that are ended while they run.
type evictionMetrics struct {
	issued                   *prometheus.CounterVec
	priorities               map[int]prometheus.Counter // at most mostBands
	confirmed, late, refused prometheus.Counter         // revocations by how they ended
	confirming               prometheus.Histogram
	target, pending          prometheus.Gauge
}

// confirmingBuckets are the reference's.
var confirmingBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

func newEvictionMetrics(r prometheus.Registerer, pool string) (*evictionMetrics, error) {
	label := prometheus.Labels{"inference_pool": pool}
	counter := func(name, help, by string) *prometheus.CounterVec {
		opts := prometheus.CounterOpts{Name: reference + name, Help: help, ConstLabels: label}
		return prometheus.NewCounterVec(opts, []string{by})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: reference + name, Help: help, ConstLabels: label})
	}
	ended := counter("revocations_total", "Of those, how they ended: confirmed, refused because the response goes on "+
		"without us, timed_out after ten seconds.", "outcome")
	m := &evictionMetrics{
		issued: counter("revocations_issued_total", "Running requests that were told to end for one of higher "+
			"priority, by their own.", "priority"),
		priorities: map[int]prometheus.Counter{},
		confirmed:  ended.WithLabelValues("confirmed"), late: ended.WithLabelValues("timed_out"),
		refused: ended.WithLabelValues("refused"),
		confirming: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: reference + "revocation_confirmation_seconds", Buckets: confirmingBuckets, ConstLabels: label,
			Help: "From there until the request had ended.",
		}),
		target:  gauge("reclaim_target", "Requests that the newest round of revocations was to end."),
		pending: gauge("pending_reclaim", "Those of them that have not ended."),
	}
	for _, c := range []prometheus.Collector{m.issued, ended, m.confirming, m.target, m.pending} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// revokes counts a request that is told to end.
func (m *evictionMetrics) revokes(priority int) {
	c := m.priorities[priority]
	if c == nil {
		name := strconv.Itoa(priority)
		if len(m.priorities) >= mostBands {
			name = "other"
		}
		c = m.issued.WithLabelValues(name)
		if name != "other" {
			m.priorities[priority] = c
		}
	}
	c.Inc()
}
