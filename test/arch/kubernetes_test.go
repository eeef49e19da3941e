package arch

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// ofKubernetes are the packages by which the product reaches Kubernetes.
var ofKubernetes = regexp.MustCompile(`^(k8s\.io/|sigs\.k8s\.io/|github\.com/signalbox-epp/signalbox/` +
	`adapters/(access|election|events|discovery/kube|discovery/preflight)$)`)

// linksKubernetes returns which packages of Kubernetes a build of packages links.
func linksKubernetes(t *testing.T, flags ...string) (all []string) {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-deps"}, flags...)...)
	list.Dir = "../.."
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list %v: %v", flags, err)
	}
	for _, path := range strings.Fields(string(out)) {
		if ofKubernetes.MatchString(path) {
			all = append(all, path)
		}
	}
	return all
}

// What a request passes links nothing of Kubernetes: the picker, the streams of proxies, and what reads bodies and
// pages. Nor does a command that is built with the tag nokubernetes.
func TestKubernetesStaysOut(t *testing.T) {
	for name, flags := range map[string][]string{
		"the way of a request": {".", "./adapters/extproc", "./adapters/accesslog", "./adapters/parsers",
			"./adapters/modelserver", "./adapters/telemetry", "./adapters/discovery", "./adapters/xds"},
		"a build with the tag nokubernetes": {"-tags", "nokubernetes", "./cmd/signalbox"},
	} {
		if all := linksKubernetes(t, flags...); len(all) > 0 {
			t.Errorf("%s links Kubernetes; move what needs it into cmd/signalbox/app/kubernetes.go: %v", name, all)
		}
	}
	if all := linksKubernetes(t, "./cmd/signalbox"); len(all) < 10 {
		t.Errorf("without the tag the command links %v, want Kubernetes: the test sees nothing", all)
	}
}
