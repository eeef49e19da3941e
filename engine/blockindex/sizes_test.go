package blockindex_test

import (
	"math"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/messages"
)

// Prompts are compared in blocks of the engine's size where sizes are tuned, and in none smaller than 64 tokens.
func TestUnit(t *testing.T) {
	own := blockindex.CacheSize{Blocks: 10, BlockTokens: 784}
	for name, c := range map[string]struct {
		sizes messages.PrefixSizes
		own   blockindex.CacheSize
		want  int
	}{
		"nothing is said": {messages.PrefixSizes{}, own, 64},
		"small":           {messages.PrefixSizes{BlockTokens: 16}, own, 64},
		"large":           {messages.PrefixSizes{BlockTokens: 256}, own, 256},
		"tuned":           {messages.PrefixSizes{BlockTokens: 256, Tuned: true}, own, 784},
		"tuned, small": {messages.PrefixSizes{BlockTokens: 256, Tuned: true},
			blockindex.CacheSize{BlockTokens: 16}, 64},
		"tuned, no page": {messages.PrefixSizes{BlockTokens: 256, Tuned: true}, blockindex.CacheSize{}, 256},
	} {
		if got := blockindex.Unit(c.sizes, c.own); got != c.want {
			t.Errorf("%s: %d tokens, want %d", name, got, c.want)
		}
	}
}

// What is held of a prompt counts in whole units, and all of it as all.
func TestWhole(t *testing.T) {
	for _, c := range []struct{ held, prompt, unit, want int }{
		{7, 20, 64, 7}, {7, 20, 256, 4}, {3, 20, 256, 0}, {20, 20, 256, 20}, {13, 20, 784, 12}, {12, 20, 784, 0}, {0,
			0, 784, 0},
	} {
		if got := blockindex.Whole(c.held, c.prompt, c.unit); got != c.want {
			t.Errorf("%d of %d blocks in units of %d tokens: %d, want %d", c.held, c.prompt, c.unit, got, c.want)
		}
	}
}

// Answers teach how many bytes a token has, for each model apart, and only where bytes tell.
func TestTokenBytes(t *testing.T) {
	bytes := blockindex.TokenBytes{}
	learn := func(model string, blocks, tokens, media int) {
		p := blockindex.Prompt{Model: model, Blocks: messages.TakeList(make([]uint64, blocks))}
		for range 200 {
			bytes.Learn(p, messages.ReportedPrompt{PromptTokens: tokens, Media: media})
		}
	}
	learn("script", 100, 100*128, 0)
	learn("prose", 100, 100*51, 0)
	learn("pictures", 100, 100*512, 1)
	learn("short", 7, 7*128, 0)
	learn("silent", 100, 0, 0)
	learn("one a token", 100, 100*1000, 0)
	for model, want := range map[string]float64{
		"script": 2, "prose": 5, "pictures": 4, "short": 4, "silent": 4, "one a token": 1, "unknown": 4,
	} {
		if got := bytes.Of(model); math.Abs(got-want) > 0.05 {
			t.Errorf("%s: %.2f bytes a token, want %v", model, got, want)
		}
	}
}
