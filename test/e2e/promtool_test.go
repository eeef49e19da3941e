package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// disliked is the only finding that stays: the d in this prefix of the reference's names, on which dashboards depend,
// looks like days.
const (
	referencePrefix = "llm_d_epp_"
	disliked        = "metric names should not contain abbreviated units"
)

// TestEnvoyPageIsToPromtoolsLiking: the metrics page, after requests of every outcome, is read by Prometheus' own
// parser, and its names, types, units and help are as its linter wants them.
func TestEnvoyPageIsToPromtoolsLiking(t *testing.T) {
	promtool := findPromtool()
	if promtool == "" {
		if underCI() {
			t.Fatal("no promtool: $PROMTOOL, .prometheus/promtool or PATH must have it; .ci/run fetches it")
		}
		t.Log("LEFT OUT, nothing was checked: no promtool in $PROMTOOL, .prometheus/promtool or PATH; .ci/run " +
			"fetches it")
		return
	}
	s := startStack(t, simulated(t, 2, append(slices.Clip(quick), "--model", model)...))
	c := s.client
	l := startLoad(4, func(_, n int) answer {
		if n%5 == 0 {
			return c.chat("nothing-serves-this", "hello", 4)
		}
		if n%2 == 0 {
			return c.stream(t.Context(), "hello", 8)
		}
		return c.chat(model, "hello", 8)
	})
	if a := c.post("/v1/chat/completions", "{"); a.status != 400 {
		t.Error(a.String())
	}
	eventually(t, 20*time.Second, "200 requests", func() bool { return l.count() >= 200 })
	_, page := get(s.picker.metrics + "/metrics")
	l.stop()
	for _, family := range []string{"llm_d_epp_request_total", "llm_d_epp_request_error_total",
		"llm_d_epp_scheduler_attempts_total", "signalbox_refusals_total"} {
		if sumOf(page, family) == 0 {
			t.Errorf("%s is 0 under load", family)
		}
	}
	for line := range strings.Lines(checkMetrics(t, promtool, page)) {
		name, finding, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "" && (!strings.HasPrefix(name, referencePrefix) || finding != disliked) {
			t.Errorf("promtool finds: %s", line)
		}
	}
	if found := checkMetrics(t, promtool, strings.ReplaceAll(page, referencePrefix, "reference_")); found != "" {
		t.Errorf("promtool finds, with another prefix:\n%s", found)
	}
	t.Logf("%s: %d bytes, %d series", promtool, len(page), strings.Count(page, "\n")-2*strings.Count(page, "# TYPE "))
}

// TestEnvoyOpenMetricsPageIsRead: Prometheus' own parser of OpenMetrics reads the page with its exemplars. It wants a
// time of each sample, which a page that is scraped has not.
func TestEnvoyOpenMetricsPageIsRead(t *testing.T) {
	promtool := findPromtool()
	if promtool == "" {
		if underCI() {
			t.Fatal("no promtool; .ci/run fetches it")
		}
		t.Log("LEFT OUT: no promtool")
		return
	}
	s := startStack(t, simulated(t, 1, "--model", model))
	if a := s.client.chat(model, "hello", 4); a.status != 200 {
		t.Fatal(a.String())
	}
	page := ""
	eventually(t, 10*time.Second, "an exemplar", func() bool {
		page = openMetrics(t, s.picker.metrics+"/metrics")
		return strings.Contains(page, "} 1 # {request_id=")
	})
	if out, err := readOpenMetrics(t, promtool, page); err != nil {
		t.Errorf("promtool cannot read the page: %v\n%s", err, tail(out, 20))
	}
	exemplar := regexp.MustCompile(`# \{request_id="[^"]*"\} \S+`)
	if found := exemplar.FindString(page); found == "" {
		t.Error("no exemplar has a value")
	}
	if _, err := readOpenMetrics(t, promtool, exemplar.ReplaceAllString(page, "# {request_id=} 1")); err == nil {
		t.Error("promtool reads exemplars without a value of their label: it does not read exemplars")
	}
}

// readOpenMetrics has promtool take a page into a store of its own.
func readOpenMetrics(t *testing.T, promtool, page string) (string, error) {
	t.Helper()
	var timed strings.Builder
	sample := regexp.MustCompile(`^([^#{ ]+(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})? \S+)(.*)`)
	for line := range strings.Lines(page) {
		timed.WriteString(sample.ReplaceAllString(strings.TrimSuffix(line, "\n"), "$1 1$2") + "\n")
	}
	file := filepath.Join(t.TempDir(), "page.txt")
	if err := os.WriteFile(file, []byte(timed.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(promtool, "tsdb", "create-blocks-from", "openmetrics", file, t.TempDir()).CombinedOutput()
	return string(out), err
}

// checkMetrics gives what promtool finds. It ends with 3 if that is something, with 1 if it cannot read the page.
func checkMetrics(t *testing.T, promtool, page string) string {
	t.Helper()
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(page)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		return out.String()
	}
	if err != nil {
		t.Fatalf("%s check metrics: %v\n%s", promtool, err, tail(out.String(), 20))
	}
	return out.String()
}

// TestPromtoolFindsWhatIsWrong: a page with a fault of each kind does not pass.
func TestPromtoolFindsWhatIsWrong(t *testing.T) {
	promtool := findPromtool()
	if promtool == "" {
		t.Log("LEFT OUT: no promtool")
		return
	}
	if got := checkMetrics(t, promtool, "# HELP a_count b\n# TYPE a_count counter\na_count 1\n"); !strings.Contains(got,
		"_total") {
		t.Errorf("found %q, want that a counter's name lacks _total", got)
	}
}

// findPromtool looks at $PROMTOOL, then at what .ci/run fetched, then at PATH.
func findPromtool() string {
	if path := os.Getenv("PROMTOOL"); path != "" {
		return path
	}
	if path, err := filepath.Abs("../../.prometheus/promtool"); err == nil {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	path, err := exec.LookPath("promtool")
	if err != nil {
		return ""
	}
	return path
}
