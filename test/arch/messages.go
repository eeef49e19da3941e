package arch

import (
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"slices"
	"strings"
)

// vocabulary is the messages package as the rules see it.
type vocabulary struct {
	pkg      *Package
	sealed   []*sealedInterface
	messages []*message // in the order of files and declarations
	structs  []*message // every struct type, messages and values
	types    map[string]bool
}

// sealedInterface is what one actor receives.
type sealedInterface struct {
	name  string // CycleMsg
	file  string // path of its file
	decl  *ast.TypeSpec
	doc   *ast.CommentGroup
	iface *types.Interface
}

// receiver is the actor's name: cycle for CycleMsg.
func (s *sealedInterface) receiver() string {
	return strings.ToLower(strings.TrimSuffix(s.name, "Msg"))
}

// marker is the one method of a sealed interface: cycleMsg for CycleMsg.
func (s *sealedInterface) marker() string { return strings.ToLower(s.name[:1]) + s.name[1:] }

// message is a struct type of the messages package.
type message struct {
	name      string
	file      string
	spec      *ast.TypeSpec
	fields    *ast.StructType
	doc       *ast.CommentGroup
	typ       *types.Named
	in        []*sealedInterface // the sealed interfaces that it implements by value
	byPointer bool               // a marker method has a pointer receiver
	refusable bool
}

// vocabulary reads the messages package, or reports that there is none.
func (r *report) vocabulary(rule string) *vocabulary {
	p := r.tree.pkg("messages")
	if p == nil || p.Types == nil {
		r.on("messages", rule, "no package here; write every message in messages, one file for each receiving actor")
		return nil
	}
	v := &vocabulary{pkg: p, types: map[string]bool{}}
	for _, f := range p.Files {
		if f.Test {
			continue
		}
		for _, g := range declarations(f.AST, token.TYPE) {
			v.declare(f, g)
		}
	}
	for _, m := range v.structs {
		v.classify(m)
	}
	return v
}

func (v *vocabulary) declare(f *File, g *ast.GenDecl) {
	for _, spec := range g.Specs {
		ts := spec.(*ast.TypeSpec)
		obj := v.pkg.Types.Scope().Lookup(ts.Name.Name)
		if obj == nil {
			continue
		}
		v.types[ts.Name.Name] = true
		named, ok := obj.Type().(*types.Named)
		if !ok {
			continue
		}
		doc := typeDoc(g, ts)
		switch x := ts.Type.(type) {
		case *ast.InterfaceType:
			if strings.HasSuffix(ts.Name.Name, "Msg") {
				v.sealed = append(v.sealed, &sealedInterface{ts.Name.Name, f.Path, ts, doc,
					named.Underlying().(*types.Interface)})
			}
		case *ast.StructType:
			v.structs = append(v.structs, &message{name: ts.Name.Name, file: f.Path, spec: ts, fields: x, doc: doc,
				typ: named})
		}
	}
}

// classify finds the sealed interfaces of a struct. It is a message if it has one.
func (v *vocabulary) classify(m *message) {
	if m.typ.TypeParams().Len() > 0 {
		return
	}
	pointer := types.NewPointer(m.typ)
	for _, s := range v.sealed {
		switch {
		case s.iface.NumMethods() == 0: // the sealed check speaks of it
		case types.Implements(m.typ, s.iface):
			m.in = append(m.in, s)
		case types.Implements(pointer, s.iface):
			m.in, m.byPointer = append(m.in, s), true
		}
	}
	obj, _, _ := types.LookupFieldOrMethod(pointer, true, v.pkg.Types, "Refusable")
	_, m.refusable = obj.(*types.Func)
	if len(m.in) > 0 {
		v.messages = append(v.messages, m)
	}
}

// sealedIn returns the sealed interfaces declared in a file.
func (v *vocabulary) sealedIn(file string) []*sealedInterface {
	var list []*sealedInterface
	for _, s := range v.sealed {
		if s.file == file {
			list = append(list, s)
		}
	}
	return list
}

// carried lists the struct types that some message or value has as a field, however deep in lists and arrays.
func (v *vocabulary) carried() map[string]bool {
	seen := map[string]bool{}
	for _, m := range v.structs {
		ast.Inspect(m.fields, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && id.Name != m.name {
				seen[id.Name] = true
			}
			return true
		})
	}
	return seen
}

// contract returns the From, To, Reply and Reserved lines of the doc comment, each with its continuation lines joined.
func (m *message) contract() map[string]string {
	lines := map[string]string{}
	key := ""
	for line := range strings.Lines(m.doc.Text()) {
		if !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, " ") {
			key = ""
			continue
		}
		line = strings.TrimSpace(line)
		if k, rest, ok := strings.Cut(line, ":"); ok && (k == reservedKey || slices.Contains(contractKeys, k)) {
			key, line = k, rest
		}
		if key != "" {
			lines[key] = strings.TrimSpace(lines[key] + " " + strings.TrimSpace(line))
		}
	}
	return lines
}

var contractKeys = []string{"From", "To", "Reply"}

// reservedKey marks a message that nothing sends yet, and says until when.
const reservedKey = "Reserved"

func base(file string) string { return path.Base(file) }

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
		r.at(ts.Pos(), "message-doc", ts.Name.Name, "the doc comment of %s does not begin with its name; %s",
			ts.Name.Name, advice)
	}
}

var typeName = regexp.MustCompile(`\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+\b`)

// contract wants From, To and Reply, a receiver that is the actor of the sealed interface, and replies that exist.
func (r *report) contract(v *vocabulary, m *message) {
	lines := m.contract()
	for _, key := range contractKeys {
		if lines[key] == "" {
			r.at(m.spec.Pos(), "message-doc", m.name, "the doc comment of %s has no line `%s:`; write From (who "+
				"sends it), To (who, how often) and Reply (which, how many, by when, or none)", m.name, key)
		}
	}
	first, _, _ := strings.Cut(lines["To"]+" ", " ")
	if want := m.in[0].receiver(); lines["To"] != "" && strings.Trim(first, ",;") != want {
		r.at(m.spec.Pos(), "message-doc", m.name, "the To: line of %s begins with %q, but %s receives it; begin it "+
			"with %q", m.name, first, m.in[0].name, want)
	}
	for _, name := range typeName.FindAllString(lines["Reply"], -1) {
		if !v.types[name] && !hasField(m.typ, name) {
			r.at(m.spec.Pos(), "message-doc", m.name, "the Reply: line of %s names %s, which messages does not have; "+
				"name the message that is sent", m.name, name)
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
				r.at(id.Pos(), "field-doc", m.name+"."+id.Name, "%s.%s is a number without a unit; say beside it "+
					"what it counts, and what 0 and negative mean", m.name, id.Name)
			}
		}
	}
}

// bareNumber reports whether a field is of a predeclared number type or a duration. Named numbers say at their type
// what they are.
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

// checkReserved holds messages to be sent, or to say until when they are not: a message that only its receiver knows
// reads as one that arrives.
func checkReserved(t *Tree) []Violation {
	r := &report{tree: t}
	v := r.vocabulary("reserved")
	if v == nil {
		return r.list
	}
	sent := r.sent()
	for _, m := range v.messages {
		switch until := m.contract()[reservedKey]; {
		case until == "" && !sent[m.name]:
			r.at(m.spec.Pos(), "reserved", m.name,
				"nothing sends %s; send it, delete it, or say `Reserved:` and until when in its doc comment", m.name)
		case until != "" && sent[m.name]:
			r.at(m.spec.Pos(), "reserved", m.name, "%s is sent; take the line `Reserved:` out of its doc comment",
				m.name)
		}
	}
	return r.list
}

// sent lists the messages of which what serves makes a value. Tests and the lab do not count:
// they stand in for senders.
func (r *report) sent() map[string]bool {
	names := map[string]bool{}
	for _, p := range r.tree.Packages {
		if under(p.Dir, "test") || under(p.Dir, "adapters/lab") {
			continue
		}
		for _, f := range p.Files {
			if f.Test {
				continue
			}
			ast.Inspect(f.AST, func(n ast.Node) bool {
				if made, ok := n.(*ast.CompositeLit); ok {
					if name := messageName(made.Type, p.Dir, importNames(f)); name != "" {
						names[name] = true
					}
				}
				return true
			})
		}
	}
	return names
}

// messageName is the name that a type has in messages; "" if it is of another package.
func messageName(typ ast.Expr, dir string, imports map[string]string) string {
	switch typ := typ.(type) {
	case *ast.Ident:
		if dir == "messages" {
			return typ.Name
		}
	case *ast.SelectorExpr:
		if x, ok := typ.X.(*ast.Ident); ok && path.Base(imports[x.Name]) == "messages" {
			return typ.Sel.Name
		}
	}
	return ""
}
