package blockindex

// lru holds the keys of the blocks of one endpoint, in the order of their last use. Only the writer touches it.
//
// Of the blocks of a prompt, each is used after its successors. So no successor of the least recently used block is
// held, and evicting that block keeps the set closed under prefix: with a block, the endpoint holds all blocks before
// it.
type lru struct {
	nodes    []node   // nodes[0] is the start of a ring: its next is the most and its prev the least recently used
	free     uint32   // first of the free nodes, a list through next; 0 = none
	size     int      // keys held
	capacity int      // of keys, at most; 0 = that of the index
	used     uint64   // number of uses of keys so far
	buckets  []bucket // a hash table from key to node, with open addressing
}

// bucket holds the number of a node in its low half, and the low half of the node's key in its high half; 0 = free.
// That half of the key is enough to pass over most other keys, and to find where a key belongs, without reading its
// node, which is seldom in the processor's cache.
type bucket uint64

func bucketOf(key uint64, n uint32) bucket { return bucket(key<<32 | uint64(n)) }
func (b bucket) node() uint32              { return uint32(b) }
func (b bucket) tag() uint32               { return uint32(b >> 32) }

type node struct {
	key        uint64
	use        use
	prev, next uint32
}

// use is Index.stamp at the last use of a block, and in the low tokenBits how many tokens a prompt has up to the end of
// the block; 0 = that is not known. Both share a word because nodes are most of the memory of an endpoint. Stamps last
// for three years of ten thousand uses a second.
type use uint64

const tokenBits = 24

func (u use) stamp() uint64       { return uint64(u >> tokenBits) }
func (u use) tokens() int         { return int(u & (1<<tokenBits - 1)) }
func (u use) at(stamp uint64) use { return use(stamp<<tokenBits) | u&(1<<tokenBits-1) }
func (u use) counting(tokens int) use {
	return use(u.stamp()<<tokenBits) | use(min(max(tokens, 0), 1<<tokenBits-1))
}

const (
	nodeBytes   = 24
	bucketBytes = 8
)

func (l *lru) bytes() int { return nodeBytes*cap(l.nodes) + bucketBytes*cap(l.buckets) }

// find returns the node of a key; 0 = it is not held.
func (l *lru) find(key uint64) uint32 {
	if len(l.buckets) == 0 {
		return 0
	}
	return l.buckets[l.bucket(key)].node()
}

// bucket returns the index of the bucket in which the key stands or would stand.
func (l *lru) bucket(key uint64) int {
	mask := len(l.buckets) - 1
	for b := int(key) & mask; ; b = (b + 1) & mask {
		if held := l.buckets[b]; held == 0 || held.tag() == uint32(key) && l.nodes[held.node()].key == key {
			return b
		}
	}
}

// insert adds a key that is not held, as the next less recently used one than the node pos; pos 0 makes it the most
// recently used. It returns the key's node.
func (l *lru) insert(key, stamp uint64, pos uint32) uint32 {
	if 2*(l.size+1) > len(l.buckets) {
		l.grow()
	}
	n := l.free
	if n == 0 {
		n = uint32(len(l.nodes))
		l.nodes = append(l.nodes, node{})
	} else {
		l.free = l.nodes[n].next
	}
	l.nodes[n] = node{key: key, use: use(0).at(stamp)}
	l.link(n, pos)
	l.buckets[l.bucket(key)] = bucketOf(key, n)
	l.size++
	return n
}

func (l *lru) grow() {
	if len(l.nodes) == 0 {
		l.nodes = append(l.nodes, node{})
	}
	l.buckets = make([]bucket, max(16, 2*len(l.buckets)))
	for n := l.nodes[0].next; n != 0; n = l.nodes[n].next {
		k := l.nodes[n].key
		l.buckets[l.bucket(k)] = bucketOf(k, n)
	}
}

// remove frees a node and removes its key.
func (l *lru) remove(n uint32) {
	mask := len(l.buckets) - 1
	hole := l.bucket(l.nodes[n].key)
	l.buckets[hole] = 0
	for b := (hole + 1) & mask; l.buckets[b] != 0; b = (b + 1) & mask { // move later keys up, so that find sees no gap
		home := int(l.buckets[b].tag()) & mask // a table has far fewer than 1<<32 buckets
		if (b-home)&mask >= (b-hole)&mask {
			l.buckets[hole], l.buckets[b] = l.buckets[b], 0
			hole = b
		}
	}
	l.unlink(n)
	l.nodes[n] = node{next: l.free}
	l.free = n
	l.size--
}

// use makes a node the most recently used.
func (l *lru) use(n uint32, stamp uint64) {
	l.unlink(n)
	l.link(n, 0)
	l.nodes[n].use = l.nodes[n].use.at(stamp)
}

// oldest returns the least recently used node; 0 = none.
func (l *lru) oldest() uint32 { return l.nodes[0].prev }

func (l *lru) link(n, pos uint32) {
	l.used++
	after := l.nodes[pos].next
	l.nodes[n].prev, l.nodes[n].next = pos, after
	l.nodes[pos].next, l.nodes[after].prev = n, n
}

func (l *lru) unlink(n uint32) {
	prev, next := l.nodes[n].prev, l.nodes[n].next
	l.nodes[prev].next, l.nodes[next].prev = next, prev
}
