package kube

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// problems are what is wrong now, by what it is about: a call to the API server or an object.
type problems struct {
	report  func(error)
	metrics *metrics
	open    map[string]problem
}

type problem struct {
	reason, text string
	since        time.Time
	needed       bool // it is about what endpoints come from
	call         bool // it is needed, and about a call: what is known of endpoints may have changed since
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
	var object invalid
	is := problem{reason: reasonOf(err), text: err.Error(), since: time.Now(), needed: !r.optional}
	is.call = is.needed && !errors.As(err, &object)
	p.metrics.errors.WithLabelValues(r.String(), is.reason).Inc()
	before, known := p.open[about]
	if known {
		is.since = before.since
	}
	p.open[about] = is
	p.metrics.stale(p.open)
	if p.report != nil && (!known || before.reason != is.reason || errors.As(err, &object) && before.text != is.text) {
		p.report(err)
	}
}

// begin has a problem that is no failed call, since a time. It is about what is known of endpoints if stale is set.
func (p *problems) begin(about string, since time.Time, stale bool, err error) {
	p.open[about] = problem{reason: about, text: err.Error(), since: since, needed: true, call: stale}
	p.metrics.stale(p.open)
	if p.report != nil {
		p.report(err)
	}
}

// over ends a problem, if there is one.
func (p *problems) over(about string) {
	if _, known := p.open[about]; !known {
		return
	}
	delete(p.open, about)
	p.metrics.stale(p.open)
	if p.report != nil && len(p.open) == 0 {
		p.report(nil)
	}
}

// overBut ends the problems of all objects of a resource but those that are there.
func (p *problems) overBut(r resource, there []*object) {
	kept := make(map[string]bool, len(there))
	for _, o := range there {
		kept[objectOf(r, o.Name)] = true
	}
	for about := range p.open {
		if strings.HasPrefix(about, objectOf(r, "")) && !kept[about] {
			p.over(about)
		}
	}
}

// first returns the text of one problem of what endpoints come from, the same one each time; "" = there is none.
func (p *problems) first() string {
	for _, about := range slices.Sorted(maps.Keys(p.open)) {
		if p.open[about].needed {
			return p.open[about].text
		}
	}
	return ""
}

// reasonOf returns a value of the label reason of signalbox_discovery_errors_total: a closed set.
func reasonOf(err error) string {
	var object invalid
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &object):
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
	case errors.As(err, &status) && !strings.Contains(err.Error(), "unable to decode an event"):
		return "other"
	}
	return "unreachable" // no answer at all, or one that broke off
}

// metrics are those of the discovery.
type metrics struct {
	errors *prometheus.CounterVec
	since  atomic.Int64 // Unix nanoseconds of the oldest problem of a call; 0 = none
	age    prometheus.GaugeFunc
}

func newMetrics() *metrics {
	m := &metrics{errors: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "signalbox_discovery_errors_total",
		Help: "Failed calls to the Kubernetes API server, and objects that could not be used, by resource and reason.",
	}, []string{"resource", "reason"})}
	m.age = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "signalbox_discovery_stale_seconds",
		Help: "Time since the Kubernetes API server stopped answering; 0 while what is known of endpoints is followed.",
	}, func() float64 {
		if since := m.since.Load(); since != 0 {
			return time.Since(time.Unix(0, since)).Seconds()
		}
		return 0
	})
	return m
}

func (m *metrics) collectors() []prometheus.Collector { return []prometheus.Collector{m.errors, m.age} }

// stale notes the problems of calls that are open.
func (m *metrics) stale(open map[string]problem) {
	oldest := int64(0)
	for _, p := range open {
		if at := p.since.UnixNano(); p.call && (oldest == 0 || at < oldest) {
			oldest = at
		}
	}
	m.since.Store(oldest)
}
