package cycle

import (
	"cmp"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/signalbox-epp/signalbox/engine/cow"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/messages"
)

// Names of models and of flows come from clients, which may make up as many as they like. A name becomes a label once
// it is known: an endpoint said that it serves the model, or a request for the name was answered below 400. Until
// then, and where the page has no room left, a request counts under other.
const (
	other = "other"

	// What is known is kept until the process ends. Names beyond these numbers count under other.
	servedNames   = 4096 // of models, as endpoints list them
	answeredNames = 512  // of models whose requests were answered below 400

	// DefaultFlowLabels is the same of flows, unless TellFlows says another number.
	DefaultFlowLabels = 512

	// Bytes of the metrics page that the series of requests may take. A set of labels takes some 40 KiB, with long
	// names 150.
	requestPageBytes = 9 << 20
	// Of those, what sets that name a flow may take: the rest is for models, which are fewer and matter more. Together
	// with all else, 100 000 flows of one model stay below 20 000 series.
	flowPageBytes = requestPageBytes / 4

	errorCodes = 24 // that a set of labels tells apart
)

// labelSet is the set of label values by which the series of requests differ.
type labelSet struct {
	model, target, fairness string // target is as in records
	priority                int
}

// targetModel returns the model that serves.
func (s *labelSet) targetModel() string { return cmp.Or(s.target, s.model) }

// rest is the set under which all requests count that have no set of their own. The page always has room for it.
var rest = labelSet{model: other, fairness: other}

// labels holds the sets of labels that have series. Any loop may add one.
type labels struct {
	served, models, flows *records.Names // known names: of models listed, of models answered, of flows answered
	cost                  cost           // of the series of one set
	taken                 atomic.Int64   // bytes of the page that the sets take, including those that are being added
	sets                  cow.Map[labelSet, *meter]
}

func newLabels() labels {
	return labels{
		served: records.NewNames(servedNames),
		models: records.NewNames(answeredNames), flows: records.NewNames(DefaultFlowLabels),
	}
}

// TellFlows sets how many flows are told apart, before the first request.
func (f *Families) TellFlows(most int) { f.labels.flows = records.NewNames(most) }

// Served makes the names of models known that an endpoint serves, or that a configuration has serve.
func (f *Families) Served(models ...string) { f.labels.served.Add(models...) }

// answered makes the names of a request known that was answered below 400.
func (l *labels) answered(r *messages.Record) {
	l.models.Add(r.Model)
	if r.Target != "" {
		l.models.Add(r.Target)
	}
	l.flows.Add(r.Flow.Fairness)
}

// named returns the labels of a request, with other for unknown names, and reports whether all names are known.
func (l *labels) named(r *messages.Record) (labelSet, bool) {
	set, known := labelSet{r.Model, r.Target, r.Flow.Fairness, r.Flow.Priority}, true
	for _, name := range []*string{&set.model, &set.target} {
		if *name != "" && !l.models.Has(*name) && !l.served.Has(*name) {
			*name, known = other, false
		}
	}
	if set.fairness != messages.DefaultFairness && !l.flows.Has(set.fairness) {
		set.fairness, known = other, false
	}
	return set, known
}

// meter returns the meter of a request, and reports whether its names are known. If they are, the meter is final.
func (f *Families) meter(r *messages.Record) (*meter, bool) {
	if m := f.labels.find(labelSet{r.Model, r.Target, r.Flow.Fairness, r.Flow.Priority}); m != nil {
		return m, true
	}
	set, known := f.labels.named(r)
	if m := f.admit(set); m != nil {
		return m, known
	}
	set.fairness = other
	if m := f.admit(set); m != nil {
		return m, known
	}
	return f.admit(rest), known
}

func (l *labels) find(set labelSet) *meter {
	m, _ := l.sets.Get(set)
	return m
}

// admit returns the meter of a set of labels, and adds it if it is new; nil if the page has no room for another one.
func (f *Families) admit(set labelSet) *meter {
	l := &f.labels
	if m := l.find(set); m != nil {
		return m
	}
	bytes := l.cost.of(set)
	if set != rest && !l.reserve(bytes, room(set)) {
		return nil
	}
	m := newMeter(f, set)
	l.sets.Change(func(now map[labelSet]*meter) map[labelSet]*meter {
		if faster := now[set]; faster != nil { // of another loop: its series are the same
			l.taken.Add(-bytes)
			m = faster
			return nil
		}
		next := make(map[labelSet]*meter, len(now)+1)
		maps.Copy(next, now)
		next[set] = m
		return next
	})
	return m
}

// room returns how many bytes of the page may be taken, at most, for a set to be added.
func room(set labelSet) int64 {
	if set.fairness == other || set.fairness == messages.DefaultFairness {
		return requestPageBytes
	}
	return flowPageBytes
}

// reserve takes bytes of the page, unless more than limit would be taken then.
func (l *labels) reserve(bytes, limit int64) bool {
	for {
		taken := l.taken.Load()
		if taken+bytes > limit {
			return false
		}
		if l.taken.CompareAndSwap(taken, taken+bytes) {
			return true
		}
	}
}

// cost is what the series of one set of labels add to the page, in Prometheus' text format.
type cost struct {
	lines int // each has the labels of requests
	bytes int // of all lines, without the values of those labels
}

const (
	labelNameBytes = len(`{fairness_id="",model_name="",priority="",target_model_name=""} `)
	numberBytes    = 12 // of a printed count, which is below 10^12
	sumBytes       = 24 // of a printed sum of floating point numbers
	widestLabel    = 32 // of the value of any further label, which is from a closed set
)

// line adds a series with further labels more.
func (c *cost) line(name string, more ...string) {
	c.lines++
	c.bytes += len(prefix) + len(name) + labelNameBytes + numberBytes + len("\n")
	for _, label := range more {
		c.bytes += len(label) + len(`="",`) + widestLabel
	}
}

// histogram adds the series of a histogram with further labels more.
func (c *cost) histogram(name string, buckets []float64, more ...string) {
	for _, le := range buckets {
		c.line(name+"_bucket", more...)
		c.bytes += len(`le="",`) + len(strconv.FormatFloat(le, 'g', -1, 64))
	}
	c.line(name+"_bucket", more...)
	c.line(name+"_count", more...)
	c.line(name+"_sum", more...)
	c.bytes += len(`le="+Inf",`) + sumBytes
}

// of returns the bytes that the series of a set take.
func (c *cost) of(set labelSet) int64 {
	names := shownBytes(set.model) + shownBytes(set.targetModel()) + shownBytes(set.fairness)
	return int64(c.bytes + c.lines*(names+len(strconv.Itoa(set.priority))))
}

// shownBytes returns the length of a label's value on the page, where some characters are escaped.
func shownBytes(value string) int {
	return len(value) + strings.Count(value, `\`) + strings.Count(value, `"`) + strings.Count(value, "\n")
}
