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
// another sample; all others for each request.
type fills struct {
	layout   *attributes.Layout
	numbers  []fill[func(*endpoints.Sample) float64]
	names    []fill[func(*endpoints.Sample) []string]
	further  []*attributes.Source // beside the metrics page
	pages    []fill[pageValue]    // from the pages of further
	page     *attributes.Source   // the metrics page; nil = every endpoint has it
	every    uint64               // bits of all sources
	plain    bool                 // the metrics page of every endpoint is all that plugins read
	queued   []int                // slots of the queue: sampled, and what was picked since
	requests []int
	tokens   []int
	prefix   []int
}

// fill is a sampled attribute: its slot, and how its value is got. A value that a sample does not have is NaN, or nil.
type fill[F any] struct {
	slot int
	of   F
}

// metricsPage is the bit of the metrics page, by which a server that is down shows.
const metricsPage uint64 = 1

// pageValue is an attribute of a further source, by its index.
type pageValue struct {
	source              int
	attribute, producer string
}

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
	for slot, a := range l.Of(attributes.Number) {
		at := attributes.Slot{Type: attributes.Number, Index: slot}
		from := l.Source(at)
		if i := f.source(from); i > 0 && a.Origin == attributes.Sampled {
			f.pages = append(f.pages, fill[pageValue]{slot, pageValue{i - 1, a.Name, l.Producer(at)}})
			continue
		}
		if from != nil {
			f.page = from
		}
		if a.Origin == attributes.Produced {
			continue
		}
		switch a {
		case attributes.QueuedRequests:
			f.queued = append(f.queued, slot)
		case attributes.InflightRequests:
			f.requests = append(f.requests, slot)
		case attributes.InflightTokens:
			f.tokens = append(f.tokens, slot)
		case attributes.PrefixBlocks:
			f.prefix = append(f.prefix, slot)
		case attributes.WaitingRequests:
			f.number(slot, func(s *endpoints.Sample) float64 { return known(float64(s.Waiting)) })
		case attributes.RunningRequests:
			f.number(slot, func(s *endpoints.Sample) float64 { return known(float64(s.Running)) })
		case attributes.KVCacheUsage:
			f.number(slot, kvUsed)
		case attributes.MaxLoRAs:
			f.number(slot, func(s *endpoints.Sample) float64 { return known(float64(s.MaxLoRAs)) })
		default:
			producer := l.Producer(at)
			f.number(slot, func(s *endpoints.Sample) float64 { return s.Value(a.Name, producer) })
		}
	}
	for slot, a := range l.Of(attributes.Names) {
		if from := l.Source(attributes.Slot{Type: attributes.Names, Index: slot}); from != nil {
			f.page = from
		}
		switch a {
		case attributes.ActiveLoRAs:
			f.names = append(f.names, fill[func(*endpoints.Sample) []string]{slot, activeLoRAs})
		case attributes.WaitingLoRAs:
			f.names = append(f.names, fill[func(*endpoints.Sample) []string]{slot, waitingLoRAs})
		}
	}
	f.every, f.plain = 2<<len(f.further)-1, len(f.further) == 0 && f.page.Selects(nil)
	return f
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

func (f *fills) number(slot int, of func(*endpoints.Sample) float64) {
	f.numbers = append(f.numbers, fill[func(*endpoints.Sample) float64]{slot, of})
}

// known returns a value of a sample, in which messages.Unknown stands for what the page does not have, as columns have
// it.
func known(x float64) float64 {
	if x < 0 {
		return math.NaN()
	}
	return x
}

// kvUsed returns NaN for a page that has no KV cache, and 1 for one that has it without a number: it may be full.
func kvUsed(s *endpoints.Sample) float64 {
	if math.IsNaN(s.KVUsed) {
		return 1
	}
	return known(s.KVUsed)
}

func activeLoRAs(s *endpoints.Sample) []string { return adapters(s, s.ActiveLoRAs) }

func waitingLoRAs(s *endpoints.Sample) []string { return adapters(s, s.WaitingLoRAs) }

// adapters returns nil for a page that does not tell of adapters, and a list that is not nil for one that does.
func adapters(s *endpoints.Sample, list []string) []string {
	switch {
	case s.MaxLoRAs < 0:
		return nil
	case list == nil:
		return noNames
	}
	return list
}

var noNames = []string{}
