package kube

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// nearby has prompts read by a prefill server that is near to the decode server.
const nearby = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {type: prefill-filter}
- {type: decode-filter}
- {type: topology-extractor}
- {type: endpoint-notification-source}
- {type: topology-affinity-filter, parameters: {minAffinity: zone}}
- {type: topology-affinity-scorer}
- {type: always-disagg-pd-decider}
- {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}
schedulingProfiles:
- name: prefill
  plugins:
  - {pluginRef: prefill-filter}
  - {pluginRef: topology-affinity-filter}
  - {pluginRef: topology-affinity-scorer}
- {name: decode, plugins: [{pluginRef: decode-filter}]}
dataLayer:
  sources:
  - {pluginRef: endpoint-notification-source, extractors: [{pluginRef: topology-extractor}]}
`

// standing creates a pod of a role that is Ready at an address, with further labels.
func (s *space) standing(name, role, ip, hostname string, labels map[string]string) {
	s.t.Helper()
	all := map[string]string{"app": "vllm", "llm-d.ai/role": role}
	for k, v := range labels {
		all[k] = v
	}
	spec := object{"containers": []object{{"name": "vllm", "image": "vllm"}}}
	if hostname != "" {
		spec["hostname"] = hostname
	}
	s.must(http.MethodPost, s.pods(), "", object{"metadata": object{"name": name, "labels": all}, "spec": spec})
	s.status(name, ip, true)
}

// bind has a pod run on a node, as a scheduler does.
func (s *space) bind(pod, node string) {
	s.t.Helper()
	s.must(http.MethodPost, s.pods()+"/"+pod+"/binding", "", object{
		"apiVersion": "v1", "kind": "Binding", "metadata": object{"name": pod},
		"target": object{"apiVersion": "v1", "kind": "Node", "name": node},
	})
}

// A prefill server stays on the host of the decode server: by the labels of pods, which are followed live, else by
// their hostname, else by the node that they are bound to.
func TestPrefillStaysOnTheHostOfDecode(t *testing.T) {
	s := newSpace(t, shared)
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(nearby), 0o600); err != nil {
		t.Fatal(err)
	}
	const host, zone = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
	s.must(http.MethodPost, "/api/v1/nodes", "", object{
		"metadata": object{"name": s.name, "labels": object{zone: "z-" + s.name}},
	})
	s.standing("decode", "decode", "10.0.0.1", "", map[string]string{host: "host-1"})
	s.standing("by-label", "prefill", "10.0.0.2", "host-3", map[string]string{host: "host-1"})
	s.standing("by-hostname", "prefill", "10.0.0.3", "host-2", nil)
	s.standing("by-node", "prefill", "10.0.0.4", "", nil)
	s.standing("elsewhere", "prefill", "10.0.0.5", "host-9", map[string]string{zone: "z-9"})
	s.bind("by-node", s.name)
	s.pool(8000)
	p := startPicker(t, s.inPool("--config-file", file)...)
	p.knows("by-hostname-rank-0 10.0.0.3:8000", "by-label-rank-0 10.0.0.2:8000", "by-node-rank-0 10.0.0.4:8000",
		"decode-rank-0 10.0.0.1:8000", "elsewhere-rank-0 10.0.0.5:8000")
	p.ready(true)
	moves := func(labels object) {
		s.merge(s.pods()+"/decode", object{"metadata": object{"labels": labels}})
	}
	p.prefills("10.0.0.2:8000")
	moves(object{host: "host-2"})
	p.prefills("10.0.0.3:8000")
	moves(object{host: s.name})
	p.prefills("10.0.0.4:8000")
	moves(object{host: "host-4", zone: "z-9"})
	p.prefills("10.0.0.5:8000")
	// Of the node the API server copies labels of topology to a pod that is bound to it.
	moves(object{zone: "z-" + s.name})
	p.prefills("10.0.0.4:8000")
	s.merge(s.pods()+"/by-label", object{"metadata": object{"labels": object{host: "host-4"}}})
	p.prefills("10.0.0.2:8000")
}

// prefills waits until the prefill server of a request is the one at an address, and checks that it stays so.
func (p *picker) prefills(want string) {
	p.t.Helper()
	prefiller := func() string {
		set, status, text := p.ask()
		if status != http.StatusOK || set["x-gateway-destination-endpoint"] != "10.0.0.1:8000" {
			p.t.Fatalf("picked %v, %d %s; want the decode server", set, status, text)
		}
		return set["x-prefiller-host-port"]
	}
	eventually(p.t, "a prompt is read at "+want, func() bool { return prefiller() == want })
	for range 10 {
		if got := prefiller(); got != want {
			p.t.Errorf("a prompt is read at %s, want %s", got, want)
		}
	}
}
