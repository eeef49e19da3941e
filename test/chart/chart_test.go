// Package chart tests the Helm chart in deploy/helm with helm itself, which test/helm pins, and the resources of
// gateways beside it and beside the bases for kustomize, which test/kustomize pins, without a cluster. test/kube
// installs them in one.
package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/config"
)

const folder = "../../deploy/helm/signalbox"

// sets are the files of values in testdata.
var sets = []string{"pool", "standalone", "elected", "shared", "scaled"}

// object is an object as YAML has it.
type object map[string]any

// at returns what stands at a path, such as "spec.replicas". Items of lists go by position.
func (o object) at(path string) any {
	var here any = o
	for name := range strings.SplitSeq(path, ".") {
		switch v := here.(type) {
		case object:
			here = v[name]
		case []any:
			var i int
			if _, err := fmt.Sscan(name, &i); err != nil || i >= len(v) {
				return nil
			}
			here = v[i]
		default:
			return nil
		}
	}
	return here
}

// binary is helm, built once.
var binary = sync.OnceValues(func() (string, error) {
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

// helm runs helm, and returns what it prints, errors after the rest.
func helm(t *testing.T, args ...string) (output, problems string, err error) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	tool := exec.CommandContext(t.Context(), path, args...)
	var stderr bytes.Buffer
	tool.Stderr = &stderr
	stdout, err := tool.Output()
	return string(stdout), stderr.String(), err
}

// render returns what helm makes of a file of testdata and some values beside it, of which "@FILE" are those of a
// file, or the error that it prints.
func render(t *testing.T, set string, values ...string) (all []object, problem string) {
	t.Helper()
	args := []string{"template", "llama", folder, "--namespace", "prod", "--kube-version", "1.36.0",
		"--values", filepath.Join("testdata", set+".yaml")}
	for _, v := range values {
		if file, isFile := strings.CutPrefix(v, "@"); isFile {
			args = append(args, "--values", file)
		} else {
			args = append(args, "--set-json", v)
		}
	}
	text, problem, err := helm(t, args...)
	if err != nil {
		return nil, problem
	}
	return documents(t, text), ""
}

// documents returns the objects of a text.
func documents(t *testing.T, text string) (all []object) {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var o object
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if o != nil {
			all = append(all, o)
		}
	}
}

// rendered is render of values that have no problem.
func rendered(t *testing.T, set string, values ...string) []object {
	t.Helper()
	all, problem := render(t, set, values...)
	if problem != "" {
		t.Fatalf("%s %v: %s", set, values, problem)
	}
	return all
}

// of returns the object of a kind, or nil. There is one at most, but for roles and accounts.
func of(all []object, kind string) object {
	i := slices.IndexFunc(all, func(o object) bool { return o["kind"] == kind })
	if i < 0 {
		return nil
	}
	return all[i]
}

func TestLint(t *testing.T) {
	for _, set := range sets {
		out, problems, err := helm(t, "lint", folder, "--strict", "--kube-version", "1.36.0",
			"--values", filepath.Join("testdata", set+".yaml"))
		if err != nil {
			t.Errorf("%s: %v\n%s%s", set, err, out, problems)
		}
	}
}

// A set of values has these kinds, and no others.
func TestKinds(t *testing.T) {
	common := []string{"ClusterRole", "ClusterRoleBinding", "ConfigMap", "Deployment", "InferencePool", "NetworkPolicy",
		"Role", "RoleBinding", "Service", "ServiceAccount"}
	for set, want := range map[string][]string{
		"pool":       common,
		"standalone": {"ConfigMap", "Deployment", "NetworkPolicy", "Role", "RoleBinding", "Service", "ServiceAccount"},
		"elected":    append([]string{"InferenceObjective", "Secret", "ServiceMonitor"}, common...),
		"shared":     append([]string{"PodDisruptionBudget"}, common...),
		"scaled":     append([]string{"HorizontalPodAutoscaler", "PodDisruptionBudget"}, common...),
	} {
		var got []string
		for _, o := range rendered(t, set) {
			got = append(got, o["kind"].(string))
		}
		slices.Sort(got)
		slices.Sort(want)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%s: kinds %v, want %v", set, got, want)
		}
	}
}

// The Deployment is what the values say.
func TestDeployment(t *testing.T) {
	const container, strategy = "spec.template.spec.containers.0.", "spec.strategy.rollingUpdate."
	const spread = "spec.template.spec.topologySpreadConstraints."
	for set, want := range map[string]map[string]any{
		"pool": {
			"metadata.name": "llama-epp", "spec.replicas": 1, "spec.strategy.type": "RollingUpdate",
			strategy + "maxUnavailable": 0, strategy + "maxSurge": 1,
			"spec.template.spec.serviceAccountName": "llama-epp", container + "image": "signalbox:v0.1.0",
			container + "readinessProbe.grpc.service":          "readiness",
			container + "livenessProbe.grpc.service":           "liveness",
			"spec.template.spec.terminationGracePeriodSeconds": 45, container + "lifecycle": nil,
			container + "securityContext.readOnlyRootFilesystem": true,
			container + "resources.requests.cpu":                 "1", container + "resources.requests.memory": "512Mi",
			container + "resources.limits.memory": "2Gi",
			container + "env.0.name":              "POD_NAME", container + "env.1.name": "NAMESPACE",
			container + "env.0.valueFrom.fieldRef.fieldPath": "metadata.name",
			container + "env.1.valueFrom.fieldRef.fieldPath": "metadata.namespace",
			spread + "0.topologyKey":                         "kubernetes.io/hostname",
			spread + "1.topologyKey":                         "topology.kubernetes.io/zone",
			spread + "0.whenUnsatisfiable":                   "ScheduleAnyway", spread + "2": nil,
			spread + "0.labelSelector.matchLabels.llm-d-router-gateway": "llama-epp",
		},
		"standalone": {
			container + "image": "registry.example.com/llm/signalbox:v1", container + "imagePullPolicy": "Always",
			container + "ports.0.containerPort": 9012, container + "readinessProbe.grpc.port": 9013,
			"spec.template.spec.terminationGracePeriodSeconds": 105, container + "resources.requests.cpu": "2",
			"spec.template.spec.securityContext.runAsUser":    1000,
			"spec.template.spec.securityContext.runAsNonRoot": true,
		},
		"elected": {
			"spec.replicas": 2, strategy + "maxUnavailable": "100%", strategy + "maxSurge": "100%",
			container + "lifecycle.preStop.sleep.seconds":      5,
			"spec.template.spec.terminationGracePeriodSeconds": 50,
		},
		"shared": {"spec.replicas": 3, strategy + "maxUnavailable": 0, container + "lifecycle": nil},
		"scaled": {"spec.replicas": nil, strategy + "maxUnavailable": 0},
	} {
		d := of(rendered(t, set), "Deployment")
		for path, value := range want {
			if got := d.at(path); got != value {
				t.Errorf("%s: %s: got %v, want %v", set, path, got, value)
			}
		}
	}
}

// The arguments are those of the values, and numbers are written out.
func TestArguments(t *testing.T) {
	for set, want := range map[string][]string{
		"pool": {"serve", "--pool-name=llama", "--pool-namespace=prod", "--config-file=/config/default-plugins.yaml",
			"--grpc-port=9002", "--grpc-health-port=9003", "--metrics-port=9090"},
		"standalone": {"serve", "--endpoint-selector=app=llama,tier=1", "--endpoint-target-ports=8000,8001",
			"--config-file=/config/default-plugins.yaml", "--grpc-port=9012", "--grpc-health-port=9013",
			"--metrics-port=9090", "--metrics-endpoint-auth=false", "--drain-timeout=1m30s",
			"--max-ejection-percent=12.5", "--max-held-bytes=1073741824", "--secure-serving=false", "--v=3",
			"--xds-port=18000"},
		"elected": {"serve", "--pool-name=llama", "--pool-namespace=prod", "--config-file=/config/mine.yaml",
			"--grpc-port=9002", "--grpc-health-port=9003", "--metrics-port=9090", "--ha-enable-leader-election",
			"--events=true"},
		"shared": {"serve", "--pool-name=llama", "--pool-namespace=prod", "--config-file=/config/payload-agnostic.yaml",
			"--grpc-port=9002", "--grpc-health-port=9003", "--metrics-port=9090"},
	} {
		var got []string
		for _, a := range of(rendered(t, set), "Deployment").at("spec.template.spec.containers.0.args").([]any) {
			got = append(got, a.(string))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: arguments\n%q, want\n%q", set, got, want)
		}
	}
}

// The grace period is longer than the pause before the end and the drain together, however it is written.
func TestGracePeriod(t *testing.T) {
	for drain, want := range map[string]int{`"1h1m1s"`: 3676, `"1500ms"`: 17, `"2m0.5s"`: 136} {
		d := of(rendered(t, "pool", "router.epp.flags.drain-timeout="+drain), "Deployment")
		if got := d.at("spec.template.spec.terminationGracePeriodSeconds"); got != want {
			t.Errorf("drain-timeout %s: %v s, want %d", drain, got, want)
		}
	}
	d := of(rendered(t, "pool", "router.epp.terminationGracePeriodSeconds=130"), "Deployment")
	if got := d.at("spec.template.spec.terminationGracePeriodSeconds"); got != 130 {
		t.Errorf("%v s, want the 130 that are given", got)
	}
}

// One error names all values whose type or range is wrong, or that the chart does not have.
func TestSchemaNamesValues(t *testing.T) {
	wrong := map[string]string{
		`router.epp.replica=2`:                           `at '/router/epp': additional properties 'replica' not allowed`,
		`router.epp.replicas="two"`:                      `at '/router/epp/replicas': got string, want integer`,
		`router.epp.flags.drain-timeot="1s"`:             `at '/router/epp/flags': additional properties 'drain-timeot'`,
		`router.epp.flags.v=[1]`:                         `at '/router/epp/flags/v': got array`,
		`router.epp.extProcPort=70000`:                   `at '/router/epp/extProcPort': maximum`,
		`router.epp.resources.requests="much"`:           `at '/router/epp/resources/requests': got string, want object`,
		`router.inferencePool.failureMode="FailClosed"`:  `at '/router/inferencePool/failureMode': value must be one of`,
		`router.modelServers.targetPorts=[{"number":0}]`: `at '/router/modelServers/targetPorts/0/number': minimum`,
		`router.modelServers.type="mine"`:                `at '/router/modelServers/type': value must be one of`,
		`router.monitoring.interval="10"`:                `at '/router/monitoring/interval': '10' does not match`,
		`routers={}`:                                     `at '': additional properties 'routers' not allowed`,
	}
	_, problem := render(t, "pool", slices.Sorted(maps.Keys(wrong))...)
	for value, want := range wrong {
		if !strings.Contains(problem, want) {
			t.Errorf("%s: the error does not say %s:\n%s", value, want, problem)
		}
	}
}

// One error names all values that the chart cannot serve, with what to do instead.
func TestChartRefusesValues(t *testing.T) {
	refused := map[string]string{
		`router.modelServers.matchLabels=null`:            `router.modelServers.matchLabels: needed`,
		`router.inferencePool.create=false`:               ``, // for the next one
		`router.inferenceObjectives=[{"name":"a"}]`:       `router.inferenceObjectives: an objective names an InferencePool`,
		`router.proxy={"enabled":true}`:                   `router.proxy.enabled: the chart runs no proxy`,
		`router.tokenizer={"enabled":true}`:               `router.tokenizer.enabled: no sidecar is needed`,
		`router.latencyPredictor={"enabled":true}`:        `router.latencyPredictor.enabled: the plugins`,
		`router.priorityRouting={"enabled":true}`:         `router.priorityRouting.enabled: not supported`,
		`router.monitoring.provider.name="gmp"`:           `router.monitoring.provider.name: the chart has a ServiceMonitor`,
		`provider={"name":"gke"}`:                         `provider.name: the chart has no resources of the gateway gke`,
		`httpRoute={"create":true}`:                       `httpRoute.create: the chart has no HTTPRoute`,
		`inferenceExtension={"replicas":1}`:               `inferenceExtension: a value of charts before llm-d-router`,
		`inferencePool={}`:                                `inferencePool: a value of charts before llm-d-router`,
		`router.epp.flags.grpc-port=1`:                    `router.epp.flags.grpc-port: use router.epp.extProcPort`,
		`router.epp.flags.pool-name="x"`:                  `router.epp.flags.pool-name: it is the name of the release`,
		`router.epp.flags.grpc-max-recv-msg-size=1`:       `router.epp.flags.grpc-max-recv-msg-size: use max-body`,
		`router.epp.pluginsConfigFile="x.yaml"`:           `router.epp.pluginsConfigFile: no value has the text of x.yaml`,
		`router.epp.terminationGracePeriodSeconds=9`:      `router.epp.terminationGracePeriodSeconds: 9 is no more`,
		`router.epp.autoscaling.enabled=true`:             ``, // with the next one
		`router.epp.flags.ha-enable-leader-election=true`: `router.epp.autoscaling.enabled: of several pickers`,
		`router.epp.flags.events=true`:                    `router.epp.flags.events: Events are on the InferencePool`,
		`router.epp.flags.drain-delay="30.2s"`:            `router.epp.flags.drain-delay: 30.2s is more than flags.drain-timeout, 30s`,
	}
	_, problem := render(t, "pool", slices.Sorted(maps.Keys(refused))...)
	for value, want := range refused {
		if !strings.Contains(problem, want) {
			t.Errorf("%s: the error does not say %s:\n%s", value, want, problem)
		}
	}
	_, problem = render(t, "pool", `router.epp.pluginsConfig={"plugins":[]}`,
		`router.epp.pluginsCustomConfig={"default-plugins.yaml":""}`)
	if want := "router.epp.pluginsCustomConfig: default-plugins.yaml is written"; !strings.Contains(problem, want) {
		t.Errorf("the error does not say %s:\n%s", want, problem)
	}
}

// Values of the reference that are switched off, or mean nothing here, hinder nothing.
func TestValuesThatCarryOver(t *testing.T) {
	rendered(t, "pool", `router.proxy={"enabled":false}`, `router.tokenizer={"enabled":false,"port":8000}`,
		`router.latencyPredictor={"enabled":false}`, `provider={"name":"none"}`, `httpRoute={"create":false}`,
		`router.tracing={"enabled":true,"otelExporterEndpoint":"http://localhost:4317"}`,
		`router.clusterDomain="cluster.local"`, `router.monitoring.provider={"name":"prometheusoperator"}`,
		`router.monitoring.provider.gmp={"autopilot":false}`, `router.tracing.sampling={"sampler":"always_off"}`,
		`router.modelServers.targetPortNumber=8000`, `router.epp.flags.allow-experimental-plugins=true`)
}

// The notes after an installation name each value that is taken and has no effect, and nothing where all have one.
func TestNotesNameValuesWithoutEffect(t *testing.T) {
	const title = "Values without effect:\n"
	// helm template prints no notes, and helm install wants a cluster. So here they are the text of an object.
	copied := t.TempDir()
	notesFile, err := os.ReadFile(filepath.Join(folder, "templates", "NOTES.txt"))
	if err == nil {
		err = os.CopyFS(copied, os.DirFS(folder))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(copied, "notes.txt"), notesFile, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(copied, "templates", "notes.yaml"), []byte("apiVersion: v1\nkind: Notes\n"+
			"text: |\n{{ tpl (.Files.Get \"notes.txt\") . | indent 2 }}\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	notes := func(values ...string) string {
		args := []string{"template", "llama", copied, "--kube-version", "1.36.0", "--values", "testdata/pool.yaml",
			"--show-only", "templates/notes.yaml"}
		for _, v := range values {
			args = append(args, "--set-json", v)
		}
		output, problem, err := helm(t, args...)
		if err != nil {
			t.Fatalf("%v: %s", err, problem)
		}
		text, _ := of(documents(t, output), "Notes")["text"].(string)
		if !strings.Contains(text, "Signalbox picks endpoints for the pods with app=llama") {
			t.Fatalf("no notes in %s", output)
		}
		return text
	}
	without := map[string]string{
		`router.tracing.enabled=true`:                           "router.tracing: no spans are sent",
		`router.clusterDomain="cluster.local"`:                  "router.clusterDomain: no name of a Service is built",
		`router.modelServers.targetPortNumber=8000`:             "router.modelServers.targetPortNumber: targetPorts count",
		`router.epp.flags.tracing=false`:                        "router.epp.flags.tracing: taken, without effect",
		`router.epp.flags.allow-experimental-plugins=true`:      "router.epp.flags.allow-experimental-plugins: taken,",
		`router.epp.flags.plugin-state-staleness-threshold="1"`: "router.epp.flags.plugin-state-staleness-threshold: ",
	}
	_, list, _ := strings.Cut(notes(slices.Sorted(maps.Keys(without))...), title)
	if got := strings.Count(strings.TrimSpace(list), "\n") + 1; got != len(without) {
		t.Errorf("%d lines, want %d:\n%s", got, len(without), list)
	}
	for value, want := range without {
		if !strings.Contains("\n"+list, "\n"+want) {
			t.Errorf("%s: the notes do not say %s:\n%s", value, want, list)
		}
	}
	if text := notes(); strings.Contains(text, title) {
		t.Errorf("nothing is without effect, and the notes say:\n%s", text)
	}
}

// Model servers of gRPC get a parser of it, and the InferencePool says so.
func TestProtocol(t *testing.T) {
	all := rendered(t, "pool", `router.modelServers.protocol="grpc"`)
	if got := of(all, "InferencePool").at("spec.appProtocol"); got != "kubernetes.io/h2c" {
		t.Errorf("appProtocol %v, want kubernetes.io/h2c", got)
	}
	text := of(all, "ConfigMap")["data"].(object)["default-plugins.yaml"].(string)
	shown, err := config.Show([]byte(text), config.Settings{Destinations: 1})
	if err != nil || !bytes.Contains(shown, []byte("vllmgrpc-parser")) {
		t.Errorf("%v, %s", err, shown)
	}
	if got := of(rendered(t, "pool"), "InferencePool").at("spec.appProtocol"); got != "http" {
		t.Errorf("appProtocol %v, want http", got)
	}
}

// The policy admits proxies to ext_proc, all to health, scrapes to metrics, and nothing else.
func TestNetworkPolicy(t *testing.T) {
	for set, want := range map[string]map[string]any{
		"pool": {"0.ports.0.port": 9002, "0.ports.1": nil, "1.ports.0.port": 9003, "2.ports.0.port": 9090, "3": nil},
		"standalone": {"0.ports.0.port": 9012, "0.ports.1.port": 18000, "0.ports.2": nil, "1.ports.0.port": 9013,
			"2.ports.0.port": 9090, "3": nil},
	} {
		p := of(rendered(t, set), "NetworkPolicy")
		for path, value := range want {
			if got := p.at("spec.ingress." + path); got != value {
				t.Errorf("%s: %s: got %v, want %v", set, path, got, value)
			}
		}
		for i, namespace := range []string{"gateways", "", "monitoring"} {
			labels := p.at(fmt.Sprintf("spec.ingress.%d.from.0.namespaceSelector.matchLabels", i))
			if got := fmt.Sprint(labels); set == "standalone" && namespace != "" && !strings.Contains(got, namespace) {
				t.Errorf("%s: rule %d is for %s, want %s", set, i, got, namespace)
			}
		}
	}
}

// The files of the ConfigMap are configurations without a mistake, and the default one is what holds without a file.
func TestConfigMap(t *testing.T) {
	settings := config.Settings{Destinations: 1, Stale: 2 * time.Second, Wait: time.Minute}
	want, err := config.ShowDefault(settings)
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, set := range sets {
		for name, text := range of(rendered(t, set), "ConfigMap")["data"].(object) {
			files++
			got, err := config.Show([]byte(text.(string)), settings)
			if err != nil {
				t.Errorf("%s: %s: %v", set, name, err)
			}
			if diff := config.Diff(want, got); set == "pool" && name == "default-plugins.yaml" && diff != nil {
				t.Errorf("what holds without a file differs from %s: %q", name, diff)
			}
		}
	}
	if files < 2*len(sets) {
		t.Errorf("%d files in all ConfigMaps, want 2 in each", files)
	}
}

// The chart's README names every value.
func TestReadmeNamesValues(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	values, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var root object
	if err := yaml.Unmarshal(values, &root); err != nil {
		t.Fatal(err)
	}
	paths := leaves("", root)
	if len(paths) < 40 {
		t.Fatalf("only %d values: %q", len(paths), paths)
	}
	for _, path := range paths {
		group, name := path[:strings.LastIndex(path, ".")], path[strings.LastIndex(path, "."):]
		whole := bytes.Contains(text, []byte("`"+path+"`"))
		after := bytes.Contains(text, []byte("`"+name+"`")) && bytes.Contains(text, []byte("`"+group+"."))
		if !whole && !after {
			t.Errorf("README.md of the chart does not name %s", path)
		}
	}
}

// leaves returns the paths of what a user sets as a whole.
func leaves(prefix string, o object) (paths []string) {
	for name, value := range o {
		child, isObject := value.(object)
		switch path := strings.TrimPrefix(prefix+"."+name, "."); {
		case isObject && len(child) > 0 && name != "resources":
			paths = append(paths, leaves(path, child)...)
		default:
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}
