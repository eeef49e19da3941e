package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	statusField = "                  status: \"%RESPONSE_CODE%\"\n"
	scoresField = "                  scores: \"%DYNAMIC_METADATA(envoy.lb:x-gateway-destination-endpoint-scores)%\"\n"
)

// TestEnvoyTakesTheScoresOfEndpoints has Envoy's access log show the scores of a pick, those of the endpoint that was
// not picked too. The entries that Signalbox gets, which have them too, are read as ever.
func TestEnvoyTakesTheScoresOfEndpoints(t *testing.T) {
	servers := simulated(t, 3, quick...)
	both := map[string]float64{servers[0]: 1, servers[1]: 1}
	for name, c := range map[string]struct {
		flags []string
		want  map[string]float64
	}{"asked for": {[]string{"--emit-endpoint-scores"}, both}, "by default": {}} {
		t.Run(name, func(t *testing.T) {
			p := serve(t, servers, append(c.flags, "--single-destination", "--config-text", `
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {type: label-selector-filter, parameters: {matchLabels: {size: small}}}
- {type: queue-scorer}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: label-selector-filter}, {pluginRef: queue-scorer}]}
`)...)
			p.label(t, servers, "size", "small", "small", "large")
			p.labelled(t, len(servers), "size")
			p.sampled(t, len(servers))
			s := &stack{servers: servers, picker: p}
			withScores := replaced(t, statusField, statusField+scoresField)
			s.envoy = startEnvoy(t, overrideHost, p.grpcPort, servers, withScores)
			s.envoy.asksPicker(t)
			s.client = newClient(s.envoy.url)
			t.Cleanup(s.client.close)
			for i := range 3 {
				a := s.client.chat(model, fmt.Sprint("question ", i), 4)
				if !a.whole() {
					t.Fatal(a.String())
				}
				if diff := cmp.Diff(c.want, s.envoy.scores(t, a.name)); diff != "" {
					t.Errorf("scores in the access log, want -, got +:\n%s", diff)
				}
				p.idle(t) // the log's entry has come: the request is no load any more
			}
			p.idle(t)
			eventually(t, 10*time.Second, "the access log's entries name their requests", func() bool {
				return p.metric("signalbox_access_log_entries_total", `whose="ours"`) > 0
			})
		})
	}
}

// scores waits for the access log's line of a request, and returns the scores there; nil = there are none.
func (e *envoy) scores(t *testing.T, name string) map[string]float64 {
	t.Helper()
	e.attemptsOf(t, []string{name})
	for line := range strings.Lines(readFile(t, e.accessLog)) {
		var entry struct {
			Request string
			Scores  map[string]float64
		}
		if err := json.Unmarshal([]byte(line), &entry); err == nil && entry.Request == name {
			return entry.Scores
		}
	}
	t.Fatalf("no line of %s that can be read in\n%s", name, readFile(t, e.accessLog))
	return nil
}
