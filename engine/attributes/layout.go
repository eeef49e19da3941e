package attributes

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/spelling"
)

// Layout has the attributes of a configuration, by slot. It never changes.
type Layout struct {
	slots     [2][]Attribute
	producers [2][]string // of the attributes in slots
	headers   []string    // of requests, in lower case; Cookie says which are cookies
	sources   [2][]*Source
	private   int
}

// Privates returns the number of slots that plugins have declared for themselves alone.
func (l *Layout) Privates() int { return l.private }

// Headers returns the headers of requests that plugins read, by the index of their slot. The list is for reading only.
func (l *Layout) Headers() []string { return l.headers }

// Of returns the attributes of a type, by the index of their slot. The list is for reading only.
func (l *Layout) Of(typ Type) []Attribute { return l.slots[typ] }

// All returns an iterator over the attributes of all types.
func (l *Layout) All() iter.Seq2[Slot, Attribute] {
	return func(yield func(Slot, Attribute) bool) {
		for typ, list := range l.slots {
			for i, a := range list {
				if !yield(Slot{Type(typ), i}, a) {
					return
				}
			}
		}
	}
}

// Producer returns the name of the plugin that emits the attribute in a slot.
func (l *Layout) Producer(s Slot) string { return l.producers[s.Type][s.Index] }

// Source returns where the values of the attribute in a slot come from; nil = no source is named.
func (l *Layout) Source(s Slot) *Source { return l.sources[s.Type][s.Index] }

// Samples reports whether a plugin reads a sampled attribute of the source with a name.
func (l *Layout) Samples(source string) bool {
	for typ, list := range l.slots {
		for i, a := range list {
			name := ""
			if from := l.sources[typ][i]; from != nil {
				name = from.Name
			}
			if a.Origin == Sampled && name == source {
				return true
			}
		}
	}
	return false
}

// At returns the attribute in a slot.
func (l *Layout) At(s Slot) Attribute { return l.slots[s.Type][s.Index] }

// Reads reports whether a plugin reads one of the attributes.
func (l *Layout) Reads(these ...Attribute) bool {
	return l.any(func(a Attribute) bool { return slices.Contains(these, a) })
}

// ReadsFrom reports whether a plugin reads an attribute of an origin.
func (l *Layout) ReadsFrom(o Origin) bool {
	return l.any(func(a Attribute) bool { return a.Origin == o })
}

func (l *Layout) any(is func(Attribute) bool) bool {
	return slices.ContainsFunc(l.slots[Number], is) || slices.ContainsFunc(l.slots[Names], is)
}

// Fault is a reader that cannot be bound.
type Fault struct {
	Reader string // the name of its instance
	Text   string
	Absent string // the attribute, if nothing emits it
}

// Layout binds every reader to an emitter. If there are faults the layout is not complete.
func (b *Binding) Layout() (*Layout, []Fault) {
	l := &Layout{private: b.private}
	var faults []Fault
	for typ := range b.asked {
		for _, a := range b.asked[typ] {
			found, fault := b.find(a, Type(typ))
			if fault.Text != "" {
				faults = append(faults, fault)
			}
			l.slots[typ] = append(l.slots[typ], found.Attribute)
			l.producers[typ] = append(l.producers[typ], found.producer)
			l.sources[typ] = append(l.sources[typ], found.source)
		}
	}
	for _, h := range b.headers {
		if _, isCookie := Cookie(h.name); !isCookie && !headerName(h.name) {
			faults = append(faults, Fault{Reader: h.reader, Text: fmt.Sprintf("%s reads the header %q, which HTTP "+
				"does not have", h.reader, clip.Value(h.name))})
		}
		l.headers = append(l.headers, h.name)
	}
	if len(b.headers) > maxHeaders {
		faults = append(faults, Fault{Reader: b.headers[maxHeaders].reader, Text: fmt.Sprintf(
			"%s reads a header beyond the %d that plugins may read together", b.headers[maxHeaders].reader,
			maxHeaders)})
	}
	return l, faults
}

// find returns the attribute that is asked for, or what stands in the way.
func (b *Binding) find(a asked, typ Type) (found emitter, fault Fault) {
	fault.Reader = a.reader
	var by []string
	shared := true
	for _, e := range b.emitting(a) {
		if by = append(by, e.producer); len(by) == 1 {
			found = e
		}
		shared = shared && e.shared
	}
	switch {
	case len(by) == 0 && a.producer != "":
		fault.Text = fmt.Sprintf("%s reads %s of %s, which does not emit it", a.reader, a.name, a.producer)
	case len(by) == 0:
		fault.Absent = a.name
		fault.Text = fmt.Sprintf("%s reads %s, which nothing emits%s", a.reader, a.name, b.near(a.name))
	case len(by) > 1 && !shared:
		fault.Text = fmt.Sprintf("%s reads %s, which %s emit: name one of them", a.reader, a.name,
			strings.Join(by, " and "))
	case found.Type != typ:
		fault.Text = fmt.Sprintf("%s reads %s as %v, and %s emits it as %v", a.reader, a.name, typ, by[0], found.Type)
	}
	return found, fault
}

// emitting returns those that emit what is asked for.
func (b *Binding) emitting(a asked) (of []emitter) {
	other := false // one of them is what goes before
	for _, e := range b.emitters {
		if e.Name == a.name && (a.producer == "" || e.producer == a.producer) {
			of = append(of, e)
			other = other || e.BuiltIn() != a.own
		}
	}
	if !other {
		return of
	}
	return slices.DeleteFunc(of, func(e emitter) bool { return e.BuiltIn() == a.own })
}

// near returns a hint at the attribute whose name is most like one that nothing emits.
func (b *Binding) near(name string) string {
	names := make([]string, 0, len(b.emitters))
	for _, e := range b.emitters {
		names = append(names, e.Name)
	}
	if n := spelling.Nearest(name, names); n != "" && !builtIn(name) {
		return ", did you mean " + n + "?"
	}
	return ""
}
