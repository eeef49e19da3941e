package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/clip"
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
	{[]string{"data", "sources"}, []string{"dataLayer", "sources"}},
	{[]string{"saturationDetector"}, []string{"flowControl", "saturationDetector"}},
	{[]string{"parser"}, []string{"requestHandler", "parsers"}},
}

// convert turns a mapping of v1alpha1 into one of v1, in place.
func convert(root *yaml.Node) *strictyaml.Problem {
	if problem := writtenOut(root); problem != nil {
		return problem
	}
	version := strictyaml.Find(root, "apiVersion")
	oldest := version.Value == oldGroup
	version.Value = v1
	if gates := strictyaml.Find(root, "featureGates"); gates != nil {
		gates.Content = slices.DeleteFunc(gates.Content, func(n *yaml.Node) bool { return olderGate(n.Value) })
		strictyaml.DropEmpty(root, "featureGates")
	}
	bounds(root)
	for _, m := range moves {
		key, value := strictyaml.Take(root, m.from)
		if value == nil {
			continue
		}
		if m.from[0] == "parser" && value.Tag != "!!null" { // a key without a value stays one
			value = &yaml.Node{Kind: yaml.SequenceNode, Style: value.Style, Content: []*yaml.Node{value}}
		}
		strictyaml.Put(root, m.to, key, value)
	}
	strictyaml.DropEmpty(root, "data")
	return plugins(root, oldest)
}

// writtenOut returns a problem if one of the mappings between which keys move is no mapping, or uses aliases or merge
// keys: moving a key there could change other places that share the value.
func writtenOut(root *yaml.Node) *strictyaml.Problem {
	for _, name := range []string{"", "data", "dataLayer", "flowControl", "requestHandler", "saturationDetector"} {
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

// entries are the plugins of a file whose older ways of writing are written anew, in place.
type entries struct {
	root, list *yaml.Node
	oldest     bool // unknown parameters have no effect
}

// plugins writes the plugins anew. Where aliases or merge keys stand, changing one value could change others, so that
// plugins get no more than the present names of their types.
func plugins(root *yaml.Node, oldest bool) *strictyaml.Problem {
	list := strictyaml.Find(root, "plugins")
	if list == nil {
		return nil
	}
	shared := strictyaml.Aliased(root)
	if shared && oldest {
		return &strictyaml.Problem{Line: list.Line, Path: "plugins",
			Text: "the file has an alias or a merge key, with which unknown parameters are not left out; write it out"}
	}
	e := entries{root, list, oldest}
	for _, p := range slices.Clone(list.Content) {
		rename(p)
		if !shared {
			e.rewrite(p)
		}
	}
	return nil
}

// rename gives a plugin the present name of its type.
func rename(plugin *yaml.Node) {
	if typ := strictyaml.Find(plugin, "type"); typ != nil && renamed[typ.Value] != "" {
		retype(plugin, renamed[typ.Value])
	}
}

// retype gives a plugin another type. If it has no name of its own it gets the former type as its name, so that
// references to it still hold.
func retype(plugin *yaml.Node, now string) {
	typ := strictyaml.Find(plugin, "type")
	if strictyaml.Find(plugin, "name") == nil {
		plugin.Content = append(plugin.Content,
			&yaml.Node{Kind: yaml.ScalarNode, Value: "name", Style: plugin.Content[0].Style},
			&yaml.Node{Kind: yaml.ScalarNode, Value: typ.Value, Style: typ.Style})
	}
	typ.Value = now
}

// rewrite writes one plugin anew.
func (e entries) rewrite(p *yaml.Node) {
	typ := strictyaml.Find(p, "type")
	if typ == nil {
		return
	}
	plugin := construct(typ.Value)
	parameters := strictyaml.Find(p, "parameters")
	if plugin == nil || parameters != nil && parameters.Kind != yaml.MappingNode {
		return
	}
	if parameters != nil {
		fields := reflect.TypeOf(plugin).Elem()
		if e.oldest {
			strictyaml.Prune(parameters, fields)
		}
		e.names(parameters, fields)
	}
	switch typ.Value {
	case "by-label":
		byLabel(p, parameters)
	case "openai-parser":
		e.priority(parameters)
	case "pd-profile-handler":
		e.handler(p, parameters)
	case "prefix-cache-scorer":
		e.sizes(parameters)
	}
	strictyaml.DropEmpty(p, "parameters")
}

// names moves parameters from their older names, as olderNames does.
func (e entries) names(parameters *yaml.Node, t reflect.Type) {
	for _, f := range strictyaml.FieldsOf(t) {
		if f.Older == "" {
			continue
		}
		key, value := strictyaml.Take(parameters, []string{f.Name})
		if value != nil && value.Value != "" && value.ShortTag() != "!!null" { // an empty text stands for the default
			strictyaml.Put(parameters, strings.Split(f.Older, "."), key, value)
		}
	}
}

// byLabel makes a label-selector-filter of a by-label, unless it keeps servers without the label.
func byLabel(p, parameters *yaml.Node) {
	if parameters == nil {
		return
	}
	if n := strictyaml.Find(parameters, "allowsNoLabel"); n != nil && n.Value == "true" {
		return
	}
	label, values := strictyaml.Find(parameters, "label"), strictyaml.Find(parameters, "validValues")
	if label == nil || values == nil {
		return
	}
	retype(p, replaced["by-label"])
	parameters.Content = mapping(pairOf("matchExpressions", sequence(mapping(pairOf("key", label),
		pairOf("operator", text("In")), pairOf("values", values))))).Content
}

// priority moves propagatePriority to where it stands now.
func (e entries) priority(parameters *yaml.Node) {
	if parameters == nil {
		return
	}
	key, value := strictyaml.Take(parameters, []string{"propagatePriority"})
	if value == nil || value.Value != "true" {
		return
	}
	at := []string{"requestHandler", "propagatePriority"}
	strictyaml.Take(e.root, at)
	strictyaml.Put(e.root, at, key, value)
}

// handler makes a disagg-profile-handler of a pd-profile-handler, unless it has a port of the sidecar.
func (e entries) handler(p, parameters *yaml.Node) {
	given := func(name string) string {
		if parameters == nil {
			return ""
		}
		_, value := strictyaml.Take(parameters, []string{name})
		if value == nil || value.ShortTag() == "!!null" {
			return ""
		}
		return value.Value
	}
	if parameters != nil {
		if port := strictyaml.Find(parameters, "primaryPort"); port != nil && port.Value != "0" {
			return
		}
	}
	for _, unused := range []string{"primaryPort", "prefixPluginType", "prefixPluginName", "hashBlockSize",
		"prefixMatchInfoProducerName"} {
		given(unused)
	}
	threshold, err := strconv.Atoi(given("threshold"))
	decider := given("deciderPluginName")
	if decider == "" {
		decider = "prefix-based-pd-decider"
		if e.named(decider) == nil {
			decider = e.decider(threshold, err == nil)
		}
	}
	if parameters == nil {
		parameters = mapping()
		p.Content = append(p.Content, text("parameters"), parameters)
	}
	retype(p, replaced["pd-profile-handler"])
	for _, stage := range []string{"decode", "prefill"} {
		if name := given(stage + "Profile"); name != "" && name != stage {
			strictyaml.Put(parameters, []string{"profiles", stage}, text(stage), text(name))
		}
	}
	strictyaml.Put(parameters, []string{"deciders", "prefill"}, text("prefill"), text(decider))
}

// decider adds the plugin that decides as a threshold does, and returns its name.
func (e entries) decider(threshold int, given bool) string {
	const tokenBytes = blockindex.BlockBytes / blockindex.BlockTokens
	const always = "always-disagg-pd-decider"
	if !given || threshold == 0 {
		if e.named(always) == nil {
			e.add(always, nil)
		}
		return always
	}
	e.add("prefix-based-pd-decider", mapping(pairOf("nonCachedTokens",
		plain(strconv.Itoa((threshold+tokenBytes-1)/tokenBytes)))))
	return "prefix-based-pd-decider"
}

// sizes moves sizes of the index to the producer that has them now, if it is there or can be added.
func (e entries) sizes(parameters *yaml.Node) {
	if parameters == nil {
		return
	}
	if mode := strictyaml.Find(parameters, "mode"); mode != nil && mode.Value != "cache_tracking" {
		strictyaml.Take(parameters, []string{"mode"})
	}
	strictyaml.Take(parameters, []string{"hashBlockSize"})
	const producer = "approx-prefix-cache-producer"
	name := producer
	if n := strictyaml.Find(parameters, "prefixMatchInfoProducerName"); n != nil && n.Value != "" {
		name = n.Value
	}
	of := e.named(name)
	if of == nil && name != producer {
		return
	}
	moved := mapping()
	for _, size := range []string{"autoTune", "blockSize", "blockSizeTokens", "maxPrefixBlocksToMatch",
		"maxPrefixTokensToMatch", "lruCapacityPerServer"} {
		if key, value := strictyaml.Take(parameters, []string{size}); value != nil {
			moved.Content = append(moved.Content, key, value)
		}
	}
	if len(moved.Content) == 0 {
		return
	}
	if of == nil {
		e.add(producer, moved)
		return
	}
	for i := 0; i < len(moved.Content); i += 2 {
		strictyaml.Put(of, []string{"parameters", moved.Content[i].Value}, moved.Content[i], moved.Content[i+1])
	}
}

// named returns the plugin with a name; nil = there is none.
func (e entries) named(name string) *yaml.Node {
	for _, p := range e.list.Content {
		n := strictyaml.Find(p, "name")
		if n == nil || n.Value == "" {
			n = strictyaml.Find(p, "type")
		}
		if n != nil && n.Value == name {
			return p
		}
	}
	return nil
}

// add adds a plugin.
func (e entries) add(typ string, parameters *yaml.Node) {
	p := mapping(pairOf("type", text(typ)))
	if parameters != nil {
		p.Content = append(p.Content, text("parameters"), parameters)
	}
	e.list.Content = append(e.list.Content, p)
}

// bounds makes a plugin of the bounds that the key saturationDetector has in place of a name.
func bounds(root *yaml.Node) {
	section := strictyaml.Find(root, "saturationDetector")
	if section == nil || section.Kind != yaml.MappingNode {
		return
	}
	if n := strictyaml.Find(section, "pluginRef"); n != nil && n.Value != "" && n.ShortTag() != "!!null" {
		return
	}
	list := strictyaml.Find(root, "plugins")
	if list == nil || list.Kind != yaml.SequenceNode {
		strictyaml.Take(root, []string{"plugins"})
		list = sequence()
		root.Content = append(root.Content, text("plugins"), list)
	}
	strictyaml.Take(section, []string{"pluginRef"})
	parameters := &yaml.Node{Kind: yaml.MappingNode, Content: section.Content}
	if e := (entries{root: root, list: list}); e.named(defaultDetector) == nil {
		e.add(defaultDetector, parameters)
	}
	section.Content = mapping(pairOf("pluginRef", text(defaultDetector))).Content
}
