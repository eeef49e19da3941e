package flow

// class is the requests of a band that may use the same endpoints. Its lines are never empty.
type class struct {
	name    Class
	at      int      // its place among the classes of the band
	heaps   [2]lines // of flows that have one request waiting, and of those that crowd
	waiting int64    // requests
}

// classes are those of a band of which requests wait.
type classes struct {
	list  []*class
	named map[Class]*class

	// open has the heaps of which the first line may have room. A decision looks at no others: of many that are full it
	// would have to ask about each.
	open  heap[*lines]
	stale []*lines // of those, what has stale lines
}

func newClasses() classes { return classes{named: map[Class]*class{}} }

// of returns the class of a name, which may be new. boxed says that a Chooser decides among its lines.
func (cs *classes) of(name Class, boxed bool) *class {
	c := cs.named[name]
	if c == nil {
		none := lines{boxed: boxed, place: closed}
		c = &class{name: name, at: len(cs.list), heaps: [2]lines{none, none}}
		cs.list, cs.named[name] = append(cs.list, c), c
	}
	return c
}

// remove takes out a class that has no lines.
func (cs *classes) remove(c *class) {
	last := cs.list[len(cs.list)-1]
	cs.list[c.at], last.at = last, c.at
	clear(cs.list[len(cs.list)-1:])
	cs.list = cs.list[:len(cs.list)-1]
	delete(cs.named, c.name)
}

// all appends the heaps that are not empty.
func (cs *classes) all(to []*lines) []*lines {
	for _, c := range cs.list {
		for i := range c.heaps {
			if h := &c.heaps[i]; len(h.heap) > 0 {
				to = append(to, h)
			}
		}
	}
	return to
}

// closed is the place of a heap that is not open.
const closed = -1

// before reports whether the first line of h comes before that of other.
func (h *lines) before(other *lines) bool { return h.heap[0].before(other.heap[0]) }

func (h *lines) seat() *int { return &h.place }

// of returns the line of a flow; nil = it has none. It looks where there are fewer lines, at the flow or at the class.
func (c *class) of(f *flow) *line {
	if len(f.lines) <= len(c.heaps[0].heap)+len(c.heaps[1].heap) {
		for _, l := range f.lines {
			if l.class == c {
				return l
			}
		}
		return nil
	}
	for i := range c.heaps {
		for _, l := range c.heaps[i].heap {
			if l.flow == f {
				return l
			}
		}
	}
	return nil
}

// first returns the line whose rank is the least.
func (c *class) first() *line {
	first, other := c.heaps[0].first(), c.heaps[1].first()
	if first == nil || other != nil && other.before(first) {
		return other
	}
	return first
}

// reopen has the lines of a class be looked at.
func (cs *classes) reopen(c *class) {
	for i := range c.heaps {
		h := &c.heaps[i]
		if h.place != closed || len(h.heap) == 0 {
			continue
		}
		cs.open.add(h)
		if len(h.stale) > 0 {
			cs.stale = append(cs.stale, h)
		}
	}
}

// close has a heap not be looked at.
func (cs *classes) close(h *lines) {
	if h.place != closed {
		cs.open.remove(h)
		h.place = closed
	}
}

// changed brings a heap to where it belongs after its lines changed.
func (cs *classes) changed(h *lines) {
	switch {
	case len(h.heap) == 0:
		cs.close(h)
	case h.place != closed:
		cs.open.fix(h)
	}
}

// recount brings the lines of a flow to where they belong after its account changed. Where no decision looks they stay
// as they are until one does: a flow may have lines in many classes that are full.
func (q *Queues) recount(f *flow) {
	for _, l := range f.lines {
		switch h := l.in; {
		case h.place != closed:
			q.reaccount(l)
		case !l.stale:
			l.stale = true
			if h.stale = append(h.stale, l); len(h.stale) > len(h.heap) { // some of them have left
				q.freshen(h)
			}
		}
	}
}

// freshen brings the stale lines of a heap to where they belong.
func (q *Queues) freshen(h *lines) {
	for _, l := range h.stale {
		if l.stale && l.in == h {
			q.reaccount(l)
		}
	}
	clear(h.stale)
	h.stale = h.stale[:0]
}

// freshenAll does so for all heaps at which the next decision looks.
func (q *Queues) freshenAll(b *band) {
	heaps := b.classes.stale
	if q.floored {
		heaps = b.classes.all(nil)
	}
	b.classes.stale = nil
	if len(heaps) > 0 {
		q.change(b, func() {
			for _, h := range heaps {
				q.freshen(h)
			}
		})
	}
}

// Open says that there may be room again for requests of a class. What Next was told of it holds until then.
func (q *Queues) Open(name Class) {
	for _, b := range q.bands {
		if c := b.classes.named[name]; c != nil {
			b.classes.reopen(c)
		}
	}
}

// OpenAll says so of all classes.
func (q *Queues) OpenAll() {
	for _, b := range q.bands {
		for _, c := range b.classes.list {
			b.classes.reopen(c)
		}
	}
}
