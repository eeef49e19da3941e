package filters

import (
	"fmt"

	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/topology"
)

// TopologyAffinity keeps the servers that are near enough to the one that was picked for the request in an earlier
// profile. The labels kubernetes.io/hostname and topology.kubernetes.io/rack, /zone and /region say where a server is.
// All are kept if none is near enough, while no earlier profile has picked, or if nothing is known of its pick.
type TopologyAffinity struct {
	topology.Affinity
	// MinAffinity is the widest place that both may share: host, rack, zone or region.
	MinAffinity string `json:"minAffinity"`

	widest topology.Level
}

// Validate returns which parameters are out of range.
func (f *TopologyAffinity) Validate() (err error) {
	if f.widest, err = topology.Parse(f.MinAffinity); err != nil {
		return fmt.Errorf("minAffinity: %w", err)
	}
	return nil
}

// Filter compares the place of each candidate with that of the peer.
func (f *TopologyAffinity) Filter(in *schedule.Input, keep []bool) {
	peer, known := f.Peer(in)
	if !known {
		return
	}
	left := 0
	for i, c := range in.Candidates().All() {
		if keep[i] = peer.Level(c) <= f.widest; keep[i] {
			left++
		}
	}
	if left == 0 {
		keepAll(keep)
	}
}
