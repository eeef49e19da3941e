package config

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// Convert returns a configuration file in version v1, with its comments. A file of v1 is returned as it is. What a file
// says is not checked: plugins that Load would refuse are converted too. The error is a *strictyaml.Error.
func Convert(data []byte) ([]byte, error) {
	root, problem := strictyaml.Parse(data)
	switch {
	case problem != nil:
	case root == nil:
		problem = &strictyaml.Problem{Text: "empty, there is nothing to convert"}
	case root.Kind != yaml.MappingNode:
		problem = &strictyaml.Problem{Line: root.Line, Text: "got " + strictyaml.Describe(root) + ", want a mapping"}
	default:
		problem = knownVersion(root)
	}
	if problem != nil {
		return nil, &strictyaml.Error{Problems: []strictyaml.Problem{*problem}}
	}
	if strictyaml.Find(root, "apiVersion").Value == v1 {
		return data, nil
	}
	var document yaml.Node // parse gives no node of the document, which has the comments around the mapping
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, &strictyaml.Error{Problems: []strictyaml.Problem{*strictyaml.SyntaxProblem(data, err)}}
	}
	if problem := convert(document.Content[0]); problem != nil {
		return nil, &strictyaml.Error{Problems: []strictyaml.Problem{*problem}}
	}
	return encode(&document)
}

func knownVersion(root *yaml.Node) *strictyaml.Problem {
	switch n := strictyaml.Find(root, "apiVersion"); {
	case n == nil:
		return &strictyaml.Problem{Line: 1, Path: "apiVersion", Text: "missing, want " + v1alpha1}
	case n.Value != v1 && n.Value != v1alpha1 && n.Value != oldGroup:
		return &strictyaml.Problem{Line: n.Line, Path: "apiVersion",
			Text: fmt.Sprintf("got %q, want %s", strictyaml.Clip(n.Value), v1alpha1)}
	}
	return nil
}

// moves pairs each key of v1alpha1 with where v1 has it. A value that v1 has already stays, as Load prefers it.
var moves = []struct{ from, to []string }{
	{[]string{"dataLayer", "discovery"}, []string{"dataLayer", "discovery", "endpoints"}},
	{[]string{"dataLayer", "peerDiscovery"}, []string{"dataLayer", "discovery", "peers"}},
	{[]string{"dataLayer", "crossReplicaSyncerPluginRef"}, []string{"dataLayer", "crossReplica", "syncerPluginRef"}},
	{[]string{"dataLayer", "crossReplicaSyncInterval"}, []string{"dataLayer", "crossReplica", "syncInterval"}},
	{[]string{"saturationDetector"}, []string{"flowControl", "saturationDetector"}},
	{[]string{"parser"}, []string{"requestHandler", "parsers"}},
}

// convert makes a mapping of v1alpha1 one of v1.
func convert(root *yaml.Node) *strictyaml.Problem {
	if problem := writtenOut(root); problem != nil {
		return problem
	}
	strictyaml.Find(root, "apiVersion").Value = v1
	for _, m := range moves {
		key, value := take(root, m.from)
		if value == nil {
			continue
		}
		if m.from[0] == "parser" {
			value = &yaml.Node{Kind: yaml.SequenceNode, Style: value.Style, Content: []*yaml.Node{value}}
		}
		put(root, m.to, key, value)
	}
	plugins := strictyaml.Find(root, "plugins")
	if plugins == nil {
		return nil
	}
	for _, p := range plugins.Content {
		rename(p)
	}
	return nil
}

// take removes a key and returns it with its value; nil = the mapping has it not.
func take(n *yaml.Node, path []string) (key, value *yaml.Node) {
	for _, name := range path[:len(path)-1] {
		if n = strictyaml.Find(n, name); n == nil {
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

// put enters a value, and the mappings on the way to it, unless something stands there. The key keeps its comments.
func put(n *yaml.Node, path []string, key, value *yaml.Node) {
	last := len(path) - 1
	for _, name := range path[:last] {
		next := strictyaml.Find(n, name)
		switch {
		case next == nil:
			next = &yaml.Node{Kind: yaml.MappingNode, Style: value.Style}
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name, Style: key.Style}, next)
		case next.Kind == yaml.ScalarNode: // null, says writtenOut
			*next = yaml.Node{Kind: yaml.MappingNode, Style: value.Style, HeadComment: next.HeadComment,
				LineComment: next.LineComment}
		}
		n = next
	}
	if there := strictyaml.Find(n, path[last]); there != nil && there.Kind == yaml.SequenceNode &&
		len(there.Content) == 0 {
		take(n, path[last:])
	} else if there != nil {
		return
	}
	key.Value = path[last]
	n.Content = append(n.Content, key, value)
}

// writtenOut says which of the mappings that keys move between is none, or is one by aliases or merge keys: what such a
// key stands for may stand elsewhere as well.
func writtenOut(root *yaml.Node) *strictyaml.Problem {
	for _, name := range []string{"", "dataLayer", "flowControl", "requestHandler"} {
		n := root
		if name != "" {
			n = strictyaml.Find(root, name)
		}
		switch {
		case n == nil || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		case n.Kind == yaml.AliasNode || strictyaml.Find(n, "<<") != nil:
			return &strictyaml.Problem{Line: n.Line, Path: name,
				Text: "has an alias or a merge key, which is not converted; write it out"}
		case n.Kind != yaml.MappingNode:
			return &strictyaml.Problem{Line: n.Line, Path: name, Text: "got " + strictyaml.Describe(n) +
				", want a mapping"}
		}
	}
	return nil
}

// rename gives a plugin the name that its type has by now. References keep finding it:
// without a name it had that of its type.
func rename(plugin *yaml.Node) {
	typ := strictyaml.Find(plugin, "type")
	if typ == nil || renamed[typ.Value] == "" {
		return
	}
	if strictyaml.Find(plugin, "name") == nil {
		plugin.Content = append(plugin.Content,
			&yaml.Node{Kind: yaml.ScalarNode, Value: "name", Style: plugin.Content[0].Style},
			&yaml.Node{Kind: yaml.ScalarNode, Value: typ.Value, Style: typ.Style})
	}
	typ.Value = renamed[typ.Value]
}

// encode prints a document with lists that are not indented, as files of Kubernetes mostly have them.
func encode(document *yaml.Node) ([]byte, error) {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	e.CompactSeqIndent()
	if err := e.Encode(document); err != nil {
		return nil, &strictyaml.Error{Problems: []strictyaml.Problem{{Text: err.Error()}}}
	}
	return out.Bytes(), nil
}
