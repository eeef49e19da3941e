package blockindex

import (
	"math/bits"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/signalbox-epp/signalbox/messages"
)

// DefaultCapacity is how many blocks an index keeps for each endpoint by default: 8 MB of prompt.
const DefaultCapacity = 31250

const (
	shardBits = 10 // so many shards keep each table small, and so replacing one short
	shards    = 1 << shardBits
)

// Prompt is what is entered and looked up. Block hashes have a meaning only together with the model and the salt.
type Prompt struct {
	Model, Salt string
	Blocks      messages.List[uint64] // chained, first block first
}

// root returns a hash of model and salt, which keeps the blocks of different ones apart.
func (p Prompt) root() uint64 {
	return bits.RotateLeft64(xxhash.Sum64String(p.Model)*odd, 29) ^ xxhash.Sum64String(p.Salt)*odd
}

// key returns the key of a block, which is never 0.
func key(root, block uint64) uint64 { return max(block^root, 1) }

// Index says for each block which endpoints hold it. Match may run on any goroutine at any time; all other methods
// belong to one writer. The change of one block for one endpoint is atomic to readers, but a prompt of several blocks
// is not: while the writer works on it, an endpoint may seem to hold less of it than before and after.
//
// An endpoint at its capacity takes at most 1.5 MB for the order of use of its blocks, and 16 to 64 bytes for each
// block that no other endpoint holds.
type Index struct {
	shards [shards]atomic.Pointer[table] // by the top shardBits of the key; nil = empty
	words  atomic.Int64                  // of a bitmap of all slots so far

	// The writer alone uses what follows.

	former   *Index   // what endpoints held until an audit found it lost, see lose; nil = this is of an index itself
	standard int      // capacity of an endpoint unless Resize says another one
	slots    []lru    // by slot
	stamp    uint64   // counts uses; blocks that are used together have the same
	nodes    []uint32 // buffer of touch: nodes of the prompt's lead blocks
	warmed   uint64   // keeps the compiler from dropping the reads of warm
	stats    Stats
}

// Stats describes the index. Reset clears its sizes, but not its counters.
type Stats struct {
	Blocks int // blocks that at least one endpoint holds
	Held   int // blocks that endpoints hold, summed over endpoints
	Bytes  int // of memory, approximately

	Entered, Evicted, Withdrawn, Forgotten uint64 // blocks since the start, summed over endpoints
}

// NewIndex returns an empty index that keeps at most capacity blocks for each endpoint; 0 or less = DefaultCapacity.
func NewIndex(capacity int) *Index {
	x := new(Index)
	x.standard, x.former = DefaultCapacity, new(Index)
	if capacity > 0 {
		x.standard = capacity
	}
	return x
}

// Resize has the index keep at most capacity blocks for an endpoint, until all of them are removed; 0 or less = as many
// as the index was made for. An endpoint that has more loses those used longest ago at its next Enter.
func (x *Index) Resize(slot uint32, capacity int) {
	if slot < MaxSlots {
		x.reach(slot)
		x.slots[slot].capacity = max(capacity, 0)
	}
}

// capacity returns how many blocks are kept for an endpoint.
func (x *Index) capacity(l *lru) int {
	if l.capacity > 0 {
		return l.capacity
	}
	return x.standard
}

// Entry says what one Enter added, for Withdraw and Refresh: blocks From to To-1 of the prompt.
type Entry struct {
	From, To int
	Stamp    uint64 // of the use that the entry was
	Used     uint64 // uses of the endpoint's blocks by then
}

// Enter notes that the endpoint holds the prompt and has just used it. Of a prompt longer than the capacity only the
// beginning is entered.
func (x *Index) Enter(slot uint32, p Prompt) Entry {
	if slot >= MaxSlots || p.Blocks.Len() == 0 {
		return Entry{}
	}
	x.reach(slot)
	l := &x.slots[slot]
	before, capacity := l.bytes(), x.capacity(l)
	from := x.touch(l, p)
	to := min(p.Blocks.Len(), capacity)
	x.warm(l, p, from, to)
	for l.size > 0 && l.size+to-from > capacity { // spares the blocks just touched, for from <= to <= capacity
		x.forget(slot, l.oldest())
		x.stats.Evicted++
	}
	pos, root := uint32(0), p.root()
	if from > 0 {
		pos = x.nodes[from-1]
	}
	for i := from; i < to; i++ {
		k := key(root, p.Blocks.At(i))
		if l.find(k) != 0 { // held without the block before it: the hashes are no chain, and end here
			to = i
			break
		}
		pos = l.insert(k, x.stamp, pos)
		x.hold(k, slot)
	}
	x.trim(slot)
	x.stats.Entered += uint64(to - from)
	x.stats.Held += to - from
	x.stats.Bytes += l.bytes() - before
	return Entry{From: from, To: to, Stamp: x.stamp, Used: l.used}
}

// warm reads the memory that entering the blocks from to to-1 will change, and changes nothing. Its cache misses
// overlap, whereas each of the atomic stores that follow would wait for its own. With large tables these misses are
// most of the time of Enter.
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
	for range min(l.size+to-from-x.capacity(l), l.size) { // those that will be evicted
		n = l.nodes[n].prev
		look(l.nodes[n].key)
	}
	x.warmed = seen
}

// staleShare: Refresh does nothing until 1/staleShare of an endpoint's capacity has been used since the entry.
const staleShare = 16

// Refresh notes, at the end of a request, that the endpoint has used again what it holds of the prompt. e is the entry
// of that request. If the endpoint has used less than a sixteenth of its capacity since, the prompt is still among the
// most recently used, and Refresh does nothing. It returns the stamp of the last use.
func (x *Index) Refresh(slot uint32, p Prompt, e Entry) uint64 {
	if int(slot) < len(x.slots) {
		if l := &x.slots[slot]; l.used-e.Used >= uint64(x.capacity(l)/staleShare) {
			x.touch(l, p)
			return x.stamp
		}
	}
	return e.Stamp
}

// touch makes the lead blocks of the prompt that the endpoint holds its most recently used ones. It returns their
// number, and leaves their nodes in x.nodes.
func (x *Index) touch(l *lru, p Prompt) int {
	x.stamp++
	x.nodes = x.nodes[:0]
	root := p.root()
	for i := range min(p.Blocks.Len(), x.capacity(l)) {
		n := l.find(key(root, p.Blocks.At(i)))
		if n == 0 {
			break
		}
		x.nodes = append(x.nodes, n)
	}
	for i := len(x.nodes) - 1; i >= 0; i-- { // from the end, so that a block is used after its successors: see lru
		l.use(x.nodes[i], x.stamp)
	}
	return len(x.nodes)
}

// Withdraw removes the blocks that an Enter of this prompt added, from its end on to the first that was used since. It
// returns their number.
func (x *Index) Withdraw(slot uint32, p Prompt, e Entry) int { return x.withdraw(slot, p, e, x.forget) }

func (x *Index) withdraw(slot uint32, p Prompt, e Entry, take func(slot, n uint32)) (withdrawn int) {
	if int(slot) >= len(x.slots) {
		return 0
	}
	l, root := &x.slots[slot], p.root()
	for i := min(e.To, p.Blocks.Len()) - 1; i >= e.From; i-- {
		n := l.find(key(root, p.Blocks.At(i)))
		if n == 0 {
			continue // it was evicted
		}
		if l.nodes[n].use.stamp() != e.Stamp {
			break
		}
		take(slot, n)
		withdrawn++
	}
	x.stats.Withdrawn += uint64(withdrawn)
	return withdrawn
}

// ClearSlot removes all blocks of an endpoint, and returns their number.
func (x *Index) ClearSlot(slot uint32) (forgotten int) {
	return x.ClearSome(slot, x.Held(slot))
}

// ClearSome removes at most so many blocks of an endpoint, former ones and then the least recently used first, and
// returns their number. Once none is left, it frees the endpoint's memory.
func (x *Index) ClearSome(slot uint32, most int) (forgotten int) {
	if x.former != nil {
		cleared := x.former.ClearSome(slot, most)
		defer func() { forgotten += cleared }()
		most -= cleared
	}
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

// Block is what the index holds of a block of a prompt for an endpoint.
type Block struct {
	Key    uint64
	Stamp  uint64 // of its last use; stamps rise with each Enter, and never rise along a prompt
	Tokens int    // of the prompt up to the end of the block, as Count has noted; 0 = it is not known
}

// Lead calls yield with each lead block of a prompt that an endpoint holds, until yield returns false.
func (x *Index) Lead(slot uint32, p Prompt, yield func(Block) bool) {
	if int(slot) >= len(x.slots) {
		return
	}
	l, root := &x.slots[slot], p.root()
	for i := range p.Blocks.Len() {
		k := key(root, p.Blocks.At(i))
		n := l.find(k)
		if n == 0 || !yield(Block{k, l.nodes[n].use.stamp(), l.nodes[n].use.tokens()}) {
			return
		}
	}
}

// Count notes how many tokens so many lead blocks of a prompt have, of which count gets what was noted before. It is
// forgotten with the last of these blocks, and does nothing if the endpoint does not hold that.
func (x *Index) Count(slot uint32, p Prompt, blocks int, count func(noted int) int) {
	if int(slot) >= len(x.slots) || blocks < 1 {
		return
	}
	l := &x.slots[slot]
	if n := l.find(key(p.root(), p.Blocks.At(blocks-1))); n != 0 {
		l.nodes[n].use = l.nodes[n].use.counting(count(l.nodes[n].use.tokens()))
	}
}

// Key returns the key of the first block that an Enter of this prompt added; 0 = it added none.
func (p Prompt) Key(e Entry) uint64 {
	if e.From >= e.To {
		return 0
	}
	return key(p.root(), p.Blocks.At(e.From))
}

// Disuse removes the blocks of an endpoint that were last used by that stamp, and returns their number. The endpoint
// has lost them, and is still their home.
func (x *Index) Disuse(slot uint32, stamp uint64) (forgotten int) {
	if int(slot) >= len(x.slots) {
		return 0
	}
	l := &x.slots[slot]
	for l.size > 0 && l.nodes[l.oldest()].use.stamp() <= stamp {
		x.lose(slot, l.oldest())
		forgotten++
	}
	x.trim(slot)
	x.stats.Forgotten += uint64(forgotten)
	return forgotten
}

// Held returns how many blocks an endpoint holds, former ones included.
func (x *Index) Held(slot uint32) (held int) {
	for of := x; of != nil; of = of.former {
		if int(slot) < len(of.slots) {
			held += of.slots[slot].size
		}
	}
	return held
}

// Reset removes all blocks, whatever state a panic of the writer left.
func (x *Index) Reset() {
	for i := range x.shards {
		x.shards[i].Store(nil)
	}
	x.stats.Forgotten += uint64(x.stats.Held)
	x.stats.Blocks, x.stats.Held, x.stats.Bytes = 0, 0, 0
	x.slots = nil
	if x.former != nil {
		x.former.Reset()
	}
}

// Stats returns the figures of the index. Former blocks count in its bytes alone.
func (x *Index) Stats() Stats {
	all := x.stats
	all.Bytes += x.former.stats.Bytes
	return all
}

// reach makes room for a slot.
func (x *Index) reach(slot uint32) {
	for int(slot) >= len(x.slots) {
		x.slots = append(x.slots, lru{})
	}
	if words := int64(slot)/64 + 1; words > x.words.Load() {
		x.words.Store(words)
	}
}

// hold makes the endpoint a holder of a block, for readers.
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

// forget removes a block of an endpoint, by its node.
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
