package schedule

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// endpoint is what one request sees of an endpoint beside its attributes. Its values are read once, so that every
// plugin sees the same.
type endpoint struct {
	id      messages.EndpointID
	address messages.Address
	labels  map[string]string // nil reads as empty
}

// Candidates are the endpoints that are left for a request. Plugins can only read them, because the runs of other
// profiles and the next requests read the same memory.
type Candidates struct {
	all   []endpoint
	place []int // place[i] is the index of candidate i in all
}

// Len returns the number of candidates.
func (c Candidates) Len() int { return len(c.place) }

// At returns candidate i, counted from 0.
func (c Candidates) At(i int) Candidate { return Candidate{&c.all[c.place[i]]} }

// All returns an iterator over all candidates in their order.
func (c Candidates) All() iter.Seq2[int, Candidate] {
	return func(yield func(int, Candidate) bool) {
		for i := range c.place {
			if !yield(i, c.At(i)) {
				return
			}
		}
	}
}

// Candidate is one of Candidates. It is valid until the call of the plugin returns.
type Candidate struct{ endpoint *endpoint }

// ID returns the endpoint's slot and generation.
func (c Candidate) ID() messages.EndpointID { return c.endpoint.id }

// Address returns where the endpoint listens.
func (c Candidate) Address() messages.Address { return c.endpoint.address }

// Label returns the value of a label, and whether the endpoint has it.
func (c Candidate) Label(key string) (string, bool) {
	value, ok := c.endpoint.labels[key]
	return value, ok
}

// Numbers is a number attribute of all candidates, in their order; NaN = unknown. Plugins can only read it. It is valid
// until the call of the plugin returns.
type Numbers struct{ column []float64 }

// Len returns the number of candidates.
func (n Numbers) Len() int { return len(n.column) }

// At returns the value of candidate i; NaN = unknown.
func (n Numbers) At(i int) float64 { return n.column[i] }

// Names is an attribute of all candidates, in their order, that lists names. Plugins can only read it. It is valid
// until the call of the plugin returns.
type Names struct{ column [][]string }

// Count returns how many names candidate i has; -1 = unknown.
func (n Names) Count(i int) int {
	if n.column[i] == nil {
		return -1
	}
	return len(n.column[i])
}

// Of returns the names of candidate i; empty if they are unknown.
func (n Names) Of(i int) messages.List[string] { return messages.TakeList(n.column[i]) }

// Contains reports whether a name is among those of candidate i. Unknown names contain none.
func (n Names) Contains(i int, name string) bool { return slices.Contains(n.column[i], name) }

// scratch is memory that plugins use while they run. Each loop has its own, which grows to the largest pool seen, so
// that no request pays for it.
type scratch struct {
	numbers []uint64 // by candidate
	order   []int
	flags   []bool // by candidate
}

// Ascending returns the candidates by a number that each of them has, the least first. Those with equal numbers are in
// their own order. The plugin may change the list, which is valid until the plugin returns or calls Ascending again.
func (in *Input) Ascending(number func(candidate int) uint64) []int {
	own, n := &in.run.scratch, in.candidates.Len()
	own.numbers, own.order = grow(own.numbers, n), grow(own.order, n)
	for i := range n {
		own.numbers[i], own.order[i] = number(i), i
	}
	slices.SortFunc(own.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(own.numbers[a], own.numbers[b]), cmp.Compare(a, b))
	})
	return own.order
}

// Flags returns a flag for each candidate, all of them set. The plugin may change the list, which is valid until the
// plugin returns or calls Flags again.
func (in *Input) Flags() []bool {
	own := &in.run.scratch
	own.flags = grow(own.flags, in.candidates.Len())
	for i := range own.flags {
		own.flags[i] = true
	}
	return own.flags
}

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
	requests [2][]int             // slots of what was sent and waits, and of what was sent
	tokens   [2][]int             // likewise
	windows  [2][]int             // slots of the learned window: requests, tokens
	prompts  promptFills
}

// promptFills are the slots of what is computed of prompts.
type promptFills struct {
	wait     []int
	rate     []int
	requests []int // that are sent in a second
	prefix   []int // blocks that are held
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

// match reports whether slots have what endpoints hold of prompts.
func (f *fills) match(slots []attributes.Slot) bool {
	return slices.ContainsFunc(slots, func(s attributes.Slot) bool {
		return f.layout.At(s).Origin == attributes.Matched
	})
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
			f.requests[0] = append(f.requests[0], slot.Index)
		case a == attributes.InflightTokens:
			f.tokens[0] = append(f.tokens[0], slot.Index)
		case a == attributes.SentRequests:
			f.requests[1] = append(f.requests[1], slot.Index)
		case a == attributes.SentTokens:
			f.tokens[1] = append(f.tokens[1], slot.Index)
		case a == attributes.WindowRequests:
			f.windows[0] = append(f.windows[0], slot.Index)
		case a == attributes.WindowTokens:
			f.windows[1] = append(f.windows[1], slot.Index)
		case a == attributes.PromptWait:
			f.prompts.wait = append(f.prompts.wait, slot.Index)
		case a == attributes.PromptRate:
			f.prompts.rate = append(f.prompts.rate, slot.Index)
		case a == attributes.RequestRate:
			f.prompts.requests = append(f.prompts.requests, slot.Index)
		case a == attributes.PrefixBlocks:
			f.prompts.prefix = append(f.prompts.prefix, slot.Index)
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
