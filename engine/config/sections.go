package config

import (
	"cmp"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/filters"
	"github.com/signalbox-epp/signalbox/engine/points"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/rewrites"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// dataLayer sets the discovery, the sources and the engine labels of the Config.
func (l *loader) dataLayer(doc *document) {
	s := &doc.DataLayer
	if from := s.Discovery.Endpoints; from != nil {
		if x := l.find(doc.older.discovery()+".pluginRef", from.PluginRef, "file-discovery"); x != nil {
			l.from.discovery = x
			p := x.plugin.(*FileDiscovery)
			at := x.path + ".parameters.path"
			l.config.Discovery = Discovery{Path: p.Path, Watch: p.WatchFile,
				At: strictyaml.Problem{Line: l.Line(at), Path: at}}
		}
	}
	for i := range s.Sources {
		l.source(&s.Sources[i], item(doc.older.sources(), i))
	}
	l.modelList()
	l.mainPage(s.InjectDefaults == nil || *s.InjectDefaults)
	core := l.from.core.plugin.(*CoreMetrics)
	l.config.Engines = core.engines()
	if core.DefaultEngine != vllm {
		l.config.DefaultEngine = core.DefaultEngine
	}
	label := core.EngineLabelKey
	l.config.EngineLabelKeys = []string{label}
	if label == engineLabel {
		l.config.EngineLabelKeys = append(l.config.EngineLabelKeys, legacyEngineLabel)
	}
}

// modelList has the model list read, if it answers requests and the file names no source of it.
func (l *loader) modelList() {
	for _, x := range l.instances {
		if _, ok := x.plugin.(*ModelsResponder); ok {
			l.config.AnswersModels, x.used = true, true
		}
	}
	if !l.config.AnswersModels {
		return
	}
	if !l.config.Models.Enabled {
		x := l.oneOf("models-data-source")
		if p, ok := x.plugin.(*ModelsSource); ok {
			l.from.models, l.from.lists.Name = x, x.name
			l.config.Models, l.config.ModelList = p.page(nil), x.name
		}
	}
	l.config.Models.Interval = cmp.Or(l.config.Models.Interval, answeredListInterval)
}

// answeredListInterval is the time between two readings of the model list, by default, where it answers requests: an
// adapter that was loaded is soon in the answer, and one that was unloaded is not.
const answeredListInterval = 2 * time.Second

// oneOf returns the first plugin of a type in the file, or one with the defaults.
func (l *loader) oneOf(typ string) *instance {
	for _, x := range l.instances {
		if x.typ == typ {
			x.used = true
			return x
		}
	}
	return &instance{name: typ, typ: typ, plugin: construct(typ)}
}

// source turns on the page that an entry of dataLayer.sources names.
func (l *loader) source(s *sourceSection, path string) {
	x := l.find(path+".pluginRef", s.PluginRef, sourceTypes()...)
	wanted := extractorTypes()
	page := &metricsPage{path: path, x: x, from: attributes.Source{Select: s.Select}}
	l.selector(path, s.Select)
	if x != nil {
		switch p := x.plugin.(type) {
		case pageSource:
			page.source = p
			wanted = slices.Concat(p.extractors(), l.defaults.Catalogue.extractors())
			if slices.ContainsFunc(l.from.pages, func(other *metricsPage) bool { return other.x == x }) {
				l.Fail(path, "a second source of this name, want one")
			}
			l.from.pages = append(l.from.pages, page)
		case *NotificationSource:
			wanted = notifiedTypes
			l.notified = append(l.notified, page)
		case *points.LatencyObserver:
			wanted = []string{}
			l.notified = append(l.notified, page)
		case *ModelsSource:
			wanted = []string{modelsExtractor}
			if l.config.Models.Enabled {
				l.Fail(path, "a second source of this type, want one")
			}
			l.from.models, l.from.lists = x, page.from
			l.from.lists.Name = x.name
			l.config.Models, l.config.ModelList = p.page(s.Select), x.name
		}
	}
	seen := map[string]bool{}
	for i, e := range s.Extractors {
		at := path + "." + item("extractors", i) + ".pluginRef"
		y := l.find(at, e.PluginRef, wanted...)
		if y == nil {
			continue
		}
		only := y.typ == coreExtractor || y.typ == modelsExtractor
		if only && seen[y.typ] {
			l.Fail(at, "a second %s on one source, want one", y.typ)
		}
		seen[y.typ] = true
		switch y.typ {
		case coreExtractor:
			page.core = y
		case modelsExtractor:
			l.from.list = y
		default:
			l.extractor(page, y, at)
		}
	}
}

// extractor adds an extractor to a page. It takes its attributes from one page.
func (l *loader) extractor(page *metricsPage, x *instance, path string) {
	if slices.Contains(page.more, x) {
		l.Fail(path, "%s stands twice on one source", x.name)
		return
	}
	for _, other := range l.from.pages {
		if other != page && slices.Contains(other.more, x) {
			l.Fail(path, "%s stands on %s, too, want an extractor for each source", x.name, other.x.name)
		}
	}
	page.more = append(page.more, x)
	if of, ok := x.plugin.(attributes.Extractor); ok {
		l.emitted(x, of.Emits())
	}
}

// emitted checks the names of the attributes that a plugin of another module emits.
func (l *loader) emitted(x *instance, names []string) {
	for _, name := range names {
		if err := attributes.CheckName(name); err != nil {
			l.Fail(x.path, "it emits an attribute of a wrong name: %v", err)
		}
	}
}

// selector checks labels, which must be such as Kubernetes accepts.
func (l *loader) selector(path string, labels map[string]string) {
	err := (&filters.LabelSelector{MatchLabels: labels}).Validate()
	joined, _ := err.(interface{ Unwrap() []error })
	if joined == nil {
		return
	}
	for _, e := range joined.Unwrap() {
		name, text, _ := strings.Cut(e.Error(), ": ")
		l.Fail(path+strings.Replace("."+name, ".matchLabels", ".select", 1), "%s", text)
	}
}

// mainPage sets the metrics page of the built-in attributes, and those beside it.
func (l *loader) mainPage(inject bool) {
	for _, p := range l.from.pages {
		switch {
		case p.core == nil:
		case l.from.main == nil:
			l.from.main = p
		default:
			l.Fail(p.path, "a second source with a core-metrics-extractor, beside %s, want one", l.from.main.path)
		}
	}
	if i := slices.IndexFunc(l.from.pages, (*metricsPage).hasCore); l.from.main == nil && i >= 0 {
		l.from.main = l.from.pages[i]
	}
	if l.from.main == nil && inject {
		l.from.main = &metricsPage{x: l.oneOf("metrics-data-source")}
	}
	l.from.core = l.oneOfMain()
	if l.from.main != nil {
		l.from.metrics = l.from.main.x
		l.config.Metrics = l.from.metrics.plugin.(pageSource).place().page(l.from.main.from.Select)
	}
	l.furtherPages()
}

// hasCore reports whether the built-in attributes may come from the page.
func (p *metricsPage) hasCore() bool { return slices.Contains(p.source.extractors(), coreExtractor) }

// furtherPages sets the pages beside the main one.
func (l *loader) furtherPages() {
	for _, p := range l.from.pages {
		if p == l.from.main {
			continue
		}
		p.from.Name = p.x.name
		if len(p.more) == 0 {
			all := p.source.extractors()
			l.Fail(p.path, "a further %s without an extractor, want a %s", p.x.typ, all[len(all)-1])
		}
		if len(l.config.Further) == maxFurther {
			l.Fail(p.path, "more than %d further sources", maxFurther)
			return
		}
		f := FurtherSource{
			Name: p.x.name, Source: p.source.place().page(p.from.Select),
			At: strictyaml.Problem{Line: l.Line(p.path), Path: p.path},
		}
		p.source.further(&f)
		if f.Objects != (ObjectKind{}) && l.config.Discovery.Path != "" {
			l.Fail(p.path, "%s", NoCluster("file-discovery"))
		}
		l.config.Further = append(l.config.Further, f)
	}
}

// maxFurther bounds the metrics pages beside that of the built-in attributes.
const maxFurther = 32

// oneOfMain returns the core-metrics-extractor of the main page, or the first of the file, or one with the defaults.
func (l *loader) oneOfMain() *instance {
	if l.from.main != nil && l.from.main.core != nil {
		return l.from.main.core
	}
	return l.oneOf(coreExtractor)
}

// parsers sets whether request bodies are parsed.
func (l *loader) parsers(doc *document) {
	l.effects("requestHandler", reflect.ValueOf(doc.RequestHandler), reflect.ValueOf(newDocument().RequestHandler))
	l.config.SetsPriority = l.config.SetsPriority || doc.RequestHandler.PropagatePriority
	list, path := doc.RequestHandler.Parsers, "requestHandler.parsers"
	if parser := doc.older.parser; parser != nil {
		l.Warn("parser", "deprecated, write requestHandler.parsers")
		if len(list) == 0 {
			l.parserList([]pluginRef{*parser}, func(int) string { return "parser" })
			return
		}
	}
	l.parserList(list, func(i int) string { return item(path, i) })
}

// trustHeaders are the headers by which a request names its flow, its objective and its deadlines.
var trustHeaders = []string{
	"x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id",
	"x-llm-d-inference-objective", "x-gateway-inference-objective",
	"x-llm-d-inference-ttl", "x-llm-d-slo-ttft-ms", "x-slo-ttft-ms", "x-llm-d-slo-tpot-ms", "x-slo-tpot-ms",
}

// trust sets who may set them, and those that agent-identity reads.
func (l *loader) trust(s *requestSection) {
	const by, proxies = "requestHandler.trust", "requestHandler.trustedProxies"
	l.config.Trust = Trust{
		By: s.Trust, Proxies: s.TrustedProxies, Headers: slices.Concat(trustHeaders, l.config.FlowHeaders),
	}
	for i, name := range s.TrustedProxies {
		if name == "" {
			l.Fail(item(proxies, i), "empty, want a name in a certificate")
		}
	}
	switch s.Trust {
	case TrustCertificate:
		l.config.Trust.At = strictyaml.Problem{Line: l.Line(by), Path: by}
		if len(s.TrustedProxies) == 0 {
			l.Fail(proxies, "missing, want at least one name: mtls trusts no proxy otherwise")
		}
	case TrustHeader, TrustMetadata:
		if len(s.TrustedProxies) > 0 {
			l.Fail(proxies, "needs trust: %s, got %s", TrustCertificate, s.Trust)
		}
	default:
		l.Fail(by, "got %q, want %s, %s or %s", clip.Value(s.Trust), TrustHeader, TrustMetadata, TrustCertificate)
	}
}

const passthrough = "passthrough-parser"

// parserTypes are the parsers that there are; defaultParsers hold if a file names none.
var (
	parserTypes = []string{"openai-parser", "anthropic-parser", "vllmhttp-parser", "sglanghttp-parser",
		"vllmgrpc-parser", "vertexai-parser", passthrough}
	defaultParsers = []string{"openai-parser", "anthropic-parser", "vllmhttp-parser", passthrough}
)

func (l *loader) parserList(list []pluginRef, path func(int) string) {
	if len(list) == 0 {
		l.config.Parsers = slices.DeleteFunc(slices.Clone(defaultParsers), isPassthrough)
		return
	}
	var seen []string
	for i, ref := range list {
		at := path(i) + ".pluginRef"
		x := l.parser(at, ref.PluginRef)
		switch {
		case x == nil:
			continue
		case slices.Contains(seen, passthrough):
			l.Warn(at, "%s stands after a parser that takes every request, so it has no effect", x.name)
		case slices.Contains(seen, x.typ):
			l.Fail(at, "a second %s, want one", x.typ)
		default:
			l.from.parsers = append(l.from.parsers, x)
		}
		seen = append(seen, x.typ)
		if !isPassthrough(x.typ) && !slices.Contains(seen, passthrough) {
			l.config.Parsers = append(l.config.Parsers, x.typ)
		}
	}
}

// isPassthrough reports whether a parser takes every request and reads none.
func isPassthrough(typ string) bool { return typ == passthrough }

// parser returns the parser that an entry names, which needs no entry in plugins if it is named by its type.
func (l *loader) parser(path, name string) *instance {
	if l.named[name] == nil && slices.Contains(parserTypes, name) {
		return l.provided(path, name)
	}
	return l.find(path, name, parserTypes...)
}

// objectives sets the priorities. A name that is longer than what is read of the header would never be found.
func (l *loader) objectives(list []objectiveSection) {
	first := map[string]int{}
	for i, o := range list {
		at := item("objectives", i)
		before, twice := first[o.Name]
		switch {
		case o.Name == "":
			l.Fail(at+".name", "missing")
			continue
		case len(o.Name) > records.LabelBytes:
			l.Fail(at+".name", "got %d bytes, want at most %d", len(o.Name), records.LabelBytes)
		case twice:
			l.Fail(at+".name", "%s stands twice, first as %s", clip.Value(o.Name), item("objectives", before))
			continue
		}
		first[o.Name] = i
		l.priority(at+".priority", o.Priority)
		if l.config.Priorities == nil {
			l.config.Priorities = map[string]int{}
		}
		l.config.Priorities[o.Name] = o.Priority
	}
}

// addObjectives adds the objectives that stand elsewhere, unless the file has one of the name.
func (l *loader) addObjectives() {
	if len(l.defaults.Additions.Objectives) == 0 {
		return
	}
	all := maps.Clone(l.defaults.Additions.Objectives)
	maps.Copy(all, l.config.Priorities)
	l.config.Priorities = all
}

// priority checks the range of a priority, which is that of Kubernetes resources.
func (l *loader) priority(path string, p int) {
	if p < math.MinInt32 || p > math.MaxInt32 {
		l.Fail(path, "got %d, want %d to %d", p, math.MinInt32, math.MaxInt32)
	}
}

// exactMatch is the way in which models are compared with those of requests.
const exactMatch = "Exact"

// rewrites sets the rewrites of models.
func (l *loader) rewrites(list []rewriteSection) {
	if len(list) > 0 && len(l.config.Parsers) == 0 {
		l.Warn("modelRewrites", "no parser reads the models of requests, so this has no effect")
	}
	if len(list) > 0 && len(l.config.Parsers) > 0 {
		l.config.LightLane = append(l.config.LightLane, l.Remark("modelRewrites",
			"answers name the model that served, not the one that the client asked for; with a file of signalbox "+
				"envoy-config --lane full they name the latter"))
	}
	names, models := map[string]int{}, map[string]string{}
	for i, r := range list {
		at := item("modelRewrites", i)
		before, twice := names[r.Name]
		switch {
		case r.Name == "":
			l.Fail(at+".name", "missing")
		case twice:
			l.Fail(at+".name", "%s stands twice, first as %s", clip.Value(r.Name), item("modelRewrites", before))
		default:
			names[r.Name] = i
		}
		if len(r.Rules) == 0 {
			l.Fail(at+".rules", "missing")
		}
		rewrite := rewrites.Rewrite{Name: r.Name}
		for j := range r.Rules {
			path := at + "." + item("rules", j)
			rewrite.Rules = append(rewrite.Rules, rewrites.Rule{
				Models: l.matches(path, r.Rules[j].Matches, models), Targets: l.targets(path, r.Rules[j].Targets),
			})
		}
		l.config.Rewrites = append(l.config.Rewrites, rewrite)
	}
	l.config.Rewrites = append(l.config.Rewrites, l.defaults.Additions.Rewrites...)
}

// matches returns the models that a rule is for. first has the rules so far, each by what it is for; "" = all.
func (l *loader) matches(rule string, list []matchSection, first map[string]string) []string {
	if len(list) == 0 {
		l.once(rule, "all models", "", first)
	}
	var models []string
	for i, m := range list {
		at := rule + "." + item("matches", i) + ".model"
		if m.Model.Type != "" && m.Model.Type != exactMatch {
			l.Fail(at+".type", "got %s, want %s", clip.Value(m.Model.Type), exactMatch)
		}
		if m.Model.Value == "" {
			l.Fail(at+".value", "missing")
			continue
		}
		l.once(at+".value", clip.Value(m.Model.Value), m.Model.Value, first)
		models = append(models, m.Model.Value)
	}
	return models
}

// once warns of what a rule before is for too.
func (l *loader) once(path, what, key string, first map[string]string) {
	if before, twice := first[key]; twice {
		l.Warn(path, "a rule for %s stands before, %s, so this has no effect", what, before)
		return
	}
	first[key] = path
}

// targets returns the targets of a rule.
func (l *loader) targets(rule string, list []targetSection) []rewrites.Target {
	if len(list) == 0 {
		l.Fail(rule+".targets", "missing")
		return nil
	}
	var weights []*int
	var targets []rewrites.Target
	for i, t := range list {
		at := rule + "." + item("targets", i)
		if t.Weight != nil {
			if err := rewrites.CheckWeight(*t.Weight); err != nil {
				l.Fail(at+".weight", "%v", err)
			}
		} else if slices.ContainsFunc(list, func(t targetSection) bool { return t.Weight != nil }) {
			l.Warn(at, "it has no weight and another one has, so it gets no requests")
		}
		switch {
		case t.ModelRewrite == "":
			l.Fail(at+".modelRewrite", "missing")
		case strings.ContainsFunc(t.ModelRewrite, unicode.IsControl):
			l.Fail(at+".modelRewrite", "%s has a control character", clip.Value(t.ModelRewrite))
		}
		targets, weights = append(targets, rewrites.Target{Model: t.ModelRewrite}), append(weights, t.Weight)
	}
	rewrites.Weigh(targets, weights)
	return targets
}
