package blockindex

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/signalbox-epp/signalbox/messages"
)

// A block is 64 tokens of 4 bytes.
const (
	BlockTokens = 64
	BlockBytes  = 4 * BlockTokens
)

// rounded is by how many blocks all parts of a prompt can be more than their bytes: Turns by one, others by half of it.
const rounded = int(Turns)/2 + 1

// MaxBlocks is how much of a prompt is hashed: 2 MiB.
const MaxBlocks = 8192

const odd = 0x9E3779B97F4A7C15 // spreads the bits of what is multiplied by it

const chainBytes = 8 // size of the hash of the block before, which is hashed in front of each block

// Hasher turns a prompt that comes in pieces into the chained hashes of its blocks: hash i is the xxhash64 of hash i-1
// and the bytes of block i. Two prompts that share their first n blocks share their first n hashes, and no more. It
// does not matter where the pieces are cut, nor in which order the parts come. What is less than a block at the end,
// the rest, is the last block.
type Hasher struct {
	buf    [chainBytes + BlockBytes]byte // hash of the block before, or the seed, and the block that is being filled
	fill   int                           // bytes of that block; 0 <= fill < BlockBytes
	seed   uint64
	max    int         // blocks; MaxBlocks except in tests
	blocks []uint64    // hashes so far
	part   Part        // that is being written; Parts = none
	from   int         // where its blocks begin
	limit  int         // where they end at the latest
	spans  [Parts]span // of the parts that were written before; together they are all blocks before from
	key    uint64      // of KeepApart
	rest   bool        // the last block of Turns is a rest
}

// NewHasher returns a hasher. Only hashes under the same seed can be compared. What follows MaxBlocks is not hashed.
func NewHasher(seed uint64) Hasher {
	h := Hasher{seed: seed, max: MaxBlocks}
	h.Reset()
	return h
}

// Reset forgets everything written.
func (h *Hasher) Reset() {
	h.blocks, h.spans, h.key, h.rest = h.blocks[:0], [Parts]span{}, 0, false
	h.start(Turns)
}

// Expect makes room for a prompt of so many bytes, in whatever parts, in one allocation.
func (h *Hasher) Expect(promptBytes int) {
	n := min(promptBytes/BlockBytes, h.max*int(Parts))
	if cap(h.blocks) > 0 || n == 0 {
		return
	}
	h.blocks = make([]uint64, 0, n+rounded)
}

// Write adds a piece of the part.
func (h *Hasher) Write(p []byte) {
	if h.fill+len(p) < BlockBytes && len(h.blocks) < h.limit { // most pieces are short
		h.fill += copy(h.buf[chainBytes+h.fill:], p)
		return
	}
	for len(p) > 0 && len(h.blocks) < h.limit {
		n := copy(h.buf[chainBytes+h.fill:], p)
		p = p[n:]
		h.filled(n)
	}
}

// filled notes that n further bytes of the block have come, and hashes the block if it is whole.
func (h *Hasher) filled(n int) {
	h.fill += n
	if h.fill < BlockBytes {
		return
	}
	h.fill = 0
	sum := xxhash.Sum64(h.buf[:])
	binary.LittleEndian.PutUint64(h.buf[:], sum)
	h.blocks = append(h.blocks, sum)
}

// Blocks returns the hashes, first block first, and resets the hasher.
func (h *Hasher) Blocks() messages.List[uint64] {
	h.end()
	h.join()
	blocks, rest := h.blocks[:min(len(h.blocks), h.max)], h.rest && len(h.blocks) <= h.max
	h.blocks = nil
	h.Reset()
	h.rest = rest
	if len(blocks) == 0 {
		return messages.List[uint64]{}
	}
	if len(blocks) < (cap(blocks)-rounded)/4 { // most of the body was no prompt: do not keep the unused memory
		return messages.ListOf(blocks...)
	}
	return messages.TakeList(blocks)
}

// Rest reports whether the last of the blocks that Blocks returned is of less than a block.
func (h *Hasher) Rest() bool { return h.rest }
