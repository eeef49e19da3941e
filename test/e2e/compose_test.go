package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// composition is deploy/compose.yaml as the loader of the compose specification reads it.
type composition struct {
	Services map[string]struct {
		Image       string
		Command     []string
		NetworkMode string `json:"network_mode"`
		Profiles    []string
		Build       struct{ Context, Dockerfile string }
		Ports       []struct {
			HostIP    string `json:"host_ip"`
			Published string
			Target    int
		}
		Volumes []struct{ Source, Target string }
	}
}

// composed runs the specification's own loader, which checks a file by the specification's schema and for consistency.
func composed(path string) (*composition, error) {
	tools, err := filepath.Abs("../tools/go.mod")
	if err != nil {
		return nil, err
	}
	load := exec.Command("go", "tool", "-modfile="+tools, "github.com/compose-spec/compose-go/v2/cmd", "--format",
		"json", filepath.Base(path))
	load.Dir = filepath.Dir(path) // paths in the file begin there
	load.Env = append(os.Environ(), "COMPOSE_PROFILES=sim")
	var said strings.Builder
	load.Stderr = &said
	out, err := load.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, said.String())
	}
	c := &composition{}
	return c, json.Unmarshal(out, c)
}

// TestCommandComposeFileIsValid by the specification, mounts what there is,
// and starts the versions that this source is for.
func TestCommandComposeFileIsValid(t *testing.T) {
	const file = "../../deploy/compose.yaml"
	c, err := composed(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range c.Services {
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s mounts %s: %v", name, v.Source, err)
			}
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s is reached at port %s of %q from outside", name, p.Published, p.HostIP)
			}
		}
		if b := s.Build; b.Context != "" {
			if _, err := os.Stat(filepath.Join(b.Context, b.Dockerfile)); err != nil {
				t.Errorf("%s is built from: %v", name, err)
			}
		}
	}
	if image := c.Services["envoy"].Image; !strings.HasPrefix(image, "docker.io/envoyproxy/envoy:v"+shippedVersion+
		".") {
		t.Errorf("Envoy's image is %s, the files of deploy/envoy are for %s", image, shippedVersion)
	}
	// What checks has to be able to refuse.
	for name, change := range map[string][2]string{
		"a key that there is not": {"\n    network_mode:", "\n    netwerk_mode:"},
		"a port that is none":     {"127.0.0.1:9090:9090", "127.0.0.1:9090:port"},
	} {
		bad := filepath.Join(t.TempDir(), "compose.yaml")
		writeFile(t, bad, replaceOnce(t, readFile(t, file), change[0], change[1]))
		if _, err := composed(bad); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestEnvoyComposeCommands runs what the containers run, on this machine: their commands fit each other, the shipped
// file, and the ports that are published. Of containers it proves nothing.
// Names and addresses of their network become 127.0.0.1.
func TestEnvoyComposeCommands(t *testing.T) {
	seenElsewhere(t)
	c, err := composed("../../deploy/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	picker, proxy := c.Services["signalbox"], c.Services["envoy"]
	if proxy.NetworkMode != "service:signalbox" {
		t.Fatalf("Envoy's network is %q: it would not meet Signalbox on 127.0.0.1", proxy.NetworkMode)
	}
	mustBeFree(t, 8001, 8002, 8080, 9002, 9003, 9090, 18000, 19000)
	here := func(text string) string { return strings.ReplaceAll(text, "0.0.0.0", "127.0.0.1") }
	local := func(command []string) (all []string) {
		for _, arg := range command {
			all = append(all, here(arg))
		}
		return all
	}
	start(t, "sim", binary, local(c.Services["sim"].Command)...).linesAfter(t, "listening ", 2, 10*time.Second)
	folder := t.TempDir()
	list := readFile(t, filepath.Join(picker.Volumes[0].Source, "endpoints.yaml"))
	writeFile(t, filepath.Join(folder, "endpoints.yaml"),
		strings.ReplaceAll(list, "address: sim,", "address: 127.0.0.1,"))
	var flags []string
	for _, flag := range local(picker.Command) {
		flags = append(flags, strings.Replace(flag, picker.Volumes[0].Target, folder, 1))
	}
	p := start(t, "signalbox", binary, append(flags, "--drain-delay=0s")...)
	config := proxy.Command[1]
	if proxy.Volumes[0].Target != config {
		t.Fatalf("Envoy reads %s, where nothing is mounted", config)
	}
	text := filepath.Join(folder, "envoy.yaml")
	writeFile(t, text, bootstrapText(t, "../../deploy/envoy/"+filepath.Base(proxy.Volumes[0].Source)))
	e := &envoy{}
	e.run(t, text, folder)
	e.asksPicker(t)
	client := newClient(fmt.Sprintf("http://%s:%s", picker.Ports[0].HostIP, picker.Ports[0].Published))
	t.Cleanup(client.close)
	a := client.chat("sim-model", "Hello", 4)
	if !a.whole() || a.header.Get("x-signalbox-request-id") == "" {
		t.Errorf("%s; headers %v", a.String(), a.header)
	}
	if status, _ := get(fmt.Sprintf("http://%s:%s/metrics", picker.Ports[1].HostIP,
		picker.Ports[1].Published)); status != http.StatusOK {
		t.Errorf("the metrics page: status %d", status)
	}
	p.stop()
}
