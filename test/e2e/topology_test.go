package e2e

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// nearby has the decode server that a header of the request names, and a prefill server near to it.
const nearby = `
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: prefill-filter
- type: decode-filter
- type: header-based-testing-filter
- type: random-picker
- type: max-score-picker
- type: topology-extractor
- type: endpoint-notification-source
- {type: %s}
- type: always-disagg-pd-decider
- type: disagg-profile-handler
  parameters: {deciders: {prefill: always-disagg-pd-decider}}
schedulingProfiles:
- name: prefill
  plugins: [{pluginRef: prefill-filter}, {pluginRef: %s}, {pluginRef: %s}]
- name: decode
  plugins: [{pluginRef: decode-filter}, {pluginRef: header-based-testing-filter}, {pluginRef: random-picker}]
dataLayer:
  sources:
  - pluginRef: endpoint-notification-source
    extractors: [{pluginRef: topology-extractor}]
`

// prefillerEcho answers with the prefill server that the request names.
func prefillerEcho(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Prefiller", r.Header.Get("X-Prefiller-Host-Port"))
	mirror(w, r)
}

// TestEnvoyPrefillsOnTheHostOfDecode: by the labels of the endpoints file a prompt is read on the host where its tokens
// are generated, and when labels change, so does the prefill server.
func TestEnvoyPrefillsOnTheHostOfDecode(t *testing.T) {
	for plugin, picker := range map[string]string{
		"topology-affinity-filter": "random-picker", "topology-affinity-scorer": "max-score-picker",
	} {
		t.Run(plugin, func(t *testing.T) {
			decode, prefill := handlers(t, 2, prefillerEcho), handlers(t, 3, mirror)
			s := &stack{servers: decode, picker: serve(t, nil, "--config-text",
				fmt.Sprintf(nearby, plugin, plugin, picker))}
			list := func(hosts ...string) {
				writeFile(t, s.picker.file, standing(t, hosts, decode, prefill))
			}
			list("a", "b", "a", "b", "c")
			s.picker.pooled(t, 5)
			s.envoy = startEnvoy(t, overrideHost, s.picker.grpcPort, decode)
			s.envoy.asksPicker(t)
			s.client = newClient(s.envoy.url)
			t.Cleanup(s.client.close)
			ask := func(decode string) (prefiller string) {
				t.Helper()
				a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions",
					chatBody(model, "hello", 2, false), http.Header{"Test-Epp-Endpoint-Selection": {decode}})
				if !a.whole() || a.header.Get("X-Server") != decode {
					t.Fatalf("%s, served by %s, want %s", a.String(), a.header.Get("X-Server"), decode)
				}
				return a.header.Get("X-Prefiller")
			}
			for i, server := range decode {
				for range 10 { // drawn of three, it would be the right one each time in one run of 59 049
					if got := ask(server); got != prefill[i] {
						t.Fatalf("decode server %d: the prompt is read by %s, want %s, on its host", i, got, prefill[i])
					}
				}
			}
			list("a", "b", "c", "a", "b")
			eventually(t, 10*time.Second, "a prefill server on the host by the labels of now", func() bool {
				return ask(decode[0]) == prefill[1] && ask(decode[1]) == prefill[2]
			})
		})
	}
}

// standing returns an endpoints file of decode and prefill servers, each on a host.
func standing(t *testing.T, hosts, decode, prefill []string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("endpoints:\n")
	for i, address := range append(decode[:len(decode):len(decode)], prefill...) {
		role := "decode"
		if i >= len(decode) {
			role = "prefill"
		}
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "- {name: %s-%s, address: %q, port: %q, labels: {llm-d.ai/role: %s, "+
			"kubernetes.io/hostname: %s}}\n", role, port, host, port, role, hosts[i])
	}
	return b.String()
}
