package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/filters"
	"github.com/signalbox-epp/signalbox/engine/profiles"
	"github.com/signalbox-epp/signalbox/engine/scorers"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// Convert returns a configuration file in version v1, with its comments. A file of v1 is returned as it is. What a file
// says is not checked: where Load refuses the parameters of a plugin, they stay as they are. The error is a
// *strictyaml.Error.
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
	converted, err := encode(&document)
	if err == nil && strictyaml.Aliased(root) {
		if _, problem := strictyaml.Parse(converted); problem != nil { // a value has moved before the one it stands for
			return nil, &strictyaml.Error{Problems: []strictyaml.Problem{
				{Text: "the file has an alias that cannot be converted; write it out"}}}
		}
	}
	return converted, err
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
	if n := strictyaml.Find(plugin, "name"); blank(n) {
		strictyaml.Take(plugin, []string{"name"})
		plugin.Content = append(plugin.Content,
			&yaml.Node{Kind: yaml.ScalarNode, Value: "name", Style: plugin.Content[0].Style},
			&yaml.Node{Kind: yaml.ScalarNode, Value: typ.Value, Style: typ.Style})
	}
	typ.Value = now
}

// blank reports whether Load takes a name for one that is not given.
func blank(n *yaml.Node) bool { return n == nil || n.Value == "" || n.ShortTag() == "!!null" }

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
	if parameters == nil {
		parameters = mapping()
		p.Content = append(p.Content, text("parameters"), parameters)
	}
	fields := reflect.TypeOf(plugin).Elem()
	if e.oldest {
		strictyaml.Prune(parameters, fields)
	}
	e.names(parameters, fields)
	if read(plugin, parameters) {
		switch given := plugin.(type) {
		case *filters.ByLabel:
			byLabel(p, parameters, given)
		case *OpenAIParser:
			e.priority(parameters, given)
		case *filters.PrefixCacheAffinity:
			penalty(parameters, given)
		case *profiles.PrefillDecode:
			e.handler(p, parameters, given)
		case *scorers.PrefixCache:
			e.sizes(parameters, given)
		}
	}
	strictyaml.DropEmpty(p, "parameters")
}

// read decodes parameters onto a plugin as Load does. It returns false for those that Load refuses.
func read(plugin any, parameters *yaml.Node) bool {
	r := strictyaml.NewReader(maxValues)
	r.Decode(parameters, "", reflect.ValueOf(plugin).Elem())
	v, checked := plugin.(interface{ Validate() error })
	return r.Err() == nil && (!checked || v.Validate() == nil)
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

// byLabel makes a label-selector-filter of a by-label, unless it has values that a selector does not take, or keeps
// servers without the label beside those with some values: all conditions of a selector must hold.
func byLabel(p, parameters *yaml.Node, given *filters.ByLabel) {
	condition := mapping(pairOf("key", strictyaml.Find(parameters, "label")))
	switch {
	case !given.AllowsNoLabel:
		values := strictyaml.Find(parameters, "validValues")
		condition.Content = append(condition.Content, text("operator"), text("In"), text("values"), values)
	case len(given.ValidValues) == 0:
		condition.Content = append(condition.Content, text("operator"), text("DoesNotExist"))
	default:
		return
	}
	selector := mapping(pairOf("matchExpressions", sequence(condition)))
	if !read(new(filters.LabelSelector), selector) {
		return
	}
	retype(p, replaced["by-label"])
	parameters.Content = selector.Content
}

// penalty writes a bound in tokens as one in milliseconds, as Load takes it; 0 has no effect.
func penalty(parameters *yaml.Node, given *filters.PrefixCacheAffinity) {
	const now = "maxTTFTPenaltyMs"
	key, bound := strictyaml.Take(parameters, []string{"maxTokensInFlightPenalty"})
	if bound == nil || len(given.Adapt()) == 0 {
		return
	}
	strictyaml.Take(parameters, []string{now})
	key.Value = now
	milliseconds := float(given.MaxTTFTPenaltyMs, 'f')
	milliseconds.LineComment = bound.LineComment
	parameters.Content = append(parameters.Content, key, milliseconds)
}

// priority moves propagatePriority to where it stands now.
func (e entries) priority(parameters *yaml.Node, given *OpenAIParser) {
	key, value := strictyaml.Take(parameters, []string{"propagatePriority"})
	if given.PropagatePriority {
		at := []string{"requestHandler", "propagatePriority"}
		strictyaml.Take(e.root, at)
		strictyaml.Put(e.root, at, key, value)
	}
}

// handler makes a disagg-profile-handler of a pd-profile-handler, unless it has a port of the sidecar: that goes into a
// header of data-parallel-profile-handler, and a file has one handler.
func (e entries) handler(p, parameters *yaml.Node, given *profiles.PrefillDecode) {
	if given.PrimaryPort != 0 {
		return
	}
	retype(p, replaced["pd-profile-handler"])
	parameters.Content = nil
	for _, stage := range []struct{ name, profile string }{
		{"decode", given.DecodeProfile}, {"prefill", given.PrefillProfile},
	} {
		if stage.profile != stage.name {
			strictyaml.Put(parameters, []string{"profiles", stage.name}, text(stage.name), text(stage.profile))
		}
		if stage.profile == "encode" { // the profile of a third stage, by default
			strictyaml.Put(parameters, []string{"profiles", "encode"}, text("encode"), text(""))
		}
	}
	strictyaml.Put(parameters, []string{"deciders", "prefill"}, text("prefill"), text(e.decider(given)))
}

// decider returns the name of what decides in place of a pd-profile-handler. A decider for its threshold is added.
func (e entries) decider(given *profiles.PrefillDecode) string {
	const byPrefix, always = "prefix-based-pd-decider", "always-disagg-pd-decider"
	switch {
	case given.DeciderPluginName != "":
		return given.DeciderPluginName
	case e.named(byPrefix) != nil:
		return byPrefix
	case given.Threshold > 0:
		return e.add(byPrefix, mapping(pairOf("nonCachedTokens", plain(strconv.Itoa(given.ThresholdTokens())))))
	}
	if x := e.named(always); x != nil && typeOf(x) == always {
		return always
	}
	return e.add(always, nil)
}

// sizes moves sizes of the index to the producer that has them now, if it is there or can be added. Of two capacities
// the larger one stays, as it holds for both.
func (e entries) sizes(parameters *yaml.Node, given *scorers.PrefixCache) {
	strictyaml.Take(parameters, []string{"mode"})
	strictyaml.Take(parameters, []string{"hashBlockSize"})
	const producer, capacity = prefixProducer, "lruCapacityPerServer"
	name := cmp.Or(given.PrefixMatchInfoProducerName, producer)
	index, there := e.named(name), construct(producer).(*ApproxPrefixCache)
	switch {
	case index == nil && name != producer:
		return
	case index != nil:
		has := strictyaml.Find(index, "parameters")
		if typeOf(index) != producer || has != nil && !read(there, has) {
			return
		}
	}
	for _, size := range []string{"autoTune", "blockSize", "blockSizeTokens", "maxPrefixBlocksToMatch",
		"maxPrefixTokensToMatch", capacity} {
		strictyaml.Take(parameters, []string{size})
	}
	moved := mapping()
	move := func(size string, n int) {
		if n > 0 {
			moved.Content = append(moved.Content, plain(size), plain(strconv.Itoa(n)))
		}
	}
	if index == nil {
		if given.AutoTune != nil {
			moved.Content = append(moved.Content, plain("autoTune"), plain(strconv.FormatBool(*given.AutoTune)))
		}
		move("blockSizeTokens", cmp.Or(given.BlockSizeTokens, given.BlockSize))
		move("maxPrefixBlocksToMatch", given.MaxPrefixBlocksToMatch)
		move("maxPrefixTokensToMatch", given.MaxPrefixTokensToMatch)
		if given.BoundsBlocks() {
			moved.Content = append(moved.Content, plain("maxPrefixTokensToMatch"), plain("0"))
		}
	}
	if index == nil || given.LRUCapacityPerServer > there.LRUCapacityPerServer {
		move(capacity, given.LRUCapacityPerServer)
	}
	switch {
	case len(moved.Content) == 0:
	case index == nil:
		e.add(producer, moved)
	default:
		at := []string{"parameters", capacity}
		strictyaml.Take(index, at)
		strictyaml.Put(index, at, moved.Content[0], moved.Content[1])
	}
}

// named returns the plugin with a name; nil = there is none.
func (e entries) named(name string) *yaml.Node {
	for _, p := range e.list.Content {
		n := strictyaml.Find(p, "name")
		if blank(n) {
			n = strictyaml.Find(p, "type")
		}
		if n != nil && n.Value == name {
			return p
		}
	}
	return nil
}

// typeOf returns the type of a plugin; "" = it has none, and Load refuses it.
func typeOf(plugin *yaml.Node) string {
	if n := strictyaml.Find(plugin, "type"); n != nil {
		return n.Value
	}
	return ""
}

// add adds a plugin and returns its name, which is its type unless another plugin has that name.
func (e entries) add(typ string, parameters *yaml.Node) (name string) {
	name = typ
	for i := 2; e.named(name) != nil; i++ {
		name = typ + "-" + strconv.Itoa(i)
	}
	p := mapping(pairOf("type", text(typ)))
	if name != typ {
		p.Content = append(p.Content, text("name"), text(name))
	}
	if parameters != nil {
		p.Content = append(p.Content, text("parameters"), parameters)
	}
	e.list.Content = append(e.list.Content, p)
	return name
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
