package arch

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// errNotLoaded stands for a package whose types no rule needs: third-party ones,
// and stdlib outside messages and engine.
var errNotLoaded = errors.New("not loaded")

// typeCheck gives every package its types, as far as they follow from our own source and from what messages and engine
// import of the standard library. Errors are left to the compiler, which sees the same files.
func (t *Tree) typeCheck() error {
	std, err := stdExports.find(t.stdImports())
	if err != nil {
		return err
	}
	c := &checker{tree: t}
	c.std = importer.ForCompiler(t.Fset, "gc", func(path string) (io.ReadCloser, error) {
		name, ok := std[path]
		if !ok {
			return nil, errNotLoaded
		}
		return os.Open(name)
	})
	c.known = func(path string) bool { return std[path] != "" }
	for _, p := range t.Packages {
		c.check(p)
	}
	return nil
}

// stdImports lists what the code of messages and engine imports of the standard library.
func (t *Tree) stdImports() []string {
	var specs []*ast.ImportSpec
	for _, p := range t.Packages {
		if !under(p.Dir, "messages") && !under(p.Dir, "engine") {
			continue
		}
		for _, f := range p.code(t.Root) {
			specs = append(specs, f.Imports...)
		}
	}
	var list []string
	for _, spec := range specs {
		if path := importPath(spec); isStd(path) && path != "unsafe" && path != "C" {
			list = append(list, path)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// isStd reports whether an import path belongs to the standard library: its first element has no dot.
func isStd(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// checker type-checks packages of one tree on demand; it is the importer of their imports.
type checker struct {
	tree  *Tree
	std   types.Importer
	known func(path string) bool
}

func (c *checker) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if dir, ok := c.tree.ownDir(path); ok {
		p := c.tree.pkg(dir)
		if p == nil {
			return nil, errNotLoaded
		}
		c.check(p)
		return p.Types, nil
	}
	if !c.known(path) {
		return nil, errNotLoaded
	}
	return c.std.Import(path)
}

func (c *checker) check(p *Package) {
	if p.Types != nil || p.Info != nil {
		return // done, or importing itself: the compiler says so
	}
	p.Info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{},
		Uses: map[*ast.Ident]types.Object{}}
	files := p.code(c.tree.Root)
	conf := types.Config{Importer: c, FakeImportC: true, Error: func(error) {}}
	path := c.tree.Module + "/" + p.Dir
	p.Types, _ = conf.Check(path, c.tree.Fset, files, p.Info) // incomplete types are enough for the rules
}

// exports remembers where the export data of standard packages is, for all trees of the process.
type exports struct {
	mu    sync.Mutex
	files map[string]string
}

var stdExports = exports{files: map[string]string{}}

// find asks the go command once for all packages that are not known yet.
func (e *exports) find(paths []string) (map[string]string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var missing []string
	for _, p := range paths {
		if e.files[p] == "" {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return e.files, nil
	}
	out, err := exec.Command("go", append([]string{"list", "-export", "-f", "{{.ImportPath}} {{.Export}}"},
		missing...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list -export %v: %w", missing, err)
	}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		e.files[path] = file
	}
	return e.files, nil
}
