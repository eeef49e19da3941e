package kube

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"
)

// chart is a chart and the files of values that test/chart has for it.
const (
	chart  = "../../deploy/helm/signalbox"
	values = "../chart/testdata/"
)

// helmBinary is helm, built once.
var helmBinary = sync.OnceValues(func() (string, error) {
	tool := func(args ...string) ([]byte, error) {
		cmd := exec.Command("go", append([]string{"tool", "-modfile=../helm/go.mod"}, args...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // so that it is built once, also beside the race detector
		return cmd.CombinedOutput()
	}
	if out, err := tool("helm", "version"); err != nil {
		return "", fmt.Errorf("building helm: %w\n%s", err, out)
	}
	path, err := tool("-n", "helm") // where Go keeps what it has built
	return strings.TrimSpace(string(path)), err
})

// helm runs helm as the administrator in the namespace of the test.
func (s *space) helm(args ...string) (output string, err error) {
	s.t.Helper()
	path, err := helmBinary()
	if err != nil {
		s.t.Fatal(err)
	}
	args = append(args, "--namespace", s.name, "--kubeconfig", s.kubeconfig())
	tool := exec.CommandContext(s.t.Context(), path, args...)
	home := s.t.TempDir() // helm keeps nothing of other users
	tool.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var problems bytes.Buffer
	tool.Stderr = &problems
	out, err := tool.Output()
	if err != nil {
		err = fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, &problems)
	}
	return string(out), err
}

func (s *space) mustHelm(args ...string) string {
	s.t.Helper()
	out, err := s.helm(args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// documents returns the objects of a text of YAML.
func (s *space) documents(text string) (all []object) {
	s.t.Helper()
	d := yaml.NewDecoder(strings.NewReader(text))
	for {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			s.t.Fatalf("%v\n%s", err, text)
		}
		if o != nil {
			all = append(all, o)
		}
	}
}

// restricted lets the namespace take only pods by the strictest rules, and sees that it refuses another one.
func (s *space) restricted() {
	s.t.Helper()
	s.merge("/api/v1/namespaces/"+s.name, object{"metadata": object{"labels": object{
		"pod-security.kubernetes.io/enforce": "restricted",
	}}})
	eventually(s.t, "a pod that may be root is refused", func() bool {
		_, err := s.do(http.MethodPost, s.pods()+"?dryRun=All", "", object{
			"metadata": object{"name": "root"},
			"spec":     object{"containers": []object{{"name": "a", "image": "a"}}},
		})
		return err != nil && strings.Contains(err.Error(), "runAsNonRoot")
	})
}

// chartSpace is a namespace of a cluster that has the definitions which the chart may need.
func chartSpace(t *testing.T) *space {
	t.Helper()
	c := newCluster(t)
	if err := c.define("testdata/servicemonitors.yaml", "testdata/inferenceobjectives.yaml"); err != nil {
		t.Fatal(err)
	}
	return newSpace(t, c)
}

// installed is a Deployment in the cluster, with what its pods mount.
type installed struct {
	*space
	deployment object
	config     object // the ConfigMap; nil is the one in the cluster
}

// deployed returns the Deployment of the release llama.
func (s *space) deployed() installed {
	s.t.Helper()
	d := s.must(http.MethodGet, "/apis/apps/v1/namespaces/"+s.name+"/deployments/llama-epp", "", nil)
	return installed{space: s, deployment: d}
}

// at returns what stands at a path of the Deployment, such as "spec.replicas". An element of a list goes by its place
// or by its name.
func (d installed) at(path string) any {
	d.t.Helper()
	var here any = map[string]any(d.deployment)
	for name := range strings.SplitSeq(path, ".") {
		switch v := here.(type) {
		case map[string]any:
			here = v[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil {
				i = slices.IndexFunc(v, func(e any) bool { o, _ := e.(map[string]any); return o["name"] == name })
			}
			if i < 0 || i >= len(v) {
				return nil
			}
			here = v[i]
		default:
			return nil
		}
	}
	return here
}

// has checks what stands at paths of the Deployment.
func (d installed) has(want map[string]any) {
	d.t.Helper()
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if got := d.at(path); fmt.Sprint(got) != fmt.Sprint(want[path]) {
			d.t.Errorf("%s: got %v, want %v", path, got, want[path])
		}
	}
}

// container is what the Deployment runs.
const container = "spec.template.spec.containers.epp."

// admitted checks that the API server takes a pod of the Deployment.
func (d installed) admitted() {
	d.t.Helper()
	d.must(http.MethodPost, d.pods()+"?dryRun=All&fieldValidation=Strict", "", object{
		"metadata": object{"name": "of-the-deployment"}, "spec": d.at("spec.template.spec"),
	})
}

// picker runs a pod of the Deployment as a process: its arguments and its account, with ports that are free here, and
// its configuration where it could be written. Further flags go over those.
func (d installed) picker(pod string, further ...string) *picker {
	d.t.Helper()
	account := d.at("spec.template.spec.serviceAccountName").(string)
	folder := d.t.TempDir()
	if d.config == nil {
		d.config = d.must(http.MethodGet, "/api/v1/namespaces/"+d.name+"/configmaps/"+account, "", nil)
	}
	for name, text := range d.config["data"].(map[string]any) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text.(string)), 0o600); err != nil {
			d.t.Fatal(err)
		}
	}
	flags := []string{"--kubeconfig", d.kubeconfigOf(d.t, d.tokenOf(account)), "--metrics-endpoint-auth"}
	for _, a := range d.at(container + "args").([]any) {
		if a := strings.ReplaceAll(a.(string), "/config/", folder+"/"); a != "serve" {
			flags = append(flags, a)
		}
	}
	flags = append(flags, "--grpc-port=0", "--grpc-health-port=0", "--metrics-port=0", "--xds-port=0",
		"--secure-serving=false", "--zap-encoder=json", "--v=1", "--drain-delay=0s", "--drain-timeout=1s")
	flags = append(flags, further...)
	d.t.Setenv("NAMESPACE", d.name)
	d.t.Setenv("POD_NAME", pod)
	d.rightsCount()
	return startPicker(d.t, flags...)
}

// serves waits until a picker is ready and checks that it picks one of the addresses.
func (p *picker) serves(address string) {
	p.t.Helper()
	p.ready(true)
	if got, status, text := p.pick(); status != http.StatusOK || !strings.HasPrefix(got, address) {
		p.t.Errorf("picked %q, %d %s, want %s", got, status, text, address)
	}
}

// The API server takes what the chart makes of values, without a field that it does not know, and a pod of it where the
// strictest rules for pods hold. With its arguments, its configuration and its rights a picker is ready, and one more
// that stands by if it elects.
func TestChart(t *testing.T) {
	s := chartSpace(t)
	for set, standby := range map[string]bool{"pool": false, "standalone": false, "elected": true, "shared": false,
		"scaled": false} {
		t.Run(set, func(t *testing.T) {
			s := newSpace(t, s.cluster)
			s.pod("a", "10.0.0.1", map[string]string{"app": "llama", "tier": "1"}, nil)
			s.restricted()
			for _, o := range s.documents(s.mustHelm("template", "llama", chart, "--kube-version", "1.36.0",
				"--values", values+set+".yaml")) {
				s.create(o, true)
			}
			s.mustHelm("install", "llama", chart, "--values", values+set+".yaml")
			defer s.mustHelm("uninstall", "llama")
			d := s.deployed()
			d.admitted()
			first := d.picker("llama-epp-6d5f-a")
			first.serves("10.0.0.1:")
			if second := d.picker("llama-epp-6d5f-b"); standby {
				second.follows("not the leader: llama-epp-6d5f-a leads")
			} else {
				second.serves("10.0.0.1:")
			}
			if line, _ := first.log.with("forbidden"); line != "" {
				t.Errorf("a right is missing: %s", line)
			}
		})
	}
}

// gone reports whether an object is not there, or not any more.
func (s *space) gone(path string) bool {
	_, err := s.do(http.MethodGet, path, "", nil)
	return err != nil && strings.Contains(err.Error(), ": 404 ")
}

const rbac = "/apis/rbac.authorization.k8s.io/v1/"

// A release is installed, upgraded to two pickers of which one leads, rolled back and removed. Another configuration
// alone restarts nothing, and a wrong value changes nothing.
func TestChartIsUpgradedAndRolledBack(t *testing.T) {
	s := chartSpace(t)
	s.pod("a", "10.0.0.1", map[string]string{"app": "llama"}, nil)
	s.mustHelm("install", "llama", chart, "--values", values+"pool.yaml")
	before := s.deployed()
	s.mustHelm("upgrade", "llama", chart, "--values", values+"elected.yaml")
	after := s.deployed()
	const strategy = "spec.strategy.rollingUpdate."
	after.has(map[string]any{
		"metadata.uid": before.at("metadata.uid"), "spec.replicas": 2, strategy + "maxUnavailable": "100%",
		strategy + "maxSurge": "100%", container + "lifecycle.preStop.sleep.seconds": 5,
	})
	after.picker("llama-epp-6d5f-a").serves("10.0.0.1:")

	s.mustHelm("upgrade", "llama", chart, "--values", values+"elected.yaml", "--set",
		"router.epp.pluginsConfig.featureGates[0]=flowControl")
	config := s.must(http.MethodGet, "/api/v1/namespaces/"+s.name+"/configmaps/llama-epp", "", nil)
	if text := fmt.Sprint(config["data"]); !strings.Contains(text, "featureGates:") {
		t.Errorf("the ConfigMap has no feature gates: %s", text)
	}
	s.deployed().has(map[string]any{"metadata.generation": after.at("metadata.generation")})

	_, err := s.helm("upgrade", "llama", chart, "--values", values+"pool.yaml", "--set", "router.epp.replicas=two")
	if err == nil || !strings.Contains(err.Error(), "'/router/epp/replicas': got string, want integer") {
		t.Errorf("an upgrade with a wrong value: %v", err)
	}
	s.deployed().has(map[string]any{"metadata.generation": after.at("metadata.generation")})

	s.mustHelm("rollback", "llama", "1")
	s.deployed().has(map[string]any{"spec": before.at("spec"), "metadata.uid": before.at("metadata.uid")})
	s.mustHelm("uninstall", "llama")
	for _, path := range []string{"/apis/apps/v1/namespaces/" + s.name + "/deployments/llama-epp",
		rbac + "clusterroles/llama-" + s.name + "-epp", s.pools(poolGroup) + "/llama"} {
		eventually(t, path+" is removed", func() bool { return s.gone(path) })
	}
}
