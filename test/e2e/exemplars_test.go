package e2e

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A bucket of a duration leads to a request: in OpenMetrics it has an exemplar, whose id explains it.
func TestEnvoyBucketsLeadToRequests(t *testing.T) {
	s := startStack(t, simulated(t, 1, "--model", model))
	if a := s.client.chat(model, "hello", 4); a.status != http.StatusOK {
		t.Fatal(a.String())
	}
	exemplar := regexp.MustCompile(`_bucket\{.*\} \d+ # \{request_id="([^"]+)"\}`)
	for _, family := range []string{"llm_d_epp_request_duration_seconds", "llm_d_epp_request_ttft_seconds"} {
		var id string
		eventually(t, 10*time.Second, family+" has an exemplar", func() bool {
			for line := range strings.Lines(openMetrics(t, s.picker.metrics+"/metrics")) {
				if found := exemplar.FindStringSubmatch(line); found != nil && strings.HasPrefix(line, family) {
					id = found[1]
					return true
				}
			}
			return false
		})
		if status, text := get(s.picker.metrics + "/debug/requests/" + id); status != http.StatusOK ||
			!strings.Contains(text, id) {
			t.Errorf("%s: request %s is explained with %d %s", family, id, status, text)
		}
	}
	if _, plain := get(s.picker.metrics + "/metrics"); strings.Contains(plain, "request_id=") {
		t.Error("the text format has exemplars, which it does not know")
	}
}

// openMetrics reads a page of metrics as a scraper that knows exemplars does.
func openMetrics(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	page, err := io.ReadAll(answer.Body)
	if err != nil || !strings.HasSuffix(string(page), "# EOF\n") {
		t.Fatalf("%v; the page has %d bytes, and ends otherwise than OpenMetrics does", err, len(page))
	}
	return string(page)
}
