package filters

import (
	"errors"
	"fmt"
	"math"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// PrefixCacheAffinity keeps the servers that hold most of the prompt in their prefix cache, until waiting for them
// would cost more than computing the prompt elsewhere. How long a server needs for the prompts in flight there is
// estimated as their tokens divided by peakPrefillThroughput. All servers are kept if none holds enough of the prompt,
// or if the least loaded one that does needs maxTTFTPenaltyMs more than the least loaded one of the others.
//
// Let a scorer for load follow, such as token-load-scorer, and no prefix-cache-scorer: that would keep requests at the
// servers which this filter has just opened the others for.
type PrefixCacheAffinity struct {
	// AffinityThreshold is the part of the prompt that a server must hold to be kept, 0 to 1; 0 = the filter keeps all.
	AffinityThreshold float64 `json:"affinityThreshold"`
	// ExplorationProbability is the share of requests for which all servers are kept, so that others come to hold the
	// prompt too, 0 to 1.
	ExplorationProbability float64 `json:"explorationProbability"`
	// MaxTTFTPenaltyMs is how much later, in milliseconds, the first token may come from the servers that hold the
	// prompt; 0 = any time.
	MaxTTFTPenaltyMs float64 `json:"maxTTFTPenaltyMs"`
	// TTFTSource says how the time is estimated: by prefillThroughput. The reference also has latencyPredictor, which
	// needs a service of its own.
	TTFTSource string `json:"ttftSource"`
	// PeakPrefillThroughput is how many tokens of prompts a server computes in a second, above 0.
	PeakPrefillThroughput float64 `json:"peakPrefillThroughput"`
	// PrefixMatchInfoProducerName names the approx-prefix-cache-producer whose index is read; empty = the only one.
	PrefixMatchInfoProducerName string `json:"prefixMatchInfoProducerName" names:"approx-prefix-cache-producer"`
	// InFlightLoadProducerName names the inflight-load-producer that counts; empty = the only one.
	InFlightLoadProducerName string `json:"inFlightLoadProducerName" names:"inflight-load-producer"`
	// LatencyPredictionInfoProducerName names a latency predictor.
	LatencyPredictionInfoProducerName string `json:"latencyPredictionInfoProducerName" effect:"none"`
	// MaxTokensInFlightPenalty is how many tokens in flight more than the others the servers that hold the prompt may
	// have; 0 = any number. It is an older way to write maxTTFTPenaltyMs, which is that many tokens divided by
	// peakPrefillThroughput, and replaces it.
	MaxTokensInFlightPenalty int `json:"maxTokensInFlightPenalty"`

	blocks, tokens attributes.NumberSlot
}

// Adapt turns a bound in tokens into one in milliseconds. It goes before maxTTFTPenaltyMs, whose default would bound
// more: files that have it had no default beside it.
func (f *PrefixCacheAffinity) Adapt() (warnings []error) {
	if n := f.MaxTokensInFlightPenalty; n > 0 && f.PeakPrefillThroughput > 0 {
		f.MaxTTFTPenaltyMs, f.MaxTokensInFlightPenalty = float64(n)/f.PeakPrefillThroughput*1000, 0
		warnings = append(warnings, fmt.Errorf("maxTokensInFlightPenalty: deprecated, write maxTTFTPenaltyMs: %.0f",
			f.MaxTTFTPenaltyMs))
	}
	return warnings
}

// Validate returns which parameters are out of range.
func (f *PrefixCacheAffinity) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if f.MaxTokensInFlightPenalty < 0 {
		fail("maxTokensInFlightPenalty: got %d, want 0 or more", f.MaxTokensInFlightPenalty)
	}
	if !(f.AffinityThreshold >= 0 && f.AffinityThreshold <= 1) {
		fail("affinityThreshold: got %v, want 0 to 1", f.AffinityThreshold)
	}
	if !(f.ExplorationProbability >= 0 && f.ExplorationProbability <= 1) {
		fail("explorationProbability: got %v, want 0 to 1", f.ExplorationProbability)
	}
	if !(f.MaxTTFTPenaltyMs >= 0) {
		fail("maxTTFTPenaltyMs: got %v, want 0 or more", f.MaxTTFTPenaltyMs)
	}
	switch f.TTFTSource {
	case "prefillThroughput":
	case "latencyPredictor":
		fail("ttftSource: latencyPredictor needs a predictor service, which Signalbox does not ask; want " +
			"prefillThroughput")
	default:
		fail("ttftSource: got %q, want prefillThroughput", clip.Value(f.TTFTSource))
	}
	if !(f.PeakPrefillThroughput > 0 && f.PeakPrefillThroughput <= math.MaxFloat64) {
		fail("peakPrefillThroughput: got %v, want above 0", f.PeakPrefillThroughput)
	}
	return errors.Join(errs...)
}

// Declare asks for the matching blocks, and for the tokens in flight if the filter depends on them.
func (f *PrefixCacheAffinity) Declare(r *attributes.Reader) {
	f.blocks = r.Number(attributes.PrefixBlocks.Name, f.PrefixMatchInfoProducerName)
	if f.MaxTTFTPenaltyMs > 0 {
		f.tokens = r.Number(attributes.InflightTokens.Name, f.InFlightLoadProducerName)
	}
}

// How the filter decides, in the order of the outcomes that it tells.
const (
	sticky        = iota // servers that hold enough of the prompt were kept
	noMatch              // none of them does
	loadOverride         // those that do are too far behind the others
	exploration          // the draw said so
	notApplicable        // there was nothing to decide
)

// Outcomes returns how the filter may decide.
func (f *PrefixCacheAffinity) Outcomes() schedule.Outcomes {
	return schedule.Outcomes{
		Metric: "prefix_cache_affinity_filter_decisions_total",
		Help: "Decisions of prefix-cache-affinity-filter: whether servers that hold the prompt were kept, or why all " +
			"were.",
		Names: []string{
			sticky: "sticky", noMatch: "no_match", loadOverride: "load_override", exploration: "exploration",
			notApplicable: "not_applicable",
		},
	}
}

// Filter keeps the candidates that hold enough of the prompt. One that is ejected is not waited for.
func (f *PrefixCacheAffinity) Filter(in *schedule.Input, keep []bool) {
	total := float64(in.Request().PromptBlocks())
	in.Decided(notApplicable)
	if len(keep) < 2 || f.AffinityThreshold == 0 {
		return
	}
	in.Decided(noMatch)
	if total == 0 {
		return
	}
	if f.ExplorationProbability > 0 && in.Rand().Float64() < f.ExplorationProbability {
		in.Decided(exploration)
		return
	}
	blocks, holding := in.Numbers(f.blocks), 0
	for i := range keep {
		if keep[i] = min(blocks.At(i), total)/total >= f.AffinityThreshold && !in.Ejected(i); keep[i] {
			holding++
		}
	}
	switch {
	case holding == 0:
		keepAll(keep)
	case holding < len(keep) && f.overloaded(in, keep):
		in.Decided(loadOverride)
		keepAll(keep)
	default:
		in.Decided(sticky)
	}
}

// overloaded reports whether the candidates that hold the prompt are too far behind the others.
func (f *PrefixCacheAffinity) overloaded(in *schedule.Input, holds []bool) bool {
	if f.MaxTTFTPenaltyMs == 0 {
		return false
	}
	tokens, holding, other := in.Numbers(f.tokens), math.Inf(1), math.Inf(1)
	for i, held := range holds {
		if held {
			holding = min(holding, tokens.At(i))
		} else if !in.Ejected(i) {
			other = min(other, tokens.At(i))
		}
	}
	return (holding-other)/f.PeakPrefillThroughput*1000 > f.MaxTTFTPenaltyMs
}
