package prefix

import (
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/messages"
)

// lead is what the index held of a prompt when it was placed: its lead blocks that ended requests have entered. They
// are in parts, each of blocks that were last used together, such as a beginning that many prompts have in common, and
// behind it a conversation.
//
// A server that has lost all has the common beginning again after one request. So what it finds of a prompt proves the
// parts that it finds, and says nothing of those behind them. It finds a part if it reports half of that part, beyond
// what stands before it. How many tokens that is, the index knows of blocks at which prompts parted or ended: see
// audits.count. A part that begins elsewhere is taken together with the part before it. What is found of both proves
// only the latter, which is the one used later. A part of few tokens is passed over.
type lead struct {
	parts [mostParts]part // the most recently used first, and the beginning of the prompt
	count int             // of parts
}

// mostParts is how many parts of a lead are told apart; the last one has all that follows. The fifth needs four prompts
// that went along with this one, each further than the next, and used before it.
const mostParts = 4

// part is one of a lead.
type part struct {
	blocks int32  // of the prompt, up to the end of the part
	tokens int32  // likewise, as far as a server has reported cached ones; 0 = it is not known
	used   uint64 // stamp of the last use of its last block, before this one
}

// blocks returns how many blocks a lead has.
func (l *lead) blocks() int {
	if l.count == 0 {
		return 0
	}
	return int(l.parts[l.count-1].blocks)
}

// add adds a block to a lead.
func (l *lead) add(b blockindex.Block) {
	if l.count == 0 || l.parts[l.count-1].used != b.Stamp {
		begin := int32(l.blocks())
		l.count = min(l.count+1, mostParts)
		l.parts[l.count-1].blocks = begin
	}
	last := &l.parts[l.count-1]
	last.blocks, last.tokens, last.used = last.blocks+1, int32(b.Tokens), b.Stamp
}

// size is how many tokens the blocks of a server have: as it tells, or what divides all that it has reported.
type size struct {
	tokens int
	told   bool
}

// span is one or several parts of a lead, as an answer shows them.
type span struct {
	first    int    // of the parts
	blocks   int    // of the span
	used     uint64 // the last use of its last block
	proven   uint64 // the last use of its first part: what a hit proves
	found    int    // tokens of it that were cached
	expected int    // likewise, about, if the server has the span
	sure     int    // likewise, at least: few tokens of its blocks do not explain fewer than half of it
}

// hit reports whether the server has found the span.
func (s *span) hit() bool { return s.expected >= leastTokens && 2*s.found >= s.expected }

// lost reports whether the server has lost the span, and judged, whether that could be said of it. The server finds
// whole blocks of its own alone. So it has to have two of them by what is expected about, or more of what is sure than
// may be missing.
func (s *span) lost(own size) bool   { return !s.hit() && s.tells(own, s.found) }
func (s *span) judged(own size) bool { return s.tells(own, 0) }

func (s *span) tells(own size, found int) bool {
	missing := own.tokens // what is not told is a multiple
	if own.told {
		missing *= 2
	}
	return s.expected >= max(leastTokens, 2*own.tokens) || s.sure >= max(leastTokens, found+missing)
}

// perBlock returns how many tokens were cached of each of its blocks.
func (s *span) perBlock() float64 { return float64(s.found) / float64(max(s.blocks, 1)) }

// span returns the shortest span up to the end of a part of which it is known how many tokens stand before it.
func (of *audit) span(p *placement, m messages.ReportedPrompt, last int) span {
	end, parts := &p.lead.parts[last], &p.lead.parts
	for first := last; first > 0; first-- {
		before := &parts[first-1]
		// A block has tokens: if too few are left, what is known of those before it is wrong.
		possible := int(before.tokens) + int(end.blocks-before.blocks)*leastPerBlock
		if before.tokens > 0 && possible <= end.most(m) {
			return of.spanOf(p, m, first, last)
		}
	}
	return of.spanOf(p, m, 0, last)
}

// most returns how many tokens there are up to the end of a part, at most.
func (e *part) most(m messages.ReportedPrompt) int {
	if e.tokens == 0 {
		return m.PromptTokens
	}
	return min(m.PromptTokens, int(e.tokens))
}

// spanOf returns the span from one part to another.
func (of *audit) spanOf(p *placement, m messages.ReportedPrompt, first, last int) span {
	var before part
	if first > 0 {
		before = p.lead.parts[first-1]
	}
	end, tokens := &p.lead.parts[last], int(before.tokens)
	s := span{
		first: first, blocks: int(end.blocks - before.blocks), used: end.used, proven: p.lead.parts[first].used,
		found: max(m.CachedTokens-tokens, 0),
	}
	// A prompt has a part of a block more than the index counts, at most.
	s.expected = (m.PromptTokens - tokens) * s.blocks / (p.prompt.Blocks.Len() + 1 - int(before.blocks))
	if end.tokens > 0 {
		s.expected = min(s.expected, (end.most(m)-tokens)*s.blocks/(s.blocks+1))
	}
	s.expected = min(s.expected, int(float64(s.blocks)*of.perBlock))
	// The rest of it, less than a block among it, has no more tokens than bytes. Those of media are not told by bytes,
	// and a report may be missing.
	if m.Media == 0 && m.CachedKnown {
		rest := (p.prompt.Blocks.Len() + 1 - int(end.blocks)) * mostPerBlock
		s.sure = min(max(m.PromptTokens-rest-tokens, 0), s.blocks*mostPerBlock)
	}
	s.expected = max(s.expected, s.sure)
	return s
}
