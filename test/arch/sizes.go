package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// Limits are the sizes that code may grow to, beside those that the linters hold.
//
// A function's lines are those between its braces; in test files the lines of literals that span lines (tables of
// cases) do not count. Nesting counts if, for, range, switch, select and type switch inside one another; `else if`
// stays on the level of its if, a case adds none, and a function literal begins anew, as a named function would.
// A struct's fields count by name, and an embedded struct is one. Three kinds of struct have no limit: one whose fields
// are all exported, such as settings, dependencies, a view of a page or a message, which holds nothing together that
// its maker does not see; what messages carry; and the rigs of tests, which lay a scene out flat.
// Generated files have no limits.
type Limits struct {
	FunctionLines, Nesting, StructFields int
}

// HouseLimits are the limits of this house.
var HouseLimits = Limits{FunctionLines: 50, Nesting: 3, StructFields: 12}

// SizeRules are the rules about sizes.
var SizeRules = []string{"function-lines", "nesting", "struct-fields"}

// Exceptable are the rules that allow.txt may except, and no others: the sizes, and a further level of folders.
var Exceptable = append([]string{"depth"}, SizeRules...)

func (l Limits) check(t *Tree) []Violation {
	r := &report{tree: t}
	for _, p := range t.Packages {
		for _, f := range p.Files {
			if !f.Generated {
				l.file(r, f)
			}
		}
	}
	return r.list
}

func (l Limits) file(r *report, f *File) {
	if !f.Test && !under(f.Path, "test") && !under(f.Path, "messages") {
		l.structs(r, f)
	}
	for _, d := range f.AST.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		name := symbol(fn)
		if n := r.lines(fn.Body, f.Test); n > l.FunctionLines {
			r.at(fn.Pos(), "function-lines", name, "%s has %d lines, limit %d; give its steps names of their own", name,
				n, l.FunctionLines)
		}
		w := &nesting{limit: l.Nesting}
		w.walk(fn.Body, 0)
		if w.at != token.NoPos {
			r.at(w.at, "nesting", name, "%s nests deeper than %d levels; return early, or give the inner part a "+
				"function", name, l.Nesting)
		}
	}
}

// structs counts the fields of every named struct, wherever in the file it is declared.
func (l Limits) structs(r *report, f *File) {
	ast.Inspect(f.AST, func(x ast.Node) bool {
		spec, ok := x.(*ast.TypeSpec)
		if !ok {
			return true
		}
		s, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		if n, value := fields(s); n > l.StructFields && !value {
			name := spec.Name.Name
			r.at(spec.Pos(), "struct-fields", name, "%s has %d fields, limit %d; give those that hold together a "+
				"struct with its invariant", name, n, l.StructFields)
		}
		return true
	})
}

// fields counts those of a struct, and reports whether it is a value: all of them are exported.
func fields(s *ast.StructType) (n int, value bool) {
	value = true
	for _, f := range s.Fields.List {
		n += max(1, len(f.Names))
		for _, name := range f.Names {
			value = value && name.IsExported()
		}
		if len(f.Names) == 0 {
			value = value && ast.IsExported(baseName(f.Type))
		}
	}
	return n, value
}

// symbol names a function as allow.txt does: Name, or Type.Name.
func symbol(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	return baseName(fn.Recv.List[0].Type) + "." + fn.Name.Name
}

// baseName is the name of a receiver's or an embedded type, without pointer, package and type arguments.
func baseName(typ ast.Expr) string {
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	switch x := typ.(type) {
	case *ast.IndexExpr:
		typ = x.X
	case *ast.IndexListExpr:
		typ = x.X
	}
	return lastName(typ)
}

// lines counts the lines between the braces, for tests without those of literals inside.
func (r *report) lines(body *ast.BlockStmt, test bool) int {
	line := func(p token.Pos) int { return r.tree.Fset.Position(p).Line }
	n := max(0, line(body.Rbrace)-line(body.Lbrace)-1)
	if !test {
		return n
	}
	ast.Inspect(body, func(x ast.Node) bool {
		lit, ok := x.(*ast.CompositeLit)
		if !ok {
			return true
		}
		n -= line(lit.Rbrace) - line(lit.Lbrace)
		return false
	})
	return n
}

// nesting finds the first statement below the limit.
type nesting struct {
	limit int
	at    token.Pos
}

func (w *nesting) walk(n ast.Node, depth int) {
	ast.Inspect(n, func(x ast.Node) bool {
		switch s := x.(type) {
		case *ast.FuncLit:
			w.walk(s.Body, 0)
			return false
		case *ast.IfStmt:
			w.branches(s, depth+1)
			return false
		case *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
			w.enter(s, depth+1)
			for _, c := range children(s) {
				w.walk(c, depth+1)
			}
			return false
		}
		return true
	})
}

// branches walks an if and its else branches on one level.
func (w *nesting) branches(s *ast.IfStmt, depth int) {
	w.enter(s, depth)
	if s.Init != nil {
		w.walk(s.Init, depth)
	}
	w.walk(s.Cond, depth)
	w.walk(s.Body, depth)
	switch e := s.Else.(type) {
	case *ast.IfStmt:
		w.branches(e, depth)
	case *ast.BlockStmt:
		w.walk(e, depth)
	}
}

func (w *nesting) enter(s ast.Node, depth int) {
	if depth > w.limit && w.at == token.NoPos {
		w.at = s.Pos()
	}
}

// children lists the direct children of a node.
func children(n ast.Node) []ast.Node {
	var list []ast.Node
	ast.Inspect(n, func(x ast.Node) bool {
		if x != nil && x != n {
			list = append(list, x)
		}
		return x == n
	})
	return list
}

// Allow takes off the violations that the allow-list excepts. Each line of it is `rule path[:symbol] reason`. A line
// that is malformed, names a rule that has no exceptions or excepts nothing is a violation itself,
// so that the list shrinks.
func Allow(list []Violation, file, text string) []Violation {
	var rest []Violation
	used := map[int]bool{}
	lines := strings.Split(text, "\n")
	for _, v := range list {
		i := slices.IndexFunc(lines, func(line string) bool { return excepts(line, v) })
		if i < 0 {
			rest = append(rest, v)
		}
		used[i] = true
	}
	for i, line := range lines {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") || used[i] {
			continue
		}
		text := "excepts nothing any more; remove the line"
		if len(words) < 3 {
			text = "want `rule path[:symbol] reason`; write the reason"
		} else if !slices.Contains(Exceptable, words[0]) {
			text = fmt.Sprintf("rule %s has no exceptions, only %s do; change the code", words[0],
				strings.Join(Exceptable, ", "))
		}
		rest = append(rest, Violation{"allow", file, i + 1, "", text})
	}
	return rest
}

// excepts reports whether a line of the allow-list names this violation.
func excepts(line string, v Violation) bool {
	words := strings.Fields(line)
	if len(words) < 3 || words[0] != v.Rule || !slices.Contains(Exceptable, v.Rule) {
		return false
	}
	where, symbol, _ := strings.Cut(words[1], ":")
	return where == v.Path && symbol == v.Symbol
}
