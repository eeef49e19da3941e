package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestEnvoyThatReachesNoServer: what Envoy answers by itself is not said to be served by anyone.
func TestEnvoyThatReachesNoServer(t *testing.T) {
	seenElsewhere(t)
	for name, bootstrap := range bootstraps {
		t.Run(name, func(t *testing.T) {
			sims, servers := simulatedProcess(t, 2, quick...)
			s := startStackWith(t, bootstrap, servers)
			if a := s.client.chat("no-such-model", "hello", 2); a.status != http.StatusNotFound {
				t.Fatal(a.String())
			}
			s.explains(t, "404", "HTTP 404, an error response", "served by     127.0.0.1:")
			sims.stop()
			if a := s.client.chat(model, "hello", 2); a.status != http.StatusServiceUnavailable {
				t.Fatal(a.String())
			}
			if envoyVersion == "1.36" { // it shows its own answers to no ext_proc stream
				return
			}
			s.explains(t, "503", "HTTP 503 of Envoy itself", "first token   -", "served by     -\n")
			p := s.picker
			eventually(t, 5*time.Second, "log lines of both requests", func() bool {
				return containsAll(p.log.text(), []string{"request answered with an error",
					"request answered by Envoy itself"})
			})
		})
	}
}

// explains waits for a request with this outcome and looks at its page.
func (s *stack) explains(t *testing.T, outcome string, want ...string) {
	t.Helper()
	id := ""
	eventually(t, 5*time.Second, "a record with "+outcome, func() bool {
		_, list := get(s.picker.metrics + "/debug/requests?format=text")
		for line := range strings.Lines(list) {
			if fields := strings.Fields(line); len(fields) > 4 && fields[4] == outcome {
				id = fields[0]
			}
		}
		return id != ""
	})
	if _, page := get(s.picker.metrics + "/debug/requests/" + id + "?format=text"); !containsAll(page, want) {
		t.Errorf("want all of %q in\n%s", want, page)
	}
}
