package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestEnvoyAsksForEndpointsAlone: without --xds-listen a bootstrap of the user's own asks for the endpoints of its cluster.
func TestEnvoyAsksForEndpointsAlone(t *testing.T) {
	servers := simulated(t, 2, quick...)
	port := freePorts(t, 1)[0]
	p := serve(t, servers[:1], "--xds-port", strconv.Itoa(port))
	p.pooled(t, 1)
	folder := t.TempDir()
	config := filepath.Join(folder, "envoy.yaml")
	writeFile(t, config, ownBootstrap(t, printed(t, "--envoy-version", envoyVersion, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--grpc-port", strconv.Itoa(p.grpcPort)), port))
	e := &envoy{}
	e.run(t, config, folder)
	e.asksPicker(t)
	c := newClient(e.url)
	t.Cleanup(c.close)
	p.setEndpoints(t, servers)
	p.pooled(t, 2)
	e.knows(t, servers)
	eventually(t, 10*time.Second, "both servers serve", func() bool {
		if a := c.chat(model, "hello", 2); !a.whole() {
			t.Fatal(a.String())
		}
		return served(servers[0]) > 0 && served(servers[1]) > 0
	})
	if n := p.metric("signalbox_served_elsewhere_total"); n != 0 {
		t.Errorf("%v served elsewhere", n)
	}
	p.toldInTime(t)
}

// ownBootstrap has model_servers ask by xDS, in the place of its list.
func ownBootstrap(t *testing.T, text string, port int) string {
	t.Helper()
	text = replaceOnce(t, text, "    type: STATIC\n", "    type: EDS\n    eds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}\n")
	begin := strings.Index(text, "    load_assignment:\n      cluster_name: model_servers\n")
	end := begin + strings.Index(text[begin:], "    # Every request in flight counts")
	text = text[:begin] + text[end:]
	return replaceOnce(t, text, "static_resources:\n", `dynamic_resources:
  ads_config:
    api_type: DELTA_GRPC
    transport_api_version: V3
    grpc_services: [{envoy_grpc: {cluster_name: xds}}]
static_resources:
`) + fmt.Sprintf(`  - name: xds
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: xds
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}]}]
`, port)
}
