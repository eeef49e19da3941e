package memory

import (
	"github.com/prometheus/client_golang/prometheus"

	tables "github.com/signalbox-epp/signalbox/engine/memory"
	"github.com/signalbox-epp/signalbox/messages"
)

// names are those of the tables in metrics.
var names = [...]string{
	messages.SessionTable: "sessions", messages.UseTable: "uses", messages.AdapterTable: "adapters",
	messages.TurnTable: "turns", messages.MediaTable: "media", messages.FirstTokenTable: "first-tokens",
}

// Metrics holds the metrics of what plugins keep. The actor sets them after each message, and they outlive its
// incarnations.
type Metrics struct {
	entries [len(names)]prometheus.Gauge
	evicted [len(names)]prometheus.Counter
	last    [len(names)]tables.Stats // that show was called with last
}

// NewMetrics creates the metrics and registers them. It fails if one of their names is taken.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	entries := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "signalbox_memory_entries",
		Help: "What plugins keep of earlier requests: endpoints of sessions, the order in which endpoints were used, " +
			"adapters of endpoints, turns of sessions, media of endpoints, and endpoints with times to first tokens.",
	}, []string{"table"})
	evicted := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "signalbox_memory_evicted_total",
		Help: "Entries that made way for others before they expired."}, []string{"table"})
	for _, c := range []prometheus.Collector{entries, evicted} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	m := new(Metrics)
	for i, name := range names {
		m.entries[i], m.evicted[i] = entries.WithLabelValues(name), evicted.WithLabelValues(name)
	}
	return m, nil
}

// show brings the metrics up to date.
func (m *Metrics) show(of *tables.Tables) {
	for i := range names {
		s := of.Stats(messages.MemoryTable(i))
		m.entries[i].Set(float64(s.Entries))
		m.evicted[i].Add(float64(s.Evicted - m.last[i].Evicted))
		m.last[i] = s
	}
}
