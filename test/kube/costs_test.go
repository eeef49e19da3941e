package kube

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ofKubernetes are the packages by which the product reaches Kubernetes.
var ofKubernetes = regexp.MustCompile(`^(k8s\.io/|sigs\.k8s\.io/|github\.com/signalbox-epp/signalbox/adapters/` +
	`(access|election|events|discovery/kube|discovery/preflight)$)`)

// addedByKubernetes returns the packages of the command that nothing else imports: those that it would not have
// without Kubernetes.
func addedByKubernetes(t *testing.T) map[string]bool {
	t.Helper()
	const main = "github.com/signalbox-epp/signalbox/cmd/signalbox"
	list := exec.Command("go", "list", "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`, main)
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	imports, added := map[string][]string{}, map[string]bool{}
	for line := range strings.Lines(string(out)) {
		all := strings.Fields(line)
		imports[all[0]], added[all[0]] = all[1:], true
	}
	var keep func(path string)
	keep = func(path string) {
		if !added[path] || ofKubernetes.MatchString(path) {
			return
		}
		delete(added, path)
		for _, i := range imports[path] {
			keep(i)
		}
	}
	keep(main)
	return added
}

// packageOf returns the package of a symbol of a binary; "" = it is of none.
func packageOf(symbol string) string {
	symbol, _, _ = strings.Cut(symbol, "[") // types that a generic one is of
	slash := strings.LastIndexByte(symbol, '/')
	dot := strings.IndexByte(symbol[slash+1:], '.')
	if dot < 0 || strings.Contains(symbol, ":") {
		return ""
	}
	return strings.ReplaceAll(symbol[:slash+1+dot], "%2e", ".")
}

// The code that the command would not have without Kubernetes, as a share of all of its code, tells how much smaller
// it would be: the tables that Go's linker makes grow with the code.
func TestBinaryGrowsBy(t *testing.T) {
	added := addedByKubernetes(t)
	stripped := filepath.Join(t.TempDir(), "signalbox")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", stripped, "../../cmd/signalbox") // as make build does
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(stripped)
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := exec.Command("go", "tool", "nm", "-size", signalbox).Output()
	if err != nil {
		t.Fatal(err)
	}
	var code, ofAdded float64
	for lines := bufio.NewScanner(bytes.NewReader(symbols)); lines.Scan(); {
		fields := strings.Fields(lines.Text()) // address, size, kind, name
		if len(fields) < 4 || fields[2] != "T" && fields[2] != "t" {
			continue
		}
		size, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		if code += size; added[packageOf(fields[3])] {
			ofAdded += size
		}
	}
	const mb = 1e6
	grows := float64(info.Size()) / mb * ofAdded / code
	t.Logf("FIGURES %.1f MB, of which %.1f MB are there for Kubernetes: %d packages with %.1f of %.1f MB of code",
		float64(info.Size())/mb, grows, len(added), ofAdded/mb, code/mb)
	if grows > 30 || ofAdded == 0 {
		t.Errorf("Kubernetes adds %.1f MB, want 30 MB at most and more than none", grows)
	}
}

// What a request passes links nothing of Kubernetes: the picker, the streams of proxies, and what reads bodies and
// pages.
func TestHotPathLinksNothing(t *testing.T) {
	const module = "github.com/signalbox-epp/signalbox"
	out, err := exec.Command("go", "list", "-deps", module, module+"/adapters/extproc", module+"/adapters/parsers",
		module+"/adapters/modelserver", module+"/adapters/telemetry", module+"/adapters/discovery").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(string(out)) {
		if ofKubernetes.MatchString(path) {
			t.Errorf("the way of a request links %s", path)
		}
	}
}

// A process that does not use Kubernetes only initializes the packages.
func TestFileModePaysNothing(t *testing.T) {
	added := addedByKubernetes(t)
	start := exec.Command(signalbox, "plugins", "queue-scorer")
	start.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var said bytes.Buffer
	start.Stdout, start.Stderr = &said, &said
	if err := start.Run(); err != nil {
		t.Fatalf("%v: %s", err, said.Bytes())
	}
	var ms float64
	var allocated, packages int
	for _, m := range initialized.FindAllSubmatch(said.Bytes(), -1) {
		if !added[string(m[1])] {
			continue
		}
		took, _ := strconv.ParseFloat(string(m[2]), 64) // the expression takes numbers alone
		size, _ := strconv.Atoi(string(m[3]))
		ms, allocated, packages = ms+took, allocated+size, packages+1
	}
	t.Logf("FIGURES %d packages are initialized in %.2f ms, and allocate %d KiB", packages, ms, allocated>>10)
	if packages == 0 || allocated > 4<<20 { // how long it takes, the machine says too
		t.Errorf("%d packages are initialized and allocate %d bytes; want some, and 4 MiB at most", packages, allocated)
	}
}

var initialized = regexp.MustCompile(`init (\S+) @\S+ ms, (\S+) ms clock, (\d+) bytes`)

// A pick costs the same whether the endpoints are pods or of a file. Rounds alternate, and of each the fewest seconds
// of a processor count, which those of other processes hardly change.
func TestPicksCostWhatThoseOfAFileDo(t *testing.T) {
	const pods, rounds, picks = 20, 3, 1500
	s := newSpace(t, shared)
	s.pool(8000)
	var want []string
	text := "endpoints:\n"
	for i := range pods {
		s.pod(crowdName(i), crowdIP(i), vllm, nil)
		want = append(want, fmt.Sprintf("%s-rank-0 %s:8000", crowdName(i), crowdIP(i)))
		text += fmt.Sprintf("- {name: %s-rank-0, address: %s, port: \"8000\"}\n", crowdName(i), crowdIP(i))
	}
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	both := []*picker{
		startPicker(t, s.inPool("--config-text", nothingScraped)...),
		startPicker(t, "--endpoints", file, "--config-text", nothingScraped),
	}
	least := []time.Duration{time.Hour, time.Hour}
	for _, p := range both {
		p.knows(want...)
	}
	for range rounds {
		for i, p := range both {
			least[i] = min(least[i], p.costOf(picks))
		}
	}
	each := slices.Clone(least)
	for i := range each {
		each[i] /= picks
	}
	t.Logf("FIGURES a pick takes %v of a core with pods, %v with a file of the same endpoints", each[0], each[1])
	if least[0] > least[1]*13/10 {
		t.Errorf("%d picks took %v of a core with pods, %v with a file: want 1.3 times at most", picks, least[0],
			least[1])
	}
}

// costOf returns how long a processor takes for so many picks.
func (p *picker) costOf(picks int) time.Duration {
	p.t.Helper()
	before := p.processorTime()
	for range picks {
		if to, status, text := p.pick(); status != http.StatusOK {
			p.t.Fatalf("picked %q, %d %s", to, status, text)
		}
	}
	return p.processorTime() - before
}
