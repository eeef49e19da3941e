package kube

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// inPool are the flags of a picker that follows an InferencePool of a namespace.
func (s *space) inPool(flags ...string) []string {
	return append([]string{
		"--kubeconfig", s.kubeconfig(), "--pool-namespace", s.name, "--pool-name", "llama",
	}, flags...)
}

func TestPoolIsFollowed(t *testing.T) {
	s := newSpace(t, shared)
	s.pod("a", "10.0.0.1", vllm, nil)
	s.pod("b", "2001:db8::2", vllm, map[string]string{"llm-d.ai/active-ports": " 8001 , x"})
	s.pod("other", "10.0.0.3", map[string]string{"app": "web"}, nil)
	s.pool(8000, 8001)
	p := startPicker(t, s.inPool()...)
	b := "b-rank-1 [2001:db8::2]:8001"
	p.knows("a-rank-0 10.0.0.1:8000", "a-rank-1 10.0.0.1:8001", b)
	p.ready(true)
	if got, status, text := p.pick(); status != http.StatusOK || !strings.Contains(got, ":800") {
		t.Errorf("picked %q, %d %s", got, status, text)
	}

	s.status("a", "10.0.0.1", false)
	p.knows(b)
	s.status("a", "10.0.0.1", true)
	p.knows("a-rank-0 10.0.0.1:8000", "a-rank-1 10.0.0.1:8001", b)
	s.merge(s.pods()+"/a", object{"metadata": object{"finalizers": []string{"test.example.com/hold"}}})
	s.remove(s.pods() + "/a") // it terminates until the finalizer goes
	p.knows(b)
	s.merge(s.pods()+"/a", object{"metadata": object{"finalizers": nil}})
	s.pod("a", "10.0.0.9", vllm, nil)
	p.knows("a-rank-0 10.0.0.9:8000", "a-rank-1 10.0.0.9:8001", b)
	s.merge(s.pods()+"/a", object{"metadata": object{"labels": object{"app": "web"}}})
	p.knows(b)
	s.merge(s.pods()+"/b", object{"metadata": object{"annotations": object{"llm-d.ai/active-ports": nil}}})
	p.knows("b-rank-0 [2001:db8::2]:8000", b)

	s.merge(s.pools(poolGroup)+"/llama", object{"spec": object{"targetPorts": portObjects([]int{9000})}})
	p.knows("b-rank-0 [2001:db8::2]:9000")
	web := object{"matchLabels": object{"app": "web"}}
	s.merge(s.pools(poolGroup)+"/llama", object{"spec": object{"selector": web}})
	p.knows("a-rank-0 10.0.0.9:9000", "other-rank-0 10.0.0.3:9000")
	s.remove(s.pods() + "/other")
	p.knows("a-rank-0 10.0.0.9:9000")
}

// The metrics that are the reference's name endpoints by pod and rank.
func TestMetricsNameEndpointsByPodAndRank(t *testing.T) {
	s := newSpace(t, shared)
	port := modelServer(t)
	s.pod("a", "127.0.0.1", vllm, nil)
	s.pool(1, port)
	s.merge(s.pods()+"/a", object{"metadata": object{"annotations": object{"llm-d.ai/active-ports": fmt.Sprint(port)}}})
	p := startPicker(t, s.inPool()...)
	p.knows(fmt.Sprintf("a-rank-1 127.0.0.1:%d", port))
	p.ready(true)
	if _, status, text := p.pick(); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	one := func(n float64) bool { return n == 1 }
	p.counts(`llm_d_epp_ready_endpoints{name="llama"}`, one)
	p.counts(`llm_d_epp_per_endpoint_queue_size{model_server_endpoint="a-rank-1",name="llama"}`,
		func(n float64) bool { return n == 0 })
	p.counts(fmt.Sprintf(`llm_d_epp_scheduler_attempts_total{endpoint_name="a-rank-1",namespace="%s",port="%d",`+
		`status="success",target_model_name=""}`, s.name, port), one)
}

// A pool that comes later, goes and comes again.
func TestPoolThatIsNotThere(t *testing.T) {
	s := newSpace(t, shared)
	s.pod("a", "10.0.0.1", vllm, nil)
	p := startPicker(t, s.inPool()...)
	for i := range 3 {
		p.ready(false)
		want := fmt.Sprintf("there is no InferencePool %s/llama", s.name)
		eventually(t, "/readyz says "+want, func() bool { return strings.Contains(p.page("/readyz"), want) })
		if got := p.page("/healthz"); got != "ok\n" {
			t.Errorf("/healthz: %q", got)
		}
		p.refuses()
		s.pool(8000)
		machine := lateness.Begin()
		machine.Within(t, "ready after the pool came", p.ready(true), 2*time.Second)
		p.knows("a-rank-0 10.0.0.1:8000")
		if got, _, text := p.pick(); !strings.HasPrefix(got, "10.0.0.1:8000") {
			t.Errorf("with a pool: picked %q, %s", got, text)
		}
		if i < 2 {
			s.remove(s.pools(poolGroup) + "/llama")
			p.knows()
		}
	}
}

// A namespace without anything, and a definition that is not there, are the same.
func TestDefinitionThatIsNotThere(t *testing.T) {
	s := newSpace(t, shared)
	p := startPicker(t, s.inPool("--pool-group", "nowhere.example.com")...)
	p.ready(false)
	const want = "could not find the requested resource"
	eventually(t, "/readyz says "+want, func() bool { return strings.Contains(p.page("/readyz"), want) })
	if text := p.page("/metrics"); !strings.Contains(text,
		`signalbox_discovery_errors_total{reason="not-found",resource="inferencepools.nowhere.example.com"}`) {
		t.Error("the missing definition is not counted")
	}
	p.refuses()
}

// refuses checks that a picker which knows no endpoint answers with 503 and a reason.
func (p *picker) refuses() {
	p.t.Helper()
	if got, status, text := p.pick(); status != http.StatusServiceUnavailable ||
		!strings.Contains(text, "rejected-no-endpoints") {
		p.t.Errorf("without endpoints: picked %q, %d %s; want 503 with a reason", got, status, text)
	}
}

// An object with fields of the wrong type, stored because its definition is loose, is named and changes nothing.
func TestPoolWithFieldsOfTheWrongType(t *testing.T) {
	const group = "loose.example.com"
	s := newSpace(t, shared)
	s.pod("a", "10.0.0.1", vllm, map[string]string{"example.com/huge": strings.Repeat("x", 200_000)})
	s.must(http.MethodPost, s.pools(group), "", poolObject(group, "llama", 8000))
	s.must(http.MethodPost, s.pools(group), "", object{
		"apiVersion": group + "/v1", "kind": "InferencePool", "metadata": object{"name": "broken"}, "spec": 5,
	})
	p := startPicker(t, s.inPool("--pool-group", group)...)
	p.knows("a-rank-0 10.0.0.1:8000")
	s.merge(s.pools(group)+"/llama", object{"spec": object{"targetPorts": "8000"}})
	p.says("spec.targetPorts: got string, want a list")
	p.ready(true)
	p.knows("a-rank-0 10.0.0.1:8000")
	s.merge(s.pools(group)+"/llama", object{"spec": object{
		"targetPorts": portObjects([]int{9000}), "junk": strings.Repeat("x", 1_000_000),
	}})
	p.knows("a-rank-0 10.0.0.1:9000")
	s.merge(s.pools(group)+"/llama", object{"spec": 7})
	p.says("spec: got number, want a mapping")
	p.knows("a-rank-0 10.0.0.1:9000")
}
