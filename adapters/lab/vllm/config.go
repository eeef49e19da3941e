// Package vllm is a simulated vLLM: a server that answers like one and computes nothing.
//
// It owns the HTTP face (the APIs of text that are routed, plain and streamed, SGLang's /generate among them, model
// list, LoRA loading, metrics page, errors) of an engine that lives in vllm/batch, and the clock that drives it. Texts
// are made up, but the same seed and the same prompt give the same text, and an answer sent back as the next turn of a
// chat is found in the prefix cache.
//
// It never looks at sampling parameters, stop strings, tools or log probabilities: they are accepted and without
// effect. Adapter paths are not opened. Nothing leaves the process.
package vllm

import (
	"fmt"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
)

// Config describes one server. The zero value of a field means its default.
type Config struct {
	// Address to listen on. Default "127.0.0.1:0": any free port.
	Address string
	// Name stands in the x-sim-name header of every answer. Default "sim".
	Name string
	// Model is the name of the base model. Default "sim-model".
	Model string
	// Adapters are the LoRA adapters loaded at the start.
	Adapters []string
	// MaxLoRAs is how many adapters run in one batch. Default 4 with Adapters; else 0, which turns LoRA off.
	MaxLoRAs int
	// MaxRunning is how many sequences run in one batch. Default 128.
	MaxRunning int
	// MaxQueued is from how many sequences on, running ones included, new ones are answered 503: vLLM 0.32 counts all
	// that its front end has not finished under --max-num-queued-reqs. Default 0: any number.
	MaxQueued int
	// MaxBatchedTokens is how many tokens one step computes at most. Default 2048.
	MaxBatchedTokens int
	// KVBlocks is the size of the KV cache in blocks. Default 4096.
	KVBlocks int
	// BlockTokens is the size of a KV block in tokens. Default 16.
	BlockTokens int
	// MaxModelLen is how many tokens prompt and answer may have together. Default 0: any number; a sequence longer than
	// the KV cache then holds all of it.
	MaxModelLen int
	// PrefillTokensPerSecond is the speed at which prompts are computed. Default 8000.
	PrefillTokensPerSecond float64
	// DecodeTokensPerSecond is the speed of a sequence that runs alone. Default 50.
	DecodeTokensPerSecond float64
	// BatchSlowdown is by which part of itself each further sequence lengthens a decode step. Default 0.01; negative:
	// not at all.
	BatchSlowdown float64
	// FrontEndBusy is how long a request keeps the front end, which takes one after the other. Default 0.
	FrontEndBusy time.Duration
	// FrontEndLatency is how long a request then takes to reach the engine; it delays no other request. Default 0.
	FrontEndLatency time.Duration
	// LoRALoad is how long it takes to move an adapter into a slot. Default 50 ms; negative: no time.
	LoRALoad time.Duration
	// BytesPerToken is the length of a token in bytes of text. Default 4.
	BytesPerToken int
	// AnswerTokens is the mean length of answers that no limit cuts. Default 256; they have half to one and a half.
	AnswerTokens int
	// PromptTokensDetails adds cached_tokens to usage, as vLLM's --enable-prompt-tokens-details does. Default false.
	PromptTokensDetails bool
	// Tick is the shortest time between two deliveries of tokens; what comes out between them is written at once.
	// Default 10 ms. It delays tokens, not the engine.
	Tick time.Duration
	// Seed decides texts, lengths and ids. Default 0, a seed like any other.
	Seed uint64
	// Faults are those of the start. Default: none.
	Faults Faults
	// Clock drives the engine. Default: the wall clock.
	Clock Clock
}

// withDefaults fills in what is not set.
func (c Config) withDefaults() Config {
	setDefault(&c.Address, "127.0.0.1:0")
	setDefault(&c.Name, "sim")
	setDefault(&c.Model, "sim-model")
	if len(c.Adapters) > 0 {
		setDefault(&c.MaxLoRAs, 4)
	}
	setDefault(&c.MaxRunning, 128)
	setDefault(&c.MaxBatchedTokens, 2048)
	setDefault(&c.KVBlocks, 4096)
	setDefault(&c.BlockTokens, 16)
	setDefault(&c.PrefillTokensPerSecond, 8000)
	setDefault(&c.DecodeTokensPerSecond, 50)
	setDefault(&c.BatchSlowdown, 0.01)
	setDefault(&c.LoRALoad, 50*time.Millisecond)
	setDefault(&c.BytesPerToken, 4)
	setDefault(&c.AnswerTokens, 256)
	setDefault(&c.Tick, 10*time.Millisecond)
	if c.Clock == nil {
		c.Clock = wallClock{}
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) engine() batch.Config {
	return batch.Config{
		MaxRunning: c.MaxRunning, MaxBatchedTokens: c.MaxBatchedTokens, KVBlocks: c.KVBlocks,
		BlockTokens: c.BlockTokens,
		MaxLoRAs:    c.MaxLoRAs, PrefillTokensPerSecond: c.PrefillTokensPerSecond,
		DecodeTokensPerSecond: c.DecodeTokensPerSecond,
		BatchSlowdown:         max(c.BatchSlowdown, 0), LoRALoad: max(c.LoRALoad, 0), AnswerTokens: c.AnswerTokens,
		Seed: c.Seed,
	}
}

// validate checks what the engine does not check itself.
func (c Config) validate() error {
	switch {
	case c.MaxModelLen < 0:
		return fmt.Errorf("MaxModelLen: got %d, want 0 or more", c.MaxModelLen)
	case c.MaxQueued < 0:
		return fmt.Errorf("MaxQueued: got %d, want 0 or more", c.MaxQueued)
	case c.BytesPerToken < 0:
		return fmt.Errorf("bytes per token: got %d, want 1 or more", c.BytesPerToken)
	case c.FrontEndBusy < 0 || c.FrontEndLatency < 0:
		return fmt.Errorf("front end: got %s and %s, want 0 or more", c.FrontEndBusy, c.FrontEndLatency)
	case c.Tick < 0:
		return fmt.Errorf("tick: got %s, want more than 0", c.Tick)
	}
	return c.Faults.Validate()
}

// Profiles are servers that were measured, by name: each function sets what the measurement found and leaves the rest.
var Profiles = map[string]func(*Config){
	// The figures behind it, and how to repeat them, are in README.md.
	"vllm-cpu-tiny": func(c *Config) {
		c.MaxRunning, c.MaxBatchedTokens, c.KVBlocks, c.BlockTokens, c.MaxModelLen = 128, 2048, 512, 32, 4096
		c.PrefillTokensPerSecond, c.DecodeTokensPerSecond, c.BatchSlowdown = 40_000, 400, 0.03
		c.FrontEndBusy, c.FrontEndLatency = time.Millisecond, 5*time.Millisecond
		c.Tick, c.PromptTokensDetails = time.Millisecond, true
	},
}

// Clock tells the time and calls back at a later one.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once, on another goroutine or on that which moves the clock, never before it returns. stop
	// takes the call back if it has not begun.
	AfterFunc(d time.Duration, f func()) (stop func())
}

type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func (wallClock) AfterFunc(d time.Duration, f func()) func() {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}
