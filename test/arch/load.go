package arch

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Tree is the source of one module, parsed once and shared by all checks.
type Tree struct {
	Root     string // folder of go.mod
	Module   string // its module path
	Fset     *token.FileSet
	Packages []*Package // ordered by folder
}

// Package is one folder with Go files, test files included.
type Package struct {
	Dir   string // below the root, with slashes; "." is the root
	Files []*File
	Types *types.Package // of the files that are no tests; incomplete where third-party types are involved
	Info  *types.Info
}

// File is one parsed Go file.
type File struct {
	Path      string // below the root, with slashes
	AST       *ast.File
	Test      bool // name ends in _test.go
	Generated bool // carries the "Code generated" line
}

var moduleLine = regexp.MustCompile(`(?m)^module\s+(\S+)`)

// Load parses every Go file of the module at root, without testdata, hidden folders and modules nested in it, and
// type-checks what is ours. Third-party packages are not loaded.
func Load(root string) (*Tree, error) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("no module: %w", err)
	}
	m := moduleLine.FindSubmatch(mod)
	if m == nil {
		return nil, fmt.Errorf("%s/go.mod: no module line", root)
	}
	t := &Tree{Root: root, Module: string(m[1]), Fset: token.NewFileSet()}
	if err := filepath.WalkDir(root, t.visit); err != nil {
		return nil, err
	}
	return t, t.typeCheck()
}

// visit parses one file, or decides whether a folder belongs to the module.
func (t *Tree) visit(name string, d fs.DirEntry, err error) error {
	if err != nil || name == t.Root {
		return err
	}
	if d.IsDir() {
		return t.enter(name, d.Name())
	}
	if !strings.HasSuffix(name, ".go") || strings.HasPrefix(d.Name(), "_") || strings.HasPrefix(d.Name(), ".") {
		return nil
	}
	src, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed while we walked
	} else if err != nil {
		return err
	}
	parsed, err := parser.ParseFile(t.Fset, name, src, parser.ParseComments)
	if err != nil {
		return err
	}
	f := &File{Path: t.rel(name), AST: parsed,
		Test:      strings.HasSuffix(name, "_test.go"),
		Generated: ast.IsGenerated(parsed)}
	dir := path.Dir(f.Path)
	p := t.pkg(dir) // a walk leaves a folder for its sub-folders and comes back
	if p == nil {
		p = &Package{Dir: dir}
		t.Packages = append(t.Packages, p)
	}
	p.Files = append(p.Files, f)
	return nil
}

func (t *Tree) enter(name, base string) error {
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "vendor" {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

// rel turns a file name into a path below the root.
func (t *Tree) rel(name string) string {
	r, err := filepath.Rel(t.Root, name)
	if err != nil {
		return filepath.ToSlash(name)
	}
	return filepath.ToSlash(r)
}

// pkg returns the package in a folder, or nil.
func (t *Tree) pkg(dir string) *Package {
	i := slices.IndexFunc(t.Packages, func(p *Package) bool { return p.Dir == dir })
	if i < 0 {
		return nil
	}
	return t.Packages[i]
}

// ownDir returns the folder of an import path of this module.
func (t *Tree) ownDir(importPath string) (string, bool) {
	if importPath == t.Module {
		return ".", true
	}
	return strings.CutPrefix(importPath, t.Module+"/")
}

// code returns the files that are no tests and fit this platform.
func (p *Package) code(root string) []*ast.File {
	var list []*ast.File
	for _, f := range p.Files {
		fits, err := build.Default.MatchFile(filepath.Join(root, p.Dir), path.Base(f.Path))
		if !f.Test && err == nil && fits {
			list = append(list, f.AST)
		}
	}
	return list
}

// under reports whether dir is the folder or lies below it.
func under(dir, folder string) bool {
	return dir == folder || strings.HasPrefix(dir, folder+"/")
}
