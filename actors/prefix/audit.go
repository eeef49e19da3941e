package prefix

import (
	"math"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/messages"
)

// audits compares what the index holds of prompts with what servers report of their caches, and drops what they have
// lost: a server may restart, reset its cache, sleep, or evict earlier than the index does.
//
// A prompt is audited if the index held some of it before, and requests that have ended had entered that: a server does
// not hold yet what it still computes. It is audited by its parts, see lead. It is a miss if the server had less than
// half of a part cached, beyond what stands before that, and a hit on the last part of which it had half. So one
// answer can be a hit on a beginning and a miss of what is behind it. Hits on what was used since the first miss of a
// row prove nothing: the server has computed it anew.
//
// How many tokens blocks of a prompt have is not known: a script, or numbers, can have three times as many as prose of
// the same length. So no more is expected of a server than its part of the prompt, and than the least that it had of as
// many blocks before. Nor is a part judged that may have no whole block of the server.
//
//	      a miss          a miss: what was used before     6 misses, or 12 answers since the first one: all that was
//	      ┌────┐          that prompt goes, too            not used since the first miss goes, and the server has to
//	none ─┘    └► 1 miss ─► 2 to 5 misses ───────────────► report cached tokens anew
//	 ▲              │         │
//	 └──────────────┴─────────┘ a hit on what was used before the first miss
//
// A miss of what was used since the first one means few tokens, or another loss if even those would be a miss: then a
// row begins anew with it.
//
// Servers evict what they used the longest time ago, as the index does. So a miss means that all that was used before
// the lost prompt is lost, too. Misses without such a hit between them mean that all is.
//
// A server drifts if it does not find again what it computes, as with a chat template that puts the time before every
// prompt. Three losses one after the other say so, with few answers and no hit between them. A loss is a miss of
//   - a prompt that the index held nearly whole: few tokens do not explain it, for what is left of it has fewer bytes;
//   - that was computed after the loss before: one reset does not explain both;
//   - and so lately that it was not evicted: the server has found prompts that it had not used for twice as long.
//
// From then on the index holds of each prompt what its answer says was cached, and no more. So a server that is healthy
// keeps its credit for what its prompts have in common, and one hit, with more tokens cached than in those losses, ends
// the drift. So do many answers, because no prompt may come again to show a hit.
//
// A server that never reported a cached token in answers of a form may not report them at all, or always write 0, and
// is not audited by such answers. Once it has, an answer without them says that none were cached, unless another answer
// of that form has said so by a 0.
type audits struct {
	slots   map[uint32]*audit
	pending map[owned]int // first blocks that live requests have entered, by how many have
}

// owned is a block of an endpoint.
type owned struct {
	slot uint32
	key  uint64
}

// audit is what was found of one endpoint.
type audit struct {
	generation uint32  // a slot has others later
	reports    uint64  // bit 2*API, or that plus 1 if it is streamed: answers of this form have reported cached tokens
	zeros      uint64  // likewise: they have reported that none were
	perBlock   float64 // the fewest tokens of a block that hits have had, of late
	missed     float64 // those of the miss of the row whose prompt was used last, which is newest
	varies     bool    // there were blocks of fewer tokens than perBlock was
	grain      int     // divides all that was reported, as the server's blocks do; 0 = nothing was
	misses     int     // in a row
	answers    int     // with reports, since the first miss of the row
	first      uint64  // the stamp of the first miss of the row
	newest     uint64  // the last use of the most recently used prompt among the misses of the row
	drift
}

// drift is what says that a server drifts. The age of a prompt is how many stamps ago it was last used.
type drift struct {
	losses  int    // one after the other; from lossesOfDrift on the server drifts
	last    uint64 // the stamp of the last one
	answers int    // with reports since then, or since a hit
	most    int    // cached tokens of a loss
	reach   uint64 // the greatest age of a hit on a prompt that the index held nearly whole
}

// found reports whether the server drifts.
func (d *drift) found() bool { return d.losses >= lossesOfDrift }

// note takes the last span of a prompt, placed with that stamp, of which so many tokens were cached in all. It reports
// whether the drift begins.
func (d *drift) note(s span, stamp uint64, cached int) (begins bool) {
	d.answers++
	limit := answersOfLoss
	if d.found() {
		limit = answersOfDrift
	}
	if (d.found() || s.hit()) && cached > d.most || d.answers > limit {
		*d = drift{reach: d.reach}
	}
	switch {
	case s.sure < leastTokens:
	case s.hit():
		d.reach = max(stamp-s.used, d.reach-d.reach/64) // what was long ago counts less and less
	case 2*s.found < s.sure && !d.found() && s.used >= d.last && stamp-s.used <= max(d.reach/2, leastReach):
		d.losses, d.last, d.answers, d.most = d.losses+1, stamp, 0, max(d.most, cached)
		return d.found()
	}
	return false
}

// Misses in a row from which blocks are dropped, answers since the first of at least two, and losses.
const (
	missesOfOlder  = 2
	missesOfAll    = 6
	answersOfAll   = 12
	lossesOfDrift  = 3
	answersOfLoss  = 32   // from one to the next, at most
	answersOfDrift = 1000 // after which it is put to the test again
	leastReach     = 4    // requests to all endpoints for which a server keeps a prompt, however small its cache is
)

// leastTokens is how many tokens a prompt must have in the index to be audited: with fewer, the last block of a server
// that is not full decides.
const leastTokens = 128

const (
	firstPerBlock = 48.0 // tokens of a block of 256 bytes until hits tell: more than a large vocabulary leaves of prose
	leastPerBlock = 16
	mostPerBlock  = 256       // one a byte
	earlyShare    = 1.0 / 32  // of the difference by which perBlock follows hits with more
	lateShare     = 1.0 / 256 // likewise, once there were fewer
	mostGrain     = 1024      // a server has no larger blocks, though all prompts so far may have been longer multiples
)

func newAudits() audits { return audits{slots: map[uint32]*audit{}, pending: map[owned]int{}} }

// at returns what was found of an incarnation of an endpoint.
func (a *audits) at(e messages.EndpointID) *audit {
	of := a.slots[e.Slot]
	if of == nil || of.generation != e.Generation {
		of = &audit{generation: e.Generation, perBlock: firstPerBlock}
		a.slots[e.Slot] = of
	}
	return of
}

// expect returns what the index holds of a prompt that is about to be entered for an endpoint; nothing if answers of
// the endpoint are not audited.
func (a *audits) expect(index *blockindex.Index, e messages.EndpointID, p blockindex.Prompt) (held lead) {
	if a.at(e).reports == 0 {
		return held
	}
	index.Lead(e.Slot, p, func(b blockindex.Block) bool {
		if a.pending[owned{e.Slot, b.Key}] > 0 {
			return false
		}
		held.add(b)
		return true
	})
	return held
}

// entered notes that a live request has entered blocks for an endpoint.
func (a *audits) entered(slot uint32, p blockindex.Prompt, e blockindex.Entry) {
	if key := p.Key(e); key != 0 {
		a.pending[owned{slot, key}]++
	}
}

// ended notes that the request is no longer live.
func (a *audits) ended(slot uint32, p blockindex.Prompt, e blockindex.Entry) {
	block := owned{slot, p.Key(e)}
	switch a.pending[block] {
	case 0:
	case 1:
		delete(a.pending, block)
	default:
		a.pending[block]--
	}
}

// verdict is what an audit has found of a prompt.
type verdict struct {
	judged              bool
	predicted, reported int    // cached tokens
	drop                uint64 // what was last used by this stamp is lost; 0 = nothing is
	drifts              bool
	keep                int  // blocks of the prompt that stay in the index
	found               bool // CachedTokens are those of the lead
}

// judge takes what a server reported of a prompt. blockTokens is how many tokens its own blocks have; 0 = it is not
// known.
func (a *audits) judge(p *placement, m messages.ReportedPrompt, blockTokens int) verdict {
	of := a.at(p.endpoint)
	if !of.reported(m) {
		return verdict{drifts: of.drift.found(), keep: p.entry.From}
	}
	own := size{tokens: blockTokens, told: true}
	if blockTokens == 0 {
		own = size{tokens: min(of.grain, mostGrain)}
	}
	v := verdict{
		predicted: m.PromptTokens * p.lead.blocks() / (p.prompt.Blocks.Len() + 1), reported: m.CachedTokens,
		keep: m.CachedTokens * p.prompt.Blocks.Len() / max(m.PromptTokens, 1),
	}
	var end, lost span // the last one, and the last one that is lost
	for last := p.lead.count - 1; last >= 0; {
		s := of.span(p, m, last)
		if last == p.lead.count-1 {
			end = s
		}
		if v.judged = v.judged || s.judged(own); s.hit() {
			v.found = last == p.lead.count-1 && s.first == last
			of.hit(s)
			break
		}
		before := s.first - 1
		if !s.judged(own) {
			s = of.spanOf(p, m, 0, last) // all of it may have enough tokens
		}
		if lost.blocks == 0 && s.lost(own) {
			lost = s
		}
		last = before
	}
	if lost.blocks > 0 {
		of.miss(lost, p.entry.Stamp, own)
		v.drop = of.older()
	}
	if all := of.all(); all > 0 {
		v.drop = all
	}
	if !end.judged(own) {
		end.sure = 0
	}
	if of.drift.note(end, p.entry.Stamp, m.CachedTokens) {
		v.drop, of.misses = math.MaxUint64, 0 // nothing is left that was used before the row
	}
	v.drifts = of.drift.found()
	return v
}

// count notes in the index how many tokens the lead of a prompt has, if the server has found it, and how many all of it
// has. What follows on a prompt begins with that, but for the rest that is no whole block. What was cached of a lead is
// what it has in common with another prompt. It is no less than its tokens, but for a part of a block of the server,
// and more if the server has more of the prompt than the index knows. So fewer count at once, and more little by
// little.
func (a *audits) count(index *blockindex.Index, p *placement, m messages.ReportedPrompt, found bool) {
	if m.Media > 0 || m.PromptTokens == 0 {
		return
	}
	note := func(blocks, tokens int) {
		index.Count(p.endpoint.Slot, p.prompt, blocks, func(noted int) int {
			if noted == 0 || tokens < noted {
				return tokens
			}
			return noted + (tokens-noted)/4
		})
	}
	if found {
		note(p.lead.blocks(), m.CachedTokens)
	}
	if p.lead.blocks() < p.prompt.Blocks.Len() {
		note(p.prompt.Blocks.Len(), m.PromptTokens)
	}
}

// reported notes in what form an answer reports cached tokens. It returns whether the answer does.
func (of *audit) reported(m messages.ReportedPrompt) bool {
	form := uint64(1) << (2 * uint64(m.API))
	if m.Stream {
		form <<= 1
	}
	switch {
	case m.CachedTokens > 0:
		of.reports |= form
		of.grain = divisor(of.grain, m.CachedTokens)
	case m.CachedKnown:
		of.zeros |= form
	case of.zeros&form != 0:
		return false
	}
	return of.reports&form != 0
}

// divisor returns the greatest number that divides both.
func divisor(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// hit notes a hit. One on what was used before the first miss of the row ends it. If that was used before what was
// missed, too, that was not evicted, but has few tokens.
func (of *audit) hit(s span) {
	of.learn(s.perBlock())
	if of.misses == 0 || s.proven >= of.first {
		return
	}
	if of.misses = 0; s.proven < of.newest {
		of.learn(min(of.missed, of.perBlock))
	}
}

// miss notes a miss of a prompt that was placed with that stamp. One of what was used since the first miss of the row
// is none: the server has computed it since then, and it has few tokens. But if even the fewest possible would do for a
// miss, then the server has lost that, too, and a row begins anew.
func (of *audit) miss(s span, stamp uint64, own size) {
	each, certain := s.perBlock(), 2*s.found < s.sure
	if certain {
		each = of.perBlock // it does not say that there are fewer
	}
	if of.misses > 0 && s.used >= of.first {
		of.learn(each)
		s.expected = s.blocks * leastPerBlock
		if !certain && !s.lost(own) {
			return
		}
		of.misses = 0
	}
	if of.misses++; of.misses == 1 {
		of.first, of.newest, of.answers = stamp, 0, 0
	}
	if s.used >= of.newest {
		of.newest, of.missed = s.used, each
	}
}

// learn takes how many tokens a block had. Fewer count at once, and more little by little, once there were fewer.
func (of *audit) learn(each float64) {
	each = min(max(each, leastPerBlock), mostPerBlock)
	switch {
	case each < of.perBlock:
		of.perBlock, of.varies = each, true
	case of.varies:
		of.perBlock += (each - of.perBlock) * lateShare
	default:
		of.perBlock += (each - of.perBlock) * earlyShare
	}
}

// older returns up to which last use blocks are lost by the misses of the row; 0 = there are too few.
func (of *audit) older() uint64 {
	if of.misses < missesOfOlder {
		return 0
	}
	return min(of.newest, of.first-1)
}

// all counts an answer. It returns the same if all is lost that was not used since the first miss, and ends the row.
func (of *audit) all() uint64 {
	if of.misses == 0 {
		return 0
	}
	of.answers++
	if of.misses < missesOfAll && (of.misses < missesOfOlder || of.answers < answersOfAll) {
		return 0
	}
	first := of.first
	// A form of answers that has told of none by a 0 would tell of some, too.
	*of = audit{generation: of.generation, perBlock: firstPerBlock, reports: of.reports & of.zeros, zeros: of.zeros,
		grain: of.grain, drift: of.drift}
	return first - 1
}
