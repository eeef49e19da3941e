// Package batch is the engine of a simulated model server: continuous batching over a paged KV cache.
//
// It owns the waiting and running queues, the KV blocks with their prefix cache, the LoRA slots, and what is counted
// about them. It is a machine that moves only when told the time: the same calls with the same times give the same
// tokens. It never reads a clock, starts a goroutine, locks, or knows of HTTP.
package batch

import (
	"errors"
	"fmt"
	"time"
)

// Config describes one engine. Every field has to be set; the zero value of a field is legal only where it says so.
type Config struct {
	// MaxRunning is how many sequences run in one batch, 1 or more.
	MaxRunning int
	// MaxBatchedTokens is how many tokens one step computes at most, 1 or more. Longer prompts are computed in chunks.
	MaxBatchedTokens int
	// KVBlocks is the size of the KV cache in blocks, 1 or more.
	KVBlocks int
	// BlockTokens is how many tokens a KV block holds, 1 or more.
	BlockTokens int
	// MaxLoRAs is how many different adapters run in one batch. 0 = LoRA is off.
	MaxLoRAs int
	// PrefillTokensPerSecond is the speed at which prompt tokens are computed, above 0.
	PrefillTokensPerSecond float64
	// DecodeTokensPerSecond is the speed at which a sequence that runs alone yields tokens, above 0.
	DecodeTokensPerSecond float64
	// BatchSlowdown is by which part of itself each further decoding sequence lengthens a step. 0 = batching is free.
	BatchSlowdown float64
	// LoRALoad lengthens a step for each adapter that has to be moved into a slot. 0 = moving is free.
	LoRALoad time.Duration
	// AnswerTokens is the mean length of answers that end by themselves, 1 or more. Lengths spread evenly from half of
	// it to one and a half.
	AnswerTokens int
	// Seed decides texts and lengths, together with the prompt.
	Seed uint64
}

// Validate names every field that is out of its range.
func (c Config) Validate() error {
	var errs []error
	atLeast := func(name string, got, least int) {
		if got < least {
			errs = append(errs, fmt.Errorf("%s: got %d, want %d or more", name, got, least))
		}
	}
	atLeast("MaxRunning", c.MaxRunning, 1)
	atLeast("MaxBatchedTokens", c.MaxBatchedTokens, 1)
	atLeast("KVBlocks", c.KVBlocks, 1)
	atLeast("BlockTokens", c.BlockTokens, 1)
	atLeast("MaxLoRAs", c.MaxLoRAs, 0)
	atLeast("AnswerTokens", c.AnswerTokens, 1)
	if !(c.PrefillTokensPerSecond > 0) {
		errs = append(errs, fmt.Errorf("PrefillTokensPerSecond: got %g, want more than 0", c.PrefillTokensPerSecond))
	}
	if !(c.DecodeTokensPerSecond > 0) {
		errs = append(errs, fmt.Errorf("DecodeTokensPerSecond: got %g, want more than 0", c.DecodeTokensPerSecond))
	}
	if !(c.BatchSlowdown >= 0) {
		errs = append(errs, fmt.Errorf("BatchSlowdown: got %g, want 0 or more", c.BatchSlowdown))
	}
	if c.LoRALoad < 0 {
		errs = append(errs, fmt.Errorf("LoRALoad: got %s, want 0 or more", c.LoRALoad))
	}
	return errors.Join(errs...)
}
