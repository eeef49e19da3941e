// Package reference plays the cases that the reference's own tests have, in our words: real requests on real streams to
// the real binary, whose model servers are metrics pages with the values that a case wants.
//
// README.md lists every case by its number. A case is green, or differs for a reason that differences.md gives; a test
// holds each number to exactly one row there, and each row to what it points at.
package reference

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/signalbox-epp/signalbox/adapters/lab/conformance"
)

// folder is where the command is built.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "signalbox-reference-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	if err := os.RemoveAll(folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(folder, "signalbox")
	if out, err := exec.Command("go", "build", "-o", path, "../../cmd/signalbox").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building signalbox: %w\n%s", err, out)
	}
	return path, nil
})

// binary is the command, built once.
func binary(t *testing.T) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// pod is a model server that only has a metrics page, as a case wants it.
type pod struct {
	queue    int
	kv       float64
	adapters []string // in all of its LoRA slots, with requests
	role     string   // "" = no label
}

func (p pod) page() string {
	return fmt.Sprintf("vllm:num_requests_waiting %d\nvllm:num_requests_running 0\nvllm:kv_cache_usage_perc %g\n"+
		"vllm:lora_requests_info{max_lora=\"%d\",running_lora_adapters=%q,waiting_lora_adapters=\"\"} 1\n",
		p.queue, p.kv, max(1, len(p.adapters)), strings.Join(p.adapters, ","))
}

// picker is one `signalbox serve`, and the addresses of its pods.
type picker struct {
	command *exec.Cmd
	pods    []string
	client  extprocv3.ExternalProcessorClient
	metrics string // URL of its metrics page
	log     *output
}

// setup is what a case has before its first request.
type setup struct {
	config string
	flags  []string
	pods   []pod
	unread bool // no plugin of the configuration reads pages
}

// serve starts the command, and waits until it knows each pod, and has read its page.
func (s setup) serve(t *testing.T) *picker {
	t.Helper()
	p := &picker{log: &output{found: make(chan [2]string, 1), over: make(chan struct{})}}
	endpoints := "endpoints:\n"
	if len(s.pods) == 0 {
		endpoints = "endpoints: []\n"
	}
	for i, pod := range s.pods {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, pod.page()) // who hangs up reads no page
		}))
		t.Cleanup(server.Close)
		at := strings.TrimPrefix(server.URL, "http://")
		p.pods = append(p.pods, at)
		host, port, _ := strings.Cut(at, ":")
		labels := ""
		if pod.role != "" {
			labels = ", labels: {llm-d.ai/role: " + pod.role + "}"
		}
		endpoints += fmt.Sprintf("- {name: pod-%d, address: %q, port: %q%s}\n", i, host, port, labels)
	}
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	if err := os.WriteFile(file, []byte(endpoints), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start(t, append([]string{
		"serve", "--endpoints", file, "--config-text", s.config, "--grpc-port", "0", "--grpc-health-port", "0",
		"--metrics-port", "0", "--drain-delay", "0s", "--single-destination",
	}, s.flags...))
	p.eventually(t, "every pod is known", func() bool {
		page := p.page(t)
		return strings.Contains(page, fmt.Sprintf("\nsignalbox_pool_endpoints %d\n", len(s.pods))) &&
			(s.unread || strings.Count(page, "\nllm_d_epp_per_endpoint_queue_size{") == len(s.pods))
	})
	return p
}

func (p *picker) start(t *testing.T, args []string) {
	t.Helper()
	p.command = exec.Command(binary(t), args...)
	out, err := p.command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	go p.log.follow(out)
	t.Cleanup(func() {
		_ = p.command.Process.Signal(syscall.SIGTERM) // it may have ended
		<-p.log.over
		if err := p.command.Wait(); err != nil || strings.Contains(p.log.text(), "panicked") {
			t.Errorf("signalbox: %v\n%s", err, p.log.text())
		}
	})
	select {
	case at := <-p.log.found:
		p.metrics = "http://" + at[1] + "/metrics"
		p.connect(t, at[0])
		return
	case <-p.log.over:
	case <-time.After(20 * time.Second):
	}
	t.Fatalf("signalbox does not serve:\n%s", p.log.text())
}

func (p *picker) connect(t *testing.T, at string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	o := &conformance.Options{}
	hangUp, err := o.Connect(ctx, at, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hangUp)
	p.client = o.Client
}

func (p *picker) eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(10 * time.Second); !holds(); <-look.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s\n%s", what, p.log.text())
		}
	}
}

func (p *picker) page(t *testing.T) string {
	t.Helper()
	response, err := http.Get(p.metrics)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// metric sums the series of that name which have all of these labels, each as name="value".
func (p *picker) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	sum := 0.0
	for line := range strings.Lines(p.page(t)) {
		rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), name)
		if !ok || !strings.HasPrefix(rest, "{") && !strings.HasPrefix(rest, " ") {
			continue
		}
		for _, l := range labels {
			ok = ok && strings.Contains(rest, l)
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if ok {
			sum += value
		}
	}
	return sum
}

// serving is the line that a picker logs once it serves.
var serving = regexp.MustCompile(`"ext_proc":\s*\["(127\.0\.0\.1:\d+)".*"http":\s*\["(127\.0\.0\.1:\d+)"`)

// output is what a picker logs.
type output struct {
	found chan [2]string // where it serves ext_proc, and its metrics
	over  chan struct{}
	mu    sync.Mutex
	seen  strings.Builder
}

func (o *output) follow(out io.Reader) {
	defer close(o.over)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		o.mu.Lock()
		o.seen.WriteString(line)
		o.mu.Unlock()
		if m := serving.FindStringSubmatch(line); m != nil {
			o.found <- [2]string{m[1], m[2]}
		}
		if err != nil {
			return // it has ended
		}
	}
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen.String()
}

// command runs a command of the binary that ends by itself, and returns what it printed and its exit status.
func command(t *testing.T, args ...string) (string, int) {
	t.Helper()
	c := exec.Command(binary(t), args...)
	out, err := c.CombinedOutput()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}
