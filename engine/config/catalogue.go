package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/signalbox-epp/signalbox/engine/admitters"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/ceilings"
	"github.com/signalbox-epp/signalbox/engine/deciders"
	"github.com/signalbox-epp/signalbox/engine/detectors"
	"github.com/signalbox-epp/signalbox/engine/displacements"
	"github.com/signalbox-epp/signalbox/engine/evictions"
	"github.com/signalbox-epp/signalbox/engine/fairness"
	"github.com/signalbox-epp/signalbox/engine/filters"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/orderings"
	"github.com/signalbox-epp/signalbox/engine/pickers"
	"github.com/signalbox-epp/signalbox/engine/points"
	"github.com/signalbox-epp/signalbox/engine/profiles"
	"github.com/signalbox-epp/signalbox/engine/queues"
	"github.com/signalbox-epp/signalbox/engine/reclaim"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/scorers"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

//go:generate go test . -run TestPluginDocs -update
//go:generate go test . -run TestPluginsPage|TestDifferencesNameEveryRefusedPlugin -update

// Catalogue has the plugin types that a file may name: those that are built in, and those that were added. The nil
// Catalogue has nothing added. It never changes.
type Catalogue struct {
	added map[string]PluginType
	docs  []Family // of all types
}

// PluginType is a type of plugins that is not built in.
type PluginType struct {
	// Type is what files call it. Other than the types that are built in, it may have a domain: example.com/cheapest.
	Type string
	Text string // what the plugin does, in whole sentences
	// New returns a plugin with its defaults: a pointer to a struct that is a schedule.Filter, Scorer, Picker, Handler,
	// Decider, Detector, RequestHeaders, Producer, Screener, Admitter, PreRequest, ResponseHeaders, FirstToken,
	// ResponseEnd or Reporter, a flow.Fairness, Ordering, Displacement, UsageLimit or QueueType, a reclaim.Eviction, an
	// attributes.Extractor, or several of these.
	// Parameters are decoded onto its fields with a tag json, whose documentation is the tag doc. If it has a method
	// Validate() error, that says what is wrong with them, each problem beginning with the parameter's name and a
	// colon.
	New func() any
}

// NewCatalogue returns a catalogue with further types. The error names everything that is wrong with them.
func NewCatalogue(more ...PluginType) (*Catalogue, error) {
	c := &Catalogue{added: map[string]PluginType{}}
	var errs []error
	for _, p := range more {
		if err := c.add(p); err != nil {
			errs = append(errs, fmt.Errorf("plugin type %q: %w", p.Type, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	c.docs = slices.Clone(pluginDocs)
	for _, typ := range slices.Sorted(maps.Keys(c.added)) {
		c.describe(c.added[typ])
	}
	return c, nil
}

func (c *Catalogue) add(p PluginType) error {
	switch _, twice := c.added[p.Type]; {
	case p.Type == "":
		return errors.New("it has no name")
	case twice:
		return errors.New("it is added twice")
	case construct(p.Type) != nil || renamed[p.Type] != "":
		return errors.New("it is built in")
	case p.New == nil:
		return errors.New("it has no constructor")
	}
	x := p.New()
	if v := reflect.ValueOf(x); v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("its constructor returns a %T, want a pointer to a struct", x)
	}
	if familyOf(x) == "" {
		return fmt.Errorf("a %T is of no family: detector, filter, scorer, picker, profile handler, decider, "+
			"admitter, fairness, ordering, displacement, usage limit or eviction policy, queue, extractor, or what "+
			"serves a point of requests", x)
	}
	if err := strictyaml.Check(reflect.TypeOf(x).Elem()); err != nil {
		return fmt.Errorf("its parameter %w", err)
	}
	c.added[p.Type] = p
	return nil
}

// furtherFamily has the plugins of another module that are of no other family.
const furtherFamily = "further plugins"

// extractors lists the added types that take attributes from what a source answers.
func (c *Catalogue) extractors() (types []string) {
	if c == nil {
		return nil
	}
	for _, typ := range slices.Sorted(maps.Keys(c.added)) {
		if _, ok := c.added[typ].New().(attributes.Extractor); ok {
			types = append(types, typ)
		}
	}
	return types
}

// familyOf returns the name of a plugin's family; "" = it has none.
func familyOf(plugin any) string {
	switch plugin.(type) {
	case schedule.Detector:
		return "saturation detectors"
	case schedule.Filter:
		return "filters"
	case schedule.Scorer:
		return "scorers"
	case schedule.Picker:
		return "pickers"
	case schedule.Handler:
		return "profile handlers"
	case schedule.Decider:
		return "deciders"
	case schedule.Admitter:
		return "admitters"
	case flow.Fairness:
		return "fairness policies"
	case flow.Ordering:
		return "ordering policies"
	case flow.Displacement:
		return "displacement policies"
	case flow.QueueType:
		return "queues"
	case flow.UsageLimit:
		return "usage limit policies"
	case reclaim.Eviction:
		return "eviction policies"
	}
	if _, ok := plugin.(attributes.Extractor); ok || schedule.ServesPoint(plugin) {
		return furtherFamily
	}
	return ""
}

// describe adds the documentation of a type to that of its family.
func (c *Catalogue) describe(p PluginType) {
	x := p.New()
	doc := Plugin{Type: p.Type, Text: p.Text}
	v := reflect.ValueOf(x).Elem()
	for _, f := range strictyaml.FieldsOf(v.Type()) {
		standard := show(v.FieldByIndex(f.Index))
		if standard == "none" || standard == `""` {
			standard = ""
		}
		doc.Parameters = append(doc.Parameters, Parameter{
			Name: f.Name, Kind: kind(f.Type), Default: standard, Text: v.Type().FieldByIndex(f.Index).Tag.Get("doc"),
		})
	}
	at := slices.IndexFunc(c.docs, func(f Family) bool { return f.Name == familyOf(x) })
	if at < 0 {
		at, c.docs = len(c.docs), append(c.docs, Family{Name: furtherFamily})
	}
	c.docs[at].Plugins = append(slices.Clone(c.docs[at].Plugins), doc)
}

// construct returns a plugin with its defaults; nil = the type is unknown.
func (c *Catalogue) construct(typ string) any {
	if c != nil && c.added[typ].New != nil {
		return c.added[typ].New()
	}
	return construct(typ)
}

// types lists every type that construct knows.
func (c *Catalogue) types() []string {
	if c == nil {
		return knownTypes()
	}
	return slices.Concat(knownTypes(), slices.Sorted(maps.Keys(c.added)))
}

// construct returns a plugin that is built in, with its defaults; nil = there is no such type.
func construct(typ string) any {
	if f, ok := scorers.Types[typ]; ok {
		return f()
	}
	if f, ok := filters.Types[typ]; ok {
		return f()
	}
	if f, ok := pickers.Types[typ]; ok {
		return f()
	}
	if f, ok := profiles.Types[typ]; ok {
		return f()
	}
	if f, ok := deciders.Types[typ]; ok {
		return f()
	}
	if f, ok := admitters.Types[typ]; ok {
		return f()
	}
	if f, ok := detectors.Types[typ]; ok {
		return f()
	}
	if f, ok := fairness.Types[typ]; ok {
		return f()
	}
	if f, ok := orderings.Types[typ]; ok {
		return f()
	}
	if f, ok := displacements.Types[typ]; ok {
		return f()
	}
	if f, ok := queues.Types[typ]; ok {
		return f()
	}
	if f, ok := ceilings.Types[typ]; ok {
		return f()
	}
	if f, ok := evictions.Types[typ]; ok {
		return f()
	}
	if f, ok := points.Types[typ]; ok {
		return f()
	}
	if f, ok := others[typ]; ok {
		return f()
	}
	return nil
}

// knownTypes lists every type that is built in.
func knownTypes() []string {
	return slices.Concat(slices.Sorted(maps.Keys(scorers.Types)), slices.Sorted(maps.Keys(filters.Types)),
		slices.Sorted(maps.Keys(pickers.Types)), slices.Sorted(maps.Keys(profiles.Types)),
		slices.Sorted(maps.Keys(deciders.Types)), slices.Sorted(maps.Keys(admitters.Types)),
		slices.Sorted(maps.Keys(detectors.Types)), slices.Sorted(maps.Keys(fairness.Types)),
		slices.Sorted(maps.Keys(orderings.Types)), slices.Sorted(maps.Keys(ceilings.Types)),
		slices.Sorted(maps.Keys(evictions.Types)), slices.Sorted(maps.Keys(displacements.Types)),
		slices.Sorted(maps.Keys(queues.Types)), slices.Sorted(maps.Keys(points.Types)),
		slices.Sorted(maps.Keys(others)))
}

// Family is a kind of plugins, with the documentation of all plugins of that kind.
type Family struct {
	Name    string
	Plugins []Plugin // sorted by type
}

// Plugin is the user documentation of one plugin type.
type Plugin struct {
	Type       string
	Text       string // what the plugin does
	Parameters []Parameter

	// Of plugins that are built in:

	Reads, Writes []string // attributes and headers, as a list has them
	Cost          string   // for each candidate, in nanoseconds; "" = it does not run over candidates
	Source        string   // the file that declares it
}

// Parameter is one parameter of a plugin.
type Parameter struct {
	Name    string // a path, such as matchExpressions[].key
	Kind    string
	Default string // as a file has it; "" = empty, or none
	Range   string // the values that it may have, such as "0 to 1"; "" = any
	Text    string
	Effect  string // "" = it works; "warning" = it is read and has no effect; "none" = only its default is accepted
}

// Describe returns the documentation of every plugin that a configuration may name. That of what is built in is
// generated from the doc comments of the plugins' types. The caller must not change it.
func (c *Catalogue) Describe() []Family {
	if c == nil {
		return pluginDocs
	}
	return c.docs
}

// Why types of the reference have no counterpart here, each as a clause.
const (
	asksPredictor  = "it needs a latency predictor, a service that Signalbox does not ask"
	asksTokenizer  = "it needs a tokenizer service, which Signalbox does not ask; write token-producer, which estimates"
	asksPickers    = "it takes other endpoint pickers for endpoints, and Signalbox picks among servers"
	readsEvents    = "it needs KV events over ZMQ, which Signalbox does not read; write approx-prefix-cache-producer"
	readsExporter  = "it reads an exporter of GPUs; a metrics-data-source with a prometheus-extractor can read that"
	findsPickers   = "it finds other pickers for a syncer, of which only the interface is public; pages tell their load"
	holdsBack      = "it holds requests back to group them, and no plugin may wait"
	watchesObjects = "it needs objects of Kubernetes that Signalbox does not watch"
)

// unsupported maps the plugin types of the reference that have no counterpart here to the reason.
var unsupported = map[string]string{
	"burst-prefix-cache-producer":               holdsBack,
	"dcgm-data-source":                          readsExporter,
	"dcgm-extractor":                            readsExporter,
	"disaggregatedset-rollout-screener":         watchesObjects,
	"k8s-peer-discovery":                        findsPickers,
	"latency-predictor-producer":                asksPredictor,
	"latency-scorer":                            asksPredictor,
	"latency-slo-admitter":                      asksPredictor,
	"multicluster-approx-prefix-cache-producer": asksPickers,
	"multicluster-file-discovery":               asksPickers,
	"multicluster-kv-cache-utilization-scorer":  asksPickers,
	"multicluster-metrics-data-source":          asksPickers,
	"multicluster-metrics-extractor":            asksPickers,
	"multicluster-prefix-cache-scorer":          asksPickers,
	"multicluster-queue-scorer":                 asksPickers,
	"multicluster-session-affinity-filter":      asksPickers,
	"precise-prefix-cache-producer":             readsEvents,
	"predicted-latency-producer":                asksPredictor,
	"predicted-latency-scorer":                  asksPredictor,
	"slo-aware-profile-handler":                 asksPredictor,
	"slo-aware-routing":                         asksPredictor,
	"slo-headroom-tier-filter":                  asksPredictor,
	"tokenizer":                                 asksTokenizer,
}

// Types of plugins that the section flowControl names. The first of each holds if the section names none, and need not
// be listed to be named.
var (
	fairnessTypes = []string{"global-strict-fairness-policy", "round-robin-fairness-policy", "token-fairness-policy",
		"program-aware-fairness"}
	orderingTypes = []string{"fcfs-ordering-policy", "edf-ordering-policy", "slo-deadline-ordering-policy",
		"shortest-work-ordering-policy"}
	displacementTypes = []string{"longest-flow-displacement-policy", "newest-request-displacement-policy"}
	queueTypes        = []string{"list-queue", "max-min-heap"}
	usageLimitTypes   = []string{"static-usage-limit-policy", "priority-holdback-policy",
		"soft-reflective-ceiling-policy"}
)

// Facts returns what is known of a plugin beside its text and parameters, each a sentence in Markdown.
func (p *Plugin) Facts() (lines []string) {
	for _, list := range []struct {
		verb string
		of   []string
	}{{"Reads ", p.Reads}, {"Writes ", p.Writes}} {
		if len(list.of) > 0 {
			lines = append(lines, list.verb+strings.Join(list.of, ", ")+".")
		}
	}
	last := "Source: `" + p.Source + "`."
	if p.Cost != "" {
		last = "Takes " + p.Cost + " ns for each candidate. " + last
	}
	if p.Source == "" {
		return lines
	}
	return append(lines, last)
}

// Allowed returns the values that a parameter may have, unless its text has them already.
func (q *Parameter) Allowed() string {
	if strings.Contains(q.Text, q.Range) {
		return ""
	}
	return q.Range
}
