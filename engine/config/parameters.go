package config

import (
	"errors"
	"fmt"
	"math"
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
	"core-metrics-extractor": func() any { return &CoreMetrics{EngineLabelKey: engineLabel, DefaultEngine: "vllm"} },
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

// MetricsSource is the metrics page of every model server. It is read whether or not it is named, unless
// dataLayer.injectDefaults is false.
type MetricsSource struct{ HTTPSource }

// ModelsSource is the model list of every model server. It is read only if dataLayer.sources names it.
type ModelsSource struct{ HTTPSource }

// ModelsExtractor takes the models from the model list. It has no parameters.
type ModelsExtractor struct{}

// CoreMetrics takes queue, batch, KV cache and LoRA adapters from the metrics page. The engine is the one that the
// endpoint's label says; without a label it is found from the page. The engines are vllm, llamacpp, and, unverified on
// real servers, sglang, trtllm-serve and triton-tensorrt-llm.
type CoreMetrics struct {
	// EngineLabelKey is the label that names an endpoint's engine. By default inference.networking.k8s.io/engine-type
	// is read as well.
	EngineLabelKey string `json:"engineLabelKey"`
	// DefaultEngine is the engine of endpoints without a label.
	DefaultEngine string `json:"defaultEngine" effect:"none"`
	// EngineConfigs are series of engines that are not built in.
	EngineConfigs []EngineSeries `json:"engineConfigs" effect:"none"`
}

// EngineSeries names the series of one engine, each as name{label=value}.
type EngineSeries struct {
	Name                    string         `json:"name"`
	QueuedRequestsSpec      string         `json:"queuedRequestsSpec"`
	RunningRequestsSpec     string         `json:"runningRequestsSpec"`
	KVUsageSpec             string         `json:"kvUsageSpec"`
	LoRASpec                string         `json:"loraSpec"`
	CacheInfoSpec           string         `json:"cacheInfoSpec"`
	CacheBlockSizeLabelName string         `json:"cacheBlockSizeLabelName"`
	CacheNumBlocksLabelName string         `json:"cacheNumBlocksLabelName"`
	CacheBlockSizeSpec      string         `json:"cacheBlockSizeSpec"`
	CacheNumBlocksSpec      string         `json:"cacheNumBlocksSpec"`
	CustomMetrics           []CustomSeries `json:"customMetrics"`
}

// CustomSeries is one series with the name under which plugins find it.
type CustomSeries struct {
	AttributeKey string `json:"attributeKey"`
	MetricSpec   string `json:"metricSpec"`
}

// Validate returns which parameters are missing.
func (p *CoreMetrics) Validate() error {
	if p.EngineLabelKey == "" {
		return errors.New("engineLabelKey: got none, want a label key")
	}
	return nil
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
