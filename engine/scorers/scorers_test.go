package scorers

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// request has a prompt of four blocks.
var request = &messages.Request{Model: "adapter", Blocks: messages.ListOf[uint64](1, 2, 3, 4)}

func TestScores(t *testing.T) {
	type endpoint = schedule.Endpoint
	lora := func(active, waiting string, slots int) endpoint {
		return endpoint{ActiveLoRAs: strings.Fields(active), WaitingLoRAs: strings.Fields(waiting), MaxLoRAs: slots}
	}
	yielding := &PrefixCache{MatchLengthScaleTokens: 8192, YieldAboveRequests: 8}
	for name, c := range map[string]struct {
		scorer     schedule.Scorer
		candidates []endpoint
		want       []float32
	}{
		"queue":                  {new(QueueDepth), []endpoint{{Waiting: 10}, {Waiting: 5}, {Waiting: 0}}, []float32{0, 0.5, 1}},
		"queue, all equal":       {new(QueueDepth), []endpoint{{Waiting: 7}, {Waiting: 7}}, []float32{1, 1}},
		"queue, one":             {new(QueueDepth), []endpoint{{Waiting: 7}}, []float32{1}},
		"queue, extremes":        {new(QueueDepth), []endpoint{{Waiting: math.MaxInt}, {Waiting: math.MinInt}}, []float32{0, 1}},
		"running":                {new(RunningRequests), []endpoint{{Running: 4}, {Running: 1}, {Running: 0}}, []float32{0, 0.75, 1}},
		"running, all equal":     {new(RunningRequests), []endpoint{{Running: 4}, {Running: 4}}, []float32{1, 1}},
		"KV":                     {new(KVCacheUtilization), []endpoint{{KVUsed: 0}, {KVUsed: 0.25}, {KVUsed: 1}}, []float32{1, 0.75, 0}},
		"KV, odd":                {new(KVCacheUtilization), []endpoint{{KVUsed: math.NaN()}, {KVUsed: 7}, {KVUsed: 0}, {KVUsed: math.Inf(1)}}, []float32{0, 0, 1, 0}},
		"KV, one not told":       {new(KVCacheUtilization), []endpoint{{KVUsed: messages.Unknown}, {KVUsed: 0}, {KVUsed: 0.5}}, []float32{0.75, 1, 0.5}},
		"KV, none told":          {new(KVCacheUtilization), []endpoint{{KVUsed: messages.Unknown}, {KVUsed: messages.Unknown}}, []float32{0, 0}},
		"load":                   {&LoadAware{Threshold: 100}, []endpoint{{Waiting: 0}, {Waiting: 25}, {Waiting: 100}, {Waiting: 250}}, []float32{0.5, 0.375, 0, 0}},
		"load, below zero":       {&LoadAware{Threshold: 100}, []endpoint{{Waiting: -50}}, []float32{0.5}},
		"LoRA active":            {new(LoRAAffinity), []endpoint{lora("x adapter", "", 2)}, []float32{1}},
		"LoRA slot free":         {new(LoRAAffinity), []endpoint{lora("x", "", 2)}, []float32{0.8}},
		"LoRA waiting":           {new(LoRAAffinity), []endpoint{lora("x", "adapter", 2)}, []float32{0.6}},
		"LoRA waiting, free":     {new(LoRAAffinity), []endpoint{lora("", "adapter", 2)}, []float32{0.8}},
		"LoRA full":              {new(LoRAAffinity), []endpoint{lora("x y", "", 2)}, []float32{0}},
		"LoRA none":              {new(LoRAAffinity), []endpoint{{}}, []float32{0}},
		"prefix, part":           {Types["prefix-cache-scorer"](), []endpoint{{PrefixBlocks: 0}, {PrefixBlocks: 1}, {PrefixBlocks: 4}, {PrefixBlocks: 9}}, []float32{0, 0.25, 1, 1}},
		"prefix, length":         {&PrefixCache{MatchLengthWeight: 1, MatchLengthScaleTokens: 128}, []endpoint{{PrefixBlocks: 1}, {PrefixBlocks: 2}, {PrefixBlocks: 4}}, []float32{0.25, 1, 1}},
		"prefix, any load":       {Types["prefix-cache-scorer"](), []endpoint{{InflightRequests: 1000, PrefixBlocks: 4}, {}}, []float32{1, 0}},
		"prefix, yields":         {yielding, []endpoint{{InflightRequests: 8, PrefixBlocks: 4}, {InflightRequests: 9, PrefixBlocks: 4}, {}}, []float32{1, 0, 0}},
		"prefix, twice as many":  {yielding, []endpoint{{InflightRequests: 40, PrefixBlocks: 4}, {InflightRequests: 41, PrefixBlocks: 4}, {InflightRequests: 20}}, []float32{1, 0, 0}},
		"prefix, no bound":       {&PrefixCache{MatchLengthScaleTokens: 8192, YieldAboveRequests: math.MaxInt}, []endpoint{{InflightRequests: 1000, PrefixBlocks: 4}, {InflightRequests: 1}}, []float32{1, 0}},
		"prefix, least loaded":   {yielding, []endpoint{{InflightRequests: 50, PrefixBlocks: 4}, {InflightRequests: 50}}, []float32{1, 0}},
		"prefix, both":           {&PrefixCache{MatchLengthWeight: 0.5, MatchLengthScaleTokens: 256}, []endpoint{{PrefixBlocks: 2}}, []float32{0.5*0.25 + 0.5*0.5}},
		"active":                 {Types["active-request-scorer"](), []endpoint{{}, {InflightRequests: 1}, {InflightRequests: 4}}, []float32{1, 0.75, 0}},
		"active, idle threshold": {&ActiveRequest{IdleThreshold: 1, MaxBusyScore: 0.5}, []endpoint{{InflightRequests: 1}, {InflightRequests: 2}, {InflightRequests: 4}}, []float32{1, 0.25, 0}},
		"active, nobody":         {Types["active-request-scorer"](), []endpoint{{}, {}}, []float32{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := make([]float32, len(c.candidates))
			c.scorer.Score(&schedule.Input{Request: request, Candidates: schedule.CandidatesOf(c.candidates...)}, got)
			if !slices.Equal(got, c.want) {
				t.Errorf("Score(%+v) = %v, want %v", c.candidates, got, c.want)
			}
		})
	}
}

func TestPromptWithoutBlocks(t *testing.T) {
	got := []float32{9}
	Types["prefix-cache-scorer"]().Score(&schedule.Input{Request: new(messages.Request), Candidates: schedule.CandidatesOf(schedule.Endpoint{PrefixBlocks: 3})}, got)
	if got[0] != 0 {
		t.Errorf("Score without blocks = %v, want 0", got[0])
	}
}

// TestRangeAndAllocations plays every scorer over odd endpoints: scores stay in [0,1], and nothing is allocated.
func TestRangeAndAllocations(t *testing.T) {
	var odd []schedule.Endpoint
	for _, n := range []int{-5, 0, 1, 100, math.MaxInt32} {
		for _, kv := range []float64{math.NaN(), math.Inf(-1), 0, 0.5, 2} {
			odd = append(odd, schedule.Endpoint{Waiting: n, Running: n, KVUsed: kv, InflightRequests: n, PrefixBlocks: n,
				MaxLoRAs: n, ActiveLoRAs: []string{"a", "b"}})
		}
	}
	in := &schedule.Input{Request: request, Candidates: schedule.CandidatesOf(odd...)}
	scores := make([]float32, len(odd))
	for name, make := range Types {
		s := make()
		if n := testing.AllocsPerRun(100, func() { s.Score(in, scores) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
		for i, x := range scores {
			if !(x >= 0 && x <= 1) {
				t.Errorf("%s: %+v scores %v, want 0 to 1", name, odd[i], x)
			}
		}
	}
}

func TestReads(t *testing.T) {
	want := map[string]schedule.Reads{"queue-scorer": schedule.ReadsSample, "running-requests-size-scorer": schedule.ReadsSample,
		"kv-cache-utilization-scorer": schedule.ReadsSample, "load-aware-scorer": schedule.ReadsSample,
		"lora-affinity-scorer": schedule.ReadsLoRA, "prefix-cache-scorer": schedule.ReadsPrefix}
	for name, make := range Types {
		var got schedule.Reads
		if r, ok := make().(interface{ Reads() schedule.Reads }); ok {
			got = r.Reads()
		}
		if got != want[name] {
			t.Errorf("%s reads %b, want %b", name, got, want[name])
		}
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		plugin interface{ Validate() error }
		want   string
	}{
		"threshold":   {&LoadAware{Threshold: 0}, "threshold: got 0, want 1 or more"},
		"prefix":      {&PrefixCache{MatchLengthWeight: math.NaN()}, "matchLengthWeight: got NaN, want 0 to 1\nmatchLengthScaleTokens: got 0, want 1 or more"},
		"active":      {&ActiveRequest{IdleThreshold: -1, MaxBusyScore: 2}, "idleThreshold: got -1, want 0 or more\nmaxBusyScore: got 2, want 0 to 1"},
		"prefix less": {&PrefixCache{MatchLengthScaleTokens: 1, YieldAboveRequests: -1}, "yieldAboveRequests: got -1, want 0 or more"},
		"in order":    {&PrefixCache{MatchLengthWeight: 1, MatchLengthScaleTokens: 1}, "<nil>"},
		"no choices":  {new(QueueDepth), "<nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(c.plugin.Validate()); got != c.want {
				t.Errorf("Validate(%+v) = %s, want %s", c.plugin, got, c.want)
			}
		})
	}
}
