// Package config turns the bytes of a configuration file into plugins and plain values, or into every problem at once,
// each with its line. It owns the file's format, its defaults and the parameters of what has no plugin of its own. It
// never reads files, and never starts or runs what it configures.
package config

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// maxValues bounds the values of a file.
const maxValues = 100_000

// Settings are what the command line decides where the file says nothing.
type Settings struct {
	Destinations int           // how many endpoints a picker picks, at least 1
	Stale        time.Duration // the age from which a sample is stale, if that is more than three of its intervals
}

// Config is a configuration in force: checked, complete, and never changed.
type Config struct {
	Plan    *schedule.Plan // of at least one profile, each step with type, name and reads; meters are left 0
	Handler Handler        // of the plan

	Discovery       Discovery
	Metrics         Source
	Models          Source
	EngineLabelKeys []string // labels that may name an endpoint's engine, the first present one counts
	ParseOpenAI     bool     // false = no request body is parsed

	Warnings []strictyaml.Problem // what the file says without effect, in the order of its lines
}

// Handler is what the profile handler is called.
type Handler struct{ Type, Name string }

// Discovery is a file of endpoints.
type Discovery struct {
	Path  string             // "" = the configuration names no file
	Watch bool               // changes on disk take effect
	At    strictyaml.Problem // of the path, without a text; of use to a problem of the file that it names
}

// Source is a page that every model server has.
type Source struct {
	Enabled            bool // false = it is not read
	Scheme             string
	Path               string
	Port               int           // 0 = the endpoint's
	Interval           time.Duration // 0 = not set here
	InsecureSkipVerify bool          // with https any certificate is accepted
}

// builtIn is the configuration without a file.
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

// Default is the configuration without a file: queue-scorer 2, kv-cache-utilization-scorer 2, prefix-cache-scorer 3.
// The error is a *strictyaml.Error, and there is none unless the settings are wrong.
func Default(defaults Settings) (*Config, error) { return Load([]byte(builtIn), defaults) }

// Load reads a configuration file, YAML or JSON. A file that says nothing is a problem: it may have been cut, and would
// otherwise replace a configuration by the default without a word. The error is a *strictyaml.Error with every problem.
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
