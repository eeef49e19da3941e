package blockindex

// lru is what one endpoint holds: its keys in the order of their last use. Only the writer touches it.
//
// Every key is used after those behind it in its chain were, so the least recently used one has no successor that is
// held: to evict from that end keeps the rest closed under prefix.
type lru struct {
	nodes   []node   // a ring; 0 is its start: next the most, prev the least recently used
	free    uint32   // a list through next; 0 = none
	size    int      // keys held
	used    uint64   // keys that came to the front, all together
	buckets []bucket // node by key, open addressing
}

// bucket is a node's number in the low half and the low half of its key in the high half; 0 = free. Most keys that are
// not looked for, and where each belongs, are known from it: a node is another line of memory, which is seldom in the
// cache.
type bucket uint64

func bucketOf(key uint64, n uint32) bucket { return bucket(key<<32 | uint64(n)) }
func (b bucket) node() uint32              { return uint32(b) }
func (b bucket) tag() uint32               { return uint32(b >> 32) }

type node struct {
	key, stamp uint64 // stamp: of the last use
	prev, next uint32
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

// bucket returns where the key stands or would stand.
func (l *lru) bucket(key uint64) int {
	mask := len(l.buckets) - 1
	for b := int(key) & mask; ; b = (b + 1) & mask {
		if held := l.buckets[b]; held == 0 || held.tag() == uint32(key) && l.nodes[held.node()].key == key {
			return b
		}
	}
}

// insert enters a key that is not held, as used right before the node pos.
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
	l.nodes[n] = node{key: key, stamp: stamp}
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

// remove forgets a node and its key.
func (l *lru) remove(n uint32) {
	mask := len(l.buckets) - 1
	hole := l.bucket(l.nodes[n].key)
	l.buckets[hole] = 0
	for b := (hole + 1) & mask; l.buckets[b] != 0; b = (b + 1) & mask { // close the gap behind it
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
	l.nodes[n].stamp = stamp
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
