package config

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/engine/clip"
)

// others maps the types of plugins that are built into the server to their parameters with defaults. What they
// configure is always there, or is switched on by naming it.
var others = map[string]func() any{
	prefixProducer: func() any {
		return &ApproxPrefixCache{AutoTune: true, BlockSizeTokens: 16, MaxPrefixBlocksToMatch: 2048,
			MaxPrefixTokensToMatch: 131072, LRUCapacityPerServer: 31250}
	},
	"core-metrics-extractor": func() any {
		return &CoreMetrics{EngineLabelKey: engineLabel, DefaultEngine: vllm}
	},
	"disagg-headers-handler":               func() any { return new(DisaggHeaders) },
	"destination-endpoint-served-verifier": func() any { return new(ServedVerifier) },
	"document-data-source": func() any {
		return &DocumentSource{HTTPSource: HTTPSource{Scheme: "http", InsecureSkipVerify: true}}
	},
	"file-discovery":         func() any { return new(FileDiscovery) },
	"inflight-load-producer": func() any { return &InflightLoad{OutputRatio: 1.5, SyncCrossReplicaState: true} },
	"json-extractor":         func() any { return new(JSONExtractor) },
	"metrics-data-source": func() any {
		return &MetricsSource{HTTPSource: HTTPSource{Scheme: "http", Path: "/metrics", InsecureSkipVerify: true}}
	},
	"models-responder":      func() any { return new(ModelsResponder) },
	"models-data-extractor": func() any { return new(ModelsExtractor) },
	"models-data-source": func() any {
		return &ModelsSource{HTTPSource{Scheme: "http", Path: "/v1/models", InsecureSkipVerify: true}}
	},
	"endpoint-notification-source": func() any { return new(NotificationSource) },
	"k8s-notification-source":      func() any { return new(ObjectSource) },
	"openai-parser":                func() any { return new(OpenAIParser) },
	"anthropic-parser":             func() any { return new(AnthropicParser) },
	"vllmhttp-parser":              func() any { return new(VLLMHTTPParser) },
	"sglanghttp-parser":            func() any { return new(SGLangHTTPParser) },
	"vertexai-parser":              func() any { return new(VertexAIParser) },
	"vllmgrpc-parser":              func() any { return new(VLLMGRPCParser) },
	"prometheus-extractor":         func() any { return new(PrometheusExtractor) },
	"passthrough-parser":           func() any { return new(PassthroughParser) },
	"prefill-header-handler":       func() any { return new(DisaggHeaders) },
	"token-producer":               func() any { return &TokenProducer{Backend: "estimate"} },
	"topology-extractor":           func() any { return new(TopologyExtractor) },
}

// LeastInterval is the shortest time between two readings of a page. A real server takes milliseconds to write a page,
// and its requests wait meanwhile.
const LeastInterval = 10 * time.Millisecond

const (
	engineLabel       = "llm-d.ai/engine-type"
	legacyEngineLabel = "inference.networking.k8s.io/engine-type"
)

// pageSource is a source of pages that each endpoint has, or that are of the whole pool. A type of others that is one
// is a source.
type pageSource interface {
	place() *HTTPSource
	// extractors lists the types that are built in and read its pages; that which reads any page of it is the last.
	extractors() []string
	// further sets what of a page beside the main one the place does not say.
	further(f *FurtherSource)
}

const (
	coreExtractor   = "core-metrics-extractor"
	modelsExtractor = "models-data-extractor"
	prefixProducer  = "approx-prefix-cache-producer"

	topologyExtractor = "topology-extractor"
)

// notifiedTypes lists the types that an endpoint-notification-source may name. They know of each endpoint without it.
var notifiedTypes = []string{topologyExtractor, "inflight-load-producer", "mm-embeddings-cache-producer"}

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
	// InsecureSkipVerify accepts any certificate; false = only those that caCertPath or the system's roots vouch for.
	InsecureSkipVerify bool `json:"insecureSkipVerify"`
	// CACertPath is a file of certificates that are trusted in place of the system's roots, in PEM. It has no effect
	// while insecureSkipVerify is true, nor has one of these files without https. A file that changes is read anew
	// within ten seconds.
	CACertPath string `json:"caCertPath"`
	// ClientCertPath is a file with the certificate to show, in PEM.
	ClientCertPath string `json:"clientCertPath"`
	// ClientKeyPath is a file with the key of that certificate, in PEM.
	ClientKeyPath string `json:"clientKeyPath"`
	// Interval is the time between two readings, 10ms or more; 0 or absent = what the command line says for the metrics
	// page, 30s for the model list, 2s for one that a models-responder answers with, 1s for a document of the whole
	// pool. A page or document is read the second time after a random part of it, so that endpoints which came together
	// are not read together.
	Interval time.Duration `json:"interval"`
}

// Adapt says which files have no effect.
func (p *HTTPSource) Adapt() (warnings []error) { return p.adapt(p.Scheme == "https") }

// adapt does so of a page that is read with TLS, or without. It completes a path, and raises an interval that is too
// short.
func (p *HTTPSource) adapt(secure bool) (warnings []error) {
	if p.Path != "" && p.Path[0] != '/' {
		warnings = append(warnings, fmt.Errorf("path: %s, which counts as /%[1]s", clip.Value(p.Path)))
		p.Path = "/" + p.Path
	}
	if p.Interval > 0 && p.Interval < LeastInterval {
		warnings = append(warnings, fmt.Errorf("interval: got %v, which counts as %v, the least", p.Interval,
			LeastInterval))
		p.Interval = LeastInterval
	}
	for _, f := range []struct{ name, file string }{
		{"caCertPath", p.CACertPath}, {"clientCertPath", p.ClientCertPath}, {"clientKeyPath", p.ClientKeyPath},
	} {
		if f.file != "" && !secure {
			warnings = append(warnings, fmt.Errorf("%s: has no effect without https", f.name))
		}
	}
	if p.CACertPath != "" && p.InsecureSkipVerify && secure {
		warnings = append(warnings, errors.New("caCertPath: has no effect while insecureSkipVerify is true"))
	}
	return warnings
}

// Validate returns which parameters are out of range.
func (p *HTTPSource) Validate() error {
	var errs []error
	if p.ClientCertPath != "" && p.ClientKeyPath == "" {
		errs = append(errs, errors.New("clientKeyPath: missing beside clientCertPath"))
	}
	if p.ClientKeyPath != "" && p.ClientCertPath == "" {
		errs = append(errs, errors.New("clientCertPath: missing beside clientKeyPath"))
	}
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

// page returns the parameters as a Source that is read.
func (p *HTTPSource) page(of map[string]string) Source {
	return Source{Select: of, Enabled: true, Scheme: p.Scheme, Path: p.Path, Port: p.Port, Interval: p.Interval,
		InsecureSkipVerify: p.InsecureSkipVerify, CACertPath: p.CACertPath, ClientCertPath: p.ClientCertPath,
		ClientKeyPath: p.ClientKeyPath}
}

// MetricsSource is a metrics page of every model server, or of those that its entry in dataLayer.sources selects. One
// is read whether or not it is named, unless dataLayer.injectDefaults is false. There may be further ones with names of
// their own: each has its own turns, and its attributes are as old as its own last answer.
type MetricsSource struct {
	HTTPSource
	// Families are the metrics of the page that are read. Here these are always those that plugins need alone.
	Families []string `json:"families" effect:"warning"`
}

func (p *MetricsSource) place() *HTTPSource { return &p.HTTPSource }

func (p *MetricsSource) extractors() []string { return []string{coreExtractor, "prometheus-extractor"} }

func (p *MetricsSource) further(*FurtherSource) {}

// DocumentSource is a JSON document that every model server has, or those that its entry in dataLayer.sources selects;
// or one document of the whole pool, in a file, at a URL, or pushed. Exactly one of path, url, file and pushed says
// which. There may be any number, with names of their own. A json-extractor says what is taken.
type DocumentSource struct {
	HTTPSource
	// URL is where a document of the whole pool is, http or https; it is read once an interval, which is 1s by default.
	URL string `json:"url"`
	// File has a document of the whole pool; it is read as url is.
	File string `json:"file"`
	// Pushed waits for a document of the whole pool, which PUT /sources/NAME?ttl=30s of the metrics port brings.
	Pushed bool `json:"pushed"`
}

func (p *DocumentSource) place() *HTTPSource { return &p.HTTPSource }

func (p *DocumentSource) extractors() []string { return []string{"json-extractor"} }

// poolDocumentInterval is the time between two readings of a document of the whole pool, by default.
const poolDocumentInterval = time.Second

func (p *DocumentSource) further(f *FurtherSource) {
	f.Document = true
	if p.ofPool() {
		f.URL, f.File, f.Pushed, f.Interval = p.URL, p.File, p.Pushed, cmp.Or(f.Interval, poolDocumentInterval)
	}
}

// Adapt says which files have no effect.
func (p *DocumentSource) Adapt() (warnings []error) {
	return p.adapt(p.Path != "" && p.Scheme == "https" || strings.HasPrefix(p.URL, "https://"))
}

// ofPool reports whether it is a document of the whole pool.
func (p *DocumentSource) ofPool() bool { return p.Path == "" }

// Validate returns which parameters are missing or out of range.
func (p *DocumentSource) Validate() error {
	var named []string
	for _, place := range []struct {
		name string
		is   bool
	}{{"path", p.Path != ""}, {"url", p.URL != ""}, {"file", p.File != ""}, {"pushed", p.Pushed}} {
		if place.is {
			named = append(named, place.name)
		}
	}
	var errs []error
	switch len(named) {
	case 0:
		errs = append(errs, errors.New("path: missing; name one of path, url, file and pushed"))
	case 1:
	default:
		errs = append(errs, fmt.Errorf("%s: stands beside %s, want one of path, url, file and pushed", named[1],
			named[0]))
	}
	at := p.HTTPSource
	if p.ofPool() {
		if p.Port != 0 {
			errs = append(errs, fmt.Errorf("port: got %d, which only path has", p.Port))
		}
		if p.URL != "" {
			errs = append(errs, checkURL(p.URL))
		}
		at.Path, at.Port = "/", 0
	}
	return errors.Join(append(errs, at.Validate())...)
}

// ObjectSource is the objects of one kind of Kubernetes, which are watched where pods are followed: those of the
// pool's namespace, or of the cluster if the kind has no namespaces. It needs the right to list and watch them, which
// the roles of deploy/kubernetes do not give. Plugins see one document of the whole pool, which has each object under
// its name; a json-extractor takes from it what is a number. It is up to date within a second, and while the API
// server is away its last objects stay. There may be any number, with names of their own.
type ObjectSource struct {
	// Group is the API group of the kind; empty = the core group, which has Pods and Nodes.
	Group string `json:"group"`
	// Version is the version of the group, such as v1; required.
	Version string `json:"version"`
	// Kind is the kind as objects have it, such as Deployment; required.
	Kind string `json:"kind"`

	at HTTPSource // of no page, for nothing is asked of endpoints
}

func (p *ObjectSource) place() *HTTPSource { return &p.at }

func (p *ObjectSource) extractors() []string { return []string{"json-extractor"} }

func (p *ObjectSource) further(f *FurtherSource) {
	f.Document, f.Interval = true, poolDocumentInterval
	f.Objects = ObjectKind{Group: p.Group, Version: p.Version, Kind: p.Kind}
}

// Validate returns which parameters are missing, or are no names.
func (p *ObjectSource) Validate() error {
	var errs []error
	if p.Version == "" {
		errs = append(errs, errors.New("version: missing; name the version of the kind, such as v1"))
	}
	if p.Kind == "" {
		errs = append(errs, errors.New("kind: missing; name the kind of the objects, such as Deployment"))
	}
	for _, part := range []struct{ name, value string }{
		{"group", p.Group}, {"version", p.Version}, {"kind", p.Kind},
	} {
		if strings.ContainsFunc(part.value, notInName) { // it becomes a part of a path
			errs = append(errs, fmt.Errorf("%s: got %q, want letters, digits, dots and hyphens", part.name,
				clip.Value(part.value)))
		}
	}
	return errors.Join(errs...)
}

func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '-'
}

// checkURL returns an error if a document cannot be read there.
func checkURL(text string) error {
	scheme, rest, _ := strings.Cut(text, "://")
	host, _, _ := strings.Cut(rest, "/")
	unfit := func(r rune) bool { return r <= ' ' || r > '~' }
	switch {
	case scheme != "http" && scheme != "https" || host == "" || strings.ContainsFunc(text, unfit):
		return fmt.Errorf("url: got %q, want one such as http://127.0.0.1:9000/hints", clip.Value(text))
	case strings.Contains(host, "@"):
		return errors.New("url: it has a user, want one without")
	}
	return nil
}

// ModelsSource is the model list of every model server. It is read only if dataLayer.sources names it, or for a
// models-responder. No other plugin uses it: /debug/endpoints shows its models, and requests for them get labels of
// their own in metrics. After a failure, a restart of the server, or an adapter that is not in it, it is read again
// before its interval is over.
type ModelsSource struct{ HTTPSource }

// ModelsResponder answers GET /v1/models with the models of all servers, adapters included, by their names alone. A
// server knows its own. The model list is read from each server if no source of it is named. While none is known, a
// server answers.
type ModelsResponder struct{}

// NotificationSource tells that endpoints come, change and go. It has no effect, because plugins always see endpoints
// with their labels as they are; nor has it with an inflight-load-producer or an mm-embeddings-cache-producer, which
// forget an endpoint that goes. It has no parameters.
type NotificationSource struct{}

// DisaggHeaders states that headers tell the sidecar of the decode server the servers of the other stages. It has no
// effect: disagg-profile-handler sets these headers, with or without it.
type DisaggHeaders struct {
	// PrefillProfile names the profile of prefill servers. The profiles of disagg-profile-handler count.
	PrefillProfile string `json:"prefillProfile" effect:"warning"`
	// EncodeProfile names the profile of encode servers. The profiles of disagg-profile-handler count.
	EncodeProfile string `json:"encodeProfile" effect:"warning"`
}

// OpenAIParser reads the model and the prompt of chat completions, completions, responses, embeddings and images, and
// the model of speech, conversations, rendered prompts and forms, such as transcriptions. Requests of other forms pass
// without. The paths of its requests end in /chat/completions, /completions, /responses, /embeddings,
// /images/generations, /audio/speech, /conversations, /chat/completions/render and /completions/render. Of the ends
// that all parsers know the longest counts.
type OpenAIParser struct {
	// PropagatePriority stood here for that of requestHandler.
	PropagatePriority bool `json:"propagatePriority"`
}

// Adapt says where the parameter stands now.
func (p *OpenAIParser) Adapt() (warnings []error) {
	if p.PropagatePriority {
		warnings = append(warnings, errors.New("propagatePriority: deprecated, write requestHandler.propagatePriority"))
	}
	return warnings
}

// AnthropicParser reads the model and the prompt of messages, and the model of messages whose tokens are counted, or
// that are rendered. The paths of its requests end in /messages, /messages/count_tokens and /messages/render.
type AnthropicParser struct{}

// VLLMHTTPParser reads the model and the tokens of vLLM's own requests, whose paths end in /inference/v1/generate.
type VLLMHTTPParser struct{}

// SGLangHTTPParser reads the prompt of SGLang's own requests, which name no model: text or tokens. Their paths end in
// /generate.
type SGLangHTTPParser struct{}

// VLLMGRPCParser reads the prompt of calls to Generate and Embed of vLLM's own service for gRPC, which name no model:
// text or tokens. Their paths end in vllm.grpc.engine.VllmEngine/Generate and vllm.grpc.engine.VllmEngine/Embed.
// Messages that are compressed are not read.
type VLLMGRPCParser struct{}

// VertexAIParser reads the model and the prompt of calls to ChatCompletions, RawPredict and StreamRawPredict of Vertex,
// for gRPC. What the first one wraps is a chat completion, what the others wrap is of the responses API. Their paths
// end in PredictionService/ChatCompletions, PredictionService/RawPredict and PredictionService/StreamRawPredict.
// Messages that are compressed are not read.
type VertexAIParser struct{}

// PassthroughParser reads nothing: requests are routed without model and prompt. Parsers listed after it have no
// effect.
type PassthroughParser struct{}

// ApproxPrefixCache is the index of the prompt blocks that each server was sent. All plugins share one, of blocks of 64
// tokens at 4 bytes a token. Of several in a file the first one's sizes hold, and the largest capacity.
type ApproxPrefixCache struct {
	// AutoTune has what the metrics page of a server says of its cache go before blockSizeTokens and
	// lruCapacityPerServer: the tokens of a block, and how many blocks there are. The index then has as many blocks,
	// of 64 tokens or more each, which is more than a cache holds whose blocks are smaller.
	AutoTune bool `json:"autoTune"`
	// BlockSizeTokens is how many tokens a block has, in which prompts are compared; less than 64 counts as 64.
	BlockSizeTokens int `json:"blockSizeTokens"`
	// BlockSize is the older name of blockSizeTokens.
	BlockSize *int `json:"blockSize" older:"blockSizeTokens"`
	// MaxPrefixBlocksToMatch bounds the blocks of one prompt that count, if maxPrefixTokensToMatch is 0; 0 = all of the
	// first 2 MiB.
	MaxPrefixBlocksToMatch int `json:"maxPrefixBlocksToMatch"`
	// MaxPrefixTokensToMatch bounds the tokens of one prompt that count; 0 = maxPrefixBlocksToMatch does.
	MaxPrefixTokensToMatch int `json:"maxPrefixTokensToMatch"`
	// LRUCapacityPerServer bounds the blocks of one server; 0 = 31250. Above 1048576 it counts as that, with a warning.
	// Of a server at its bound, blocks used longest ago are forgotten.
	LRUCapacityPerServer int `json:"lruCapacityPerServer"`
	// FollowCaches has the index hold what the caches of servers hold: as much as their pages tell, by the bytes of a
	// token that answers teach for each model, and without what the cached tokens of answers show to be lost. So it is
	// without a configuration file. Otherwise a server is taken for the home of a prompt longer than its cache holds
	// it.
	FollowCaches bool `json:"followCaches"`
}

// Validate returns which parameters are out of range.
func (p *ApproxPrefixCache) Validate() error {
	var errs []error
	for _, c := range []struct {
		name string
		got  int
	}{
		{"blockSizeTokens", p.BlockSizeTokens},
		{"maxPrefixBlocksToMatch", p.MaxPrefixBlocksToMatch},
		{"maxPrefixTokensToMatch", p.MaxPrefixTokensToMatch}, {"lruCapacityPerServer", p.LRUCapacityPerServer},
	} {
		if c.got < 0 {
			errs = append(errs, fmt.Errorf("%s: got %d, want 0 or more", c.name, c.got))
		}
	}
	return errors.Join(errs...)
}

// InflightLoad counts for each server the requests that were sent there and have not ended, and the tokens that are to
// be computed of their prompts: those that the server did not hold at the pick, until the first token comes, or until
// the end of an answer that is not streamed.
type InflightLoad struct {
	// AddEstimatedOutputTokens counts tokens that are expected in answers as well, and has all tokens of a request
	// count until it ends: 4096 of a long answer and 100 of a short one, as an outlen-bucket says, and of others
	// outputRatio times those of the prompt. The client's limit bounds them.
	AddEstimatedOutputTokens bool `json:"addEstimatedOutputTokens"`
	// OutputRatio is the expected number of output tokens for each prompt token, where nothing else is known; 0 to
	// 1000.
	OutputRatio float64 `json:"outputRatio"`
	// MaxEstimatedOutputTokens bounds the expected output of one request, 0 or more; absent = nothing does.
	MaxEstimatedOutputTokens *int `json:"maxEstimatedOutputTokens"`
	// PrefixMatchInfoProducerName names the approx-prefix-cache-producer; empty = the only one.
	PrefixMatchInfoProducerName string `json:"prefixMatchInfoProducerName" names:"approx-prefix-cache-producer"`
	// SyncCrossReplicaState says whether replicas share the counts. Each counts what it sent itself.
	SyncCrossReplicaState bool `json:"syncCrossReplicaState" effect:"warning"`
}

// Validate returns which parameters are out of range.
func (p *InflightLoad) Validate() error {
	var errs []error
	if !(p.OutputRatio >= 0 && p.OutputRatio <= 1000) {
		errs = append(errs, fmt.Errorf("outputRatio: got %v, want 0 to 1000", p.OutputRatio))
	}
	if n := p.MaxEstimatedOutputTokens; n != nil && *n < 0 {
		errs = append(errs, fmt.Errorf("maxEstimatedOutputTokens: got %d, want 0 or more", *n))
	}
	return errors.Join(errs...)
}
