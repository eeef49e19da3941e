package batch

import "time"

// Request is one sequence to generate.
type Request struct {
	// Prompt must not be changed afterwards. An empty one counts as one token.
	Prompt []uint32
	// Salt separates prefix caches: blocks are shared only between sequences of equal Salt and Adapter.
	Salt string
	// Adapter is the LoRA adapter to run with; "" = the base model. An engine without slots runs every adapter as the
	// base model, with a prefix cache of its own.
	Adapter string
	// MaxTokens is where the answer is cut, 1 or more.
	MaxTokens int
	// MinTokens is how long the answer is at least, if MaxTokens allows. 0 = no bound.
	MinTokens int
	// IgnoreEnd makes the answer exactly MaxTokens long.
	IgnoreEnd bool
	// Variant makes answers to equal prompts differ.
	Variant uint64
}

// Progress is how far a sequence has come in a step.
type Progress struct {
	ID uint64
	// Generated is the length of the answer up to now, in tokens.
	Generated int
	// Cached is how many tokens of the prompt were found in the prefix cache.
	Cached int
	// Ended is Running until the last Progress of a sequence. A cancelled sequence has no last Progress.
	Ended Reason
}

// Stats is the state of the engine at one moment.
type Stats struct {
	Running  int // sequences in the batch
	Waiting  int // sequences in the queue, Deferred included
	Deferred int // of these, how many wait for a LoRA slot
	// KVUsedRatio is the part of KV blocks that sequences hold, 0 to 1.
	KVUsedRatio float64
}

// Core is one engine. It has no lock: its owner calls it from one goroutine at a time, with times that never go back.
type Core struct {
	cfg    Config
	tokens *Tokens
	kv     *kvCache
	loras  *loraSlots
	tally  Tally

	lastID  uint64
	live    map[uint64]*sequence
	waiting []*sequence // first come, first served; preempted ones go to the front
	running []*sequence // in order of admission

	paused  bool // no step begins
	now     time.Time
	step    []share // what the step under way computes; empty = none is under way
	stepEnd time.Time
	out     []Progress
	spare   []Progress // what Advance returned last
}

// share is what one sequence has of a step.
type share struct {
	seq    *sequence
	tokens int
}

// New returns an idle engine. tokens is the tokenizer that made the prompts it will be given.
func New(cfg Config, tokens *Tokens) (*Core, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Core{
		cfg: cfg, tokens: tokens, kv: newKVCache(cfg.KVBlocks), loras: newLoRASlots(cfg.MaxLoRAs),
		tally: newTally(), live: make(map[uint64]*sequence),
	}, nil
}

// Submit puts a sequence into the queue at the given time and returns its number and the key of its answer's text. A
// sequence longer than the KV cache runs all the same and holds no more blocks than there are.
func (c *Core) Submit(now time.Time, r Request) (id, key uint64) {
	c.run(now)
	c.lastID++
	s := newSequence(c, c.lastID, r)
	c.live[s.id] = s
	c.waiting = append(c.waiting, s)
	c.loras.wait(s.req.Adapter, +1)
	c.tally.Submitted++
	c.begin()
	return s.id, s.key
}

// Cancel ends a sequence and frees what it holds. An unknown number, or one that has ended, is ignored.
func (c *Core) Cancel(now time.Time, id uint64) {
	c.run(now)
	s := c.live[id]
	if s == nil {
		return
	}
	if s.running {
		c.running = without(c.running, s)
	} else {
		c.waiting = without(c.waiting, s)
		c.loras.wait(s.req.Adapter, -1)
	}
	c.end(s, c.now, Abort)
}

// Advance lets the engine work until now and returns what came out since the last call, in order. The result is valid
// until the next call of Advance.
func (c *Core) Advance(now time.Time) []Progress {
	c.run(now)
	out := c.out
	c.out, c.spare = c.spare[:0], out
	return out
}

// NextEvent is when the step under way ends. False = the engine is idle until something is submitted.
func (c *Core) NextEvent() (time.Time, bool) { return c.stepEnd, len(c.step) > 0 }

// Stats looks at the queues and the cache.
func (c *Core) Stats() Stats {
	deferred := 0
	for _, s := range c.waiting {
		if !c.loras.fits(s.req.Adapter) {
			deferred++
		}
	}
	return Stats{Running: len(c.running), Waiting: len(c.waiting), Deferred: deferred, KVUsedRatio: c.kv.usedRatio()}
}

// Tally is what was counted; the owner reads it between calls and changes nothing.
func (c *Core) Tally() *Tally { return &c.tally }

// LoRAs lists every pair of running and waiting adapter sets there has been, with the time it was last seen.
func (c *Core) LoRAs() []LoRASets { return c.loras.seen }

// ResetPrefixCache forgets all cached prefixes. False = sequences are running, nothing was done.
func (c *Core) ResetPrefixCache() bool { return c.kv.reset() }

// Pause keeps the engine from beginning a step until Resume. Sequences wait meanwhile.
func (c *Core) Pause(now time.Time) {
	c.run(now)
	c.paused = true
}

// Resume ends a pause.
func (c *Core) Resume(now time.Time) {
	c.paused = false
	c.run(now)
}

// run ends every step that is over by now, and begins those that follow.
func (c *Core) run(now time.Time) {
	for len(c.step) > 0 && !c.stepEnd.After(now) {
		c.now = c.stepEnd
		c.complete()
		c.begin()
	}
	if now.After(c.now) {
		c.now = now
	}
	c.begin()
}

// end takes a sequence, which is in no queue any more, out of the engine.
func (c *Core) end(s *sequence, at time.Time, why Reason) {
	if s.running {
		c.loras.run(s.req.Adapter, -1)
	}
	s.running, s.over = false, true
	c.kv.release(s.blocks)
	s.blocks = nil
	delete(c.live, s.id)
	c.tally.ended(s, at, why)
}

func without(list []*sequence, s *sequence) []*sequence {
	for i, other := range list {
		if other == s {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// Reconfigure has the engine work at other speeds and with another batch size from the next step on. The KV cache and
// the LoRA slots stay as they are.
func (c *Core) Reconfigure(cfg Config) {
	c.cfg.MaxRunning, c.cfg.MaxBatchedTokens = cfg.MaxRunning, cfg.MaxBatchedTokens
	c.cfg.PrefillTokensPerSecond, c.cfg.DecodeTokensPerSecond = cfg.PrefillTokensPerSecond, cfg.DecodeTokensPerSecond
	c.cfg.BatchSlowdown = cfg.BatchSlowdown
}
