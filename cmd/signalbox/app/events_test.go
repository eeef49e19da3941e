//go:build !nokubernetes

package app

import (
	"net/http"
	"strings"
	"testing"
)

// With --events there are metrics of Events, and a cluster that refuses everything ends nothing.
func TestEventsAreCounted(t *testing.T) {
	for flag, want := range map[string]bool{"--events": true, "--events=false": false} {
		s := running(t, "--endpoints=", "--pool-name", "llama", "--kubeconfig", emptyCluster(t), flag,
			"--secure-serving=false", "--bind", "127.0.0.1", "--metrics-endpoint-auth=false")
		at := asked{url: "http://" + s.at("metrics-port")}
		const series = `signalbox_events_total{reason="NoReadyEndpoints",result="written"} 0`
		if status, text := at.get(t, "/metrics"); status != http.StatusOK || strings.Contains(text, series) != want {
			t.Errorf("%s: /metrics: %d, has %s: %v, want %v", flag, status, series, !want, want)
		}
	}
}
