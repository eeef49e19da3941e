//go:build !nokubernetes

package app

import (
	"strings"
	"testing"
)

// hinted prefers the server for which an object of Kubernetes says the least cost.
const hinted = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: k8s-notification-source
  name: hints
  parameters: {group: example.com, version: v1, kind: Hint}
- {type: json-extractor, parameters: {attributes: [{name: example.com/cost, field: "{endpoint}.spec.cost"}]}}
- {type: endpoint-attribute-scorer, parameters: {attributeKey: example.com/cost}}
dataLayer:
  sources: [{pluginRef: hints, extractors: [{pluginRef: json-extractor}]}]
`

// Without Kubernetes a source of objects is a problem of the configuration, with its line; with it there is none.
func TestObjectsNeedKubernetes(t *testing.T) {
	const want = "--config-text:\nline 10: dataLayer.sources[0]: the objects are watched where pods of Kubernetes " +
		"are followed, and --endpoints names a file of endpoints"
	if _, err := parsed(t, "--config-text", hinted, "--endpoints", "e.yaml").load(t.Context()); err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := parsed(t, "--config-text", hinted, "--pool-name", "p").load(t.Context()); err != nil {
		t.Errorf("with a pool: %v", err)
	}
}

// Objects are asked for only if a plugin reads something of them. That the kind is not there ends nothing.
func TestObjectsAreAskedForIfTheyAreRead(t *testing.T) {
	unread := strings.Replace(hinted, "attributeKey: example.com/cost", "attributeKey: kv-cache-usage", 1)
	for text, want := range map[string]bool{hinted: true, unread: false} {
		s := running(t, "--endpoints=", "--pool-name", "llama", "--kubeconfig", emptyCluster(t), "--config-text", text,
			"--secure-serving=false", "--bind", "127.0.0.1", "--metrics-endpoint-auth=false")
		at := asked{url: "http://" + s.at("metrics-port")}
		page := ""
		soonTrue(t, "the calls for the pool", func() bool {
			_, page = at.get(t, "/metrics")
			return strings.Contains(page, `resource="inferencepools.`) &&
				(!want || strings.Contains(page, `{reason="not-found",resource="hint.example.com"}`))
		})
		if got := strings.Contains(page, "hint.example.com"); got != want {
			t.Errorf("objects are asked for: %v, want %v", got, want)
		}
	}
}
