package e2e

import (
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// vllmPage is a page of a real vLLM, which the scanner's own tests read too.
const vllmPage = "../../adapters/modelserver/testdata/vllm-0.32.0/metrics_idle_after_requests.txt"

// pageServers answer every request with the same page, as busy model servers do.
func pageServers(t *testing.T, count int, page []byte) []string {
	t.Helper()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Header().Set("Content-Length", strconv.Itoa(len(page)))
		_, _ = w.Write(page)
	})}
	addresses := make([]string, 0, count)
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = server.Serve(l) }()
		addresses = append(addresses, l.Addr().String())
	}
	t.Cleanup(func() { server.Close() })
	return addresses
}

// TestCommandScrapesAreFew: 100 endpoints with requests in flight at each of them are scraped often enough, and no
// oftener than once a second each. What that costs is printed; make bench has a bar
// for endpoints without load.
func TestCommandScrapesAreFew(t *testing.T) {
	seenElsewhere(t)
	const endpoints = 100
	page, err := os.ReadFile(vllmPage)
	if err != nil {
		t.Fatal(err)
	}
	servers := pageServers(t, endpoints, page)
	quiet := costOf(t, servers, "--refresh-metrics-interval", "1h")
	scraping := costOf(t, servers)
	cores := scraping.cores - quiet.cores
	t.Logf("%d endpoints, pages of %d bytes, %.0f a second: %.2f %% of a core, %.0f µs a page; beside %.2f %% "+
		"without scrapes",
		endpoints, len(page), scraping.pages, 100*cores, 1e6*cores/scraping.pages, 100*quiet.cores)
	if quiet.pages > 1 {
		t.Errorf("%.0f pages a second with an interval of an hour", quiet.pages)
	}
	if scraping.pages < endpoints/2 || scraping.pages > endpoints {
		t.Errorf("%.0f pages a second, want one from each of %d endpoints every second or two", scraping.pages,
			endpoints)
	}
}

// cost is what a Signalbox takes with four requests in flight at each endpoint and none that comes or goes.
type cost struct {
	cores float64 // CPU seconds a second
	pages float64 // read, a second
}

func costOf(t *testing.T, servers []string, flags ...string) cost {
	t.Helper()
	const window = 4 * time.Second
	p := serve(t, servers, append(flags, "--zap-log-level", "error")...)
	p.pooled(t, len(servers))
	conn := dial(t, p.grpcPort)
	for range 4 * len(servers) {
		picked(t, conn)
	}
	p.inFlight(t, 4*len(servers))
	if _, page := get(p.metrics + "/metrics"); strings.Contains(page, "signalbox_endpoint_inflight_requests 0\n") {
		t.Fatal("an endpoint without load")
	}
	read := func() (cpu, pages float64, at time.Time) {
		_, text := get(p.metrics + "/metrics")
		return sumOf(text, "process_cpu_seconds_total"), sumOf(text, "signalbox_fetches_total", `outcome="answered"`),
			time.Now()
	}
	cpu, pages, began := read()
	eventually(t, 2*window, "the window is over", func() bool { return time.Since(began) >= window })
	cpuThen, pagesThen, ended := read()
	seconds := ended.Sub(began).Seconds()
	p.kill() // it would wait for the streams
	return cost{cores: (cpuThen - cpu) / seconds, pages: (pagesThen - pages) / seconds}
}
