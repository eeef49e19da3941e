package arch

import (
	"go/types"
	"strings"
)

// checkImmutable holds the fields of every struct of messages against what can be shared by many without a copy.
func checkImmutable(t *Tree) []Violation {
	r := &report{tree: t}
	v := r.vocabulary("immutable")
	if v == nil {
		return r.list
	}
	for _, m := range v.structs {
		if container(m.typ) != "" {
			continue // List and Map hold what nothing else reaches
		}
		fields := m.typ.Underlying().(*types.Struct)
		for f := range fields.Fields() {
			g := guard{own: v.pkg.Types, seen: map[types.Type]bool{}}
			if why := g.mutable(f.Type()); why != "" {
				r.at(f.Pos(), "immutable", m.name+"."+f.Name(),
					"%s.%s can change after it was sent: %s", m.name, f.Name(), why)
			}
		}
	}
	return r.list
}

// guard walks one field's type. Types seen once are not walked again, so that recursive values end.
type guard struct {
	own  *types.Package
	seen map[types.Type]bool
}

const allowed = "allowed are numbers, strings, bool, time.Time, time.Duration, arrays, other values of messages, " +
	"List, Map and Sink"

// mutable says why a value of the type may change, and what to use instead; empty = it cannot.
func (g guard) mutable(t types.Type) string {
	if g.seen[t] {
		return ""
	}
	g.seen[t] = true
	switch x := types.Unalias(t).(type) {
	case *types.Basic:
		if x.Kind() == types.UnsafePointer {
			return "an unsafe pointer; " + allowed
		}
		return ""
	case *types.TypeParam:
		return "" // the argument is looked at where the type is used
	case *types.Array:
		return g.mutable(x.Elem())
	case *types.Slice:
		return "a slice shares its array; use List[" + g.name(x.Elem()) + "]"
	case *types.Map:
		return "a map is shared; use Map[" + g.name(x.Key()) + ", " + g.name(x.Elem()) + "]"
	case *types.Pointer:
		return "a pointer is shared; carry the value, or an id that its owner knows"
	case *types.Signature:
		return "a func may capture anything; answer through a Sink"
	case *types.Chan:
		return "a channel blocks its sender; answer through a Sink"
	case *types.Interface:
		return "an interface hides what it holds; name the value's type, or use a Sink"
	case *types.Struct:
		return g.structure(x)
	case *types.Named:
		return g.named(x)
	}
	return "a " + t.String() + "; " + allowed
}

func (g guard) structure(s *types.Struct) string {
	for f := range s.Fields() {
		if why := g.mutable(f.Type()); why != "" {
			return "in it, " + f.Name() + ": " + why
		}
	}
	return ""
}

func (g guard) named(n *types.Named) string {
	obj := n.Obj()
	if obj.Pkg() == nil {
		return g.mutable(n.Underlying())
	}
	if obj.Pkg().Path() == "time" && (obj.Name() == "Time" || obj.Name() == "Duration") {
		return ""
	}
	if obj.Pkg() != g.own {
		return g.name(n) + " is not ours; copy the facts into a value of messages; " + allowed
	}
	switch container(n) {
	case "Sink", "Port":
		return ""
	case "List", "Map":
		for i := range n.TypeArgs().Len() {
			if why := g.mutable(n.TypeArgs().At(i)); why != "" {
				return "its elements: " + why
			}
		}
		return ""
	}
	return g.mutable(n.Underlying())
}

// container names the generic types of messages that the rule trusts.
func container(n *types.Named) string {
	if name := n.Obj().Name(); n.TypeParams().Len() > 0 && (name == "List" || name == "Map" || name == "Sink" ||
		name == "Port") {
		return name
	}
	return ""
}

// name is a type as one writes it inside messages.
func (g guard) name(t types.Type) string {
	return strings.TrimPrefix(types.TypeString(t, types.RelativeTo(g.own)), "*")
}
