package topology_test

import (
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/filters"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
	"github.com/signalbox-epp/signalbox/engine/scorers"
	"github.com/signalbox-epp/signalbox/messages"
)

// at returns an endpoint in a place: host, rack, zone and region, of which the last ones may be missing.
func at(place string) scheduletest.Endpoint {
	keys := []string{"kubernetes.io/hostname", "topology.kubernetes.io/rack", "topology.kubernetes.io/zone",
		"topology.kubernetes.io/region"}
	labels := map[string]string{}
	for i, where := range strings.Fields(place) {
		if where != "-" {
			labels[keys[i]] = where
		}
	}
	return scheduletest.Endpoint{Labels: labels}
}

// TestPrefillIsNearDecode picks a decode server first, and then, by topology alone, a prefill server.
func TestPrefillIsNearDecode(t *testing.T) {
	host := func(f schedule.Filter) schedule.Filter {
		f.(*filters.TopologyAffinity).MinAffinity = "zone"
		return f
	}
	for name, c := range map[string]struct {
		decode  string
		prefill []string
		want    int
	}{
		"same host":          {"a r z e", []string{"b s y e", "a r z e"}, 1},
		"same rack":          {"a r z e", []string{"b s y e", "b r z e"}, 1},
		"same zone":          {"a r z e", []string{"b s y e", "b s z e"}, 1},
		"a host is all":      {"a - - -", []string{"b r z e", "a"}, 1},
		"none is near":       {"a r z e", []string{"b s y d", "c t x c"}, 0},
		"nothing is known":   {"", []string{"b s y d", "c t x c"}, 0},
		"the first of equal": {"a r z e", []string{"b r z e", "c r z e"}, 0},
	} {
		for kind, plugin := range map[string]any{
			"scorer": scorers.Types["topology-affinity-scorer"](),
			"filter": host(filters.Types["topology-affinity-filter"]()),
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				if v, ok := plugin.(interface{ Validate() error }); ok && v.Validate() != nil {
					t.Fatal(v.Validate())
				}
				all := []scheduletest.Endpoint{at(c.decode)}
				for _, place := range c.prefill {
					all = append(all, at(place))
				}
				s := scheduletest.NewSeries(t, plugin, scheduletest.Profile{Name: "decode", Ranks: []int{0}},
					scheduletest.Profile{Name: "prefill", Ranks: []int{1, 2}})
				out := s.Pick(scheduletest.Request(), all...)
				if got := int(out.Decision.Profiles.At(1).Ranked.At(0)) - 1; got != c.want {
					t.Errorf("prefill server %d was picked, want %d", got, c.want)
				}
			})
		}
	}
}

// Another picker may have picked the decode server, and says in a header where it stands.
func TestPeerOfAHeader(t *testing.T) {
	long := "host=" + strings.Repeat("x", 110) + ",rack=r,zone=ywhich is cut"
	for name, c := range map[string]struct {
		header string
		want   [3]float32
	}{
		"all":      {"host=a,rack=r,zone=z,region=e", [3]float32{1, 0.2, 0.05}},
		"zone":     {"zone=z", [3]float32{0.05, 0.05, 0.05}},
		"odd":      {"planet=a,host,zone=z", [3]float32{0.05, 0.05, 0.05}},
		"none":     {"", [3]float32{}},
		"odd only": {"=,==,host", [3]float32{}},
		"cut":      {long[:128], [3]float32{0.2, 0.2, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(scorers.TopologyAffinity)
			s.PeerTopologyHeader = "x-peer"
			req := &messages.Request{Headers: messages.ListOf(messages.HeaderValue{Text: c.header, Given: true})}
			var got [3]float32
			scheduletest.Show(t, s, req, func(in *schedule.Input) {
				s.Score(in, got[:])
				if n := testing.AllocsPerRun(10, func() { s.Score(in, got[:]) }); n != 0 {
					t.Errorf("%v allocations, want 0", n)
				}
			}, at("a r z e"), at("b r z e"), at("c s z e"))
			if got != c.want {
				t.Errorf("%q scores %v, want %v", c.header, got, c.want)
			}
		})
	}
}
