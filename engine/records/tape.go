package records

// blockBytes is the size of a tape's blocks. It is a size class of Go's allocator, so that a block takes no more.
const blockBytes = 16 << 10

// tape is a circular sequence of bytes. A position counts from the first byte that was ever written, and byte p stands
// at p modulo the size. Its blocks are allocated when the first lap reaches them, so that an idle loop has none.
type tape struct {
	blocks [][]byte
	size   uint64
}

// newTape returns a tape of size bytes, or of one block if that is more.
func newTape(size int) tape { return tape{size: uint64(max(size, blockBytes))} }

// from returns what follows a position in its block. Positions are written in order, so that at most one block is new.
func (t *tape) from(at uint64) []byte {
	at %= t.size
	block := at / blockBytes
	if block == uint64(len(t.blocks)) {
		t.blocks = append(t.blocks, make([]byte, min(blockBytes, t.size-at)))
	}
	return t.blocks[block][at%blockBytes:]
}

// write puts data at a position. Whatever was written t.size bytes before is gone.
func (t *tape) write(at uint64, data []byte) {
	for len(data) > 0 {
		n := copy(t.from(at), data)
		data, at = data[n:], at+uint64(n)
	}
}

// read returns n bytes from a position on, which are valid until the next write. It uses buffer, which is empty, only
// for bytes that stand in several blocks.
func (t *tape) read(at uint64, n int, buffer []byte) []byte {
	if block := t.from(at); len(block) >= n {
		return block[:n]
	}
	for n > 0 {
		block := t.from(at)
		block = block[:min(len(block), n)]
		buffer, at, n = append(buffer, block...), at+uint64(len(block)), n-len(block)
	}
	return buffer
}
