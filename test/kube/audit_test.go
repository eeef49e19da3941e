package kube

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
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

// rights are those of one account, and what it may get that is no resource.
type rights struct {
	inNamespace, inCluster []*right
	paths                  []string
}

// rightsOfTheRoles are those of the reference's roles that Signalbox uses without --events.
// deploy/docs/kubernetes.md names them, and the paths of groups, which every account may get. Those are looked at while
// an API server that starts does not know its definitions yet.
func rightsOfTheRoles() (r rights) {
	read := []string{"get", "list", "watch"}
	r.inNamespace = []*right{
		{resource: "pods", verbs: read}, {group: poolGroup, resource: "inferencepools", verbs: read},
		{group: "coordination.k8s.io", resource: "leases", verbs: []string{"get", "create", "update"}},
	}
	for _, group := range []string{"llm-d.ai", "inference.networking.x-k8s.io"} {
		for _, resource := range []string{"inferenceobjectives", "inferencemodelrewrites"} {
			r.inNamespace = append(r.inNamespace, &right{group: group, resource: resource, verbs: read})
		}
		r.paths = append(r.paths, "/apis/"+group, "/apis/"+group+"/v1alpha2", "/apis/"+group+"/v1")
	}
	create := []string{"create"}
	r.inCluster = []*right{
		{group: "authentication.k8s.io", resource: "tokenreviews", verbs: create},
		{group: "authorization.k8s.io", resource: "subjectaccessreviews", verbs: create},
	}
	return r
}

// rightsOfAStandalone are those of a picker that has a selector of its own, and watches the objects that its
// configuration names. Which these are it finds at the path of their group, which every account may get.
func rightsOfAStandalone() rights {
	read := []string{"list", "watch"}
	return rights{
		inNamespace: []*right{{resource: "pods", verbs: read}, {group: hintGroup, resource: "hints", verbs: read}},
		inCluster:   []*right{{group: hintGroup, resource: "costs", verbs: read}},
		paths:       []string{"/apis/" + hintGroup + "/v1"},
	}
}

// watching has objects watched in the namespace, hints, and others that have none, costs.
const watching = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {type: k8s-notification-source, name: hints, parameters: {group: hints.example.com, version: v1, kind: Hint}}
- {type: k8s-notification-source, name: costs, parameters: {group: hints.example.com, version: v1, kind: Cost}}
- {type: json-extractor, name: a, parameters: {attributes: [{name: example.com/a, field: "{endpoint}.spec.cost"}]}}
- {type: json-extractor, name: b, parameters: {attributes: [{name: example.com/b, field: "{endpoint}.spec.cost"}]}}
- {type: endpoint-attribute-scorer, name: by-a, parameters: {attributeKey: example.com/a}}
- {type: endpoint-attribute-scorer, name: by-b, parameters: {attributeKey: example.com/b}}
dataLayer:
  injectDefaults: false
  sources:
  - {pluginRef: hints, extractors: [{pluginRef: a}]}
  - {pluginRef: costs, extractors: [{pluginRef: b}]}
`

// standalone starts a picker with the rights of a standalone one, a cache and objects to watch, and waits until it
// knows these.
func (s *space) standalone(has rights) *picker {
	s.t.Helper()
	for resource, kind := range map[string]string{"hints": "Hint", "costs": "Cost"} {
		definition := looseDefinitionOf(hintGroup, kind, resource, looseVersion("v1", true))
		if resource == "costs" {
			definition["spec"].(object)["scope"] = "Cluster"
		}
		if err := s.defineOne(definition, "v1"); err != nil {
			s.t.Fatal(err)
		}
	}
	token := s.user("standalone")
	for _, r := range has.inNamespace {
		s.grantTo("standalone", r.group, r.resource, r.verbs...)
	}
	for _, r := range has.inCluster {
		s.clusterGrant("standalone", object{
			"apiGroups": []string{r.group}, "resources": []string{r.resource}, "verbs": r.verbs,
		})
	}
	folder := s.t.TempDir()
	file := filepath.Join(folder, "config.yaml")
	if err := os.WriteFile(file, []byte(watching), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.pod("b", "10.0.0.2", vllm, nil)
	s.hint("a", 3) // without one it would score as well as b does
	s.hint("b", 1)
	p := startPicker(s.t, "--kubeconfig", s.kubeconfigOf(s.t, token), "--pool-namespace", s.name,
		"--endpoint-selector", "app=vllm", "--endpoint-target-ports", "8000",
		"--discovery-cache", filepath.Join(folder, "cache.json"), "--config-file", file)
	p.goesTo("10.0.0.2:8000")
	s.hint("a", 0)
	p.goesTo("10.0.0.1:8000")
	return p
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

// auditEvents returns the calls of accounts, and those of a program that says that it is signalbox.
func auditEvents(t *testing.T, log string, accounts ...string) (all []auditEvent) {
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
		if slices.Contains(accounts, e.User.Username) || strings.HasPrefix(e.UserAgent, "signalbox") {
			all = append(all, e)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// With the rights of the roles, and no others, two pickers do all that they can, and make no call beyond them. Neither
// does a third, with a selector of its own, a cache and objects that its configuration names, beyond its fewer ones.
func TestCallsStayWithinTheRoles(t *testing.T) {
	c, log := auditedCluster(t)
	s := newSpace(t, c)
	all := rightsOfTheRoles()
	for _, r := range all.inNamespace[3:] {
		kind := map[string]string{
			"inferenceobjectives": "InferenceObjective", "inferencemodelrewrites": "InferenceModelRewrite",
		}[r.resource]
		if err := c.defineOne(looseDefinition(r.group, kind, r.resource), "v1alpha2"); err != nil {
			t.Fatal(err)
		}
	}
	all.inNamespace = append(all.inNamespace, &right{resource: "events", verbs: []string{"create"}})
	token := s.user("picker")
	for _, r := range all.inNamespace {
		s.grant(r.group, r.resource, r.verbs...)
	}
	s.reviewer()
	reader, _ := s.reader("reader", "/metrics")
	accounts := map[string]rights{
		"system:serviceaccount:" + s.name + ":picker":     all,
		"system:serviceaccount:" + s.name + ":standalone": rightsOfAStandalone(),
	}
	users := slices.Collect(maps.Keys(accounts))
	remains := playAll(t, s, s.kubeconfigOf(t, token), reader)
	alone := s.standalone(accounts["system:serviceaccount:"+s.name+":standalone"])
	before := len(auditEvents(t, log, users...))
	outlive(s, remains, reader)
	alone.counts("signalbox_discovery_stale_seconds", func(n float64) bool { return n == 0 })

	for i, e := range auditEvents(t, log, users...) {
		has, known := accounts[e.User.Username]
		code := e.ResponseStatus.Code
		// An API server that starts knows neither accounts nor roles yet, and refuses everything for a moment.
		starts := i >= before && (code == http.StatusForbidden || code == http.StatusUnauthorized)
		if !starts && (!known || code == http.StatusForbidden) {
			t.Errorf("%s %s as %s: %d", e.Verb, e.RequestURI, e.User.Username, code)
		}
		if known {
			has.uses(t, s, e)
		}
	}
	for user, has := range accounts {
		for _, r := range append(has.inNamespace, has.inCluster...) {
			if !r.used {
				t.Errorf("%s: no call for %s.%s was seen: the right is needless, or the log is not whole", user,
					r.resource, r.group)
			}
		}
	}
}

// uses checks that a call is within the rights, and notes which it uses.
func (r rights) uses(t *testing.T, s *space, e auditEvent) {
	t.Helper()
	if e.ObjectRef == nil && e.Verb == "get" && slices.Contains(r.paths, e.RequestURI) {
		return
	}
	if e.ObjectRef == nil || e.ObjectRef.Subresource != "" {
		t.Errorf("%s %s as %s: want a resource", e.Verb, e.RequestURI, e.User.Username)
		return
	}
	among := r.inCluster
	if e.ObjectRef.Namespace == s.name {
		among = r.inNamespace
	}
	at := slices.IndexFunc(among, func(r *right) bool {
		return r.group == e.ObjectRef.APIGroup && r.resource == e.ObjectRef.Resource && slices.Contains(r.verbs, e.Verb)
	})
	if at < 0 {
		t.Errorf("%s %s as %s is beyond the roles", e.Verb, e.RequestURI, e.User.Username)
		return
	}
	among[at].used = true
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
