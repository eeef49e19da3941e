package records

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/signalbox-epp/signalbox/messages"
)

// The scores of one scorer are a column. Most columns have few distinct scores, and are packed as indices of those. Of
// the others the scores of the endpoints that a reader compares are kept to the last bit, and the rest as the nearest
// of so many levels from 0 to 1 as the record has room for.

const (
	few        = 8  // distinct scores of a column that is packed as indices, at most
	leastBits  = 6  // of a level
	mostBits   = 16 // of a level; with room for more, scores are kept as they are
	exactRanks = 3  // ranked endpoints whose scores are kept as they are; so are those of the runner-up
)

// coding is how a column is packed. The codings from 1 to few are its number of distinct scores.
type coding uint8

const (
	byLevel coding = few + 1 + iota // the nearest of levels, for endpoints with a total
	asIs                            // as they are, for endpoints with a total
	whole                           // as they are, for all endpoints
)

// column is what is known of a column before it is packed.
type column struct {
	coding   coding
	last     uint8       // index in distinct of the last score
	distinct [few]uint32 // bits of the scores that occur; those before coding
}

// scores packs the scores of all runs, with as many bits for each as there is room for within budget.
func (p *packer) scores(runs messages.List[messages.ProfileRun], budget int) {
	if p.plain(runs, budget-len(p.to)) {
		return
	}
	width, next := p.examine(runs, budget-len(p.to)), 0
	p.to = append(p.to, byte(width))
	for i := range runs.Len() {
		run := runs.At(i)
		exact := exactOf(&run)
		for j := range run.Scorers.Len() {
			c, scores := &p.columns[next], run.Scorers.At(j).Scores
			next++
			if c.coding == byLevel && width > mostBits {
				c.coding = asIs
			}
			p.column(c, scores, width)
			if c.coding == byLevel {
				p.exact(scores, exact)
			}
		}
	}
}

// plain packs all scores as they are, without a look at them, if there is room for that. It reports whether it did.
func (p *packer) plain(runs messages.List[messages.ProfileRun], room int) bool {
	room-- // the width
	for i := range runs.Len() {
		run := runs.At(i)
		for j := range run.Scorers.Len() {
			room -= 1 + binary.MaxVarintLen32 + 4*run.Scorers.At(j).Scores.Len()
		}
	}
	if room < 0 {
		return false
	}
	p.to = append(p.to, mostBits+1)
	for i := range runs.Len() {
		run := runs.At(i)
		for j := range run.Scorers.Len() {
			p.to = append(p.to, byte(whole))
			p.floats(run.Scorers.At(j).Scores)
		}
	}
	return true
}

// examine chooses the coding of each column. It returns the bits of a level for which there is room; more than mostBits
// = there is room for all scores as they are.
func (p *packer) examine(runs messages.List[messages.ProfileRun], room int) int {
	p.columns = p.columns[:0]
	cells, graded := 0, 0 // scores and columns that are packed as levels
	room--                // the width
	for i := range runs.Len() {
		run := runs.At(i)
		scored := 0
		for _, total := range run.Totals.All() {
			scored += int(flag(!(total < 0)))
		}
		for j := range run.Scorers.Len() {
			c := examine(run.Scorers.At(j).Scores, run.Totals)
			room -= 1 + c.bytes(run.Totals.Len(), scored)
			if c.coding == byLevel {
				cells += scored
				graded++
			}
			p.columns = append(p.columns, c)
		}
	}
	if cells == 0 || 4*cells <= room {
		return mostBits + 1
	}
	room -= graded * (4*(exactRanks+1) + 1) // and the bits of a column's last octet that are not used
	return min(max(8*room/cells, leastBits), mostBits)
}

// examine finds the best coding of a column.
func examine(scores, totals messages.List[float32]) column {
	var c column
	if scores.Len() != totals.Len() {
		return column{coding: whole}
	}
	graded := true // all scores are from 0 to 1
	for i := range scores.Len() {
		v := scores.At(i)
		if (v < 0) != (totals.At(i) < 0) {
			return column{coding: whole}
		}
		if v < 0 {
			continue
		}
		graded = graded && v <= 1 // false for NaN
		if c.coding <= few {
			c.add(math.Float32bits(v))
		}
	}
	switch {
	case c.coding > few && graded:
		c.coding = byLevel
	case c.coding > few || c.coding == 0: // no endpoint was scored
		c.coding = asIs
	}
	return c
}

// add adds a score to the distinct ones. Beyond few it only counts that there is one more.
func (c *column) add(b uint32) {
	if c.coding > 0 && c.distinct[c.last] == b {
		return
	}
	if at := c.index(b); at >= 0 {
		c.last = uint8(at)
		return
	}
	if c.coding < few {
		c.last = uint8(c.coding)
		c.distinct[c.last] = b
	}
	c.coding++
}

// bytes returns how many bytes a column takes for so many endpoints, of which some were scored; 0 if that depends on
// the bits of a level.
func (c *column) bytes(endpoints, scored int) int {
	switch c.coding {
	case byLevel:
		return 0
	case asIs:
		return 4 * scored
	case whole:
		return 4*endpoints + 4
	}
	return 4*int(c.coding) + (scored*c.width()+7)/8
}

// index returns which of the distinct scores has these bits; -1 = none has.
func (c *column) index(b uint32) int {
	for i, known := range c.distinct[:min(c.coding, few)] {
		if known == b {
			return i
		}
	}
	return -1
}

// width returns the bits of an index into the distinct scores.
func (c *column) width() int { return bits.Len(uint(c.coding - 1)) }

// column packs the scores of one scorer.
func (p *packer) column(c *column, scores messages.List[float32], width int) {
	p.to = append(p.to, byte(c.coding))
	if c.coding == whole {
		p.floats(scores)
		return
	}
	if c.coding == asIs {
		for i := range scores.Len() {
			if v := scores.At(i); !(v < 0) {
				p.float(v)
			}
		}
		return
	}
	scale := levels(width)
	if c.coding <= few {
		width = c.width()
		for _, b := range c.distinct[:c.coding] {
			p.float(math.Float32frombits(b))
		}
	}
	w := p.bits()
	for i := range scores.Len() {
		switch v := scores.At(i); {
		case v < 0:
		case c.coding == byLevel:
			w.put(uint32(v*scale+0.5), width)
		default:
			w.put(uint32(c.index(math.Float32bits(v))), width)
		}
	}
	w.flush()
}

// levels returns the number of the highest level, which stands for 1.
func levels(width int) float32 { return float32(uint32(1)<<width - 1) }

// within returns by how much a score may differ from the level that stands for it. Half a level it is, but for float32,
// whose rounding adds up to 0.004 of one with 16 bits.
func within(width int) float32 { return 0.505 / levels(width) }

// exact packs the scores of some endpoints, as far as they were scored.
func (p *packer) exact(scores messages.List[float32], places [exactRanks + 1]int) {
	for _, at := range places {
		if at >= 0 && at < scores.Len() && !(scores.At(at) < 0) {
			p.float(scores.At(at))
		}
	}
}

// exact unpacks scores into their places.
func (u *unpacker) exact(scores []float32, places [exactRanks + 1]int) {
	for _, at := range places {
		if at >= 0 && at < len(scores) && !(scores[at] < 0) {
			scores[at] = u.float()
		}
	}
}

// exactOf returns the places of the endpoints whose scores a reader compares, some of them twice; -1 = none.
func exactOf(run *messages.ProfileRun) [exactRanks + 1]int {
	exact := [exactRanks + 1]int{exactRanks: run.Runner}
	for rank := range exactRanks {
		if exact[rank] = -1; rank < run.Ranked.Len() {
			exact[rank] = int(run.Ranked.At(rank))
		}
	}
	return exact
}

// scores unpacks the scores of all runs, whose totals and ranks are unpacked already.
func (u *unpacker) scores(runs []messages.ProfileRun, s *shape) {
	width := min(int(u.octet()), mostBits+1)
	for i := range runs {
		run := &runs[i]
		exact := exactOf(run)
		scorers := make([]messages.ScorerRun, len(s.runs[i].scorers))
		for j, of := range s.runs[i].scorers {
			how := coding(u.octet())
			scores := u.column(how, run.Totals, width)
			if how == byLevel {
				run.Within = within(width)
				u.exact(scores, exact)
			}
			scorers[j] = messages.ScorerRun{Plugin: of.Plugin, Weight: of.Weight, Scores: messages.TakeList(scores)}
		}
		run.Scorers = messages.TakeList(scorers)
	}
}

// column unpacks the scores of one scorer.
func (u *unpacker) column(how coding, totals messages.List[float32], width int) []float32 {
	if how == whole {
		return u.floats().Append(nil)
	}
	scored := 0
	list := make([]float32, totals.Len())
	for i := range list {
		if list[i] = -1; !(totals.At(i) < 0) {
			list[i] = 0
			scored++
		}
	}
	scale := levels(width)
	c := column{coding: how}
	if how <= few {
		width = c.width()
		for i := range c.distinct[:how] {
			c.distinct[i] = math.Float32bits(u.float())
		}
	}
	var r bitReader
	if how != asIs {
		r = u.bits(scored * width)
	}
	for i := range list {
		switch {
		case list[i] < 0:
		case how == asIs:
			list[i] = u.float()
		case how == byLevel:
			list[i] = float32(r.get(width)) / scale
		default:
			list[i] = math.Float32frombits(c.distinct[r.get(width)%few])
		}
	}
	return list
}

// bitWriter appends numbers of some bits each to what a packer packs, the lowest bit first.
type bitWriter struct {
	to   *packer
	held uint64 // bits that are not yet appended
	n    int    // how many those are; 0 <= n < 32 between puts
}

func (p *packer) bits() bitWriter { return bitWriter{to: p} }

// put appends a number of at most 32 bits.
func (w *bitWriter) put(v uint32, width int) {
	w.held |= uint64(v) << w.n
	if w.n += width; w.n >= 32 {
		w.to.to = binary.LittleEndian.AppendUint32(w.to.to, uint32(w.held))
		w.held, w.n = w.held>>32, w.n-32
	}
}

// flush appends the bits that are left, in whole octets.
func (w *bitWriter) flush() {
	for ; w.n > 0; w.n -= 8 {
		w.to.to = append(w.to.to, byte(w.held))
		w.held >>= 8
	}
	w.n = 0
}

// bitReader reads what a bitWriter wrote.
type bitReader struct {
	from []byte
	held uint64
	n    int
}

// bits returns a reader of the next so many bits, in whole octets.
func (u *unpacker) bits(n int) bitReader { return bitReader{from: u.take((n + 7) / 8)} }

// get returns the next number; beyond the end it is 0.
func (r *bitReader) get(width int) uint32 {
	for r.n < width && len(r.from) > 0 {
		r.held |= uint64(r.from[0]) << r.n
		r.from, r.n = r.from[1:], r.n+8
	}
	v := uint32(r.held & (1<<width - 1))
	r.held >>= width
	r.n -= width
	return v
}

func flag(set bool) uint32 {
	if set {
		return 1
	}
	return 0
}
