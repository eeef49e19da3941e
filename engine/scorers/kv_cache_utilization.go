package scorers

import "github.com/signalbox-epp/signalbox/engine/schedule"

// KVCacheUtilization prefers free KV cache: an empty cache scores 1, a full one 0. A server whose metrics do not tell
// its KV usage, as llama.cpp's, scores the mean of those that tell: neither as empty nor as full. One that reports no
// number that makes sense counts as full.
type KVCacheUtilization struct{}

// Validate returns nil: there are no parameters.
func (KVCacheUtilization) Validate() error { return nil }

// Reads reports that the sample must be fresh.
func (KVCacheUtilization) Reads() schedule.Reads { return schedule.ReadsSample }

// Score writes the free part of each cache.
func (KVCacheUtilization) Score(in *schedule.Input, scores []float32) {
	var sum, told float32
	for i := range in.Candidates.Len() {
		used := in.Candidates.At(i).KVUsed()
		if used < 0 {
			continue
		}
		scores[i] = 0
		if used < 1 { // false for NaN as well
			scores[i] = 1 - float32(used)
		}
		sum, told = sum+scores[i], told+1
	}
	for i := range in.Candidates.Len() {
		if in.Candidates.At(i).KVUsed() < 0 {
			scores[i] = sum / max(told, 1)
		}
	}
}
