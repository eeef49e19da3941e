package arch

import (
	"errors"
	"go/ast"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// part is a line of the import table: what of ours one folder may import.
type part struct {
	folder string
	own    []string // folders of ours it may import, beside its own unit
	unit   int      // path elements that make one unit, inside which imports are free; 0 = none
	advice string   // what to do instead of importing another part
}

// forTests are the packages that only tests may import, and what to do instead.
var forTests = map[string]string{
	"engine/schedule/scheduletest": "its endpoints are for tests; use engine/schedule itself",
	"engine/runtime/runtimetest":   "probes and fake contexts are for tests; use engine/runtime itself",
	lateness:                       "it watches the machine for tests; take times from engine/runtime itself",
	"adapters/secrets/secretstest": "its certificates are for tests; use adapters/secrets itself",
	terminals:                      "its terminals are for tests; take the terminal that the process has",
}

// terminals and lateness are the packages of ours that e2e may import: they know nothing of the binary either.
const (
	terminals = "adapters/telemetry/terminaltest"
	lateness  = "engine/runtime/lateness"
)

// lab is the other side of the wire. What serves must not lean on it, not even in its tests.
const (
	lab       = "adapters/lab"
	labAdvice = lab + " is the other side of the wire, for commands and tests of the whole; take what both need into " +
		"engine, or test against a fake"
)

// mayLab are the folders whose packages may import lab.
var mayLab = []string{lab, "cmd", "test"}

const noCmd = "nothing imports cmd or test, mains of other modules aside; move what is shared into adapters or engine"

// table is the import table of the house. The first line whose folder holds a package is its line.
// Packages of others are depguard's.
var table = []part{
	{folder: "messages", advice: "messages import the standard library only; move the value into messages, or the " +
		"behaviour out"},
	{folder: "engine", own: []string{"messages", "engine"},
		advice: "engine imports messages and engine; declare the interface that you need here, and let the caller " +
			"pass it in"},
	{folder: "actors", own: []string{"messages", "engine"}, unit: 2,
		advice: "actors import messages and engine; tell the other side a message through its Sink instead"},
	{folder: "adapters", own: []string{"messages", "engine", "adapters/files"}, unit: 2,
		advice: "adapters import messages, engine, adapters/files and their own sub-folders; declare a small " +
			"interface and let cmd wire the two"},
	{folder: ".", own: []string{"messages", "engine", "actors"},
		advice: "the root package imports messages, engine and actors; take what touches the world as a small " +
			"interface, and let cmd pass the adapter in"},
	{folder: "cmd", own: []string{".", "messages", "engine", "actors", "adapters", "deploy"}, unit: 2, advice: noCmd},
	{folder: "test/e2e", own: []string{terminals, lateness},
		advice: "e2e is a black box; start the binary and speak HTTP to it"},
	{folder: "test", own: []string{".", "messages", "engine", "actors", "adapters", "deploy"}, unit: 2, advice: noCmd},
	{folder: "deploy", advice: "deploy holds files and what embeds them; it imports the standard library only"},
}

// checkImports holds every import of a package of ours against the table.
func checkImports(t *Tree) []Violation {
	r := &report{tree: t}
	for _, p := range t.Packages {
		i := slices.IndexFunc(table, func(x part) bool { return under(p.Dir, x.folder) })
		if i < 0 {
			continue // the layout check speaks of it
		}
		for _, f := range p.Files {
			table[i].check(r, p.Dir, f)
		}
	}
	return r.list
}

func (x part) check(r *report, dir string, f *File) {
	for _, spec := range f.AST.Imports {
		target := importPath(spec)
		if advice := x.objection(r.tree, dir, f.Test, target); advice != "" {
			r.at(spec.Pos(), "import", target, "%s must not import %s; %s", dir, target, advice)
		}
	}
}

// importPath is the path of an import. The parser has accepted it, so it is a string.
func importPath(spec *ast.ImportSpec) string {
	s, _ := strconv.Unquote(spec.Path.Value)
	return s
}

// objection says what to do instead of an import, or nothing if it is allowed.
func (x part) objection(t *Tree, dir string, test bool, target string) string {
	own, ok := t.ownDir(target)
	if !ok {
		return ""
	}
	if advice := forTests[own]; advice != "" && !test && !under(dir, "test") {
		return advice
	}
	switch {
	case under(own, lab) && !slices.ContainsFunc(mayLab, func(folder string) bool { return under(dir, folder) }):
		return labAdvice
	case x.mayOwn(dir, own):
		return ""
	}
	return x.advice
}

func (x part) mayOwn(dir, own string) bool {
	if dir == own { // an external test package imports what it tests
		return true
	}
	if x.unit > 0 && head(dir, x.unit) == head(own, x.unit) {
		return true
	}
	return slices.ContainsFunc(x.own, func(folder string) bool { return under(own, folder) })
}

// head is the first n elements of a path.
func head(dir string, n int) string {
	parts := strings.SplitN(dir, "/", n+1)
	return strings.Join(parts[:min(n, len(parts))], "/")
}

var (
	plainWord  = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	emptyNames = []string{"util", "utils", "common", "types", "helper", "helpers", "mock", "mocks", "manager", "misc",
		"shared", "base"}
	topLevel     = []string{".", "actors", "messages", "engine", "adapters", "cmd", "deploy", "test"}
	deepestLevel = 3
)

// direct is a line of go.mod that requires a module for our own code, alone or in a block.
var direct = regexp.MustCompile(`^(?:require\s+|\t)([a-z0-9.]+\.[a-z]+/\S+)\s+v\S+$`)

// checkDependencies holds the requirements of go.mod against the table of ARCHITECTURE.md that gives their reasons.
func checkDependencies(t *Tree) []Violation {
	r := &report{tree: t}
	required, reasoned := map[string]bool{}, r.reasonedModules()
	for i, line := range r.document("go.mod") {
		m := direct.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name := shortModule(m[1])
		required[name] = true
		if _, ok := reasoned[name]; !ok {
			r.list = append(r.list, Violation{"dependency", "go.mod", i + 1, m[1],
				m[1] + " has no reason; add a line to the table of dependencies of ARCHITECTURE.md, or do without it"})
		}
	}
	for name, line := range reasoned {
		if !required[name] {
			r.list = append(r.list, Violation{"dependency", "ARCHITECTURE.md", line, name,
				"go.mod does not require " + name + "; take it out of the table"})
		}
	}
	return r.list
}

// document is a file of the tree by lines, without any if it is not there.
func (r *report) document(name string) []string {
	data, err := os.ReadFile(filepath.Join(r.tree.Root, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.on(name, "dependency", "%v: make it readable", err)
	}
	return strings.Split(string(data), "\n")
}

var majorVersion = regexp.MustCompile(`/v\d+$`)

// shortModule is a module path as the table has it: without github.com and major version.
func shortModule(module string) string {
	return majorVersion.ReplaceAllString(strings.TrimPrefix(module, "github.com/"), "")
}

// reasonedModules are the modules in the table of dependencies, each with its line. A cell "a/b, c" means a/b and a/c.
func (r *report) reasonedModules() map[string]int {
	all, within := map[string]int{}, false
	for i, row := range r.document("ARCHITECTURE.md") {
		if strings.HasPrefix(row, "#") {
			within = row == "## Dependencies"
		}
		cells := strings.Split(row, "|")
		if !within || len(cells) < 4 || !strings.Contains(cells[1], "/") || strings.TrimSpace(cells[2]) == "" {
			continue
		}
		folder := ""
		for name := range strings.SplitSeq(cells[1], ",") {
			if name = strings.TrimSpace(name); strings.Contains(name, "/") {
				folder = path.Dir(name)
			} else {
				name = path.Join(folder, name)
			}
			all[name] = i + 1
		}
	}
	return all
}

// checkLayout holds folders and package names against the layout of the house.
func checkLayout(t *Tree) []Violation {
	r := &report{tree: t}
	for _, p := range t.Packages {
		if !slices.Contains(topLevel, head(p.Dir, 1)) {
			r.on(p.Dir, "top-level", "Go files outside the fixed top level; move them into one of %s",
				strings.Join(topLevel[1:], ", "))
		}
		if n := strings.Count(p.Dir, "/") + 1; n > deepestLevel {
			r.on(p.Dir, "depth", "%d levels deep, limit %d; move the package up", n, deepestLevel)
		}
		name := strings.TrimSuffix(p.Files[0].AST.Name.Name, "_test")
		if slices.Contains(emptyNames, name) {
			r.on(p.Dir, "package-name", "package %s says nothing of what it holds; name it after its content", name)
		}
		base := path.Base(p.Dir)
		if p.Dir == "." {
			base = path.Base(t.Module)
		}
		if !plainWord.MatchString(name) || (name != base && name != "main") {
			r.on(p.Dir, "package-name", "package %s in folder %s; the package is named like its folder, one "+
				"lower-case word", name, base)
		}
		r.packageDoc(p, name)
	}
	return r.list
}

// packageDoc wants one package comment, in one file; where all files are tests, in one of these.
func (r *report) packageDoc(p *Package, name string) {
	var docs, files int
	onlyTests := !slices.ContainsFunc(p.Files, func(f *File) bool { return !f.Test })
	want := "Package " + name + " "
	if name == "main" {
		want = "Command " + path.Base(p.Dir) + " "
	}
	for _, f := range p.Files {
		if f.Test && !onlyTests {
			continue
		}
		files++
		if f.AST.Doc == nil {
			continue
		}
		docs++
		if !strings.HasPrefix(f.AST.Doc.Text(), want) {
			r.at(f.AST.Doc.Pos(), "package-doc", name, "the package comment does not begin with %q; say what the "+
				"package owns and what it never does", want+"...")
		}
	}
	if docs != 1 {
		r.on(p.Dir, "package-doc", "%d package comments in %d files, want one; say what the package owns and what it "+
			"never does", docs, files)
	}
}
