package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestEnvoyAsksForEndpointsAlone: without --xds-listen a bootstrap of the user's own asks for the endpoints of its
// cluster.
func TestEnvoyAsksForEndpointsAlone(t *testing.T) {
	servers := simulated(t, 2, quick...)
	port := freePorts(t, 1)[0]
	p := serve(t, servers[:1], "--xds-port", strconv.Itoa(port))
	p.pooled(t, 1)
	folder := t.TempDir()
	config := filepath.Join(folder, "envoy.yaml")
	writeFile(t, config, ownBootstrap(t, printed(t, "--envoy-version", envoyVersion, "--listen", "127.0.0.1:0",
		"--admin", "127.0.0.1:0", "--grpc-port", strconv.Itoa(p.grpcPort)), port))
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

// TestEnvoyFollowsAThousandEndpoints: every second one of a thousand leaves and another one joins. Each change is told
// within 200 ms of its discovery, and no pick has to go without Envoy's word.
func TestEnvoyFollowsAThousandEndpoints(t *testing.T) {
	seenElsewhere(t)
	many, changes := 1000, 10
	if raceEnabled() {
		many = 100
	}
	servers := simulated(t, many+changes, quick...)
	p, port := serveXds(t, servers[:many], "-v4")
	e := startXdsEnvoy(t, xdsLight, port)
	c := newClient(e.url)
	t.Cleanup(c.close)
	p.sampled(t, many) // the first pages of them all, at once, are no part of what is measured
	toldBefore, takenBefore := len(p.told()), len(p.taken())
	for i := range changes {
		next := time.After(time.Second)
		p.setEndpoints(t, servers[i+1:many+i+1])
		for n := range 4 {
			if a := c.chat(model, fmt.Sprintf("change %d, request %d", i, n), 2); !a.whole() {
				t.Error(a.String())
			}
		}
		<-next
	}
	e.knows(t, servers[changes:])
	told, taken := p.told()[toldBefore:], p.taken()[takenBefore:]
	if len(told) < changes || len(taken) < changes { // at least: what comes while one is told goes with the next
		t.Fatalf("%d changes were told %d times and taken %d times", changes, len(told), len(taken))
	}
	slices.Sort(told)
	slices.Sort(taken)
	t.Logf("FIGURES %d endpoints, %d changes, one a second: told after %v (median), %v (longest); taken after %v "+
		"(median), %v (longest)",
		many, changes, told[len(told)/2], told[len(told)-1], taken[len(taken)/2], taken[len(taken)-1])
	if most := told[len(told)-1]; most > 200*time.Millisecond && !raceEnabled() {
		t.Errorf("the slowest was told after %v, want 200ms", most)
	}
	for _, metric := range []string{"signalbox_xds_nacks_total", "signalbox_served_elsewhere_total",
		"signalbox_pool_acknowledgements_overdue_total", "signalbox_pool_loops_passed_over_total"} {
		if n := p.metric(metric); n != 0 {
			t.Errorf("%s is %v", metric, n)
		}
	}
}

// told is how long after its discovery each change was handed to all streams.
func (p *picker) told() []time.Duration {
	return p.durations("endpoints are handed to all xDS streams", "after", "")
}

// taken is how long a proxy took to acknowledge endpoints, each time.
func (p *picker) taken() []time.Duration {
	return p.durations("a proxy has taken an xDS response (ACK)", "took", "endpoint")
}

// durations are those of all log lines with a message and, if it is not empty, a type; in order.
func (p *picker) durations(message, field, kind string) []time.Duration {
	var all []time.Duration
	for line := range strings.Lines(p.log.text()) {
		var entry map[string]any
		if !strings.Contains(line, message) || json.Unmarshal([]byte(line), &entry) != nil || kind != "" &&
			entry["type"] != kind {
			continue
		}
		if seconds, ok := entry[field].(float64); ok {
			all = append(all, time.Duration(seconds*float64(time.Second)))
		}
	}
	return all
}

// ownBootstrap has model_servers ask by xDS, in the place of its list.
func ownBootstrap(t *testing.T, text string, port int) string {
	t.Helper()
	text = replaceOnce(t, text, "    type: STATIC\n",
		"    type: EDS\n    eds_cluster_config: {eds_config: {ads: {}, resource_api_version: V3}}\n")
	begin := strings.Index(text, "    load_assignment:\n      cluster_name: model_servers\n")
	end := begin + strings.Index(text[begin:], "    circuit_breakers:")
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
