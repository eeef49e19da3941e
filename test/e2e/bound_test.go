package e2e

import (
	"testing"
	"time"
)

// TestEnvoyBoundHoldsFromTheFirstRequest: in the light lane no more requests run at a server than maxConcurrency says,
// also while Envoy has sent no entry of its access log so far, because its configuration says that one will come.
func TestEnvoyBoundHoldsFromTheFirstRequest(t *testing.T) {
	seenElsewhere(t)
	t.Parallel() // it mostly waits
	const most, stories = 2, 12
	text := `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins: [{type: queue-scorer}, {type: concurrency-detector, parameters: {maxConcurrency: 2}}]
flowControl: {saturationDetector: {pluginRef: concurrency-detector}}
`
	s := startChanged(t, overrideHost, simulated(t, 2, leisurely...), []string{"--config-text", text}, share(t, 0))
	told := startStories(s.client, stories, 80) // of 1.6 s
	ended := make(chan []answer, 1)
	go func() { ended <- told() }()
	highest, looks := 0, 0
	for answers := []answer(nil); answers == nil; looks++ {
		select {
		case answers = <-ended:
			t.Logf("%d requests were at a server at most, in %d looks", highest, looks)
		case <-time.After(10 * time.Millisecond):
		}
		for _, a := range answers {
			if !a.whole() {
				t.Error(a.String())
			}
		}
		if highest = max(highest, s.busiest()); highest > most {
			t.Fatalf("%d requests are at a server, want %d at most", highest, most)
		}
	}
	if highest < most || looks < 10 {
		t.Errorf("%d requests at a server were the most in %d looks, which proves nothing", highest, looks)
	}
}

// busiest returns how many requests the server has that has the most.
func (s *stack) busiest() (most int) {
	for _, server := range s.servers {
		_, page := get("http://" + server + "/metrics")
		most = max(most, int(sumOf(page, "vllm:num_requests_running")+sumOf(page, "vllm:num_requests_waiting")))
	}
	return most
}
