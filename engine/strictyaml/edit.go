package strictyaml

import (
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Take removes a key and returns it with its value; nil = the mapping does not have it.
func Take(n *yaml.Node, path []string) (key, value *yaml.Node) {
	for _, name := range path[:len(path)-1] {
		if n = Find(n, name); n == nil {
			return nil, nil
		}
	}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == path[len(path)-1] {
			key, value = n.Content[i], n.Content[i+1]
			n.Content = append(n.Content[:i], n.Content[i+2:]...)
			return key, value
		}
	}
	return nil, nil
}

// DropEmpty removes a key whose value is a mapping or a list of nothing.
func DropEmpty(root *yaml.Node, name string) {
	n := Find(root, name)
	if n != nil && (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode) && len(n.Content) == 0 {
		Take(root, []string{name})
	}
}

// Put adds a value at a path, with the mappings on the way to it, unless the path has a value. The key keeps its
// comments.
func Put(n *yaml.Node, path []string, key, value *yaml.Node) {
	last := len(path) - 1
	for _, name := range path[:last] {
		next := Find(n, name)
		switch {
		case next == nil:
			next = &yaml.Node{Kind: yaml.MappingNode, Style: value.Style}
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name, Style: key.Style}, next)
		case next.Kind == yaml.ScalarNode: // null
			*next = yaml.Node{Kind: yaml.MappingNode, Style: value.Style, HeadComment: next.HeadComment,
				LineComment: next.LineComment}
		}
		n = next
	}
	if there := Find(n, path[last]); there != nil && there.Kind == yaml.SequenceNode &&
		len(there.Content) == 0 {
		Take(n, path[last:])
	} else if there != nil {
		return
	}
	key.Value = path[last]
	n.Content = append(n.Content, key, value)
}

// Aliased reports whether an alias stands for a value somewhere; a merge key has one.
func Aliased(n *yaml.Node) bool {
	return n.Kind == yaml.AliasNode || slices.ContainsFunc(n.Content, Aliased)
}

// Prune leaves out the keys that a section does not have.
func Prune(n *yaml.Node, t reflect.Type) {
	switch {
	case t == reflect.TypeFor[*yaml.Node]():
	case t.Kind() == reflect.Pointer:
		Prune(n, t.Elem())
	case t.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			Prune(item, t.Elem())
		}
	case t.Kind() == reflect.Struct && n.Kind == yaml.MappingNode:
		fields := FieldsOf(t)
		var kept []*yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			at := slices.IndexFunc(fields, func(f Field) bool { return f.Name == key.Value })
			if at >= 0 {
				Prune(value, fields[at].Type)
				kept = append(kept, key, value)
			}
		}
		n.Content = kept
	}
}
