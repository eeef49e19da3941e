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

// README's files are good, and nothing of them is without effect.
func TestReadmesFilesLoad(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	loaded := 0
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		file, _, _ := strings.Cut(block, "```")
		if !strings.Contains(file, "kind: EndpointPickerConfig") {
			continue
		}
		loaded++
		if c, err := Load([]byte(file), three); err != nil || len(c.Warnings) > 0 {
			t.Errorf("%v, %v in\n%s", err, c, file)
		}
	}
	if loaded < 2 {
		t.Errorf("README has %d configuration files, want at least 2", loaded)
	}
}
