//go:build !nokubernetes

package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/signalbox-epp/signalbox/adapters/discovery/kube"
)

const fileDiscovery = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{type: random-picker}, {type: file-discovery, parameters: {path: e.yaml}}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: random-picker}]}]
dataLayer: {discovery: {endpoints: {pluginRef: file-discovery}}}
`

// There is exactly one source of endpoints, and what is wrong names the flag.
func TestSourcesOfEndpoints(t *testing.T) {
	const none = "no endpoints: name a file with --endpoints, configure file-discovery, or name pods of Kubernetes " +
		"with --pool-name or --endpoint-selector"
	const two = "--endpoint-selector: the endpoints file e.yaml is given too, want one of them"
	const noEvents = "--events: want --pool-name without a file of endpoints, for they are on the InferencePool"
	selector := []string{"--endpoint-selector", "a=b", "--endpoint-target-ports", "1"}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"none":              {nil, none},
		"a file":            {[]string{"--endpoints", "e.yaml"}, ""},
		"a file and a name": {[]string{"--endpoints", "e.yaml", "--pool-name", "p"}, ""},
		"a pool":            {[]string{"--pool-name", "p"}, ""},
		"a configured file": {[]string{"--config-text", fileDiscovery}, ""},
		"a file and a cache": {[]string{"--endpoints", "e.yaml", "--discovery-cache", "c"}, "--discovery-cache: the " +
			"endpoints file e.yaml is given too, want --pool-name or --endpoint-selector alone"},
		"a pool with events":       {[]string{"--pool-name", "p", "--events"}, ""},
		"events of a selector":     {append(selector, "--events"), noEvents},
		"events of a file":         {[]string{"--endpoints", "e.yaml", "--pool-name", "p", "--events"}, noEvents},
		"it and a name":            {[]string{"--config-text", fileDiscovery, "--pool-name", "p"}, ""},
		"it and a selector":        {append(selector, "--config-text", fileDiscovery), two},
		"a selector":               {selector, ""},
		"a selector, other config": {append(selector, "--config-text", randomPicking), ""},
	} {
		got := ""
		if _, err := parsed(t, c.args...).load(t.Context()); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// Pods cannot be followed without a cluster: the start ends, and names the flag.
func TestPodsWithoutACluster(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for args, want := range map[string]string{
		"--pool-name p": "--pool-name: there is no cluster: want --kubeconfig, $KUBECONFIG, or a pod with a service " +
			"account",
		"--endpoint-selector a=b --endpoint-target-ports 1": "--endpoint-selector: there is no cluster: ",
		"--pool-name p --kubeconfig /no/such/file":          "--pool-name: --kubeconfig /no/such/file: ",
	} {
		o, set := newOptions(nil), pflag.NewFlagSet("test", pflag.ContinueOnError)
		o.register(set)
		if err := set.Parse(append(strings.Fields(args), "--grpc-port", "0", "--grpc-health-port", "0",
			"--metrics-port", "0", "-v0")); err != nil {
			t.Fatal(err)
		}
		s, err := start(t.Context(), o)
		if err == nil {
			_ = s.stop(0)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
}

// The namespace is that of the flag, else of the environment.
func TestNamespaceOfThePool(t *testing.T) {
	t.Setenv("NAMESPACE", "")
	if got := parsed(t).namespace(); got != "default" {
		t.Errorf("got %q, want default", got)
	}
	t.Setenv("NAMESPACE", "prod")
	if got := parsed(t).namespace(); got != "prod" {
		t.Errorf("got %q, want that of $NAMESPACE", got)
	}
	if got := parsed(t, "--pool-namespace", "staging").namespace(); got != "staging" {
		t.Errorf("got %q, want that of the flag", got)
	}
}

// inPod runs a command where a container has its service account: the namespace, command.
const inPod = `mount -t tmpfs tmpfs /var/run && mkdir -p /var/run/secrets/kubernetes.io/serviceaccount &&
	echo "$0" >/var/run/secrets/kubernetes.io/serviceaccount/namespace && exec "$@"`

// In a pod the namespace is that of its service account, unless something else says one. The test is its own child
// there.
func TestNamespaceOfTheServiceAccount(t *testing.T) {
	if os.Getenv("SIGNALBOX_TEST_IN_POD") != "" {
		fmt.Println("namespace", parsed(t).namespace())
		return
	}
	apart := []string{"-m", "sh", "-c", inPod, "staging"}
	if os.Getuid() != 0 {
		apart = append([]string{"--map-root-user"}, apart...)
	}
	if out, err := exec.Command("unshare", append(apart, "true")...).CombinedOutput(); err != nil {
		t.Skipf("no mounts of its own for a process: %v %s", err, out) //nolint:forbidigo // it takes Linux, and more
	}
	for namespace, want := range map[string]string{"": "staging", "prod": "prod"} {
		child := exec.Command("unshare", append(apart, os.Args[0], "-test.run=^TestNamespaceOfTheServiceAccount$")...)
		child.Env = append(os.Environ(), "SIGNALBOX_TEST_IN_POD=yes", "NAMESPACE="+namespace)
		out, err := child.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "namespace "+want+"\n") {
			t.Errorf("$NAMESPACE %q: %v, %s; want %s", namespace, err, out, want)
		}
	}
}

// emptyCluster returns a kubeconfig of an API server that has nothing.
func emptyCluster(t *testing.T) (kubeconfig string) {
	t.Helper()
	api := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(api.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	writeText(t, kubeconfig, "apiVersion: v1\nkind: Config\ncurrent-context: c\n"+
		"clusters: [{name: c, cluster: {server: "+api.URL+"}}]\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\n"+
		"users: [{name: u, user: {}}]\n")
	return kubeconfig
}

// A picker whose pool is not there runs, says why it is not ready, and refuses requests.
func TestPoolThatIsMissing(t *testing.T) {
	s := running(t, "--endpoints=", "--pool-name", "llama", "--pool-namespace", "prod", "--kubeconfig", emptyCluster(t),
		"--secure-serving=false", "--bind", "127.0.0.1", "--metrics-endpoint-auth=false")
	for _, name := range healthServices {
		if got, err := healthAt(t, s.at("grpc-health-port"), name, nil); got != notServing {
			t.Errorf("%q: got %v, %v; want NOT_SERVING", name, got, err)
		}
	}
	if got, err := healthAt(t, s.at("grpc-health-port"), liveness, nil); got != serving {
		t.Errorf("liveness: got %v, %v; want SERVING", got, err)
	}
	at := asked{url: "http://" + s.at("metrics-port")}
	const want = "InferencePool prod/llama is not known yet: list inferencepools." + kube.DefaultGroup + ": "
	if status, text := at.get(t, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(text, want) {
		t.Errorf("/readyz: %d %q, want 503 and %q", status, text, want)
	}
	if status, _ := at.get(t, "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d, want 200", status)
	}
	const counted = `signalbox_discovery_errors_total{reason="not-found",resource="inferencepools.` + kube.DefaultGroup
	if _, text := at.get(t, "/metrics"); !strings.Contains(text, counted) {
		t.Error("the errors are not counted")
	}
}

// In a pod that follows pods the ports listen on all addresses, unless --bind says otherwise.
func TestPortsInACluster(t *testing.T) {
	for args, want := range map[string]bool{
		"--pool-name p": true,
		"--endpoint-selector a=b --endpoint-target-ports 1": true,
		"--pool-name p --bind 127.0.0.1":                    false,
		"--pool-name p --endpoints e.yaml":                  false,
		"--endpoints e.yaml":                                false,
	} {
		for _, host := range []string{"10.0.0.1", ""} {
			t.Setenv("KUBERNETES_SERVICE_HOST", host)
			o := parsed(t, strings.Fields(args)...)
			if err := o.check(); err != nil {
				t.Fatal(err)
			}
			all, err := o.addresses()
			if err != nil || len(all) != 1 || all[0].IsUnspecified() != (want && host != "") {
				t.Errorf("%s, KUBERNETES_SERVICE_HOST=%q: %v, %v; want all addresses: %v", args, host, all, err,
					want && host != "")
			}
		}
	}
}

// A pick names one endpoint where the proxy of the reference's chart takes no more, unless the flag says otherwise.
func TestDestinationsOfAPick(t *testing.T) {
	const standalone = "--endpoint-selector a=b --endpoint-target-ports 1"
	for args, want := range map[string]bool{
		standalone: true,
		standalone + " --single-destination=false": false,
		"--pool-name p":                                false,
		"--pool-name p --single-destination":           true,
		"--endpoints e.yaml":                           false,
		"--endpoints e.yaml --single-destination=true": true,
	} {
		o := parsed(t, strings.Fields(args)...)
		if err := o.check(); err != nil {
			t.Fatal(err)
		}
		if o.singleDestination != want {
			t.Errorf("%s: one destination is %v, want %v", args, o.singleDestination, want)
		}
	}
}

// The flags that the reference's chart passes are taken, those without effect too.
func TestFlagsOfTheReferencesChart(t *testing.T) {
	for args, warnings := range map[string]int{
		"--pool-namespace n --pool-group g --zap-encoder json --config-file /c --grpc-health-port 9003": 0,
		"--tracing=false --metrics-endpoint-auth=false":                                                 0,
		"--tracing=true --allow-experimental-plugins":                                                   1,
	} {
		o := parsed(t, append(strings.Fields(args), "--pool-name", "p")...)
		if err := o.check(); err != nil {
			t.Errorf("%s: %v", args, err)
		}
		if got := o.poolOptions.warnings(); len(got) != warnings {
			t.Errorf("%s: warnings %v, want %d", args, got, warnings)
		}
	}
}

// The lease has the reference's name, and a leader needs Kubernetes.
func TestLeaseOfTheElection(t *testing.T) {
	t.Setenv("NAMESPACE", "prod")
	selector := []string{"--endpoint-selector", "a=b", "--endpoint-target-ports", "1"}
	for _, c := range []struct {
		pod  string
		args []string
		want string
	}{
		{"", []string{"--pool-name", "llama"}, "epp-prod-llama.llm-d.ai"},
		{"picker-6d5f-x2k4q", []string{"--pool-name", "llama"}, "epp-prod-llama.llm-d.ai"},
		{"picker-6d5f-x2k4q", selector, "epp-prod-picker.llm-d.ai"},
		{"picker-0", selector, "epp-prod-selector-42144f39.llm-d.ai"},
		{"", selector, "epp-prod-selector-42144f39.llm-d.ai"},
		{"llama-a-0", selector, "epp-prod-selector-42144f39.llm-d.ai"}, // of StatefulSets, which are pools apart
		{"llama-b-0", []string{"--endpoint-selector", "a=c"}, "epp-prod-selector-5d428c32.llm-d.ai"},
		{"llama-b-x2k4q", selector, "epp-prod-selector-42144f39.llm-d.ai"}, // of a DaemonSet
		{"llama-b-7d9c8b6f5c-x2k4q", selector, "epp-prod-llama-b.llm-d.ai"},
	} {
		t.Setenv("POD_NAME", c.pod)
		if got := parsed(t, c.args...).lease(); got != c.want {
			t.Errorf("POD_NAME=%q %q: got %s, want %s", c.pod, c.args, got, c.want)
		}
		if got := processName(); c.pod != "" && got != c.pod || got == "" {
			t.Errorf("POD_NAME=%q: the name of the process is %q", c.pod, got)
		}
	}
	_, err := parsed(t, "--endpoints", "e.yaml", "--pool-name", "p", "--ha-enable-leader-election").load(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "--ha-enable-leader-election: want --pool-name or ") {
		t.Errorf("with a file: %v", err)
	}
}

// Where pods are followed Kubernetes says who may read the metrics port, unless a flag or a file of tokens does.
func TestWhoGuardsTheMetricsPort(t *testing.T) {
	for args, want := range map[string]int{
		"":                              http.StatusServiceUnavailable, // nobody reviews the token
		"--metrics-endpoint-auth=false": http.StatusOK,
		"--metrics-token-file tokens":   http.StatusUnauthorized,
		"--metrics-token-file tokens --metrics-endpoint-auth=false": http.StatusUnauthorized,
	} {
		tokens := filepath.Join(t.TempDir(), "tokens")
		writeText(t, tokens, "of-prometheus\n")
		s := running(t, append(strings.Fields(strings.ReplaceAll(args, "tokens", tokens)), "--endpoints=", "--bind",
			"127.0.0.1", "--pool-name", "llama", "--kubeconfig", emptyCluster(t), "--secure-serving=false")...)
		at := asked{url: "http://" + s.at("metrics-port"), token: "of-a-stranger"}
		for _, path := range []string{"/metrics", "/debug/endpoints", "/"} {
			if got, text := at.get(t, path); got != want {
				t.Errorf("%q: %s: %d %s, want %d", args, path, got, text, want)
			}
		}
		if got, text := at.get(t, "/healthz"); got != http.StatusOK {
			t.Errorf("%q: /healthz: %d %s, want 200", args, got, text)
		}
	}
	_, err := parsed(t, "--config-text", fileDiscovery, "--pool-name", "p", "--metrics-endpoint-auth").load(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "--metrics-endpoint-auth: want --metrics-token-file too") {
		t.Errorf("with a file of endpoints: %v", err)
	}
}
