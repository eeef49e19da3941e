package chart

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// kustomized returns what kustomize makes of folders of deploy, with components, in the namespace prod.
func kustomized(t *testing.T, folders, components []string) []object {
	t.Helper()
	overlay, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	text := "namespace: prod\n"
	for list, names := range map[string][]string{"resources": folders, "components": components} {
		text += list + ":\n"
		for _, name := range names {
			text += "- " + relative(t, overlay, filepath.Join("../../deploy", name)) + "\n"
		}
	}
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tool := exec.CommandContext(t.Context(), "go", "tool", "-modfile=../kustomize/go.mod", "kustomize", "build",
		overlay)
	var problems strings.Builder
	tool.Stderr = &problems
	out, err := tool.Output()
	if err != nil {
		t.Fatalf("kustomize: %v\n%s", err, &problems)
	}
	return documents(t, string(out))
}

// relative returns a path from a folder on, for kustomize takes no absolute ones.
func relative(t *testing.T, from, path string) string {
	t.Helper()
	whole, err := filepath.Abs(path)
	if err == nil {
		whole, err = filepath.EvalSymlinks(whole)
	}
	if err == nil {
		whole, err = filepath.Rel(from, whole)
	}
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

// What deploy/docs/gateways.md has for Envoy Gateway: each Service that a policy or a route names is there beside it,
// with the port, and the picker has a certificate.
func TestGatewaysNameServices(t *testing.T) {
	for _, lane := range []string{"envoy-gateway/full", "envoy-gateway/light"} {
		bases := kustomized(t, []string{"kubernetes/pool", lane}, []string{"kubernetes/certificate"})
		beside := append(kustomized(t, []string{lane}, []string{"envoy-gateway/chart"}),
			rendered(t, "pool", "@"+folder+"/../../envoy-gateway/chart/values.yaml")...)
		for name, all := range map[string][]object{"bases": bases, "chart": beside} {
			t.Run(lane+" with "+name, func(t *testing.T) {
				named := services(all)
				if want := map[string]int{"full": 3, "light": 4}[filepath.Base(lane)]; len(named) != want {
					t.Errorf("services are named %d times, want %d: %v", len(named), want, named)
				}
				for _, n := range named {
					if !serves(all, n) {
						t.Errorf("%s names the Service %s, port %v, which is not there", n.by, n.name, n.port)
					}
				}
				pod := of(all, "Deployment").at("spec.template.spec").(object)
				volumes, args := fmt.Sprint(pod["volumes"]), fmt.Sprint(pod.at("containers.0.args"))
				mounts := fmt.Sprint(pod.at("containers.0.volumeMounts"))
				if !strings.Contains(args, "--cert-path=/etc/signalbox/tls") ||
					!strings.Contains(mounts, "mountPath:/etc/signalbox/tls") ||
					!strings.Contains(volumes, "secretName:signalbox-certificate") {
					t.Errorf("no certificate: volumes %s, mounted %s, arguments %s", volumes, mounts, args)
				}
			})
		}
	}
}

// naming is that an object names a Service. A port of nil is any.
type naming struct {
	by, name string
	port     any
}

// services returns each time that an object of a gateway names a Service.
func services(all []object) (found []naming) {
	for _, o := range all {
		if strings.Contains(fmt.Sprint(o["apiVersion"]), "gateway") {
			found = append(found, namedIn(o["kind"].(string), "", o["spec"])...)
		}
	}
	return found
}

// namedIn returns the namings below a field of an object. A backend of no kind is a Service.
func namedIn(by, field string, value any) (found []naming) {
	switch v := value.(type) {
	case object:
		isService := v["kind"] == "Service" || field == "backendRefs" && v["kind"] == nil
		if name, ok := v["name"].(string); ok && isService {
			found = append(found, naming{by, name, v["port"]})
		}
		for child, value := range v {
			found = append(found, namedIn(by, child, value)...)
		}
	case []any:
		for _, value := range v {
			found = append(found, namedIn(by, field, value)...)
		}
	}
	return found
}

// serves reports whether a Service that is named is there, with its port.
func serves(all []object, n naming) bool {
	return slices.ContainsFunc(all, func(o object) bool {
		if o["kind"] != "Service" || o.at("metadata.name") != n.name {
			return false
		}
		return n.port == nil || slices.ContainsFunc(o.at("spec.ports").([]any), func(p any) bool {
			return p.(object)["port"] == n.port
		})
	})
}

// The pods of all namespaces reach ext_proc and metrics, all reach health, and none other ports.
func TestNetworkPolicyOfBases(t *testing.T) {
	p := of(kustomized(t, []string{"kubernetes/pool"}, nil), "NetworkPolicy")
	for path, want := range map[string]any{
		"0.ports.0.port": "ext-proc", "0.ports.1.port": "metrics", "0.ports.2": nil, "0.from.1": nil,
		"1.ports.0.port": "health", "1.ports.1": nil, "1.from": nil, "2": nil,
	} {
		if got := p.at("spec.ingress." + path); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
	if pods := p.at("spec.ingress.0.from.0.namespaceSelector"); pods == nil {
		t.Error("ext_proc and metrics are open to more than pods")
	}
}
