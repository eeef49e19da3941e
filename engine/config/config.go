// Package config turns the bytes of a configuration file into plugins and plain values, or into a list of all problems,
// each with its line. It owns the file's format, its defaults, and the parameters of plugins that are built into the
// server. It never reads files, and never starts or runs what it configures.
package config

import (
	"time"

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
}

// Config is a checked and complete configuration. It never changes.
type Config struct {
	Plan *schedule.Plan // of at least one profile; each step has Type, Name and Reads, and Meter 0

	Discovery       Discovery
	Metrics         Source
	Models          Source
	ModelList       string          // the source of Models, by name; "" = it is not read
	Further         []FurtherSource // beside Metrics
	Extractions     []Extraction    // those that a plugin reads
	Engines         []Engine        // beside those that are built in, or in place of one of the same name
	DefaultEngine   string          // of endpoints whose label names none that is known; "" = found from the page
	EngineLabelKeys []string        // labels that may name an endpoint's engine; the first that an endpoint has counts
	ParseOpenAI     bool            // false = no request body is parsed

	// Priorities holds the priority of each objective by its name. A request that names no objective, or one that is
	// not here, has priority 0.
	Priorities map[string]int

	Rewrites []rewrites.Rewrite // in the order of the file

	Warnings []strictyaml.Problem // parts of the file that have no effect, in the order of its lines
	// LightLane has what plugins of the file cannot do, or do otherwise, in the light lane, in the order of its lines.
	LightLane []strictyaml.Problem
}

// Discovery says in which file the endpoints are.
type Discovery struct {
	Path  string             // "" = the configuration names no file
	Watch bool               // changes of the file take effect
	At    strictyaml.Problem // line and path of Path, without a text, for a problem with the file that it names
}

// Source says how a page of the model servers is read.
type Source struct {
	Enabled            bool // false = it is not read
	Scheme             string
	Path               string
	Port               int           // 0 = the endpoint's
	Interval           time.Duration // between two readings; 0 = not set here
	InsecureSkipVerify bool          // with https any certificate is accepted

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

// builtIn is the default configuration.
const builtIn = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- {type: prefix-cache-scorer, parameters: {yieldAboveRequests: 8}}
- type: metrics-data-source
- type: core-metrics-extractor
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
`

// Default returns the configuration that holds without a file: queue-scorer with weight 2, kv-cache-utilization-scorer
// with 2, prefix-cache-scorer with 3. The error is a *strictyaml.Error, and nil unless the settings are wrong.
func Default(defaults Settings) (*Config, error) { return Load([]byte(builtIn), defaults) }

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
		config: new(Config)}
	l.load(root)
	if err := l.Err(); err != nil {
		return nil, err
	}
	l.config.Warnings = l.Warnings()
	return l, nil
}
