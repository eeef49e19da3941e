package config

import (
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/records"
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
		l.source(&s.Sources[i], "dataLayer."+item("sources", i))
	}
	if l.from.core == nil {
		l.from.core = l.oneOf("core-metrics-extractor")
	}
	inject := s.InjectDefaults == nil || *s.InjectDefaults
	if inject && !l.config.Metrics.Enabled {
		l.from.metrics = l.oneOf("metrics-data-source")
		l.config.Metrics = l.from.metrics.plugin.(*MetricsSource).page()
	}
	label := l.from.core.plugin.(*CoreMetrics).EngineLabelKey
	l.config.EngineLabelKeys = []string{label}
	if label == engineLabel {
		l.config.EngineLabelKeys = append(l.config.EngineLabelKeys, legacyEngineLabel)
	}
}

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
	x := l.find(path+".pluginRef", s.PluginRef, "metrics-data-source", "models-data-source")
	wanted := []string{"core-metrics-extractor", "prometheus-extractor", "models-data-extractor"}
	if x != nil {
		switch p := x.plugin.(type) {
		case *MetricsSource:
			l.from.metrics, wanted = x, wanted[:2]
			l.enable(&l.config.Metrics, p.page(), path)
		case *ModelsSource:
			l.from.models, wanted = x, wanted[2:]
			l.enable(&l.config.Models, p.page(), path)
		}
	}
	seen := map[string]bool{}
	for i, e := range s.Extractors {
		at := path + "." + item("extractors", i) + ".pluginRef"
		y := l.find(at, e.PluginRef, wanted...)
		if y == nil {
			continue
		}
		if seen[y.typ] && y.typ != "prometheus-extractor" {
			l.Fail(at, "a second %s on one source, want one", y.typ)
		}
		seen[y.typ] = true
		switch y.typ {
		case "core-metrics-extractor":
			l.from.core = y
		case "models-data-extractor":
			l.from.list = y
		case "prometheus-extractor":
			if slices.Contains(l.from.more, y) {
				l.Fail(at, "%s stands twice on one source", y.name)
				continue
			}
			l.from.more = append(l.from.more, y)
		}
	}
}

func (l *loader) enable(into *Source, page Source, path string) {
	if into.Enabled {
		l.Fail(path, "a second source of this type, want one")
	}
	*into = page
}

// page returns the parameters as a Source that is read.
func (p *HTTPSource) page() Source {
	return Source{Enabled: true, Scheme: p.Scheme, Path: p.Path, Port: p.Port, Interval: p.Interval,
		InsecureSkipVerify: p.InsecureSkipVerify}
}

// parsers sets whether request bodies are parsed.
func (l *loader) parsers(doc *document) {
	l.effects("requestHandler", reflect.ValueOf(doc.RequestHandler), reflect.ValueOf(newDocument().RequestHandler))
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

func (l *loader) parserList(list []pluginRef, path func(int) string) {
	l.config.ParseOpenAI = len(list) == 0
	var seen []string
	for i, ref := range list {
		at := path(i) + ".pluginRef"
		x := l.find(at, ref.PluginRef, "openai-parser", "passthrough-parser")
		switch {
		case x == nil:
			continue
		case slices.Contains(seen, "passthrough-parser"):
			l.Warn(at, "%s stands after a parser that takes every request, so it has no effect", x.name)
		case slices.Contains(seen, x.typ):
			l.Fail(at, "a second %s, want one", x.typ)
		case x.typ == "openai-parser":
			l.config.ParseOpenAI = true
			l.from.parsers = append(l.from.parsers, x)
		default:
			l.from.parsers = append(l.from.parsers, x)
		}
		seen = append(seen, x.typ)
	}
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

// priority checks the range of a priority, which is that of Kubernetes resources.
func (l *loader) priority(path string, p int) {
	if p < math.MinInt32 || p > math.MaxInt32 {
		l.Fail(path, "got %d, want %d to %d", p, math.MinInt32, math.MaxInt32)
	}
}

// flowControl accepts only values that mean the same as the default: one band without limits, first come, first served.
func (l *loader) flowControl(doc *document) {
	s := &doc.FlowControl
	l.nonNegative("flowControl.maxBytes", s.MaxBytes)
	l.nonNegative("flowControl.maxRequests", s.MaxRequests)
	l.ttl("flowControl.defaultRequestTTL", s.DefaultRequestTTL)
	if s.NoEndpointRequestTTL != nil && *s.NoEndpointRequestTTL != s.DefaultRequestTTL {
		l.ttl("flowControl.noEndpointRequestTTL", *s.NoEndpointRequestTTL)
		l.only("flowControl.noEndpointRequestTTL", s.NoEndpointRequestTTL.String(), s.DefaultRequestTTL.String())
	}
	l.effects("flowControl", reflect.ValueOf(*s), reflect.ValueOf(newDocument().FlowControl))
	l.band("flowControl.defaultPriorityBand", s.DefaultPriorityBand)
	l.band("flowControl.defaultNegativePriorityBand", s.DefaultNegativePriorityBand)
	for i := range s.PriorityBands {
		at := "flowControl." + item("priorityBands", i)
		l.band(at, &s.PriorityBands[i])
		if i > 0 && s.PriorityBands[i].Priority == 0 {
			l.Fail(at+".priority", "a second band of priority 0, want one")
		}
	}
	l.only("flowControl.usageLimitPolicyPluginRef", s.UsageLimitPolicyPluginRef, "", "static-usage-limit-policy")
	l.detector("flowControl.saturationDetector", s.SaturationDetector)
	if doc.older.detector != nil {
		l.Warn("saturationDetector", "deprecated, write flowControl.saturationDetector")
		l.detector("saturationDetector", doc.older.detector)
	}
	if l.Written("flowControl") {
		l.Warn("flowControl", "the feature gate flowControl is off, so this has no effect")
	}
}

func (l *loader) band(path string, b *bandSection) {
	if b == nil {
		return
	}
	l.nonNegative(path+".maxBytes", b.MaxBytes)
	l.nonNegative(path+".maxRequests", b.MaxRequests)
	l.only(path+".maxBytes", strconv.FormatInt(int64(b.MaxBytes), 10), "0", "1000000000")
	l.only(path+".maxRequests", strconv.FormatInt(int64(b.MaxRequests), 10), "0", "5000")
	if b.DefaultRequestTTL != nil {
		l.ttl(path+".defaultRequestTTL", *b.DefaultRequestTTL)
		l.only(path+".defaultRequestTTL", b.DefaultRequestTTL.String(), defaultTTL.String())
	}
	l.only(path+".fairnessPolicyRef", b.FairnessPolicyRef, "", "global-strict-fairness-policy")
	l.only(path+".orderingPolicyRef", b.OrderingPolicyRef, "", "fcfs-ordering-policy")
	l.effects(path, reflect.ValueOf(*b), reflect.ValueOf(bandSection{}))
}

func (l *loader) detector(path string, ref *pluginRef) {
	if ref == nil || ref.PluginRef == "utilization-detector" && l.named["utilization-detector"] == nil {
		return // the default one exists without being listed
	}
	l.find(path+".pluginRef", ref.PluginRef, "utilization-detector")
}

func (l *loader) nonNegative(path string, q strictyaml.Quantity) {
	if q < 0 {
		l.Fail(path, "got %d, want 0 or more", q)
	}
}

func (l *loader) ttl(path string, d time.Duration) {
	if d < 0 {
		l.Fail(path, "got %v, want 0s or more", d)
	}
}

// only enters a problem unless got is one of accepted, which all mean the same as the default. The problem names the
// last of them.
func (l *loader) only(path, got string, accepted ...string) {
	if !slices.Contains(accepted, got) {
		l.Fail(path, "got %s, which has no effect yet; only %s does", clip.Value(got), accepted[len(accepted)-1])
	}
}

// show returns a default as a file has it.
func show(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String()
	case string:
		return strconv.Quote(x)
	case int:
		return strconv.Itoa(x)
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(x)
	case strictyaml.Quantity:
		return strconv.FormatInt(int64(x), 10)
	}
	return "none"
}
