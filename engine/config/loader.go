package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/points"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/spelling"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// loader turns a document into a Config.
type loader struct {
	*strictyaml.Reader
	defaults  Settings
	instances []*instance          // in the order of the file
	named     map[string]*instance // by name; of several with one name the first
	defaulted map[string]*instance // policies of flowControl that stand for those that it does not name, by type
	gated     bool                 // the feature gate flowControl is on
	older     older                // that of the document
	index     prefixIndex
	binding   attributes.Binding
	config    *Config
	from      origins
	notified  []*metricsPage // sources that are no pages and have no effect
}

// origins says from which plugins the parts of a Config come: those of the file, or a default if the file has none.
type origins struct {
	discovery, metrics, models *instance         // nil = there is none
	core                       *instance         // the extractor of the metrics page
	pages                      []*metricsPage    // those that the file names, the main one included
	main                       *metricsPage      // that of core; nil = there is none
	list                       *instance         // the extractor of the model list; nil = no source names one
	lists                      attributes.Source // that of models
	picker                     *instance         // the picker of profiles that list none
	handler                    *instance         // nil = there is a problem with it
	gate                       gateOrigins
	parsers                    []*instance // those that have an effect; empty = the default
}

// gateOrigins are those of what decides whether a request is let in, and when.
type gateOrigins struct {
	detector *instance // nil = none decides
	queueing *queueing // nil = requests do not wait for room
	headers  []string  // of requests that policies read
}

// metricsPage is an entry of dataLayer.sources that is a metrics page, or a JSON document.
type metricsPage struct {
	path string      // in the file; "" = a default
	x    *instance   // the source
	core *instance   // its core-metrics-extractor; nil = it names none
	more []*instance // its further extractors
	from attributes.Source

	source pageSource // nil = a default
}

// instance is one entry of plugins, or a default.
type instance struct {
	name, typ string
	path      string // in the file; "" = a default
	plugin    any    // nil = its type is missing, unknown or not supported
	used      bool   // something names it, or it always has an effect
	declared  bool   // reads has what the plugin reads
	reads     []attributes.Slot
	parts     []*instance // detectors that it is made of
}

func (l *loader) load(root *yaml.Node) {
	doc, ok := l.read(root)
	if !ok {
		return
	}
	l.older = doc.older
	l.header(&doc)
	l.gates(doc.FeatureGates)
	l.instantiate(doc.Plugins)
	profiles := l.profiles(doc.SchedulingProfiles)
	handler := l.handler(profiles)
	l.profileNames(profiles)
	l.dataLayer(&doc)
	points := l.points()
	l.objectives(doc.Objectives)
	l.addObjectives()
	l.detector(&doc)
	l.leaveToGate(profiles)
	l.config.Plan = schedule.NewPlan(profiles, l.bind(), handler, l.defaults.Stale)
	l.config.Plan.Serve(points...)
	l.keepPrefixes()
	l.countOutput()
	if x := l.from.handler; x != nil {
		l.config.Plan.LabelHandler(schedule.HandlerLabels{Type: x.typ, Name: x.name})
	}
	if x := l.from.gate.detector; x != nil {
		if of := x.plugin.(schedule.Detector); l.gated {
			l.config.Plan.HaveWait(of, l.step(x))
		} else {
			l.config.Plan.Detect(of, l.step(x))
		}
	}
	l.parsers(&doc)
	l.trust(&doc.RequestHandler)
	l.rewrites(doc.ModelRewrites)
	l.flowControl(&doc)
	for _, x := range l.instances {
		if x.typ == gateDetector && !l.gated {
			l.Fail(x.path+".type", "%s needs the feature gate flowControl", x.typ)
		} else if !x.used && x.plugin != nil {
			l.Warn(x.path, "nothing names %s, so it has no effect", x.name)
		}
	}
}

func (l *loader) header(doc *document) {
	switch doc.APIVersion {
	case v1:
	case v1alpha1, oldGroup:
		l.Warn("apiVersion", "%s is deprecated, write %s; signalbox config convert prints the file so", doc.APIVersion,
			v1)
	case "":
		l.Fail("apiVersion", "missing, want %s", v1)
	default:
		l.Fail("apiVersion", "got %q, want %s", clip.Value(doc.APIVersion), v1)
	}
	if doc.Kind == "" {
		l.Fail("kind", "missing, want EndpointPickerConfig")
	} else if doc.Kind != "EndpointPickerConfig" {
		l.Fail("kind", "got %q, want EndpointPickerConfig", clip.Value(doc.Kind))
	}
}

func (l *loader) instantiate(sections []pluginSection) {
	for i := range sections {
		s, at := &sections[i], item("plugins", i)
		if s.Name == "" {
			s.Name = s.Type
		}
		if now, ok := renamed[s.Type]; ok {
			l.Warn(at+".type", "%s is deprecated, write %s", s.Type, now)
			s.Type = now
		} else if now, ok := replaced[s.Type]; ok {
			l.Warn(at+".type", "%s is deprecated, write %s", s.Type, now)
		}
		x := &instance{name: clip.Value(s.Name), typ: s.Type, path: at}
		l.instances = append(l.instances, x)
		if first, taken := l.named[s.Name]; taken {
			l.Fail(at+".name", "%s stands twice, first as %s; give one of them another name", x.name, first.path)
		} else if s.Name != "" {
			l.named[s.Name] = x
		}
		if x.plugin = l.construct(s.Type, at+".type"); x.plugin != nil {
			l.configure(x, s.Parameters)
		}
	}
	for _, x := range l.instances {
		if x.plugin != nil {
			l.checkNames(x)
		}
	}
	for _, x := range slices.Clone(l.instances) {
		if of, ok := x.plugin.(schedule.Referrer); ok {
			at := x.path + ".parameters"
			l.invalid(at, of.Refer(func(parameter, name string) any {
				if found := l.provided(at+"."+parameter, name); found != nil {
					return found.plugin
				}
				return nil
			}))
		}
	}
}

// provided returns the plugin that a parameter names: by its name, or, if it is the only one, by its type. One that the
// file does not have is there with its defaults, if these are valid.
func (l *loader) provided(path, name string) *instance {
	if l.named[name] != nil || construct(name) == nil {
		return l.find(path, name)
	}
	var of []*instance
	for _, x := range l.instances {
		if x.typ == name {
			of = append(of, x)
		}
	}
	x := &instance{name: name, typ: name, plugin: construct(name)}
	switch v, checked := x.plugin.(interface{ Validate() error }); {
	case len(of) == 1:
		x = of[0]
	case len(of) > 1:
		l.Fail(path, "%d plugins are of type %s: name one of them", len(of), name)
		return nil
	case checked && v.Validate() != nil:
		return l.find(path, name)
	default:
		l.instances = append(l.instances, x)
		l.named[name] = x
	}
	x.used = true
	return x
}

// construct returns a plugin with its defaults; nil = the type at path has a problem.
func (l *loader) construct(typ, path string) any {
	plugin := l.defaults.Catalogue.construct(typ)
	switch {
	case plugin != nil:
	case typ == "":
		l.Fail(path, "missing")
	case removed[typ] != "":
		l.Fail(path, "%s was removed from the format: %s", typ, removed[typ])
	case unsupported[typ] != "":
		l.Fail(path, "%s is not supported: %s", typ, unsupported[typ])
	default:
		l.Fail(path, "unknown plugin type %q, %s", clip.Value(typ), l.didYouMean(typ, l.defaults.Catalogue.types(),
			slices.Sorted(maps.Keys(unsupported))))
	}
	return plugin
}

// configure decodes parameters onto a plugin and has it check them. Those of a plugin that has none are warnings: the
// reference does not read them. A plugin with a method Adapt first replaces what it takes in another way than it stands
// in the file, and says so: each warning begins as an error of Validate does.
func (l *loader) configure(x *instance, parameters *yaml.Node) {
	at, plugin := x.path+".parameters", reflect.ValueOf(x.plugin)
	if parameters != nil {
		l.Lenient = l.older.oldest || len(strictyaml.FieldsOf(plugin.Elem().Type())) == 0
		l.Decode(parameters, at, plugin.Elem())
		l.Lenient = false
	}
	l.olderNames(at, plugin.Elem())
	if a, ok := x.plugin.(interface{ Adapt() (warnings []error) }); ok {
		l.doubtful(at, a.Adapt())
	}
	if v, ok := x.plugin.(interface{ Validate() error }); ok {
		l.standIn(x, at, v.Validate())
		l.invalid(at, v.Validate())
	}
	l.effects(at, plugin.Elem(), reflect.ValueOf(l.defaults.Catalogue.construct(x.typ)).Elem())
	l.settle(x)
	if p, ok := x.plugin.(interface{ Default(destinations int) }); ok {
		p.Default(l.defaults.Destinations)
	}
	switch x.plugin.(type) {
	case *ApproxPrefixCache, *InflightLoad, *OpenAIParser, *AnthropicParser, *VLLMHTTPParser, *TokenProducer,
		*points.AgentIdentity:
		x.used = true // it has an effect without being named
	case *ServedVerifier:
		x.used, l.config.VerifiesServed = true, true
	case *DisaggHeaders:
		x.used = true
		l.Warn(x.path, "%s has no effect, because disagg-profile-handler sets its headers; leave it out", x.typ)
	}
}

// doubtful enters warnings, each beginning with the parameter's path and a colon.
func (l *loader) doubtful(path string, warnings []error) {
	for _, e := range warnings {
		name, text, _ := strings.Cut(e.Error(), ": ")
		l.Warn(path+"."+name, "%s", text)
	}
}

// invalid enters the error of a Validate as problems. It is one error or several that are joined, each beginning with
// the parameter's path and a colon.
func (l *loader) invalid(path string, err error) {
	for _, e := range problemsOf(err) {
		name, text, _ := strings.Cut(e.Error(), ": ")
		if name == "schedulingProfiles" {
			l.Fail(name, "%s for %s", text, l.from.handler.name)
			continue
		}
		l.Fail(path+"."+name, "%s", text)
	}
}

// effects enters a problem or a warning for each field of a section that has no effect (tag effect) and is not at its
// default.
func (l *loader) effects(path string, got, standard reflect.Value) {
	for _, f := range strictyaml.FieldsOf(got.Type()) {
		g, s := got.FieldByIndex(f.Index), standard.FieldByIndex(f.Index)
		same := reflect.DeepEqual(g.Interface(), s.Interface()) || g.Kind() == reflect.Slice && g.Len() == 0
		if f.Type.Kind() == reflect.Struct {
			l.effects(path+"."+f.Name, g, s)
		}
		if f.Effect == "" || same {
			continue
		}
		text := "has no effect yet, remove it"
		if !s.IsZero() || s.Kind() == reflect.Bool || s.CanInt() {
			text = "has no effect yet, only " + show(s) + " does"
		}
		if f.Effect == "warning" {
			l.Warn(path+"."+f.Name, "has no effect")
		} else {
			l.Fail(path+"."+f.Name, "%s", text)
		}
	}
}

// checkNames checks that the plugins exist that a plugin's parameters name. The default producers always do.
func (l *loader) checkNames(x *instance) {
	plugin := reflect.ValueOf(x.plugin).Elem()
	for _, f := range strictyaml.FieldsOf(plugin.Type()) {
		if f.Names == "" {
			continue
		}
		name := plugin.FieldByIndex(f.Index).String()
		if name == "" || name == f.Names && l.named[name] == nil {
			continue
		}
		l.find(x.path+".parameters."+f.Name, name, f.Names)
	}
}

// find returns the plugin that a reference names, and marks it as used. wanted are the types that it may have; none =
// any. If there is no such plugin, find enters the problem and returns nil.
func (l *loader) find(path, name string, wanted ...string) *instance {
	x := l.named[name]
	switch {
	case name == "":
		l.Fail(path, "missing")
		return nil
	case x == nil:
		l.Fail(path, "no plugin is named %q, %s", clip.Value(name), l.didYouMeanPlugin(name))
		return nil
	case x.plugin == nil:
		return nil // its type has a problem already
	case len(wanted) > 0 && !slices.Contains(wanted, x.typ):
		l.Fail(path, "%s is of type %s, want %s", x.name, x.typ, strings.Join(wanted, " or "))
		return nil
	}
	x.used = true
	return x
}

func (l *loader) didYouMeanPlugin(name string) string {
	var names []string
	for _, x := range l.instances[:min(len(l.instances), strictyaml.MaxProblems)] {
		names = append(names, x.name)
	}
	if l.Full() {
		return ""
	}
	if n := spelling.Nearest(name, names); n != "" {
		return "did you mean " + n + "?"
	}
	return "add it to plugins"
}

func (l *loader) didYouMean(name string, known, without []string) string {
	if l.Full() {
		return ""
	}
	return strictyaml.DidYouMean(name, known, without)
}
