package kube

import (
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// A definition that comes later is found within 2 s, and the pool with it.
func TestDefinitionThatComesLater(t *testing.T) {
	const group = "later.example.com"
	s := newSpace(t, shared)
	s.pod("a", "10.0.0.1", vllm, nil)
	p := startPicker(t, s.inPool("--pool-group", group)...)
	p.ready(false)
	<-time.After(4 * time.Second) // until pauses are at their longest
	definition := looseDefinitionOf(group, "InferencePool", "inferencepools", looseVersion("v1", true))
	if err := shared.defineOne(definition, "v1"); err != nil {
		t.Fatal(err)
	}
	s.must(http.MethodPost, s.pools(group), "", poolObject(group, "llama", 8000))
	machine := lateness.Begin()
	machine.Within(t, "ready after the definition and the pool came", p.ready(true), 2*time.Second)
	p.knows("a-rank-0 10.0.0.1:8000")
}

// After a short outage all that changed meanwhile is followed within 3 s: pods, the pool, and what stands beside it.
func TestShortOutage(t *testing.T) {
	const group = "llm-d.ai"
	c := newCluster(t)
	if err := c.defineOne(looseDefinition(group, "InferenceObjective", "inferenceobjectives"),
		"v1alpha2"); err != nil {
		t.Fatal(err)
	}
	s := newSpace(t, c)
	m, kubeconfig := newMiddle(t, c)
	s.pod("a", "10.0.0.1", vllm, nil)
	s.pool(8000)
	s.objective(group, "o", "llama", 1)
	p := startPicker(t, s.inPool("--kubeconfig", kubeconfig)...)
	p.knows("a-rank-0 10.0.0.1:8000")
	p.configured(`objective "o", priority 1`)
	for i, away := range []time.Duration{500 * time.Millisecond, 3 * time.Second} {
		m.set(true, 0)
		m.cut()
		<-time.After(away)
		port := 9000 + i
		s.merge(s.pools(poolGroup)+"/llama", object{"spec": object{"targetPorts": portObjects([]int{port})}})
		s.merge(s.extra(group, "inferenceobjectives")+"/o", object{"spec": object{"priority": port}})
		machine, began := lateness.Begin(), time.Now()
		m.set(false, 0)
		eventually(t, "the port of the pool", func() bool {
			return slices.Equal(p.endpoints(), []string{"a-rank-0 10.0.0.1:" + strconv.Itoa(port)})
		})
		p.configured(`objective "o", priority ` + strconv.Itoa(port))
		machine.Within(t, "all that changed in an outage of "+away.String()+" is known", time.Since(began),
			3*time.Second)
	}
}
