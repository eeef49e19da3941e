package arch

import (
	"go/ast"
	"go/build"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// deciding are the folders in which actors and what they use decide.
var deciding = []string{".", "messages", "engine", "actors"}

const (
	noStart     = "goroutines start in engine/runtime, adapters, cmd and test; set a timer message or tell an actor"
	noPlatform  = "linters see the files of one platform; what differs between platforms belongs to adapters"
	noException = "what decides has no exceptions from depguard and forbidigo; change the code"
)

// checkUses finds what would start a goroutine where the house starts none, and what would escape the linters that
// find locks, clocks, global random sources and packages of others.
func checkUses(t *Tree) []Violation {
	r := &report{tree: t}
	for _, p := range t.Packages {
		if !slices.Contains(append(deciding, "deploy"), head(p.Dir, 1)) {
			continue
		}
		for _, f := range p.Files {
			if !under(p.Dir, "engine/runtime") && (!f.Test || head(p.Dir, 1) == "actors") {
				r.goroutines(p, f)
			}
			r.unseen(p, f)
		}
	}
	return r.list
}

// goroutines finds go statements. Calls that start goroutines are forbidigo's.
func (r *report) goroutines(p *Package, f *File) {
	ast.Inspect(f.AST, func(n ast.Node) bool {
		if n, ok := n.(*ast.GoStmt); ok {
			r.at(n.Pos(), "goroutine", "", "go statement in %s; %s", p.Dir, noStart)
		}
		return true
	})
}

// exception is a comment that switches depguard or forbidigo off, alone, among others, or with all.
var exception = regexp.MustCompile(`^//\s*nolint(:[\w,\s-]*\b(all|depguard|forbidigo)\b|\s|$)`)

// unseen finds files that the linters skip, and comments that switch them off.
func (r *report) unseen(p *Package, f *File) {
	fits, err := build.Default.MatchFile(filepath.Join(r.tree.Root, p.Dir), path.Base(f.Path))
	if !f.Test && (err != nil || !fits) {
		r.on(f.Path, "platform", "this platform does not build it; %s", noPlatform)
	}
	for _, group := range f.AST.Comments {
		for _, c := range group.List {
			if exception.MatchString(c.Text) {
				r.at(c.Pos(), "exception", "", "%s; %s", c.Text, noException)
			}
		}
	}
}

// lastName is the name at the end of a chain of selectors.
func lastName(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

var version = regexp.MustCompile(`^v[0-9]+$`)

// importNames maps the names under which a file knows its imports to their paths.
func importNames(f *File) map[string]string {
	names := map[string]string{}
	for _, spec := range f.AST.Imports {
		target := importPath(spec)
		name := path.Base(target)
		if version.MatchString(name) {
			name = path.Base(strings.TrimSuffix(target, "/"+name))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = target
	}
	return names
}
