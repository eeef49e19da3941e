package e2e

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// trusting is a configuration that says who may set headers.
func trusting(t *testing.T, trust string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "config.yaml")
	writeFile(t, file, "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins: [{type: agent-identity}, "+
		"{type: queue-scorer}]\nobjectives: [{name: chat, priority: 10}]\nrequestHandler: "+trust+"\n")
	return file
}

// namedFlow is a flow as a record has it.
type namedFlow struct {
	FairnessID string `json:"fairness_id"`
	Priority   int
}

// flowOf returns the flow that the record of a request names.
func (p *picker) flowOf(t *testing.T, id string) namedFlow {
	t.Helper()
	_, text := get(p.metrics + "/debug/requests/" + id + "?format=json")
	var page struct{ Requests []namedFlow }
	if err := json.Unmarshal([]byte(text), &page); err != nil || len(page.Requests) != 1 {
		t.Fatalf("%v in %s", err, text)
	}
	return page.Requests[0]
}

// claims are headers by which a client says what it likes.
var claims = http.Header{
	"X-Llm-D-Inference-Fairness-Id": {"forged"}, "X-Gateway-Inference-Fairness-Id": {"forged"},
	"X-Llm-D-Inference-Objective": {"chat"}, "X-Llm-D-Inference-Ttl": {"9s"}, "X-Slo-Ttft-Ms": {"1"},
	"Session_id": {"forged"},
}

// claimant is a client that says what it likes, and the server that hears of it.
type claimant struct {
	*testing.T
	picker *picker
	client *client
	server *headerServer
}

// asks sends a chat with the claims and further headers. It wants its flow, and how many claims reach the server.
func (c claimant) asks(more http.Header, want namedFlow, reach int) {
	c.Helper()
	header := more.Clone()
	for name, values := range claims {
		header[name] = values
	}
	a := c.client.chatWith(c.T, header)
	if a.status != http.StatusOK {
		c.Fatal(a.String())
	}
	if got := c.picker.flowOf(c.T, a.header.Get("X-Signalbox-Request-Id")); got != want {
		c.Errorf("the flow is %+v, want %+v", got, want)
	}
	came, seen := 0, c.server.last(c.T)
	for name := range claims {
		if seen.Get(name) != "" {
			came++
		}
	}
	if came != reach {
		c.Errorf("%d of the claims reach the server, want %d: %v", came, reach, seen)
	}
}

// TestEnvoyTrustsMetadata: with trust: envoy-metadata, a filter that stands before ext_proc names the flow of a request
// and its objective. What the client says has no effect, and no server receives it.
func TestEnvoyTrustsMetadata(t *testing.T) {
	seenElsewhere(t)
	const picks = "          - name: envoy.filters.http.ext_proc\n"
	const tells = `          - name: envoy.filters.http.header_to_metadata
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
              request_rules:
              - header: x-user
                on_header_present: {metadata_namespace: envoy.lb, key: x-llm-d-inference-fairness-id}
              - header: x-class
                on_header_present: {metadata_namespace: envoy.lb, key: x-llm-d-inference-objective}
`
	for _, bootstrap := range []string{overrideHost, overrideHostFull} {
		t.Run(bootstrap[strings.LastIndexByte(bootstrap, '/')+1:], func(t *testing.T) {
			server := newHeaderServer(t)
			s := startStackBy(t, bootstrap, []string{server.address()},
				[]string{"--config-file", trusting(t, "{trust: envoy-metadata}")},
				func(text string) string { return replaceOnce(t, text, picks, tells+picks) })
			c := claimant{t, s.picker, s.client, server}
			c.asks(http.Header{}, namedFlow{"default-flow", 0}, 0)
			c.asks(http.Header{"X-User": {"alice"}}, namedFlow{"alice", 0}, 0)
			c.asks(http.Header{"X-User": {"bob"}, "X-Class": {"chat"}}, namedFlow{"bob", 10}, 0)
		})
	}
}

// TestEnvoyTrustsCertificates: with trust: mtls, headers count if the certificate that Envoy shows has a name that the
// configuration lists. A change of the list holds for connections that stand.
func TestEnvoyTrustsCertificates(t *testing.T) {
	seenElsewhere(t)
	ca := newAuthority(t)
	server := newHeaderServer(t)
	file := trusting(t, "{trust: mtls, trustedProxies: [gateway]}")
	p := serve(t, []string{server.address()}, "--config-file", file, "--cert-path", ca.issue(t, "signalbox"),
		"--client-ca-file", ca.file, "--envoy-ca", ca.file, "--envoy-cert-path", ca.issue(t, "gateway"))
	p.pooled(t, 1)
	e := startPrinted(t, p)
	e.asksPicker(t)
	client := newClient(e.url)
	t.Cleanup(client.close)
	c := claimant{t, p, client, server}
	c.asks(http.Header{}, namedFlow{"forged", 10}, len(claims))

	other := trusting(t, "{trust: mtls, trustedProxies: [spiffe://elsewhere/gateway]}")
	writeFile(t, file, readFile(t, other))
	eventually(t, 20*time.Second, "the new list is in force", func() bool {
		_, page := get(p.metrics + "/debug/config")
		return strings.Contains(page, "spiffe://elsewhere/gateway")
	})
	c.asks(http.Header{}, namedFlow{"default-flow", 0}, 0)
}
