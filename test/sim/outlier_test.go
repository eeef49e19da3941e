package sim_test

import (
	"time"

	"github.com/signalbox-epp/signalbox/actors/outlier"
	machine "github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// spawnOutlier brings up the outlier actor, whose checks a coin decides.
func (w *world) spawnOutlier() {
	metrics := outlier.NewMetrics(w.reg)
	w.outlier = spawn[messages.OutlierMsg](w, w.sys.Root(0), "outlier", messages.OutlierStarted{}, func() runtime.Actor[messages.OutlierMsg] {
		return outlier.New(outlier.Config{MaxEjectionPercent: 50, Config: machine.Config{FirstEjection: time.Second, LongestEjection: 4 * time.Second}}, w.pool, coin{w}, metrics)
	})
}

type coin struct{ w *world }

func (c coin) Check(id messages.EndpointID, _ messages.Address, port messages.Port[messages.OutlierMsg]) bool {
	port.Post(messages.EndpointChecked{Endpoint: id, Connected: c.w.chance(0.5)})
	return true
}

// proxies are told of endpoints, and most often take what they are told.
type proxies struct{ w *world }

func (p proxies) Tell(m messages.XdsMsg) bool {
	told := m.(messages.EndpointsAnnounced)
	if p.w.chance(.8) {
		told.Pool.Post(messages.EndpointsAcknowledged{Number: told.Number})
	}
	return true
}

func (w *world) shardSinks() []messages.Sink[messages.ShardMsg] {
	sinks := make([]messages.Sink[messages.ShardMsg], len(w.shards))
	for i, s := range w.shards {
		sinks[i] = s
	}
	return sinks
}
