// Package page is the metrics page of a simulated vLLM.
//
// It owns the names, labels, help texts, order and number format of the series. It never counts anything: values are
// read from the engine when the page is rendered.
package page

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
)

// Page is laid out once: every line is ready but for its value, so that serving it costs little.
type Page struct {
	slots   string // of adapters
	lines   []line
	labels  string // of most series: engine="0",model_name="..."
	model   string // of some: model_name="..."
	created string // when the series began, as a value
}

// line is text that ends in a series, and its value. With a histogram, text ends in the name of the series, and what
// follows is made of it.
type line struct {
	text      string
	value     func(*View) float64
	histogram *batch.Histogram
	after     []string // of a histogram: the series of each bucket, of the count and of the sum
	loras     bool     // text, then the adapter sets
}

// View is what values are read from.
type View struct {
	*batch.Tally // the one the page was laid out for
	batch.Stats
	LoRAs    []batch.LoRASets
	Rejected uint64 // requests
	Asleep   bool
	Level    int // at which it sleeps, 0 to 2
}

// labelled is one series of a metric.
type labelled struct {
	labels string
	value  func(*View) float64
}

// Render appends the page to b. It must not run while the engine does.
func (p *Page) Render(b []byte, v View) []byte {
	for i := range p.lines {
		l := &p.lines[i]
		b = append(b, l.text...)
		switch {
		case l.value != nil:
			b = append(appendValue(append(b, ' '), l.value(&v)), '\n')
		case l.histogram != nil:
			b = l.renderHistogram(b)
		case l.loras:
			for _, set := range v.LoRAs {
				b = append(append(b, `vllm:lora_requests_info{max_lora="`...), p.slots...)
				b = append(append(b, `",running_lora_adapters="`...), escape(set.Running)...)
				b = append(append(b, `",waiting_lora_adapters="`...), escape(set.Waiting)...)
				b = append(appendValue(append(b, `"} `...), unix(set.At)), '\n')
			}
		}
	}
	return b
}

func (l *line) renderHistogram(b []byte) []byte {
	h, below := l.histogram, uint64(0)
	for i, n := range h.Counts {
		below += n
		b = append(appendValue(append(b, l.after[i]...), float64(below)), '\n')
	}
	last := len(h.Counts)
	b = append(appendValue(append(b, l.after[last]...), float64(h.Count)), '\n')
	return append(appendValue(append(b, l.after[last+1]...), h.Sum), '\n')
}

// comment adds the two lines above a metric.
func (p *Page) comment(name, kind, help string) {
	p.lines = append(p.lines, line{text: "# HELP " + name + " " + help + "\n# TYPE " + name + " " + kind + "\n"})
}

func (p *Page) series(name string, all []labelled) {
	for _, l := range all {
		p.lines = append(p.lines, line{text: name + "{" + l.labels + "}", value: l.value})
	}
}

func (p *Page) gauge(name, help string, all ...labelled) {
	p.comment(name, "gauge", help)
	p.series(name, all)
}

// counter adds a counter and the times at which its series began.
func (p *Page) counter(name, help string, all ...labelled) {
	p.comment(name+"_total", "counter", help)
	p.series(name+"_total", all)
	p.began(name, help, all)
}

func (p *Page) began(name, help string, all []labelled) {
	p.comment(name+"_created", "gauge", help)
	for _, l := range all {
		p.lines = append(p.lines, line{text: name + "_created{" + l.labels + "} " + p.created + "\n"})
	}
}

func (p *Page) histogram(name, help string, h *batch.Histogram) {
	p.comment(name, "histogram", help)
	l := line{histogram: h}
	for _, bound := range slices.Concat(h.Bounds, []float64{math.Inf(1)}) {
		le := string(appendValue(nil, bound))
		l.after = append(l.after, name+`_bucket{engine="0",le="`+le+`",`+p.model+"} ")
	}
	l.after = append(l.after, name+"_count{"+p.labels+"} ", name+"_sum{"+p.labels+"} ")
	p.lines = append(p.lines, l)
	p.began(name, help, []labelled{{labels: p.labels}})
}

// escape makes text fit between the quotes of a label.
func escape(text string) string {
	if !strings.ContainsAny(text, "\\\"\n") {
		return text
	}
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text)
}

// appendValue writes a number as Python's Prometheus client does: shortest form with a fraction, and with an exponent
// of at least two digits from a million on.
func appendValue(b []byte, v float64) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(b, "+Inf"...)
	case v >= 1e6:
		return strconv.AppendFloat(b, v, 'e', -1, 64)
	case v != 0 && v < 1e-4:
		return strconv.AppendFloat(b, v, 'e', -1, 64)
	case v == math.Trunc(v):
		return append(strconv.AppendInt(b, int64(v), 10), ".0"...)
	}
	return strconv.AppendFloat(b, v, 'f', -1, 64)
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
