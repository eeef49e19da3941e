package extproc

import (
	"strings"
	"testing"
	"time"
)

// How long a request waits at most, and how soon its client wants the first token. What is no time says nothing, and in
// modes in which the proxy gives up by itself a request waits less.
func TestClientLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		sent           *ask
		patience, ttft time.Duration
	}{
		"none": {qH(last), 0, 0},
		"both": {
			qH(last, "x-llm-d-inference-ttl: 1m30s", "x-llm-d-slo-ttft-ms: 250"), 90 * time.Second,
			250 * time.Millisecond,
		},
		"older name": {qH(last, "x-slo-ttft-ms: 1.5"), 0, 1500 * time.Microsecond},
		"the first":  {qH(last, "x-llm-d-inference-ttl: 2s", "x-llm-d-inference-ttl: 1s"), 2 * time.Second, 0},
		"no times":   {qH(last, "x-llm-d-inference-ttl: -1s", "x-llm-d-slo-ttft-ms: soon"), 0, 0},
		"no unit":    {qH(last, "x-llm-d-inference-ttl: 1000000000"), 0, 0},
		"STREAMED":   {withModes(qH(last, "x-llm-d-inference-ttl: 1m"), streamed, fds), 8 * time.Second, 0},
		"BUFFERED":   {withModes(qH(last), whole, fds), 8 * time.Second, 0},
		"GRPC":       {withModes(qH(last), framed, fds), 8 * time.Second, 0},
		"sooner":     {withModes(qH(last, "x-llm-d-inference-ttl: 1s"), none, fds), time.Second, 0},
		"too long":   {qH(last, "x-llm-d-inference-ttl: "+strings.Repeat("0", 40)+"1s"), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			converse(t, r.serve(t), tc.sent)
			got := r.only(t).arrived
			if got.Patience != tc.patience || got.Request.TTFT != tc.ttft {
				t.Errorf("patience %v, first token within %v; want %v, %v", got.Patience, got.Request.TTFT, tc.patience,
					tc.ttft)
			}
		})
	}
}

// Plugins are shown what the client says that it is and wants.
func TestRequestSaysWhatItsClientWants(t *testing.T) {
	r := newRig(setup{})
	converse(t, r.serve(t), qH(last, "x-llm-d-inference-objective: batch\x80", "x-llm-d-inference-fairness-id: tenant",
		"x-slo-ttft-ms: 250", "x-slo-tpot-ms: 20.5", "user-agent: curl/8"))
	got := r.only(t).arrived.Request
	if got.Objective != "batch\uFFFD" || got.Fairness != "tenant" || got.TTFT != 250*time.Millisecond ||
		got.TPOT != 20500*time.Microsecond || got.Agent != "curl/8" {
		t.Errorf("got %+v", got)
	}
}
