package xds

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"github.com/signalbox-epp/signalbox/messages"
)

// assignments returns the endpoints of an announcement under each name, and the version of all of them.
func assignments(list messages.List[messages.AnnouncedEndpoint], names []string) ([]types.Resource, string, error) {
	hosts := make([]*endpointv3.LbEndpoint, 0, list.Len())
	sorted := list.Append(nil)
	slices.SortFunc(sorted, func(a, b messages.AnnouncedEndpoint) int { return cmp.Compare(a.Address, b.Address) })
	for _, e := range sorted { // another order is not another content
		at, err := netip.ParseAddrPort(string(e.Address))
		if err != nil {
			return nil, "", fmt.Errorf("endpoint %q: %w", e.Address, err)
		}
		hosts = append(hosts, host(at, e.Leaving))
	}
	all := make([]types.Resource, 0, len(names))
	version := ""
	for _, name := range names {
		localities := []*endpointv3.LocalityLbEndpoints{{LbEndpoints: hosts}}
		a := &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: localities}
		if version == "" { // the others differ in nothing but their name
			if err := a.ValidateAll(); err != nil {
				return nil, "", err
			}
			var err error
			if version, err = hash(a); err != nil {
				return nil, "", err
			}
		}
		all = append(all, a)
	}
	return all, version, nil
}

// host returns one endpoint. A proxy still takes a pick of one that drains, and sends nothing else there.
func host(at netip.AddrPort, leaving bool) *endpointv3.LbEndpoint {
	health := corev3.HealthStatus_HEALTHY
	if leaving {
		health = corev3.HealthStatus_DRAINING
	}
	return &endpointv3.LbEndpoint{
		HealthStatus: health,
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address:       at.Addr().String(),
				PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(at.Port())},
			}}},
		}},
	}
}

// unit returns what proxies of a lane are told at one moment: all of it, or nothing. s is nil where endpoints are all.
func (s *served) unit(endpoints []types.Resource, version string) (*cache.Snapshot, error) {
	unit := &cache.Snapshot{}
	unit.Resources[types.Endpoint] = cache.NewResources(version, endpoints)
	if s != nil {
		if err := s.into(unit); err != nil {
			return nil, err
		}
	}
	if err := unit.ConstructVersionMap(); err != nil {
		return nil, err
	}
	return unit, nil
}

// into adds listener, route and clusters, each type under the version of its content.
func (s *served) into(unit *cache.Snapshot) error {
	listener, err := hash(s.listener)
	if err != nil {
		return err
	}
	route, err := hash(s.route)
	if err != nil {
		return err
	}
	clusters, err := hash(s.clusters...)
	if err != nil {
		return err
	}
	unit.Resources[types.Listener] = cache.NewResources(listener, []types.Resource{s.listener})
	unit.Resources[types.Route] = cache.NewResources(route, []types.Resource{s.route})
	unit.Resources[types.Cluster] = cache.NewResources(clusters, asResources(s.clusters))
	return consistent(unit)
}

func asResources(clusters []*clusterv3.Cluster) []types.Resource {
	all := make([]types.Resource, 0, len(clusters))
	for _, c := range clusters {
		all = append(all, c)
	}
	return all
}

// consistent returns what is asked for by name and not there. There may be more: a proxy is sent what it
// names.
func consistent(unit *cache.Snapshot) error {
	for typ, names := range cache.GetAllResourceReferences(unit.Resources) {
		there := unit.GetResources(typ)
		for name := range names {
			if _, ok := there[name]; !ok {
				return fmt.Errorf("%s %q is referred to, and not there", typ, name)
			}
		}
	}
	return nil
}

// kinds are the resource types, as metrics and logs name them.
var kinds = map[string]string{
	resource.EndpointType: "endpoint", resource.ClusterType: "cluster",
	resource.ListenerType: "listener", resource.RouteType: "route",
}
