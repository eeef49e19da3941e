package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// ownImage are the values of the image, which the chart of the reference and this one both have.
const ownImage = "router.epp.image.registry=registry.example.com,router.epp.image.repository=signalbox," +
	"router.epp.image.tag=v1"

// probed checks what the kubelet would find by the probes of a Deployment.
func (p *picker) probed(d installed, ready bool) {
	p.t.Helper()
	for probe, want := range map[string]bool{"livenessProbe": true, "readinessProbe": ready} {
		service := d.at(container + probe + ".grpc.service").(string)
		eventually(p.t, probe+", which asks for "+service, func() bool { return p.serving(service) == want })
	}
}

// unhindered checks that a picker has missed no right.
func (p *picker) unhindered() {
	p.t.Helper()
	if line, _ := p.log.with("forbidden"); line != "" {
		p.t.Errorf("a right is missing: %s", line)
	}
}

// reference installs what the reference's chart has in a cluster, with its own image.
func (s *space) reference(replicas int) {
	s.t.Helper()
	s.pod("a", "10.0.0.1", map[string]string{"app": "llama"}, nil)
	s.mustHelm("install", "llama", *referenceChart, "--set", "router.modelServers.matchLabels.app=llama",
		"--set", fmt.Sprint("router.epp.replicas=", replicas),
		"--set", "router.monitoring.prometheus.enabled=true,router.proxy.enabled=false")
}

// upgraded is a namespace of a cluster that has the definitions of objectives and rewrites, with one of each, of the
// pool llama.
type upgraded struct {
	*space
	operator string    // a token of who may read /debug
	before   [2]object // the objective and the rewrite
	paths    [2]string // of both
}

func newUpgraded(t *testing.T, c *cluster) upgraded {
	t.Helper()
	const group = "llm-d.ai"
	u := upgraded{space: newSpace(t, c)}
	u.operator, _ = u.reader("operator", "/debug/*")
	u.objective(group, "urgent", "llama", 5)
	u.must(http.MethodPost, u.extra(group, "inferencemodelrewrites"), "", object{
		"apiVersion": group + "/v1alpha2", "kind": "InferenceModelRewrite", "metadata": object{"name": "alias"},
		"spec": object{"poolRef": object{"name": "llama"}, "rules": []object{{
			"matches": []object{{"model": object{"value": "m"}}}, "targets": []object{{"modelRewrite": "n"}},
		}}},
	})
	u.paths = [2]string{u.extra(group, "inferenceobjectives") + "/urgent",
		u.extra(group, "inferencemodelrewrites") + "/alias"}
	for i, path := range u.paths {
		u.before[i] = u.must(http.MethodGet, path, "", nil)
	}
	return u
}

// withObjects is a cluster that has the definitions of objectives and rewrites.
func withObjects(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	if err := c.define("testdata/inferenceobjectives.yaml", "testdata/inferencemodelrewrites.yaml",
		"testdata/servicemonitors.yaml"); err != nil {
		t.Fatal(err)
	}
	return c
}

// keeps checks that objectives and rewrites are what they were, and that a picker has them in force by its own rights.
func (u upgraded) keeps(p *picker) {
	u.t.Helper()
	for i, path := range u.paths {
		if now := u.must(http.MethodGet, path, "", nil); !sameUID(now, u.before[i]) ||
			fmt.Sprint(now["spec"]) != fmt.Sprint(u.before[i]["spec"]) {
			u.t.Errorf("%s is %v, was %v", path, now, u.before[i])
		}
	}
	eventually(u.t, "the objective and the rewrite are in force", func() bool {
		_, page := p.read("/debug/config?format=text", u.operator)
		return strings.Contains(page, `objective "urgent", priority 5`+"\n") &&
			strings.Contains(page, `rewrite   "alias"`+"\n")
	})
}

// Only the image of the reference's chart is another one: with its arguments, its account and its probes pickers serve.
func TestUpgradeOfTheImageAlone(t *testing.T) {
	c := withObjects(t)
	for replicas, name := range map[int]string{1: "alone", 2: "with a standby"} {
		t.Run(name, func(t *testing.T) {
			s := newUpgraded(t, c)
			s.reference(replicas)
			before := s.deployed()
			s.mustHelm("upgrade", "llama", *referenceChart, "--reuse-values", "--set", ownImage)
			d := s.deployed()
			d.has(map[string]any{container + "image": "registry.example.com/signalbox:v1"})
			args := d.at(container + "args")
			if was := before.at(container + "args"); fmt.Sprint(args) != fmt.Sprint(was) {
				t.Errorf("the arguments are %v, were %v", args, was)
			}
			first := d.picker("llama-epp-6d5f-a")
			first.serves("10.0.0.1:8000")
			first.probed(d, true)
			s.keeps(first)
			if replicas > 1 {
				second := d.picker("llama-epp-6d5f-b")
				second.follows("not the leader: llama-epp-6d5f-a leads")
				second.probed(d, false)
				s.keeps(second)
				second.unhindered()
			}
			first.unhindered()
			reader := s.tokenOf("llama-epp") // its chart has Prometheus read with this account
			first.answers(reader, http.StatusOK)
			s.pod("b", "10.0.0.2", map[string]string{"app": "llama"}, nil)
			eventually(t, "of two pods the second is picked too", func() bool {
				to, _, _ := first.pick()
				if standalone := strings.Contains(fmt.Sprint(args), "--endpoint-selector"); standalone &&
					strings.Contains(to, ",") {
					t.Errorf("picked %q, want one address, for the proxy of the reference's chart takes one", to)
				}
				return strings.HasPrefix(to, "10.0.0.2:8000")
			})
		})
	}
	t.Run("by other values", func(t *testing.T) { takesTheArguments(t, c) })
}

// rendered is the Deployment that the chart of the reference makes of values, which is not in the cluster.
func (s *space) rendered(values ...string) installed {
	s.t.Helper()
	text := s.mustHelm(append([]string{"template", "llama", *referenceChart, "--set",
		"router.modelServers.matchLabels.app=llama"}, values...)...)
	d := installed{space: s}
	for _, o := range s.documents(text) {
		var plain object // of the types that an API server's answer has
		text, err := json.Marshal(o)
		if err := errors.Join(err, json.Unmarshal(text, &plain)); err != nil {
			s.t.Fatal(err)
		}
		switch about, _ := plain["metadata"].(map[string]any); {
		case about["name"] != "llama-epp":
		case plain["kind"] == "Deployment":
			d.deployment = plain
		case plain["kind"] == "ConfigMap":
			d.config = plain
		}
	}
	return d
}

// takesTheArguments checks that, whatever the values of the reference's chart are, a picker is ready by the arguments
// and the configuration that it makes of them, by its account, and that its probes find that.
func takesTheArguments(t *testing.T, c *cluster) {
	s := newSpace(t, c)
	s.reference(2)
	const own = `router.epp.pluginsCustomConfig={"own.yaml":"apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\n` +
		`plugins: [{type: queue-scorer}]"}`
	for name, values := range map[string][]string{
		"as they are": {},
		"without pool": {"--set", "router.inferencePool.create=false,router.modelServers.targetPorts[0].number=8000," +
			"router.modelServers.targetPorts[1].number=8001"},
		"all open": {"--set", "router.tracing.enabled=true,router.monitoring.prometheus.auth.enabled=false," +
			"router.epp.grpcHealthPort=9103"},
		"no bodies": {"--set", "router.epp.pluginsConfigFile=payload-agnostic.yaml"},
		"own file":  {"--set", "router.epp.pluginsConfigFile=own.yaml", "--set-json", own},
		"sglang":    {"--set", "router.modelServers.type=sglang"},
		"gRPC":      {"--set", "router.modelServers.protocol=grpc"},
		"flags": {"--set", "router.epp.flags.v=4,router.epp.flags.secure-serving=false," +
			"router.epp.flags.health-checking=true,router.epp.flags.metrics-staleness-threshold=5s"},
		"all serve": {"--set", "router.epp.replicas=2,router.epp.flags.ha-enable-leader-election=false"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &space{t: t, cluster: c, name: s.name}
			d := s.rendered(values...)
			p := d.picker("llama-epp-6d5f-a")
			p.ready(true)
			p.probed(d, true)
			if got, status, text := p.pick(); !strings.HasPrefix(got, "10.0.0.1:800") && name != "gRPC" {
				t.Errorf("picked %q, %d %s", got, status, text)
			} else if name == "without pool" && strings.Contains(got, ",") {
				t.Errorf("picked %q, want one address, for the proxy beside takes one", got)
			}
			if open, _ := p.read("/metrics", ""); (open == http.StatusOK) != (name == "all open") {
				t.Errorf("without a token the metrics are answered with %d", open)
			}
			p.unhindered()
		})
	}
}

// The lease of the reference is respected while it lasts, and taken when it does not.
func TestUpgradeKeepsTheLease(t *testing.T) {
	s := newUpgraded(t, withObjects(t))
	s.reference(2)
	name := "epp-" + s.name + "-llama.llm-d.ai"
	s.must(http.MethodPost, s.leases(), "", object{
		"metadata": object{"name": name},
		"spec": object{
			"holderIdentity": "llama-epp-5b9c-z", "leaseDurationSeconds": 15, "leaseTransitions": 3,
			"acquireTime": "2026-01-01T00:00:00.000000Z",
			"renewTime":   time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"),
		},
	})
	p := s.deployed().picker("llama-epp-6d5f-a")
	p.follows("not the leader: llama-epp-5b9c-z leads")
	s.merge(s.leases()+"/"+name, object{"spec": object{"holderIdentity": ""}}) // as the reference does when it ends
	machine := lateness.Begin()
	machine.Within(t, "ready after the reference gave the lease up", p.ready(true), 1500*time.Millisecond)
	lease := s.must(http.MethodGet, s.leases()+"/"+name, "", nil)["spec"].(map[string]any)
	if lease["holderIdentity"] != "llama-epp-6d5f-a" || lease["leaseTransitions"] != float64(4) {
		t.Errorf("the lease is %v, want one more transition, to llama-epp-6d5f-a", lease)
	}
	s.keeps(p)
	p.unhindered()
}

// A release of the reference's chart is upgraded to this one with the same values, in place, and rolled back. Objects
// that others know of stay, and of the pickers before and after one leads at a time.
func TestUpgradeOfTheChart(t *testing.T) {
	s := newUpgraded(t, withObjects(t))
	s.reference(2)
	before := s.deployed()
	pool := s.must(http.MethodGet, s.pools(poolGroup)+"/llama", "", nil)
	old := before.picker("llama-epp-5b9c-z")
	old.serves("10.0.0.1:8000")

	s.mustHelm("upgrade", "llama", chart, "--reset-then-reuse-values", "--set", ownImage)
	after := s.deployed()
	after.has(map[string]any{
		"metadata.uid": before.at("metadata.uid"), "spec.selector": before.at("spec.selector"),
		"spec.strategy.type": "RollingUpdate", "spec.replicas": 2,
		container + "image":                  "registry.example.com/signalbox:v1",
		container + "lifecycle.preStop.exec": nil, container + "readinessProbe.initialDelaySeconds": nil,
		"spec.template.spec.containers.1": nil, "spec.template.spec.securityContext.runAsNonRoot": true,
	})
	if now := s.must(http.MethodGet, s.pools(poolGroup)+"/llama", "", nil); !sameUID(now, pool) ||
		fmt.Sprint(now["spec"]) != fmt.Sprint(pool["spec"]) {
		t.Errorf("the InferencePool is %v, was %v", now, pool)
	}
	roles := rbac + "namespaces/" + s.name + "/roles/llama-epp"
	if !s.gone(roles+"-sa") || !s.gone(roles+"-non-sa") || !s.gone(roles+"-leader-election") {
		t.Error("roles of the reference are left")
	}
	fresh := after.picker("llama-epp-6d5f-a")
	fresh.follows("not the leader: llama-epp-5b9c-z leads")
	stop := neverBoth(t, old, fresh)
	_ = old.cmd.Process.Signal(syscall.SIGTERM)
	machine := lateness.Begin()
	machine.Within(t, "ready after the picker of the reference's chart was asked to end", fresh.ready(true),
		1500*time.Millisecond)
	stop()
	fresh.serves("10.0.0.1:8000")
	s.keeps(fresh)
	fresh.unhindered()

	s.mustHelm("rollback", "llama", "1")
	back := s.deployed()
	back.has(map[string]any{"metadata.uid": before.at("metadata.uid"), "spec": before.at("spec")})
	policy := "/apis/networking.k8s.io/v1/namespaces/" + s.name + "/networkpolicies/llama-epp"
	if !s.gone(policy) || !s.gone(roles) {
		t.Error("the NetworkPolicy or the Role of this chart is left")
	}
	_ = fresh.cmd.Process.Signal(syscall.SIGTERM)
	again := back.picker("llama-epp-5b9c-y")
	again.serves("10.0.0.1:8000")
	s.keeps(again)
	again.unhindered()
}

// The proxy that a chart of the reference runs by its defaults is not removed unless a value says so.
func TestUpgradeKeepsTheProxy(t *testing.T) {
	s := newSpace(t, shared)
	const label = "router.modelServers.matchLabels.app=llama"
	s.mustHelm("install", "llama", "testdata/reference", "--set", label)
	proxy := "spec.template.spec.containers.envoy-proxy.name"
	upgrade := []string{"upgrade", "llama", chart, "--reset-then-reuse-values", "--set", ownImage}
	for _, values := range []string{ownImage, "router.proxy.replicas=3"} {
		_, err := s.helm(append(upgrade, "--set", values)...)
		if err == nil || !strings.Contains(err.Error(), "router.proxy.enabled: the release runs envoy-proxy, which") {
			t.Errorf("an upgrade without a proxy, with %s: %v", values, err)
		}
	}
	s.deployed().has(map[string]any{proxy: "envoy-proxy"})
	s.mustHelm(append(upgrade, "--set", "router.proxy.enabled=false")...)
	s.deployed().has(map[string]any{proxy: nil, "spec.template.spec.containers.1": nil})
	s.mustHelm("rollback", "llama", "1")
	s.deployed().has(map[string]any{proxy: "envoy-proxy"})
}

func sameUID(a, b object) bool {
	return a["metadata"].(map[string]any)["uid"] == b["metadata"].(map[string]any)["uid"]
}

// Both pods of an elected Deployment are asked to end while both new ones are up, as its strategy and its pause have
// it. One of the new ones is ready, and what reaches the old leader is answered.
func TestUpdateOfLeaderAndStandby(t *testing.T) {
	s := newSpace(t, shared)
	s.pod("a", "10.0.0.1", vllm, nil)
	s.pool(8000)
	start := func(name string) *picker {
		t.Setenv("POD_NAME", name)
		return startPicker(t, s.inPool(elected, "--drain-delay=6s", "--drain-timeout=8s")...)
	}
	leader := start("old-a")
	leader.ready(true)
	standby := start("old-b")
	standby.standsBy("not the leader: old-a leads")
	first, second := start("new-a"), start("new-b")
	first.standsBy("not the leader: old-a leads")
	second.standsBy("not the leader: old-a leads")
	stopPicks := leader.pickAlways()
	_ = leader.cmd.Process.Signal(syscall.SIGTERM)
	_ = standby.cmd.Process.Signal(syscall.SIGTERM)
	machine := lateness.Begin()
	machine.Within(t, "a new picker is ready after both old ones were asked to end", eventually(t, "a new one is ready",
		func() bool { return first.isReady() || second.isReady() }), 1500*time.Millisecond)
	if n := stopPicks(); n < 1 {
		t.Error("the old leader picked nothing meanwhile")
	}
	if text := first.page("/readyz") + second.page("/readyz"); !strings.Contains(text, "leads") {
		t.Errorf("none of the new ones stands by: %s", text)
	}
}
