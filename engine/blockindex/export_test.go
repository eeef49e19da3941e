package blockindex

// Touch notes that the endpoint used what it holds of the prompt, and returns how many lead blocks that are.
func (x *Index) Touch(slot uint32, p Prompt) int {
	if int(slot) >= len(x.slots) {
		return 0
	}
	return x.touch(&x.slots[slot], p)
}

// NewShortHasher returns a hasher that takes at most so many blocks.
func NewShortHasher(seed uint64, most int) Hasher {
	h := NewHasher(seed)
	h.max = most
	h.Reset()
	return h
}

// Room returns for how many blocks there is room.
func (h *Hasher) Room() int { return cap(h.blocks) }
