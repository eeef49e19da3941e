package xds

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	// What the template's extensions are made of: without these they cannot be read.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
)

// servers is the name of the cluster of model servers, and of its endpoints where a bootstrap of the user's asks for
// them.
const servers = "model_servers"

// served is what one lane's proxies are told besides endpoints.
type served struct {
	listener *listenerv3.Listener
	route    *routev3.RouteConfiguration
	clusters []*clusterv3.Cluster
	// endpoints is the name under which the served cluster asks for its endpoints. It changes with the cluster: a proxy
	// that gets another cluster waits for endpoints anew, and would not be sent the same ones under the same name.
	endpoints string
}

// fromADS returns the source of what comes over the same stream. A second is enough, and a proxy that does not get it
// goes on.
func fromADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion: corev3.ApiVersion_V3, InitialFetchTimeout: durationpb.New(time.Second),
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

// serve takes the static file of a lane apart: its route and its endpoints come by themselves.
func (s Setup) serve() (*served, error) {
	s.Cluster, s.Servers = OverrideHost, nil
	b, err := s.parse()
	if err != nil {
		return nil, err
	}
	out := &served{listener: b.GetStaticResources().GetListeners()[0], clusters: b.GetStaticResources().GetClusters()}
	if out.route, err = takeRoute(out.listener); err != nil {
		return nil, err
	}
	for _, c := range out.clusters {
		if c.GetName() != servers {
			continue
		}
		c.LoadAssignment = nil
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: fromADS()}
		// Servers that leave take what was picked before, and nothing else, also while they are the majority.
		c.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{Value: 0}}
		version, err := hash(c)
		if err != nil {
			return nil, err
		}
		out.endpoints = servers + "-" + version
		c.EdsClusterConfig.ServiceName = out.endpoints
	}
	problems := []error{validate(out.listener), validate(out.route)}
	for _, c := range out.clusters {
		problems = append(problems, validate(c))
	}
	return out, errors.Join(problems...)
}

// parse reads the bootstrap as Envoy would.
func (s Setup) parse() (*bootstrapv3.Bootstrap, error) {
	text, err := s.Bootstrap()
	if err != nil {
		return nil, err
	}
	var tree any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	asJSON, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	b := &bootstrapv3.Bootstrap{}
	return b, protojson.Unmarshal(asJSON, b)
}

// takeRoute takes the route configuration out of a listener, which asks for it by name from then on.
func takeRoute(l *listenerv3.Listener) (*routev3.RouteConfiguration, error) {
	filter := l.GetFilterChains()[0].GetFilters()[0]
	hcm := &hcmv3.HttpConnectionManager{}
	if err := filter.GetTypedConfig().UnmarshalTo(hcm); err != nil {
		return nil, err
	}
	route := hcm.GetRouteConfig()
	rds := &hcmv3.Rds{ConfigSource: fromADS(), RouteConfigName: route.GetName()}
	hcm.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: rds}
	config := &anypb.Any{}
	if err := anypb.MarshalFrom(config, hcm, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, err
	}
	filter.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: config}
	return route, nil
}

// hash returns a name of the content of messages, in their order.
func hash[M proto.Message](all ...M) (string, error) {
	d := xxhash.New()
	for _, m := range all {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			return "", fmt.Errorf("%s: %w", m.ProtoReflect().Descriptor().FullName(), err)
		}
		_, _ = d.Write(b) // never fails
		_, _ = d.Write([]byte{0})
	}
	return strconv.FormatUint(d.Sum64(), 36), nil
}

// validate returns what is wrong with a message and all extensions in it, by the rules of Envoy's own protos.
func validate(m proto.Message) error {
	var all []error
	walk(m.ProtoReflect(), func(m proto.Message) {
		if v, ok := m.(interface{ ValidateAll() error }); ok {
			all = append(all, v.ValidateAll())
		}
	}, func(err error) { all = append(all, err) })
	return errors.Join(all...)
}

// walk calls visit for m and for what stands in every Any below it.
func walk(m protoreflect.Message, visit func(proto.Message), fail func(error)) {
	if a, ok := m.Interface().(*anypb.Any); ok {
		inner, err := a.UnmarshalNew()
		if err != nil {
			fail(err)
			return
		}
		visit(inner)
		walk(inner.ProtoReflect(), visit, fail)
		return
	}
	if m.Descriptor().ParentFile().Package() != "google.protobuf" {
		visit(m.Interface())
	}
	each := func(v protoreflect.Value) { walk(v.Message(), visit, fail) }
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { each(v); return true })
		case f.IsMap() || f.Message() == nil: // no messages in it
		case f.IsList():
			for i := range v.List().Len() {
				each(v.List().Get(i))
			}
		default:
			each(v)
		}
		return true
	})
}
