package batch

import "time"

// begin plans the next step, if none is under way and there is work.
func (c *Core) begin() {
	if c.paused || len(c.step) > 0 || len(c.running)+len(c.waiting) == 0 {
		return
	}
	budget, preempted := c.planRunning(c.cfg.MaxBatchedTokens)
	loads := 0
	if !preempted {
		loads = c.admit(budget)
	}
	decoding, prefill, tokens := 0, 0, 0
	for _, sh := range c.step {
		tokens += sh.tokens
		if sh.seq.decoding() {
			decoding++
		} else {
			prefill += sh.tokens
		}
	}
	c.tally.StepTokens.observe(float64(tokens))
	c.stepEnd = c.now.Add(c.duration(decoding, prefill) + time.Duration(loads)*c.cfg.LoRALoad)
	c.loras.record(c.now)
}

// duration is how long a step takes that decodes so many sequences and computes so many prompt tokens, 1 µs or more.
func (c *Core) duration(decoding, prefill int) time.Duration {
	seconds := float64(prefill) / c.cfg.PrefillTokensPerSecond
	if decoding > 0 {
		seconds += (1 + c.cfg.BatchSlowdown*float64(decoding-1)) / c.cfg.DecodeTokensPerSecond
	}
	return max(time.Duration(seconds*float64(time.Second)), time.Microsecond)
}

// planRunning gives the sequences in the batch their share of the step. One that needs a block when none is free has
// the latest ones of the batch sent back to the queue, itself if it is the latest.
func (c *Core) planRunning(budget int) (left int, preempted bool) {
	for i := 0; i < len(c.running) && budget > 0; i++ {
		s := c.running[i]
		n := min(s.pending(), budget)
		fits := c.grow(s, n)
		for !fits {
			victim := c.running[len(c.running)-1]
			c.preempt(victim)
			preempted = true
			if victim == s {
				return budget, true
			}
			fits = c.grow(s, n)
		}
		c.step = append(c.step, share{s, n})
		budget -= n
	}
	return budget, preempted
}

// grow takes the blocks that n further tokens of s need.
func (c *Core) grow(s *sequence, n int) bool {
	for want := c.blocksFor(s.computed + n); len(s.blocks) < want; {
		id, ok := c.kv.take()
		if !ok {
			return false
		}
		s.blocks = append(s.blocks, id)
	}
	return true
}

// preempt sends the latest sequence of the batch back to the front of the queue. Its tokens are kept, what was computed
// is not, except for what stays in the prefix cache.
func (c *Core) preempt(s *sequence) {
	c.running = c.running[:len(c.running)-1]
	c.kv.release(s.blocks)
	s.blocks, s.published, s.computed, s.running = s.blocks[:0], 0, 0, false
	s.preemptions++
	c.tally.Preemptions++
	c.loras.run(s.req.Adapter, -1)
	c.loras.wait(s.req.Adapter, +1)
	c.waiting = append([]*sequence{s}, c.waiting...)
}

// admit moves sequences from the queue into the batch while there is room. One whose adapter finds no slot lets others
// pass, one whose prompt finds no blocks does not. It returns how many adapters had to be moved into a slot.
func (c *Core) admit(budget int) (loads int) {
	kept := c.waiting[:0]
	for i, s := range c.waiting {
		if budget == 0 || len(c.running) >= c.cfg.MaxRunning {
			kept = append(kept, c.waiting[i:]...)
			break
		}
		if !c.loras.fits(s.req.Adapter) {
			kept = append(kept, s)
			continue
		}
		if !c.allocate(s) {
			kept = append(kept, c.waiting[i:]...)
			break
		}
		c.loras.wait(s.req.Adapter, -1)
		if c.loras.run(s.req.Adapter, +1) {
			loads++
		}
		s.running = true
		c.running = append(c.running, s)
		n := min(s.pending(), budget)
		c.step = append(c.step, share{s, n})
		budget -= n
	}
	clear(c.waiting[len(kept):])
	c.waiting = kept
	return loads
}

// allocate gives a waiting sequence the blocks of all its tokens: cached ones as far as they reach, then free ones. The
// last token is always computed, because the next one comes out of that.
func (c *Core) allocate(s *sequence) bool {
	known := s.hashes[:min(len(s.hashes), (s.total()-1)/c.cfg.BlockTokens)]
	found, idle := c.kv.find(known)
	want := c.blocksFor(s.total())
	if want-found > c.kv.free-idle {
		return false
	}
	for _, h := range known[:found] {
		s.blocks = append(s.blocks, c.kv.hold(h))
	}
	s.computed, s.published = found*c.cfg.BlockTokens, found
	c.grow(s, s.pending())
	if !s.admitted {
		s.admitted, s.scheduled, s.cachedTokens = true, c.now, s.computed
		c.tally.QueriedTokens += uint64(len(s.req.Prompt))
		c.tally.HitTokens += uint64(s.cachedTokens)
	}
	return true
}

// complete ends the step under way: what it computed exists, and sequences whose tokens are all computed yield one.
func (c *Core) complete() {
	for _, sh := range c.step {
		if !sh.seq.over {
			c.forward(sh.seq, sh.tokens)
		}
	}
	clear(c.step)
	c.step = c.step[:0]
	kept := c.running[:0]
	for _, s := range c.running {
		if !s.over {
			kept = append(kept, s)
		}
	}
	clear(c.running[len(kept):])
	c.running = kept
	c.loras.record(c.now)
}

// forward moves one sequence by the tokens a step computed for it.
func (c *Core) forward(s *sequence, tokens int) {
	s.computed += tokens
	c.publish(s)
	if s.pending() > 0 {
		return
	}
	s.generated++
	if s.generated == 1 {
		s.firstToken = c.now
	}
	c.tally.token(s, c.now)
	s.lastToken = c.now
	p := Progress{ID: s.id, Generated: s.generated, Cached: s.cachedTokens}
	if s.generated >= s.limit {
		p.Ended = s.endsFor
		c.end(s, c.now, p.Ended)
	}
	c.out = append(c.out, p)
}
