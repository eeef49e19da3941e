package config

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// deploy/docs/differences.md names everything that Load refuses in a file of the reference.
func TestDifferencesNameEveryRefusedPlugin(t *testing.T) {
	text, err := os.ReadFile("../../deploy/docs/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	_, listed, ok := strings.Cut(string(text), "Plugin types that are refused by name:")
	listed, _, end := strings.Cut(listed, "\n\n")
	if !ok || !end {
		t.Fatal("differences.md has no list of refused plugin types")
	}
	for _, typ := range slices.Concat(unsupported, slices.Collect(maps.Keys(removed))) {
		if !strings.Contains(listed, "`"+typ+"`") {
			t.Errorf("differences.md does not name %s, which is refused", typ)
		}
	}
	for _, typ := range knownTypes() {
		if strings.Contains(listed, "`"+typ+"`") {
			t.Errorf("differences.md names %s as refused, but it is there", typ)
		}
	}
}
