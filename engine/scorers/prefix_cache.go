package scorers

import (
	"errors"
	"fmt"
	"math"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// blockTokens is the size of a prompt block: 256 bytes at 4 bytes a token.
const blockTokens = 64

// PrefixCache prefers servers that hold the beginning of the prompt in their prefix cache. The score is a weighted
// mean of two numbers: the part of the prompt's blocks that match, and the square of the matched length on a fixed
// scale. With the default weight only the first counts. A prompt without a whole block of 64 tokens scores 0
// everywhere.
//
// With yieldAboveRequests the preference ends where it would crowd one server while another has little to do:
// conversations then move to a server that was added, or that returned.
type PrefixCache struct {
	// MatchLengthWeight is the share of the matched length in the score, 0 to 1; the matched part of the prompt has
	// the rest.
	MatchLengthWeight float64 `json:"matchLengthWeight"`
	// MatchLengthScaleTokens is the matched length, in tokens, that scores 1; at least 1.
	MatchLengthScaleTokens int `json:"matchLengthScaleTokens"`
	// YieldAboveRequests is how many requests in flight more than the least loaded candidate a server may have. One
	// that has more, and more than twice as many, scores 0. 0 = any number; without a configuration file it is 8.
	YieldAboveRequests int `json:"yieldAboveRequests"`
	// PrefixMatchInfoProducerName names the approx-prefix-cache-producer whose index is read; empty = the only one.
	PrefixMatchInfoProducerName string `json:"prefixMatchInfoProducerName" names:"approx-prefix-cache-producer"`
	PrefixCacheOlderNames

	blocks, requests attributes.NumberSlot
}

// PrefixCacheOlderNames has parameters of older files: other names, and sizes of the index, which stood here before it
// had a producer of its own. All are zero once the configuration is read.
type PrefixCacheOlderNames struct {
	// Producer is an older name of prefixMatchInfoProducerName.
	Producer *string `json:"producer" older:"prefixMatchInfoProducerName"`
	// PrefixLengthWeight is the older name of matchLengthWeight.
	PrefixLengthWeight *float64 `json:"prefixLengthWeight" older:"matchLengthWeight"`
	// MaxModelLen is the older name of matchLengthScaleTokens.
	MaxModelLen *int `json:"maxModelLen" older:"matchLengthScaleTokens"`
	// Mode is approximate; cache_tracking, which knows by KV events over ZMQ what servers hold, is refused.
	Mode string `json:"mode"`
	// AutoTune stands here for that of approx-prefix-cache-producer.
	AutoTune *bool `json:"autoTune"`
	// HashBlockSize was the size of a block in bytes.
	HashBlockSize int `json:"hashBlockSize" effect:"warning"`
	// BlockSize stands here for that of approx-prefix-cache-producer.
	BlockSize int `json:"blockSize"`
	// BlockSizeTokens stands here for that of approx-prefix-cache-producer.
	BlockSizeTokens int `json:"blockSizeTokens"`
	// MaxPrefixBlocksToMatch stands here for that of approx-prefix-cache-producer.
	MaxPrefixBlocksToMatch int `json:"maxPrefixBlocksToMatch"`
	// MaxPrefixTokensToMatch stands here for that of approx-prefix-cache-producer.
	MaxPrefixTokensToMatch int `json:"maxPrefixTokensToMatch"`
	// LRUCapacityPerServer stands here for that of approx-prefix-cache-producer.
	LRUCapacityPerServer int `json:"lruCapacityPerServer"`
}

// BoundsBlocks reports whether a prompt is bounded by blocks, before which a bound in tokens goes.
func (n *PrefixCacheOlderNames) BoundsBlocks() bool {
	return n.MaxPrefixBlocksToMatch > 0 && n.MaxPrefixTokensToMatch == 0
}

// Adapt says where the capacity stands now.
func (n *PrefixCacheOlderNames) Adapt() (warnings []error) {
	if n.LRUCapacityPerServer > 0 {
		warnings = append(warnings, errors.New("lruCapacityPerServer: deprecated, write it at an "+
			"approx-prefix-cache-producer"))
	}
	return warnings
}

// Validate returns which parameters are out of range.
func (s *PrefixCache) Validate() error {
	var errs []error
	switch s.Mode {
	case "", "approximate":
	case "cache_tracking":
		errs = append(errs, errors.New("mode: cache_tracking needs KV events over ZMQ, which Signalbox does not read; "+
			"remove it"))
	default:
		errs = append(errs, fmt.Errorf("mode: got %q, want approximate", clip.Value(s.Mode)))
	}
	for _, size := range []struct {
		name string
		got  int
	}{
		{"blockSize", s.BlockSize}, {"blockSizeTokens", s.BlockSizeTokens},
		{"maxPrefixBlocksToMatch", s.MaxPrefixBlocksToMatch}, {"maxPrefixTokensToMatch", s.MaxPrefixTokensToMatch},
		{"lruCapacityPerServer", s.LRUCapacityPerServer},
	} {
		if size.got < 0 {
			errs = append(errs, fmt.Errorf("%s: got %d, want 0 or more", size.name, size.got))
		}
	}
	if !(s.MatchLengthWeight >= 0 && s.MatchLengthWeight <= 1) {
		errs = append(errs, fmt.Errorf("matchLengthWeight: got %v, want 0 to 1", s.MatchLengthWeight))
	}
	if s.MatchLengthScaleTokens < 1 {
		errs = append(errs, fmt.Errorf("matchLengthScaleTokens: got %d, want 1 or more", s.MatchLengthScaleTokens))
	}
	if s.YieldAboveRequests < 0 {
		errs = append(errs, fmt.Errorf("yieldAboveRequests: got %d, want 0 or more", s.YieldAboveRequests))
	}
	return errors.Join(errs...)
}

// Declare asks for the matching blocks, and for the requests in flight if the score depends on them.
func (s *PrefixCache) Declare(r *attributes.Reader) {
	s.blocks = r.Number(attributes.PrefixBlocks.Name, s.PrefixMatchInfoProducerName)
	if s.YieldAboveRequests > 0 {
		s.requests = r.Number(attributes.InflightRequests.Name, "")
	}
}

// Score weighs the matched part and the matched length.
func (s *PrefixCache) Score(in *schedule.Input, scores []float32) {
	blocks, total := in.Numbers(s.blocks), float64(in.Request().PromptBlocks())
	for i := range scores {
		if match := min(blocks.At(i), total); match > 0 {
			length := min(1, match*blockTokens/float64(s.MatchLengthScaleTokens))
			scores[i] = float32(s.MatchLengthWeight*length*length + (1-s.MatchLengthWeight)*match/total)
		}
	}
	if s.YieldAboveRequests > 0 {
		s.yield(in.Numbers(s.requests), scores)
	}
}

// yield sets the score to 0 of servers that have too many requests in flight, however much of the prompt they hold.
func (s *PrefixCache) yield(requests schedule.Numbers, scores []float32) {
	least := math.Inf(1)
	for i := range scores {
		least = min(least, requests.At(i))
	}
	for i := range scores {
		if more := requests.At(i) - least; more > float64(s.YieldAboveRequests) && more > least {
			scores[i] = 0
		}
	}
}
