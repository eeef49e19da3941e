package prefix

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
)

// Metrics holds the metrics of the prefix index. The actor sets them after each message, and they outlive its
// incarnations.
type Metrics struct {
	blocks, held, bytes, prompts           prometheus.Gauge
	entered, evicted, withdrawn, forgotten prometheus.Counter
	predicted, reported, lost              prometheus.Counter
	last                                   blockindex.Stats // that show was called with last
}

// NewMetrics creates the metrics and registers them. It fails if one of their names is taken.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	const producer = "approx-prefix-cache-producer"
	plugin := prometheus.Labels{"plugin_name": producer, "plugin_type": producer}
	m := &Metrics{
		blocks: prometheus.NewGauge(prometheus.GaugeOpts{Name: "llm_d_epp_prefix_indexer_size", ConstLabels: plugin,
			Help: "Prompt blocks in the prefix index that at least one endpoint holds."}),
		held: gauge("signalbox_prefix_held_blocks",
			"Prompt blocks in the prefix index, summed over the endpoints that hold them."),
		bytes:   gauge("signalbox_prefix_bytes", "Memory of the prefix index, approximately."),
		prompts: gauge("signalbox_prefix_placed_prompts", "Live requests whose prompt stands in the prefix index."),
		entered: counter("signalbox_prefix_entered_blocks_total", "Blocks entered for an endpoint at a pick."),
		evicted: counter("signalbox_prefix_evicted_blocks_total", "Blocks dropped because their endpoint was full."),
		withdrawn: counter("signalbox_prefix_withdrawn_blocks_total",
			"Blocks taken back: served elsewhere, or failed."),
		forgotten: counter("signalbox_prefix_forgotten_blocks_total",
			"Blocks dropped because their endpoint left or lost them, or the index was reset."),
		predicted: counter("signalbox_prefix_predicted_tokens_total",
			"Prompt tokens that the index held for the server of an audited answer."),
		reported: counter("signalbox_prefix_reported_tokens_total",
			"Cached prompt tokens that servers reported in audited answers."),
		lost: counter("signalbox_prefix_lost_blocks_total",
			"Blocks dropped because audited answers show that their server has lost them."),
	}
	all := []prometheus.Collector{m.blocks, m.held, m.bytes, m.prompts, m.entered, m.evicted, m.withdrawn, m.forgotten,
		m.predicted, m.reported, m.lost}
	for _, c := range all {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// audited counts what an audit has found.
func (m *Metrics) audited(found endpoints.Audited) {
	m.predicted.Add(float64(found.PredictedTokens))
	m.reported.Add(float64(found.ReportedTokens))
	m.lost.Add(float64(found.LostBlocks))
}

// show brings the metrics up to date.
func (m *Metrics) show(s blockindex.Stats, prompts int) {
	m.blocks.Set(float64(s.Blocks))
	m.held.Set(float64(s.Held))
	m.bytes.Set(float64(s.Bytes))
	m.prompts.Set(float64(prompts))
	m.entered.Add(float64(s.Entered - m.last.Entered))
	m.evicted.Add(float64(s.Evicted - m.last.Evicted))
	m.withdrawn.Add(float64(s.Withdrawn - m.last.Withdrawn))
	m.forgotten.Add(float64(s.Forgotten - m.last.Forgotten))
	m.last = s
}
