package signalbox

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/filters"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// surveyor tells in metrics how full the detector in force finds the pool. It asks the detector when the metrics are
// read, and at no other time.
type surveyor struct {
	*Picker
	saturation, outdated, parts *prometheus.Desc
}

func (p *Picker) survey() error {
	const family = "llm_d_epp_flow_control_"
	return p.world.Metrics.Register(&surveyor{
		Picker: p,
		saturation: prometheus.NewDesc(family+"pool_saturation",
			"How full the servers of a stage are together, as the saturation detector says; 1 = full, 1 also for no "+
				"server. effective is the larger of prefill and decode.", []string{"inference_pool", "stage"}, nil),
		outdated: prometheus.NewDesc(family+"stale_endpoints",
			"Endpoints of which the saturation detector knows nothing, because no answer of theirs is fresh.",
			[]string{"detector"}, nil),
		parts: prometheus.NewDesc(family+"detector_saturation",
			"How full the servers of a stage are together, as each detector says of which max-saturation-detector is "+
				"made.",
			[]string{"detector", "stage"}, nil),
	})
}

// Describe sends the descriptions of the metrics.
func (s *surveyor) Describe(to chan<- *prometheus.Desc) {
	to <- s.saturation
	to <- s.outdated
	to <- s.parts
}

// Collect sends what the detector says now; nothing if the configuration has none.
func (s *surveyor) Collect(to chan<- prometheus.Metric) {
	plan := s.inForce.Load().plan
	if plan.Detector().Type == "" {
		return
	}
	for _, m := range s.ask(plan) {
		to <- m
	}
}

// Room is what is known of the room at an endpoint.
type Room struct {
	*endpoints.Endpoint
	Free     bool           // it has room for one request more, as the gate says; false without a gate
	Bound    endpoints.Room // of its load; the zero Room = none
	Learned  bool           // Bound was learned
	Windowed bool           // Bound is a window, which is learned or will be
}

// Room returns what is known of the room at each endpoint, and the name of the detector that says where there is some;
// "" = requests do not wait under the configuration in force.
func (p *Picker) Room() (all []Room, detector string) {
	plan, snap := p.inForce.Load().plan, p.endpoints.Snapshot()
	free := p.free(plan, snap)
	if plan.Gated() {
		detector = plan.Detector().Name
	}
	for i, e := range snap.Endpoints {
		r := Room{Endpoint: e}
		if i < len(free) {
			r.Free = free[i]
		}
		of := plan.Bounds(1)
		r.Bound, _ = e.Bound(of)
		if of.Learned {
			r.Windowed = true
			_, r.Learned = e.Window()
		}
		all = append(all, r)
	}
	return all, detector
}

// free returns which endpoints have room; nil = there is no gate, or it panics.
func (p *Picker) free(plan *schedule.Plan, snap *endpoints.Snapshot) (free []bool) {
	defer func() {
		if recover() != nil {
			free = nil
		}
	}()
	if survey := schedule.NewSurvey(plan, snap, p.sys, p.sys.Now()); survey != nil {
		free = survey.Room()
	}
	return free
}

// stages are those of which the metrics tell, with the servers of each.
var stages = [...]struct {
	name    string
	servers schedule.Filter
}{{"prefill", filters.Prefill{}}, {"decode", filters.Decode{}}}

// ask returns what a plan's detector says. A detector that panics says nothing: it costs requests dear enough.
func (s *surveyor) ask(plan *schedule.Plan) (all []prometheus.Metric) {
	defer func() {
		if recover() != nil {
			all = nil
		}
	}()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		all = append(all, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...))
	}
	survey := schedule.NewSurvey(plan, s.endpoints.Snapshot(), s.sys, s.sys.Now())
	if survey == nil {
		gauge(s.saturation, 1, s.cfg.PoolName, "effective")
		return all
	}
	effective, staged := 0.0, false
	for _, stage := range stages {
		if full, known := survey.Saturation(stage.servers); known {
			gauge(s.saturation, full, s.cfg.PoolName, stage.name)
			effective, staged = max(effective, full), true
		}
		for name, full := range survey.Parts(stage.name, stage.servers) {
			gauge(s.parts, full, name, stage.name)
		}
	}
	if !staged {
		effective, _ = survey.Saturation(nil)
	}
	gauge(s.saturation, effective, s.cfg.PoolName, "effective")
	if n, known := survey.Outdated(); known {
		gauge(s.outdated, float64(n), plan.Detector().Name)
	}
	return all
}
