package scorers

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
	"github.com/signalbox-epp/signalbox/messages"
)

// request has a prompt of four blocks.
var request = &messages.Request{
	Model: "adapter", Blocks: messages.ListOf[uint64](1, 2, 3, 4), PromptTokens: 256,
	Headers: messages.ListOf(messages.HeaderValue{Text: "eu", Given: true}),
}

// gpuLabels is a label-producer with the attribute gpu.
type gpuLabels struct{}

func (gpuLabels) Label(attribute string) (string, bool) { return "gpu", attribute == "gpu.product" }

// weighted returns a scorer that weighs GPUs.
func weighted(weights map[string]float64) *EndpointAttributeWeight {
	s := &EndpointAttributeWeight{AttributeKey: "gpu.product", Producer: "labels", Weights: weights}
	if err := s.Refer(func(string, string) any { return gpuLabels{} }); err != nil {
		panic(err)
	}
	return s
}

// each returns a function that makes an endpoint of each of its arguments.
func each[T any](endpoint func(T) scheduletest.Endpoint) func(...T) []scheduletest.Endpoint {
	return func(values ...T) (all []scheduletest.Endpoint) {
		for _, v := range values {
			all = append(all, endpoint(v))
		}
		return all
	}
}

func TestScores(t *testing.T) {
	type endpoint = scheduletest.Endpoint
	const unknown = -1
	lora := func(active, waiting string, slots int) endpoint {
		if slots == unknown {
			return endpoint{}
		}
		return endpoint{Sample: endpoints.Sample{Values: endpointstest.Told{
			attributes.ActiveLoRAs: strings.Fields(active), attributes.WaitingLoRAs: strings.Fields(waiting),
			attributes.MaxLoRAs: slots,
		}.Values()}}
	}
	says := func(waiting, running int, kvUsage float64) endpoint {
		return endpoint{Sample: endpoints.Sample{Values: endpointstest.Load(waiting, running, kvUsage)}}
	}
	queues := each(func(n int) endpoint { return says(n, 0, 0) })
	batches := each(func(n int) endpoint { return says(0, n, 0) })
	caches := each(func(used float64) endpoint { return says(0, 0, used) })
	prefixes := each(func(blocks int) endpoint { return endpoint{PrefixBlocks: blocks} })
	busy := func(requests, blocks int) endpoint { return endpoint{Inflight: requests, PrefixBlocks: blocks} }
	watts := func(better string, fixed *Range) schedule.Scorer {
		return &EndpointAttribute{AttributeKey: "example.com/watts",
			Algorithm: LinearAlgorithm{better, Normalization{FixedRange: fixed}}}
	}
	power := each(func(w float64) endpoint {
		if math.IsNaN(w) {
			return endpoint{}
		}
		return endpoint{Sample: endpoints.Sample{Values: endpoints.Values{Numbers: []messages.Extracted{
			{Attribute: "example.com/watts", Producer: "extractor", Value: w},
		}}}}
	})
	standing := each(func(tokens int) endpoint {
		return endpoint{Inflight: min(tokens, 1), InflightTokens: tokens, PrefixBlocks: 3}
	})
	lengths := each(func(span string) endpoint {
		if span == "" {
			return endpoint{}
		}
		return endpoint{Labels: map[string]string{"llm-d.ai/context-length-range": span}}
	})
	gpus := each(func(gpu string) endpoint { return endpoint{Labels: map[string]string{"gpu": gpu}} })
	yielding := &PrefixCache{MatchLengthScaleTokens: 8192, YieldAboveRequests: 8}
	for name, c := range map[string]struct {
		scorer     schedule.Scorer
		candidates []endpoint
		want       []float32
	}{
		"attribute, lower":     {watts(lowerIsBetter, nil), power(100, 400, 250), []float32{1, 0, 0.5}},
		"attribute, higher":    {watts(higherIsBetter, nil), power(100, 400, 250), []float32{0, 1, 0.5}},
		"attribute, all equal": {watts(lowerIsBetter, nil), power(7, 7), []float32{1, 1}},
		"attribute, unknown":   {watts(lowerIsBetter, nil), power(math.NaN(), 1, 0), []float32{0.5, 0, 1}},
		"attribute, none":      {watts(lowerIsBetter, nil), power(math.NaN()), []float32{0}},
		"attribute, fixed":     {watts(lowerIsBetter, &Range{100, 500}), power(0, 200, 900), []float32{1, 0.75, 0}},
		"attribute, fixed, higher": {watts(higherIsBetter, &Range{100, 500}), power(0, 200, 900),
			[]float32{0, 0.25, 1}},
		"queue":              {new(QueueDepth), queues(10, 5, 0), []float32{0, 0.5, 1}},
		"queue, all equal":   {new(QueueDepth), queues(7, 7), []float32{1, 1}},
		"queue, one":         {new(QueueDepth), queues(7), []float32{1}},
		"queue, extremes":    {new(QueueDepth), queues(math.MaxInt, 0), []float32{0, 1}},
		"queue, one unknown": {new(QueueDepth), queues(10, unknown, 0, 5), []float32{0, 0.5, 1, 0.5}},
		"queue, unknown":     {new(QueueDepth), queues(unknown, unknown), []float32{1, 1}},
		"running":            {new(RunningRequests), batches(4, 1, 0), []float32{0, 0.75, 1}},
		"running, all equal": {new(RunningRequests), batches(4, 4), []float32{1, 1}},
		"running, unknown":   {new(RunningRequests), batches(unknown, 8, 4), []float32{0.5, 0, 1}},
		"KV":                 {new(KVCacheUtilization), caches(0, 0.25, 1), []float32{1, 0.75, 0}},
		"KV, odd":            {new(KVCacheUtilization), caches(unknown, 7, 0, 2), []float32{1.0 / 3, 0, 1, 0}},
		"KV, one not told":   {new(KVCacheUtilization), caches(unknown, 0, 0.5), []float32{0.75, 1, 0.5}},
		"KV, none told":      {new(KVCacheUtilization), caches(unknown, unknown), []float32{0, 0}},
		"load":               {&LoadAware{Threshold: 100}, queues(0, 25, 100, 250), []float32{0.5, 0.375, 0, 0}},
		"load, unknown":      {&LoadAware{Threshold: 100}, queues(unknown, 0, 100), []float32{0.25, 0.5, 0}},
		"load, none known":   {&LoadAware{Threshold: 100}, queues(unknown, unknown), []float32{0, 0}},
		"LoRA active":        {&LoRAAffinity{HotEndpoints: 4}, []endpoint{lora("x adapter", "", 2)}, []float32{1}},
		"LoRA slot free":     {&LoRAAffinity{HotEndpoints: 4}, []endpoint{lora("x", "", 2)}, []float32{0.8}},
		"LoRA waiting":       {&LoRAAffinity{HotEndpoints: 4}, []endpoint{lora("x", "adapter", 2)}, []float32{0.6}},
		"LoRA waiting, free": {&LoRAAffinity{HotEndpoints: 4}, []endpoint{lora("", "adapter", 2)}, []float32{0.8}},
		"LoRA full":          {&LoRAAffinity{HotEndpoints: 4}, []endpoint{lora("x y", "", 2)}, []float32{0}},
		"LoRA none":          {&LoRAAffinity{HotEndpoints: 4}, []endpoint{busy(0, 0)}, []float32{0}},
		"LoRA unknown": {&LoRAAffinity{HotEndpoints: 4},
			[]endpoint{lora("adapter", "", 2), lora("", "", unknown), lora("x", "", 1)}, []float32{1, 0, 0}},
		"prefix, part": {Types["prefix-cache-scorer"](), prefixes(0, 1, 4, 9), []float32{0, 0.25, 1, 1}},
		"prefix, length": {
			&PrefixCache{MatchLengthWeight: 1, MatchLengthScaleTokens: 128},
			prefixes(1, 2, 4), []float32{0.25, 1, 1},
		},
		"prefix, any load": {Types["prefix-cache-scorer"](), []endpoint{busy(1000, 4), busy(0, 0)},
			[]float32{1, 0}},
		"prefix, yields":        {yielding, []endpoint{busy(8, 4), busy(9, 4), busy(0, 0)}, []float32{1, 0, 0}},
		"prefix, twice as many": {yielding, []endpoint{busy(40, 4), busy(41, 4), busy(20, 0)}, []float32{1, 0, 0}},
		"prefix, no bound": {
			&PrefixCache{MatchLengthScaleTokens: 8192, YieldAboveRequests: math.MaxInt},
			[]endpoint{busy(1000, 4), busy(1, 0)}, []float32{1, 0},
		},
		"prefix, least loaded": {yielding, []endpoint{busy(50, 4), busy(50, 0)}, []float32{1, 0}},
		"prefix, both": {
			&PrefixCache{MatchLengthWeight: 0.5, MatchLengthScaleTokens: 256},
			prefixes(2), []float32{0.5*0.25 + 0.5*0.5},
		},
		"active": {
			Types["active-request-scorer"](),
			[]endpoint{busy(0, 0), busy(1, 0), busy(4, 0)}, []float32{1, 0.75, 0},
		},
		"active, idle threshold": {
			&ActiveRequest{IdleThreshold: 1, MaxBusyScore: 0.5},
			[]endpoint{busy(1, 0), busy(2, 0), busy(4, 0)}, []float32{1, 0.25, 0},
		},
		// 256 tokens of prompt, of which 192 are cached
		"tokens": {&TokenLoad{QueueThresholdTokens: 1024}, standing(0, 192, 960, 5000),
			[]float32{0.75, 0.5625, 0, 0}},
		"tokens, by default": {&TokenLoad{}, standing(0, 4194304), []float32{1 - 256.0/4194304, 0}},
		// 256 tokens: 0.3 + 0.7*(0.7/(1+width/10000) + 0.3*(max-256)/width)
		"length": {Types["context-length-aware"](),
			lengths("0-10000", "256-256", "0-256", "256-10256", "1256-2000", "0-56", "", "odd", "9-1", "1-2-3"),
			[]float32{0.3 + 0.7*(0.35+0.3*0.9744), 1, 0.3 + 0.7*(0.7/1.0256), 0.3 + 0.7*(0.35+0.3), 0.15, 0.25,
				0.5, 0, 0, 0}},
		"weights": {weighted(map[string]float64{"h100": 4, "a100": 1, "l40s": 2}),
			gpus("h100", "a100", "l40s", "other", ""), []float32{1, 0.25, 0.5, 0.25, 0.25}},
		"active, none": {Types["active-request-scorer"](), []endpoint{busy(0, 0), busy(0, 0)}, []float32{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := make([]float32, len(c.candidates))
			scheduletest.Show(t, c.scorer, request, func(in *schedule.Input) { c.scorer.Score(in, got) },
				c.candidates...)
			if !slices.EqualFunc(got, c.want, func(a, b float32) bool { return math.Abs(float64(a-b)) < 1e-6 }) {
				t.Errorf("Score(%+v) = %v, want %v", c.candidates, got, c.want)
			}
		})
	}
}

func TestPromptWithoutBlocks(t *testing.T) {
	got, scorer := make([]float32, 1), Types["prefix-cache-scorer"]()
	scheduletest.Show(t, scorer, new(messages.Request), func(in *schedule.Input) { scorer.Score(in, got) },
		scheduletest.Endpoint{PrefixBlocks: 3})
	if got[0] != 0 {
		t.Errorf("Score without blocks = %v, want 0", got[0])
	}
}

// What all servers hold gives none of them preference: it adds the same to each.
func TestWhatAllHoldGivesNoPreference(t *testing.T) {
	request := &messages.Request{PromptTokens: 4 * 64, Blocks: messages.ListOf[uint64](1, 2, 3, 4)}
	score := func(common int) (got [3]float32) {
		scorer := Types["prefix-cache-scorer"]()
		scheduletest.Show(t, scorer, request, func(in *schedule.Input) { scorer.Score(in, got[:]) },
			scheduletest.Endpoint{PrefixBlocks: common}, scheduletest.Endpoint{PrefixBlocks: common + 1},
			scheduletest.Endpoint{PrefixBlocks: common})
		return got
	}
	for common := range 4 {
		if got := score(common); got[0] != got[2] || got[1]-got[0] != 0.25 {
			t.Errorf("%d blocks at all: scores %v, want 0.25 more for one more block", common, got)
		}
	}
}

// TestRangeAndAllocations plays every scorer over odd endpoints: scores stay in [0,1], and nothing is allocated.
func TestRangeAndAllocations(t *testing.T) {
	var odd []scheduletest.Endpoint
	for _, n := range []int{-1, 0, 1, 100, math.MaxInt32} {
		for _, kv := range []float64{-1, 0, 0.5, 2} {
			odd = append(odd, scheduletest.Endpoint{
				Sample: endpoints.Sample{Values: endpointstest.Told{
					attributes.WaitingRequests: n, attributes.RunningRequests: n, attributes.KVCacheUsage: kv,
					attributes.MaxLoRAs: n, attributes.ActiveLoRAs: []string{"a", "b"},
				}.Values()},
				Inflight: min(max(n, 0), 100), PrefixBlocks: n,
			})
		}
	}
	for name, construct := range Types {
		scorer, scores := construct(), make([]float32, len(odd))
		if s, ok := scorer.(*EndpointAttribute); ok {
			s.AttributeKey = attributes.KVCacheUsage.Name
		}
		if s, ok := scorer.(*HeaderLabelAffinity); ok {
			s.HeaderName = "x-region"
		}
		scheduletest.Show(t, scorer, request, func(in *schedule.Input) {
			n := testing.AllocsPerRun(100, func() {
				clear(scores)
				scorer.Score(in, scores)
			})
			if n != 0 {
				t.Errorf("%s: %v allocations, want 0", name, n)
			}
		}, odd...)
		for i, x := range scores {
			if !(x >= 0 && x <= 1) {
				t.Errorf("%s: %+v scores %v, want 0 to 1", name, odd[i], x)
			}
		}
	}
}

// A scorer declares what it reads, and nothing else.
func TestReads(t *testing.T) {
	want := map[string]string{
		"active-request-scorer":       "inflight-requests",
		"endpoint-attribute-scorer":   "queued-requests",
		"expected-completion":         "prompt-wait prompt-rate request-rate inflight-requests prefix-blocks",
		"kv-cache-utilization-scorer": "kv-cache-usage",
		"latency-observation-scorer-hub": "inflight-requests llm-d.ai/ttft-floor-seconds llm-d.ai/ttft-low-seconds " +
			"llm-d.ai/ttft-low-inflight-requests llm-d.ai/ttft-typical-seconds " +
			"llm-d.ai/ttft-typical-inflight-requests",
		"load-aware-scorer": "queued-requests",
		"lora-affinity-scorer": "max-loras queued-requests active-loras waiting-loras resident-loras host-loras " +
			"pinned-loras base-models",
		"mm-embeddings-cache-scorer":   "llm-d.ai/mm-embeddings-cached-ratio",
		"no-hit-lru-scorer":            "prefix-blocks",
		"prefix-cache-scorer":          "prefix-blocks",
		"token-load-scorer":            "inflight-tokens",
		"queue-scorer":                 "queued-requests",
		"running-requests-size-scorer": "running-requests",
	}
	reads := func(plugin schedule.Scorer) string {
		var b attributes.Binding
		b.Emit("built in", attributes.BuiltIn()...)
		b.Emit("producer", attributes.Shared()...)
		if s, ok := plugin.(*EndpointAttribute); ok {
			s.AttributeKey = "queued-requests"
		}
		r := b.Reader("plugin")
		if reader, ok := plugin.(schedule.Reader); ok {
			reader.Declare(r)
		}
		layout, _ := b.Layout()
		var names []string
		for _, slot := range r.Slots() {
			names = append(names, layout.At(slot).Name)
		}
		return strings.Join(names, " ")
	}
	for name, construct := range Types {
		if got := reads(construct()); got != want[name] {
			t.Errorf("%s reads %s, want %s", name, got, want[name])
		}
	}
	if got := reads(&PrefixCache{YieldAboveRequests: 8}); got != "prefix-blocks inflight-requests" {
		t.Errorf("prefix-cache-scorer that yields reads %s", got)
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		plugin interface{ Validate() error }
		want   string
	}{
		"threshold": {&LoadAware{Threshold: 0}, "threshold: got 0, want 1 or more"},
		"prefix": {
			&PrefixCache{MatchLengthWeight: math.NaN()},
			"matchLengthWeight: got NaN, want 0 to 1\nmatchLengthScaleTokens: got 0, want 1 or more",
		},
		"active": {
			&ActiveRequest{IdleThreshold: -1, MaxBusyScore: 2},
			"idleThreshold: got -1, want 0 or more\nmaxBusyScore: got 2, want 0 to 1",
		},
		"prefix less": {
			&PrefixCache{MatchLengthScaleTokens: 1, YieldAboveRequests: -1},
			"yieldAboveRequests: got -1, want 0 or more",
		},
		"attribute": {
			&EndpointAttribute{Algorithm: LinearAlgorithm{"linear", Normalization{&Range{1, 1}, &struct{}{}}}},
			"attributeKey: missing; name an attribute\n" +
				"algorithm.type: got \"linear\", want linear_lower_is_better or linear_higher_is_better\n" +
				"algorithm.normalization: got fixedRange and adaptiveRange, want one of them\n" +
				"algorithm.normalization.fixedRange: got 1 to 1, want min less than max",
		},
		"share": {
			&EndpointAttribute{AttributeKey: "kv-cache-usage", Algorithm: LinearAlgorithm{
				"linear_lower_is_better", Normalization{FixedRange: &Range{0, 100}},
			}},
			"algorithm.normalization.fixedRange: got 0 to 100, want 0 to 1, for kv-cache-usage is a share",
		},
		"cost": {
			&ExpectedCompletion{TokensPerSecond: math.NaN(), OwnWeight: -1, LaterWeight: math.Inf(1)},
			"tokensPerSecond: got NaN, want 1 to 10000000\nownWeight: got -1, want 0 to 100\n" +
				"laterWeight: got +Inf, want 0 to 100",
		},
		"zero":     {&ExpectedCompletion{}, "tokensPerSecond: got 0, want 1 to 10000000"},
		"adapters": {new(LoRAAffinity), "hotEndpoints: got 0, want 1 or more"},
		"length":   {new(ContextLength), "label: missing; name the label that says the range"},
		"header, label": {new(HeaderLabelAffinity), "headerName: missing; name a header of requests\n" +
			"labelKey: missing; name a label of endpoints"},
		"weights": {&EndpointAttributeWeight{Weights: map[string]float64{"a": 0, "b": math.Inf(1), "c": 1}},
			"attributeKey: missing; name an attribute of the label-producer\nweights.a: got 0, want above 0\n" +
				"weights.b: got +Inf, want above 0"},
		"no weights": {&EndpointAttributeWeight{AttributeKey: "a"}, "weights: got none, want at least one"},
		"tiny weight": {&EndpointAttributeWeight{AttributeKey: "a", Weights: map[string]float64{"a": 1e-60, "b": 1}},
			"weights: got 1e-60 beside 1, of which it is no part that counts"},
		"in order":   {&PrefixCache{MatchLengthWeight: 1, MatchLengthScaleTokens: 1}, "<nil>"},
		"no choices": {new(QueueDepth), "<nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(c.plugin.Validate()); got != c.want {
				t.Errorf("Validate(%+v) = %s, want %s", c.plugin, got, c.want)
			}
		})
	}
}

// A header chooses among labels. Without it, or with an empty one, no server is better.
func TestHeaderLabelAffinity(t *testing.T) {
	for name, c := range map[string]struct {
		header messages.HeaderValue
		want   []float32
	}{
		"named": {messages.HeaderValue{Text: "eu", Given: true}, []float32{1, 0, 0, 0}},
		"other": {messages.HeaderValue{Text: "asia", Given: true}, []float32{0, 0, 0, 0}},
		"empty": {messages.HeaderValue{Given: true}, []float32{0, 0, 0, 0}},
		"none":  {messages.HeaderValue{}, []float32{0, 0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			s, got := &HeaderLabelAffinity{HeaderName: "x-region", LabelKey: "region"}, make([]float32, 4)
			req := &messages.Request{Headers: messages.ListOf(c.header)}
			labels := func(region string) scheduletest.Endpoint {
				return scheduletest.Endpoint{Labels: map[string]string{"region": region}}
			}
			scheduletest.Show(t, s, req, func(in *schedule.Input) { s.Score(in, got) },
				labels("eu"), labels("us"), labels(""), scheduletest.Endpoint{})
			if !slices.Equal(got, c.want) {
				t.Errorf("Score = %v, want %v", got, c.want)
			}
		})
	}
}

// With filtering, servers whose range has not the length are dropped, and those without a range are kept.
func TestContextLengthFilters(t *testing.T) {
	for name, c := range map[string]struct {
		enabled bool
		want    []bool
	}{"enabled": {true, []bool{true, false, true, false}}, "by default": {false, []bool{true, true, true, true}}} {
		t.Run(name, func(t *testing.T) {
			s := Types["context-length-aware"]().(*ContextLength)
			s.EnableFiltering = c.enabled
			keep := []bool{true, true, true, true}
			ranged := func(span string) scheduletest.Endpoint {
				return scheduletest.Endpoint{Labels: map[string]string{s.Label: span}}
			}
			scheduletest.Show(t, s, request, func(in *schedule.Input) { s.Filter(in, keep) },
				ranged("256-300"), ranged("0-255"), scheduletest.Endpoint{}, ranged("large"))
			if !slices.Equal(keep, c.want) {
				t.Errorf("Filter = %v, want %v", keep, c.want)
			}
		})
	}
}

// A scorer of weights needs a label-producer that has its attribute.
func TestEndpointAttributeWeightRefers(t *testing.T) {
	for name, c := range map[string]struct {
		key    string
		plugin any
		want   string
	}{
		"fine":         {"gpu.product", gpuLabels{}, "<nil>"},
		"no attribute": {"region", gpuLabels{}, `attributeKey: label-producer has no attribute "region"`},
		"another type": {"region", 7, "producer: label-producer is no label-producer"},
		"none":         {"region", nil, "<nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &EndpointAttributeWeight{AttributeKey: c.key, Weights: map[string]float64{"a": 1}}
			asked := ""
			err := s.Refer(func(parameter, name string) any {
				asked = parameter + " " + name
				return c.plugin
			})
			if fmt.Sprint(err) != c.want || asked != "producer label-producer" {
				t.Errorf("Refer = %v, want %s; it asked for %q", err, c.want, asked)
			}
		})
	}
}
