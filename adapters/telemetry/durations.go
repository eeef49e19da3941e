package telemetry

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Bounds in seconds of the two families of plugin durations: ours, and that of the reference, in whose first bucket
// almost all calls fall.
var (
	fineBounds   = prometheus.ExponentialBucketsRange(100e-9, 0.1, 19)
	coarseBounds = []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1}
	allBounds    = slices.Compact(slices.Sorted(slices.Values(slices.Concat(fineBounds, coarseBounds))))
)

const pluginHelp = "Time in a plugin, for one profile run."

// durations exports the time of each step in two families. A call is counted once, in buckets from which those of both
// families are summed.
type durations struct {
	fine, coarse *prometheus.Desc

	mu    sync.Mutex // guards steps
	steps map[stepLabels]*tally
}

type stepLabels struct{ point, typ, name string }

// tally counts one step's durations. Any loop may use it.
type tally struct {
	nanos  atomic.Uint64   // sum of the durations
	counts []atomic.Uint64 // counts[i] is of durations up to allBounds[i]; the last is of those above every bound
}

func newDurations(labels []string) *durations {
	return &durations{
		fine:   prometheus.NewDesc("signalbox_plugin_duration_seconds", pluginHelp, labels, nil),
		coarse: prometheus.NewDesc("llm_d_epp_plugin_duration_seconds", pluginHelp, labels, nil),
		steps:  map[stepLabels]*tally{},
	}
}

// of returns the tally of a step. Steps with the same labels share one.
func (d *durations) of(s stepLabels) *tally {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.steps[s]
	if t == nil {
		t = &tally{counts: make([]atomic.Uint64, len(allBounds)+1)}
		d.steps[s] = t
	}
	return t
}

// forget ends the series of a step.
func (d *durations) forget(s stepLabels) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.steps, s)
}

// observe counts one call. Most take less than a microsecond, so that the search begins at the short end.
func (t *tally) observe(took time.Duration) {
	i, seconds := 0, took.Seconds()
	for i < len(allBounds) && seconds > allBounds[i] {
		i++
	}
	t.counts[i].Add(1)
	t.nanos.Add(uint64(max(took, 0)))
}

// Describe names both families.
func (d *durations) Describe(to chan<- *prometheus.Desc) {
	to <- d.fine
	to <- d.coarse
}

// Collect shows every step.
func (d *durations) Collect(to chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s, t := range d.steps {
		below, total := make(map[float64]uint64, len(allBounds)), uint64(0)
		for i, bound := range allBounds {
			total += t.counts[i].Load()
			below[bound] = total
		}
		total += t.counts[len(allBounds)].Load()
		sum := time.Duration(t.nanos.Load()).Seconds()
		for desc, bounds := range map[*prometheus.Desc][]float64{d.fine: fineBounds, d.coarse: coarseBounds} {
			buckets := make(map[float64]uint64, len(bounds))
			for _, b := range bounds {
				buckets[b] = below[b]
			}
			to <- prometheus.MustNewConstHistogram(desc, total, sum, buckets, s.point, s.typ, s.name)
		}
	}
}
