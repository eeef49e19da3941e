package config

import (
	"fmt"
	"reflect"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// The versions of the file's format. Only this file knows v1alpha1: it decodes a file by the keys of that version, and
// turns the result into a document of v1.
const (
	v1       = "llm-d.ai/v1"
	v1alpha1 = "llm-d.ai/v1alpha1"
	oldGroup = "inference.networking.x-k8s.io/v1alpha1"
)

// documentV1Alpha1 is a file of v1alpha1 as it is written.
type documentV1Alpha1 struct {
	sections
	// DataLayer says where endpoints and their figures come from.
	DataLayer dataLayerV1Alpha1 `json:"dataLayer"`
	// SaturationDetector names the plugin that says how full the pool is. It is deprecated: v1 has it in flowControl.
	SaturationDetector *pluginRef `json:"saturationDetector"`
	// Parser names what reads the bodies of requests. It is deprecated: v1 has requestHandler.parsers.
	Parser *pluginRef `json:"parser"`
}

// dataLayerV1Alpha1 says where endpoints and their figures come from.
type dataLayerV1Alpha1 struct {
	// InjectDefaults reads the metrics page of every model server without being told; absent = true.
	InjectDefaults *bool `json:"injectDefaults"`
	// Sources are the pages of a model server that are read.
	Sources []sourceSection `json:"sources"`
	// Discovery names a file-discovery; absent = the command line says where endpoints come from.
	Discovery *pluginRef `json:"discovery"`
	// PeerDiscovery names the plugin that finds other replicas of the picker.
	PeerDiscovery *pluginRef `json:"peerDiscovery" effect:"none"`
	// CrossReplicaSyncerPluginRef names the plugin that shares what replicas of the picker know.
	CrossReplicaSyncerPluginRef string `json:"crossReplicaSyncerPluginRef" effect:"none"`
	// CrossReplicaSyncInterval is the time between two messages to the other replicas.
	CrossReplicaSyncInterval time.Duration `json:"crossReplicaSyncInterval" effect:"none"`
}

func newV1Alpha1() documentV1Alpha1 {
	return documentV1Alpha1{
		sections: newSections(), DataLayer: dataLayerV1Alpha1{CrossReplicaSyncInterval: defaultSyncInterval},
	}
}

// read decodes a file by the keys of its version, or by those of v1 if it names no known version. It reports whether
// there is a document.
func (l *loader) read(root *yaml.Node) (document, bool) {
	version := ""
	if n := strictyaml.Find(root, "apiVersion"); n != nil {
		version = n.Value
	}
	if version == v1alpha1 || version == oldGroup {
		old := newV1Alpha1()
		l.Decode(root, "", reflect.ValueOf(&old).Elem())
		l.effects("dataLayer", reflect.ValueOf(old.DataLayer), reflect.ValueOf(newV1Alpha1().DataLayer))
		return old.inV1(), !l.Failed("")
	}
	doc := newDocument()
	l.Decode(root, "", reflect.ValueOf(&doc).Elem())
	fresh := newDocument().DataLayer
	l.effects("dataLayer.discovery", reflect.ValueOf(doc.DataLayer.Discovery), reflect.ValueOf(fresh.Discovery))
	l.effects("dataLayer.crossReplica", reflect.ValueOf(doc.DataLayer.CrossReplica),
		reflect.ValueOf(fresh.CrossReplica))
	return doc, !l.Failed("")
}

// inV1 returns the same document in v1. It leaves out what has no effect, of which read has entered the problems.
func (d *documentV1Alpha1) inV1() document {
	doc := newDocument()
	doc.sections = d.sections
	doc.DataLayer.InjectDefaults, doc.DataLayer.Sources = d.DataLayer.InjectDefaults, d.DataLayer.Sources
	doc.DataLayer.Discovery.Endpoints = d.DataLayer.Discovery
	doc.older = older{version: true, detector: d.SaturationDetector, parser: d.Parser}
	return doc
}

// older holds what a file of v1alpha1 says under keys that v1 does not have.
type older struct {
	version          bool       // the file is of v1alpha1
	detector, parser *pluginRef // nil = the file does not have the key
}

// discovery returns the path under which the file names the source of its endpoints.
func (o older) discovery() string {
	if o.version {
		return "dataLayer.discovery"
	}
	return "dataLayer.discovery.endpoints"
}

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
	var document yaml.Node // Parse returns only the mapping, and the comments around it belong to the document
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
			Text: fmt.Sprintf("got %q, want %s", clip.Value(n.Value), v1alpha1)}
	}
	return nil
}

// moves pairs each key of v1alpha1 that v1 has elsewhere with its new path. A value that already stands at the new path
// stays, because Load prefers it.
var moves = []struct{ from, to []string }{
	{[]string{"dataLayer", "discovery"}, []string{"dataLayer", "discovery", "endpoints"}},
	{[]string{"dataLayer", "peerDiscovery"}, []string{"dataLayer", "discovery", "peers"}},
	{[]string{"dataLayer", "crossReplicaSyncerPluginRef"}, []string{"dataLayer", "crossReplica", "syncerPluginRef"}},
	{[]string{"dataLayer", "crossReplicaSyncInterval"}, []string{"dataLayer", "crossReplica", "syncInterval"}},
	{[]string{"saturationDetector"}, []string{"flowControl", "saturationDetector"}},
	{[]string{"parser"}, []string{"requestHandler", "parsers"}},
}

// convert turns a mapping of v1alpha1 into one of v1, in place.
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
		if m.from[0] == "parser" && value.Tag != "!!null" { // a key without a value stays one
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

// take removes a key and returns it with its value; nil = the mapping does not have it.
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

// put adds a value at a path, with the mappings on the way to it, unless the path has a value. The key keeps its
// comments.
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

// writtenOut returns a problem if one of the mappings between which keys move is no mapping, or uses aliases or merge
// keys: moving a key there could change other places that share the value.
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

// rename gives a plugin the present name of its type. If it has no name of its own it gets the former type as its name,
// so that references to it still hold.
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
