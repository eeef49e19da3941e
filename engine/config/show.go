package config

import (
	"bytes"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/reclaim"
	"github.com/signalbox-epp/signalbox/engine/rewrites"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// Show returns a file of version v1 with the same effect as a configuration file, in which nothing is left to a
// default: it has every plugin that has an effect with all its parameters, every profile with its picker, and every
// source. Two files with the same effect give the same bytes, but for names. The error is a *strictyaml.Error.
func Show(data []byte, defaults Settings) ([]byte, error) {
	l, err := load(data, defaults)
	if err != nil {
		return nil, err
	}
	s := shower{loader: l, names: map[*instance]string{}}
	root := mapping(
		pairOf("apiVersion", text(v1)), pairOf("kind", text("EndpointPickerConfig")),
		pairOf("featureGates", sequence(
			text("flowControl="+strconv.FormatBool(l.gated)), text("haPopulateNonLeaderDatastore=true"))),
		pairOf("plugins", s.plugins()), pairOf("schedulingProfiles", s.profiles()),
		pairOf("objectives", s.objectives()), pairOf("modelRewrites", s.rewrites()),
		pairOf("dataLayer", s.sources()), pairOf("requestHandler", s.requestHandler()),
	)
	if section := s.flowControl(); len(section.Content) > 0 {
		p := pairOf("flowControl", section)
		root.Content = append(root.Content, p.key, p.value)
	}
	return encode(&yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{root}})
}

// Diff returns the differences between two results of Show, one value a line, in their order. The order of plugins
// counts only within a profile, for only there it has an effect.
func Diff(a, b []byte) []string {
	var sides [2]flat
	for i, shown := range [][]byte{a, b} {
		sides[i] = flat{values: map[string]string{}, orders: map[string][]string{}}
		if root, _ := strictyaml.Parse(shown); root != nil {
			sides[i].add("", root)
		}
	}
	return sides[0].diff(&sides[1])
}

// flat is a document as a list of paths with plain values. In a path, an item of a list has its name or reference in
// place of its position.
type flat struct {
	paths  []string            // in the order of the document
	values map[string]string   // by path
	orders map[string][]string // names of a profile's plugins, by the path of their list
}

func (f *flat) diff(to *flat) []string {
	var out []string
	for _, path := range f.paths {
		if is, there := to.values[path]; !there {
			out = append(out, path+": "+f.values[path]+" -> absent")
		} else if is != f.values[path] {
			out = append(out, path+": "+f.values[path]+" -> "+is)
		}
	}
	for _, path := range to.paths {
		if _, there := f.values[path]; !there {
			out = append(out, path+": absent -> "+to.values[path])
		}
	}
	for _, path := range slices.Sorted(maps.Keys(f.orders)) {
		was, is := f.orders[path], to.orders[path]
		if !slices.Equal(was, is) && slices.Equal(slices.Sorted(slices.Values(was)), slices.Sorted(slices.Values(is))) {
			out = append(out, path+": the order is another one")
		}
	}
	return out
}

func (f *flat) add(path string, n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			f.add(strings.TrimPrefix(path+"."+n.Content[i].Value, "."), n.Content[i+1])
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			name := itemName(item, i)
			f.add(path+"["+name+"]", item)
			if strictyaml.Find(item, "pluginRef") != nil {
				f.orders[path] = append(f.orders[path], name)
			}
		}
	default:
		f.paths = append(f.paths, path)
		f.values[path] = strictyaml.Describe(n)
	}
}

func itemName(item *yaml.Node, position int) string {
	for _, key := range []string{"name", "pluginRef"} {
		if name := strictyaml.Find(item, key); name != nil {
			return name.Value
		}
	}
	return strconv.Itoa(position)
}

// shower prints what a loader has found.
type shower struct {
	*loader
	names map[*instance]string // of the plugins in the printed file
}

// plugins returns the plugins of the file that have an effect, in its order, and then the defaults that it leaves out.
func (s *shower) plugins() *yaml.Node {
	all := slices.Clone(s.instances)
	from := &s.from
	if len(from.parsers) == 0 {
		for _, typ := range defaultParsers {
			x := s.oneOf(typ)
			x.used = true
			from.parsers = append(from.parsers, x)
		}
	}
	more := append([]*instance{
		from.picker, from.handler, from.metrics, from.core, from.models, from.list, from.gate.detector,
	}, from.parsers...)
	more = append(more, s.keeping(all)...)
	for _, x := range append(more, from.gate.queueing.plugins()...) {
		if x != nil && (x.used || x.path == "") && !slices.Contains(all, x) {
			all = append(all, x)
		}
	}
	list, taken := sequence(), map[string]bool{}
	for _, x := range all {
		if x.path != "" && !x.used || x == from.picker && !s.picks(x) || !s.gated && decidesWaits(x) {
			continue
		}
		name := x.name
		for i := 2; taken[name]; i++ {
			name = x.name + "-" + strconv.Itoa(i)
		}
		taken[name], s.names[x] = true, name
		list.Content = append(list.Content, mapping(
			pairOf("name", text(name)), pairOf("type", text(x.typ)),
			pairOf("parameters", value(reflect.ValueOf(x.plugin))),
		))
	}
	return list
}

// keeping returns the producer of the prefix index if the file has none and names sizes elsewhere. Producers that it
// has get the sizes that hold for all.
func (s *shower) keeping(all []*instance) []*instance {
	if !s.index.named() {
		return nil
	}
	of, found := s.index.inForce(), false
	for _, x := range all {
		if p, ok := x.plugin.(*ApproxPrefixCache); ok {
			*p, found = of, true
		}
	}
	if found {
		return nil
	}
	x := s.oneOf(prefixProducer)
	*x.plugin.(*ApproxPrefixCache) = of
	return []*instance{x}
}

// decidesWaits reports whether a plugin decides only over requests that wait.
func decidesWaits(x *instance) bool {
	switch x.plugin.(type) {
	case flow.Fairness, flow.Ordering, flow.Displacement, flow.QueueType, flow.UsageLimit, reclaim.Eviction:
		return true
	}
	return false
}

// picks reports whether a profile has this picker.
func (s *shower) picks(x *instance) bool {
	return slices.ContainsFunc(s.config.Plan.Profiles(),
		func(p schedule.Profile) bool { return p.Picker.Picker == x.plugin })
}

// ref returns the pair that refers to a plugin.
func (s *shower) ref(x *instance) pair { return pairOf("pluginRef", text(s.names[x])) }

// named does so for a plugin of a profile. Its name counts too, for those without parameters may share an address.
func (s *shower) named(plugin any, name string) pair {
	for x := range s.names {
		if x.plugin == plugin && x.name == name {
			return s.ref(x)
		}
	}
	return pairOf("pluginRef", text(""))
}

func (s *shower) profiles() *yaml.Node {
	list := sequence()
	for _, p := range s.config.Plan.Profiles() {
		plugins := s.entries(&p)
		list.Content = append(list.Content, mapping(
			pairOf("name", text(p.Name)), pairOf("shadow", plain(strconv.FormatBool(p.Shadow))),
			pairOf("plugins", plugins),
		))
	}
	return list
}

// entries returns the plugins of a profile. One that is a filter and a scorer stands once.
func (s *shower) entries(p *schedule.Profile) *yaml.Node {
	plugins := sequence()
	both := map[string]pair{} // the weights of scorers that are filters too, by name
	for _, f := range p.Filters {
		entry := []pair{s.named(f.Filter, f.Name)}
		for _, r := range p.Scorers {
			if r.Name == f.Name {
				both[r.Name] = weightOf(r)
			}
		}
		if weight, scores := both[f.Name]; scores {
			entry = append(entry, weight)
		}
		plugins.Content = append(plugins.Content, mapping(entry...))
	}
	for _, r := range p.Scorers {
		if _, shown := both[r.Name]; !shown {
			plugins.Content = append(plugins.Content, mapping(s.named(r.Scorer, r.Name), weightOf(r)))
		}
	}
	plugins.Content = append(plugins.Content, mapping(s.named(p.Picker.Picker, p.Picker.Name)))
	return plugins
}

func weightOf(s schedule.ScorerStep) pair {
	return pairOf("weight", plain(strconv.FormatFloat(float64(s.Weight), 'g', -1, 32)))
}

// flowControl returns what of the section has an effect.
func (s *shower) flowControl() *yaml.Node {
	var pairs []pair
	if q, set := s.from.gate.queueing, s.config.Queueing; q != nil {
		number := func(n int64) *yaml.Node { return plain(strconv.FormatInt(n, 10)) }
		limits := func(l flow.Limits) []pair {
			return []pair{pairOf("maxBytes", number(l.Bytes)), pairOf("maxRequests", number(l.Requests))}
		}
		of := func(b *band, priority bool) *yaml.Node {
			pairs := append(limits(b.settings().Limits), pairOf("defaultRequestTTL", plain(b.ttl.String())),
				pairOf("fairnessPolicyRef", text(s.names[b.fairness])),
				pairOf("orderingPolicyRef", text(s.names[b.ordering])),
				pairOf("displacementPolicyRef", text(s.names[b.displacement])))
			if b.queue != nil {
				pairs = append(pairs, pairOf("queueRef", text(s.names[b.queue])))
			}
			if priority {
				pairs = append([]pair{pairOf("priority", plain(strconv.Itoa(b.Priority)))}, pairs...)
				pairs = append(pairs, pairOf("minShare", plain(strconv.FormatFloat(b.MinShare, 'g', -1, 64))))
			}
			return mapping(pairs...)
		}
		bands := sequence()
		for i := range q.bands {
			bands.Content = append(bands.Content, of(&q.bands[i], true))
		}
		pairs = append(limits(set.Limits),
			pairOf("defaultRequestTTL", plain(q.ttl.String())),
			pairOf("noEndpointRequestTTL", plain(set.Without.String())),
			pairOf("defaultPriorityBand", of(&q.standard, false)),
			pairOf("defaultNegativePriorityBand", of(&q.negative, false)), pairOf("priorityBands", bands),
			pairOf("usageLimitPolicyPluginRef", text(s.names[q.usageLimit])),
		)
	}
	if x := s.from.gate.detector; x != nil {
		pairs = append(pairs, pairOf("saturationDetector", mapping(s.ref(x))))
	}
	return mapping(pairs...)
}

// objectives returns the objectives by name, for their order has no effect.
func (s *shower) objectives() *yaml.Node {
	list := sequence()
	for _, name := range slices.Sorted(maps.Keys(s.config.Priorities)) {
		list.Content = append(list.Content, mapping(
			pairOf("name", text(name)), pairOf("priority", plain(strconv.Itoa(s.config.Priorities[name]))),
		))
	}
	return list
}

// rewrites returns the rewrites in the order of the file, which has an effect.
func (s *shower) rewrites() *yaml.Node {
	list := sequence()
	for _, rewrite := range s.config.Rewrites {
		rules := sequence()
		for _, rule := range rewrite.Rules {
			matches, targets := sequence(), sequence()
			for _, model := range rule.Models {
				matches.Content = append(matches.Content, mapping(pairOf("model", mapping(
					pairOf("type", text(exactMatch)), pairOf("value", text(model)),
				))))
			}
			for _, t := range rule.Targets {
				targets.Content = append(targets.Content, targetOf(t))
			}
			rules.Content = append(rules.Content, mapping(pairOf("matches", matches), pairOf("targets", targets)))
		}
		list.Content = append(list.Content, mapping(pairOf("name", text(rewrite.Name)), pairOf("rules", rules)))
	}
	return list
}

// targetOf returns a target of a rewrite. One that gets no requests has no weight.
func targetOf(t rewrites.Target) *yaml.Node {
	model := pairOf("modelRewrite", text(t.Model))
	if t.Weight == 0 {
		return mapping(model)
	}
	return mapping(pairOf("weight", plain(strconv.Itoa(t.Weight))), model)
}

func (s *shower) sources() *yaml.Node {
	from, list := &s.from, sequence()
	if from.main != nil && len(from.pages) == 0 {
		list.Content = append(list.Content, s.page(from.main))
	}
	for _, p := range from.pages {
		list.Content = append(list.Content, s.page(p))
	}
	if from.models != nil {
		extractors := sequence()
		if from.list != nil {
			extractors.Content = append(extractors.Content, mapping(s.ref(from.list)))
		}
		list.Content = append(list.Content, selecting(
			mapping(s.ref(from.models), pairOf("extractors", extractors)), s.config.Models.Select))
	}
	for _, p := range s.notified {
		list.Content = append(list.Content, s.page(p))
	}
	section := mapping(pairOf("injectDefaults", plain("false")), pairOf("sources", list))
	if from.discovery != nil {
		endpoints := pairOf("endpoints", mapping(s.ref(from.discovery)))
		discovery := pairOf("discovery", mapping(endpoints))
		section.Content = append(section.Content, discovery.key, discovery.value)
	}
	return section
}

// page returns the entry of a metrics page.
func (s *shower) page(p *metricsPage) *yaml.Node {
	extractors := sequence()
	if p == s.from.main {
		extractors.Content = append(extractors.Content, mapping(s.ref(s.from.core)))
	}
	for _, x := range p.more {
		extractors.Content = append(extractors.Content, mapping(s.ref(x)))
	}
	return selecting(mapping(s.ref(p.x), pairOf("extractors", extractors)), p.from.Select)
}

// selecting adds the labels that a source selects endpoints by, if there are any.
func selecting(entry *yaml.Node, labels map[string]string) *yaml.Node {
	if len(labels) > 0 {
		p := pairOf("select", value(reflect.ValueOf(labels)))
		entry.Content = append(entry.Content, p.key, p.value)
	}
	return entry
}

func (s *shower) requestHandler() *yaml.Node {
	list := sequence()
	for _, x := range s.from.parsers {
		list.Content = append(list.Content, mapping(s.ref(x)))
	}
	pairs := []pair{pairOf("parsers", list),
		pairOf("propagatePriority", plain(strconv.FormatBool(s.config.SetsPriority))),
		pairOf("trust", text(s.config.Trust.By))}
	if proxies := s.config.Trust.Proxies; len(proxies) > 0 {
		pairs = append(pairs, pairOf("trustedProxies", value(reflect.ValueOf(proxies))))
	}
	return mapping(pairs...)
}

// float returns a number in a format of strconv, or as YAML has one without a bound.
func float(x float64, format byte) *yaml.Node {
	if math.IsInf(x, 1) {
		return plain(".inf")
	}
	return plain(strconv.FormatFloat(x, format, -1, 64))
}

// pair is a key of a printed mapping and its value.
type pair struct{ key, value *yaml.Node }

func pairOf(key string, value *yaml.Node) pair { return pair{text(key), value} }

// mapping returns a mapping of pairs.
func mapping(pairs ...pair) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, p := range pairs {
		n.Content = append(n.Content, p.key, p.value)
	}
	return n
}

func sequence(items ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: items}
}

// text returns a string, which is printed in quotes if it would otherwise be read as another kind of value.
func text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

// plain returns a number or a truth value.
func plain(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: s} }

// encode returns a document as bytes, with lists that are not indented, as most files of Kubernetes have them.
func encode(document *yaml.Node) ([]byte, error) {
	writeNulls(document, false)
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	e.CompactSeqIndent()
	if err := e.Encode(document); err != nil {
		return nil, &strictyaml.Error{Problems: []strictyaml.Problem{{Text: err.Error()}}}
	}
	return out.Bytes(), nil
}

// writeNulls writes out the nulls within braces and brackets, where one without a text would become an empty string.
func writeNulls(n *yaml.Node, flow bool) {
	flow = flow || n.Style&yaml.FlowStyle != 0
	if flow && n.Kind == yaml.ScalarNode && n.Value == "" && n.ShortTag() == "!!null" {
		n.Value = "null"
	}
	for _, item := range n.Content {
		writeNulls(item, flow)
	}
}
