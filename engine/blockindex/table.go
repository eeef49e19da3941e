package blockindex

import "sync/atomic"

// table maps keys to the slots that hold them, by open addressing. One goroutine writes it, and any number read it.
//
// Readers are safe because memory is never reused: a key, once written, stays where it is until the whole table is
// replaced, and so does the row of a pair that outgrew its word. A pair without holders is dead, but stays until then.
// So a reader sees the holders of its own key, or none, but never those of another key.
type table struct {
	words []uint64 // pairs of key and holders; key 0 = free. Readers load and the writer stores them atomically
	rows  []uint64 // bitmaps of rowWords words each, likewise
	mask  uint64   // number of pairs - 1

	rowWords int // words of one row; slots from 64*rowWords on do not fit
	used     int // pairs with a key, dead ones included; writer only
	usedRows int // rows in use; writer only
	live     int // pairs with holders; writer only
}

// Holders are one word. Its top bits are the number of slots, up to inlineSlots, and the slots follow, slotBits each.
// Or the top bits are isRow, and the number of a row follows.
const (
	slotBits    = 12
	inlineSlots = 5
	countShift  = 60
	isRow       = 15
	slotMask    = 1<<slotBits - 1
	rowMask     = 1<<countShift - 1
)

// MaxSlots is how many slots the index has. What is entered for a slot beyond is not kept.
const MaxSlots = 1 << slotBits

const maxWords = MaxSlots / 64

const minPairs = 8

func newTable(pairs, rows, rowWords int) *table {
	return &table{
		words: make([]uint64, 2*pairs), mask: uint64(pairs - 1),
		rows: make([]uint64, rows*rowWords), rowWords: rowWords,
	}
}

// find returns the index of the key's pair and true, or that of the free pair where it would stand and false. There is
// always a free pair.
func (t *table) find(key uint64) (i uint64, ok bool) {
	for i = key & t.mask; ; i = (i + 1) & t.mask {
		switch atomic.LoadUint64(&t.words[2*i]) {
		case key:
			return i, true
		case 0:
			return i, false
		}
	}
}

// holders sets set to the slots that hold the key, cut to len(set) words, and reports whether there are any.
func (t *table) holders(key uint64, set []uint64) (some bool) {
	clear(set)
	i, ok := t.find(key)
	if !ok {
		return false
	}
	h := atomic.LoadUint64(&t.words[2*i+1])
	if h>>countShift == isRow {
		row := t.row(h)
		for w := range min(len(set), len(row)) {
			set[w] = atomic.LoadUint64(&row[w])
			some = some || set[w] != 0
		}
		return some
	}
	for n := h >> countShift; n > 0; n-- {
		if slot := h & slotMask; slot/64 < uint64(len(set)) {
			set[slot/64] |= 1 << (slot % 64)
			some = true
		}
		h >>= slotBits
	}
	return some
}

func (t *table) row(h uint64) []uint64 {
	r := int(h&rowMask) * t.rowWords
	return t.rows[r : r+t.rowWords]
}

// add adds a holder to a key, which it must not hold yet. It returns false if the table has no room for it.
func (t *table) add(key uint64, slot uint32) bool {
	i, ok := t.find(key)
	if !ok {
		if 4*(t.used+1) > 3*(int(t.mask)+1) {
			return false
		}
		atomic.StoreUint64(&t.words[2*i+1], 1<<countShift|uint64(slot))
		atomic.StoreUint64(&t.words[2*i], key) // last: a reader that sees the key sees its holder
		t.used++
		t.live++
		return true
	}
	h := t.words[2*i+1]
	if h>>countShift == isRow {
		row := t.row(h)
		if int(slot/64) >= len(row) {
			return false
		}
		if empty(row) {
			t.live++
		}
		atomic.StoreUint64(&row[slot/64], row[slot/64]|1<<(slot%64))
		return true
	}
	n := h >> countShift
	if n == inlineSlots {
		return t.spill(i, h, slot)
	}
	if n == 0 {
		t.live++
	}
	slots := h & rowMask
	atomic.StoreUint64(&t.words[2*i+1], (n+1)<<countShift|slots<<slotBits|uint64(slot))
	return true
}

// spill moves the holders of a full word, and one more, to a row. It returns false if the table has no room for it.
func (t *table) spill(i, h uint64, slot uint32) bool {
	if (t.usedRows+1)*t.rowWords > len(t.rows) {
		return false
	}
	moved := uint64(isRow)<<countShift | uint64(t.usedRows)
	row := t.row(moved)
	if !fill(row, h) || int(slot/64) >= len(row) {
		clear(row)
		return false
	}
	row[slot/64] |= 1 << (slot % 64)
	t.usedRows++
	atomic.StoreUint64(&t.words[2*i+1], moved)
	return true
}

// remove removes a holder of a key, if it is one.
func (t *table) remove(key uint64, slot uint32) {
	i, ok := t.find(key)
	if !ok {
		return
	}
	h := t.words[2*i+1]
	if h>>countShift == isRow {
		row := t.row(h)
		bit := uint64(1) << (slot % 64)
		if int(slot/64) >= len(row) || row[slot/64]&bit == 0 {
			return
		}
		atomic.StoreUint64(&row[slot/64], row[slot/64]&^bit)
		if empty(row) {
			t.live--
		}
		return
	}
	n, kept, keptSlots := h>>countShift, uint64(0), uint64(0)
	for k := range n {
		if s := h >> (k * slotBits) & slotMask; s != uint64(slot) {
			keptSlots |= s << (kept * slotBits)
			kept++
		}
	}
	atomic.StoreUint64(&t.words[2*i+1], kept<<countShift|keptSlots)
	if n > 0 && kept == 0 {
		t.live--
	}
}

// fill sets the bits of the slots in a word. It returns false if one does not fit.
func fill(row []uint64, h uint64) bool {
	for n := h >> countShift; n > 0; n-- {
		s := h & slotMask
		if int(s/64) >= len(row) {
			return false
		}
		row[s/64] |= 1 << (s % 64)
		h >>= slotBits
	}
	return true
}

func empty(row []uint64) bool {
	for _, w := range row {
		if w != 0 {
			return false
		}
	}
	return true
}
