package config

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

const differences = "../../deploy/docs/differences.md"

// deploy/docs/differences.md names everything that Load refuses in a file of the reference, with the reason.
func TestDifferencesNameEveryRefusedPlugin(t *testing.T) {
	text, err := os.ReadFile(differences)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), "- Plugin types that are refused by name:\n")
	got, after, end := strings.Cut(rest, "\n\n")
	if !ok || !end {
		t.Fatal("differences.md has no list of refused plugin types")
	}
	want := refusedTypes()
	if *update {
		text := before + "- Plugin types that are refused by name:\n" + want + "\n\n" + after
		if err := os.WriteFile(differences, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		got = want
	}
	if got != want {
		t.Errorf("differences.md is out of date; run: go generate ./engine/config\ngot\n%s\nwant\n%s", got, want)
	}
	for _, typ := range knownTypes() {
		if unsupported[typ] != "" || removed[typ] != "" {
			t.Errorf("%s is there and refused", typ)
		}
	}
}

// refusedTypes returns the list of the types that Load refuses, by the reason.
func refusedTypes() string {
	byReason := map[string][]string{}
	for _, typ := range slices.Sorted(maps.Keys(unsupported)) {
		byReason[unsupported[typ]] = append(byReason[unsupported[typ]], "`"+typ+"`")
	}
	var items []string
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		items = append(items, wrap("  - ", strings.ToUpper(reason[:1])+reason[1:]+": "+
			strings.Join(byReason[reason], ", ")+"."))
	}
	var gone []string
	for _, typ := range slices.Sorted(maps.Keys(removed)) {
		gone = append(gone, "`"+typ+"`: "+removed[typ])
	}
	return strings.Join(append(items, wrap("  - ", "The format no longer has "+strings.Join(gone, "; ")+".")), "\n")
}

// wrap breaks an item of a list before column 140.
func wrap(begin, text string) string {
	line, out := begin, ""
	for _, word := range strings.Fields(text) {
		if len(line)+len(word) >= 139 {
			out, line = out+strings.TrimRight(line, " ")+"\n", strings.Repeat(" ", len(begin))
		}
		line += word + " "
	}
	return out + strings.TrimRight(line, " ")
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
