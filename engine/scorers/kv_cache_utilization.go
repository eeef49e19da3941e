package scorers

import (
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// KVCacheUtilization prefers free KV cache: an empty cache scores 1, a full one 0. A server whose metrics do not tell
// its KV usage, as llama.cpp's, scores the mean of those that tell: neither as empty nor as full. One that reports no
// number that makes sense counts as full. A server whose answer is stale is passed by; while all are stale, in-flight
// load stands in.
type KVCacheUtilization struct{ used attributes.NumberSlot }

// Validate returns nil: there are no parameters.
func (*KVCacheUtilization) Validate() error { return nil }

// Declare asks for the part of the cache in use.
func (s *KVCacheUtilization) Declare(r *attributes.Reader) {
	s.used = r.Number(attributes.KVCacheUsage.Name, "")
}

// Score writes the free part of each cache.
func (s *KVCacheUtilization) Score(in *schedule.Input, scores []float32) {
	used, unknown := in.Numbers(s.used), 0
	for i := range scores {
		if x := used.At(i); x == x {
			scores[i] = float32(1 - min(x, 1))
		} else {
			unknown++
		}
	}
	if unknown > 0 {
		scoreUnknown(used, scores, 0)
	}
}
