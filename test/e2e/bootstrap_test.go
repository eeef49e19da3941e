package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var bootstraps = map[string]string{
	"override-host": overrideHost, "original-dst": originalDst, "override-host-full": overrideHostFull,
	"original-dst-full": originalDstFull,
}

func TestEnvoyAcceptsTheBootstraps(t *testing.T) {
	for name, path := range bootstraps {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command(envoyPath, "--mode", "validate", "--disable-hot-restart", "-c",
				bootstrapFile(t, path)).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// TestEnvoyBootstrapsFitTheDefaults runs each file as it is shipped before a Signalbox without any flag but its
// endpoints. What counts is its picks: an Envoy that never asks would answer 200 as well.
func TestEnvoyBootstrapsFitTheDefaults(t *testing.T) {
	seenElsewhere(t)
	for name, path := range bootstraps {
		t.Run(name, func(t *testing.T) {
			mustBeFree(t, 8001, 8002, 8080, 9002, 9003, 9090, 19000)
			_, servers := simulatedProcess(t, 2, append(quick, "--port", "8001")...)
			file := filepath.Join(t.TempDir(), "endpoints.yaml")
			writeFile(t, file, endpointsFile(t, servers))
			p := &picker{file: file, flags: []string{"serve", "--endpoints", file}, metrics: "http://127.0.0.1:9090"}
			p.startAgain(t)
			defer func() { p.kill() }() // it would wait for its drain delay
			p.pooled(t, 2)
			e := &envoy{}
			e.run(t, bootstrapFile(t, path), t.TempDir())
			if e.url != "http://127.0.0.1:8080" || e.admin != "http://127.0.0.1:19000" {
				t.Errorf("listener %s, admin %s", e.url, e.admin)
			}
			e.asksPicker(t)
			countPicks(t, p, e, servers)
		})
	}
}

// TestEnvoySingleDestination: with that flag original-dst.yaml serves without the filter that shortens the list.
func TestEnvoySingleDestination(t *testing.T) {
	text := bootstrapText(t, originalDst)
	head, rest, ok := strings.Cut(text, "          - name: first_destination")
	_, tail, found := strings.Cut(rest, "          - name: envoy.filters.http.router")
	if !ok || !found {
		t.Fatalf("%s has no filter to take out", originalDst)
	}
	bootstrap := filepath.Join(t.TempDir(), "no-filter.yaml")
	writeFile(t, bootstrap, head+"          - name: envoy.filters.http.router"+tail)
	s := startStackWith(t, bootstrap, simulated(t, 2, quick...), "--single-destination")
	countPicks(t, s.picker, s.envoy, s.servers)
}

func countPicks(t *testing.T, p *picker, e *envoy, servers []string) {
	t.Helper()
	c := newClient(e.url)
	t.Cleanup(c.close)
	const requests = 40
	for n := range requests {
		if a := c.chat(model, fmt.Sprintf("question %d", n), 2); !a.whole() {
			t.Fatal(a.String())
		}
	}
	if p.picks() != requests {
		t.Errorf("%d picks for %d requests", p.picks(), requests)
	}
	// A request without a body takes another way through Envoy's filter.
	if a := c.do(t.Context(), http.MethodGet, "/v1/models", "", nil); a.status != http.StatusOK {
		t.Error(a.String())
	}
	if p.picks() != requests+1 {
		t.Errorf("%d picks after one more request without a body, want %d", p.picks(), requests+1)
	}
	total := 0
	for _, server := range servers {
		total += served(server)
	}
	if total != requests {
		t.Errorf("the servers finished %d of %d requests", total, requests)
	}
	for _, counter := range []string{"streams_failed", "failure_mode_allowed", "spurious_msgs_received",
		"rejected_header_mutations"} {
		if n := e.stat("http.llm.ext_proc.epp." + counter); n != 0 {
			t.Errorf("envoy counts %d %s", n, counter)
		}
	}
	if n := e.stat("http.llm.ext_proc.epp.streams_started"); n != requests+1 {
		t.Errorf("envoy started %d streams for %d requests", n, requests+1)
	}
	p.idle(t)
}

// mustBeFree names the ports that something else holds, and waits a moment for those that were closed just now.
func mustBeFree(t *testing.T, ports ...int) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	held := slices.Clone(ports)
	for began := time.Now(); time.Since(began) < 5*time.Second; <-tick.C {
		if held = slices.DeleteFunc(held, free); len(held) == 0 {
			return
		}
	}
	var who []string
	for _, port := range held {
		who = append(who, strconv.Itoa(port)+holder(port))
	}
	t.Fatalf("this test starts the example of README.md, whose ports %v must be free on 127.0.0.1; taken: %s", ports,
		strings.Join(who, ", "))
}

func free(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	return err == nil && l.Close() == nil
}

var user = regexp.MustCompile(`users:\(\("([^"]+)",pid=(\d+)`)

// holder is the process that listens on a port, as far as the system says.
func holder(port int) string {
	out, err := exec.Command("ss", "-Hltnp", fmt.Sprintf("sport = :%d", port)).Output()
	if m := user.FindSubmatch(out); err == nil && m != nil {
		return fmt.Sprintf(" (by %s, process %s)", m[1], m[2])
	}
	return ""
}
