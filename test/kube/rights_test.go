package kube

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// user makes a service account and returns a token of it.
func (s *space) user(name string) string {
	s.t.Helper()
	path := "/api/v1/namespaces/" + s.name + "/serviceaccounts"
	s.must(http.MethodPost, path, "", object{"metadata": object{"name": name}})
	return s.tokenOf(name)
}

// tokenOf returns a token of a service account.
func (s *space) tokenOf(name string) string {
	s.t.Helper()
	path := "/api/v1/namespaces/" + s.name + "/serviceaccounts"
	got := s.must(http.MethodPost, path+"/"+name+"/token", "", object{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": object{},
	})
	return got["status"].(map[string]any)["token"].(string)
}

// grant gives the service account picker rights to resources of its namespace: by default to read them.
func (s *space) grant(group, resource string, verbs ...string) {
	s.t.Helper()
	s.grantTo("picker", group, resource, verbs...)
}

// grantTo is grant for another service account.
func (s *space) grantTo(name, group, resource string, verbs ...string) {
	s.t.Helper()
	if verbs == nil {
		verbs = []string{"get", "list", "watch"}
	}
	path := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + s.name
	role := strings.TrimSuffix(name+"-"+resource+"."+group, ".")
	s.must(http.MethodPost, path+"/roles", "", object{
		"metadata": object{"name": role},
		"rules": []object{{"apiGroups": []string{group}, "resources": []string{resource},
			"verbs": verbs}},
	})
	s.must(http.MethodPost, path+"/rolebindings", "", object{
		"metadata": object{"name": role},
		"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
		"subjects": []object{{"kind": "ServiceAccount", "name": name, "namespace": s.name}},
	})
	for _, verb := range verbs {
		s.allowed(name, "resourceAttributes", object{
			"namespace": s.name, "group": group, "resource": resource, "verb": verb,
		})
	}
}

// allowed waits until the API server lets a service account do something: a role counts a moment after it is bound.
func (s *space) allowed(name, kind string, what object) {
	s.t.Helper()
	eventually(s.t, fmt.Sprint("the right of ", name, " to ", what), func() bool {
		review := s.must(http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", "", object{
			"spec": object{"user": "system:serviceaccount:" + s.name + ":" + name, kind: what},
		})
		return review["status"].(map[string]any)["allowed"] == true
	})
}

// rightsCount waits until all rights count that were given before. The API server hears of roles and of their bindings
// in the order in which they were written, so it is enough that it has heard of some that come after.
func (s *space) rightsCount() {
	s.t.Helper()
	name := fmt.Sprint("later-", namespaces.Add(1))
	s.grantTo(name, "", "pods", "get")
	s.clusterGrant(name, object{"nonResourceURLs": []string{"/later"}, "verbs": []string{"get"}})
}

// The picker starts without rights, says which it misses, and serves once it has them. It needs no others.
func TestRightsThatComeLater(t *testing.T) {
	s := newSpace(t, shared)
	s.pod("a", "10.0.0.1", vllm, nil)
	s.pool(8000)
	p := startPicker(t, s.inPool("--kubeconfig", s.kubeconfigOf(t, s.user("picker")))...)
	for _, r := range []struct{ group, resource string }{{poolGroup, "inferencepools"}, {"", "pods"}} {
		p.ready(false)
		want := `cannot list resource "` + r.resource + `"`
		eventually(t, "/readyz says "+want, func() bool {
			text := p.page("/readyz")
			return strings.Contains(text, "forbidden") && strings.Contains(text, want)
		})
		p.refuses()
		s.grant(r.group, r.resource)
	}
	machine := lateness.Begin()
	machine.Within(t, "ready after the last right came", p.ready(true), 2*time.Second)
	p.knows("a-rank-0 10.0.0.1:8000")
}

// Without an InferencePool the picker needs no definition and no right but to read pods.
func TestSelectorOfTheCommandLine(t *testing.T) {
	s := newSpace(t, shared)
	s.pod("a", "10.0.0.1", map[string]string{"app": "vllm"}, nil)
	s.pod("b", "10.0.0.2", map[string]string{"app": "sglang"}, nil)
	s.pod("c", "10.0.0.3", map[string]string{"app": "web"}, nil)
	token := s.user("picker")
	s.grant("", "pods")
	p := startPicker(t, "--kubeconfig", s.kubeconfigOf(t, token), "--pool-namespace", s.name,
		"--endpoint-selector", "app in (vllm, sglang)", "--endpoint-target-ports", "8000,8001")
	p.knows("a-rank-0 10.0.0.1:8000", "a-rank-1 10.0.0.1:8001", "b-rank-0 10.0.0.2:8000", "b-rank-1 10.0.0.2:8001")
	p.ready(true)
	s.remove(s.pods() + "/a")
	p.knows("b-rank-0 10.0.0.2:8000", "b-rank-1 10.0.0.2:8001")
}
