package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Build says what a binary was made from. A field is "unknown" where the build does not say.
type Build struct {
	Version string // a tag, such as v1.2.3, or derived from the last tag
	Commit  string // in full
	Date    string // of the commit, RFC 3339, UTC
}

// BuildInfo returns the metrics that say what was built: that of the reference with its two labels, and one with all
// that is known.
func BuildInfo(b Build) []prometheus.Collector {
	always1 := func(name, help string, labels prometheus.Labels) prometheus.Collector {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
		g.Set(1)
		return g
	}
	return []prometheus.Collector{
		always1("llm_d_epp_info", "Always 1; the commit and the version that were built.",
			prometheus.Labels{"commit": b.Commit, "build_ref": b.Version}),
		always1("signalbox_build_info", "Always 1; the version, the commit and its date that were built.",
			prometheus.Labels{"version": b.Version, "commit": b.Commit, "date": b.Date}),
	}
}
