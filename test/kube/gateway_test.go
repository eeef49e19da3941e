package kube

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// Where things are in the network of test/envoygateway/apart.sh.
const (
	pickerHost = "10.7.0.10"
	serverA    = "10.7.0.11"
	serverB    = "10.7.0.12"
	gatewayURL = "http://127.0.0.1"
)

// gatewayPaths are where objects of each kind are; %s stands for the namespace.
var gatewayPaths = map[string]string{
	"GatewayClass":         "/apis/gateway.networking.k8s.io/v1/gatewayclasses",
	"Gateway":              "/apis/gateway.networking.k8s.io/v1/namespaces/%s/gateways",
	"HTTPRoute":            "/apis/gateway.networking.k8s.io/v1/namespaces/%s/httproutes",
	"BackendTLSPolicy":     "/apis/gateway.networking.k8s.io/v1/namespaces/%s/backendtlspolicies",
	"EnvoyProxy":           "/apis/gateway.envoyproxy.io/v1alpha1/namespaces/%s/envoyproxies",
	"ClientTrafficPolicy":  "/apis/gateway.envoyproxy.io/v1alpha1/namespaces/%s/clienttrafficpolicies",
	"BackendTrafficPolicy": "/apis/gateway.envoyproxy.io/v1alpha1/namespaces/%s/backendtrafficpolicies",
	"EnvoyExtensionPolicy": "/apis/gateway.envoyproxy.io/v1alpha1/namespaces/%s/envoyextensionpolicies",
	"Service":              "/api/v1/namespaces/%s/services",
	"ConfigMap":            "/api/v1/namespaces/%s/configmaps",
	"InferencePool":        "/apis/inference.networking.k8s.io/v1/namespaces/%s/inferencepools",
	"EndpointSlice":        "/apis/discovery.k8s.io/v1/namespaces/%s/endpointslices",
}

// gateway is an Envoy Gateway that has the resources of deploy/envoy-gateway, with Signalbox and two model servers.
type gateway struct {
	*space
	picker *picker
	client *http.Client
	kill   map[string]func() // model servers, by host
}

// TestGateway runs the resources of deploy/envoy-gateway in a real Envoy Gateway. Only `make gateway` runs it.
func TestGateway(t *testing.T) {
	if os.Getenv("APART") == "" {
		t.Skip("the test of Envoy Gateway is left out: `make gateway` runs it") //nolint:forbidigo // said aloud
	}
	binary := os.Getenv("ENVOY_GATEWAY")
	if binary == "" {
		t.Skip("*** NO ENVOY GATEWAY: its test is left out, for it is not built. ***") //nolint:forbidigo // said aloud
	}
	c := newCluster(t)
	c.defineGateway(t)
	if _, err := c.do(http.MethodPost, "/api/v1/namespaces", "", object{
		"metadata": object{"name": "envoy-gateway-system"},
	}); err != nil {
		t.Fatal(err)
	}
	startGateway(t, c, binary)
	for _, lane := range []string{"full", "light"} {
		t.Run(lane, func(t *testing.T) {
			g := newGateway(t, c, lane)
			g.follows(t, serverA)
			g.follows(t, serverB)
			g.keepsClientsOut(t)
			g.retries(t)
			g.asksTheUnready(t)
			if entries := regexp.MustCompile(`_log_entries_total\{whose="ours"\} [1-9]`); lane == "light" &&
				!entries.MatchString(g.picker.page("/metrics")) {
				t.Error("no entry of the access log came")
			}
			load := regexp.MustCompile(`"inflight_requests": (\d+)`)
			eventually(t, "nothing is in flight", func() bool {
				all := load.FindAllStringSubmatch(g.picker.page("/debug/endpoints?format=json"), -1)
				return len(all) == 2 && all[0][1] == "0" && all[1][1] == "0"
			})
			g.proves(t)
		})
	}
}

// newGateway applies the resources of a lane, and waits until the gateway asks Signalbox.
func newGateway(t *testing.T, c *cluster, lane string) *gateway {
	t.Helper()
	g := &gateway{space: newSpace(t, c), client: &http.Client{Timeout: patience}, kill: map[string]func(){}}
	t.Cleanup(g.client.CloseIdleConnections)
	ca, identity := newIdentity(t)
	for _, host := range []string{serverA, serverB} {
		_, g.kill[host] = startSim(t, 1, "--bind", host, "--port", "8000")
		g.pod("pod-"+strings.ReplaceAll(host, ".", "-"), host, map[string]string{"app": "llama"}, nil)
	}
	g.createAll("ConfigMap", object{"metadata": object{"name": "signalbox-ca"}, "data": object{"ca.crt": ca}})
	g.createAll("EndpointSlice", slice("llama", "http", 8000, serverA, serverB), slice("signalbox", "ext-proc", 9002,
		pickerHost))
	var flags []string
	for _, o := range append(g.manifests("pool", "certificate"), g.manifests("../envoy-gateway/"+lane)...) {
		kind := o["kind"].(string)
		if kind == "Deployment" {
			pod := o["spec"].(object)["template"].(object)["spec"].(object)
			flags, _ = flagsOf(pod["containers"].([]any)[0].(object)["args"].([]any), identity)
		}
		if kind == "EnvoyProxy" { // no pod runs here
			o["spec"].(object)["provider"] = object{"type": "Host", "host": object{"envoyVersion": envoyVersion(t)}}
		}
		if gatewayPaths[kind] != "" {
			g.createAll(kind, o)
		}
	}
	g.picker = startPicker(t, append(g.inPool("--bind", pickerHost, "--grpc-port", "9002"), flags...)...)
	g.picker.ready(true)
	for kind, name := range map[string]string{
		"EnvoyExtensionPolicy": "signalbox", "BackendTrafficPolicy": "signalbox", "ClientTrafficPolicy": "llm",
		"BackendTLSPolicy": "signalbox",
	} {
		g.accepted(kind, name)
	}
	eventually(t, "requests get a pick", func() bool {
		a := g.ask()
		return a.err == nil && a.picked
	})
	return g
}

// createAll creates objects of a kind, which are removed at the end. Fields that the API server does not know are
// errors.
func (g *gateway) createAll(kind string, all ...object) {
	g.t.Helper()
	path := gatewayPaths[kind]
	if strings.Contains(path, "%s") {
		path = fmt.Sprintf(path, g.name)
	}
	for _, o := range all {
		g.must(http.MethodPost, path+"?fieldValidation=Strict", "", o)
		g.t.Cleanup(func() { // the test may have removed it
			_, _ = g.do(http.MethodDelete, path+"/"+o["metadata"].(object)["name"].(string), "", nil)
		})
	}
}

// slice is what a controller would write of a Service.
func slice(service, port string, number int, hosts ...string) object {
	endpoints := []object{}
	for _, host := range hosts {
		endpoints = append(endpoints, object{"addresses": []string{host}, "conditions": object{"ready": true}})
	}
	return object{
		"metadata":    object{"name": service + "-1", "labels": object{"kubernetes.io/service-name": service}},
		"addressType": "IPv4", "ports": []object{{"name": port, "port": number, "protocol": "TCP"}},
		"endpoints": endpoints,
	}
}

// accepted waits until Envoy Gateway says that it has accepted a policy.
func (g *gateway) accepted(kind, name string) {
	g.t.Helper()
	var said any
	eventually(g.t, kind+" "+name+" is accepted", func() bool {
		o := g.must(http.MethodGet, fmt.Sprintf(gatewayPaths[kind], g.name)+"/"+name, "", nil)
		status, _ := o["status"].(map[string]any)
		ancestors, _ := status["ancestors"].([]any)
		if len(ancestors) == 0 {
			return false
		}
		said = ancestors[0].(map[string]any)["conditions"]
		for _, c := range said.([]any) {
			if c := c.(map[string]any); c["type"] == "Accepted" {
				if c["status"] == "False" {
					g.t.Fatalf("%s %s: %v", kind, name, c["message"])
				}
				return c["status"] == "True"
			}
		}
		return false
	})
}

func (g *gateway) ask(header ...string) answer {
	return ask(g.client, gatewayURL, strings.Repeat("word ", 2000), header...)
}

// served returns how many of 40 requests each server answers, and how many had a pick. What fails counts for "".
func (g *gateway) served(header ...string) (by map[string]int, picked int) {
	by = map[string]int{}
	for range 40 {
		a := g.ask(header...)
		if a.err != nil {
			a.server = ""
		}
		by[strings.TrimSuffix(a.server, ":8000")]++
		if a.picked {
			picked++
		}
	}
	return by, picked
}

// only has one of the servers be an endpoint of the picker. The gateway goes on knowing both.
func (g *gateway) only(host string) {
	g.t.Helper()
	for _, other := range []string{serverA, serverB} {
		g.status("pod-"+strings.ReplaceAll(other, ".", "-"), other, other == host)
	}
	eventually(g.t, "the picker has one endpoint", func() bool {
		all := g.picker.endpoints()
		return len(all) == 1 && strings.Contains(all[0], host)
	})
}

// follows checks that every request is answered by the server that is picked, also one with a large body.
func (g *gateway) follows(t *testing.T, host string) {
	t.Helper()
	g.only(host)
	if by, picked := g.served(); by[host] != 40 || picked != 40 {
		t.Errorf("of 40 requests, all picked for %s, %d had a pick, and the servers answered %v", host, picked, by)
	}
	a := ask(g.client, gatewayURL, strings.Repeat("x", 200_000))
	if a.err != nil || !strings.HasPrefix(a.server, host) {
		t.Errorf("200 kB, picked for %s: answered by %s, %v", host, a.server, a.err)
	}
}

// keepsClientsOut checks that a client does not choose its server.
func (g *gateway) keepsClientsOut(t *testing.T) {
	t.Helper()
	g.only(serverA)
	if by, _ := g.served("x-gateway-destination-endpoint", serverB+":8000"); by[serverA] != 40 {
		t.Errorf("of 40 requests whose clients name another server than the picked one, the servers answered %v", by)
	}
}

// retries kills a server under load: requests go to their next destination.
func (g *gateway) retries(t *testing.T) {
	t.Helper()
	for _, host := range []string{serverA, serverB} {
		g.status("pod-"+strings.ReplaceAll(host, ".", "-"), host, true)
	}
	eventually(t, "the picker has both", func() bool { return len(g.picker.endpoints()) == 2 })
	work := startLoad(t, gatewayURL, clients)
	work.goesOn(t, 50)
	g.kill[serverB]()
	killed := time.Now()
	work.goesOn(t, 200)
	work.stop(t, "Envoy Gateway: server killed", killed).rough(t)
	_, g.kill[serverB] = startSim(t, 1, "--bind", serverB, "--port", "8000")
}

// asksTheUnready has no ready picker, as while an elected leader is missing: those that there are get the requests,
// which without the panicThreshold of the resources would fail.
func (g *gateway) asksTheUnready(t *testing.T) {
	t.Helper()
	slicePath := fmt.Sprintf(gatewayPaths["EndpointSlice"], g.name) + "/signalbox-1"
	g.replace(slicePath, "/endpoints/0/conditions/ready", false)
	policy := fmt.Sprintf(gatewayPaths["EnvoyExtensionPolicy"], g.name) + "/signalbox"
	const threshold = "/spec/extProc/0/backendSettings/healthCheck/panicThreshold"
	g.replace(policy, threshold, 0)
	eventually(t, "without panicThreshold requests fail", func() bool { return g.ask().err != nil })
	g.replace(policy, threshold, 1)
	eventually(t, "with panicThreshold each request has a pick", func() bool {
		_, picked := g.served()
		return picked == 40
	})
	g.replace(slicePath, "/endpoints/0/conditions/ready", true)
}

func (g *gateway) replace(path, field string, value any) {
	g.t.Helper()
	g.must(http.MethodPatch, path, "application/json-patch+json", []object{
		{"op": "replace", "path": field, "value": value},
	})
}

// proves is the negative control: without either resource requests reach servers that were not picked.
func (g *gateway) proves(t *testing.T) {
	t.Helper()
	g.only(serverA)
	traffic := fmt.Sprintf(gatewayPaths["BackendTrafficPolicy"], g.name) + "/signalbox"
	g.merge(traffic, object{"spec": object{"loadBalancer": object{"endpointOverride": nil}}})
	var by map[string]int
	var picked int
	eventually(t, "without endpointOverride both servers answer", func() bool {
		by, picked = g.served()
		return by[serverB] > 5
	})
	t.Logf("without endpointOverride, of 40 requests, %d picked for %s: %v", picked, serverA, by)
	if picked != 40 {
		t.Errorf("%d of 40 requests had a pick", picked)
	}
	g.remove(fmt.Sprintf(gatewayPaths["EnvoyExtensionPolicy"], g.name) + "/signalbox")
	eventually(t, "without the EnvoyExtensionPolicy no request has a pick", func() bool {
		by, picked = g.served()
		return picked == 0 && by[serverA] > 0 && by[serverB] > 0
	})
	t.Logf("without the EnvoyExtensionPolicy, of 40 requests, %d with a pick: %v", picked, by)
}

// defineGateway stores the definitions of Envoy Gateway, and waits until the API server has them.
func (c *cluster) defineGateway(t *testing.T) {
	t.Helper()
	tool := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/envoyproxy/gateway")
	tool.Dir = "../envoygateway"
	folder, err := tool.Output()
	if err != nil {
		t.Fatal(err)
	}
	crds := filepath.Join(strings.TrimSpace(string(folder)), "charts/gateway-helm/charts/crds/crds")
	files, _ := filepath.Glob(filepath.Join(crds, "generated/*.yaml"))
	for _, file := range append(files, filepath.Join(crds, "gatewayapi-crds.yaml")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = regexp.MustCompile(`(?m)^\s*\{\{.*\}\}\s*$`).ReplaceAll(text, nil) // of the chart
		documents := yaml.NewDecoder(bytes.NewReader(text))
		for {
			var o object
			if err := documents.Decode(&o); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if o["kind"] != "CustomResourceDefinition" {
				continue
			}
			delete(o, "status")
			version := o["spec"].(object)["versions"].([]any)[0].(object)["name"].(string)
			if err := c.defineOne(o, version); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// startGateway starts Envoy Gateway, which takes its resources from the API server and runs Envoy as a process of its
// own.
func startGateway(t *testing.T, c *cluster, binary string) {
	t.Helper()
	home, version := t.TempDir(), envoyVersion(t)
	envoys := filepath.Join(home, "data/envoy-versions", version, "bin")
	if err := errors.Join(
		os.MkdirAll(envoys, 0o700), os.Symlink(findEnvoy(t), filepath.Join(envoys, "envoy")),
	); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig())
		return cmd
	}
	certgen := run("certgen", "--local", "--config-home", filepath.Join(home, "config"))
	if out, err := certgen.CombinedOutput(); err != nil {
		t.Fatalf("certgen: %v\n%s", err, out)
	}
	if err := os.CopyFS("/certs", os.DirFS(filepath.Join(home, "config/certs/envoy-gateway"))); err != nil {
		t.Fatal(err)
	}
	_ = run("certgen").Run() // makes its Secrets; then it looks for a webhook that is not there
	config := fmt.Sprintf(`apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
provider:
  type: Custom
  custom:
    resource: {type: Kubernetes, kubernetes: {leaderElection: {disable: true}}}
    infrastructure:
      type: Host
      host: {configHome: %[1]s/config, dataHome: %[1]s/data, stateHome: %[1]s/state, runtimeDir: %[1]s/run}
`, home)
	cmd := run("server", "-c", writeTemp(t, "gateway.yaml", config))
	log := &bytes.Buffer{} // read once the process has ended
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = time.Second // its Envoy has the same outputs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // its Envoy ends with the namespace of processes
		_ = cmd.Wait()         // it is killed
		if t.Failed() {
			t.Logf("Envoy Gateway:\n%s", log.Bytes()[max(0, log.Len()-4000):])
		}
	})
}

// envoyVersion returns "1.40.0", as Envoy Gateway names a version.
func envoyVersion(t *testing.T) string {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), findEnvoy(t), "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`/(\d+\.\d+\.\d+)/`).FindSubmatch(said)
	if version == nil {
		t.Fatalf("envoy --version says %q", said)
	}
	return string(version[1])
}

// newIdentity makes an authority and a folder with a certificate of it for the name signalbox.
func newIdentity(t *testing.T) (ca, folder string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "signalbox"}, DNSNames: []string{"signalbox"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder = t.TempDir()
	ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}))
	if err := errors.Join(
		os.WriteFile(filepath.Join(folder, "tls.crt"), []byte(ca), 0o600),
		os.WriteFile(filepath.Join(folder, "tls.key"),
			pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	return ca, folder
}
