package kube

import (
	"container/list"
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/signalbox-epp/signalbox/engine/runtime/supervise"
)

// problems are what is wrong now, by what it is about: a call to the API server or an object. What it takes to note or
// to end one does not grow with their number, for it is the loop of Run that does it, also for a list of objects that
// are all invalid.
type problems struct {
	report  func(error)
	metrics *metrics
	open    map[string]*problem
	calls   list.List // those that are stale, oldest first
	others  list.List // those that are needed and not stale, oldest first
}

type problem struct {
	reason, text string
	since        time.Time
	needed       bool          // it is about what endpoints come from
	stale        bool          // it is needed, and what is known of endpoints may have changed since
	place        *list.Element // in calls or others; nil if it is not needed
}

func newProblems(report func(error), m *metrics) problems {
	return problems{report: report, metrics: m, open: map[string]*problem{}}
}

// invalid is an error of an object.
type invalid struct{ error }

// IsInvalidObject reports whether a problem is that an object cannot be used as it is.
func IsInvalidObject(err error) bool {
	var object invalid
	return errors.As(err, &object)
}

// note counts a problem, and reports it unless it is known by its reason.
func (p *problems) note(about string, r resource, err error) {
	object := IsInvalidObject(err)
	now := &problem{reason: reasonOf(err), text: err.Error(), since: time.Now(), needed: !r.optional}
	now.stale = now.needed && !object
	p.metrics.errors.WithLabelValues(r.String(), now.reason).Inc()
	before := p.open[about]
	told := before != nil && before.reason == now.reason && (!object || before.text == now.text)
	p.set(about, now)
	if p.report != nil && !told {
		p.report(supervise.WithStack(err))
	}
}

// begin has a problem that is no failed call, since a time. It is about what is known of endpoints if stale is set.
func (p *problems) begin(about string, since time.Time, stale bool, err error) {
	p.set(about, &problem{reason: about, text: err.Error(), since: since, needed: true, stale: stale})
	if p.report != nil {
		p.report(err)
	}
}

// set has a problem open, or changes it, which keeps since when it is and its place.
func (p *problems) set(about string, now *problem) {
	if before := p.open[about]; before != nil {
		before.reason, before.text = now.reason, now.text
		return
	}
	p.open[about] = now
	if in := p.listOf(now); in != nil {
		now.place = in.PushBack(now)
	}
	p.noteStale()
}

// listOf returns the list that a problem is in; nil = none.
func (p *problems) listOf(one *problem) *list.List {
	switch {
	case one.stale:
		return &p.calls
	case one.needed:
		return &p.others
	}
	return nil
}

// end ends a problem, if there is one.
func (p *problems) end(about string) {
	ended := p.open[about]
	if ended == nil {
		return
	}
	delete(p.open, about)
	if in := p.listOf(ended); in != nil {
		in.Remove(ended.place)
	}
	p.noteStale()
	if p.report != nil && len(p.open) == 0 {
		p.report(nil)
	}
}

// endBut ends the problems of all objects of a resource but those that are there.
func (p *problems) endBut(r resource, there []*object) {
	kept := make(map[string]bool, len(there))
	for _, o := range there {
		kept[objectOf(r, o.Name)] = true
	}
	for about := range p.open {
		if strings.HasPrefix(about, objectOf(r, "")) && !kept[about] {
			p.end(about)
		}
	}
}

// first returns the text of the oldest problem of what endpoints come from, of calls before objects; "" = none.
func (p *problems) first() string {
	for _, in := range []*list.List{&p.calls, &p.others} {
		if oldest := in.Front(); oldest != nil {
			return oldest.Value.(*problem).text
		}
	}
	return ""
}

// callFails reports whether a call for what endpoints come from fails.
func (p *problems) callFails() bool {
	for e := p.calls.Front(); e != nil; e = e.Next() {
		if e.Value.(*problem).reason != aboutCache {
			return true
		}
	}
	return false
}

// noteStale notes since when what is known of endpoints may have changed.
func (p *problems) noteStale() {
	var since *time.Time
	if oldest := p.calls.Front(); oldest != nil {
		since = &oldest.Value.(*problem).since
	}
	p.metrics.since.Store(since)
}

// reasonOf returns a value of the label reason of signalbox_discovery_errors_total: a closed set.
func reasonOf(err error) string {
	var status apierrors.APIStatus
	switch {
	case isPanic(err):
		return "panic"
	case IsInvalidObject(err):
		return "invalid-object"
	case apierrors.IsForbidden(err):
		return "forbidden"
	case apierrors.IsUnauthorized(err):
		return "unauthorized"
	case apierrors.IsNotFound(err):
		return "not-found"
	case apierrors.IsTooManyRequests(err):
		return "throttled"
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return "expired"
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, os.ErrDeadlineExceeded): // which is that of a connection
		return "timeout"
	case errors.As(err, &status) && !strings.Contains(err.Error(), undecodable):
		return "other"
	}
	return "unreachable" // no answer at all, or one that broke off
}

// undecodable is what client-go says of an event of a watch that could not be read.
const undecodable = "unable to decode an event"

// metrics are those of the discovery.
type metrics struct {
	errors *prometheus.CounterVec
	since  atomic.Pointer[time.Time] // what is known of endpoints may have changed; nil = it is followed
	age    prometheus.GaugeFunc
}

func newMetrics() *metrics {
	m := &metrics{errors: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_discovery_errors_total",
		Help: "Failed calls to the Kubernetes API server, and objects that could not be used, by resource and reason.",
	}, []string{"resource", "reason"})}
	m.age = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "signalbox_discovery_stale_seconds",
		Help: "Time since calls for pods or the InferencePool began to fail, or age of the cache that serves; 0 " +
			"while what is known of endpoints is followed.",
	}, func() float64 { return m.staleFor().Seconds() })
	return m
}

// staleFor returns for how long what is known of endpoints has not been followed. No step of the clock changes it.
func (m *metrics) staleFor() time.Duration {
	if since := m.since.Load(); since != nil {
		return max(time.Since(*since), 1) // it is 0 only while all is followed
	}
	return 0
}

func (m *metrics) collectors() []prometheus.Collector { return []prometheus.Collector{m.errors, m.age} }
