package preflight

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/signalbox-epp/signalbox/adapters/discovery/kube"
	"github.com/signalbox-epp/signalbox/messages"
)

type text map[string]any

// api is an API server that gives fixed answers by path. What it has no answer for is not found.
type api struct {
	answers map[string]any // a status, or an object
	denied  string         // verb and resource that no account may
	writes  []string       // calls that are neither GET nor a review of our own rights
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews") {
		var review struct {
			Spec struct {
				ResourceAttributes struct{ Verb, Resource string }
			}
		}
		_ = json.NewDecoder(r.Body).Decode(&review)
		asked := review.Spec.ResourceAttributes
		_ = json.NewEncoder(w).Encode(text{
			"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
			"status": text{"allowed": asked.Verb+" "+asked.Resource != a.denied},
		})
		return
	}
	if r.Method != http.MethodGet {
		a.writes = append(a.writes, r.Method+" "+r.URL.Path)
	}
	answer := a.answers[r.URL.Path]
	if answer == nil {
		answer = http.StatusNotFound
	}
	if status, ok := answer.(int); ok {
		w.WriteHeader(status)
		answer = text{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status,
			"message": fmt.Sprint(status), "reason": strings.ReplaceAll(http.StatusText(status), " ", "")}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

const (
	groupPath = "/apis/" + kube.DefaultGroup
	poolsPath = groupPath + "/v1/namespaces/prod/inferencepools"
	podsPath  = "/api/v1/namespaces/prod/pods"
	leasePath = "/apis/coordination.k8s.io/v1/namespaces/prod/leases/lease"
)

func list(kind, version string, items ...text) text {
	return text{"kind": kind + "List", "apiVersion": version, "metadata": text{"resourceVersion": "1"}, "items": items}
}

func podAt(name, ip, ready string) text {
	return text{"metadata": text{"name": name, "namespace": "prod"}, "status": text{
		"podIP": ip, "conditions": []text{{"type": "Ready", "status": ready}},
	}}
}

func leaseOf(holder any, renewed time.Time) text {
	return text{"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": text{"name": "lease"},
		"spec": text{"holderIdentity": holder, "leaseDurationSeconds": 5,
			"renewTime": renewed.UTC().Format("2006-01-02T15:04:05.000000Z")}}
}

// healthy is an API server with a pool, a pod and a lease of ours.
func healthy() map[string]any {
	return map[string]any{
		"/version": text{"gitVersion": "v1.36.3"},
		groupPath: text{"kind": "APIGroup", "name": kube.DefaultGroup, "versions": []text{
			{"groupVersion": kube.DefaultGroup + "/v1", "version": "v1"}}},
		groupPath + "/v1": text{"kind": "APIResourceList", "resources": []text{{"name": "inferencepools"}}},
		poolsPath: list("InferencePool", kube.DefaultGroup+"/v1", text{"metadata": text{"name": "llama"}, "spec": text{
			"selector": text{"matchLabels": text{"app": "vllm"}}, "targetPorts": []text{{"number": 8000}},
		}}),
		podsPath:  list("Pod", "v1", podAt("a", "10.0.0.1", "True")),
		leasePath: leaseOf("other", time.Now()),
	}
}

// Each thing that may be missing is found, alone, by one check that says so.
func TestWhatIsMissingIsFound(t *testing.T) {
	other := text{"kind": "APIGroup", "versions": []text{{"groupVersion": kube.DefaultGroup + "/v1beta1",
		"version": "v1beta1"}}}
	resources := text{"kind": "APIResourceList", "resources": []text{{"name": "inferencepools"}}}
	unread := func(messages.EndpointSpec) error { return errors.New("connection refused") }
	pools := func(items ...text) map[string]any {
		return map[string]any{poolsPath: list("InferencePool", kube.DefaultGroup+"/v1", items...)}
	}
	pods := func(items ...text) map[string]any { return map[string]any{podsPath: list("Pod", "v1", items...)} }
	type changed = map[string]any
	for name, c := range map[string]struct {
		change  changed
		denied  string
		metrics func(messages.EndpointSpec) error
		want    string // result, name and beginning of what was found, of the one check that is not ok; "" = all are
	}{
		"nothing":              {nil, "", nil, ""},
		"no answer":            {changed{"/version": 500}, "", nil, "problem api server: "},
		"no token":             {changed{"/version": 401}, "", nil, "problem api server: "},
		"no right to /version": {changed{"/version": 403}, "", nil, ""},
		"another version": {changed{groupPath: other, groupPath + "/v1beta1": resources}, "", nil,
			"problem inferencepools." + kube.DefaultGroup + ": served as v1beta1, and not as v1"},
		"a right": {nil, "watch pods", nil, "problem right to pods: may not watch: "},
		"an extra": {nil, "list inferenceobjectives", nil,
			"warning right to inferenceobjectives.llm-d.ai: may not list"},
		"leases":   {nil, "update leases", nil, "problem right to leases.coordination.k8s.io: may not update"},
		"reviews":  {nil, "create tokenreviews", nil, "warning right to tokenreviews.authentication.k8s.io: "},
		"events":   {nil, "create events", nil, "warning right to events: may not create: none is written"},
		"no pool":  {pools(), "", nil, "problem pool prod/llama: not there"},
		"no sense": {pools(text{"spec": 5}), "", nil, "problem pool prod/llama: spec"},
		"no pods":  {pods(), "", nil, "problem pods of prod: none has app=vllm"},
		"none ready": {pods(podAt("a", "10.0.0.1", "False")), "", nil,
			"problem pods of prod: 1 pod, none of them Ready"},
		"a bad status": {pods(podAt("a", "10.0.0.1", "True"), podAt("b", "nonsense", "True")), "", nil,
			"warning pods of prod: pod b: status.podIP"},
		"no metrics": {nil, "", unread,
			"warning metrics pages: 1 of 1 cannot be read: a-rank-0 (10.0.0.1:8000): connection refused"},
		"no lease": {changed{leasePath: 500}, "", nil, "problem lease lease: "},
	} {
		a := &api{answers: healthy(), denied: c.denied}
		for path, answer := range c.change {
			a.answers[path] = answer
		}
		cfg := Config{Pool: kube.Pool{Name: "llama", Group: kube.DefaultGroup}, Lease: "lease", Reviews: true,
			Events: true}
		if cfg.Metrics = c.metrics; c.metrics == nil {
			cfg.Metrics = func(messages.EndpointSpec) error { return nil }
		}
		var got []string
		for _, check := range a.run(t, cfg) {
			if check.Result != OK {
				got = append(got, fmt.Sprintf("%s %s: %s", check.Result, check.Name, check.Found))
			}
			if (check.Remedy == "") != (check.Result == OK) {
				t.Errorf("%s: %s: %s, remedy %q", name, check.Name, check.Result, check.Remedy)
			}
		}
		// Objectives of both groups are denied at a time, as the resource has one name.
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) == 0 || !strings.HasPrefix(got[0], c.want)) ||
			len(got) > 1 && c.denied != "list inferenceobjectives" {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if len(a.writes) > 0 {
			t.Errorf("%s: it wrote: %q", name, a.writes)
		}
	}
}

// run makes the checks of a namespace by an API server.
func (a *api) run(t *testing.T, cfg Config) []Check {
	t.Helper()
	server := httptest.NewServer(a)
	defer server.Close()
	cfg.Cluster, cfg.Namespace = &rest.Config{Host: server.URL}, "prod"
	checks, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return checks
}

// Who holds the lease is said, and is no problem.
func TestLeaseIsShown(t *testing.T) {
	for want, lease := range map[string]any{
		"held by other, which leads":             leaseOf("other", time.Now()),
		"held by other, which does not renew it": leaseOf("other", time.Now().Add(-time.Hour)),
		"held by none":                           leaseOf("", time.Now()),
		"not there":                              404,
	} {
		a := &api{answers: healthy()}
		a.answers[leasePath] = lease
		checks := a.run(t, Config{Target: kube.Target{Selector: "app=vllm", Ports: []int{8000}}, Lease: "lease"})
		last := checks[len(checks)-1]
		if last.Name != "lease lease" || last.Result != OK || !strings.HasPrefix(last.Found, want) {
			t.Errorf("got %+v, want %q", last, want)
		}
		for _, c := range checks {
			if strings.Contains(c.Name, "inference") || strings.Contains(c.Name, "review") {
				t.Errorf("%s is looked at, and is not needed", c.Name)
			}
		}
	}
}
