package batch

// block is one KV block. refs counts the sequences that hold it; with none it is in the list of free blocks and, while
// cached, can still be found by its hash.
type block struct {
	hash       uint64
	refs       int32
	cached     bool
	prev, next int32
}

// kvCache is the paged KV cache: blocks, the index of those with known content, and the free ones, least recently used
// first. The element after the last block closes the ring of free blocks.
type kvCache struct {
	blocks []block
	index  map[uint64]int32
	free   int
}

func newKVCache(size int) *kvCache {
	k := &kvCache{blocks: make([]block, size+1), index: make(map[uint64]int32)}
	ring := int32(size)
	k.blocks[ring].prev, k.blocks[ring].next = ring, ring
	for i := range int32(size) {
		k.insert(i, k.blocks[ring].prev)
	}
	return k
}

func (k *kvCache) size() int { return len(k.blocks) - 1 }

func (k *kvCache) ring() int32 { return int32(len(k.blocks) - 1) }

// usedRatio is the part of blocks that sequences hold, 0 to 1.
func (k *kvCache) usedRatio() float64 { return float64(k.size()-k.free) / float64(k.size()) }

// find returns how many of hashes, from the first on, are cached, and how many of those blocks are free now.
func (k *kvCache) find(hashes []uint64) (found, idle int) {
	for _, h := range hashes {
		id, ok := k.index[h]
		if !ok {
			break
		}
		found++
		if k.blocks[id].refs == 0 {
			idle++
		}
	}
	return found, idle
}

// hold takes the cached block with this hash, which has to exist.
func (k *kvCache) hold(hash uint64) int32 {
	id := k.index[hash]
	if k.blocks[id].refs == 0 {
		k.remove(id)
	}
	k.blocks[id].refs++
	return id
}

// take hands out the free block that was not used for longest; what it held is forgotten.
func (k *kvCache) take() (int32, bool) {
	if k.free == 0 {
		return 0, false
	}
	id := k.blocks[k.ring()].next
	k.remove(id)
	b := &k.blocks[id]
	if b.cached {
		delete(k.index, b.hash)
		b.cached = false
	}
	b.refs = 1
	return id, true
}

// publish makes the block findable. Content that is cached already stays where it is.
func (k *kvCache) publish(id int32, hash uint64) {
	b := &k.blocks[id]
	if _, ok := k.index[hash]; ok || b.cached {
		return
	}
	b.hash, b.cached = hash, true
	k.index[hash] = id
}

// release gives back a sequence's blocks, the last first, so that the beginning of a prompt outlives its end. Blocks
// without known content are the next to be taken.
func (k *kvCache) release(ids []int32) {
	for i := len(ids) - 1; i >= 0; i-- {
		b := &k.blocks[ids[i]]
		b.refs--
		switch {
		case b.refs > 0:
		case b.cached:
			k.insert(ids[i], k.blocks[k.ring()].prev)
		default:
			k.insert(ids[i], k.ring())
		}
	}
}

// reset forgets all content, if no sequence holds a block.
func (k *kvCache) reset() bool {
	if k.free != k.size() {
		return false
	}
	clear(k.index)
	for i := range k.blocks {
		k.blocks[i].cached = false
	}
	return true
}

func (k *kvCache) insert(id, after int32) {
	b := &k.blocks[id]
	b.prev, b.next = after, k.blocks[after].next
	k.blocks[b.next].prev = id
	k.blocks[after].next = id
	k.free++
}

func (k *kvCache) remove(id int32) {
	b := &k.blocks[id]
	k.blocks[b.prev].next, k.blocks[b.next].prev = b.next, b.prev
	k.free--
}
