package scorers

import "github.com/signalbox-epp/signalbox/engine/schedule"

// KVCacheUtilization prefers free KV cache: an empty cache scores 1, a full one 0. A server that reports no number that
// makes sense counts as full.
type KVCacheUtilization struct{}

// Validate accepts everything: there are no parameters.
func (KVCacheUtilization) Validate() error { return nil }

// Reads says that the sample must be fresh.
func (KVCacheUtilization) Reads() schedule.Reads { return schedule.ReadsSample }

// Score is the free part of each cache.
func (KVCacheUtilization) Score(in *schedule.Input, scores []float32) {
	for i := range in.Candidates {
		scores[i] = 0
		if used := in.Candidates[i].KVUsed; used < 1 { // false for NaN as well
			scores[i] = 1 - float32(max(used, 0))
		}
	}
}
