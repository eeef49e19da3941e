package modelserver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/engine/clip"
)

// pushed is a document of the whole pool that its author has pushed, or that has objects. It is immutable.
type pushed struct {
	contents
	at, until time.Time // of one that has objects, zero
	objects   string    // of which kind, as Further has it; "" = it was pushed
	err       error     // why there is none; nil = there is one
}

// ErrNotPushed is an error of Push: no source of this name waits for a document.
var ErrNotPushed = errors.New("no document-data-source of this name has pushed: true")

// UnfitError is every problem of a document that was pushed.
type UnfitError []string

func (e UnfitError) Error() string { return strings.Join(e, "; ") }

// mostProblems bounds an UnfitError.
const mostProblems = 20

// Push brings a document of the whole pool into force, in place of the one before, until its time to live is over. It
// returns the number of values that the document has of each attribute. The document must not change any more. One
// that has something else where a number is wanted is refused as a whole.
func (f *Fetcher) Push(source string, text []byte, ttl time.Duration) (values map[string]int, err error) {
	p, at, ok := f.pages.Load().source(source)
	if !ok || !p.Pushed {
		return nil, ErrNotPushed
	}
	root, err := decoded(text)
	if err != nil {
		return nil, UnfitError{err.Error()}
	}
	c := contents{page: text, document: true, root: root}
	values = map[string]int{}
	var unfit UnfitError
	for _, e := range p.Extract {
		if byOthers(e) {
			continue
		}
		all := survey{path: strings.Split(e.Field, ".")}
		all.look(c.root, 0)
		values[e.Attribute] += all.values
		unfit = append(unfit, all.unfit...)
	}
	if len(unfit) > 0 {
		return nil, unfit[:min(len(unfit), mostProblems)]
	}
	now := time.Now()
	at.pushed.Store(&pushed{contents: c, at: now, until: now.Add(ttl)})
	return values, nil
}

// Tell brings the document of a source that has objects into force, or says why there is none, which counts while none
// was told of their kind. The document must not change any more.
func (f *Fetcher) Tell(source string, text []byte, err error) {
	p, at, ok := f.pages.Load().source(source)
	if !ok || p.Objects == "" {
		return // the configuration does not have it any more
	}
	d := &pushed{objects: p.Objects, err: err}
	if err == nil {
		d.contents, d.err = document(text, p.Extract)
	} else if before := at.pushed.Load(); before != nil && before.objects == p.Objects && before.err == nil {
		return
	}
	at.pushed.Store(d)
}

// newest returns the document of a source that was pushed or told last. One that was told is as it is now.
func (at *place) newest(p *Further, now time.Time) (sharedReading, error) {
	d := at.pushed.Load()
	if p.Objects != "" {
		switch {
		case d == nil || d.objects != p.Objects:
			return sharedReading{at: now, other: true}, errors.New("the objects are not known yet")
		case d.err != nil:
			return sharedReading{at: now, other: true}, d.err
		}
		return sharedReading{contents: d.contents, at: now, other: true}, nil
	}
	switch {
	case d == nil || d.objects != "":
		return sharedReading{at: now, other: true}, errors.New("nothing was pushed yet")
	case !now.Before(d.until):
		return sharedReading{at: now, other: true}, errors.New("what was pushed last has expired")
	}
	return sharedReading{contents: d.contents, at: d.at, other: true, expires: d.until.Sub(now)}, nil
}

// survey looks at what a document has at a path, of all endpoints.
type survey struct {
	path   []string
	at     []string // the keys so far
	values int
	unfit  UnfitError
}

// look goes on from a value that stands at the first depth keys of the path. What is absent or null is unknown, and
// fits.
func (s *survey) look(value any, depth int) {
	if value == nil {
		return
	}
	if depth == len(s.path) {
		s.end(value)
		return
	}
	key := s.path[depth]
	switch x := value.(type) {
	case map[string]any:
		if key != ofEndpoint {
			s.down(key, x[key], depth)
			return
		}
		for _, name := range slices.Sorted(maps.Keys(x)) {
			s.down(name, x[name], depth)
		}
	case []any:
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(x) {
			s.down(key, x[i], depth)
		}
	default:
		s.misfit(value, "an object or a list")
	}
}

func (s *survey) down(key string, value any, depth int) {
	s.at = append(s.at, key)
	s.look(value, depth+1)
	s.at = s.at[:depth]
}

// end takes the value at the end of the path.
func (s *survey) end(value any) {
	switch value.(type) {
	case float64, bool:
		s.values++
	default:
		s.misfit(value, "a number, true or false")
	}
}

func (s *survey) misfit(value any, want string) {
	if len(s.unfit) == mostProblems {
		return
	}
	got := "a string"
	switch value.(type) {
	case float64:
		got = "a number"
	case bool:
		got = "true or false"
	case []any:
		got = "a list"
	case map[string]any:
		got = "an object"
	}
	where := "the document"
	if len(s.at) > 0 {
		where = clip.Value(strings.Join(s.at, "."))
	}
	s.unfit = append(s.unfit, fmt.Sprintf("%s: got %s, want %s", where, got, want))
}
