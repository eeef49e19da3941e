package schedule

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/messages"
)

// Explained is a scorer whose score comes of terms. They are noted of the pick and of the runner-up.
type Explained interface {
	Terms() []string // what each is, with its unit; always the same
	// Explain sets the terms of an endpoint; NaN = unknown.
	Explain(of Scored, terms []float32)
}

// Scored is an endpoint as a run for a request saw it.
type Scored struct {
	Request Request
	view    *view
	at      int
}

// Number returns the value of an attribute that the plugin has declared; NaN = unknown.
func (s Scored) Number(of attributes.NumberSlot) float64 {
	return s.view.numbers.columns[of.Index()][s.at]
}

// explained is a scorer and the number of its terms.
type explained struct {
	Explained
	count int
}

// show notes in a profile run what its plugins read of the pick and of the runner-up, and the terms of their scores.
// values has room for both.
func (v *view) show(run *messages.ProfileRun, p *Profile, of *messages.Request, values []float32, now time.Time) {
	run.Ages = [2]time.Duration{-1, -1}
	n := 0
	for i, at := range [2]int{int(run.Ranked.At(0)), run.Runner} {
		if at < 0 {
			continue
		}
		for _, slot := range p.read {
			values[n] = float32(v.numbers.columns[slot][at])
			n++
		}
		for _, x := range p.explained {
			x.Explain(Scored{Request{of}, v, at}, values[n:n+x.count])
			n += x.count
		}
		run.Ages[i] = v.age(at, p, now)
	}
	run.Reads, run.Values = p.reads, messages.TakeList(values[:n])
}
