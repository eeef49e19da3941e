package scorers

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
	"github.com/signalbox-epp/signalbox/messages"
)

// Costs are in seconds, worked out by hand. A prompt has 1024 tokens.
func TestExpectedCompletion(t *testing.T) {
	type endpoint = scheduletest.Endpoint
	asked := &messages.Request{Model: "m", PromptTokens: 1024, Blocks: messages.ListOf(make([]uint64, 16)...)}
	busy := func(tokens, rate, blocks int) endpoint {
		return endpoint{Inflight: 1, InflightTokens: tokens, PromptRate: rate, PrefixBlocks: blocks}
	}
	for name, c := range map[string]struct {
		scorer ExpectedCompletion
		all    []endpoint
		want   []float64
	}{
		"the first guess": {
			ExpectedCompletion{TokensPerSecond: 512}, []endpoint{{}, {PrefixBlocks: 8}, {PrefixBlocks: 16}},
			[]float64{2, 1, 1. / 512},
		},
		"one unknown, with the mean of the others": {
			ExpectedCompletion{TokensPerSecond: 512},
			[]endpoint{{PromptRate: 1024}, {PromptRate: 3072}, busy(4096, 0, 0)},
			[]float64{1, 1. / 3, 2 + .5},
		},
		"a wait that is a guess, too": {
			ExpectedCompletion{TokensPerSecond: 512}, []endpoint{busy(2048, 0, 0), {}},
			[]float64{4 + 2, 2},
		},
		"requests that keep others from first tokens": {
			ExpectedCompletion{TokensPerSecond: 1024},
			[]endpoint{{Inflight: 24, PromptRate: 1024, PerRequest: time.Second / 4}, {}},
			[]float64{6 + 1, 1},
		},
		"wait, and its own miss twice": {
			ExpectedCompletion{TokensPerSecond: 1, OwnWeight: 1},
			[]endpoint{busy(2048, 1024, 0), busy(2048, 1024, 8), busy(512, 1024, 0)},
			[]float64{2 + 2, 2 + 1, .5 + 2},
		},
		// one request within 20 s is a twentieth of one a second
		"what later requests pay": {
			ExpectedCompletion{TokensPerSecond: 1, LaterWeight: 1}, []endpoint{busy(2048, 1024, 0)},
			[]float64{2 + 1 + .05*1*(2+.5)},
		},
		"requests in a batch": {
			ExpectedCompletion{TokensPerSecond: 1024, SecondsPerRequest: .25}, []endpoint{busy(0, 0, 0), {}},
			[]float64{1.25, 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := make([]float32, len(c.all))
			scheduletest.Show(t, &c.scorer, asked, func(in *schedule.Input) { c.scorer.Score(in, got) }, c.all...)
			for i, want := range c.want {
				if cost := 1/float64(got[i]) - 1; math.Abs(cost-want) > 1e-4 {
					t.Errorf("candidate %d costs %v s, want %v", i, cost, want)
				}
			}
		})
	}
}

// The terms of a cost come to what the score has.
func TestTermsComeToTheCost(t *testing.T) {
	s := ExpectedCompletion{TokensPerSecond: 1, OwnWeight: 1, LaterWeight: 2, SecondsPerRequest: .25}
	asked := &messages.Request{Model: "m", PromptTokens: 1024, Blocks: messages.ListOf(make([]uint64, 16)...)}
	known := scheduletest.Endpoint{
		Inflight: 1, InflightTokens: 2048, PromptRate: 1024, PrefixBlocks: 8, PerRequest: time.Second,
	}
	unknown := known
	unknown.PromptRate, unknown.PrefixBlocks = 0, 0
	decided := scheduletest.Decide(t, &s, asked, known, unknown)
	names, values := decided.Reads.Append(nil), decided.Values.Append(nil)
	n := len(names)
	if got := names[n-4:]; !slices.Equal(got, s.Terms()) || len(values) != 2*n {
		t.Fatalf("%v, and %d values, want the terms last, twice", names, len(values))
	}
	sum := 0.
	for _, seconds := range values[n-4 : n] {
		sum += float64(seconds)
	}
	if cost := 1/float64(decided.Totals.At(int(decided.Ranked.At(0)))) - 1; math.Abs(sum-cost) > 1e-3 || sum < 3 {
		t.Errorf("the terms %v come to %v, want the cost of %v", values[n-4:n], sum, cost)
	}
	if miss := values[2*n-3]; miss == miss && !math.IsInf(float64(miss), 0) {
		t.Errorf("of an endpoint that has shown nothing the prompt takes %v s, want it unknown", miss)
	}
}

// A server that has much to compute loses a prompt that it holds in part to one that has nothing to do, and keeps one
// that it holds whole as long as the wait is shorter than computing it.
func TestHomeIsKeptWhileItIsCheaper(t *testing.T) {
	s := Types["expected-completion"]().(*ExpectedCompletion)
	asked := &messages.Request{Model: "m", PromptTokens: 8000, Blocks: messages.ListOf(make([]uint64, 125)...)}
	for tokens, home := range map[int]bool{0: true, 8000: true, 14_000: true, 40_000: false} {
		got := make([]float32, 2)
		scheduletest.Show(t, s, asked, func(in *schedule.Input) { s.Score(in, got) },
			scheduletest.Endpoint{Inflight: 1, InflightTokens: tokens, PrefixBlocks: 125, PromptRate: 8000},
			scheduletest.Endpoint{PromptRate: 8000})
		if (got[0] > got[1]) != home {
			t.Errorf("with %d tokens ahead at its home: %v, and %v elsewhere", tokens, got[0], got[1])
		}
	}
}
