package blockindex

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Part is a part of a prompt. The parts are in the order in which engines render them.
type Part uint8

const (
	Tools Part = iota
	System
	Documents
	History // what a server keeps of earlier turns, as far as the request names it
	Turns   // messages, or a prompt that has no parts

	Parts // their number
)

// span is what was written of one part.
type span struct {
	from, to int    // its blocks in the list
	sum      uint64 // hash of all of it; 0 = nothing was written, or the part is Turns
}

// Begin begins a part of the prompt. Parts may come in any order: each is hashed by itself, as if it began the prompt,
// and Blocks joins them in the order of engines. So a prompt has the same hashes however its parts come, and nothing is
// hashed or kept twice. A part that comes again replaces what it was. A hasher begins with Turns.
//
// A part but Turns ends with its last whole block, or with the rest behind it if that is half a block or more: so a
// prompt has as many blocks as its text is long, give or take half a block for each part. Such a rest, and a shorter
// one, keeps what follows apart from what follows another rest.
func (h *Hasher) Begin(p Part) {
	h.end()
	h.drop(p)
	h.start(p)
}

// start makes what is written from now on the beginning of a part. Parts begin with different seeds.
func (h *Hasher) start(p Part) {
	h.part, h.fill, h.from = p, 0, len(h.blocks)
	h.limit = h.from + h.max
	binary.LittleEndian.PutUint64(h.buf[:], h.seed^uint64(Turns-p)*odd)
}

// end ends the part that is being written.
func (h *Hasher) end() {
	if h.part == Parts || h.fill == 0 && len(h.blocks) == h.from {
		return
	}
	s := span{from: h.from}
	switch {
	case h.part != Turns:
		s.sum = h.sum()
		if h.fill >= BlockBytes/2 && len(h.blocks) < h.limit {
			h.blocks = append(h.blocks, s.sum)
		}
	case h.fill > 0 && len(h.blocks) < h.limit:
		h.blocks, h.rest = append(h.blocks, h.sum()), true
	}
	s.to = len(h.blocks)
	h.spans[h.part] = s
}

// sum returns the hash of all that was written of the part, as far as it is hashed.
func (h *Hasher) sum() uint64 { return xxhash.Sum64(h.buf[:chainBytes+h.fill]) }

// drop forgets a part.
func (h *Hasher) drop(p Part) {
	if p == Turns {
		h.rest = false
	}
	s := h.spans[p]
	if s == (span{}) {
		return
	}
	h.blocks = slices.Delete(h.blocks, s.from, s.to)
	for i := range h.spans {
		if of := &h.spans[i]; of.from >= s.to {
			of.from, of.to = of.from-(s.to-s.from), of.to-(s.to-s.from)
		}
	}
	h.spans[p] = span{}
}

// BeginKey begins something that is no part of the prompt, of which EndKey returns the hash. Another part is to be
// begun behind it.
func (h *Hasher) BeginKey() {
	h.end()
	h.start(Parts)
}

// EndKey returns the hash of what was written since BeginKey, and forgets it.
func (h *Hasher) EndKey() uint64 {
	sum := h.sum()
	h.blocks, h.fill = h.blocks[:h.from], 0
	return sum
}

// KeepApart keeps prompts with different keys apart: they have no block in common. 0 = no key.
func (h *Hasher) KeepApart(key uint64) { h.key = key }

// join puts the blocks of all parts in the order of the parts, and makes each depend on all parts before its own.
func (h *Hasher) join() {
	at, lead := 0, h.key
	for p := range h.spans {
		s := h.spans[p]
		if n := s.to - s.from; n > 0 {
			if s.from > at {
				h.advance(Part(p), at)
			}
			for i := range h.blocks[at : at+n] {
				h.blocks[at+i] ^= lead
			}
			at += n
		}
		if s.sum != 0 {
			lead = bits.RotateLeft64((lead^s.sum)*odd, 29)
		}
	}
}

// advance moves the blocks of a part to a place before those of later parts.
func (h *Hasher) advance(p Part, at int) {
	s := h.spans[p]
	moved, n := h.blocks[at:s.to], s.to-s.from
	slices.Reverse(moved)
	slices.Reverse(moved[:n])
	slices.Reverse(moved[n:])
	for i := int(p) + 1; i < len(h.spans); i++ {
		if of := &h.spans[i]; of.to > of.from && of.from < s.from {
			of.from, of.to = of.from+n, of.to+n
		}
	}
}
