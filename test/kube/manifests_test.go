package kube

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plurals are the kinds of deploy/kubernetes and deploy/helm, as paths have them. Those of the cluster have no
// namespace.
var plurals = map[string]string{
	"ServiceAccount": "serviceaccounts", "Role": "roles", "RoleBinding": "rolebindings", "Service": "services",
	"Deployment": "deployments", "NetworkPolicy": "networkpolicies", "InferencePool": "inferencepools",
	"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings", "ConfigMap": "configmaps",
	"Secret": "secrets", "PodDisruptionBudget": "poddisruptionbudgets", "ServiceMonitor": "servicemonitors",
	"HorizontalPodAutoscaler": "horizontalpodautoscalers", "InferenceObjective": "inferenceobjectives",
}

// manifests returns what kustomize makes of a folder of deploy/kubernetes and of components, in the namespace of the
// test.
func (s *space) manifests(folder string, components ...string) []object {
	s.t.Helper()
	base, err := filepath.Abs(filepath.Join("../../deploy/kubernetes", folder))
	if err != nil {
		s.t.Fatal(err)
	}
	overlay, err := filepath.EvalSymlinks(s.t.TempDir()) // out of the way of whoever reads the tree
	if err != nil {
		s.t.Fatal(err)
	}
	above, err := filepath.Rel(overlay, filepath.Dir(base)) // kustomize takes relative paths alone
	if err != nil {
		s.t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%s/%s]\nnamespace: %s\n", above, filepath.Base(base), s.name)
	if len(components) > 0 {
		text += "components: [" + above + "/" + strings.Join(components, ", "+above+"/") + "]\n"
	}
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	tool := exec.CommandContext(s.t.Context(), "go", "tool", "-modfile=../kustomize/go.mod", "kustomize", "build",
		overlay)
	var problems bytes.Buffer
	tool.Stderr = &problems
	built, err := tool.Output()
	if err != nil {
		s.t.Fatalf("kustomize: %v\n%s", err, &problems)
	}
	return s.documents(string(built))
}

// create creates an object, or only asks whether it could be. Fields that the API server does not know are errors.
func (s *space) create(o object, dryRun bool) {
	s.t.Helper()
	kind, version := o["kind"].(string), o["apiVersion"].(string)
	path := "/apis/" + version
	if version == "v1" {
		path = "/api/v1"
	}
	if !strings.HasPrefix(kind, "Cluster") {
		path += "/namespaces/" + s.name
	}
	query := "?fieldValidation=Strict"
	if dryRun {
		query += "&dryRun=All"
	}
	if plurals[kind] == "" {
		s.t.Fatalf("the test does not know the kind %s", kind)
	}
	s.must(http.MethodPost, path+"/"+plurals[kind]+query, "", o)
}

// apply creates what is in the manifests, apart from the Deployment, which it returns: no pod runs here.
func (s *space) apply(all []object) (deployment object) {
	s.t.Helper()
	for _, o := range all {
		s.create(o, true)
	}
	for _, o := range all {
		kind, name := o["kind"].(string), o["metadata"].(object)["name"].(string)
		if kind == "Deployment" {
			deployment = o
			continue
		}
		s.create(o, false)
		if strings.HasPrefix(kind, "Cluster") {
			s.t.Cleanup(func() { s.remove("/apis/rbac.authorization.k8s.io/v1/" + plurals[kind] + "/" + name) })
		}
	}
	return deployment
}

// The manifests are what an API server takes in a namespace with the strictest rules for pods, and with their flags and
// their roles pickers become ready.
func TestManifests(t *testing.T) {
	for name, pickers := range map[string]int{
		"pool": 1, "standalone": 1, "ha": 2, "pool events": 1, "ha events": 2, "pool certificate": 1,
		"ha events certificate": 2,
	} {
		t.Run(name, func(t *testing.T) {
			folder, components := strings.Fields(name)[0], strings.Fields(name)[1:]
			s := newSpace(t, shared)
			s.pod("a", "10.0.0.1", map[string]string{"app": "llama"}, nil)
			s.restricted()
			deployment := s.apply(s.manifests(folder, components...))
			spec := deployment["spec"].(object)
			template := spec["template"].(object)["spec"].(object)
			s.must(http.MethodPost, s.pods()+"?dryRun=All&fieldValidation=Strict", "", object{
				"metadata": object{"name": "of-the-deployment"}, "spec": template,
			})
			checkPods(t, template, folder == "ha", slices.Contains(components, "certificate"))
			if spec["replicas"] != pickers {
				t.Errorf("%v replicas, want %d", spec["replicas"], pickers)
			}
			s.run(template["containers"].([]any)[0].(object)["args"].([]any), pickers)
		})
	}
}

// checkPods checks what the spec of the pods has beside what Pod Security asks for.
func checkPods(t *testing.T, pod object, several, certified bool) {
	t.Helper()
	container := pod["containers"].([]any)[0].(object)
	for what, c := range map[string]struct{ got, want any }{
		"root":     {container["securityContext"].(object)["readOnlyRootFilesystem"], true},
		"requests": {container["resources"].(object)["requests"], object{"cpu": "1", "memory": "512Mi"}},
		"limits":   {container["resources"].(object)["limits"], object{"memory": "2Gi"}},
		"env": {container["env"], []any{
			fromField("POD_NAME", "metadata.name"), fromField("NAMESPACE", "metadata.namespace"),
		}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: want (-), got (+):\n%s", what, diff)
		}
	}
	spread, _ := pod["topologySpreadConstraints"].([]any)
	if (len(spread) > 0) != several || several && spread[0].(object)["topologyKey"] != "kubernetes.io/hostname" {
		t.Errorf("topology spread %v, want one over hosts where several pickers are: %v", spread, several)
	}
	var volumes, mounts any
	if certified {
		volumes = []any{object{"name": "certificate", "secret": object{"secretName": "signalbox-certificate"}}}
		mounts = []any{object{"name": "certificate", "mountPath": certificates, "readOnly": true}}
	}
	if diff := cmp.Diff([]any{volumes, mounts}, []any{pod["volumes"], container["volumeMounts"]}); diff != "" {
		t.Errorf("volumes and mounts: want (-), got (+):\n%s", diff)
	}
	args := fmt.Sprint(container["args"])
	if got := strings.Contains(args, "--cert-path="+certificates); got != certified {
		t.Errorf("arguments %s, want a certificate: %v", args, certified)
	}
}

// fromField is a variable that has a field of the pod.
func fromField(name, path string) object {
	return object{"name": name, "valueFrom": object{"fieldRef": object{"fieldPath": path}}}
}

// run runs pickers with the arguments of a Deployment and the account of the manifests. One of them is ready.
func (s *space) run(args []any, pickers int) {
	s.t.Helper()
	reader, _ := s.reader("reader", "/metrics")
	s.rightsCount()
	flags := []string{"--kubeconfig", s.kubeconfigOf(s.t, s.tokenOf("signalbox")), "--metrics-endpoint-auth"}
	ca, identity := newIdentity(s.t)
	own, certified := flagsOf(args, identity)
	flags = append(flags, own...)
	s.t.Setenv("NAMESPACE", s.name)
	for i := range pickers {
		s.t.Setenv("POD_NAME", fmt.Sprintf("signalbox-6d5f-%d", i))
		p := startPicker(s.t, flags...)
		if certified {
			p.trusts(ca)
		}
		p.answers(reader, http.StatusOK)
		p.ready(i == 0)
		if got, status, text := p.pick(); status != http.StatusOK || !strings.HasPrefix(got, "10.0.0.1:8000") {
			s.t.Errorf("picked %q, %d %s", got, status, text)
		}
	}
}

// certificates is where the component certificate has the certificate of the pods.
const certificates = "/etc/signalbox/tls"

// flagsOf returns the flags of a Deployment, with a folder in the place of its certificates if it has any.
func flagsOf(args []any, identity string) (flags []string, certified bool) {
	for _, a := range args[1:] {
		flag := a.(string)
		if flag == "--cert-path="+certificates {
			certified = true
			flags = append(flags, "--secure-serving")
			flag = "--cert-path=" + identity
		}
		flags = append(flags, flag)
	}
	return flags, certified
}
