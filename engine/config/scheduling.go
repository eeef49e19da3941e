package config

import (
	"fmt"
	"math"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/points"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

const (
	defaultPicker  = "max-score-picker"
	defaultHandler = "single-profile-handler"

	defaultDetector = "utilization-detector"
	gateDetector    = "learning-detector" // with the feature gate flowControl on
	reservePolicy   = "reserve-policy"    // the usage limit with that detector
)

// profiles returns the profiles of a file.
func (l *loader) profiles(sections []profileSection) []schedule.Profile {
	var profiles []schedule.Profile
	if len(sections) == 0 {
		profiles = []schedule.Profile{l.onlyProfile()}
	}
	seen := map[string]bool{}
	for i := range sections {
		s, at := &sections[i], item("schedulingProfiles", i)
		switch {
		case s.Name == "":
			l.Fail(at+".name", "missing")
		case seen[s.Name]:
			l.Fail(at+".name", "%s stands twice; give one of them another name", clip.Value(s.Name))
		}
		seen[s.Name] = true
		profiles = append(profiles, l.profile(s, at))
	}
	shared := l.firstPicker()
	l.from.picker = shared
	for i := range profiles {
		p := &profiles[i]
		if p.Picker.Picker == nil {
			l.add(p, shared, shared.path, 1)
		}
		if len(p.Scorers) == 0 {
			l.Warn("schedulingProfiles", "profile %s has no scorer, so all endpoints are equally good to it",
				clip.Value(p.Name))
		}
	}
	return profiles
}

// onlyProfile returns the profile of a file that has none: every filter, scorer and picker in the order of the file.
func (l *loader) onlyProfile() schedule.Profile {
	p := schedule.Profile{Name: "default"}
	for _, x := range l.instances {
		if x.runsInProfile() {
			l.add(&p, x, x.path, 1)
		}
	}
	return p
}

func (l *loader) profile(s *profileSection, path string) schedule.Profile {
	p := schedule.Profile{Name: s.Name, Shadow: s.Shadow}
	seen := map[*instance]bool{}
	for i, entry := range s.Plugins {
		at := path + "." + item("plugins", i)
		weight := 1.0
		if entry.Weight != nil {
			weight = *entry.Weight
		}
		if !(weight >= 0 && weight <= math.MaxFloat32) {
			l.Fail(at+".weight", "got %v, want 0 or more", weight)
		}
		x := l.find(at+".pluginRef", entry.PluginRef)
		switch {
		case x == nil:
			continue
		case !x.runsInProfile():
			l.Fail(at+".pluginRef", "%s is of type %s, want a filter, scorer or picker", x.name, x.typ)
			continue
		case seen[x]:
			l.Warn(at, "%s stands twice in this profile", x.name)
		}
		seen[x] = true
		if _, ok := x.plugin.(schedule.Scorer); !ok && entry.Weight != nil {
			l.Warn(at+".weight", "%s is no scorer, so its weight has no effect", x.name)
		}
		l.add(&p, x, at, weight)
	}
	return p
}

// runsInProfile reports whether a plugin is a filter, scorer or picker.
func (x *instance) runsInProfile() bool {
	switch x.plugin.(type) {
	case schedule.Filter, schedule.Scorer, schedule.Picker:
		return true
	}
	return false
}

// add adds a plugin to a profile, as a filter, a scorer and a picker if it is several of these.
func (l *loader) add(p *schedule.Profile, x *instance, path string, weight float64) {
	x.used = true
	step := l.step(x)
	if f, ok := x.plugin.(schedule.Filter); ok {
		p.Filters = append(p.Filters, schedule.FilterStep{Step: step, Filter: f})
	}
	if s, ok := x.plugin.(schedule.Scorer); ok {
		p.Scorers = append(p.Scorers, schedule.ScorerStep{Step: step, Scorer: s, Weight: float32(weight)})
	}
	if k, ok := x.plugin.(schedule.Picker); ok {
		if p.Picker.Picker != nil {
			l.Fail(path, "%s is a second picker beside %s, want one in each profile", x.name, p.Picker.Name)
		}
		p.Picker = schedule.PickerStep{Step: step, Picker: k}
		if limited, ok := k.(interface{ Most() int }); ok {
			p.Picker.Most = limited.Most
		}
	}
}

func (l *loader) step(x *instance) schedule.Step {
	return schedule.Step{Type: x.typ, Name: x.name, Reads: l.declare(x)}
}

// points returns the plugins that serve points outside of the profiles, in the order of the file. They do so without
// being named.
func (l *loader) points() []schedule.PointStep {
	var steps []schedule.PointStep
	for _, x := range l.instances {
		if schedule.ServesPoint(x.plugin) {
			x.used = true
			steps = append(steps, schedule.PointStep{Step: l.step(x), Plugin: x.plugin})
		}
		if agents, ok := x.plugin.(*points.AgentIdentity); ok {
			l.declare(x)
			l.config.FlowHeaders = append(l.config.FlowHeaders, agents.Headers()...)
		}
	}
	return steps
}

// firstPicker returns the picker of profiles that list none: the first of the file, or the default.
func (l *loader) firstPicker() *instance {
	for _, x := range l.instances {
		if _, ok := x.plugin.(schedule.Picker); ok {
			return x
		}
	}
	plugin := construct(defaultPicker)
	plugin.(interface{ Default(destinations int) }).Default(l.defaults.Destinations)
	return &instance{name: defaultPicker, typ: defaultPicker, plugin: plugin}
}

// handler returns the file's profile handler, or the default one if there is a single profile; nil = there is a problem
// with it.
func (l *loader) handler(profiles []schedule.Profile) schedule.Handler {
	names := named(profiles)
	var found *instance
	var plugin schedule.Handler
	for _, x := range l.instances {
		h, ok := x.plugin.(schedule.Handler)
		switch {
		case x.plugin == nil:
			return nil // its type has a problem, and may have been meant to be a handler
		case ok && found != nil:
			l.Fail(x.path, "%s is a second profile handler beside %s, want one", x.name, found.name)
		case ok:
			found, plugin, x.used = x, h, true
		}
	}
	if found == nil {
		if len(names) != 1 {
			l.Fail("schedulingProfiles",
				"got %d profiles and no profile handler, which only a single profile needs not", len(names))
			return nil
		}
		plugin = construct(defaultHandler).(schedule.Handler)
		found = &instance{name: defaultHandler, typ: defaultHandler, plugin: plugin}
	}
	l.from.handler = found
	l.nameDecider(found)
	l.declare(found)
	l.arrange(found, names)
	return plugin
}

// profileNames warns of a plugin whose parameter profileName names no profile that a handler may run.
func (l *loader) profileNames(profiles []schedule.Profile) {
	for _, x := range l.instances {
		p, ok := x.plugin.(interface{ CountsIn() (profile string) })
		if !ok || p.CountsIn() == "" || slices.Contains(named(profiles), p.CountsIn()) {
			continue
		}
		l.Warn(x.path+".parameters.profileName", "there is no profile %s, so %s has no effect",
			clip.Value(p.CountsIn()), x.name)
	}
}

// named returns the names of the profiles that a handler may run.
func named(profiles []schedule.Profile) []string {
	names := make([]string, 0, len(profiles))
	for i := range profiles {
		if !profiles[i].Shadow {
			names = append(names, profiles[i].Name)
		}
	}
	return names
}

// arrange tells a handler the profiles of the file that it may run, and the plugins that it names.
func (l *loader) arrange(x *instance, names []string) {
	h, ok := x.plugin.(schedule.Arranger)
	if !ok {
		return
	}
	at := x.path + ".parameters"
	l.invalid(at, h.Arrange(names, func(parameter, name string) any {
		named := l.find(at+"."+parameter, name)
		if named == nil {
			return nil
		}
		l.declare(named)
		return named.plugin
	}))
	if d, ok := x.plugin.(schedule.Doubter); ok {
		l.doubtful(at, d.Doubts())
	}
}

// countOutput has the tokens that are expected in answers be part of the load, if an inflight-load-producer says so.
func (l *loader) countOutput() {
	var load *InflightLoad
	var bucket *points.OutputLength
	for _, x := range l.instances {
		switch p := x.plugin.(type) {
		case *InflightLoad:
			if load == nil && p.AddEstimatedOutputTokens {
				load = p
			}
		case *points.OutputLength:
			if bucket == nil {
				bucket = p
			}
		}
	}
	if load == nil {
		return
	}
	for _, x := range l.instances {
		x.used = x.used || x.plugin == any(bucket)
	}
	l.config.Plan.CountOutput(func(of schedule.Request) int { return load.output(of, bucket) })
}

// Tokens that are expected in answers of which an outlen-bucket says how long they are.
const (
	shortTokens = 100
	longTokens  = 4096
)

// output returns how many tokens are expected in the answer to a request. bucket says how long it is; nil = none does.
func (p *InflightLoad) output(of schedule.Request, bucket *points.OutputLength) int {
	n := int(min(p.OutputRatio*float64(of.PromptTokens()), math.MaxInt32))
	if bucket != nil {
		switch bucket.Length(of) {
		case points.LongAnswer:
			n = longTokens
		case points.ShortAnswer:
			n = shortTokens
		case points.UnknownLength:
		}
	}
	if limit := of.OutputTokens(); limit > 0 {
		n = min(n, limit)
	}
	if p.MaxEstimatedOutputTokens != nil {
		n = min(n, *p.MaxEstimatedOutputTokens)
	}
	return n
}

// emits lists the plugin types that emit attributes. Those of the core-metrics-extractor come from metrics pages.
var emits = map[string][]attributes.Attribute{
	"core-metrics-extractor": {
		attributes.QueuedRequests, attributes.WaitingRequests, attributes.RunningRequests, attributes.KVCacheUsage,
		attributes.ActiveLoRAs, attributes.WaitingLoRAs, attributes.MaxLoRAs, attributes.ResidentLoRAs,
		attributes.HostLoRAs, attributes.PinnedLoRAs, attributes.BaseModels, attributes.KVBlockTokens,
		attributes.KVBlocks, attributes.Asleep, attributes.StartTime,
	},
	"inflight-load-producer": {
		attributes.InflightRequests, attributes.InflightTokens, attributes.SentRequests, attributes.SentTokens,
		attributes.WindowRequests, attributes.WindowTokens, attributes.PromptWait, attributes.PromptRate,
		attributes.RequestRate,
	},
	prefixProducer: {attributes.PrefixBlocks},
}

// declare returns what a plugin reads.
func (l *loader) declare(x *instance) []attributes.Slot {
	if plugin, ok := x.plugin.(schedule.Reader); ok && !x.declared {
		r := l.binding.Reader(x.name)
		if _, detects := x.plugin.(schedule.Detector); detects {
			r = l.binding.DetectorReader(x.name)
		}
		plugin.Declare(r)
		x.declared, x.reads = true, r.Slots()
		if decidesWaits(x) {
			l.from.gate.headers = append(l.from.gate.headers, r.Headers()...)
		}
	}
	return x.reads
}

// declareWaits has the policies of flow control that the file lists declare what they read: headers, if they are asked
// about requests that wait, and else nothing.
func (l *loader) declareWaits() {
	for _, x := range l.instances {
		plugin, ok := x.plugin.(schedule.Reader)
		if !ok || x.declared || !decidesWaits(x) {
			continue
		}
		may := "may declare headers of requests alone, for they are asked about requests that wait, and no server"
		ofRequests := true
		switch x.plugin.(type) {
		case flow.Ordering, flow.Fairness, flow.Displacement, flow.QueueType:
		default:
			may, ofRequests = "may declare nothing, for they are asked about no request that waits", false
		}
		r := l.binding.PolicyReader(x.name, ofRequests)
		plugin.Declare(r)
		x.declared = true
		for _, what := range r.Barred() {
			l.Fail(x.path+".type", "%s declares %s, and %s %s", x.name, clip.Value(what), familyOf(x.plugin), may)
		}
		l.from.gate.headers = append(l.from.gate.headers, r.Headers()...)
	}
}

// bind binds what the plugins of the profiles read to what is emitted.
func (l *loader) bind() *attributes.Layout {
	if l.config.Metrics.Enabled {
		l.binding.EmitFrom(&l.from.main.from, l.from.core.name, emits[l.from.core.typ]...)
	}
	if l.config.Models.Enabled {
		l.binding.EmitFrom(&l.from.lists, l.from.models.name, attributes.Models)
	}
	emitted := map[[2]string]bool{}
	for _, e := range l.extractable() {
		key := [2]string{e.Name, e.Producer}
		if !emitted[key] { // engines may each have series of one attribute
			l.binding.EmitFrom(l.sourceNamed(e.Source), e.Producer, attributes.Attribute{Name: e.Name})
		}
		emitted[key] = true
	}
	for _, x := range l.instances {
		if of, ok := x.plugin.(schedule.Producer); ok {
			l.emitted(x, of.Emits())
			for _, name := range of.Emits() {
				l.binding.Emit(x.name, attributes.ProducedAs(name))
			}
		}
	}
	l.emit("inflight-load-producer")
	l.emit(prefixProducer)
	if len(l.index.sizes) > 0 { // what servers hold is left out of tokens in flight, though no plugin reads it
		l.binding.Reader(prefixProducer).Number(attributes.PrefixBlocks.Name, "")
	}
	l.declareWaits()
	layout, faults := l.binding.Layout()
	for _, f := range faults {
		if !l.config.Metrics.Enabled && f.Absent != "" {
			f.Text += "; core-metrics-extractor has no page, for dataLayer.injectDefaults is false and " +
				"dataLayer.sources names no metrics-data-source"
		}
		l.Fail(l.pathOf(f.Reader), "%s", f.Text)
	}
	l.extractions(layout)
	l.lightLane(layout)
	if !l.config.Metrics.Enabled && layout.ReadsFrom(attributes.Matched) {
		l.Warn("dataLayer.injectDefaults", "no metrics page is read, so a server that restarts is taken to keep its "+
			"prefix cache")
	}
	return layout
}

// lightLane notes which plugins of the file depend on what the light lane does not show.
func (l *loader) lightLane(layout *attributes.Layout) {
	for _, x := range l.instances {
		if user, ok := x.plugin.(schedule.BodyUser); ok && x.used && user.WithoutBody() != "" {
			l.note(x, "%s: %s", x.name, user.WithoutBody())
		}
		for _, slot := range x.reads {
			switch a := layout.At(slot); {
			case a.Origin == attributes.Counted:
				l.note(x,
					"%s reads %s, in which a request counts until Envoy's access log tells its end; without that "+
						"log it counts until the headers of its response", x.name, a.Name)
			case a.Origin == attributes.Matched && l.index.inForce().FollowCaches: // others never drop what is lost
				l.note(x, "%s reads %s, which may have what a server has lost for some 400 requests, because one "+
					"answer in twenty shows cached tokens; with a file of signalbox envoy-config --lane full all do",
					x.name, a.Name)
			}
		}
	}
}

func (l *loader) note(x *instance, format string, args ...any) {
	l.config.LightLane = append(l.config.LightLane, l.Remark(x.path, format, args...))
}

// extractions sets what is taken from the metrics page beside what is built in: what a plugin reads.
func (l *loader) extractions(layout *attributes.Layout) {
	read := map[[2]string]bool{}
	for i, a := range layout.Of(attributes.Number) {
		read[[2]string{a.Name, layout.Producer(attributes.Slot{Type: attributes.Number, Index: i})}] = true
	}
	for _, e := range l.extractable() {
		if read[[2]string{e.Name, e.Producer}] {
			l.config.Extractions = append(l.config.Extractions, e)
		}
	}
}

// extractable returns what the extractors of metrics pages can take from them beside what is built in.
func (l *loader) extractable() []Extraction {
	var all []Extraction
	if l.from.main != nil {
		all = l.from.core.plugin.(*CoreMetrics).custom(l.from.core.name)
	}
	for _, p := range l.from.pages {
		for _, x := range p.more {
			for _, a := range extracted(x.plugin) {
				all = append(all, Extraction{ExtractedAttribute: a, Producer: x.name, Source: p.from.Name})
			}
		}
	}
	return all
}

// sourceNamed returns a metrics page by its name; "" = the main one.
func (l *loader) sourceNamed(name string) *attributes.Source {
	for _, p := range l.from.pages {
		if p.from.Name == name {
			return &p.from
		}
	}
	return &l.from.main.from
}

// emit has every plugin of a type emit what all of the type share, and the one that is there by default, whose name is
// the type.
func (l *loader) emit(typ string) {
	named := false
	for _, x := range l.instances {
		if x.typ == typ && x.plugin != nil {
			named = named || x.name == typ
			l.binding.EmitShared(x.name, emits[typ]...)
		}
	}
	if !named {
		l.binding.EmitShared(typ, emits[typ]...)
	}
}

// pathOf returns the path of the first plugin with a name.
func (l *loader) pathOf(name string) string {
	for _, x := range l.instances {
		if x.name == name {
			return x.path
		}
	}
	return ""
}

// item returns the path of an item of a list.
func item(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
