package kube

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// clusterGrant gives a service account rights that no namespace has: to the verbs of resources of groups, or to get
// paths. What it returns takes them away.
func (s *space) clusterGrant(name string, rule object) (revoke func()) {
	s.t.Helper()
	const path = "/apis/rbac.authorization.k8s.io/v1"
	role := s.name + "-" + name
	s.must(http.MethodPost, path+"/clusterroles", "", object{
		"metadata": object{"name": role}, "rules": []object{rule},
	})
	s.must(http.MethodPost, path+"/clusterrolebindings", "", object{
		"metadata": object{"name": role},
		"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
		"subjects": []object{{"kind": "ServiceAccount", "name": name, "namespace": s.name}},
	})
	verbs := rule["verbs"].([]string)
	paths, _ := rule["nonResourceURLs"].([]string)
	for _, p := range paths {
		s.allowed(name, "nonResourceAttributes", object{"path": strings.ReplaceAll(p, "*", "a"), "verb": verbs[0]})
	}
	groups, _ := rule["apiGroups"].([]string)
	for i, group := range groups { // of each group the resource at its place, which is one that it has
		for _, verb := range verbs {
			s.allowed(name, "resourceAttributes", object{
				"group": group, "resource": rule["resources"].([]string)[i], "verb": verb,
			})
		}
	}
	return func() { s.remove(path + "/clusterrolebindings/" + role) }
}

// reviewer gives the service account picker the right to review tokens.
func (s *space) reviewer() {
	s.t.Helper()
	s.clusterGrant("picker", object{
		"apiGroups": []string{"authentication.k8s.io", "authorization.k8s.io"},
		"resources": []string{"tokenreviews", "subjectaccessreviews"}, "verbs": []string{"create"},
	})
}

// reader makes a service account that may get these paths, and returns a token of it.
func (s *space) reader(name string, paths ...string) (token string, revoke func()) {
	s.t.Helper()
	token = s.user(name)
	return token, s.clusterGrant(name, object{"nonResourceURLs": paths, "verbs": []string{"get"}})
}

// read gets a path of the metrics port with a token.
func (p *picker) read(path, token string) (status int, text string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.http+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(response.Body); err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, body.String()
}

// gets checks the status of a page for the bearer of a token.
func (p *picker) gets(path, token string, want int) {
	p.t.Helper()
	if status, text := p.read(path, token); status != want {
		p.t.Errorf("%s: %d %s, want %d", path, status, text, want)
	}
}

// guarded starts a picker with an account of its own, which may review nothing yet.
func guarded(t *testing.T, s *space) (*picker, *middle) {
	t.Helper()
	s.pod("a", "10.0.0.1", vllm, nil)
	m, _ := newMiddle(t, shared)
	token := s.user("picker")
	s.grant("", "pods")
	p := startPicker(t, "--kubeconfig", m.through(t, s.kubeconfigOf(t, token)), "--pool-namespace", s.name,
		"--endpoint-selector", "app=vllm", "--endpoint-target-ports", "8000", "--metrics-endpoint-auth")
	p.ready(true)
	return p, m
}

// answers waits until /metrics answers the bearer of a token with a status.
func (p *picker) answers(token string, want int) time.Duration {
	p.t.Helper()
	return eventually(p.t, "an answer", func() bool { status, _ := p.read("/metrics", token); return status == want })
}

// The metrics port answers those whom Kubernetes gives the right, and so do the commands that ask it.
func TestTokensOfTheMetricsPort(t *testing.T) {
	s := newSpace(t, shared)
	p, _ := guarded(t, s)
	prometheus, _ := s.reader("prometheus", "/metrics")
	operator, _ := s.reader("operator", "/debug/*", "/metrics")
	nobody := s.user("nobody")
	p.gets("/healthz", "", 200)
	p.gets("/readyz", "", 200)
	p.gets("/metrics", prometheus, 503)
	p.says("tokenreviews.authentication.k8s.io")
	s.reviewer()
	p.answers(prometheus, 200)
	for range 3 {
		for _, path := range []string{"/metrics", "/debug/endpoints"} {
			p.gets(path, "", 401)
			p.gets(path, "of-a-stranger", 401)
			p.gets(path, nobody, 403)
			p.gets(path, operator, 200)
		}
		p.gets("/debug/endpoints", prometheus, 403)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(operator+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(signalbox, "endpoints", "--addr", p.http, "--token-file", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "a-rank-0") {
		t.Errorf("signalbox endpoints: %v\n%s", err, out)
	}
}

// Many reads cost few reviews. In an outage those who had the right have it, and nobody else; a right that is revoked
// ends soon.
func TestReviewsAreKept(t *testing.T) {
	s := newSpace(t, shared)
	p, m := guarded(t, s)
	s.reviewer()
	prometheus, revoke := s.reader("prometheus", "/metrics")
	late, _ := s.reader("late", "/metrics")
	p.answers(prometheus, 200)
	before, began := s.reviews(), time.Now()
	for range 50 {
		p.gets("/metrics", prometheus, 200)
	}
	if n, took := s.reviews()-before, time.Since(began); n > 4 && took < 20*time.Second {
		t.Errorf("50 reads within %v cost %v reviews, want 4 at most", took, n)
	}

	m.set(true, 0)
	m.cut()
	<-time.After(11 * time.Second)
	p.gets("/metrics", prometheus, 200) // the metrics tell of the outage
	p.gets("/metrics", late, 503)
	p.gets("/metrics", "of-a-stranger", 503)
	m.set(false, 0)
	p.answers(late, 200)
	p.answers(prometheus, 200)
	revoke()
	machine := lateness.Begin()
	machine.Within(t, "refused after the right was revoked", p.answers(prometheus, 403), 20*time.Second)
}

// reviews returns how many reviews the API server was asked for.
func (s *space) reviews() (n float64) {
	s.t.Helper()
	for _, resource := range []string{"tokenreviews", "subjectaccessreviews"} {
		n += s.counted("apiserver_request_total", `resource="`+resource+`"`)
	}
	return n
}
