package kube

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// right is a rule of a Role: the verbs on a resource.
type right struct {
	group, resource string
	verbs           []string
	used            bool
}

// rightsOfTheRoles are those of the reference's roles that Signalbox uses without --events.
// deploy/docs/kubernetes.md names them.
func rightsOfTheRoles() (inNamespace, inCluster []*right) {
	read := []string{"get", "list", "watch"}
	inNamespace = []*right{
		{resource: "pods", verbs: read}, {group: poolGroup, resource: "inferencepools", verbs: read},
		{group: "coordination.k8s.io", resource: "leases", verbs: []string{"get", "create", "update"}},
	}
	for _, group := range []string{"llm-d.ai", "inference.networking.x-k8s.io"} {
		for _, resource := range []string{"inferenceobjectives", "inferencemodelrewrites"} {
			inNamespace = append(inNamespace, &right{group: group, resource: resource, verbs: read})
		}
	}
	create := []string{"create"}
	inCluster = []*right{
		{group: "authentication.k8s.io", resource: "tokenreviews", verbs: create},
		{group: "authorization.k8s.io", resource: "subjectaccessreviews", verbs: create},
	}
	return inNamespace, inCluster
}

// auditEvent is what the API server writes of one call.
type auditEvent struct {
	Verb, RequestURI, UserAgent string
	User                        struct{ Username string }
	ObjectRef                   *struct{ Resource, Subresource, Namespace, APIGroup string }
	ResponseStatus              struct{ Code int }
}

// auditedCluster starts a kube-apiserver that writes what it was asked.
func auditedCluster(t *testing.T) (c *cluster, log string) {
	t.Helper()
	folder := t.TempDir()
	policy, log := filepath.Join(folder, "policy.yaml"), filepath.Join(folder, "audit.log")
	text := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return newCluster(t, "--audit-policy-file="+policy, "--audit-log-path="+log), log
}

// auditEvents returns the calls of a user, and those of a program that says that it is signalbox.
func auditEvents(t *testing.T, log, user string) (all []auditEvent) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		if e.User.Username == user || strings.HasPrefix(e.UserAgent, "signalbox") {
			all = append(all, e)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// With the rights of the roles, and no others, two pickers do all that they can, and make no call beyond them.
func TestCallsStayWithinTheRoles(t *testing.T) {
	c, log := auditedCluster(t)
	s := newSpace(t, c)
	inNamespace, inCluster := rightsOfTheRoles()
	for _, r := range inNamespace[3:] {
		kind := map[string]string{
			"inferenceobjectives": "InferenceObjective", "inferencemodelrewrites": "InferenceModelRewrite",
		}[r.resource]
		if err := c.defineOne(looseDefinition(r.group, kind, r.resource), "v1alpha2"); err != nil {
			t.Fatal(err)
		}
	}
	inNamespace = append(inNamespace, &right{resource: "events", verbs: []string{"create"}})
	token := s.user("picker")
	for _, r := range inNamespace {
		s.grant(r.group, r.resource, r.verbs...)
	}
	s.reviewer()
	reader, _ := s.reader("reader", "/metrics")
	user := "system:serviceaccount:" + s.name + ":picker"
	remains := playAll(t, s, s.kubeconfigOf(t, token), reader)
	before := len(auditEvents(t, log, user))
	outlive(s, remains, reader)

	for i, e := range auditEvents(t, log, user) {
		// An API server that starts does not know the roles yet, and forbids everything for a moment.
		if e.User.Username != user || e.ResponseStatus.Code == http.StatusForbidden && i < before {
			t.Errorf("%s %s as %s: %d", e.Verb, e.RequestURI, e.User.Username, e.ResponseStatus.Code)
		}
		if e.ObjectRef == nil || e.ObjectRef.Subresource != "" {
			t.Errorf("%s %s: want a resource", e.Verb, e.RequestURI)
			continue
		}
		among := inCluster
		if e.ObjectRef.Namespace == s.name {
			among = inNamespace
		}
		at := slices.IndexFunc(among, func(r *right) bool {
			return r.group == e.ObjectRef.APIGroup && r.resource == e.ObjectRef.Resource &&
				slices.Contains(r.verbs, e.Verb)
		})
		if at < 0 {
			t.Errorf("%s %s is beyond the roles", e.Verb, e.RequestURI)
			continue
		}
		among[at].used = true
	}
	for _, r := range append(inNamespace, inCluster...) {
		if !r.used {
			t.Errorf("no call for %s.%s was seen: the right is needless, or the log is not whole", r.resource, r.group)
		}
	}
}

// playAll has two pickers do what they can: objects come and go, the metrics port is read, the leader ends. It returns
// the picker that remains.
func playAll(t *testing.T, s *space, kubeconfig, reader string) *picker {
	t.Helper()
	s.pod("a", "10.0.0.1", vllm, nil)
	s.pool(8000)
	flags := s.inPool("--kubeconfig", kubeconfig, elected, "--metrics-endpoint-auth", "--events")
	first := startPicker(t, flags...)
	first.ready(true)
	second := startPicker(t, flags...)
	second.answers(reader, http.StatusOK)
	second.gets("/metrics", "of-a-stranger", http.StatusUnauthorized)
	s.objective("llm-d.ai", "urgent", "llama", 1)
	s.remove(s.pools(poolGroup) + "/llama")
	first.ready(false)
	s.pool(8000)
	first.ready(true)
	_ = first.cmd.Process.Signal(syscall.SIGTERM)
	second.ready(true)
	return second
}

// outlive has a picker outlive its API server.
func outlive(s *space, p *picker, reader string) {
	s.t.Helper()
	s.kill()
	s.http.CloseIdleConnections()
	p.ready(false)
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
	p.ready(true)
	p.answers(reader, http.StatusOK)
}
