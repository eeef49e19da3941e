package config

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/ceilings"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/queues"
	"github.com/signalbox-epp/signalbox/engine/reclaim"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
	"github.com/signalbox-epp/signalbox/messages"
)

// Limits of bands that set none.
const (
	bandRequests = 5000
	bandBytes    = 1_000_000_000
)

// detector finds the saturation detector: the one that the file names, or the default one if it has a request to decide
// over, and something to read. With the feature gate flowControl on, it decides over all.
func (l *loader) detector(doc *document) {
	ref := doc.FlowControl.SaturationDetector
	x := l.detectorAt("flowControl.saturationDetector", ref)
	if older := doc.older.detector; older != nil {
		if found := l.olderDetector(older); ref == nil {
			ref, x = &older.pluginRef, found
		}
	}
	sheddable := false
	for _, priority := range l.config.Priorities {
		sheddable = sheddable || priority < 0
	}
	switch {
	case ref != nil:
	case l.gated:
		x = l.defaultDetector(gateDetector)
	case !sheddable:
	case l.config.Metrics.Enabled:
		x = l.defaultDetector(defaultDetector)
	default:
		l.Warn("objectives", "no metrics page is read, so requests of negative priority are not refused while the "+
			"pool is saturated")
	}
	if l.from.gate.detector = x; x != nil {
		l.declare(x)
		l.learn(x)
	}
}

// learner is a detector whose bounds are learned from these attributes, as far as pages have them.
type learner interface{ Learns() []attributes.Attribute }

// learn has pages be read for what a detector learns from.
func (l *loader) learn(x *instance) {
	of, ok := x.plugin.(learner)
	if !ok || !l.gated || !l.config.Metrics.Enabled {
		return
	}
	r := l.binding.Reader(x.name)
	for _, a := range of.Learns() {
		r.Number(a.Name, "")
	}
}

// leaveToGate takes the detector, and those that it is made of, out of the profiles that have it as a filter if
// requests wait for room: the gate asks it before the filters of every profile, and a filter that leaves no server
// would have the request refused.
func (l *loader) leaveToGate(profiles []schedule.Profile) {
	x := l.from.gate.detector
	if x == nil || !l.gated {
		return
	}
	for _, x := range append(x.parts, x) {
		for i := range profiles {
			profiles[i].Filters = slices.DeleteFunc(profiles[i].Filters, func(f schedule.FilterStep) bool {
				return f.Name == x.name && f.Type == x.typ
			})
		}
	}
}

// detectorAt returns the detector that a section names; nil = the section is absent, or there is a problem with it.
func (l *loader) detectorAt(path string, ref *pluginRef) *instance {
	if ref == nil {
		return nil
	}
	path += ".pluginRef"
	if name := ref.PluginRef; (name == defaultDetector || name == gateDetector) && l.named[name] == nil {
		return l.defaultDetector(name)
	}
	x := l.find(path, ref.PluginRef)
	if x == nil {
		return nil
	}
	if _, ok := x.plugin.(schedule.Detector); !ok {
		l.Fail(path, "%s is of type %s, want a saturation detector, such as %s", x.name, x.typ, defaultDetector)
		return nil
	}
	l.combine(x)
	return x
}

// combine has a detector that is made of others find them.
func (l *loader) combine(x *instance) {
	of, ok := x.plugin.(schedule.Combined)
	if !ok || len(x.parts) > 0 {
		return
	}
	of.Combine(func(parameter, name string) schedule.Detector {
		at := x.path + ".parameters." + parameter
		found := l.find(at, name)
		if found == nil {
			return nil
		}
		d, ok := found.plugin.(schedule.Detector)
		if _, nested := d.(schedule.Combined); !ok || nested {
			l.Fail(at, "%s is of type %s, want a saturation detector that is not made of others", found.name, found.typ)
			return nil
		}
		x.parts = append(x.parts, found)
		return d
	})
}

// defaultDetector returns the detector of a type that holds if the file names none.
func (l *loader) defaultDetector(typ string) *instance {
	if x := l.named[typ]; x != nil && x.typ == typ {
		x.used = true
		return x
	}
	return &instance{name: typ, typ: typ, plugin: construct(typ)}
}

// flowControl checks the section. While its feature gate is off, only its detector has an effect.
func (l *loader) flowControl(doc *document) {
	s := &doc.FlowControl
	l.nonNegative("flowControl.maxBytes", s.MaxBytes)
	l.nonNegative("flowControl.maxRequests", s.MaxRequests)
	l.ttl("flowControl.defaultRequestTTL", &s.DefaultRequestTTL)
	l.ttl("flowControl.noEndpointRequestTTL", s.NoEndpointRequestTTL)
	q := &queueing{ttl: s.DefaultRequestTTL}
	q.standard = l.band("flowControl.defaultPriorityBand", s.DefaultPriorityBand, s)
	q.negative = q.standard
	if s.DefaultNegativePriorityBand != nil {
		q.negative = l.band("flowControl.defaultNegativePriorityBand", s.DefaultNegativePriorityBand, s)
	}
	seen := map[int]bool{}
	for i := range s.PriorityBands {
		b, at := &s.PriorityBands[i], "flowControl."+item("priorityBands", i)
		q.bands = append(q.bands, l.band(at, b, s))
		if seen[b.Priority] {
			l.Fail(at+".priority", "a second band of priority %d, want one", b.Priority)
		}
		seen[b.Priority] = true
	}
	l.minShares(s)
	limits := usageLimitTypes
	if x := l.from.gate.detector; x != nil && x.typ == gateDetector {
		limits = append([]string{reservePolicy}, limits...)
	}
	q.usageLimit = policy[flow.UsageLimit](l, "flowControl.usageLimitPolicyPluginRef", s.UsageLimitPolicyPluginRef,
		limits)
	if l.gated {
		l.from.gate.queueing, l.config.Queueing = q, q.settings(s)
		l.config.Queueing.Priorities, l.config.Queueing.Headers = l.priorities(q), l.from.gate.headers
		l.evictions(s)
		if l.config.Queueing.ReadsSaturation() {
			l.config.Plan.TellSaturation()
		}
		return
	}
	more := slices.ContainsFunc(strictyaml.FieldsOf(reflect.TypeFor[flowControlSection]()),
		func(f strictyaml.Field) bool {
			return f.Name != "saturationDetector" && l.Written("flowControl."+f.Name)
		})
	switch detector := l.Written("flowControl.saturationDetector"); {
	case detector && more:
		l.Warn("flowControl", "the feature gate flowControl is off, so only its saturationDetector has an effect")
	case !detector && l.Written("flowControl"):
		l.Warn("flowControl", "the feature gate flowControl is off, so this has no effect")
	}
}

// minShares checks the least shares of bands.
func (l *loader) minShares(s *flowControlSection) {
	sum := 0.
	for i := range s.PriorityBands {
		at, share := "flowControl."+item("priorityBands", i)+".minShare", s.PriorityBands[i].MinShare
		if !(share >= 0 && share < 1) {
			l.Fail(at, "got %v, want 0 or more, and less than 1", share)
		} else if sum += share; sum >= 1 {
			l.Fail(at, "the shares up to this one are %v together, want less than 1", sum)
		}
	}
	for at, b := range map[string]*bandSection{
		"defaultPriorityBand": s.DefaultPriorityBand, "defaultNegativePriorityBand": s.DefaultNegativePriorityBand,
	} {
		if b != nil && b.MinShare != 0 {
			l.Fail("flowControl."+at+".minShare", "this may be many bands, want it at one of priorityBands")
		}
	}
}

// Built-in policies of in-flight eviction. They come behind those of the file.
var evictionTypes = []string{"sheddable-eviction-filter", "priority-then-time-eviction-order-policy"}

// How long it takes until the room of a request that was ended shows: at once where load is what counts, else with the
// next sample of its server, which takes a second at most.
const (
	loadSettles   = 10 * time.Millisecond
	sampleSettles = 1250 * time.Millisecond
)

// evictions has running requests end for waiting ones, by the policies that the file lists and by the built-in ones.
func (l *loader) evictions(s *flowControlSection) {
	listed := map[string]bool{}
	var policies []reclaim.Policy
	for _, x := range l.instances {
		if p, ok := x.plugin.(reclaim.Eviction); ok && s.EnableEviction {
			x.used, listed[x.typ] = true, true
			policies = append(policies, reclaim.Policy{Type: x.typ, Eviction: p})
		}
	}
	if !s.EnableEviction {
		return
	}
	for _, typ := range evictionTypes {
		if !listed[typ] {
			policies = append(policies, reclaim.Policy{Type: typ, Eviction: construct(typ).(reclaim.Eviction)})
		}
	}
	q := l.config.Queueing
	q.Evictions, q.Settles = policies, sampleSettles
	if bound := l.config.Plan.Bounds(1); bound != (endpoints.Room{}) && bound.Waiting == 0 {
		q.Settles = loadSettles
	}
	if len(q.Priorities) == 0 || q.Priorities[len(q.Priorities)-1] >= 0 {
		l.Warn("flowControl.enableEviction",
			"no objective has a negative priority, so no running request is ever ended")
		return
	}
	l.config.LightLane = append(l.config.LightLane, l.Remark("flowControl.enableEviction",
		"a running request is ended only until the headers of its response: its body bypasses Signalbox, which "+
			"cannot end it then; with a file of signalbox envoy-config --lane full answers that have begun are ended"))
}

// priorities returns those that requests may have: of objectives, of bands, and 0, highest first.
func (l *loader) priorities(q *queueing) []int {
	all := []int{0}
	for _, priority := range l.config.Priorities {
		all = append(all, priority)
	}
	for i := range q.bands {
		all = append(all, q.bands[i].Priority)
	}
	slices.SortFunc(all, func(a, b int) int { return cmp.Compare(b, a) })
	return slices.Compact(all)
}

// queueing says how requests wait, with the plugins that decide over it.
type queueing struct {
	standard, negative band
	bands              []band        // of single priorities
	ttl                time.Duration // of the section
	usageLimit         *instance
}

// plugins returns all of them, some twice; nil has none.
func (q *queueing) plugins() []*instance {
	if q == nil {
		return nil
	}
	all := []*instance{q.usageLimit}
	for _, b := range append([]band{q.standard, q.negative}, q.bands...) {
		all = append(all, b.fairness, b.ordering, b.displacement, b.queue)
	}
	return all
}

// band is one of its bands.
type band struct {
	*bandSection
	ttl time.Duration

	fairness, ordering, displacement *instance // nil = there is a problem with them
	queue                            *instance // nil = the first type that will do
}

// band checks the section of a band; nil = its defaults.
func (l *loader) band(path string, b *bandSection, of *flowControlSection) band {
	if b == nil {
		b = &bandSection{}
	}
	l.priority(path+".priority", b.Priority)
	l.nonNegative(path+".maxBytes", b.MaxBytes)
	l.nonNegative(path+".maxRequests", b.MaxRequests)
	l.ttl(path+".defaultRequestTTL", b.DefaultRequestTTL)
	ttl := of.DefaultRequestTTL
	if b.DefaultRequestTTL != nil {
		ttl = *b.DefaultRequestTTL
	}
	made := band{
		b, ttl, policy[flow.Fairness](l, path+".fairnessPolicyRef", b.FairnessPolicyRef, fairnessTypes),
		policy[flow.Ordering](l, path+".orderingPolicyRef", b.OrderingPolicyRef, orderingTypes),
		policy[flow.Displacement](l, path+".displacementPolicyRef", b.DisplacementPolicyRef, displacementTypes), nil,
	}
	if b.QueueRef != "" {
		made.queue = policy[flow.QueueType](l, path+".queueRef", b.QueueRef, queueTypes)
	}
	l.suits(path, &made)
	return made
}

// suits checks that the queues of a band can do what its policies need.
func (l *loader) suits(path string, b *band) {
	if b.ordering == nil || b.fairness == nil {
		return
	}
	p := b.policies()
	const orders = flow.ArrivalOrder | flow.KeyOrder
	switch lacks := (p.Needs() | flow.Needed) &^ p.Queue.Can(); {
	case lacks == 0 && p.Queue.Can()&orders == 0 && slices.Contains(orderingTypes, b.ordering.typ):
		l.Fail(path+".queueRef", "%s has no arrival order and no key order, of which %s needs one", b.queue.name,
			b.ordering.name)
	case lacks == 0:
	case b.queue != nil:
		l.Fail(path+".queueRef", "%s has no %s, which %s and %s need", b.queue.name,
			strings.Join(lacks.Names(), ", "), b.ordering.name, b.fairness.name)
	default:
		l.Fail(path+".orderingPolicyRef", "%s and %s need %s of a queue, and none that is built in has all of that",
			b.ordering.name, b.fairness.name, strings.Join(p.Needs().Names(), ", "))
	}
}

// policy returns the plugin that a reference names, which is a P; "" = that of the first of the types. nil = there is a
// problem with it.
func policy[P any](l *loader, path, name string, types []string) *instance {
	if name == "" || name == types[0] && l.named[name] == nil {
		if x := l.defaulted[types[0]]; x != nil {
			return x
		}
		x := &instance{name: types[0], typ: types[0], plugin: construct(types[0])}
		l.defaulted[types[0]] = x
		return x
	}
	x := l.find(path, name)
	if x == nil {
		return nil
	}
	if _, fits := x.plugin.(P); !fits {
		l.Fail(path, "%s is of type %s, want %s", x.name, x.typ, strings.Join(types, " or "))
		return nil
	}
	return x
}

// settings returns what the section says.
func (q *queueing) settings(s *flowControlSection) *flow.Settings {
	out := &flow.Settings{
		Limits:  flow.Limits{Requests: int64(s.MaxRequests), Bytes: int64(s.MaxBytes)},
		Bands:   map[int]flow.BandSettings{},
		Default: q.standard.settings(), Negative: q.negative.settings(), Without: s.DefaultRequestTTL,
	}
	if s.NoEndpointRequestTTL != nil {
		out.Without = *s.NoEndpointRequestTTL
	}
	for i := range q.bands {
		out.Bands[q.bands[i].Priority] = q.bands[i].settings()
	}
	out.BuiltIn = (&band{}).policies()
	if q.usageLimit != nil {
		out.UsageLimit, _ = q.usageLimit.plugin.(flow.UsageLimit)
		out.LimitedBy = q.usageLimit.typ
	}
	if static, ok := out.UsageLimit.(*ceilings.Static); ok && static.Threshold == 1 {
		out.UsageLimit, out.LimitedBy = nil, ""
	}
	return out
}

func (b *band) settings() flow.BandSettings {
	s := flow.BandSettings{
		Limits: flow.Limits{
			Requests: cmp.Or(int64(b.MaxRequests), bandRequests), Bytes: cmp.Or(int64(b.MaxBytes), bandBytes),
		},
		Policies: b.policies(), TTL: b.ttl, Names: b.names(), MinShare: b.MinShare,
	}
	if of, ok := s.Fairness.(flow.Weigher); ok {
		s.Weights = of.FlowWeights()
	}
	return s
}

// names returns the types of the band's policies.
func (b *band) names() messages.PolicyNames {
	n := messages.PolicyNames{
		Ordering: orderingTypes[0], Fairness: fairnessTypes[0], Displacement: displacementTypes[0],
	}
	if b.ordering != nil {
		n.Ordering = b.ordering.typ
	}
	if b.fairness != nil {
		n.Fairness = b.fairness.typ
	}
	if b.displacement != nil {
		n.Displacement = b.displacement.typ
	}
	p := b.policies()
	n.Queue, _ = b.queueFor(&p)
	return n
}

// policies returns those of the band, and the first types in the place of those that have a problem.
func (b *band) policies() flow.Policies {
	p := flow.Policies{
		Ordering: construct(orderingTypes[0]).(flow.Ordering), Fairness: construct(fairnessTypes[0]).(flow.Fairness),
		Displacement: construct(displacementTypes[0]).(flow.Displacement),
	}
	if b.ordering != nil {
		if ordering, ok := b.ordering.plugin.(flow.Ordering); ok {
			p.Ordering = ordering
		}
	}
	if b.fairness != nil {
		if fair, ok := b.fairness.plugin.(flow.Fairness); ok {
			p.Fairness = fair
		}
	}
	if b.displacement != nil {
		if of, ok := b.displacement.plugin.(flow.Displacement); ok {
			p.Displacement = of
		}
	}
	_, p.Queue = b.queueFor(&p)
	return p
}

// queueFor returns the type of queues that the band names, or else the first one that can do what the policies need.
func (b *band) queueFor(p *flow.Policies) (typ string, queue flow.QueueType) {
	if b.queue != nil {
		return b.queue.typ, b.queue.plugin.(flow.QueueType)
	}
	for _, typ := range queueTypes {
		if queue := construct(typ).(flow.QueueType); queue.Can().Has(p.Needs()) {
			return typ, queue
		}
	}
	return queueTypes[0], new(queues.ListQueue)
}

func (l *loader) nonNegative(path string, q strictyaml.Quantity) {
	if q < 0 {
		l.Fail(path, "got %d, want 0 or more", q)
	}
}

// LongestWait is from which length on a wait is worth a warning: clients and proxies give up before.
const LongestWait = 10 * time.Minute

func (l *loader) ttl(path string, d *time.Duration) {
	switch {
	case d == nil:
	case *d < 0:
		l.Fail(path, "got %v, want 0s or more", *d)
	case !l.gated:
	case *d == 0:
		l.Warn(path, "0s: a request waits for as long as its client does")
	case *d > LongestWait:
		l.Warn(path, "%v: clients and proxies give up before, want %v or less", *d, LongestWait)
	}
}
