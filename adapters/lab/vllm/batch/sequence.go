package batch

import "time"

// sequence is a request on its way through the engine.
type sequence struct {
	id  uint64
	req Request

	planned
	held
	batched
	computed  int // tokens of prompt and answer whose KV entries exist
	generated int // tokens of the answer, limit at most

	arrived, scheduled, firstToken, lastToken time.Time
}

// planned is the answer as it was settled when the request came.
type planned struct {
	key     uint64 // of its text
	limit   int    // its length in tokens
	endsFor Reason // why it ends there
}

// held are the KV blocks of a sequence: 0 <= published <= len(blocks), and no more are published than have hashes.
type held struct {
	hashes    []uint64 // of full blocks from the first on: the prompt's, then those the answer fills
	blocks    []int32  // held, in order
	published int      // of blocks, how many are findable
}

// batched is a sequence's standing in the batch. One that runs was admitted, and is not over.
type batched struct {
	running, over bool
	admitted      bool // was in the batch before
	cachedTokens  int  // found in the prefix cache on first admission
	preemptions   int
}

func newSequence(c *Core, id uint64, r Request) *sequence {
	if len(r.Prompt) == 0 {
		r.Prompt = c.tokens.Special(nil, "<|begin|>")
	}
	if c.cfg.MaxLoRAs == 0 {
		r.Adapter, r.Salt = "", r.Adapter+"\x00"+r.Salt
	}
	s := &sequence{id: id, req: r, arrived: c.now}
	s.hashes = make([]uint64, 0, min(len(r.Prompt)/c.cfg.BlockTokens, c.cfg.KVBlocks)+1)
	h := hashText(r.Adapter + "\x00" + r.Salt)
	for p := 0; p < len(r.Prompt); p += c.cfg.BlockTokens {
		piece := r.Prompt[p:min(p+c.cfg.BlockTokens, len(r.Prompt))]
		h = chain(h, piece)
		if len(piece) == c.cfg.BlockTokens && len(s.hashes) < c.cfg.KVBlocks {
			s.hashes = append(s.hashes, h)
		}
	}
	s.key = mix(h ^ mix(c.cfg.Seed) ^ mix(r.Variant+1))
	s.limit, s.endsFor = s.length(c.cfg.AnswerTokens)
	return s
}

// length draws the length of the answer: from half of mean to one and a half, then bounded by what the request says.
func (s *sequence) length(mean int) (int, Reason) {
	atMost := max(s.req.MaxTokens, 1)
	if s.req.IgnoreEnd {
		return atMost, Length
	}
	n := max(mean-mean/2+int(mix(s.key)%uint64(mean+1)), s.req.MinTokens, 1)
	if n >= atMost {
		return atMost, Length
	}
	return n, Stop
}

// total is how many tokens have to be computed before the next one comes out.
func (s *sequence) total() int { return len(s.req.Prompt) + s.generated }

func (s *sequence) pending() int { return s.total() - s.computed }

// decoding means that one step over one token yields the next.
func (s *sequence) decoding() bool { return s.generated > 0 && s.pending() == 1 }

// blocksFor is how many blocks hold so many tokens of a sequence.
func (c *Core) blocksFor(tokens int) int {
	return min((tokens+c.cfg.BlockTokens-1)/c.cfg.BlockTokens, c.cfg.KVBlocks)
}

// publish makes the blocks findable that are computed to their end.
func (c *Core) publish(s *sequence) {
	full := min(s.computed/c.cfg.BlockTokens, len(s.blocks))
	for ; s.published < full; s.published++ {
		if s.published == len(s.hashes) {
			s.hashes = append(s.hashes, c.answerHash(s))
		}
		c.kv.publish(s.blocks[s.published], s.hashes[s.published])
	}
}

// answerHash is the hash of the first block that has none yet: its end, at least, is of the answer.
func (c *Core) answerHash(s *sequence) uint64 {
	h := hashText(s.req.Adapter + "\x00" + s.req.Salt)
	if n := len(s.hashes); n > 0 {
		h = s.hashes[n-1]
	}
	from, piece := len(s.hashes)*c.cfg.BlockTokens, make([]uint32, 0, 64)
	for p := from; p < from+c.cfg.BlockTokens; p++ {
		if p < len(s.req.Prompt) {
			piece = append(piece, s.req.Prompt[p])
		} else {
			piece = append(piece, c.tokens.wordID(s.key, p-len(s.req.Prompt)))
		}
	}
	return chain(h, piece)
}
