// Package topology says how near two endpoints are: on the same host, in the same rack, zone or region, by the labels
// of Kubernetes. It never says what that means for a pick: a filter and a scorer do.
package topology

import (
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// Level is the narrowest place that two endpoints share. A lesser Level is nearer.
type Level int

const (
	Host Level = iota
	Rack
	Zone
	Region
	Apart // they share none that is known
)

// names are the levels as parameters and headers have them; labels are those that name the place of an endpoint.
var (
	names  = [Apart]string{"host", "rack", "zone", "region"}
	labels = [Apart]string{
		"kubernetes.io/hostname", "topology.kubernetes.io/rack", "topology.kubernetes.io/zone",
		"topology.kubernetes.io/region",
	}
)

// Parse returns the level of a name: host, rack, zone or region.
func Parse(name string) (Level, error) {
	i := slices.Index(names[:], name)
	if i < 0 {
		return Apart, fmt.Errorf("got %q, want host, rack, zone or region", clip.Value(name))
	}
	return Level(i), nil
}

// Place is where an endpoint stands; "" = unknown.
type Place [Apart]string

// PlaceOf returns where an endpoint stands, as its labels say.
func PlaceOf(e schedule.Candidate) (p Place) {
	for level, label := range labels {
		p[level], _ = e.Label(label)
	}
	return p
}

// Level returns the narrowest place that an endpoint shares with p.
func (p *Place) Level(e schedule.Candidate) Level {
	for level, label := range labels {
		if where, ok := e.Label(label); ok && where != "" && where == p[level] {
			return Level(level)
		}
	}
	return Apart
}

// Affinity finds the endpoint that others are to be near to: the first one that was picked for the request in another
// profile, such as the decode server while a prefill server is picked. Plugins embed it, with its parameters.
type Affinity struct {
	// TopologyProducerName names a topology-extractor; labels are always read.
	TopologyProducerName string `json:"topologyProducerName" effect:"warning"`
	// PeerTopologyHeader is a header of requests that names the place, if another picker has picked that server:
	// host=a,rack=b,zone=c,region=d, or some of these; of its value the first 128 bytes count. Empty = none does.
	PeerTopologyHeader string `json:"peerTopologyHeader"`

	header attributes.HeaderSlot
}

// Declare asks for the header.
func (a *Affinity) Declare(r *attributes.Reader) {
	if a.PeerTopologyHeader != "" {
		a.header = r.Header(a.PeerTopologyHeader)
	}
}

// Peer returns the place that candidates are to be near to; false = none is known.
func (a *Affinity) Peer(in *schedule.Input) (Place, bool) {
	for _, earlier := range in.Earlier().All() {
		if peer, picked := in.Picked(&earlier); picked {
			if p := PlaceOf(peer); p != (Place{}) {
				return p, true
			}
			break
		}
	}
	if a.PeerTopologyHeader == "" {
		return Place{}, false
	}
	text, _ := in.Header(a.header)
	p := read(text)
	return p, p != Place{}
}

// read reads a header. Of one that may have been cut, the last pair does not count.
func read(text string) (p Place) {
	if len(text) >= records.LabelBytes {
		text = text[:max(strings.LastIndexByte(text, ','), 0)]
	}
	for pair := range strings.SplitSeq(text, ",") {
		name, where, _ := strings.Cut(pair, "=")
		if level := slices.Index(names[:], name); level >= 0 {
			p[level] = where
		}
	}
	return p
}
