package arch

import (
	"go/ast"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// checkSealed holds the sealed interfaces, their messages and the switches over them against the house.
func checkSealed(t *Tree) []Violation {
	r := &report{tree: t}
	v := r.vocabulary("sealed")
	if v == nil {
		return r.list
	}
	if len(v.sealed) == 0 {
		r.on("messages", "sealed", "no sealed interface here; declare `type CycleMsg interface{ cycleMsg() }` for "+
			"each receiving actor")
	}
	for _, s := range v.sealed {
		r.sealedShape(v, s)
	}
	carried := v.carried()
	for _, m := range v.structs {
		r.membership(v, m, carried)
		r.messageName(m)
	}
	for _, p := range t.Packages {
		r.switches(v, p)
	}
	return r.list
}

// sumtype is what makes go-check-sumtype look at an interface; without it the tool is content with every switch.
const sumtype = "//sumtype:decl"

// sealedShape wants one sealed interface in a file, with one unexported marker method, declared as a sum type.
func (r *report) sealedShape(v *vocabulary, s *sealedInterface) {
	if first := v.sealedIn(s.file)[0]; first != s {
		r.at(s.decl.Pos(), "sealed", s.name, "%s shares its file with %s; one file for each receiving actor: move it "+
			"and its messages into a file of their own", s.name, first.name)
	}
	if s.doc == nil || !slices.ContainsFunc(s.doc.List, func(c *ast.Comment) bool { return c.Text == sumtype }) {
		r.at(s.decl.Pos(), "sealed", s.name, "switches over %s are not checked for missing messages; end its doc "+
			"comment with the line %s", s.name, sumtype)
	}
	ok := s.iface.NumMethods() == 1 && s.iface.NumEmbeddeds() == 0
	if ok {
		m := s.iface.Method(0)
		sig := m.Signature()
		ok = m.Name() == s.marker() && sig.Params().Len() == 0 && sig.Results().Len() == 0
	}
	if !ok {
		r.at(s.decl.Pos(), "sealed", s.name, "%s is not sealed; give it exactly one method, %s(), without arguments "+
			"and results", s.name, s.marker())
	}
}

// membership wants a struct to be a message of its file's actor, or a value that some message carries.
func (r *report) membership(v *vocabulary, m *message, carried map[string]bool) {
	here := v.sealedIn(m.file)
	if !m.spec.Name.IsExported() {
		return
	}
	if len(m.in) > 1 {
		r.at(m.spec.Pos(), "sealed", m.name, "%s goes to two actors (%s, %s); a message has one receiver: write one "+
			"message for each", m.name, m.in[0].name, m.in[1].name)
	}
	if m.byPointer {
		r.at(m.spec.Pos(), "sealed", m.name, "the marker method of %s has a pointer receiver; messages are passed by "+
			"value: use a value receiver", m.name)
	}
	switch {
	case len(m.in) > 0 && !slices.Contains(here, m.in[0]):
		r.at(m.spec.Pos(), "sealed", m.name, "%s is received by %s, which stands in %s; move it there", m.name,
			m.in[0].name, base(m.in[0].file))
	case len(m.in) == 0 && len(m.contract()) > 0:
		r.at(m.spec.Pos(), "sealed", m.name, "%s has a message's doc comment but no receiver; add its marker method",
			m.name)
	case len(m.in) == 0 && len(here) > 0 && !carried[m.name]:
		r.at(m.spec.Pos(), "sealed", m.name, "%s is no message and no message carries it; add its marker method, or "+
			"move it to who uses it", m.name)
	}
}

// messageName wants names that say what happened.
func (r *report) messageName(m *message) {
	if len(m.in) == 0 {
		return // values are named after what they are
	}
	for _, suffix := range []string{"Message", "Event", "Msg"} {
		if strings.HasSuffix(m.name, suffix) {
			r.at(m.spec.Pos(), "message-name", m.name,
				"%s ends in %s; say what happened, in the past tense, as RequestArrived does", m.name, suffix)
		}
	}
	if strings.HasPrefix(m.name, "Handle") {
		r.at(m.spec.Pos(), "message-name", m.name,
			"%s is named after what its receiver does; say what happened, in the past tense", m.name)
	}
}

// switches finds type switches over a sealed interface that have a default. Test files, which
// have no types here, may have one: they look for one message among many, and exhaustiveness proves nothing there.
func (r *report) switches(v *vocabulary, p *Package) {
	for _, f := range p.Files {
		if p.Info == nil {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			sw, ok := n.(*ast.TypeSwitchStmt)
			if !ok {
				return true
			}
			name := v.sealedName(p.Info.TypeOf(operand(sw)))
			for _, c := range sw.Body.List {
				if c.(*ast.CaseClause).List == nil && name != "" {
					r.at(c.Pos(), "switch-default", name, "default in a switch over %s; list every message, so that "+
						"a new one cannot be forgotten", name)
				}
			}
			return true
		})
	}
}

// operand is x of `switch y := x.(type)`.
func operand(sw *ast.TypeSwitchStmt) ast.Expr {
	var x ast.Expr
	switch a := sw.Assign.(type) {
	case *ast.AssignStmt:
		x = a.Rhs[0]
	case *ast.ExprStmt:
		x = a.X
	}
	if assert, ok := x.(*ast.TypeAssertExpr); ok {
		return assert.X
	}
	return x
}

// sealedName is the name of a sealed interface, or empty.
func (v *vocabulary) sealedName(t types.Type) string {
	if t == nil {
		return ""
	}
	n, ok := types.Unalias(t).(*types.Named)
	if !ok || n.Obj().Pkg() != v.pkg.Types {
		return ""
	}
	if slices.ContainsFunc(v.sealed, func(s *sealedInterface) bool { return s.name == n.Obj().Name() }) {
		return n.Obj().Name()
	}
	return ""
}

// beginWork lists the messages that begin work and may therefore be refused when an inbox is full. Queries come on top.
var beginWork = []string{"MemoryRequested", "RequestArrived", "WaitRequested"}

// isQuery finds how a doc comment says that its message is a query.
var isQuery = regexp.MustCompile(`(; a|\bis a)\s+query\b`)

// checkRefusable holds the messages with the method Refusable to be exactly those that begin work, and queries.
func checkRefusable(t *Tree) []Violation {
	r := &report{tree: t}
	v := r.vocabulary("refusable")
	if v == nil {
		return r.list
	}
	found := map[string]bool{}
	for _, m := range v.structs {
		begins := slices.Contains(beginWork, m.name)
		found[m.name] = len(m.in) > 0
		query := isQuery.MatchString(m.doc.Text())
		switch {
		case m.refusable && len(m.in) == 0:
			r.at(m.spec.Pos(), "refusable", m.name, "%s is no message, yet has the method Refusable; remove it", m.name)
		case m.refusable && !begins && !query:
			r.at(m.spec.Pos(), "refusable", m.name, "%s may be refused, but begins no work; what ends, answers or "+
				"gives back is always taken: remove Refusable, or end its first sentence with `; a query`", m.name)
		case !m.refusable && (begins || query) && len(m.in) > 0:
			r.at(m.spec.Pos(), "refusable", m.name, "%s begins work but cannot be refused; add `func (%s) "+
				"Refusable() {}`, so that a full inbox sheds it", m.name, m.name)
		case query && (m.contract()["Reply"] == "" || strings.HasPrefix(m.contract()["Reply"], "none")):
			r.at(m.spec.Pos(), "refusable", m.name, "%s is a query that nobody answers; name its answer in the "+
				"Reply: line", m.name)
		}
	}
	for _, name := range beginWork {
		if !found[name] {
			r.on("messages", "refusable", "no message %s, which begins work; write it, or take it off the list "+
				"beginWork in test/arch", name)
		}
	}
	return r.list
}
