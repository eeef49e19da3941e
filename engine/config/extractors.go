package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
)

// CoreMetrics takes queue, batch, KV cache and LoRA adapters from the metrics page. The engine is the one that the
// endpoint's label says; without a label it is defaultEngine, or is found from the page. The engines are those of
// engineConfigs, vllm, llamacpp, and, unverified on real servers, sglang, trtllm-serve, triton-tensorrt-llm and, if it
// is named, triton, of which only the queue is known.
type CoreMetrics struct {
	// EngineLabelKey is the label that names an endpoint's engine. By default inference.networking.k8s.io/engine-type
	// is read as well.
	EngineLabelKey string `json:"engineLabelKey"`
	// DefaultEngine is the engine of endpoints whose label names none that is known; vllm = the first engine that is
	// built in and of which the page has a series.
	DefaultEngine string `json:"defaultEngine"`
	// EngineConfigs are the series of further engines; one with the name of an engine that is built in replaces it.
	EngineConfigs []EngineSeries `json:"engineConfigs"`
}

// EngineSeries names the series of one engine. A spec is the name of a metric, and the labels that a series must have
// to count: name{label=value,label=value}. A spec that is empty or absent means that the engine does not report it.
type EngineSeries struct {
	// Name is what the label of an endpoint says; required.
	Name string `json:"name"`
	// QueuedRequestsSpec counts the requests that wait; the sum of its series counts.
	QueuedRequestsSpec string `json:"queuedRequestsSpec"`
	// RunningRequestsSpec counts the requests that run; the sum of its series counts.
	RunningRequestsSpec string `json:"runningRequestsSpec"`
	// KVUsageSpec is the share of the KV cache in use, 0 to 1; the mean of its series counts.
	KVUsageSpec string `json:"kvUsageSpec"`
	// LoRASpec has the labels running_lora_adapters, waiting_lora_adapters and max_lora, as vllm:lora_requests_info.
	LoRASpec string `json:"loraSpec"`
	// CacheInfoSpec has the size of the KV cache in its labels.
	CacheInfoSpec string `json:"cacheInfoSpec"`
	// CacheBlockSizeLabelName is the label of cacheInfoSpec with the tokens of a block; empty = block_size.
	CacheBlockSizeLabelName string `json:"cacheBlockSizeLabelName"`
	// CacheNumBlocksLabelName is the label of cacheInfoSpec with the number of blocks; empty = num_gpu_blocks.
	CacheNumBlocksLabelName string `json:"cacheNumBlocksLabelName"`
	// CacheBlockSizeSpec is the number of tokens of a block, in place of cacheInfoSpec.
	CacheBlockSizeSpec string `json:"cacheBlockSizeSpec"`
	// CacheNumBlocksSpec is the number of blocks, in place of cacheInfoSpec.
	CacheNumBlocksSpec string `json:"cacheNumBlocksSpec"`
	// CustomMetrics are attributes of any name, of endpoints of this engine.
	CustomMetrics []CustomSeries `json:"customMetrics"`
}

// CustomSeries is one series with the name under which plugins find it.
type CustomSeries struct {
	// AttributeKey is what plugins ask for, such as example.com/watts; required.
	AttributeKey string `json:"attributeKey"`
	// MetricSpec is the series; the last one of a page counts; required.
	MetricSpec string `json:"metricSpec"`
	// Optional says that a page may lack the series. It changes nothing: a page that lacks one is no error, and the
	// attribute is then unknown.
	Optional bool `json:"optional"`
}

// vllm is the default of defaultEngine.
const vllm = "vllm"

// builtInEngines are those whose series are known without a file.
var builtInEngines = []string{vllm, "sglang", "triton-tensorrt-llm", "trtllm-serve", "llamacpp", "triton"}

// Validate returns which parameters are missing or out of range.
func (p *CoreMetrics) Validate() error {
	var errs []error
	if p.EngineLabelKey == "" {
		errs = append(errs, errors.New("engineLabelKey: got none, want a label key"))
	}
	known := slices.Clone(builtInEngines)
	seen := map[string]bool{}
	for i := range p.EngineConfigs {
		e := &p.EngineConfigs[i]
		at := item("engineConfigs", i)
		switch {
		case e.Name == "":
			errs = append(errs, fmt.Errorf("%s.name: got none, want what the label of an endpoint says", at))
		case seen[e.Name]:
			errs = append(errs, fmt.Errorf("%s.name: %s stands twice", at, clip.Value(e.Name)))
		}
		seen[e.Name] = true
		known = append(known, e.Name)
		errs = append(errs, e.check(at)...)
	}
	if p.DefaultEngine == "" || !slices.Contains(known, p.DefaultEngine) {
		errs = append(errs, fmt.Errorf("defaultEngine: got %q, want one of engineConfigs or of %v",
			clip.Value(p.DefaultEngine), builtInEngines))
	}
	return errors.Join(errs...)
}

func (e *EngineSeries) check(at string) (errs []error) {
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s.%s: "+format, append([]any{at, key}, args...)...))
	}
	none := len(e.CustomMetrics) == 0
	for _, s := range e.specs() {
		none = none && *s.text == ""
		if _, err := parseSpec(*s.text); err != nil && *s.text != "" {
			fail(s.key, "%w", err)
		}
	}
	if none && e.CacheInfoSpec == "" {
		errs = append(errs, fmt.Errorf("%s: got no series, want at least one", at))
	}
	for _, s := range []struct {
		key, text string
		label     bool // of cacheInfoSpec
	}{
		{"cacheBlockSizeLabelName", e.CacheBlockSizeLabelName, true},
		{"cacheNumBlocksLabelName", e.CacheNumBlocksLabelName, true},
		{"cacheBlockSizeSpec", e.CacheBlockSizeSpec, false},
		{"cacheNumBlocksSpec", e.CacheNumBlocksSpec, false},
	} {
		switch {
		case s.text == "":
		case s.label && e.CacheInfoSpec == "":
			fail(s.key, "got %q without a cacheInfoSpec, of which it is a label", clip.Value(s.text))
		case !s.label && e.CacheInfoSpec != "":
			fail(s.key, "stands beside cacheInfoSpec, want one of them")
		}
	}
	seen := map[string]bool{}
	for i, m := range e.CustomMetrics {
		key := item("customMetrics", i)
		if err := attributes.CheckName(m.AttributeKey); err != nil {
			fail(key+".attributeKey", "%w", err)
		} else if seen[m.AttributeKey] {
			fail(key+".attributeKey", "%s stands twice", clip.Value(m.AttributeKey))
		}
		seen[m.AttributeKey] = true
		if _, err := parseSpec(m.MetricSpec); err != nil {
			fail(key+".metricSpec", "%w", err)
		}
	}
	return errs
}

// spec is one parameter that names a series.
type spec struct {
	key  string
	text *string
}

func (e *EngineSeries) specs() []spec {
	return []spec{
		{"queuedRequestsSpec", &e.QueuedRequestsSpec}, {"runningRequestsSpec", &e.RunningRequestsSpec},
		{"kvUsageSpec", &e.KVUsageSpec}, {"loraSpec", &e.LoRASpec}, {"cacheInfoSpec", &e.CacheInfoSpec},
		{"cacheBlockSizeSpec", &e.CacheBlockSizeSpec}, {"cacheNumBlocksSpec", &e.CacheNumBlocksSpec},
	}
}

// parseSpec reads name{label=value,label=value}. Quotes around a value are taken off.
func parseSpec(text string) (s Series, err error) {
	bad := fmt.Errorf("got %q, want a metric as name or name{label=value}", clip.Value(text))
	name, rest, labelled := strings.Cut(text, "{")
	s.Metric = strings.TrimSpace(name)
	if !metricName(s.Metric) {
		return s, bad
	}
	if !labelled {
		return s, nil
	}
	rest, closed := strings.CutSuffix(strings.TrimSpace(rest), "}")
	if !closed {
		return s, bad
	}
	for pair := range strings.SplitSeq(rest, ",") {
		key, value, ok := strings.Cut(pair, "=")
		key = strings.TrimSpace(key)
		if strings.TrimSpace(pair) == "" && strings.TrimSpace(rest) == "" {
			break // no label at all
		}
		if _, twice := s.Labels[key]; !ok || !metricName(key) || twice {
			return s, bad
		}
		if s.Labels == nil {
			s.Labels = map[string]string{}
		}
		s.Labels[key] = unquoted(strings.TrimSpace(value))
	}
	return s, nil
}

func unquoted(s string) string {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}

// engines returns the engines of the file. Validate has found them good.
func (p *CoreMetrics) engines() []Engine {
	var all []Engine
	for i := range p.EngineConfigs {
		e := &p.EngineConfigs[i]
		var s [7]Series
		for j, x := range e.specs() {
			if *x.text != "" {
				s[j], _ = parseSpec(*x.text)
			}
		}
		all = append(all, Engine{
			Name: e.Name, Queued: s[0], Running: s[1], KVUsage: s[2], LoRA: s[3], CacheInfo: s[4], BlockTokens: s[5],
			Blocks: s[6], BlockTokensLabel: cmp.Or(e.CacheBlockSizeLabelName, "block_size"),
			BlocksLabel: cmp.Or(e.CacheNumBlocksLabelName, "num_gpu_blocks"),
		})
	}
	return all
}

// custom returns the attributes of engines of the file.
func (p *CoreMetrics) custom(producer string) []Extraction {
	var all []Extraction
	for _, e := range p.EngineConfigs {
		for _, m := range e.CustomMetrics {
			s, _ := parseSpec(m.MetricSpec)
			all = append(all, Extraction{
				ExtractedAttribute: ExtractedAttribute{Name: m.AttributeKey, Metric: s.Metric, Labels: s.Labels},
				Producer:           producer, Engine: e.Name,
			})
		}
	}
	return all
}

// PrometheusExtractor takes attributes of any name from the metrics page, for plugins that read an attribute by its
// name. A source of dataLayer.sources names it among its extractors.
type PrometheusExtractor struct {
	// Attributes are what is taken; at least one.
	Attributes []ExtractedAttribute `json:"attributes"`
}

// ExtractedAttribute is one attribute, and how it is made of series.
type ExtractedAttribute struct {
	// Name is what plugins ask for, such as example.com/watts; required.
	Name string `json:"name"`
	// Metric is the name of the series; required.
	Metric string `json:"metric"`
	// Labels are those that a series must have to count, with these values; none = all count.
	Labels map[string]string `json:"labels"`
	// Aggregation makes one value of several series: last, sum, max, rate (the sum's increase per second) or ratio (the
	// sum divided by that of per); absent = last.
	Aggregation string `json:"aggregation"`
	// Per is the metric that a ratio divides by; its series need the labels, too.
	Per string `json:"per"`

	field string // of a JSON document, in place of all but Name; "" = it is made of series
	by    ExtractedBy
}

// ExtractedBy is an extractor of another module, in place of series and fields. The zero ExtractedBy is none.
type ExtractedBy struct {
	attributes.Extractor
	At int // of its attributes
}

// By returns the extractor of another module that takes the attribute.
func (a *ExtractedAttribute) By() ExtractedBy { return a.by }

// Field returns the path of the field of a JSON document that has the value; "" = the attribute is made of series.
func (a *ExtractedAttribute) Field() string { return a.field }

// Validate returns which parameters are missing or out of range.
func (p *PrometheusExtractor) Validate() error {
	var errs []error
	fail := func(i int, key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("attributes[%d].%s: "+format, append([]any{i, key}, args...)...))
	}
	if len(p.Attributes) == 0 {
		errs = append(errs, errors.New("attributes: got none, want at least one"))
	}
	seen := map[string]bool{}
	for i, a := range p.Attributes {
		if err := attributes.CheckName(a.Name); err != nil {
			fail(i, "name", "%w", err)
		} else if seen[a.Name] {
			fail(i, "name", "%s stands twice", clip.Value(a.Name))
		}
		seen[a.Name] = true
		if !metricName(a.Metric) {
			fail(i, "metric", "got %q, want the name of a metric", clip.Value(a.Metric))
		}
		switch a.Aggregation {
		case "", "last", "sum", "max", "rate":
			if a.Per != "" {
				fail(i, "per", "got %q, which only aggregation ratio has", clip.Value(a.Per))
			}
		case "ratio":
			if !metricName(a.Per) {
				fail(i, "per", "got %q, want the name of a metric", clip.Value(a.Per))
			}
		default:
			fail(i, "aggregation", "got %q, want last, sum, max, rate or ratio", clip.Value(a.Aggregation))
		}
	}
	return errors.Join(errs...)
}

// metricName reports whether Prometheus can have a metric of this name.
func metricName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == '{' || r == '"' })
}

// JSONExtractor takes attributes of any name from a JSON document, for plugins that read an attribute by its name. A
// document-data-source of dataLayer.sources names it among its extractors.
type JSONExtractor struct {
	// Attributes are what is taken; at least one.
	Attributes []DocumentAttribute `json:"attributes"`
}

// DocumentAttribute is one attribute, and the field that has its value.
type DocumentAttribute struct {
	// Name is what plugins ask for, such as example.com/watts; required.
	Name string `json:"name"`
	// Field is the path of a number, or of true (1) or false (0): power.watts, or gpus.0.watts for the first of a list;
	// required. Anything else there counts as unknown. In a document of the whole pool, a key {endpoint} stands for the
	// endpoint's address and port, or, if there is no such key, for its name, or else for that of its pod, which is its
	// name without -rank-0: hints.{endpoint}.cost. One of objects begins with their names: {endpoint}.spec.cost.
	Field string `json:"field"`
}

// Validate returns which parameters are missing or out of range.
func (p *JSONExtractor) Validate() error {
	var errs []error
	if len(p.Attributes) == 0 {
		errs = append(errs, errors.New("attributes: got none, want at least one"))
	}
	seen := map[string]bool{}
	for i, a := range p.Attributes {
		at := item("attributes", i)
		if err := attributes.CheckName(a.Name); err != nil {
			errs = append(errs, fmt.Errorf("%s.name: %w", at, err))
		} else if seen[a.Name] {
			errs = append(errs, fmt.Errorf("%s.name: %s stands twice", at, clip.Value(a.Name)))
		}
		seen[a.Name] = true
		if slices.Contains(strings.Split(a.Field, "."), "") {
			errs = append(errs, fmt.Errorf("%s.field: got %q, want the path of a field such as power.watts", at,
				clip.Value(a.Field)))
		}
	}
	return errors.Join(errs...)
}

// extracted returns what an extractor takes from a page.
func extracted(plugin any) (all []ExtractedAttribute) {
	switch p := plugin.(type) {
	case *PrometheusExtractor:
		return p.Attributes
	case *JSONExtractor:
		for _, a := range p.Attributes {
			all = append(all, ExtractedAttribute{Name: a.Name, field: a.Field})
		}
	case attributes.Extractor:
		for i, name := range p.Emits() {
			all = append(all, ExtractedAttribute{Name: name, by: ExtractedBy{p, i}})
		}
	}
	return all
}

// extractorTypes lists the types of extractors that are built in.
func extractorTypes() (types []string) {
	for _, typ := range sourceTypes() {
		if p, ok := construct(typ).(pageSource); ok {
			types = append(types, p.extractors()...)
		}
	}
	return append(types, modelsExtractor, topologyExtractor)
}

// ModelsExtractor takes the models from the model list. It has no parameters.
type ModelsExtractor struct{}

// TopologyExtractor states that labels say where endpoints stand: plugins for topology read them without it. Those of a
// pod are its own; without kubernetes.io/hostname its spec.hostname stands for it, or else the node that it is
// bound to. An endpoint-notification-source names it. It has no parameters.
type TopologyExtractor struct{}

// sourceTypes lists the types that an entry of dataLayer.sources may name.
func sourceTypes() (types []string) {
	for _, typ := range slices.Sorted(maps.Keys(others)) {
		switch others[typ]().(type) {
		case pageSource, *ModelsSource, *NotificationSource:
			types = append(types, typ)
		}
	}
	return append(types, latencyObserver)
}

// latencyObserver may stand among the sources, though it reads nothing there.
const latencyObserver = "latency-observer-producer-hub"
