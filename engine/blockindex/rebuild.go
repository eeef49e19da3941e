package blockindex

import "math/bits"

// rebuilt returns a table with the live entries of t, with room for as many again, for some more rows, and for slots
// below 64*rowWords. t itself stays as it is, for goroutines that still read it.
func (t *table) rebuilt(rowWords int) *table {
	rowWords = max(rowWords, t.rowWords)
	rows := 0
	for i := range t.mask + 1 {
		if h := t.words[2*i+1]; h>>countShift == isRow && population(t.row(h)) > inlineSlots {
			rows++
		}
	}
	pairs := max(minPairs, 1<<bits.Len(uint(2*t.live+1)))
	n := newTable(pairs, rows+rows/2+2, rowWords)
	for i := range t.mask + 1 {
		if key, h := t.words[2*i], t.words[2*i+1]; key != 0 {
			n.adopt(key, h, t)
		}
	}
	return n
}

// adopt copies a pair of an older table, unless it is dead. No reader has t yet.
func (t *table) adopt(key, h uint64, from *table) {
	switch h >> countShift {
	case 0:
		return
	case isRow:
		row := from.row(h)
		if count := population(row); count == 0 {
			return
		} else if count > inlineSlots {
			h = isRow<<countShift | uint64(t.usedRows)
			t.usedRows++
			copy(t.row(h), row)
		} else {
			h = inline(row)
		}
	}
	i, _ := t.find(key)
	t.words[2*i], t.words[2*i+1] = key, h
	t.used++
	t.live++
}

// population returns the number of slots in a row.
func population(row []uint64) (count int) {
	for _, w := range row {
		count += bits.OnesCount64(w)
	}
	return count
}

// inline returns a word that holds the slots of a row, which has at most inlineSlots.
func inline(row []uint64) (h uint64) {
	count := uint64(0)
	for i, w := range row {
		for ; w != 0; w &= w - 1 {
			h = h<<slotBits | uint64(64*i+bits.TrailingZeros64(w))
			count++
		}
	}
	return count<<countShift | h
}

func (t *table) bytes() int { return 8 * (len(t.words) + len(t.rows)) }
