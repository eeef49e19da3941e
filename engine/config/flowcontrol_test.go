package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/ceilings"
	"github.com/signalbox-epp/signalbox/engine/displacements"
	"github.com/signalbox-epp/signalbox/engine/evictions"
	"github.com/signalbox-epp/signalbox/engine/fairness"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/orderings"
	"github.com/signalbox-epp/signalbox/engine/queues"
	"github.com/signalbox-epp/signalbox/engine/reclaim"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

const gateOn = newHead + "featureGates: [flowControl]\n"

func arrivalOrder() flow.Policies {
	return flow.Policies{
		Ordering: new(orderings.FCFS), Queue: new(queues.ListQueue), Fairness: new(fairness.GlobalStrict),
		Displacement: new(displacements.LongestFlow),
	}
}

// usual names the policies of bands that name none.
var usual = messages.PolicyNames{
	Ordering: "fcfs-ordering-policy", Queue: "list-queue", Fairness: "global-strict-fairness-policy",
	Displacement: "longest-flow-displacement-policy",
}

func TestLoadFlowControl(t *testing.T) {
	standard := flow.BandSettings{
		Limits: flow.Limits{Requests: 5000, Bytes: 1e9}, Policies: arrivalOrder(), TTL: time.Minute, Names: usual,
	}
	half := .5
	tenants := flow.BandSettings{
		Limits: flow.Limits{Requests: 7, Bytes: 2e9}, TTL: 5 * time.Second, MinShare: .1,
		Policies: flow.Policies{
			Ordering: new(orderings.EDF), Queue: new(queues.MaxMinHeap), Fairness: new(fairness.RoundRobin),
			Displacement: new(displacements.NewestRequest),
		},
		Names: messages.PolicyNames{
			Ordering: "edf-ordering-policy", Queue: "max-min-heap", Fairness: "round-robin-fairness-policy",
			Displacement: "newest-request-displacement-policy",
		},
	}
	for name, c := range map[string]struct {
		data string
		want flow.Settings
	}{
		"E11 E48 the gate alone": {gateOn, flow.Settings{
			Bands: map[int]flow.BandSettings{}, Default: standard, Negative: standard, BuiltIn: arrivalOrder(),
			Without: time.Minute, Priorities: []int{0}, LimitedBy: "reserve-policy", UsageLimit: new(ceilings.Reserve),
		}},
		"a detector of thresholds": {gateOn + "plugins: [{type: concurrency-detector}]\n" +
			"flowControl: {saturationDetector: {pluginRef: concurrency-detector}}\n", flow.Settings{
			Bands: map[int]flow.BandSettings{}, Default: standard, Negative: standard, BuiltIn: arrivalOrder(),
			Without: time.Minute, Priorities: []int{0},
		}},
		"E12 E46 E47 all of it": {gateOn + `plugins:
- {type: round-robin-fairness-policy, name: turns}
- {type: newest-request-displacement-policy}
- {type: edf-ordering-policy}
- {type: priority-holdback-policy, parameters: {minCeiling: 0.5, maxCeiling: 0.75, domain: value}}
flowControl:
  maxBytes: 8Gi
  maxRequests: 1k
  defaultRequestTTL: 5s
  noEndpointRequestTTL: 0s
  priorityBands:
  - {priority: 2, maxRequests: 7, maxBytes: 2G, minShare: 0.1,
    fairnessPolicyRef: turns, orderingPolicyRef: edf-ordering-policy,
    displacementPolicyRef: newest-request-displacement-policy}
  defaultNegativePriorityBand: {defaultRequestTTL: 1m, fairnessPolicyRef: global-strict-fairness-policy}
  usageLimitPolicyPluginRef: priority-holdback-policy
objectives: [{name: a, priority: 7}, {name: b, priority: -1}, {name: c, priority: -1}]
`, flow.Settings{
			Limits: flow.Limits{Requests: 1000, Bytes: 8 << 30},
			Bands:  map[int]flow.BandSettings{2: tenants},
			Default: flow.BandSettings{
				Limits: standard.Limits, Policies: arrivalOrder(), TTL: 5 * time.Second, Names: usual,
			},
			Negative: flow.BandSettings{
				Limits: standard.Limits, Policies: arrivalOrder(), TTL: time.Minute, Names: usual,
			}, BuiltIn: arrivalOrder(), LimitedBy: "priority-holdback-policy", UsageLimit: &ceilings.PriorityHoldback{
				MinCeiling: &half, MaxCeiling: .75, Domain: "value", Shape: "linear",
			}, Priorities: []int{7, 2, 0, -1},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Load([]byte(c.data), three)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, *got.Queueing); d != "" {
				t.Errorf("want -, got +:\n%s", d)
			}
			if !got.Plan.Gated() || len(got.Warnings) > 2 {
				t.Errorf("gated %t, warnings %v", got.Plan.Gated(), got.Warnings)
			}
			shown, err := Show([]byte(c.data), three)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Load(shown, three)
			if err != nil || !reflect.DeepEqual(got.Queueing, again.Queueing) {
				t.Errorf("%v, what is shown means something else:\n%s", err, shown)
			}
			if twice, err := Show(shown, three); err != nil || string(twice) != string(shown) {
				t.Errorf("%v, shown again:\n%s", err, cmp.Diff(string(shown), string(twice)))
			}
		})
	}
}

// Waits without an end, and those that nobody outlasts, are worth a warning each.
func TestLoadWarnsOfLongWaits(t *testing.T) {
	const section = `flowControl:
  defaultRequestTTL: 0s
  noEndpointRequestTTL: 10m
  defaultPriorityBand: {defaultRequestTTL: 11m}
  priorityBands: [{priority: 1, defaultRequestTTL: 0s}, {priority: 2, defaultRequestTTL: 1s}]
`
	for head, want := range map[string][]string{
		newHead + "featureGates: [flowControl]\n": {
			"line 5: flowControl.defaultRequestTTL: 0s: a request waits for as long as its client does",
			"line 7: flowControl.defaultPriorityBand.defaultRequestTTL: 11m0s: clients and proxies give up before, " +
				"want 10m0s or less",
			"line 8: flowControl.priorityBands[0].defaultRequestTTL: 0s: a request waits for as long as its client " +
				"does",
		},
		newHead + "\n": {"line 4: flowControl: the feature gate flowControl is off, so this has no effect"},
	} {
		got, err := Load([]byte(head+section), three)
		if err != nil {
			t.Fatal(err)
		}
		var warnings []string
		for _, w := range got.Warnings {
			if strings.Contains(w.String(), "flowControl") {
				warnings = append(warnings, w.String())
			}
		}
		if d := cmp.Diff(want, warnings); d != "" {
			t.Errorf("want -, got +:\n%s", d)
		}
	}
}

// evictionsOf returns the policies without their types, which must be known.
func evictionsOf(t *testing.T, list []reclaim.Policy) (policies []reclaim.Eviction) {
	t.Helper()
	for _, p := range list {
		if policies = append(policies, p.Eviction); construct(p.Type) == nil {
			t.Errorf("type %q of %T is none", p.Type, p.Eviction)
		}
	}
	return policies
}

// Running requests end for waiting ones if the file says so, by the policies that it lists, and by the built-in ones.
func TestLoadEvictions(t *testing.T) {
	const on, low = "flowControl: {enableEviction: true", "objectives: [{name: batch, priority: -1}]\n"
	for name, c := range map[string]struct {
		text     string
		policies []reclaim.Eviction
		settles  time.Duration
		warning  string
	}{
		"off": {gateOn + low, nil, 0, ""},
		"the gate is off": {
			newHead + low + on + "}\n", nil, 0,
			"line 4: flowControl: the feature gate flowControl is off, so this has no effect",
		},
		"on": {
			gateOn + low + on + ", saturationDetector: {pluginRef: utilization-detector}}\n",
			[]reclaim.Eviction{new(evictions.Sheddable), new(evictions.PriorityThenTime)}, sampleSettles, "",
		},
		"by load": {
			gateOn + low + "plugins: [{type: concurrency-detector}]\n" + on +
				", saturationDetector: {pluginRef: concurrency-detector}}\n",
			[]reclaim.Eviction{new(evictions.Sheddable), new(evictions.PriorityThenTime)}, loadSettles, "",
		},
		"the order is listed": {
			gateOn + low + "plugins: [{type: priority-then-time-eviction-order-policy}]\n" + on + "}\n",
			[]reclaim.Eviction{new(evictions.PriorityThenTime), new(evictions.Sheddable)}, loadSettles, "",
		},
		"nobody to end": {
			gateOn + on + "}\n", []reclaim.Eviction{new(evictions.Sheddable), new(evictions.PriorityThenTime)},
			loadSettles, "line 4: flowControl.enableEviction: no objective has a negative priority, so no running " +
				"request is ever ended",
		},
		"listed without effect": {
			gateOn + low + "plugins: [{type: sheddable-eviction-filter}]\n", nil, 0,
			"line 5: plugins[0]: nothing names sheddable-eviction-filter, so it has no effect",
		},
	} {
		got, err := Load([]byte(c.text), three)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var policies []reclaim.Eviction
		var settles time.Duration
		if got.Queueing != nil {
			policies, settles = evictionsOf(t, got.Queueing.Evictions), got.Queueing.Settles
		}
		if !reflect.DeepEqual(policies, c.policies) || settles != c.settles {
			t.Errorf("%s: %T, %v; want %T, %v", name, policies, settles, c.policies, c.settles)
		}
		var warnings []string
		for _, w := range got.Warnings {
			if !strings.Contains(w.String(), "has no scorer") {
				warnings = append(warnings, w.String())
			}
		}
		if text := strings.Join(warnings, "\n"); text != c.warning {
			t.Errorf("%s: warnings %q, want %q", name, text, c.warning)
		}
	}
}

// With the gate on, the detector says where there is room.
func TestLoadGate(t *testing.T) {
	const bounded = "plugins: [{type: concurrency-detector, parameters: {maxConcurrency: 3, headroom: 0.5}}]\n" +
		"flowControl: {saturationDetector: {pluginRef: concurrency-detector}}"
	got, err := Load([]byte(gateOn+bounded), three)
	if err != nil {
		t.Fatal(err)
	}
	if room := got.Plan.Bounds(1); room.Requests != 5 || room.Tokens != 0 {
		t.Errorf("bounds %+v, want 5 requests", room)
	}
	if by := got.Plan.Detector(); by.Name != "concurrency-detector" || len(by.Reads) != 1 {
		t.Errorf("%+v says where there is room", by)
	}
	if n := len(got.Plan.Profiles()[0].Filters); n != 0 {
		t.Errorf("the default profile has it as one of %d filters, which would refuse what is to wait", n)
	}
	without, err := Load([]byte(newHead+bounded), three)
	if err != nil || without.Plan.Gated() || without.Plan.Bounds(1).Requests != 0 || without.Queueing != nil {
		t.Errorf("%v, the gate is off, and there is one", err)
	}
}

// Weights of a fairness are those of its bands' flows.
func TestLoadWeights(t *testing.T) {
	const text = `plugins:
- {type: token-fairness-policy, parameters: {weights: {gold: 4, "": 0.5}}}
- {type: program-aware-fairness, parameters: {lasHalfLifeSeconds: 30}}
flowControl:
  defaultPriorityBand: {fairnessPolicyRef: token-fairness-policy}
  defaultNegativePriorityBand: {fairnessPolicyRef: program-aware-fairness}
`
	c, err := Load([]byte(gateOn+text), three)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]float64{"gold": 4, "": .5}, c.Queueing.Default.Weights); d != "" {
		t.Errorf("want -, got +:\n%s", d)
	}
	if p, ok := c.Queueing.Negative.Fairness.(*fairness.ProgramAware); !ok || p.LASHalfLifeSeconds != 30 ||
		c.Queueing.Negative.Weights != nil || !c.Queueing.Metered(-1) || !c.Queueing.Metered(0) {
		t.Errorf("negative priorities have %+v", c.Queueing.Negative)
	}
	shown, err := Show([]byte(gateOn+text), three)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Load(shown, three); err != nil || !reflect.DeepEqual(again.Queueing, c.Queueing) {
		t.Errorf("%v, what is shown means something else:\n%s", err, shown)
	}
}

// both is an ordering that no queue serves: one in the order of arrival is in no other.
type both struct{ orderings.FCFS }

func (*both) Needs() flow.Ability { return flow.Needed | flow.ArrivalOrder | flow.KeyOrder }

// last serves the flow that was served last.
type last struct{ fairness.RoundRobin }

func (*last) Rank(a *flow.Account, _ *flow.Entry) int64 { return -int64(a.Served) }

// none leaves half of the room to the highest priority.
type none struct{}

func (*none) Ceilings(_ *flow.Usage, out []float64) time.Duration {
	for i := range out[1:] {
		out[i+1] = .5
	}
	return 0
}

// Policies of other modules may be named like those that are built in.
func TestLoadPoliciesOfOtherModules(t *testing.T) {
	c, err := NewCatalogue(
		PluginType{Type: "example.com/both", New: func() any { return new(both) }},
		PluginType{Type: "example.com/last", New: func() any { return new(last) }},
		PluginType{Type: "example.com/none", New: func() any { return new(none) }},
	)
	if err != nil {
		t.Fatal(err)
	}
	settings := three
	settings.Catalogue = c
	const plugins = "plugins:\n- {type: example.com/both}\n- {type: example.com/last}\n- {type: example.com/none}\n"
	got, err := Load([]byte(gateOn+plugins+"flowControl:\n  usageLimitPolicyPluginRef: example.com/none\n"+
		"  defaultPriorityBand: {fairnessPolicyRef: example.com/last}\n"), settings)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := got.Queueing.Default.Fairness.(*last); !ok {
		t.Errorf("fairness %T", got.Queueing.Default.Fairness)
	}
	if _, ok := got.Queueing.UsageLimit.(*none); !ok {
		t.Errorf("usage limit %T", got.Queueing.UsageLimit)
	}
	_, err = Load([]byte(gateOn+plugins+
		"flowControl: {priorityBands: [{orderingPolicyRef: example.com/both, fairnessPolicyRef: example.com/last}]}\n"),
		settings)
	want := "line 8: flowControl.priorityBands[0].orderingPolicyRef: example.com/both and example.com/last need " +
		"arrival order, key order, removal, peek at the tail of a queue, and none that is built in has all of that"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// stack gives the newest entry first.
type stack struct{ queues.ListQueue }

func (*stack) Can() flow.Ability { return flow.Needed }

// any has requests of a flow go in the order of their queue.
type whichever struct{}

func (*whichever) Key(*flow.Entry) int64 { return 0 }
func (*whichever) Needs() flow.Ability   { return flow.Needed }

// fewest displaces from the flow with the fewest requests.
type fewest struct{}

func (*fewest) Excess(a *flow.Account, _ *flow.Entry) float64 { return -float64(a.Requests) }

// Displacement policies and queues of other modules are in force where a band names them. A queue that cannot do what
// the policies need is refused.
func TestLoadQueuesAndDisplacementsOfOtherModules(t *testing.T) {
	c, err := NewCatalogue(
		PluginType{Type: "example.com/stack", New: func() any { return new(stack) }},
		PluginType{Type: "example.com/any", New: func() any { return new(whichever) }},
		PluginType{Type: "example.com/fewest", New: func() any { return new(fewest) }},
	)
	if err != nil {
		t.Fatal(err)
	}
	settings := three
	settings.Catalogue = c
	const plugins = gateOn + "plugins: [{type: example.com/stack}, {type: example.com/any}, " +
		"{type: example.com/fewest}, {type: edf-ordering-policy}]\nflowControl: {defaultPriorityBand: "
	file := []byte(plugins + "{orderingPolicyRef: example.com/any, queueRef: example.com/stack, " +
		"displacementPolicyRef: example.com/fewest}}\n")
	got, err := Load(file, settings)
	if err != nil {
		t.Fatal(err)
	}
	band := got.Queueing.Default
	if _, ok := band.Queue.(*stack); !ok || band.Names.Queue != "example.com/stack" {
		t.Errorf("queue %T, %s", band.Queue, band.Names.Queue)
	}
	if _, ok := band.Displacement.(*fewest); !ok || band.Names.Displacement != "example.com/fewest" {
		t.Errorf("displacement %T, %s", band.Displacement, band.Names.Displacement)
	}
	shown, err := Show(file, settings)
	if err != nil || !strings.Contains(string(shown), "queueRef: example.com/stack\n") {
		t.Errorf("%v, shown\n%s", err, shown)
	}
	for of, want := range map[string]string{
		"{queueRef: example.com/stack}}": "line 5: flowControl.defaultPriorityBand.queueRef: example.com/stack has " +
			"no arrival order and no key order, of which fcfs-ordering-policy needs one",
		"{queueRef: list-queue, orderingPolicyRef: edf-ordering-policy}}": "has no key order, which " +
			"edf-ordering-policy and global-strict-fairness-policy need",
		"{queueRef: example.com/any}}": "line 5: flowControl.defaultPriorityBand.queueRef: example.com/any is of " +
			"type example.com/any, want list-queue or max-min-heap",
		"{queueRef: none}}": `line 5: flowControl.defaultPriorityBand.queueRef: no plugin is named "none"`,
	} {
		if _, err := Load([]byte(plugins+of), settings); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", of, err, want)
		}
	}
}

// asks is an ordering that declares what it reads.
type asks struct {
	whichever

	declare func(*attributes.Reader)
}

func (a *asks) Declare(r *attributes.Reader) { a.declare(r) }

// A policy may declare headers of requests, and nothing else.
func TestPoliciesDeclareHeadersAlone(t *testing.T) {
	for name, c := range map[string]struct {
		declare func(*attributes.Reader)
		headers []string
		want    string
	}{
		"headers":     {func(r *attributes.Reader) { r.Header("X-A"); r.Header("x-b") }, []string{"x-a", "x-b"}, ""},
		"a number":    {func(r *attributes.Reader) { r.Number("queued-requests", "") }, nil, "queued-requests"},
		"by its name": {func(r *attributes.Reader) { r.Named("example.com/x", "") }, nil, "example.com/x"},
		"names":       {func(r *attributes.Reader) { r.Names("active-loras", "") }, nil, "active-loras"},
		"a slot":      {func(r *attributes.Reader) { schedule.NewPrivate[int](r) }, nil, "a private slot"},
	} {
		t.Run(name, func(t *testing.T) {
			catalogue, err := NewCatalogue(PluginType{Type: "example.com/asks", New: func() any {
				return &asks{declare: c.declare}
			}})
			if err != nil {
				t.Fatal(err)
			}
			settings := three
			settings.Catalogue = catalogue
			got, err := Load([]byte(gateOn+"plugins:\n- {type: example.com/asks}\n"+
				"flowControl: {defaultPriorityBand: {orderingPolicyRef: example.com/asks}}\n"), settings)
			if c.want == "" {
				if err != nil || !slices.Equal(got.Queueing.Headers, c.headers) {
					t.Errorf("%v, headers %q, want %q", err, got.Queueing.Headers, c.headers)
				}
				return
			}
			want := "line 5: plugins[0].type: example.com/asks declares " + c.want + ", and ordering policies may " +
				"declare headers of requests alone, for they are asked about requests that wait, and no server"
			if err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

// limits is a usage limit that declares a header.
type limits struct{ none }

func (*limits) Declare(r *attributes.Reader) { r.Header("x-a") }

// A policy that is asked about no request may declare nothing.
func TestPoliciesOfNoRequestDeclareNothing(t *testing.T) {
	settings := three
	settings.Catalogue, _ = NewCatalogue(PluginType{Type: "example.com/limits", New: func() any { return new(limits) }})
	_, err := Load([]byte(gateOn+"plugins:\n- {type: example.com/limits}\n"+
		"flowControl: {usageLimitPolicyPluginRef: example.com/limits}\n"), settings)
	want := "line 5: plugins[0].type: example.com/limits declares x-a, and usage limit policies may declare nothing, " +
		"for they are asked about no request that waits"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Gates that are set elsewhere go before those of the file, and have effect without one.
func TestGatesOverTheFile(t *testing.T) {
	for name, c := range map[string]struct {
		file  string
		gates []string
		want  bool
	}{
		"off, over on":     {"featureGates: [flowControl]", []string{"flowControl=false"}, false},
		"on, over off":     {"", []string{"flowControl"}, true},
		"on, over a value": {"featureGates: [flowControl=false]", []string{"flowControl=true"}, true},
		"the last counts":  {"", []string{"flowControl=true", "flowControl=false"}, false},
		"another one":      {"featureGates: [flowControl]", []string{"haPopulateNonLeaderDatastore=true"}, true},
	} {
		settings := three
		settings.Gates = c.gates
		if got, err := Load([]byte(newHead+c.file), settings); err != nil || (got.Queueing != nil) != c.want {
			t.Errorf("%s: %v, requests wait %t, want %t", name, err, got.Queueing != nil, c.want)
		}
	}
	settings := three
	settings.Gates, settings.Wait = []string{"flowControl=false"}, time.Minute
	if got, err := Default(settings); err != nil || got.Queueing != nil {
		t.Errorf("without a file: %v, requests wait, want none", err)
	}
}
