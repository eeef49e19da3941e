package conformance

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/signalbox-epp/signalbox/adapters/lab/conformance"
)

// counts is where README says how large the table is.
var counts = regexp.MustCompile(`plays (\d+) checks against [^.]*? in (\d+) configurations`)

// lineOf is README's line for a configuration: one for each body mode by itself,
// others for what else a filter may be told.
func lineOf(m conformance.Modes) string {
	switch {
	case m.Observe:
		return "observed"
	case m.Request.SkipHeaders || m.Response.SkipHeaders:
		return "headers SKIP"
	case m.WithoutWaiting:
		return m.Name
	case m.Request.Body != m.Response.Body:
		return "directions of different modes"
	case m.Name != m.Request.Body.String():
		return "trailers SKIP, or SEND in NONE"
	}
	return m.Name
}

// compareReadme holds the score in README against the one that was reached.
func compareReadme(t *testing.T, scores map[string]conformance.Score) {
	t.Helper()
	file, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	all := conformance.AllModes()
	configurations, reached := map[string]int{"all": len(all)}, map[string]conformance.Score{"all": scores["all"]}
	for _, m := range all {
		line, score := lineOf(m), scores[m.Name]
		sum := reached[line]
		configurations[line]++
		reached[line] = conformance.Score{Passed: sum.Passed + score.Passed, Applicable: sum.Applicable +
			score.Applicable}
	}
	is := map[string]string{}
	for line, sum := range reached {
		is[line] = fmt.Sprintf("%d, %d / %d", configurations[line], sum.Passed, sum.Applicable)
	}
	if diff := cmp.Diff(is, scoresIn(string(file))); diff != "" {
		t.Errorf("README's table of scores, - is, + said:\n%s", diff)
	}
	size := []string{fmt.Sprint(len(conformance.Table())), fmt.Sprint(len(all))}
	if m := counts.FindStringSubmatch(strings.ReplaceAll(string(file), "\n", " ")); m == nil ||
		!slices.Equal(m[1:], size) {
		t.Errorf("README says %q, want %s checks in %s configurations", m, size[0], size[1])
	}
}

// scoresIn reads the table of scores: of each line how many configurations it has, and what passed.
func scoresIn(readme string) map[string]string {
	_, table, _ := strings.Cut(readme, "\n## Conformance\n")
	table, _, _ = strings.Cut(table, "\n## ")
	_, table, _ = strings.Cut(table, "\n|---|---|---|\n")
	said := map[string]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 {
			break
		}
		said[strings.TrimSpace(cells[0])] = strings.TrimSpace(cells[1]) + ", " + strings.TrimSpace(cells[2])
	}
	return said
}
