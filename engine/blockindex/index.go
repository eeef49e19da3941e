package blockindex

import (
	"math/bits"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/signalbox-epp/signalbox/messages"
)

// DefaultCapacity is how many blocks are remembered for an endpoint unless configured: 8 MB of prompt.
const DefaultCapacity = 31250

const (
	shardBits = 10 // replacing the table of one shard stays short however many blocks there are
	shards    = 1 << shardBits
)

// Prompt is what is entered and looked up: block hashes mean something only together with the target model and the
// salt.
type Prompt struct {
	Model, Salt string
	Blocks      messages.List[uint64] // chained, first block first
}

// root returns what keeps the blocks of different models and salts apart.
func (p Prompt) root() uint64 {
	const odd = 0x9E3779B97F4A7C15
	return bits.RotateLeft64(xxhash.Sum64String(p.Model)*odd, 29) ^ xxhash.Sum64String(p.Salt)*odd
}

// key returns that of a block; it is never 0.
func key(root, block uint64) uint64 { return max(block^root, 1) }

// Index knows for each block which endpoints hold it. Match may run on any goroutine at any time; all other methods
// belong to one writer. A reader sees each change of one block for one endpoint whole, and the changes of one prompt in
// parts: an endpoint may seem to hold less of it than it did before or will after, for as long as the writer takes.
//
// An endpoint that is full costs 1.5 MB at most for its order of use, and 16 to 64 bytes for each block that no other
// one holds.
type Index struct {
	shards [shards]atomic.Pointer[table]
	words  atomic.Int64 // of a bitmap for all slots so far

	capacity int
	slots    []lru // by slot; writer only
	stamp    uint64
	nodes    []uint32 // scratch: nodes of the prompt in hand
	warmed   uint64   // what was read only to be read
	stats    Stats
}

// Stats counts since the index was made; Reset sets only the sizes back to 0.
type Stats struct {
	Blocks int // that at least one endpoint holds
	Held   int // summed over endpoints
	Bytes  int // of memory, approximately

	Entered, Evicted, Withdrawn, Forgotten uint64 // blocks, per endpoint
}

// NewIndex returns an empty index. capacity is how many blocks it remembers for an endpoint; 0 or less =
// DefaultCapacity.
func NewIndex(capacity int) *Index {
	if capacity <= 0 {
		capacity = DefaultCapacity
	}
	return &Index{capacity: capacity}
}

// Entry is what one Enter added, for Withdraw: blocks From to To-1 of the prompt.
type Entry struct {
	From, To int
	Stamp    uint64
	Used     uint64 // of the endpoint, when the entry was made
}

// Enter notes that the endpoint holds the prompt, used now. Of a prompt longer than the capacity the beginning is kept.
func (x *Index) Enter(slot uint32, p Prompt) Entry {
	if slot >= MaxSlots || p.Blocks.Len() == 0 {
		return Entry{}
	}
	x.reach(slot)
	l := &x.slots[slot]
	before := l.bytes()
	from := x.touch(l, p)
	to := min(p.Blocks.Len(), x.capacity)
	x.warm(l, p, from, to)
	for l.size > 0 && l.size+to-from > x.capacity { // never reaches what was just touched: from <= to <= capacity
		x.forget(slot, l.oldest())
		x.stats.Evicted++
	}
	pos, root := uint32(0), p.root()
	if from > 0 {
		pos = x.nodes[from-1]
	}
	for i := from; i < to; i++ {
		k := key(root, p.Blocks.At(i))
		if l.find(k) != 0 { // no chain: it would not be closed under prefix
			to = i
			break
		}
		pos = l.insert(k, x.stamp, pos)
		x.hold(k, slot)
	}
	x.stats.Entered += uint64(to - from)
	x.stats.Held += to - from
	x.stats.Bytes += l.bytes() - before
	return Entry{From: from, To: to, Stamp: x.stamp, Used: l.used}
}

// warm reads the memory that an entry of blocks from to to-1 will change, and changes nothing. Here the answers of the
// memory overlap; the changes themselves are atomic stores, each of which waits for its own. With large tables that is
// most of the time.
func (x *Index) warm(l *lru, p Prompt, from, to int) {
	root, mask, seen := p.root(), uint64(len(l.buckets)-1), uint64(0)
	look := func(k uint64) {
		if t := x.shards[k>>(64-shardBits)].Load(); t != nil {
			seen += t.words[2*(k&t.mask)]
		}
		seen += uint64(l.buckets[k&mask])
	}
	if len(l.buckets) == 0 {
		return
	}
	for i := from; i < to; i++ {
		look(key(root, p.Blocks.At(i)))
	}
	n := uint32(0)
	for range min(l.size+to-from-x.capacity, l.size) { // those that make way
		n = l.nodes[n].prev
		look(l.nodes[n].key)
	}
	x.warmed = seen
}

// staleShare is the part of an endpoint's capacity that has to be used before an entry of then is worth a further use.
const staleShare = 16

// Refresh notes, at the end of what began with an entry, that the endpoint used what it holds of the prompt. If it has
// used little since, less than a sixteenth of its capacity, the prompt is still among the newest and stays where it is:
// then it costs nothing.
func (x *Index) Refresh(slot uint32, p Prompt, e Entry) {
	if int(slot) < len(x.slots) && x.slots[slot].used-e.Used >= uint64(x.capacity/staleShare) {
		x.touch(&x.slots[slot], p)
	}
}

// touch leaves the nodes of the lead blocks in x.nodes.
func (x *Index) touch(l *lru, p Prompt) int {
	x.stamp++
	x.nodes = x.nodes[:0]
	root := p.root()
	for i := range min(p.Blocks.Len(), x.capacity) {
		n := l.find(key(root, p.Blocks.At(i)))
		if n == 0 {
			break
		}
		x.nodes = append(x.nodes, n)
	}
	for i := len(x.nodes) - 1; i >= 0; i-- { // from the end: a block is used after those behind it
		l.use(x.nodes[i], x.stamp)
	}
	return len(x.nodes)
}

// Withdraw takes back what an Enter of this prompt added, from its end, up to the first block that was used since. It
// says how many blocks that were.
func (x *Index) Withdraw(slot uint32, p Prompt, e Entry) (withdrawn int) {
	if int(slot) >= len(x.slots) {
		return 0
	}
	l, root := &x.slots[slot], p.root()
	for i := min(e.To, p.Blocks.Len()) - 1; i >= e.From; i-- {
		n := l.find(key(root, p.Blocks.At(i)))
		if n == 0 {
			continue // evicted meanwhile
		}
		if l.nodes[n].stamp != e.Stamp {
			break
		}
		x.forget(slot, n)
		withdrawn++
	}
	x.stats.Withdrawn += uint64(withdrawn)
	return withdrawn
}

// ClearSlot forgets everything of an endpoint, and returns how many blocks that were.
func (x *Index) ClearSlot(slot uint32) (forgotten int) {
	return x.ClearSome(slot, x.Held(slot))
}

// ClearSome forgets at most so many blocks of an endpoint, the least recently used first, and returns how many. Once it
// holds none its memory is given back.
func (x *Index) ClearSome(slot uint32, most int) (forgotten int) {
	if int(slot) >= len(x.slots) {
		return 0
	}
	l := &x.slots[slot]
	for ; l.size > 0 && forgotten < most; forgotten++ {
		x.forget(slot, l.oldest())
	}
	x.stats.Forgotten += uint64(forgotten)
	if l.size == 0 {
		x.stats.Bytes -= l.bytes()
		*l = lru{}
	}
	return forgotten
}

// Held returns how many blocks an endpoint holds.
func (x *Index) Held(slot uint32) int {
	if int(slot) >= len(x.slots) {
		return 0
	}
	return x.slots[slot].size
}

// Reset forgets everything, whatever state the writer was left in.
func (x *Index) Reset() {
	for i := range x.shards {
		x.shards[i].Store(nil)
	}
	x.stats.Forgotten += uint64(x.stats.Held)
	x.stats.Blocks, x.stats.Held, x.stats.Bytes = 0, 0, 0
	x.slots = nil
}

// Stats returns those of the index.
func (x *Index) Stats() Stats { return x.stats }

// reach makes room for a slot.
func (x *Index) reach(slot uint32) {
	for int(slot) >= len(x.slots) {
		x.slots = append(x.slots, lru{})
	}
	if words := int64(slot)/64 + 1; words > x.words.Load() {
		x.words.Store(words)
	}
}

// hold makes the endpoint a holder for readers.
func (x *Index) hold(k uint64, slot uint32) {
	shard := &x.shards[k>>(64-shardBits)]
	t := shard.Load()
	if t == nil {
		t = newTable(minPairs, 0, 1)
		x.stats.Bytes += t.bytes()
		shard.Store(t)
	}
	live := t.live
	if !t.add(k, slot) {
		x.stats.Bytes -= t.bytes()
		t = t.rebuilt(int(x.words.Load()))
		x.stats.Bytes += t.bytes()
		t.add(k, slot)
		shard.Store(t)
	}
	x.stats.Blocks += t.live - live
}

// forget drops a node of an endpoint.
func (x *Index) forget(slot, n uint32) {
	l := &x.slots[slot]
	k := l.nodes[n].key
	l.remove(n)
	x.stats.Held--
	shard := &x.shards[k>>(64-shardBits)]
	t := shard.Load()
	if t == nil {
		return
	}
	live := t.live
	t.remove(k, slot)
	x.stats.Blocks += t.live - live
	if t.live == 0 {
		x.stats.Bytes -= t.bytes()
		shard.Store(nil)
	}
}
