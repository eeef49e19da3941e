package arch

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

// use forbids names of one imported package in some folders.
type use struct {
	rule    string
	path    string         // import path, or a prefix of it that ends at a path element
	names   *regexp.Regexp // selectors that are forbidden
	folders []string       // where; engine/runtime is never among them
	tests   []string       // folders whose test files are held to it too
	advice  string
}

var (
	deciding  = []string{".", "messages", "engine", "actors"}
	mutexes   = regexp.MustCompile(`^(Mutex|RWMutex|Cond|NewCond|Locker|Map)$`)
	starters  = regexp.MustCompile(`^(AfterFunc)$`)
	clocks    = regexp.MustCompile(`^(Now|Since|Until|Sleep|After|Tick|NewTimer|NewTicker)$`)
	randoms   = regexp.MustCompile(`^(Int.*|Uint.*|N|Float.*|ExpFloat64|NormFloat64|Perm|Shuffle|Read|Seed)$`)
	noStart   = "goroutines start in engine/runtime, adapters, cmd and test; here, use a timer message or tell an actor"
	noMutex   = "state has one owner; let one actor own it, or publish an immutable value behind an atomic pointer"
	noClock   = "engine takes the time as an argument, actors read ctx.Now() and set timers that come back as messages"
	noRandom  = "the random source is passed in (the loop owns one), so that a seeded run can be replayed"
	noDot     = "a dot import hides what is used; import the package by its name"
	waitGroup = "WaitGroup"
)

var uses = []use{
	{"mutex", "sync", mutexes, deciding, []string{"actors"}, noMutex},
	{"goroutine", "time", starters, deciding, []string{"actors"}, noStart},
	{"clock", "time", clocks, deciding, nil, noClock},
	{"rand", "math/rand", randoms, deciding, nil, noRandom},
}

// checkUses finds goroutines, locks, clocks and global random sources where the house has none. It goes by import
// names, so that it sees files of every platform.
func checkUses(t *Tree) []Violation {
	r := &report{tree: t}
	for _, p := range t.Packages {
		if under(p.Dir, "engine/runtime") || !slices.Contains(append(deciding, "deploy"), head(p.Dir, 1)) {
			continue
		}
		for _, f := range p.Files {
			r.goroutines(p, f)
			r.forbiddenUses(p, f)
		}
	}
	return r.list
}

// goroutines finds go statements, and calls of Go on what the file declares as a WaitGroup.
func (r *report) goroutines(p *Package, f *File) {
	if f.Test && head(p.Dir, 1) != "actors" {
		return
	}
	groups := waitGroups(f.AST)
	ast.Inspect(f.AST, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			r.at(n.Pos(), "goroutine", "", "go statement in %s; %s", p.Dir, noStart)
		case *ast.CallExpr:
			sel, ok := n.Fun.(*ast.SelectorExpr)
			if ok && sel.Sel.Name == "Go" && groups[lastName(sel.X)] {
				r.at(n.Pos(), "goroutine", "", "WaitGroup.Go in %s; %s", p.Dir, noStart)
			}
		}
		return true
	})
}

// waitGroups lists the names of variables and fields declared with type sync.WaitGroup in a file.
func waitGroups(f *ast.File) map[string]bool {
	names := map[string]bool{}
	add := func(idents []*ast.Ident, typ ast.Expr) {
		if star, ok := typ.(*ast.StarExpr); ok {
			typ = star.X
		}
		if sel, ok := typ.(*ast.SelectorExpr); ok && sel.Sel.Name == waitGroup {
			for _, id := range idents {
				names[id.Name] = true
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			add(n.Names, n.Type)
		case *ast.ValueSpec:
			add(n.Names, n.Type)
		}
		return true
	})
	return names
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

// forbiddenUses finds names of packages that the folder may not use.
func (r *report) forbiddenUses(p *Package, f *File) {
	imports := r.importNames(f)
	ast.Inspect(f.AST, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		id, ok := sel.X.(*ast.Ident)
		if !ok || id.Obj != nil || imports[id.Name] == "" { // Obj is set for local names
			return true
		}
		for _, u := range uses {
			if u.holds(p.Dir, f.Test) && under(imports[id.Name], u.path) && u.names.MatchString(sel.Sel.Name) {
				r.at(sel.Pos(), u.rule, sel.Sel.Name, "%s.%s in %s; %s", id.Name, sel.Sel.Name, p.Dir, u.advice)
			}
		}
		return true
	})
}

func (u use) holds(dir string, test bool) bool {
	folders := u.folders
	if test {
		folders = u.tests
	}
	return slices.Contains(folders, head(dir, 1))
}

var version = regexp.MustCompile(`^v[0-9]+$`)

// importNames maps the names under which a file knows its imports to their paths.
func (r *report) importNames(f *File) map[string]string {
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
		if name == "." {
			r.at(spec.Pos(), "dot-import", target, "dot import of %s; %s", target, noDot)
			continue
		}
		names[name] = target
	}
	return names
}
