package arch

import (
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"strings"
)

// families lists the plugin folders. Each must exist once there is an engine.
var families = []string{
	"engine/filters", "engine/scorers", "engine/pickers", "engine/profiles", "engine/deciders", "engine/admitters",
	"engine/detectors", "engine/fairness", "engine/orderings", "engine/queues",
	"engine/ceilings", "engine/evictions", "engine/displacements", "engine/points",
}

// checkPlugins holds each plugin family against the house: one table, one file for each plugin, no init.
func checkPlugins(t *Tree) []Violation {
	r := &report{tree: t}
	for _, dir := range families {
		p := t.pkg(dir)
		if p == nil || p.Types == nil {
			r.on(dir, "plugin-table", "no package here; write %s/%s.go with the table Types", dir, path.Base(dir))
			continue
		}
		f := &family{report: r, Package: p, plugins: map[string]bool{}}
		f.noInit()
		f.readTable()
		f.files()
	}
	return r.list
}

// family is one plugin folder under examination.
type family struct {
	*report
	*Package
	contract *types.Interface // what the constructors of the table return; nil = unknown
	plugins  map[string]bool  // types that the table constructs
	lit      *ast.CompositeLit
}

func (f *family) noInit() {
	for _, file := range f.Files {
		for _, d := range file.AST.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && !file.Test && fn.Recv == nil && fn.Name.Name == "init" {
				f.at(fn.Pos(), "plugin-init", "init", "init() in a plugin family; a plugin is known by its line in "+
					"Types alone: remove it")
			}
		}
	}
}

// readTable finds `var Types = map[string]...{...}` in the family's own file, and the plugins that it constructs.
func (f *family) readTable() {
	file := f.Dir + "/" + path.Base(f.Dir) + ".go"
	for _, x := range f.Files {
		if x.Path == file {
			f.findTable(x.AST)
		}
	}
	if f.lit == nil {
		f.on(file, "plugin-table", "no `var Types = map[string]func() ...{...}` here; list every plugin there by its "+
			"configuration name, so that a duplicate does not compile")
		return
	}
	if m, ok := f.Info.TypeOf(f.lit).(*types.Map); ok {
		f.contract = result(m.Elem())
	}
	for _, e := range f.lit.Elts {
		kv := e.(*ast.KeyValueExpr)
		if lit, ok := kv.Key.(*ast.BasicLit); !ok || lit.Kind != token.STRING {
			f.at(kv.Pos(), "plugin-table", "Types", "a key of Types is no string literal; write the configuration "+
				"name out, so that it can be searched for")
		}
		if names := f.constructed(kv.Value); len(names) == 0 {
			f.at(kv.Pos(), "plugin-table", "Types", "an entry of Types shows no plugin of this family; construct it "+
				"in place, with its defaults visible")
		} else {
			f.plugins[names[0]] = true
		}
	}
	f.untouched()
}

func (f *family) findTable(file *ast.File) {
	for _, g := range declarations(file, token.VAR) {
		for _, spec := range g.Specs {
			vs := spec.(*ast.ValueSpec)
			if vs.Names[0].Name == "Types" && len(vs.Values) == 1 {
				f.lit = mapLiteral(vs.Values[0])
			}
		}
	}
}

// mapLiteral is an expression that is a map literal, or nil.
func mapLiteral(x ast.Expr) *ast.CompositeLit {
	lit, ok := x.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	if _, ok := lit.Type.(*ast.MapType); !ok {
		return nil
	}
	return lit
}

// declarations lists the declarations of one kind in a file.
func declarations(file *ast.File, kind token.Token) []*ast.GenDecl {
	var list []*ast.GenDecl
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == kind {
			list = append(list, g)
		}
	}
	return list
}

// untouched wants nothing to be added to the table at run time.
func (f *family) untouched() {
	for _, file := range f.Files {
		ast.Inspect(file.AST, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok {
				return true
			}
			for _, lhs := range a.Lhs {
				if ix, ok := lhs.(*ast.IndexExpr); ok && lastName(ix.X) == "Types" {
					f.at(a.Pos(), "plugin-table", "Types", "Types is changed at run time; write the line into the "+
						"literal")
				}
			}
			return true
		})
	}
}

// constructed lists the struct types of this package that an expression makes, outermost first.
func (f *family) constructed(x ast.Expr) []string {
	var names []string
	add := func(typ ast.Expr) {
		if id, ok := typ.(*ast.Ident); ok && f.Types.Scope().Lookup(id.Name) != nil {
			names = append(names, id.Name)
		}
	}
	ast.Inspect(x, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			add(n.Type)
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "new" && len(n.Args) == 1 {
				add(n.Args[0])
			}
		}
		return true
	})
	return names
}

// result is the interface that a constructor type returns, or nil.
func result(t types.Type) *types.Interface {
	sig, ok := t.Underlying().(*types.Signature)
	if !ok || sig.Results().Len() == 0 {
		return nil
	}
	i, _ := sig.Results().At(0).Type().Underlying().(*types.Interface)
	return i
}

// files holds every plugin's type against its file name, its doc comment and the table.
func (f *family) files() {
	for _, file := range f.Files {
		if file.Test {
			continue
		}
		for _, g := range declarations(file.AST, token.TYPE) {
			for _, spec := range g.Specs {
				ts := spec.(*ast.TypeSpec)
				f.plugin(file, ts, typeDoc(g, ts))
			}
		}
	}
}

// typeDoc is the doc comment of a type, which stands at the declaration if it has no group.
func typeDoc(g *ast.GenDecl, ts *ast.TypeSpec) *ast.CommentGroup {
	if ts.Doc == nil {
		return g.Doc
	}
	return ts.Doc
}

func (f *family) plugin(file *File, ts *ast.TypeSpec, doc *ast.CommentGroup) {
	name := ts.Name.Name
	if !f.plugins[name] {
		if f.fulfils(name) {
			f.at(ts.Pos(), "plugin-table", name, "%s fulfils the family's contract but is not in Types; add its "+
				"line, or unexport it", name)
		}
		return
	}
	if want := snake(name) + ".go"; base(file.Path) != want {
		f.at(ts.Pos(), "plugin-file", name, "plugin %s stands in %s; one file for each plugin, named after it: move "+
			"it to %s", name, base(file.Path), want)
	}
	if !strings.HasPrefix(doc.Text(), name+" ") {
		f.at(ts.Pos(), "plugin-doc", name, "the doc comment of %s does not begin with its name; it is the user "+
			"documentation: say what the plugin prefers, its range and its parameters", name)
	}
}

// fulfils reports whether an exported type that is no interface implements what the table's constructors return.
func (f *family) fulfils(name string) bool {
	obj := f.Types.Scope().Lookup(name)
	if obj == nil || !obj.Exported() || f.contract == nil || f.contract.NumMethods() == 0 ||
		types.IsInterface(obj.Type()) {
		return false
	}
	return types.Implements(obj.Type(), f.contract) || types.Implements(types.NewPointer(obj.Type()), f.contract)
}

var (
	wordEnd  = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	shortEnd = regexp.MustCompile(`([A-Z]+)([A-Z][a-z])`)
)

// snake is a Go name in snake case: kv_cache_utilization for KVCacheUtilization. LoRA counts as one word.
func snake(name string) string {
	name = strings.ReplaceAll(name, "LoRA", "Lora")
	name = shortEnd.ReplaceAllString(name, "${1}_${2}")
	return strings.ToLower(wordEnd.ReplaceAllString(name, "${1}_${2}"))
}
