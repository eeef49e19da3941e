package scorers

import (
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/topology"
)

// TopologyAffinity prefers servers near to the one that was picked for the request in an earlier profile, as KV blocks
// go from one to the other: 1 on the same host, 0.2 in the same rack, 0.05 in the same zone, 0.02 in the same region,
// else 0. The labels kubernetes.io/hostname and topology.kubernetes.io/rack, /zone and /region say where a server is.
// All score 0 while no earlier profile has picked, or nothing is known of its pick.
type TopologyAffinity struct{ topology.Affinity }

// nearness is the score by level. The steps are those of bandwidth: within a host, over one switch, over several.
var nearness = [...]float32{
	topology.Host: 1, topology.Rack: 0.2, topology.Zone: 0.05, topology.Region: 0.02, topology.Apart: 0,
}

// Score compares the place of each candidate with that of the peer.
func (s *TopologyAffinity) Score(in *schedule.Input, scores []float32) {
	peer, known := s.Peer(in)
	if !known {
		return
	}
	for i, c := range in.Candidates().All() {
		scores[i] = nearness[peer.Level(c)]
	}
}
