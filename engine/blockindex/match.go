package blockindex

import (
	"math/bits"
	"slices"
)

// search is one lookup. An endpoint's blocks are closed under prefix, so the set of holders only shrinks from block to
// block of a prompt, and if two blocks have the same holders, so have all between them. The writer may change sets
// meanwhile, so each is clamped to the sets around it.
type search struct {
	index *Index
	more  *Index // whose holders count, too; nil = none
	p     Prompt
	root  uint64 // of p
	words int    // of each set that are used
	out   []int  // by slot
	best  int    // the largest number in out
}

// holderSet is a bitmap of slots. Only its first search.words words are used.
type holderSet [maxWords]uint64

var none holderSet // never written

// Match sets out[slot] to the number of lead blocks of the prompt that the endpoint in the slot holds, and returns the
// largest of these numbers. It ignores slots from len(out) on. It looks at about log2(blocks) blocks, and as many again
// for each different length among the endpoints. It takes no lock and does not allocate.
func (x *Index) Match(p Prompt, out []int) int { return x.match(p, out, nil) }

func (x *Index) match(p Prompt, out []int, more *Index) int {
	clear(out)
	n := p.Blocks.Len()
	words := min((len(out)+63)/64, int(x.words.Load()), maxWords)
	if n == 0 || words == 0 {
		return 0
	}
	s := search{index: x, more: more, p: p, root: p.root(), words: words, out: out}
	var here, there holderSet
	if !s.holders(0, &here) {
		return 0
	}
	before, after := &here, &there
	for at := 0; at < n-1; {
		next := min(2*at+1, n-1)
		s.holders(next, after)
		s.clamp(after, before, &none)
		s.between(at, before, next, after)
		if empty(after[:words]) {
			return s.best
		}
		at, before, after = next, after, before
	}
	s.give(before, &none, n)
	return s.best
}

// holders sets set to the holders of block i, and reports whether there are any.
func (s *search) holders(i int, set *holderSet) (some bool) {
	k := key(s.root, s.p.Blocks.At(i))
	if t := s.index.shards[k>>(64-shardBits)].Load(); t != nil {
		some = t.holders(k, set[:s.words])
	} else {
		clear(set[:s.words])
	}
	if s.more == nil {
		return some
	}
	var further holderSet
	if t := s.more.shards[k>>(64-shardBits)].Load(); t != nil && t.holders(k, further[:s.words]) {
		some = true
		for w := range s.words {
			set[w] |= further[w]
		}
	}
	return some
}

// clamp makes set a subset of the set of an earlier block and a superset of that of a later one.
func (s *search) clamp(set, before, behind *holderSet) {
	for w := range s.words {
		set[w] = set[w]&before[w] | behind[w]
	}
}

// between gives a length to each endpoint that holds block a and not block b. atA and atB are the holders of the two.
func (s *search) between(a int, atA *holderSet, b int, atB *holderSet) {
	if slices.Equal(atA[:s.words], atB[:s.words]) {
		return
	}
	if b == a+1 {
		s.give(atA, atB, b)
		return
	}
	mid := (a + b) / 2
	var atMid holderSet
	s.holders(mid, &atMid)
	s.clamp(&atMid, atA, atB)
	s.between(a, atA, mid, &atMid)
	s.between(mid, &atMid, b, atB)
}

// give writes a length to out for each slot that is in the first set and not in the second.
func (s *search) give(in, notIn *holderSet, length int) {
	for w := range s.words {
		for left := in[w] &^ notIn[w]; left != 0; left &= left - 1 {
			if slot := 64*w + bits.TrailingZeros64(left); slot < len(s.out) {
				s.out[slot] = length
				s.best = max(s.best, length)
			}
		}
	}
}
