package prefix

import (
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/messages"
)

// audits compares what the index holds of prompts with what servers report of their caches, and drops what they have
// lost: a server may restart, reset its cache, sleep, or evict earlier than the index does.
//
// A prompt is audited if the index held some of it before, and requests that have ended had entered that: a server does
// not hold yet what it still computes. It is a miss if the server had less than half of that cached, and a hit
// otherwise. Hits on what was used since the first miss of a row prove nothing: the server has computed it anew.
//
//	      a miss          a miss: what was used before     6 misses, or 12 answers since the first one: all that was
//	      ┌────┐          that prompt goes, too            not used since the first miss goes, and the server has to
//	none ─┘    └► 1 miss ─► 2 to 5 misses ───────────────► report cached tokens anew
//	 ▲              │         │
//	 └──────────────┴─────────┘ a hit on what was used before the first miss
//
// Servers evict what they used the longest time ago, as the index does. So a miss means that all that was used before
// the lost prompt is lost, too. Misses without such a hit between them mean that all is.
//
// A server that never reported a cached token in answers of a form may not report them at all, and is not audited by
// such answers.
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
	generation uint32 // a slot has others later
	reports    uint64 // bit 2*API, or that plus 1 if it is streamed: answers of this form have reported cached tokens
	misses     int    // in a row
	answers    int    // with reports, since the first miss of the row
	first      uint64 // the stamp of the first miss of the row
	newest     uint64 // the last use of the most recently used prompt among the misses of the row
}

// Misses in a row from which blocks are dropped, and answers since the first of at least two.
const (
	missesOfOlder = 2
	missesOfAll   = 6
	answersOfAll  = 12
)

// leastTokens is how many tokens a prompt must have in the index to be audited: with fewer, the last block of a server
// that is not full decides.
const leastTokens = 128

// expected is what the index held of a prompt when it was placed.
type expected struct {
	blocks int    // lead blocks that ended requests have entered
	used   uint64 // stamp of the last use of the last one of them, before this one
}

func newAudits() audits { return audits{slots: map[uint32]*audit{}, pending: map[owned]int{}} }

// at returns what was found of an incarnation of an endpoint.
func (a *audits) at(e messages.EndpointID) *audit {
	of := a.slots[e.Slot]
	if of == nil || of.generation != e.Generation {
		of = &audit{generation: e.Generation}
		a.slots[e.Slot] = of
	}
	return of
}

// expect returns what the index holds of a prompt that is about to be entered for an endpoint; nothing if answers of
// the endpoint are not audited.
func (a *audits) expect(index *blockindex.Index, e messages.EndpointID, p blockindex.Prompt) (found expected) {
	if a.at(e).reports == 0 {
		return found
	}
	index.Lead(e.Slot, p, func(key, stamp uint64) bool {
		if a.pending[owned{e.Slot, key}] > 0 {
			return false
		}
		found.blocks, found.used = found.blocks+1, stamp
		return true
	})
	return found
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
}

// judge takes what a server reported of a prompt.
func (a *audits) judge(p *placement, m messages.ReportedPrompt) verdict {
	of, form := a.at(p.endpoint), uint64(1)<<(2*uint64(m.API))
	if m.Stream {
		form <<= 1
	}
	if m.CachedTokens > 0 {
		of.reports |= form
	}
	// A prompt has a part of a block more than the index counts, at most.
	predicted := m.PromptTokens * p.expected.blocks / (p.prompt.Blocks.Len() + 1)
	if of.reports&form == 0 {
		return verdict{}
	}
	v := verdict{judged: predicted >= leastTokens, predicted: predicted, reported: m.CachedTokens}
	hit := 2*m.CachedTokens >= predicted
	switch {
	case v.judged && !hit:
		of.miss(p)
		v.drop = of.older()
	case v.judged && p.expected.used < of.first:
		of.misses = 0
	}
	if all := of.all(); all > 0 {
		v.drop = all
	}
	return v
}

// miss notes a miss.
func (of *audit) miss(p *placement) {
	if of.misses++; of.misses == 1 {
		of.first, of.newest, of.answers = p.entry.Stamp, 0, 0
	}
	of.newest = max(of.newest, p.expected.used)
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
	of.misses, of.reports = 0, 0
	return of.first - 1
}
