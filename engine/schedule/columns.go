package schedule

import (
	"math"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
)

// columns has the values of a layout's attributes.
type columns struct {
	numbers table[float64]
	names   table[[]string]
}

// fit makes room for the attributes of a layout. What columns hold afterwards is of no use.
func (c *columns) fit(l *attributes.Layout) {
	c.numbers.fit(len(l.Of(attributes.Number)))
	c.names.fit(len(l.Of(attributes.Names)))
}

// outdate says that the values of all columns are of other candidates.
func (c *columns) outdate() {
	clear(c.numbers.gathered)
	clear(c.names.gathered)
}

// table has the columns of one type, by slot.
type table[T any] struct {
	columns  [][]T
	gathered []bool // gathered[slot] = the column is that of the candidates; only gather looks at it
}

func (t *table[T]) fit(slots int) {
	t.columns, t.gathered = grow(t.columns, slots), grow(t.gathered, slots)
	clear(t.gathered)
}

// stretch makes all columns n values long. Their values are of no use if one was too short.
func (t *table[T]) stretch(n int) {
	for slot := range t.columns {
		t.columns[slot] = grow(t.columns[slot], n)
	}
}

// gather returns the column of a slot for the candidates at these places of another table.
func (t *table[T]) gather(slot int, from *table[T], place []int) []T {
	if !t.gathered[slot] {
		column, whole := grow(t.columns[slot], len(place)), from.columns[slot]
		for i, at := range place {
			column[i] = whole[at]
		}
		t.columns[slot], t.gathered[slot] = column, true
	}
	return t.columns[slot]
}

// fills says from what the columns of a layout are filled. Sampled values are read again only if an endpoint has
// another answer; all others for each request.
type fills struct {
	layout   *attributes.Layout
	sampled  []fill               // from the metrics page
	pages    []fill               // from further sources
	further  []*attributes.Source // beside the metrics page
	page     *attributes.Source   // the metrics page; nil = every endpoint has it
	every    uint64               // bits of all sources
	plain    bool                 // the metrics page of every endpoint is all that plugins read
	queued   []int                // slots of the queue: sampled, and what was picked since
	requests []int
	tokens   []int
	windows  [2][]int // slots of the learned window: requests, tokens
	prefix   []int
}

// fill is a sampled attribute: its slot, and where its value is found. A value that an answer does not have is NaN, or
// nil.
type fill struct {
	slot      attributes.Slot
	source    int // an index of further
	attribute string
	producer  string // "" = the attribute is built in
}

// metricsPage is the bit of the metrics page, by which a server that is down shows.
const metricsPage uint64 = 1

// sources returns the sources of the sampled attributes in slots, as bits: metricsPage, and from 2 on those of further.
func (f *fills) sources(slots []attributes.Slot) (bits uint64) {
	for _, slot := range slots {
		if f.layout.At(slot).Origin == attributes.Sampled {
			bits |= 1 << f.source(f.layout.Source(slot))
		}
	}
	return bits
}

// source returns 1 more than the index of a further source, which it adds if it is new; 0 = the metrics page.
func (f *fills) source(of *attributes.Source) int {
	if of == nil || of.Name == "" {
		return 0
	}
	if i := slices.Index(f.further, of); i >= 0 {
		return i + 1
	}
	f.further = append(f.further, of)
	return len(f.further)
}

func newFills(l *attributes.Layout) *fills {
	f := &fills{layout: l}
	for slot, a := range l.All() {
		switch {
		case a.Origin == attributes.Sampled:
			f.sample(slot, a)
		case a == attributes.InflightRequests:
			f.requests = append(f.requests, slot.Index)
		case a == attributes.InflightTokens:
			f.tokens = append(f.tokens, slot.Index)
		case a == attributes.WindowRequests:
			f.windows[0] = append(f.windows[0], slot.Index)
		case a == attributes.WindowTokens:
			f.windows[1] = append(f.windows[1], slot.Index)
		case a == attributes.PrefixBlocks:
			f.prefix = append(f.prefix, slot.Index)
		}
	}
	f.every, f.plain = 2<<len(f.further)-1, len(f.further) == 0 && f.page.Selects(nil)
	return f
}

// sample adds a sampled attribute.
func (f *fills) sample(slot attributes.Slot, a attributes.Attribute) {
	from := f.layout.Source(slot)
	of := fill{slot: slot, attribute: a.Name, producer: f.layout.Producer(slot)}
	if a.BuiltIn() {
		of.producer = ""
	}
	if i := f.source(from); i > 0 {
		of.source = i - 1
		f.pages = append(f.pages, of)
		return
	}
	if from != nil {
		f.page = from
	}
	if a == attributes.QueuedRequests {
		f.queued = append(f.queued, slot.Index)
		return
	}
	f.sampled = append(f.sampled, of)
}

// read writes the value that an answer has of an attribute for the endpoint at a place; nil = there is no answer.
func (c *columns) read(f *fill, at int, answer *endpoints.Values) {
	if f.slot.Type == attributes.Names {
		c.names.columns[f.slot.Index][at] = nil
		if answer != nil {
			c.names.columns[f.slot.Index][at] = answer.List(f.attribute, f.producer)
		}
		return
	}
	c.numbers.columns[f.slot.Index][at] = math.NaN()
	if answer != nil {
		c.numbers.columns[f.slot.Index][at] = answer.Value(f.attribute, f.producer)
	}
}

// produced returns the slot of an attribute that a producer emits; -1 = no plugin reads it.
func (f *fills) produced(name, producer string) int {
	for slot, a := range f.layout.Of(attributes.Number) {
		by := f.layout.Producer(attributes.Slot{Type: attributes.Number, Index: slot})
		if a.Name == name && a.Origin == attributes.Produced && by == producer {
			return slot
		}
	}
	return -1
}
