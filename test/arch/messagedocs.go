package arch

import (
	"go/ast"
	"go/types"
	"regexp"
	"strings"
)

// checkMessageDocs holds the doc comments of messages to be contracts, and number fields to have their units.
func checkMessageDocs(t *Tree) []Violation {
	r := &report{tree: t}
	v := r.vocabulary("message-doc")
	if v == nil {
		return r.list
	}
	for _, s := range v.sealed {
		r.beginsWithName(s.decl, s.doc, "say who receives these messages")
	}
	for _, m := range v.structs {
		if !m.spec.Name.IsExported() {
			continue
		}
		r.beginsWithName(m.spec, m.doc, "say what it means, for how long, in which unit")
		if len(m.in) > 0 {
			r.contract(v, m)
		}
		if m.typ.TypeParams().Len() == 0 {
			r.units(m)
		}
	}
	return r.list
}

func (r *report) beginsWithName(ts *ast.TypeSpec, doc *ast.CommentGroup, advice string) {
	if !strings.HasPrefix(doc.Text(), ts.Name.Name+" ") {
		r.at(ts.Pos(), "message-doc", ts.Name.Name, "the doc comment of %s does not begin with its name; %s", ts.Name.Name, advice)
	}
}

var typeName = regexp.MustCompile(`\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+\b`)

// contract wants From, To and Reply, a receiver that is the actor of the sealed interface, and replies that exist.
func (r *report) contract(v *vocabulary, m *message) {
	lines := m.contract()
	for _, key := range contractKeys {
		if lines[key] == "" {
			r.at(m.spec.Pos(), "message-doc", m.name, "the doc comment of %s has no line `%s:`; write From (who sends it), To (who, how often) and Reply (which, how many, by when, or none)", m.name, key)
		}
	}
	first, _, _ := strings.Cut(lines["To"]+" ", " ")
	if want := m.in[0].receiver(); lines["To"] != "" && strings.Trim(first, ",;") != want {
		r.at(m.spec.Pos(), "message-doc", m.name, "the To: line of %s begins with %q, but %s receives it; begin it with %q", m.name, first, m.in[0].name, want)
	}
	for _, name := range typeName.FindAllString(lines["Reply"], -1) {
		if !v.types[name] && !hasField(m.typ, name) {
			r.at(m.spec.Pos(), "message-doc", m.name, "the Reply: line of %s names %s, which messages does not have; name the message that is sent", m.name, name)
		}
	}
}

func hasField(n *types.Named, name string) bool {
	for f := range n.Underlying().(*types.Struct).Fields() {
		if f.Name() == name {
			return true
		}
	}
	return false
}

var unitName = regexp.MustCompile(`(Bytes|Tokens|Ratio|Seconds|Percent|Requests)$`)

// units wants a comment on every field that is a bare number or a duration. A name that ends in its unit is enough.
func (r *report) units(m *message) {
	for _, f := range m.fields.Fields.List {
		if f.Doc != nil || f.Comment != nil || !bareNumber(m.typ, f) {
			continue
		}
		for _, id := range f.Names {
			if !unitName.MatchString(id.Name) {
				r.at(id.Pos(), "field-doc", m.name+"."+id.Name, "%s.%s is a number without a unit; say beside it what it counts, and what 0 and negative mean", m.name, id.Name)
			}
		}
	}
}

// bareNumber says whether a field is of a predeclared number type or a duration. Named numbers say at their type what
// they are.
func bareNumber(n *types.Named, f *ast.Field) bool {
	if len(f.Names) == 0 {
		return false
	}
	for v := range n.Underlying().(*types.Struct).Fields() {
		if v.Name() != f.Names[0].Name {
			continue
		}
		if named, ok := types.Unalias(v.Type()).(*types.Named); ok {
			return named.Obj().Pkg().Path() == "time" && named.Obj().Name() == "Duration"
		}
		b, ok := types.Unalias(v.Type()).(*types.Basic)
		return ok && b.Info()&types.IsNumeric != 0
	}
	return false
}
