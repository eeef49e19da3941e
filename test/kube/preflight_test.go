package kube

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// preflight runs the command as the account picker, with the port checks of serve left at their defaults.
func (s *space) preflight(kubeconfig string, flags ...string) (text string, ok bool) {
	s.t.Helper()
	all := append([]string{"preflight", "--kubeconfig", kubeconfig, "--pool-namespace", s.name}, flags...)
	out, err := exec.CommandContext(s.t.Context(), signalbox, all...).CombinedOutput()
	return string(out), err == nil
}

// expect runs preflight, and looks whether it says all that is wanted and ends as is wanted.
func (s *space) expect(what, kubeconfig string, flags []string, serves bool, want ...string) {
	s.t.Helper()
	text, ok := s.preflight(kubeconfig, flags...)
	if ok != serves {
		s.t.Errorf("%s: would serve: %v, want %v:\n%s", what, ok, serves, text)
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			s.t.Errorf("%s: got\n%s\nwant %q", what, text, w)
		}
	}
}

// modelServer starts a server with a metrics page, and returns its port of 127.0.0.1.
func modelServer(t *testing.T) (port int) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		for _, name := range []string{"num_requests_waiting", "num_requests_running", "kv_cache_usage_perc"} {
			_, _ = w.Write([]byte("vllm:" + name + "{model_name=\"m\"} 0\n"))
		}
	}))
	t.Cleanup(server.Close)
	_, text, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if port, err = strconv.Atoi(text); err != nil {
		t.Fatal(err)
	}
	return port
}

// Preflight names what is missing, what to do about it, and whether a picker would serve; the rights are those of the
// account.
func TestPreflight(t *testing.T) {
	s := newSpace(t, shared)
	as := s.kubeconfigOf(t, s.user("picker"))
	pool := []string{"--pool-name", "llama", elected}
	const read = "verbs: [get, list, watch]}"

	s.expect("without rights", as, pool, false, "ok       api server: Kubernetes v1.",
		"ok       inferencepools."+poolGroup+": served as v1",
		"problem  right to pods: may not get, list, watch: no endpoint is found",
		`add to a Role of `+s.name+` that is bound to the account: {apiGroups: [""], resources: [pods], `+read,
		"problem  right to inferencepools."+poolGroup, "problem  right to leases.coordination.k8s.io",
		"warning  right to tokenreviews.authentication.k8s.io: may not create: the metrics port answers 503",
		"warning  right to inferenceobjectives.llm-d.ai: may not get, list, watch: none counts")
	s.grant("", "pods")
	s.grant(poolGroup, "inferencepools", "get", "list")
	s.expect("without a verb", as, pool, false, "problem  right to inferencepools."+poolGroup+": may not watch: ")
	s.remove(bindings + s.name + "/roles/picker-inferencepools." + poolGroup)
	s.remove(bindings + s.name + "/rolebindings/picker-inferencepools." + poolGroup)
	s.grant(poolGroup, "inferencepools")
	s.grant("coordination.k8s.io", "leases", "get", "create", "update")
	for _, group := range []string{"llm-d.ai", "inference.networking.x-k8s.io"} {
		s.grant(group, "inferenceobjectives")
		s.grant(group, "inferencemodelrewrites")
	}
	s.reviewer()
	s.preflightOfPods(as, pool)
}

// preflightOfPods has the pool, its pods and the lease come one after the other, for an account that has all rights.
func (s *space) preflightOfPods(as string, pool []string) {
	s.t.Helper()
	port := modelServer(s.t)
	s.expect("without a pool", as, pool, false, "problem  pool "+s.name+"/llama: not there",
		"create it, or name another with --pool-name and --pool-namespace")
	s.pool(port)
	s.expect("without pods", as, pool, false,
		"ok       pool "+s.name+"/llama: selects app=vllm at port "+strconv.Itoa(port),
		"problem  pods of "+s.name+": none has app=vllm, so every request gets 503")
	s.pod("a", "127.0.0.1", vllm, nil)
	s.status("a", "127.0.0.1", false)
	s.expect("without a pod that is Ready", as, pool, false, "problem  pods of "+s.name+": 1 pod, none of them Ready")
	s.status("a", "127.0.0.1", true)
	active := func(value any) {
		s.merge(s.pods()+"/a", object{"metadata": object{"annotations": object{"llm-d.ai/active-ports": value}}})
	}
	active("1")
	s.expect("without an active port", as, pool, false, "problem  pods of "+s.name+": 1 pod, none with an active port",
		"have the annotation llm-d.ai/active-ports name ports of the target")
	active(nil)
	s.expect("without the right to events", as, append(pool, "--events"), true,
		"warning  right to events: may not create: none is written",
		`{apiGroups: [""], resources: [events], verbs: [create]}`)
	text, ok := s.preflight(as, pool...)
	if !ok || strings.Contains(text, "warning ") || strings.Contains(text, "problem ") {
		s.t.Errorf("with all that it needs:\n%s", text)
	}
	for _, want := range []string{"1 pod, 1 of them Ready: 1 endpoint", "metrics pages: 1 page can be read",
		"lease epp-" + s.name + "-llama.llm-d.ai: not there"} {
		if !strings.Contains(text, want) {
			s.t.Errorf("with all that it needs: want %q:\n%s", want, text)
		}
	}
	// No server listens at the address of b.
	s.pod("b", "127.0.0.2", vllm, nil)
	s.expect("a page that cannot be read", as, pool, true, "warning  metrics pages: 1 of 2 cannot be read: b-rank-0 "+
		"(127.0.0.2:"+strconv.Itoa(port)+"): ", "see that the servers answer there")

	first := startPicker(s.t, s.inPool(elected)...)
	first.ready(true)
	holder := s.must(http.MethodGet, s.leases()+"/epp-"+s.name+"-llama.llm-d.ai", "", nil)["spec"].(map[string]any)
	s.expect("a lease that another holds", as, pool, true,
		"held by "+holder["holderIdentity"].(string)+", which leads: another picker stands by until that ends")
}

// What a cluster may lack beside what one namespace shows.
func TestPreflightOfOtherClusters(t *testing.T) {
	s := newSpace(t, shared)
	pool := []string{"--pool-name", "llama"}
	s.expect("a group that is not there", s.kubeconfig(), append(pool, "--pool-group", "nowhere.example.com"), false,
		"problem  inferencepools.nowhere.example.com: not installed",
		"install the CRD of InferencePool, or name its group")
	if err := shared.defineOne(looseDefinition("old.example.com", "InferencePool", "inferencepools"),
		"v1alpha2"); err != nil {
		t.Fatal(err)
	}
	s.expect("another version", s.kubeconfig(), append(pool, "--pool-group", "old.example.com"), false,
		"problem  inferencepools.old.example.com: served as v1alpha2, and not as v1")
	s.expect("a void token", s.kubeconfigOf(t, "of-a-stranger"), pool, false, "problem  api server: ",
		"takes no token of ours")
	s.must(http.MethodPost, s.pools("loose.example.com"), "", object{
		"apiVersion": "loose.example.com/v1", "kind": "InferencePool", "metadata": object{"name": "llama"}, "spec": 5,
	})
	s.expect("a pool that makes no sense", s.kubeconfig(), append(pool, "--pool-group", "loose.example.com"), false,
		"problem  pool "+s.name+"/llama: spec: got number, want a mapping")

	text, err := os.ReadFile(s.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	nowhere := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(nowhere, []byte(strings.ReplaceAll(string(text), s.server, "https://127.0.0.1:1")),
		0o600); err != nil {
		t.Fatal(err)
	}
	s.expect("no API server", nowhere, pool, false, "problem  api server: ", "connection refused",
		"see that it runs, and that --kubeconfig or $KUBECONFIG names its address")

	other := filepath.Join(t.TempDir(), "kubeconfig")
	as := strings.ReplaceAll(string(text), "user: {", `user: {as: "system:serviceaccount:`+s.name+`:nobody", `)
	if err := os.WriteFile(other, []byte(as), 0o600); err != nil {
		t.Fatal(err)
	}
	s.expect("as another account", other, pool, false, "problem  right to pods: may not get, list, watch")

	s.pod("a", "127.0.0.1", vllm, nil)
	out, ok := s.preflight(s.kubeconfig(), "--endpoint-selector", "app in (vllm, sglang)", "--endpoint-target-ports",
		strconv.Itoa(modelServer(t)), "--json")
	var form struct {
		Serves bool
		Checks []struct{ Name, Result, Found, Remedy string }
	}
	if err := json.Unmarshal([]byte(out), &form); err != nil || !ok || !form.Serves || len(form.Checks) == 0 ||
		strings.Contains(out, "inferencepools") {
		t.Errorf("standalone, as JSON: %v, %v:\n%s", ok, err, out)
	}
}

// An API server that says nothing is a problem in time, and so is one that gives no sense; what is wrong with the flags
// is an error.
func TestPreflightWithoutAnAPIServer(t *testing.T) {
	s := newSpace(t, shared)
	pool := []string{"--pool-name", "llama"}
	text, err := os.ReadFile(s.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	at := func(server string) string {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), s.server, server)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	machine, began := lateness.Begin(), time.Now()
	s.expect("one that says nothing", at("http://"+silent.Addr().String()), pool, false, "problem  api server: ",
		"see that it runs")
	machine.Within(t, "an API server that says nothing is a problem", time.Since(began), 20*time.Second)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<html>hello</html>"))
	}))
	defer other.Close()
	s.expect("a server of another kind", at(other.URL), pool, false, "problem  api server: ")
	s.expect("no such file", "/no/such/file", pool, false, "--kubeconfig /no/such/file: ")
	s.expect("no pool", s.kubeconfig(), nil, false, "--pool-name")
	s.expect("two sources", s.kubeconfig(), append(pool, "--endpoint-selector", "a=b"), false,
		"--pool-name and --endpoint-selector: want one of them")
	s.expect("no ports", s.kubeconfig(), []string{"--endpoint-selector", "a=b"}, false, "--endpoint-target-ports: ")
}

// A definition of a version that is not read is a warning; of those that are, either will do.
func TestPreflightOfVersions(t *testing.T) {
	const group = "llm-d.ai"
	c := newCluster(t)
	s := newSpace(t, c)
	s.pod("a", "127.0.0.1", vllm, nil)
	s.pool(modelServer(t))
	for plural, version := range map[string]string{"inferenceobjectives": "v1", "inferencemodelrewrites": "v2"} {
		definition := looseDefinitionOf(group, strings.ToUpper(plural[:1])+plural[1:len(plural)-1], plural,
			looseVersion(version, true))
		if err := c.defineOne(definition, version); err != nil {
			t.Fatal(err)
		}
	}
	s.expect("two versions", s.kubeconfig(), []string{"--pool-name", "llama"}, true,
		"ok       inferenceobjectives."+group+": served as v1\n",
		"warning  inferencemodelrewrites."+group+": served as v2, and not as v1alpha2 or v1",
		"ok       inferenceobjectives.inference.networking.x-k8s.io: not installed")
}

// Preflight reads, and asks for its rights, and nothing else.
func TestPreflightWritesNothing(t *testing.T) {
	c, log := auditedCluster(t)
	s := newSpace(t, c)
	s.pod("a", "127.0.0.1", vllm, nil)
	s.pool(modelServer(t))
	for _, r := range []*right{{resource: "pods"}, {group: poolGroup, resource: "inferencepools"},
		{group: "coordination.k8s.io", resource: "leases"}} {
		s.grant(r.group, r.resource, "get", "list", "watch", "create", "update", "patch", "delete")
	}
	as := s.kubeconfigOf(t, s.user("picker"))
	s.expect("a pool", as, []string{"--pool-name", "llama", elected}, true)
	s.expect("standalone", as, []string{"--endpoint-selector", "app=vllm", "--endpoint-target-ports", "8000", elected},
		true)
	seen := map[string]bool{}
	for _, e := range auditEvents(t, log, "system:serviceaccount:"+s.name+":picker") {
		what := ""
		if e.ObjectRef != nil {
			what = " " + e.ObjectRef.Resource
		}
		seen[e.Verb+what] = true
		if e.Verb != "get" && e.Verb != "list" && e.Verb+what != "create selfsubjectaccessreviews" {
			t.Errorf("%s %s: preflight wrote, or watched", e.Verb, e.RequestURI)
		}
	}
	for _, want := range []string{"get", "list pods", "list inferencepools", "get leases",
		"create selfsubjectaccessreviews"} {
		if !seen[want] {
			t.Errorf("no call %s was seen: the log is not whole: %v", want, seen)
		}
	}
}
