package e2e

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// simulated starts count model servers in one process and returns their addresses.
func simulated(t *testing.T, count int, args ...string) []string {
	t.Helper()
	_, addresses := simulatedProcess(t, count, args...)
	return addresses
}

func simulatedProcess(t *testing.T, count int, args ...string) (*process, []string) {
	t.Helper()
	// The last of two equal flags wins, so a test may still choose its port and its rates.
	all := append([]string{"sim", "--count", strconv.Itoa(count), "--port", "0"}, args...)
	p := start(t, "sim", binary, all...)
	return p, p.linesAfter(t, "listening ", count, 10*time.Second)
}

// picker is one `signalbox serve` and the endpoints file that it watches.
type picker struct {
	*process
	binary   string // that runs; "" = the command
	file     string
	flags    []string
	grpcPort int
	// of gRPC health alone
	healthPort int
	metrics    string // URL of its metrics page's server
}

// serve starts Signalbox on free ports with an endpoints file for the addresses.
func serve(t *testing.T, addresses []string, flags ...string) *picker {
	t.Helper()
	return serveOn(t, "127.0.0.1", addresses, flags...)
}

// serveOn does, listening on that address alone.
func serveOn(t *testing.T, host string, addresses []string, flags ...string) *picker {
	t.Helper()
	p := newPicker(t, host, flags...)
	p.setEndpoints(t, addresses)
	p.startAgain(t)
	return p
}

// newPicker returns one that has not started.
func newPicker(t *testing.T, host string, flags ...string) *picker {
	t.Helper()
	ports := freePorts(t, 3)
	p := &picker{
		file: filepath.Join(t.TempDir(), "endpoints.yaml"), grpcPort: ports[0], healthPort: ports[1],
		metrics: "http://" + net.JoinHostPort(host, strconv.Itoa(ports[2])),
	}
	p.flags = append([]string{
		"serve", "--endpoints", p.file, "--bind", host, "--grpc-port", strconv.Itoa(ports[0]),
		"--grpc-health-port", strconv.Itoa(ports[1]), "--metrics-port", strconv.Itoa(ports[2]),
		"--drain-delay", "0s",
	}, flags...)
	return p
}

// startAgain starts the process with the same flags and waits until it answers.
func (p *picker) startAgain(t *testing.T) {
	t.Helper()
	p.process = start(t, "signalbox", cmp.Or(p.binary, binary), p.flags...)
	eventually(t, 10*time.Second, "signalbox serves its health page", func() bool {
		if p.gone() {
			t.Fatalf("signalbox ended: %v", p.result)
		}
		status, _ := get(p.metrics + "/healthz")
		return status == http.StatusOK
	})
}

func (p *picker) setEndpoints(t *testing.T, addresses []string) {
	t.Helper()
	writeFile(t, p.file, endpointsFile(t, addresses))
}

// label writes the endpoints file with a value of a label for each server.
func (p *picker) label(t *testing.T, addresses []string, label string, values ...string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("endpoints:\n")
	for i, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "- {name: server-%s, address: %q, port: %q, labels: {%s: %s}}\n", port, host, port, label,
			values[i])
	}
	writeFile(t, p.file, b.String())
}

// labelled waits until the picker knows n endpoints with a label.
func (p *picker) labelled(t *testing.T, n int, label string) {
	t.Helper()
	eventually(t, 5*time.Second, fmt.Sprintf("%d endpoints with the label %s", n, label), func() bool {
		_, page := get(p.metrics + "/debug/endpoints?format=json")
		return strings.Count(page, fmt.Sprintf("\n        %q: ", label)) == n
	})
}

// pooled waits until the picker knows exactly n endpoints.
func (p *picker) pooled(t *testing.T, n int) time.Duration {
	t.Helper()
	return eventually(t, 5*time.Second, fmt.Sprintf("%d endpoints in the pool", n), func() bool {
		return p.metric("signalbox_pool_endpoints") == float64(n)
	})
}

// sampled waits until the pool has n endpoints and a metrics page of each was read:
// until then picks pass the others by.
func (p *picker) sampled(t *testing.T, n int) {
	t.Helper()
	p.pooled(t, n)
	eventually(t, 5*time.Second, fmt.Sprintf("samples of %d endpoints", n), func() bool {
		_, page := get(p.metrics + "/metrics")
		return strings.Count(page, "\nllm_d_epp_per_endpoint_queue_size{") == n
	})
}

// picks is the number of requests that Signalbox itself gave a destination.
func (p *picker) picks() int {
	return int(p.metric("llm_d_epp_scheduler_attempts_total", `status="success"`))
}

// metric sums the series of that name whose line has all of the labels.
func (p *picker) metric(name string, labels ...string) float64 {
	return seriesSum(p.metrics+"/metrics", name, labels...)
}

// gauges count the requests in flight: the model requests, and the load at each endpoint.
var gauges = []string{"llm_d_epp_request_running", "signalbox_endpoint_inflight_requests"}

// inFlight waits until every gauge shows n. Streams are counted only at rest: a response may outlive its own.
func (p *picker) inFlight(t *testing.T, n int) {
	t.Helper()
	all := gauges
	if n == 0 {
		all = append(all[:len(all):len(all)], "signalbox_streams")
	}
	for _, gauge := range all {
		eventually(t, 10*time.Second, fmt.Sprintf("%s at %d", gauge, n), func() bool {
			status, page := get(p.metrics + "/metrics")
			return status == http.StatusOK && sumOf(page, gauge) == float64(n)
		})
	}
}

// idle waits until nothing is in flight any more.
func (p *picker) idle(t *testing.T) {
	t.Helper()
	p.inFlight(t, 0)
}

func endpointsFile(t *testing.T, addresses []string) string {
	t.Helper()
	if len(addresses) == 0 {
		return "endpoints: []\n"
	}
	var out strings.Builder
	out.WriteString("endpoints:\n")
	for _, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "- {name: server-%s, address: %q, port: %q}\n", port, host, port)
	}
	return out.String()
}

// served is how many requests a model server has finished, by its own count.
func served(address string) int {
	return int(seriesSum("http://"+address+"/metrics", "vllm:request_success_total"))
}

// seriesSum reads a metrics page. A page that cannot be read counts as zero: the caller waits or compares.
func seriesSum(url, name string, labels ...string) float64 {
	_, page := get(url)
	return sumOf(page, name, labels...)
}

func sumOf(page, name string, labels ...string) float64 {
	sum := 0.0
	lines := bufio.NewScanner(strings.NewReader(page))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || (!strings.HasPrefix(rest, "{") && !strings.HasPrefix(rest, " ")) || !containsAll(rest, labels) {
			continue
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err == nil {
			sum += value
		}
	}
	return sum
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// get returns status 0 if there was no answer.
func get(url string) (int, string) {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, ""
	}
	return response.StatusCode, string(body)
}
