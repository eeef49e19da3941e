package blockindex

import (
	"math/bits"
	"slices"
)

// search is one lookup. An endpoint's blocks are closed under prefix, so the set of holders only shrinks along a
// prompt, and where it is the same at two places it is the same between them. What a writer changes meanwhile is cut to
// fit.
type search struct {
	index *Index
	p     Prompt
	root  uint64
	words int
	out   []int
	best  int
}

// holderSet is a bitmap of slots. Only its first search.words words mean something.
type holderSet [maxWords]uint64

var none holderSet // never written

// Match writes to out[slot] how many lead blocks of the prompt the endpoint in that slot holds, and returns the largest
// of these numbers. Slots from len(out) on are left out. It looks at about log2(blocks) blocks, and as many again for
// each different length among the endpoints. It takes no lock and does not allocate.
func (x *Index) Match(p Prompt, out []int) int {
	clear(out)
	n := p.Blocks.Len()
	words := min((len(out)+63)/64, int(x.words.Load()), maxWords)
	if n == 0 || words == 0 {
		return 0
	}
	s := search{index: x, p: p, root: p.root(), words: words, out: out}
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

func (s *search) holders(i int, set *holderSet) bool {
	k := key(s.root, s.p.Blocks.At(i))
	t := s.index.shards[k>>(64-shardBits)].Load()
	if t == nil {
		clear(set[:s.words])
		return false
	}
	return t.holders(k, set[:s.words])
}

// clamp makes set lie between the larger set before it and the smaller one behind it.
func (s *search) clamp(set, before, behind *holderSet) {
	for w := range s.words {
		set[w] = set[w]&before[w] | behind[w]
	}
}

// between finds where the holders at block a leave, of which those in the second set still hold block b.
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

// give writes the length for those that are in the first set and not in the second.
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
