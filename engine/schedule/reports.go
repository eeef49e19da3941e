package schedule

import (
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// Reporter is a plugin that tells the proxy numbers about a response, by what its body says of its tokens.
type Reporter interface {
	// Report appends its reports to list, and returns it. It is called once for each response whose whole body was
	// shown and that says how many tokens it has. It is called on the goroutine of a stream, and so for several
	// responses at once.
	Report(usage *messages.Usage, list []Report) []Report
}

// Report is what a Reporter has of one number.
type Report struct {
	Result    ReportResult
	Namespace string  // of the proxy's dynamic metadata
	Key       string  // in it
	Value     float64 // finite; only of what is Told
}

// ReportResult says what became of a number.
type ReportResult uint8

const (
	Told     ReportResult = iota // the proxy is told
	Withheld                     // its condition does not hold
	Failed                       // it cannot be computed from this usage

	reportResults
)

// String returns the result's name, as metrics have it.
func (r ReportResult) String() string {
	return [reportResults]string{Told: "told", Withheld: "withheld", Failed: "failed"}[r]
}

// ReportResults returns every result.
func ReportResults() []ReportResult { return []ReportResult{Told, Withheld, Failed} }

// Reports reports whether Report has anything to call.
func (p *Plan) Reports() bool { return len(p.points.reports) > 0 }

// Report calls the plugins that tell the proxy of a response. It may be called on any goroutine.
func (p *Plan) Report(usage *messages.Usage, clock Clock) (list []Report) {
	if usage.Source != messages.UsageReported {
		return nil
	}
	for i := range p.points.reports {
		at := &p.points.reports[i]
		began := clock.Nanos()
		list = at.plugin.Report(usage, list)
		p.observer.PluginRan(at.Meter, time.Duration(clock.Nanos()-began))
	}
	return list
}
