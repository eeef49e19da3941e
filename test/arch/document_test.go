package arch

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// sharedFields returns the structs of a package that have fields which several loops change or replace, with the names
// of those fields.
func sharedFields(files []*File) map[string][]string {
	shared := map[string][]string{}
	inspect := func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		body, ok := spec.Type.(*ast.StructType)
		if !ok {
			return false
		}
		for _, field := range body.Fields.List {
			for _, name := range field.Names {
				if changesInPlace(field.Type) {
					shared[spec.Name.Name] = append(shared[spec.Name.Name], name.Name)
				}
			}
		}
		return false
	}
	for _, f := range files {
		if !f.Test {
			ast.Inspect(f.AST, inspect)
		}
	}
	return shared
}

// changesInPlace reports whether a type is made of what sync/atomic or engine/cow have.
func changesInPlace(of ast.Expr) bool {
	found := false
	ast.Inspect(of, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			x, ok := s.X.(*ast.Ident)
			found = found || ok && (x.Name == "atomic" || x.Name == "cow")
		}
		return !found
	})
	return found
}

// TestArchitectureNamesWhatIsShared holds the table of what loops share against the tree: it names each struct that
// several loops change or replace. Of an endpoint, by which loops decide, it names each field.
func TestArchitectureNamesWhatIsShared(t *testing.T) {
	tree, err := house()
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(document), "\n## What is shared\n")
	section, _, _ = strings.Cut(section, "\n## ")
	named := func(name string) bool { return strings.Contains(section, "`"+name+"`") }
	seen := 0
	for _, p := range tree.Packages {
		if !slices.Contains(deciding, head(p.Dir, 1)) || under(p.Dir, "engine/runtime") {
			continue
		}
		for name, fields := range sharedFields(p.Files) {
			seen++
			if name = p.Types.Name() + "." + name; !named(name) {
				t.Errorf("loops share %s, which ARCHITECTURE.md does not name: who writes it, and who reads it?", name)
			}
			unnamed := slices.DeleteFunc(fields, named)
			if p.Dir == "engine/endpoints" && len(unnamed) > 0 {
				t.Errorf("loops share %v of %s, which ARCHITECTURE.md does not name", unnamed, name)
			}
		}
	}
	if seen < 10 {
		t.Errorf("%d shared structs were found, want some of each folder", seen)
	}
}
