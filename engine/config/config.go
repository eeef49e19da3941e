// Package config turns the bytes of a configuration file into plugins and plain values, or into a list of all problems,
// each with its line. It owns the file's format, its defaults, and the parameters of plugins that are built into the
// server. It never reads files, and never starts or runs what it configures.
package config

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/rewrites"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// maxValues is how many values a file may have, aliases counted as what they stand for.
const maxValues = 100_000

// Settings holds what the command line decides if the file does not.
type Settings struct {
	Destinations int           // how many endpoints a picker picks, at least 1
	Stale        time.Duration // the age from which a sample is stale, if that is more than three of its intervals
	Catalogue    *Catalogue    // the plugin types that a file may name; nil = those that are built in
	Additions    Additions
	Wait         time.Duration // how long a request waits for room at most without a file; 0 = as long as with one
	Gates        []string      // feature gates, as in a file, over those of the file; CheckGate has passed them
}

// Additions are objectives and rewrites that stand elsewhere than in the file. Those of the file go before them.
type Additions struct {
	Objectives map[string]int
	Rewrites   []rewrites.Rewrite
}

// Config is a checked and complete configuration. It never changes.
type Config struct {
	Plan *schedule.Plan // of at least one profile; each step has Type, Name and Reads, and Meter 0

	Discovery       Discovery
	Metrics         Source
	Models          Source
	ModelList       string          // the source of Models, by name; "" = it is not read
	AnswersModels   bool            // the model list of the whole pool answers GET /v1/models
	VerifiesServed  bool            // a header of responses names the server that served
	Further         []FurtherSource // beside Metrics
	Extractions     []Extraction    // those that a plugin reads
	Engines         []Engine        // beside those that are built in, or in place of one of the same name
	DefaultEngine   string          // of endpoints whose label names none that is known; "" = found from the page
	EngineLabelKeys []string        // labels that may name an endpoint's engine; the first that an endpoint has counts
	Parsers         []string        // types of those that parse request bodies; empty = no body is parsed

	// FlowHeaders are headers that name the flow of a request without a fairness id, best first.
	FlowHeaders []string
	// Priorities holds the priority of each objective by its name. A request that names no objective, or one that is
	// not here, has priority 0.
	Priorities map[string]int

	Trust Trust

	Rewrites []rewrites.Rewrite // in the order of the file, then those that were added

	SetsPriority bool // the priority of a request is written into its body

	Queueing *flow.Settings // how requests wait for room; nil = they do not, and the plan has no gate

	Warnings []strictyaml.Problem // parts of the file that have no effect, in the order of its lines
	// LightLane has what is not done, or done otherwise, in the light lane: by plugins of the file in the order of its
	// lines, then by its sections.
	LightLane []strictyaml.Problem
}

// Discovery says in which file the endpoints are.
type Discovery struct {
	Path  string             // "" = the configuration names no file
	Watch bool               // changes of the file take effect
	At    strictyaml.Problem // line and path of Path, without a text, for a problem with the file that it names
}

// Trust says who may set the headers by which a request names its flow, its objective and its deadlines. Set by
// anything else, they have no effect and are removed.
type Trust struct {
	By      string             // TrustHeader, TrustMetadata or TrustCertificate
	Proxies []string           // names in the certificates of those who may, with TrustCertificate
	Headers []string           // these headers, in lower case
	At      strictyaml.Problem // line and path of TrustCertificate, without a text
}

// Who may set headers, as a file says it.
const (
	TrustHeader      = "header"         // every client
	TrustMetadata    = "envoy-metadata" // filters of the proxy, as metadata in place of the header
	TrustCertificate = "mtls"           // clients of proxies whose certificate has one of the names
)

// NoCertificates returns the problem of a file with TrustCertificate where no certificate is asked for.
func (t Trust) NoCertificates() error {
	problem := t.At
	problem.Text = "got mtls, which needs --client-ca-file: without it no proxy shows a certificate"
	return &strictyaml.Error{Problems: []strictyaml.Problem{problem}}
}

// Source says how a page of the model servers is read.
type Source struct {
	Enabled            bool // false = it is not read
	Scheme             string
	Path               string
	Port               int           // 0 = the endpoint's
	Interval           time.Duration // between two readings; 0 = not set here
	InsecureSkipVerify bool          // with https any certificate is accepted

	// Files, with https; "" = none:
	CACertPath                    string // certificates in place of the system's roots
	ClientCertPath, ClientKeyPath string // the certificate to show

	Select map[string]string // labels that an endpoint must have to be asked; none = all are
}

// FurtherSource is a metrics page beside that of the built-in attributes, or a JSON document.
type FurtherSource struct {
	Name     string // of its plugin
	Document bool
	Source

	// A document of the whole pool: where it is, or that it is pushed; none = each endpoint has its own page.
	URL, File string
	Pushed    bool
	Objects   ObjectKind // it has the objects of a kind of Kubernetes; zero = it does not

	At strictyaml.Problem // its line and path, without a text, for a problem with where it is
}

// NoCluster says why a source of objects of Kubernetes cannot be, where something else names a file of endpoints.
func NoCluster(by string) string {
	return "the objects are watched where pods of Kubernetes are followed, and " + by + " names a file of endpoints"
}

// ObjectKind is a kind of objects of Kubernetes. The zero ObjectKind is none.
type ObjectKind struct{ Group, Version, Kind string }

// String returns the kind as messages have it; "" = none.
func (k ObjectKind) String() string {
	if k == (ObjectKind{}) {
		return ""
	}
	return strings.Join([]string{k.Kind, k.Version, k.Group}, ".")
}

// Extraction is an attribute that an extractor takes from a metrics page.
type Extraction struct {
	ExtractedAttribute
	Producer string // the name of the extractor
	Source   string // that of a FurtherSource; "" = the page of Metrics
	Engine   string // only from endpoints of this engine; "" = from all
}

// Engine has the series of one kind of model server.
type Engine struct {
	Name                          string
	Queued, Running               Series
	KVUsage                       Series
	LoRA                          Series
	CacheInfo                     Series
	BlockTokensLabel, BlocksLabel string // of CacheInfo
	BlockTokens, Blocks           Series
}

// Series names the samples of a metric that count. The zero Series is of none.
type Series struct {
	Metric string
	Labels map[string]string // that a sample must have, with these values
}

// builtIn is the configuration without a file. It ends in the list of plugins.
const builtIn = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: expected-completion
plugins:
- type: expected-completion
- type: approx-prefix-cache-producer
  parameters: {maxPrefixTokensToMatch: 0, maxPrefixBlocksToMatch: 0, followCaches: true}
- type: metrics-data-source
- type: core-metrics-extractor
`

// builtInQueueing continues builtIn where the command line turns flow control on. While there is no server, requests
// wait for less time than for their turn: for servers that start again, and not for those that have no end in sight.
const builtInQueueing = `- type: round-robin-fairness-policy
flowControl:
  noEndpointRequestTTL: 10s
  defaultPriorityBand: {fairnessPolicyRef: round-robin-fairness-policy}
  defaultNegativePriorityBand: {fairnessPolicyRef: round-robin-fairness-policy}
`

// withoutFile returns the configuration that holds without a file, as a file.
func withoutFile(defaults Settings) []byte {
	if flowControl(defaults.Gates) {
		return []byte(builtIn + builtInQueueing)
	}
	return []byte(builtIn)
}

// Default returns the configuration that holds without a file: expected-completion scores. With the feature gate
// flowControl on, requests wait while servers are full, as learning-detector says, flow by flow in turn. The error is a
// *strictyaml.Error, and nil unless the settings are wrong.
func Default(defaults Settings) (*Config, error) {
	c, err := Load(withoutFile(defaults), defaults)
	if err == nil && defaults.Wait > 0 && c.Queueing != nil {
		c.Queueing.WaitAtMost(defaults.Wait)
	}
	return c, err
}

// ShowDefault returns what Show returns of the configuration that holds without a file.
func ShowDefault(defaults Settings) ([]byte, error) { return Show(withoutFile(defaults), defaults) }

// Load reads a configuration file, YAML or JSON. An empty file is a problem, because it may have been truncated, and
// would otherwise silently replace a configuration by the default. The error is a *strictyaml.Error with every problem.
func Load(data []byte, defaults Settings) (*Config, error) {
	l, err := load(data, defaults)
	if err != nil {
		return nil, err
	}
	return l.config, nil
}

// load returns the loader of a file that has no problem.
func load(data []byte, defaults Settings) (*loader, error) {
	root, problem := strictyaml.Parse(data)
	if root == nil && problem == nil {
		problem = &strictyaml.Problem{Text: "empty; without a configuration file the default configuration holds"}
	}
	if problem != nil {
		return nil, &strictyaml.Error{Problems: []strictyaml.Problem{*problem}}
	}
	l := &loader{Reader: strictyaml.NewReader(maxValues), defaults: defaults, named: map[string]*instance{},
		defaulted: map[string]*instance{}, config: new(Config)}
	l.load(root)
	if err := l.Err(); err != nil {
		return nil, err
	}
	l.config.Warnings = l.Warnings()
	return l, nil
}

// document is a file of version v1 as it is written. The tag effect says which values are read and mean nothing: of
// those marked none only the default is accepted, those marked warning are accepted with one.
type document struct {
	sections
	// DataLayer says where endpoints and their figures come from.
	DataLayer dataLayerSection `json:"dataLayer"`

	older older // zero in a file of v1
}

// sections are written alike in every version.
type sections struct {
	// APIVersion is the version of the file's format.
	APIVersion string `json:"apiVersion"`
	// Kind is EndpointPickerConfig.
	Kind string `json:"kind"`
	// FeatureGates switches parts of the picker on and off, each as name=true or name=false.
	FeatureGates []string `json:"featureGates"`
	// Plugins are the plugins that the other sections name, each with its parameters.
	Plugins []pluginSection `json:"plugins"`
	// SchedulingProfiles are what an endpoint is picked by. Without any, one profile has every plugin.
	SchedulingProfiles []profileSection `json:"schedulingProfiles"`
	// Objectives give priorities to requests that name one of them in the header x-llm-d-inference-objective.
	Objectives []objectiveSection `json:"objectives"`
	// ModelRewrites have models serve in place of those that requests name.
	ModelRewrites []rewriteSection `json:"modelRewrites"`
	// FlowControl says how requests wait for room. But for its saturationDetector it has no effect while the feature
	// gate flowControl is off.
	FlowControl flowControlSection `json:"flowControl"`
	// RequestHandler says how requests are read.
	RequestHandler requestSection `json:"requestHandler"`
}

// pluginRef names one plugin.
type pluginRef struct {
	// PluginRef is the name of a plugin, which is its type unless it has another.
	PluginRef string `json:"pluginRef"`
}

// pluginSection is one plugin.
type pluginSection struct {
	// Name is what other sections call the plugin; empty = its type.
	Name string `json:"name"`
	// Type is what the plugin does.
	Type string `json:"type"`
	// Parameters are the plugin's own.
	Parameters *yaml.Node `json:"parameters"`
}

// profileSection is the filters, scorers and picker that one pick runs.
type profileSection struct {
	// Name is the profile's own; required.
	Name string `json:"name"`
	// Shadow has the profile run after each pick, for comparison; no handler runs it.
	Shadow bool `json:"shadow"`
	// Plugins are the profile's, filters in the order in which they run.
	Plugins []entrySection `json:"plugins"`
}

// entrySection is one plugin of a profile.
type entrySection struct {
	// PluginRef is the name of a filter, scorer or picker.
	PluginRef string `json:"pluginRef"`
	// Weight multiplies a scorer's scores, 0 or more; absent = 1.
	Weight *float64 `json:"weight"`
}

// objectiveSection is one objective of requests.
type objectiveSection struct {
	// Name is what requests call the objective; required.
	Name string `json:"name"`
	// Priority is that of its requests: a higher one goes first, and one below 0 may be shed.
	Priority int `json:"priority"`
}

// rewriteSection is a named list of rules by which models are rewritten.
type rewriteSection struct {
	// Name is the rewrite's own; required.
	Name string `json:"name"`
	// Rules are tried in order, those that match a model before those that match all.
	Rules []ruleSection `json:"rules"`
}

// ruleSection sends requests for some models to others.
type ruleSection struct {
	// Matches say which models the rule is for; none = all.
	Matches []matchSection `json:"matches"`
	// Targets are the models that serve these requests, each its part.
	Targets []targetSection `json:"targets"`
}

// matchSection is one of the models that a rule is for.
type matchSection struct {
	// Model is the one that a request names.
	Model modelSection `json:"model"`
}

// modelSection says how a model is recognised.
type modelSection struct {
	// Type is how names are compared: Exact, the only way.
	Type string `json:"type"`
	// Value is the name of the model; required.
	Value string `json:"value"`
}

// targetSection is a model that serves.
type targetSection struct {
	// Weight is the target's part of the sum of all weights, from 1 to 1000000. A target without one gets no requests
	// if another one of the rule has a weight; if none has, absent = 1.
	Weight *int `json:"weight"`
	// ModelRewrite is the name of the model; required.
	ModelRewrite string `json:"modelRewrite"`
}

// requestSection says how requests are read.
type requestSection struct {
	// Parsers read the bodies of requests; none = openai-parser, anthropic-parser, vllmhttp-parser, passthrough-parser.
	Parsers []pluginRef `json:"parsers"`
	// PropagatePriority writes the request's priority into its body, for the model server to schedule by, in the place
	// of one that the client sent. An endpoint whose engine label says vllm gets it negated, as vLLM has it.
	PropagatePriority bool `json:"propagatePriority"`
	// Trust says who may set the headers by which a request names its flow, its objective and its deadlines, those of
	// agent-identity included: every client (header), a filter of the proxy (envoy-metadata), by fields of the metadata
	// envoy.lb that are named like the headers, or clients of proxies with certain certificates (mtls). What others set
	// has no effect and is removed.
	Trust string `json:"trust"`
	// TrustedProxies are names in the certificates of these proxies: a URI, a DNS name or the common name; with mtls
	// alone, which needs at least one.
	TrustedProxies []string `json:"trustedProxies"`
}

// dataLayerSection says where endpoints and their figures come from.
type dataLayerSection struct {
	// InjectDefaults reads the metrics page of every model server without being told; absent = true.
	InjectDefaults *bool `json:"injectDefaults"`
	// Sources are the pages of a model server that are read.
	Sources []sourceSection `json:"sources"`
	// Discovery names the plugins that find endpoints and peers.
	Discovery discoverySection `json:"discovery"`
	// CrossReplica says how replicas of the picker share what they know.
	CrossReplica crossReplicaSection `json:"crossReplica"`
}

// discoverySection names the plugins that find endpoints and peers.
type discoverySection struct {
	// Endpoints names a file-discovery; absent = the command line says where endpoints come from.
	Endpoints *pluginRef `json:"endpoints"`
	// Peers names the plugin that finds other replicas of the picker.
	Peers *pluginRef `json:"peers" effect:"none"`
}

// crossReplicaSection says how replicas of the picker share what they know.
type crossReplicaSection struct {
	// SyncerPluginRef names the plugin that shares it.
	SyncerPluginRef string `json:"syncerPluginRef" effect:"none"`
	// SyncInterval is the time between two messages to the other replicas.
	SyncInterval time.Duration `json:"syncInterval" effect:"warning"`
	// PublishTimeout bounds the time that one message may take.
	PublishTimeout time.Duration `json:"publishTimeout" effect:"none"`
}

// sourceSection is one page of a model server, with what is taken from it.
type sourceSection struct {
	// PluginRef is the name of a metrics-data-source, document-data-source or models-data-source. There may be any
	// number of the first two, each with a name of its own and its own extractors.
	PluginRef string `json:"pluginRef"`
	// Extractors name what is taken from the page; none = the extractor of the source's type. The
	// core-metrics-extractor belongs to one metrics-data-source: that which names it, or else the first.
	Extractors []pluginRef `json:"extractors"`
	// Select has labels that an endpoint must have, with these values, to be asked; none = all are. What the page tells
	// is unknown of the others.
	Select map[string]string `json:"select"`
}

// flowControlSection says how requests wait while no endpoint has room.
type flowControlSection struct {
	// MaxBytes bounds the bytes of all requests that wait; 0 = no bound.
	MaxBytes strictyaml.Quantity `json:"maxBytes"`
	// MaxRequests bounds how many requests wait; 0 = no bound.
	MaxRequests strictyaml.Quantity `json:"maxRequests"`
	// DefaultRequestTTL is how long a request waits at most; 0s = as long as its client does.
	DefaultRequestTTL time.Duration `json:"defaultRequestTTL"`
	// NoEndpointRequestTTL is how long a request waits at most while there is no endpoint; absent = defaultRequestTTL.
	NoEndpointRequestTTL *time.Duration `json:"noEndpointRequestTTL"`
	// DefaultPriorityBand holds for priorities that have no band of their own.
	DefaultPriorityBand *bandSection `json:"defaultPriorityBand"`
	// DefaultNegativePriorityBand holds for priorities below 0 that have no band of their own; absent =
	// defaultPriorityBand.
	DefaultNegativePriorityBand *bandSection `json:"defaultNegativePriorityBand"`
	// PriorityBands are bands of single priorities.
	PriorityBands []bandSection `json:"priorityBands"`
	// UsageLimitPolicyPluginRef names the policy that says how full the pool may be for each priority.
	UsageLimitPolicyPluginRef string `json:"usageLimitPolicyPluginRef"`
	// SaturationDetector names the plugin that says which servers have room; absent = learning-detector. With the gate
	// off it says how full the pool is: requests of negative priority are refused while it is saturated; absent =
	// utilization-detector.
	SaturationDetector *pluginRef `json:"saturationDetector"`
	// EnableEviction has running requests of negative priority end while one of a higher priority waits and no server
	// has room for it: with 429 before the response's headers, later by a cut answer, the latter only in the full lane.
	EnableEviction bool `json:"enableEviction"`
}

// bandSection is how requests of one priority wait.
type bandSection struct {
	// Priority is the band's own, highest first served.
	Priority int `json:"priority"`
	// MaxBytes bounds the bytes of the band's requests that wait; 0 = 1G.
	MaxBytes strictyaml.Quantity `json:"maxBytes"`
	// MaxRequests bounds how many of the band's requests wait; 0 = 5000.
	MaxRequests strictyaml.Quantity `json:"maxRequests"`
	// DefaultRequestTTL is how long a request of the band waits at most; absent = the section's.
	DefaultRequestTTL *time.Duration `json:"defaultRequestTTL"`
	// FairnessPolicyRef names the policy that chooses the flow whose turn it is.
	FairnessPolicyRef string `json:"fairnessPolicyRef"`
	// DisplacementPolicyRef names the policy that chooses the request of the band that makes way at a limit.
	DisplacementPolicyRef string `json:"displacementPolicyRef"`
	// OrderingPolicyRef names the policy that chooses the request of a flow whose turn it is.
	OrderingPolicyRef string `json:"orderingPolicyRef"`
	// QueueRef names the type of queue in which the requests of a flow wait, which must be able to do what the policies
	// need; absent = the first of list-queue and max-min-heap that is.
	QueueRef string `json:"queueRef"`
	// MinShare is the share of dispatches that the band's requests get at least while they wait, ahead of those of
	// higher priority, from 0 to below 1; 0 = none. The shares of all bands are below 1 together.
	MinShare float64 `json:"minShare"`
}

const (
	defaultTTL          = 60 * time.Second
	defaultSyncInterval = 200 * time.Millisecond
)

// newDocument holds the defaults of everything that stands outside lists.
func newDocument() document {
	return document{sections: newSections(), DataLayer: dataLayerSection{CrossReplica: newCrossReplica()}}
}

func newSections() sections {
	return sections{FlowControl: flowControlSection{DefaultRequestTTL: defaultTTL},
		RequestHandler: requestSection{Trust: TrustHeader}}
}

func newCrossReplica() crossReplicaSection {
	return crossReplicaSection{SyncInterval: defaultSyncInterval}
}
