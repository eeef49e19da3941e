package kube

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// eventsOn returns the Events on the InferencePool llama, which `kubectl describe` shows, each "type reason: message".
func (s *space) eventsOn(group string) (all []string) {
	s.t.Helper()
	uid := s.must(http.MethodGet, s.pools(group)+"/llama", "", nil)["metadata"].(map[string]any)["uid"]
	list := s.must(http.MethodGet, fmt.Sprintf("/api/v1/namespaces/%s/events?fieldSelector=involvedObject.kind="+
		"InferencePool,involvedObject.namespace=%s,involvedObject.name=llama,involvedObject.uid=%v", s.name, s.name,
		uid), "", nil)
	items, _ := list["items"].([]any)
	for _, item := range items {
		e := item.(map[string]any)
		all = append(all, fmt.Sprintf("%v %v: %v", e["type"], e["reason"], e["message"]))
	}
	return all
}

// told waits until an Event is on the pool.
func (s *space) told(group, want string) {
	s.t.Helper()
	eventually(s.t, "the event "+want, func() bool { return slices.Contains(s.eventsOn(group), want) })
}

// counts waits until a series of the metrics page has a value.
func (p *picker) counts(series string, holds func(value float64) bool) {
	p.t.Helper()
	eventually(p.t, series, func() bool {
		for line := range strings.SplitSeq(p.page("/metrics"), "\n") {
			var value float64
			if rest, ok := strings.CutPrefix(line, series+" "); ok {
				if _, err := fmt.Sscan(rest, &value); err != nil {
					p.t.Fatalf("%s: %v", line, err)
				}
				return holds(value)
			}
		}
		return false
	})
}

const (
	noneReady  = "Warning NoReadyEndpoints: No pod of the pool is Ready: requests are answered 503."
	readyAgain = "Normal EndpointsReady: The pool has endpoints again: 1."
)

// Without the right to create Events the picker serves on, and says so once. With it the pool has them. Of the pool
// itself, and of its status, which is the gateway's, nothing is touched.
func TestEventsOnThePool(t *testing.T) {
	s := newSpace(t, shared)
	s.pod("a", "10.0.0.1", vllm, nil)
	s.pool(8000)
	parents := []object{{
		"parentRef": object{"name": "gateway"},
		"conditions": []object{{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
			"lastTransitionTime": "2026-11-25T00:00:00Z"}},
	}}
	s.merge(s.pools(poolGroup)+"/llama/status", object{"status": object{"parents": parents}})
	before := s.must(http.MethodGet, s.pools(poolGroup)+"/llama", "", nil)
	token := s.user("picker")
	s.grant("", "pods")
	s.grant(poolGroup, "inferencepools")
	p := startPicker(t, s.inPool("--kubeconfig", s.kubeconfigOf(t, token), "--events")...)
	p.ready(true)
	p.knows("a-rank-0 10.0.0.1:8000")
	forbidden := `signalbox_events_total{reason="NoReadyEndpoints",result="forbidden"}`
	s.status("a", "10.0.0.1", false)
	p.counts(forbidden, func(n float64) bool { return n == 1 })
	p.says("events: they cannot be written")
	p.says(`cannot create resource \"events\"`)
	p.ready(true)

	s.grant("", "events", "create")
	eventually(t, "an event with the right, which takes a moment", func() bool {
		s.status("a", "10.0.0.1", true)
		p.knows("a-rank-0 10.0.0.1:8000")
		s.status("a", "10.0.0.1", false)
		p.knows()
		return len(s.eventsOn(poolGroup)) > 0
	})
	p.says("events: they are written again")
	if n := strings.Count(p.log.String(), "events: they cannot be written"); n != 1 {
		t.Errorf("the log says %d times that events cannot be written, want once", n)
	}
	after := s.must(http.MethodGet, s.pools(poolGroup)+"/llama", "", nil)
	if !reflect.DeepEqual(before, after) {
		t.Errorf("the pool was\n%v\nand is\n%v", before, after)
	}
}

// However often the pool changes, few Events are on it, and without the flag there are none.
func TestEventsAreFew(t *testing.T) {
	const group, changes = "loose.example.com", 30
	s := newSpace(t, shared)
	s.must(http.MethodPost, s.pools(group), "", poolObject(group, "llama", 8000))
	silent := startPicker(t, s.inPool("--pool-group", group)...)
	silent.ready(true)
	s.pod("a", "10.0.0.1", vllm, nil)
	silent.knows("a-rank-0 10.0.0.1:8000")
	s.status("a", "10.0.0.1", false)
	silent.knows()
	p := startPicker(t, s.inPool("--pool-group", group, "--events")...)
	s.told(group, noneReady)
	s.status("a", "10.0.0.1", true)
	s.told(group, readyAgain)
	for i := range changes {
		s.merge(s.pools(group)+"/llama", object{"spec": object{"targetPorts": []any{object{"number": 70_000 + i}}}})
		p.says(fmt.Sprintf("got port %d, want 1 to 65535", 70_000+i))
	}
	s.told(group, "Warning InvalidObject: InferencePool "+s.name+"/llama: spec.targetPorts: got port 70000, want 1 to "+
		"65535")
	p.counts(`signalbox_events_total{reason="InvalidObject",result="dropped"}`, func(n float64) bool {
		return n >= changes-10
	})
	if all := s.eventsOn(group); len(all) > 11 || len(all) < 3 {
		t.Errorf("%d events for %d changes, want few: %q", len(all), changes+2, all)
	}
	p.knows("a-rank-0 10.0.0.1:8000")
}
