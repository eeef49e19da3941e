package kube

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Where a pod stands is said by its labels, or else by its spec. What of its spec cannot be read takes nothing else.
func TestHostOfAPod(t *testing.T) {
	const status = `{"podIP":"10.0.0.1","conditions":[{"type":"Ready","status":"True"}]}`
	for name, c := range map[string]struct {
		labels map[string]string
		spec   string
		want   map[string]string
		wrong  string
	}{
		"label": {map[string]string{hostLabel: "a"}, `{"hostname":"b","nodeName":"c"}`,
			map[string]string{hostLabel: "a"}, ""},
		"empty label": {map[string]string{hostLabel: ""}, `{"hostname":"b"}`, map[string]string{hostLabel: ""}, ""},
		"hostname": {map[string]string{"app": "vllm"}, `{"hostname":"b","nodeName":"c"}`,
			map[string]string{"app": "vllm", hostLabel: "b"}, ""},
		"node":    {nil, `{"nodeName":"c"}`, map[string]string{hostLabel: "c"}, ""},
		"nowhere": {map[string]string{"app": "vllm"}, `{}`, map[string]string{"app": "vllm"}, ""},
		"no spec": {nil, ``, nil, ""},
		"nonsense": {map[string]string{"app": "vllm"}, `{"hostname":7}`, map[string]string{"app": "vllm"},
			"spec.hostname: got number, want a text"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := podOf(&object{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: maps.Clone(c.labels)},
				Spec: json.RawMessage(c.spec), Status: json.RawMessage(status)})
			if got := errorText(err); got != c.wrong {
				t.Errorf("the error is %q, want %q", got, c.wrong)
			}
			if !maps.Equal(p.labelled, c.want) || p.labels.Len() != len(c.want) {
				t.Errorf("the labels are %v, want %v", p.labelled, c.want)
			}
			if !p.serves || p.ip != netip.MustParseAddr("10.0.0.1") {
				t.Errorf("serves is %v at %v, want true: its status is good", p.serves, p.ip)
			}
		})
	}
}

// FuzzSpecs looks that no spec, status or annotation of an object that picks come from ends the process, and that what
// is read of it can be used.
func FuzzSpecs(f *testing.F) {
	for _, seed := range []string{
		`{"podIP":"::ffff:10.0.0.1","conditions":[{"type":"Ready","status":"True"}],"hostname":"h"}`,
		`{"selector":{"matchLabels":{"app":"vllm"}},"targetPorts":[{"number":8000}]}`,
		`{"poolRef":{"name":"llama"},"priority":5,"rules":[{"matches":null,"targets":[{"modelRewrite":"m"}]}]}`,
		`{"poolRefs":[null],"poolSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}}`,
		`null`, `[]`, `7`, ``, `{"conditions":null,"targetPorts":[null],"rules":[null],"poolRef":null}`,
	} {
		f.Add([]byte(seed), "8000, 8001")
	}
	f.Fuzz(func(t *testing.T, text []byte, active string) {
		o := &object{ObjectMeta: metav1.ObjectMeta{Name: "o", Annotations: map[string]string{activePorts: active}},
			Spec: text, Status: text}
		p, _ := podOf(o)
		for _, e := range p.endpoints(nil, []int{8000}) {
			if _, err := netip.ParseAddrPort(string(e.Address)); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
		if target, err := targetOf(o); err == nil && target.Check() != nil {
			t.Errorf("%s: %v", text, target.Check())
		}
		for kind := range extraKinds {
			e, err := extraOf(kind, o, Pool{Name: "llama", Group: DefaultGroup})
			if err != nil || e == nil {
				continue
			}
			e.of(nil)
			e.of(map[string]string{"a": "b"})
			for _, rule := range e.rules {
				if len(rule.Targets) == 0 {
					t.Errorf("%s: a rule has no target", text)
				}
			}
		}
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A pod's host reaches the pool actor as a label of its endpoints, and is followed.
func TestHostsOfPodsAreFollowed(t *testing.T) {
	s := newScene(t, standalone())
	a := podAt("1", "10.0.0.1")
	a["spec"] = text{"nodeName": "node-1"}
	s.put(podsPath, "a", a)
	s.run()
	s.stands("node-1")
	s.put(podsPath, "a", podAt("1", "10.0.0.1").with("metadata", "labels",
		map[string]string{"app": "vllm", hostLabel: "host-2"}))
	s.stands("host-2")
	bad := podAt("1", "10.0.0.1")
	bad["spec"] = text{"hostname": 7}
	s.put(podsPath, "a", bad)
	s.reports("pod prod/a: spec.hostname: got number, want a text")
	s.stands("")
	s.tells("a-rank-0 10.0.0.1:8000")
	last := podAt("1", "10.0.0.1")
	last["spec"] = text{"hostname": "host-3", "nodeName": "node-1"}
	s.put(podsPath, "a", last)
	s.reports("")
	s.stands("host-3")
}

// stands waits until the one endpoint has this host; "" = none.
func (s *scene) stands(host string) {
	s.t.Helper()
	s.until("the host "+host, func() bool {
		s.pool.mu.Lock()
		defer s.pool.mu.Unlock()
		if s.pool.last.Endpoints.Len() != 1 {
			return false
		}
		got, _ := s.pool.last.Endpoints.At(0).Labels.Get(hostLabel)
		return got == host
	})
}

// A pod that is not Ready for a moment is said to be away as long as its process is the same. One whose container was
// started anew is another endpoint, however it comes back.
func TestPodThatIsNotReadyIsAwayAndOneThatRestartedIsGone(t *testing.T) {
	const at = "a-rank-0 10.0.0.1:8000"
	pod := func(ready bool, restarts int) text {
		p := podAt("1", "10.0.0.1").with("status", "containerStatuses", []text{{"restartCount": restarts}, {}})
		if !ready {
			p.with("status", "conditions", unready)
		}
		return p
	}
	deleted := pod(false, 0).with("metadata", "deletionTimestamp", "2026-11-24T11:00:00Z")
	for name, c := range map[string]struct {
		then []text
		want []string // each set, with those that are away behind a bar
	}{
		"for a moment":          {[]text{pod(false, 0), pod(true, 0)}, []string{at + "|", "|" + at, at + "|"}},
		"while it restarts":     {[]text{pod(false, 0), pod(true, 1)}, []string{at + "|", "|" + at, "|", at + "|"}},
		"once it has restarted": {[]text{pod(false, 1), pod(true, 1)}, []string{at + "|", "|", at + "|"}},
		"restarted unnoticed":   {[]text{pod(true, 1)}, []string{at + "|", "|", at + "|"}},
		"it ends":               {[]text{deleted}, []string{at + "|", "|"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, standalone())
			s.put(podsPath, "a", pod(true, 0))
			s.run()
			s.tells(at)
			for i, p := range c.then {
				s.put(podsPath, "a", p)
				if i < len(c.then)-1 {
					s.tells()
				}
			}
			s.until("as many sets", func() bool { _, n := s.pool.now(); return n >= len(c.want) })
			if got := s.pool.all(); !slices.Equal(got, c.want) {
				t.Errorf("told %q, want %q", got, c.want)
			}
		})
	}
}
