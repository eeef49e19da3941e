package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// even keeps every other candidate.
type even struct {
	From int `json:"from" doc:"The first that stays."`
}

func (p *even) Validate() error {
	if p.From < 0 {
		return fmt.Errorf("from: got %d, want 0 or more", p.From)
	}
	return nil
}

func (p *even) Filter(*schedule.Input, []bool) {}

func newEven() any { return &even{From: 1} }

func TestCatalogueRefusesTypes(t *testing.T) {
	for name, c := range map[string]struct {
		types []PluginType
		want  string
	}{
		"no name": {[]PluginType{{New: newEven}}, `plugin type "": it has no name`},
		"twice": {[]PluginType{{Type: "a", New: newEven}, {Type: "a", New: newEven}},
			`plugin type "a": it is added twice`},
		"built in": {[]PluginType{{Type: "queue-scorer", New: newEven}},
			`plugin type "queue-scorer": it is built in`},
		"older name": {[]PluginType{{Type: "by-label-selector", New: newEven}},
			`plugin type "by-label-selector": it is built in`},
		"no constructor": {[]PluginType{{Type: "a"}}, `plugin type "a": it has no constructor`},
		"no pointer": {[]PluginType{{Type: "a", New: func() any { return even{} }}},
			`plugin type "a": its constructor returns a config.even, want a pointer to a struct`},
		"no plugin": {[]PluginType{{Type: "a", New: func() any { return new(Settings) }}},
			`plugin type "a": a *config.Settings is of no family: detector, filter, scorer, picker, profile handler, ` +
				"decider, admitter, fairness, ordering, displacement, usage limit or eviction policy, queue, " +
				"extractor, or what serves a point of requests"},
		"all at once": {[]PluginType{{Type: "a"}, {Type: "picker"}},
			"plugin type \"a\": it has no constructor\nplugin type \"picker\": it has no constructor"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewCatalogue(c.types...); fmt.Sprint(err) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestAddedTypesAreLoadedAndDescribed(t *testing.T) {
	c, err := NewCatalogue(PluginType{Type: "example.com/even", Text: "Keeps every other one.", New: newEven})
	if err != nil {
		t.Fatal(err)
	}
	settings := Settings{Destinations: 1, Catalogue: c}
	cfg, err := Load([]byte(newHead+"plugins: [{type: example.com/even, parameters: {from: 3}}]"), settings)
	if err != nil {
		t.Fatal(err)
	}
	got := cfg.Plan.Profiles()[0].Filters[0]
	if p, ok := got.Filter.(*even); !ok || p.From != 3 || got.Type != "example.com/even" {
		t.Errorf("got %+v", got)
	}
	_, err = Load([]byte(newHead+
		"plugins: [{type: example.com/evn}, {type: example.com/even, parameters: {from: -1}}]"),
		settings)
	for _, want := range []string{"did you mean example.com/even?",
		"plugins[1].parameters.from: got -1, want 0 or more"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := Load([]byte(newHead+"plugins: [{type: example.com/even}]"), three); err == nil {
		t.Error("another catalogue has the type")
	}
	for _, f := range c.Describe() {
		for _, p := range f.Plugins {
			if p.Type == "example.com/even" && (f.Name != "filters" || len(p.Parameters) != 1 ||
				p.Parameters[0] != (Parameter{Name: "from", Kind: "int", Default: "1",
					Text: "The first that stays."})) {
				t.Errorf("described in %s as %+v", f.Name, p)
			}
		}
	}
	schema, err := Schema(c)
	if err != nil || !strings.Contains(string(schema), "example.com/even") {
		t.Errorf("the schema has not the type: %v", err)
	}
	if schema, _ = Schema(nil); strings.Contains(string(schema), "example.com/even") {
		t.Error("the schema of what is built in has the type")
	}
}

// emitter is an extractor of another module.
type emitter struct{ names []string }

func (e *emitter) Emits() []string                     { return e.names }
func (e *emitter) Extract(_ []byte, _ []float64) error { return nil }

func TestAddedExtractorsFeedPlugins(t *testing.T) {
	load := func(names ...string) (*Config, error) {
		c, err := NewCatalogue(PluginType{Type: "example.com/lines", New: func() any { return &emitter{names} }})
		if err != nil {
			t.Fatal(err)
		}
		return Load([]byte(newHead+`
plugins:
- {type: example.com/lines, name: lines}
- {type: metrics-data-source}
- {type: core-metrics-extractor}
- type: endpoint-attribute-scorer
  parameters: {attributeKey: example.com/lines, algorithm: {type: linear_lower_is_better}}
dataLayer:
  sources:
  - pluginRef: metrics-data-source
    extractors: [{pluginRef: core-metrics-extractor}, {pluginRef: lines}]
`), Settings{Destinations: 1, Catalogue: c})
	}
	cfg, err := load("example.com/unread", "example.com/lines")
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Extractions) != 1 || cfg.Extractions[0].Name != "example.com/lines" ||
		cfg.Extractions[0].Producer != "lines" || cfg.Extractions[0].By().At != 1 {
		t.Errorf("extractions %+v, want the attribute that is read", cfg.Extractions)
	}
	if _, ok := cfg.Extractions[0].By().Extractor.(*emitter); !ok {
		t.Errorf("the extractor is a %T", cfg.Extractions[0].By().Extractor)
	}
	if _, err = load(""); !strings.Contains(fmt.Sprint(err), "emits an attribute of a wrong name") ||
		!strings.Contains(fmt.Sprint(err), "reads example.com/lines, which nothing emits") {
		t.Errorf("got %v", err)
	}
}

// producer is a producer of another module.
type producer struct{ emits emitter }

func (p *producer) Emits() []string                           { return p.emits.names }
func (*producer) Produce(*schedule.Input, *schedule.Produced) {}

func TestAddedProducersFeedPlugins(t *testing.T) {
	load := func(name string) (*Config, error) {
		c, err := NewCatalogue(PluginType{Type: "example.com/cost", New: func() any {
			return &producer{emitter{[]string{name}}}
		}})
		if err != nil {
			t.Fatal(err)
		}
		return Load([]byte(newHead+`
plugins:
- {type: example.com/cost, name: cost}
- type: endpoint-attribute-scorer
  parameters: {attributeKey: example.com/cost, producer: cost, algorithm: {type: linear_lower_is_better}}
`), Settings{Destinations: 1, Catalogue: c})
	}
	cfg, err := load("example.com/cost")
	if err != nil {
		t.Fatal(err)
	}
	var points []string
	cfg.Plan.Points(func(point string, of *schedule.Step) { points = append(points, of.Name+" at "+point) })
	if fmt.Sprint(points) != "[cost at DataProducer]" || len(cfg.Warnings) != 0 {
		t.Errorf("points %v, warnings %v", points, cfg.Warnings)
	}
	if _, err := load(""); !strings.Contains(fmt.Sprint(err), "emits an attribute of a wrong name") {
		t.Errorf("got %v", err)
	}
}
