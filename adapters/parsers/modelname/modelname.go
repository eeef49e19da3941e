// Package modelname puts the name of a model that a client asked for back into the answer of the model that served in
// its place. It changes the values of "model" in the top object, in its "message" (streams of Anthropic's API) and in
// its "response" (streams of responses), where they are the name of the model that served, and nothing else: no deeper
// member, no text, no byte around them.
package modelname

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Restorer reads the body of one response, JSON or server-sent events, and may be given it cut anywhere. It keeps
// nothing but the value in hand. It is not for concurrent use.
type Restorer struct {
	served string // the name that is replaced
	asked  []byte // JSON, what takes its place
	most   int    // bytes that the name can take in JSON
	form   form
	line   line
	doc    document
	held   []byte // the value in hand, as it came; empty = there is none
}

// form is how the body has its objects.
type form uint8

const (
	unknown form = iota // its first byte tells
	object              // one after the other
	events              // in the data of server-sent events
	neither
)

// New returns a Restorer for a body of this content type; "" = the type is unknown. nil = such a body has no names.
func New(contentType, served, asked string) *Restorer {
	f := formOf(contentType)
	if f == neither || served == asked {
		return nil
	}
	const longest = len(`\u0000`) // how long JSON can make one byte
	return &Restorer{served: served, asked: quote(asked), most: longest*len(served) + len(`""`), form: f}
}

func formOf(contentType string) form {
	kind, _, _ := strings.Cut(contentType, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	switch {
	case kind == "":
		return unknown
	case kind == "text/event-stream":
		return events
	case kind == "application/json", kind == "text/json", strings.HasSuffix(kind, "+json"):
		return object
	}
	return neither
}

// quote returns a text as JSON has it.
func quote(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // never fails for a string
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// effect is what becomes of a byte.
type effect uint8

const (
	passes  effect = iota
	begins         // it begins a value that is held back
	belongs        // it belongs to that value
	ends           // it ends that value
	voids          // it shows that the value is none, and passes
)

// Append appends to dst what becomes of the next piece of the body, and what of earlier ones was held back until now.
func (r *Restorer) Append(dst, piece []byte) []byte {
	from := 0 // where in piece what passes begins
	for i := 0; i < len(piece); i++ {
		if i += r.dull(piece[i:]); i == len(piece) {
			break
		}
		c := piece[i]
		switch r.step(c) {
		case passes:
		case begins:
			dst = append(dst, piece[from:i]...)
			r.held = append(r.held[:0], c)
		case belongs:
			if r.held = append(r.held, c); len(r.held) > r.most { // another name
				dst, from = r.Flush(dst), i+1
				r.doc.state = inString
			}
		case ends:
			r.held = append(r.held, c)
			dst, from = r.value(dst), i+1
		case voids:
			dst, from = r.Flush(dst), i
		}
	}
	if len(r.held) > 0 {
		return dst
	}
	return append(dst, piece[from:]...)
}

// dull returns how many bytes of a piece pass without a look at each: those within a text that is no name.
func (r *Restorer) dull(piece []byte) (n int) {
	if r.doc.state != inString || r.doc.escaped || r.line.other || r.form == events && r.line.length < len(dataField) {
		return 0
	}
	for n < len(piece) && piece[n] != '"' && piece[n] != '\\' && piece[n] != '\n' && piece[n] != '\r' {
		n++
	}
	return n
}

// Flush appends to dst what is held back. It is for the end of the body.
func (r *Restorer) Flush(dst []byte) []byte {
	dst = append(dst, r.held...)
	r.held = r.held[:0]
	return dst
}

// value appends what takes the place of the whole value that is held.
func (r *Restorer) value(dst []byte) []byte {
	if r.isServed(r.held) {
		r.held = r.held[:0]
		return append(dst, r.asked...)
	}
	return r.Flush(dst)
}

// isServed reports whether a string of JSON is the name that is replaced.
func (r *Restorer) isServed(raw []byte) bool {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1:len(raw)-1]) == r.served
	}
	var text string
	return json.Unmarshal(raw, &text) == nil && text == r.served
}

// byteOrderMark may stand before everything.
const byteOrderMark = "\xef\xbb\xbf"

func (r *Restorer) step(c byte) effect {
	if r.form == unknown && !isSpace(c) && strings.IndexByte(byteOrderMark, c) < 0 {
		if r.form = events; c == '{' {
			r.form = object
		}
	}
	switch r.form {
	case object:
		return r.doc.step(c)
	case events:
		return r.lineStep(c)
	}
	return passes
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// line is where in a line of server-sent events the body is.
type line struct {
	length   int  // bytes of the line so far, at most one more than those of dataField
	other    bool // it does not begin with dataField
	returned bool // the byte before was a carriage return, which ends a line as well
}

const dataField = "data:"

// lineStep takes a byte of server-sent events. An event may have its data in several lines; a blank one ends it.
func (r *Restorer) lineStep(c byte) effect {
	l := &r.line
	if c == '\n' && l.returned {
		l.returned = false
		return passes
	}
	l.returned = c == '\r'
	switch {
	case c == '\r' || c == '\n':
		return r.lineEnds()
	case l.other:
		return passes
	case l.length == len(dataField):
		return r.doc.step(c)
	case l.length == 0 && strings.IndexByte(byteOrderMark, c) >= 0:
		return passes
	}
	l.other = c != dataField[l.length]
	l.length++
	return passes
}

func (r *Restorer) lineEnds() effect {
	held := r.doc.state == inValue
	switch {
	case r.line.length == 0:
		r.doc = document{}
	case r.doc.state != between: // no string has a line break in it
		r.doc.state = broken
	}
	r.line = line{returned: r.line.returned}
	if held {
		return voids
	}
	return passes
}

// document is where in an object the body is. The zero document is before one.
type document struct {
	depth   int // of objects and arrays; the object itself is 1
	state   state
	due     due
	key     key
	inside  bool // depth 2 is an object that may have a model
	escaped bool // the last byte of a string was a backslash
}

type state uint8

const (
	between  state = iota
	inKey          // of an object that may have a model
	inValue        // a string that may be the name
	inString       // any other
	broken         // it is no object: nothing is changed up to the end of the event, or of the body
)

// due is what an object that may have a model goes on with.
type due uint8

const (
	commaDue due = iota
	keyDue
	colonDue
	valueDue
)

// key is a key as it came.
type key struct {
	raw    [48]byte // room for a wanted one however it is written
	length int      // longer than raw if it did not fit
	kind   keyKind
}

type keyKind uint8

const (
	otherKey keyKind = iota
	modelKey
	outerKey // its object may have a model
)

// looks reports whether the object in hand may have a model.
func (d *document) looks() bool { return d.depth == 1 || d.depth == 2 && d.inside }

func (d *document) step(c byte) effect {
	switch d.state {
	case between:
		return d.stepBetween(c)
	case inKey, inValue, inString:
		return d.stepString(c)
	case broken:
	}
	return passes
}

func (d *document) stepBetween(c byte) effect {
	switch c {
	case '"':
		return d.quoted()
	case '{', '[':
		d.open(c == '{')
	case '}', ']':
		if d.depth--; d.depth < 0 {
			d.state = broken
		}
		d.due = commaDue
	case ':':
		if d.looks() && d.due == colonDue {
			d.due = valueDue
		}
	case ',':
		d.due = keyDue
	default:
		if d.depth == 0 && !isSpace(c) && strings.IndexByte(byteOrderMark, c) < 0 {
			d.state = broken
		}
	}
	return passes
}

// quoted begins a string.
func (d *document) quoted() effect {
	d.escaped = false
	switch {
	case d.depth == 0:
		d.state = broken
	case d.looks() && d.due == keyDue:
		d.state, d.key.length = inKey, 0
	case d.looks() && d.due == valueDue && d.key.kind == modelKey:
		d.state = inValue
		return begins
	default:
		d.state = inString
	}
	return passes
}

// open begins an object or an array.
func (d *document) open(isObject bool) {
	switch d.depth {
	case 0:
		if !isObject {
			d.state = broken
		}
	case 1:
		d.inside = isObject && d.due == valueDue && d.key.kind == outerKey
	}
	d.depth++
	d.due = keyDue
}

func (d *document) stepString(c byte) effect {
	switch {
	case d.escaped:
		d.escaped = false
	case c == '\\':
		d.escaped = true
	case c == '"':
		return d.unquoted()
	}
	if d.state == inValue {
		return belongs
	}
	if d.state == inKey {
		d.key.add(c)
	}
	return passes
}

// unquoted ends a string.
func (d *document) unquoted() effect {
	was := d.state
	d.state, d.due = between, commaDue
	switch was {
	case inKey:
		d.key.kind, d.due = d.key.is(), colonDue
	case inValue:
		return ends
	}
	return passes
}

func (k *key) add(c byte) {
	if k.length < len(k.raw) {
		k.raw[k.length] = c
	}
	k.length = min(k.length+1, len(k.raw)+1)
}

func (k *key) is() keyKind {
	if k.length > len(k.raw) {
		return otherKey
	}
	raw := k.raw[:k.length]
	if bytes.IndexByte(raw, '\\') >= 0 {
		var text string
		if json.Unmarshal([]byte(`"`+string(raw)+`"`), &text) != nil {
			return otherKey
		}
		raw = []byte(text)
	}
	switch string(raw) {
	case "model":
		return modelKey
	case "message", "response":
		return outerKey
	}
	return otherKey
}
