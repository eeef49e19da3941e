package conformance

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/adapters/proxy/conformance"
)

// others is the column of README for all modes that have none of their own.
const others = "mixed lanes, SKIP, observed"

// counts is where README says how large the table is.
var counts = regexp.MustCompile(`plays (\d+) checks against [^.]*? in (\d+) configurations`)

// compareReadme holds the score in README against the one that was reached.
func compareReadme(t *testing.T, scores map[string]conformance.Score) {
	t.Helper()
	file, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	modes, said := scoresIn(string(file))
	if !slices.Contains(modes, "all") || !slices.Contains(modes, others) {
		t.Fatalf("README's table of scores has the columns %q", modes)
	}
	rest := scores["all"]
	for _, mode := range modes {
		if mode != "all" && mode != others {
			rest.Passed, rest.Applicable = rest.Passed-scores[mode].Passed, rest.Applicable-scores[mode].Applicable
		}
	}
	for i, mode := range modes {
		is := scores[mode]
		if mode == others {
			is = rest
		}
		if got := fmt.Sprintf("%d / %d", is.Passed, is.Applicable); said[i] != got {
			t.Errorf("README says %s of %s, which is %s", said[i], mode, got)
		}
	}
	size := []string{fmt.Sprint(len(conformance.Table())), fmt.Sprint(len(conformance.AllModes()))}
	if m := counts.FindStringSubmatch(strings.ReplaceAll(string(file), "\n", " ")); m == nil || !slices.Equal(m[1:], size) {
		t.Errorf("README says %q, want %s checks in %s configurations", m, size[0], size[1])
	}
}

// scoresIn gives the columns of the table of scores, and what stands in them.
func scoresIn(readme string) (modes, said []string) {
	_, table, _ := strings.Cut(readme, "\n## Conformance\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case strings.HasPrefix(line, "## ") || said != nil:
			return modes, said
		case !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|-"):
		case modes == nil:
			modes = cells
		case len(cells) == len(modes):
			said = cells
		}
	}
	return nil, nil
}
