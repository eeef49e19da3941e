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

// MaxBlocks is how much of a prompt is hashed: 2 MiB.
const MaxBlocks = 8192

const chainBytes = 8 // size of the hash of the block before, which is hashed in front of each block

// Hasher turns a prompt that comes in pieces into the chained hashes of its whole blocks: hash i is the xxhash64 of
// hash i-1 and the bytes of block i. Two prompts that share their first n blocks share their first n hashes, and no
// more. It does not matter where the pieces are cut. A rest of less than a block is not hashed.
type Hasher struct {
	buf    [chainBytes + BlockBytes]byte // hash of the block before, or the seed, and the block that is being filled
	fill   int                           // bytes of that block; 0 <= fill < BlockBytes
	seed   uint64
	max    int      // blocks; MaxBlocks except in tests
	blocks []uint64 // hashes so far
}

// NewHasher returns a hasher. Only hashes under the same seed can be compared. What follows MaxBlocks is not hashed.
func NewHasher(seed uint64) Hasher {
	h := Hasher{seed: seed, max: MaxBlocks}
	h.Reset()
	return h
}

// Reset forgets everything written.
func (h *Hasher) Reset() {
	h.fill = 0
	h.blocks = h.blocks[:0]
	binary.LittleEndian.PutUint64(h.buf[:], h.seed)
}

// Expect makes room for a prompt of so many bytes in one allocation.
func (h *Hasher) Expect(promptBytes int) {
	n := min(promptBytes/BlockBytes, h.max)
	if cap(h.blocks) == 0 && n > 0 {
		h.blocks = make([]uint64, 0, n)
	}
}

// Write adds a piece of the prompt.
func (h *Hasher) Write(p []byte) {
	if h.fill+len(p) < BlockBytes && len(h.blocks) < h.max { // most pieces are short
		h.fill += copy(h.buf[chainBytes+h.fill:], p)
		return
	}
	for len(p) > 0 && len(h.blocks) < h.max {
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
	blocks := h.blocks
	h.blocks = nil
	h.Reset()
	if len(blocks) == 0 {
		return messages.List[uint64]{}
	}
	if len(blocks) < cap(blocks)/2 { // most of the body was no prompt: do not keep the unused memory
		return messages.ListOf(blocks...)
	}
	return messages.TakeList(blocks)
}
