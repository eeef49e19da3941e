package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
)

// others maps the types of plugins that are built into the server to their parameters with defaults. What they
// configure is always there, or is switched on by naming it.
var others = map[string]func() any{
	"approx-prefix-cache-producer": func() any {
		return &ApproxPrefixCache{AutoTune: true, BlockSizeTokens: 16, MaxPrefixBlocksToMatch: 2048,
			MaxPrefixTokensToMatch: 131072, LRUCapacityPerServer: 31250}
	},
	"core-metrics-extractor": func() any { return &CoreMetrics{EngineLabelKey: engineLabel, DefaultEngine: vllm} },
	"file-discovery":         func() any { return new(FileDiscovery) },
	"inflight-load-producer": func() any { return &InflightLoad{OutputRatio: 1.5, SyncCrossReplicaState: true} },
	"metrics-data-source": func() any {
		return &MetricsSource{HTTPSource{Scheme: "http", Path: "/metrics", InsecureSkipVerify: true}}
	},
	"models-data-extractor": func() any { return new(ModelsExtractor) },
	"models-data-source": func() any {
		return &ModelsSource{HTTPSource{Scheme: "http", Path: "/v1/models", InsecureSkipVerify: true}}
	},
	"openai-parser":        func() any { return new(OpenAIParser) },
	"prometheus-extractor": func() any { return new(PrometheusExtractor) },
	"passthrough-parser":   func() any { return new(PassthroughParser) },
	"utilization-detector": func() any {
		return &UtilizationDetector{QueueDepthThreshold: 5, KVCacheUtilThreshold: 0.8,
			MetricsStalenessThreshold: 200 * time.Millisecond}
	},
}

// LeastInterval is the shortest time between two readings of a page. A real server takes milliseconds to write a page,
// and its requests wait meanwhile.
const LeastInterval = 10 * time.Millisecond

const (
	engineLabel       = "llm-d.ai/engine-type"
	legacyEngineLabel = "inference.networking.k8s.io/engine-type"
)

// FileDiscovery reads the endpoints from a file. It is named by dataLayer.discovery.
type FileDiscovery struct {
	// Path is the file, YAML or JSON; required.
	Path string `json:"path"`
	// WatchFile puts changes of the file in force while the server runs.
	WatchFile bool `json:"watchFile"`
}

// Validate returns which parameters are missing.
func (p *FileDiscovery) Validate() error {
	if p.Path == "" {
		return errors.New("path: missing; name the file of endpoints")
	}
	return nil
}

// HTTPSource is a page that every model server has.
type HTTPSource struct {
	// Scheme is http or https.
	Scheme string `json:"scheme"`
	// Path is the page's, beginning with a slash.
	Path string `json:"path"`
	// Port is where the page is, 1 to 65535; 0 or absent = the endpoint's own port.
	Port int `json:"port"`
	// InsecureSkipVerify accepts any certificate; false = only those that the system's roots vouch for.
	InsecureSkipVerify bool `json:"insecureSkipVerify"`
	// CACertPath is a file of certificates that are trusted.
	CACertPath string `json:"caCertPath" effect:"none"`
	// ClientCertPath is a file with the certificate to show.
	ClientCertPath string `json:"clientCertPath" effect:"none"`
	// ClientKeyPath is a file with the key of that certificate.
	ClientKeyPath string `json:"clientKeyPath" effect:"none"`
	// Interval is the time between two readings, 10ms or more; 0 or absent = what the command line says for the metrics
	// page, 30s for the model list.
	Interval time.Duration `json:"interval"`
}

// Validate returns which parameters are out of range.
func (p *HTTPSource) Validate() error {
	var errs []error
	if p.Scheme != "http" && p.Scheme != "https" {
		errs = append(errs, fmt.Errorf("scheme: got %q, want http or https", clip.Value(p.Scheme)))
	}
	if !strings.HasPrefix(p.Path, "/") {
		errs = append(errs, fmt.Errorf("path: got %q, want a path that begins with /", clip.Value(p.Path)))
	}
	if p.Port < 0 || p.Port > 65535 {
		errs = append(errs, fmt.Errorf("port: got %d, want 1 to 65535, or 0 for the endpoint's", p.Port))
	}
	if p.Interval != 0 && p.Interval < LeastInterval {
		errs = append(errs, fmt.Errorf("interval: got %v, want 0s or %v or more", p.Interval, LeastInterval))
	}
	return errors.Join(errs...)
}

// MetricsSource is a metrics page of every model server, or of those that its entry in dataLayer.sources selects. One
// is read whether or not it is named, unless dataLayer.injectDefaults is false. There may be further ones with names of
// their own: each has its own turns, and its attributes are as old as its own last answer.
type MetricsSource struct{ HTTPSource }

// ModelsSource is the model list of every model server. It is read only if dataLayer.sources names it. Plugins do not
// read it: /debug/endpoints shows its models, and requests for them get labels of their own in metrics. After a
// failure, a restart of the server, or an adapter that is not in it, it is read again before its interval is over.
type ModelsSource struct{ HTTPSource }

// ModelsExtractor takes the models from the model list. It has no parameters.
type ModelsExtractor struct{}

// CoreMetrics takes queue, batch, KV cache and LoRA adapters from the metrics page. The engine is the one that the
// endpoint's label says; without a label it is defaultEngine, or is found from the page. The engines are those of
// engineConfigs, vllm, llamacpp, and, unverified on real servers, sglang, trtllm-serve and triton-tensorrt-llm.
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
	// AttributeKey is what plugins ask for, with a domain: example.com/watts; required.
	AttributeKey string `json:"attributeKey"`
	// MetricSpec is the series; the last one of a page counts; required.
	MetricSpec string `json:"metricSpec"`
}

// vllm is the default of defaultEngine.
const vllm = "vllm"

// builtInEngines are those whose series are known without a file.
var builtInEngines = []string{vllm, "sglang", "triton-tensorrt-llm", "trtllm-serve", "llamacpp"}

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
	// Name is what plugins ask for, with a domain: example.com/watts; required.
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
}

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

// OpenAIParser reads the model and the prompt of chat completions and completions. Requests of other forms pass
// without.
type OpenAIParser struct{}

// PassthroughParser reads nothing: requests are routed without model and prompt. Parsers listed after it have no
// effect.
type PassthroughParser struct{}

// ApproxPrefixCache is the index of the prompt blocks that each server was sent. Blocks are 256 bytes of prompt, about
// 64 tokens; the memory for each server is bounded by the index itself.
type ApproxPrefixCache struct {
	// AutoTune takes block size and capacity from the server's metrics.
	AutoTune bool `json:"autoTune" effect:"none"`
	// BlockSizeTokens is the size of a block.
	BlockSizeTokens int `json:"blockSizeTokens" effect:"warning"`
	// BlockSize is the older name of blockSizeTokens.
	BlockSize int `json:"blockSize" effect:"warning"`
	// MaxPrefixBlocksToMatch bounds the blocks of one prompt.
	MaxPrefixBlocksToMatch int `json:"maxPrefixBlocksToMatch" effect:"none"`
	// MaxPrefixTokensToMatch bounds the tokens of one prompt.
	MaxPrefixTokensToMatch int `json:"maxPrefixTokensToMatch" effect:"none"`
	// LRUCapacityPerServer bounds the blocks of one server.
	LRUCapacityPerServer int `json:"lruCapacityPerServer" effect:"warning"`
}

// Validate returns which parameters are out of range.
func (p *ApproxPrefixCache) Validate() error {
	var errs []error
	for _, c := range []struct {
		name string
		got  int
	}{
		{"blockSizeTokens", p.BlockSizeTokens}, {"blockSize", p.BlockSize},
		{"maxPrefixBlocksToMatch", p.MaxPrefixBlocksToMatch},
		{"maxPrefixTokensToMatch", p.MaxPrefixTokensToMatch}, {"lruCapacityPerServer", p.LRUCapacityPerServer},
	} {
		if c.got < 0 {
			errs = append(errs, fmt.Errorf("%s: got %d, want 0 or more", c.name, c.got))
		}
	}
	return errors.Join(errs...)
}

// InflightLoad counts the requests and prompt tokens that were sent to each server and have not ended.
type InflightLoad struct {
	// AddEstimatedOutputTokens counts tokens that are expected in answers as well.
	AddEstimatedOutputTokens bool `json:"addEstimatedOutputTokens" effect:"none"`
	// OutputRatio is the expected number of output tokens for each prompt token.
	OutputRatio float64 `json:"outputRatio" effect:"none"`
	// MaxEstimatedOutputTokens bounds the expected output of one request.
	MaxEstimatedOutputTokens *int `json:"maxEstimatedOutputTokens" effect:"none"`
	// PrefixMatchInfoProducerName names the approx-prefix-cache-producer; empty = the only one.
	PrefixMatchInfoProducerName string `json:"prefixMatchInfoProducerName" names:"approx-prefix-cache-producer"`
	// SyncCrossReplicaState shares the counts between replicas.
	SyncCrossReplicaState bool `json:"syncCrossReplicaState" effect:"none"`
}

// UtilizationDetector says how full the pool is: the mean over all servers of queue and KV cache, each as a share of
// its threshold, the larger of both.
type UtilizationDetector struct {
	// QueueDepthThreshold is the queue, in requests, of a full server.
	QueueDepthThreshold int `json:"queueDepthThreshold" effect:"none"`
	// KVCacheUtilThreshold is the KV cache use of a full server, 0 to 1.
	KVCacheUtilThreshold float64 `json:"kvCacheUtilThreshold" effect:"none"`
	// MetricsStalenessThreshold is the age from which a server's numbers count as those of a full one.
	MetricsStalenessThreshold time.Duration `json:"metricsStalenessThreshold" effect:"none"`
	// Headroom is the share by which a server may be fuller and still pass a filter.
	Headroom float64 `json:"headroom" effect:"none"`
}

// Validate returns which parameters are out of range.
func (p *UtilizationDetector) Validate() error {
	var errs []error
	if p.QueueDepthThreshold < 1 {
		errs = append(errs, fmt.Errorf("queueDepthThreshold: got %d, want 1 or more", p.QueueDepthThreshold))
	}
	if !(p.KVCacheUtilThreshold > 0 && p.KVCacheUtilThreshold <= 1) {
		errs = append(errs, fmt.Errorf("kvCacheUtilThreshold: got %v, want more than 0, at most 1",
			p.KVCacheUtilThreshold))
	}
	if p.MetricsStalenessThreshold <= 0 {
		errs = append(errs, fmt.Errorf("metricsStalenessThreshold: got %v, want more than 0s",
			p.MetricsStalenessThreshold))
	}
	if !(p.Headroom >= 0 && p.Headroom <= math.MaxFloat64) {
		errs = append(errs, fmt.Errorf("headroom: got %v, want 0 or more", p.Headroom))
	}
	return errors.Join(errs...)
}
