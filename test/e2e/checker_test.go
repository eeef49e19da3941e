package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestCommandConformanceLeavesNothing: the checks of `signalbox conformance` against a picker that serves make up
// answers of its servers. After them nothing is in flight, no endpoint is ejected or degraded, no record is kept,
// and SIGTERM is not held up.
func TestCommandConformanceLeavesNothing(t *testing.T) {
	servers := simulated(t, 2, quick...)
	p := serve(t, servers, "--body-timeout", "4s")
	p.sampled(t, 2)
	args := []string{"conformance", "--addr", fmt.Sprintf("127.0.0.1:%d", p.grpcPort), "--endpoints",
		strings.Join(servers, ","), "--model", model,
		"--patience", "20s", "--body-wait", "15s", "--routes-all", "--mode", "FULL_DUPLEX_STREAMED", "--mode", "NONE",
		"--mode", "FULL_DUPLEX_STREAMED/NONE"}
	out, err := exec.Command(binary, args...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "pass    19 ") {
		t.Fatalf("%v\n%s", err, tail(string(out), 40))
	}
	for _, gauge := range append(gauges[:len(gauges):len(gauges)], "signalbox_streams", "signalbox_outlived_requests",
		"signalbox_prefix_placed_prompts") {
		eventually(t, time.Second, gauge+" at 0", func() bool { return p.metric(gauge) == 0 })
	}
	_, text := get(p.metrics + "/debug/endpoints?format=json")
	var pool struct {
		Endpoints []map[string]any `json:"endpoints"`
	}
	if err := json.Unmarshal([]byte(text), &pool); err != nil || len(pool.Endpoints) != 2 {
		t.Fatalf("%v in %s", err, text)
	}
	for _, e := range pool.Endpoints {
		if state, known := e["outlier"]; !known || state != nil {
			t.Errorf("endpoint %v: %v", e["address"], state)
		}
	}
	for series, n := range p.account(counted...) {
		if !strings.HasPrefix(series, "signalbox_refusals_total{") {
			t.Errorf("%s is %v, want 0", series, n)
		}
	}
	if _, text := get(p.metrics + "/debug/requests"); !strings.Contains(text, "no requests") {
		t.Errorf("records are kept:\n%s", tail(text, 5))
	}
	p.signal(t, syscall.SIGTERM)
	if code := p.exitCode(t, 3*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
