package endpoints

import "sync/atomic"

// Audited is what audits have found of an incarnation's prefix cache since it was added.
type Audited struct {
	PredictedTokens uint64 // of audited prompts, which the prefix index held for it
	ReportedTokens  uint64 // of these, which it reported as cached
	LostBlocks      uint64 // of the index, which were dropped because it had lost them
	Drifts          bool   // at the moment: it does not find again what it computes
}

type audited struct {
	predicted, reported, lost atomic.Uint64
	drifts                    atomic.Bool
}
