package filters

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
	"github.com/signalbox-epp/signalbox/messages"
)

func TestFilters(t *testing.T) {
	roles := []map[string]string{
		{RoleLabel: "decode"}, {RoleLabel: "prefill"}, {RoleLabel: "prefill-decode"}, {RoleLabel: "both"},
		{RoleLabel: "encode"}, {RoleLabel: "encode-prefill"}, {RoleLabel: "encode-prefill-decode"}, {RoleLabel: ""},
		{"app": "x"}, nil,
	}
	apps := []map[string]string{{"app": "a", "gpu": "h100"}, {"app": "a"}, {"app": "b", "gpu": ""}, nil}
	expression := func(key, operator string, values ...string) *LabelSelector {
		return &LabelSelector{MatchExpressions: []Requirement{{key, operator, values}}}
	}
	for name, c := range map[string]struct {
		filter schedule.Filter
		labels []map[string]string
		want   string // y and n
	}{
		"decode":         {new(Decode), roles, "ynyynnynyy"},
		"prefill":        {new(Prefill), roles, "nyyynyynnn"},
		"encode":         {new(Encode), roles, "nnnnyyynnn"},
		"by label":       {&ByLabel{"app", []string{"b", "c"}, false}, apps, "nnyn"},
		"by label, none": {&ByLabel{"app", []string{"b"}, true}, apps, "nnyy"},
		"empty selector": {new(LabelSelector), apps, "yyyy"},
		"label":          {&LabelSelector{MatchLabels: map[string]string{"app": "a"}}, apps, "yynn"},
		"two labels":     {&LabelSelector{MatchLabels: map[string]string{"app": "a", "gpu": "h100"}}, apps, "ynnn"},
		"empty value":    {&LabelSelector{MatchLabels: map[string]string{"gpu": ""}}, apps, "nnyn"},
		"In":             {expression("app", "In", "b", "c"), apps, "nnyn"},
		"NotIn":          {expression("app", "NotIn", "b", "c"), apps, "yyny"},
		"Exists":         {expression("gpu", "Exists"), apps, "ynyn"},
		"DoesNotExist":   {expression("gpu", "DoesNotExist"), apps, "nyny"},
		"label, expression": {
			&LabelSelector{map[string]string{"app": "a"}, []Requirement{{"gpu", "DoesNotExist", nil}}}, apps, "nynn",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var list []scheduletest.Endpoint
			for _, l := range c.labels {
				list = append(list, scheduletest.Endpoint{Labels: l})
			}
			keep := slices.Repeat([]bool{true}, len(c.labels))
			scheduletest.Show(t, c.filter, new(messages.Request), func(in *schedule.Input) {
				c.filter.Filter(in, keep)
				if n := testing.AllocsPerRun(100, func() { c.filter.Filter(in, keep) }); n != 0 {
					t.Errorf("%v allocations, want 0", n)
				}
			}, list...)
			got := ""
			for _, k := range keep {
				got += map[bool]string{true: "y", false: "n"}[k]
			}
			if got != c.want {
				t.Errorf("Filter(%v) = %s, want %s", c.labels, got, c.want)
			}
		})
	}
}

func TestSessionAffinity(t *testing.T) {
	const second = "MTAuMC4wLjE6ODA=" // 10.0.0.1:80
	for name, c := range map[string]struct {
		header messages.HeaderValue
		want   string
	}{
		"named":         {messages.HeaderValue{Text: second, Given: true}, "nyn"},
		"none":          {messages.HeaderValue{}, "yyy"},
		"gone":          {messages.HeaderValue{Text: "MTAuMC4wLjk6ODA=", Given: true}, "yyy"},
		"empty":         {messages.HeaderValue{Given: true}, "yyy"},
		"no base64":     {messages.HeaderValue{Text: "10.0.0.1:80", Given: true}, "yyy"},
		"cut in length": {messages.HeaderValue{Text: second[:7], Given: true}, "yyy"},
	} {
		t.Run(name, func(t *testing.T) {
			f := Types["session-affinity-filter"]()
			keep := []bool{true, true, true}
			req := &messages.Request{Headers: messages.ListOf(c.header)}
			scheduletest.Show(t, f, req, func(in *schedule.Input) { f.Filter(in, keep) },
				make([]scheduletest.Endpoint, 3)...)
			got := ""
			for _, k := range keep {
				got += map[bool]string{true: "y", false: "n"}[k]
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestSelectorValidate(t *testing.T) {
	long := strings.Repeat("x", 64)
	for name, c := range map[string]struct {
		f    LabelSelector
		want string // how the errors begin, joined
	}{
		"fine": {
			LabelSelector{
				map[string]string{"a": "", "example.com/b_c": "D.1"},
				[]Requirement{{"a", "In", []string{"x"}}, {"b", "Exists", nil}},
			},
			"",
		},
		"empty key":  {LabelSelector{MatchLabels: map[string]string{"": "x"}}, "matchLabels."},
		"long value": {LabelSelector{MatchLabels: map[string]string{"a": long}}, "matchLabels.a"},
		"bad prefix": {
			LabelSelector{MatchLabels: map[string]string{"UP/a": "x", "/a": "x", "a/": "x", "a/b/c": "x"}},
			"matchLabels./a matchLabels.UP/a matchLabels.a/ matchLabels.a/b/c",
		},
		"bad value": {LabelSelector{MatchLabels: map[string]string{"a": "-x", "b": "x y"}},
			"matchLabels.a matchLabels.b"},
		"operator": {LabelSelector{MatchExpressions: []Requirement{{"a", "in", nil}}}, "matchExpressions[0].operator"},
		"no values": {
			LabelSelector{MatchExpressions: []Requirement{{"a", "In", nil}, {"", "NotIn", nil}}},
			"matchExpressions[0].values matchExpressions[1].key matchExpressions[1].values",
		},
		"values": {
			LabelSelector{MatchExpressions: []Requirement{{"a", "Exists", []string{"x"}},
				{"a", "DoesNotExist", []string{"x"}}}},
			"matchExpressions[0].values matchExpressions[1].values",
		},
		"value of set": {
			LabelSelector{MatchExpressions: []Requirement{{"a", "In", []string{"ok", "not ok"}}}},
			"matchExpressions[0].values[1]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var paths []string
			err := c.f.Validate()
			var joined interface{ Unwrap() []error }
			if errors.As(err, &joined) {
				for _, e := range joined.Unwrap() {
					path, _, _ := strings.Cut(e.Error(), ": ")
					paths = append(paths, path)
				}
			}
			if got := strings.Join(paths, " "); got != c.want {
				t.Errorf("Validate(%+v) = %s, want errors of %q", c.f, fmt.Sprint(err), c.want)
			}
		})
	}
}

func TestEndpointAttribute(t *testing.T) {
	filter := func(operator, missing string, fallback bool) *EndpointAttribute {
		return &EndpointAttribute{AttributeKey: "example.com/watts", OnMissing: missing, FallbackOnEmpty: fallback,
			Algorithm: ThresholdAlgorithm{"threshold", Threshold{operator, 300}}}
	}
	var list []scheduletest.Endpoint
	for _, w := range []float64{200, 300, 400} {
		list = append(list,
			scheduletest.Endpoint{Sample: endpoints.Sample{Values: endpoints.Values{Numbers: []messages.Extracted{
				{Attribute: "example.com/watts", Producer: "extractor", Value: w},
			}}}})
	}
	list = append(list, scheduletest.Endpoint{}) // its page does not have the attribute
	for name, c := range map[string]struct {
		filter *EndpointAttribute
		on     []scheduletest.Endpoint
		want   []bool
	}{
		"less":             {filter("LessThan", "Fail", false), list, []bool{true, false, false, false}},
		"less or equal":    {filter("LessThanOrEqual", "Fail", false), list, []bool{true, true, false, false}},
		"greater":          {filter("GreaterThan", "Fail", false), list, []bool{false, false, true, false}},
		"greater or equal": {filter("GreaterThanOrEqual", "Fail", false), list, []bool{false, true, true, false}},
		"equal":            {filter("Equal", "Fail", false), list, []bool{false, true, false, false}},
		"not equal":        {filter("NotEqual", "Fail", false), list, []bool{true, false, true, false}},
		"missing passes":   {filter("Equal", "Pass", false), list, []bool{false, true, false, true}},
		"none is left":     {filter("LessThan", "Fail", false), list[1:3], []bool{false, false}},
		"all fall back":    {filter("LessThan", "Fail", true), list[1:3], []bool{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			keep := slices.Repeat([]bool{true}, len(c.on))
			scheduletest.Show(t, c.filter, new(messages.Request), func(in *schedule.Input) {
				c.filter.Filter(in, keep)
				if n := testing.AllocsPerRun(100, func() { c.filter.Filter(in, keep) }); n != 0 {
					t.Errorf("%v allocations, want 0", n)
				}
			}, c.on...)
			if !slices.Equal(keep, c.want) {
				t.Errorf("keeps %v, want %v", keep, c.want)
			}
		})
	}
}

func TestEndpointAttributeValidate(t *testing.T) {
	const good = "<nil>"
	at := func(operator string, value float64) ThresholdAlgorithm {
		return ThresholdAlgorithm{"threshold", Threshold{operator, value}}
	}
	for name, c := range map[string]struct {
		filter EndpointAttribute
		want   string
	}{
		"good":       {EndpointAttribute{AttributeKey: "a", OnMissing: "Pass", Algorithm: at("Equal", 1)}, good},
		"other name": {EndpointAttribute{Attribute: "a", OnMissing: "Fail", Algorithm: at("NotEqual", 1)}, good},
		"nothing": {EndpointAttribute{}, "attributeKey: got none, and no attribute, want one of them\n" +
			"onMissing: got \"\", want Pass or Fail\nalgorithm.type: got \"\", want threshold\n" +
			"algorithm.threshold.operator: got \"\", want one of [LessThan LessThanOrEqual GreaterThan " +
			"GreaterThanOrEqual Equal NotEqual]"},
		"both names": {
			EndpointAttribute{AttributeKey: "a", Attribute: "a", OnMissing: "Pass", Algorithm: at("Equal", math.NaN())},
			"attribute: stands beside attributeKey, want one of them\n" +
				"algorithm.threshold.value: got NaN, want a number",
		},
		"a share of more than all": {
			EndpointAttribute{AttributeKey: "kv-cache-usage", OnMissing: "Pass", Algorithm: at("LessThan", 80)},
			"algorithm.threshold.value: got 80, want 0 to 1, for kv-cache-usage is a share",
		},
		"a share below nothing": {
			EndpointAttribute{Attribute: "kv-cache-usage", OnMissing: "Pass", Algorithm: at("LessThan", -1)},
			"algorithm.threshold.value: got -1, want 0 to 1, for kv-cache-usage is a share",
		},
		"half": {
			EndpointAttribute{AttributeKey: "kv-cache-usage", OnMissing: "Pass", Algorithm: at("LessThan", .5)}, good,
		},
	} {
		if got := fmt.Sprint(c.filter.Validate()); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// holding returns endpoints that hold so many of the four blocks of the prompt, and have so many tokens in flight.
func holding(blocksAndTokens ...int) (all []scheduletest.Endpoint) {
	for i := 0; i < len(blocksAndTokens); i += 2 {
		all = append(all, scheduletest.Endpoint{
			PrefixBlocks: blocksAndTokens[i], Inflight: 1, InflightTokens: blocksAndTokens[i+1],
		})
	}
	return all
}

// TestPrefixCacheAffinity counts 1000 tokens a second: 1000 tokens more are 1000 ms later.
func TestPrefixCacheAffinity(t *testing.T) {
	lower := func(f *PrefixCacheAffinity) { f.AffinityThreshold = 0.75 }
	off := func(f *PrefixCacheAffinity) { f.AffinityThreshold = 0 }
	patient := func(f *PrefixCacheAffinity) { f.MaxTTFTPenaltyMs = 0 }
	explores := func(f *PrefixCacheAffinity) { f.ExplorationProbability = 1 }
	for name, c := range map[string]struct {
		change func(*PrefixCacheAffinity)
		all    []scheduletest.Endpoint
		want   []bool
		how    string
	}{
		"most of it":       {nil, holding(4, 0, 3, 0, 0, 0), []bool{true, false, false}, "sticky"},
		"just enough":      {lower, holding(2, 0, 3, 0), []bool{false, true}, "sticky"},
		"too little":       {nil, holding(3, 0, 0, 0), []bool{true, true}, "no_match"},
		"all hold it":      {nil, holding(4, 9000, 4, 0), []bool{true, true}, "sticky"},
		"not yet too late": {nil, holding(4, 1500, 0, 500), []bool{true, false}, "sticky"},
		"too late":         {nil, holding(4, 1501, 0, 500), []bool{true, true}, "load_override"},
		"the least loaded": {nil, holding(4, 9000, 4, 900, 0, 0), []bool{true, true, false}, "sticky"},
		"never too late":   {patient, holding(4, 90000, 0, 0), []bool{true, false}, "sticky"},
		"off":              {off, holding(4, 0, 0, 0), []bool{true, true}, "not_applicable"},
		"always explores":  {explores, holding(4, 0, 0, 0), []bool{true, true}, "exploration"},
		"more than it has": {nil, holding(9, 0, 0, 0), []bool{true, false}, "sticky"},
		"one":              {nil, holding(0, 0), []bool{true}, "not_applicable"},
	} {
		t.Run(name, func(t *testing.T) {
			f := Types["prefix-cache-affinity-filter"]().(*PrefixCacheAffinity)
			f.MaxTTFTPenaltyMs, f.PeakPrefillThroughput = 1000, 1000
			if c.change != nil {
				c.change(f)
			}
			keep := filtered(t, f, scheduletest.Request(), c.all...)
			if !slices.Equal(keep, c.want) {
				t.Errorf("Filter(%+v) = %v, want %v", c.all, keep, c.want)
			}
			scheduletest.Show(t, f, scheduletest.Request(), func(in *schedule.Input) {
				f.Filter(in, slices.Repeat([]bool{true}, len(c.all)))
				if n, told := in.Outcome(); !told || f.Outcomes().Names[n] != c.how {
					t.Errorf("outcome %d, told %v; want %s", n, told, c.how)
				}
			}, c.all...)
		})
	}
}

// A server that holds the prompt and is ejected is not waited for.
func TestPrefixCacheAffinityOfEjected(t *testing.T) {
	all := holding(4, 0, 0, 0)
	all[0].Outlier = &outlier.Status{Ejected: true, Until: time.Unix(1_900_000_000, 0)}
	s := scheduletest.NewSeries(t, Types["prefix-cache-affinity-filter"](), scheduletest.Profile{Ranks: []int{0, 1}})
	if got := s.Pick(scheduletest.Request(), all...).Ranked[0].ID.Slot; got != 1 {
		t.Errorf("endpoint %d was picked, want the other one", got)
	}
}

// A prompt without a whole block is held by none.
func TestPrefixCacheAffinityWithoutBlocks(t *testing.T) {
	f := Types["prefix-cache-affinity-filter"]()
	if got := filtered(t, f, new(messages.Request), holding(4, 0, 0, 0)...); !slices.Equal(got, []bool{true, true}) {
		t.Errorf("Filter = %v, want all", got)
	}
}

// filtered returns which endpoints a filter keeps, and wants it to allocate nothing.
func filtered(t *testing.T, f schedule.Filter, req *messages.Request, all ...scheduletest.Endpoint) []bool {
	t.Helper()
	keep := slices.Repeat([]bool{true}, len(all))
	scheduletest.Show(t, f, req, func(in *schedule.Input) {
		if n := testing.AllocsPerRun(10, func() {
			keepAll(keep)
			f.Filter(in, keep)
		}); n != 0 {
			t.Errorf("%v allocations, want 0", n)
		}
	}, all...)
	return keep
}

func TestUtilization(t *testing.T) {
	says := func(inflight, waiting, running int, cache float64) scheduletest.Endpoint {
		return scheduletest.Endpoint{
			Inflight: inflight, Sample: endpoints.Sample{Values: endpointstest.Load(waiting, running, cache)},
		}
	}
	all := []scheduletest.Endpoint{says(0, 0, 0, 0), says(2, 3, 4, .5), says(3, 4, 5, .6), says(0, -1, -1, -1)}
	for name, c := range map[string]struct {
		f    Utilization
		want []bool
	}{
		"active":  {Utilization{Conditions: []Condition{{"active-requests", 2}}}, []bool{true, true, false, true}},
		"running": {Utilization{Conditions: []Condition{{"running-requests", 4}}}, []bool{true, true, false, true}},
		"waiting": {Utilization{Conditions: []Condition{{"waiting-queue", 3}}}, []bool{true, true, false, true}},
		"cache": {Utilization{Conditions: []Condition{{"kv-cache-utilization", .5}}},
			[]bool{true, true, false, true}},
		"all of them": {Utilization{Conditions: []Condition{{"active-requests", 2}, {"waiting-queue", 0}}},
			[]bool{true, false, false, true}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filtered(t, &c.f, new(messages.Request), all...); !slices.Equal(got, c.want) {
				t.Errorf("Filter = %v, want %v", got, c.want)
			}
		})
	}
	full := []scheduletest.Endpoint{says(0, 9, 0, 0), says(0, 8, 0, 0)}
	for fallback, want := range map[bool]bool{false: false, true: true} {
		f := &Utilization{Conditions: []Condition{{"waiting-queue", 3}}, FallbackOnEmpty: fallback}
		if got := filtered(t, f, new(messages.Request), full...); got[0] != want || got[1] != want {
			t.Errorf("fallbackOnEmpty %v keeps %v of full servers", fallback, got)
		}
	}
}

func TestHeaderBasedTesting(t *testing.T) {
	for name, c := range map[string]struct {
		header messages.HeaderValue
		want   []bool
	}{
		"address":     {messages.HeaderValue{Text: "10.0.0.1", Given: true}, []bool{false, true, false}},
		"port":        {messages.HeaderValue{Text: "10.0.0.1:80", Given: true}, []bool{false, true, false}},
		"other port":  {messages.HeaderValue{Text: "10.0.0.1:81", Given: true}, []bool{false, false, false}},
		"two":         {messages.HeaderValue{Text: " 10.0.0.2:80 , 10.0.0.0 ", Given: true}, []bool{true, false, true}},
		"part":        {messages.HeaderValue{Text: "10.0.0", Given: true}, []bool{false, false, false}},
		"empty":       {messages.HeaderValue{Text: ",", Given: true}, []bool{false, false, false}},
		"none at all": {messages.HeaderValue{}, []bool{false, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			req := &messages.Request{Headers: messages.ListOf(c.header)}
			got := filtered(t, new(HeaderBasedTesting), req, make([]scheduletest.Endpoint, 3)...)
			if !slices.Equal(got, c.want) {
				t.Errorf("Filter = %v, want %v", got, c.want)
			}
		})
	}
	if !names("[2001:db8::1]", "[2001:db8::1]:80") || !names("2001:db8::1", "[2001:db8::1]:80") {
		t.Error("an IPv6 address is not found")
	}
}

func TestFurtherFiltersRefuseParameters(t *testing.T) {
	for name, c := range map[string]struct {
		f    interface{ Validate() error }
		want string
	}{
		"affinity": {
			&PrefixCacheAffinity{AffinityThreshold: 2, ExplorationProbability: math.NaN(), MaxTTFTPenaltyMs: -1},
			"affinityThreshold: got 2, want 0 to 1\nexplorationProbability: got NaN, want 0 to 1\n" +
				"maxTTFTPenaltyMs: got -1, want 0 or more\nttftSource: got \"\", want prefillThroughput\n" +
				"peakPrefillThroughput: got 0, want above 0"},
		"predictor": {&PrefixCacheAffinity{TTFTSource: "latencyPredictor", PeakPrefillThroughput: 1},
			"ttftSource: latencyPredictor needs a predictor service, which Signalbox does not ask; want " +
				"prefillThroughput"},
		"utilization": {new(Utilization), "conditions: got none, want at least one"},
		"condition": {&Utilization{Conditions: []Condition{{"load", -1}}},
			"conditions[0].metric: got \"load\", want active-requests, running-requests, waiting-queue or " +
				"kv-cache-utilization\nconditions[0].maxValue: got -1, want 0 or more"},
		"topology": {&TopologyAffinity{MinAffinity: "cluster"},
			"minAffinity: got \"cluster\", want host, rack, zone or region"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(c.f.Validate()); got != c.want {
				t.Errorf("Validate(%+v) = %s, want %s", c.f, got, c.want)
			}
		})
	}
}
