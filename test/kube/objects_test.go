package kube

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hinted prefers the server for which an object of Kubernetes says the least cost.
const hinted = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: k8s-notification-source
  name: hints
  parameters: {group: hints.example.com, version: v1, kind: Hint}
- {type: json-extractor, parameters: {attributes: [{name: example.com/cost, field: "{endpoint}.spec.cost"}]}}
- {type: endpoint-attribute-scorer, parameters: {attributeKey: example.com/cost}}
dataLayer:
  injectDefaults: false
  sources: [{pluginRef: hints, extractors: [{pluginRef: json-extractor}]}]
`

const hintGroup = "hints.example.com"

// hint creates an object with a cost, or changes it.
func (s *space) hint(name string, cost any) {
	s.t.Helper()
	path := "/apis/" + hintGroup + "/v1/namespaces/" + s.name + "/hints"
	o := object{
		"apiVersion": hintGroup + "/v1", "kind": "Hint", "metadata": object{"name": name}, "spec": object{"cost": cost},
	}
	if _, err := s.do(http.MethodPost, path, "", o); err != nil {
		s.merge(path+"/"+name, object{"spec": object{"cost": cost}})
	}
}

// goesTo waits until 30 requests in a row go to an address: each endpoint hears of a change at its own time, and until
// then any may get some.
func (p *picker) goesTo(want string) {
	p.t.Helper()
	eventually(p.t, "requests go to "+want, func() bool {
		for range 30 {
			got, status, text := p.pick()
			if status != http.StatusOK {
				p.t.Fatalf("no pick: %d %s", status, text)
			}
			if first, _, _ := strings.Cut(got, ","); first != want {
				return false
			}
		}
		return true
	})
}

// Objects of a kind that the configuration names decide about picks, live: of a definition that comes later, and with a
// right that comes later still, without which the picker serves on.
func TestObjectsOfTheConfiguration(t *testing.T) {
	c := newCluster(t)
	s := newSpace(t, c)
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(hinted), 0o600); err != nil {
		t.Fatal(err)
	}
	s.pod("a", "10.0.0.1", vllm, nil)
	s.pod("b", "10.0.0.2", vllm, nil)
	s.pool(8000)
	token := s.user("picker")
	s.grant("", "pods")
	s.grant(poolGroup, "inferencepools")
	p := startPicker(t, s.inPool("--kubeconfig", s.kubeconfigOf(t, token), "--config-file", file)...)
	p.ready(true)
	p.says("find hint." + hintGroup)
	definition := looseDefinition(hintGroup, "Hint", "hints")
	definition["spec"].(object)["versions"].([]object)[0]["name"] = "v1"
	if err := c.defineOne(definition, "v1"); err != nil {
		t.Fatal(err)
	}
	s.hint("a", 3)
	s.hint("b", 1)
	s.hint("c", "high")
	p.says(`cannot list resource \"hints\"`)
	p.counts(`signalbox_discovery_errors_total{reason="forbidden",resource="hints.`+hintGroup+`"}`,
		func(n float64) bool { return n > 0 })
	p.ready(true)
	if _, status, text := p.pick(); status != http.StatusOK {
		t.Errorf("without the right: %d %s", status, text)
	}
	s.grant(hintGroup, "hints")
	p.goesTo("10.0.0.2:8000")
	s.hint("a", 0)
	p.goesTo("10.0.0.1:8000")
	s.remove("/apis/" + hintGroup + "/v1/namespaces/" + s.name + "/hints/b")
	s.hint("a", 5)
	s.hint("b-rank-0", 4) // that of the endpoint itself
	p.goesTo("10.0.0.2:8000")
	s.kill()
	s.http.CloseIdleConnections()
	p.counts("signalbox_discovery_stale_seconds", func(n float64) bool { return n > 3 }) // older than samples may be
	p.goesTo("10.0.0.2:8000")
}
