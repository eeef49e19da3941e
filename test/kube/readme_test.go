package kube

import (
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// fenced is a block of shell commands in README.
var fenced = regexp.MustCompile("(?s)```sh\n(.*?)```")

// readmeCommand returns the one command of README's steps on Kubernetes that begins with a text.
func readmeCommand(t *testing.T, begins string) []string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, steps, _ := strings.Cut(string(text), "\n### On Kubernetes\n")
	steps, _, _ = strings.Cut(steps, "\n## ")
	var found [][]string
	for _, block := range fenced.FindAllStringSubmatch(steps, -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
			if strings.HasPrefix(strings.TrimSpace(line), begins) {
				found = append(found, strings.Fields(line))
			}
		}
	}
	if len(found) != 1 {
		t.Fatalf("README's steps have %d commands that begin with %q, want one", len(found), begins)
	}
	return found[0]
}

// What README says to do on Kubernetes, as far as it needs no nodes: the chart is installed, preflight finds all that a
// picker needs, the picker of the Deployment serves, and an account with the rights that it names may ask why.
func TestREADMEOnKubernetes(t *testing.T) {
	s := chartSpace(t)
	s.pod("a", "127.0.0.1", map[string]string{"app": "llama"}, nil) // where nothing serves a page
	inSpace := func(command []string) (all []string) {
		for _, word := range command {
			switch word {
			case "deploy/helm/signalbox":
				word = chart
			case "prod":
				word = s.name
			case "~/.kube/config": // where kubectl and helm look, and signalbox does not by itself
				word = s.kubeconfig()
			}
			all = append(all, word)
		}
		return all
	}
	install := readmeCommand(t, "helm install ")
	s.mustHelm(inSpace(install[1:])...)
	defer s.mustHelm("uninstall", "llama")
	d := s.deployed()
	d.has(map[string]any{container + "image": "registry.example.com/signalbox:v0.1.0"})
	d.admitted()

	look := exec.Command(signalbox, inSpace(readmeCommand(t, "bin/signalbox preflight ")[1:])...)
	out, err := look.CombinedOutput()
	if err != nil || strings.Contains(string(out), "problem") {
		t.Errorf("preflight: %v\n%s", err, out)
	}

	p := d.picker("llama-epp-6d5f-a")
	p.serves("127.0.0.1:8000")
	var paths []string
	for _, word := range readmeCommand(t, "kubectl create clusterrole ") {
		if path, isPath := strings.CutPrefix(word, "--non-resource-url="); isPath {
			paths = append(paths, strings.Trim(path, "'"))
		}
	}
	operator, _ := s.reader("operator", paths...)
	token := t.TempDir() + "/token"
	if err := os.WriteFile(token, []byte(operator), 0o600); err != nil {
		t.Fatal(err)
	}
	explain := readmeCommand(t, "bin/signalbox explain ")
	explain[len(explain)-1] = token
	if out, err = exec.Command(signalbox, append(explain[1:], "--addr", p.http)...).CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "127.0.0.1:8000") {
		t.Errorf("explain: %v\n%s", err, out)
	}
	p.gets("/debug/endpoints", "", http.StatusUnauthorized)
}
