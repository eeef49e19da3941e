package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	quoted   = regexp.MustCompile("`([^`\n]+)`")
	pathName = regexp.MustCompile(`^(actors|adapters|cmd|deploy|engine|messages|test)(/[\w.-]+)*$`)
	goName   = regexp.MustCompile(`^(?:[a-z]+\.)?([A-Z]\w+)$`)
	flagName = regexp.MustCompile(`^--([a-z-]+)`)
	declared = regexp.MustCompile(`(?m)^(?:type|func(?: \([^)]*\))?) ([A-Z]\w+)|^\t([A-Z]\w+)`)
)

// staleNames returns what a document names between backquotes and the tree at root does not have: paths, exported Go
// names, and flags. Other words between backquotes are free.
func staleNames(document, root, source string) []string {
	names := map[string]bool{}
	for _, m := range declared.FindAllStringSubmatch(source, -1) {
		names[m[1]+m[2]] = true
	}
	var stale []string
	for _, m := range quoted.FindAllStringSubmatch(document, -1) {
		known := true
		if name := goName.FindStringSubmatch(m[1]); name != nil {
			known = names[name[1]]
		} else if name := flagName.FindStringSubmatch(m[1]); name != nil {
			known = strings.Contains(source, `"`+name[1]+`"`)
		} else if pathName.MatchString(m[1]) {
			_, err := os.Stat(filepath.Join(root, m[1]))
			known = err == nil
		}
		if !known {
			stale = append(stale, m[1])
		}
	}
	return stale
}

// TestArchitectureNamesWhatIsThere holds the paths, Go names and flags of ARCHITECTURE.md against the tree.
func TestArchitectureNamesWhatIsThere(t *testing.T) {
	tree, err := house()
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, p := range tree.Packages {
		if p.Dir == "test" || strings.HasPrefix(p.Dir, "test/") {
			continue
		}
		for _, f := range p.Files {
			if f.Test {
				continue
			}
			data, err := os.ReadFile(filepath.Join(root, f.Path))
			if err != nil {
				t.Fatal(err)
			}
			source.Write(data)
		}
	}
	document, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range staleNames(string(document), root, source.String()) {
		t.Errorf("ARCHITECTURE.md names %s, which is not there; write what took its place", name)
	}

	planted := "`engine/gone`, `cycle.NoSuchType`, `NoSuchMessage` and `--no-such-flag`, but `engine/config` and `free`"
	if got := staleNames(planted, root, source.String()); len(got) != 4 {
		t.Errorf("of %s: %q are said to be missing, want four", planted, got)
	}
}
