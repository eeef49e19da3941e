package parsers

import (
	"bytes"
	"strings"

	"github.com/signalbox-epp/signalbox/messages"
)

// ResponseScanner looks for everything that the body of a response says about itself. It never allocates. It is not
// for concurrent use.
type ResponseScanner struct {
	usage  UsageScanner
	err    ErrorScanner
	id     IDScanner
	events bool // server-sent: elsewhere a client could have a server say anything
}

// NewResponseScanner returns a scanner for a body of this content type; "" = unknown.
func NewResponseScanner(contentType string) *ResponseScanner {
	kind, _, _ := strings.Cut(contentType, ";")
	r := &ResponseScanner{events: kind == "" || strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")}
	r.usage.lines.events = r.events
	return r
}

// Write looks at the next piece of the body, and keeps nothing of it.
func (r *ResponseScanner) Write(p []byte) {
	r.usage.Write(p)
	r.id.Write(p)
	if r.events {
		r.err.Write(p)
	}
}

// Usage returns what the last complete usage object said.
func (r *ResponseScanner) Usage() messages.Usage { return r.usage.Usage() }

// ID returns the id that the body gives the response, or nil if it has given none so far. It must not be written to.
func (r *ResponseScanner) ID() []byte { return r.id.ID() }

// ErrorStatus returns the HTTP status that an error event of the body names; 0 = there was none.
func (r *ResponseScanner) ErrorStatus() int { return r.err.Status() }

// errorBegin is what an event begins with that tells of an error, blanks left out.
const errorBegin = `data:{"error":{`

// ErrorScanner finds the first error in server-sent events that names a status from 400 to 599, as its number "code":
// engines tell of one in the stream if it comes after the headers. Only an event that is an error is looked into, so
// that nothing a client had echoed is taken for one. The body may be cut anywhere. The zero ErrorScanner is ready.
type ErrorScanner struct {
	state   errorState
	matched int  // bytes of errorBegin
	depth   int  // of objects and arrays within the error; the error itself is 1
	quoted  int  // bytes of the string in hand, its quote included; 0 = none
	code    bool // that string, or the one before, begins like "code"
	named   bool // that was a key, and its value is due
	number  int  // that value so far; -1 = none
	escaped bool // the last byte was a backslash
	status  int
}

type errorState uint8

const (
	lineBegins errorState = iota
	lineEnds              // the line is of no interest
	inError
)

// Status returns the HTTP status that the error names; 0 = none was found.
func (e *ErrorScanner) Status() int { return e.status }

// Write looks at the next piece of the body, and keeps nothing of it.
func (e *ErrorScanner) Write(p []byte) {
	for len(p) > 0 && e.status == 0 {
		if e.state == lineEnds {
			i := bytes.IndexByte(p, '\n')
			if i < 0 {
				return
			}
			p = p[i:]
		}
		e.step(p[0])
		p = p[1:]
	}
}

func (e *ErrorScanner) step(c byte) {
	switch {
	case c == '\n': // no JSON of an event goes on behind it
		*e = ErrorScanner{status: e.status}
	case e.state == inError && e.quoted > 0:
		e.stepString(c)
	case e.state == inError:
		e.stepObject(c)
	case c == ' ':
	case c != errorBegin[e.matched]:
		e.state = lineEnds
	default:
		if e.matched++; e.matched == len(errorBegin) {
			e.state, e.depth, e.number = inError, 1, -1
		}
	}
}

const codeKey = `"code"`

func (e *ErrorScanner) stepString(c byte) {
	e.code = e.code && e.quoted < len(codeKey) && c == codeKey[e.quoted]
	e.quoted++
	switch {
	case e.escaped:
		e.escaped = false
	case c == '\\':
		e.escaped = true
	case c == '"':
		e.code = e.code && e.quoted == len(codeKey)
		e.quoted = 0
	}
}

func (e *ErrorScanner) stepObject(c byte) {
	switch {
	case e.named && c >= '0' && c <= '9':
		e.number = min(max(e.number, 0)*10+int(c-'0'), 600)
		return
	case c == ' ' && e.number < 0: // between the colon and the number too
		return
	}
	// A number ends with one of these.
	if (c == ',' || c == '}' || c == ' ') && e.number >= 400 && e.number <= 599 {
		e.status = e.number
		return
	}
	e.named, e.number = false, -1
	switch c {
	case '"':
		e.quoted, e.code = 1, true
	case ':':
		e.named = e.code && e.depth == 1
	case '{', '[':
		e.depth++
	case '}', ']':
		e.depth--
		if e.depth == 0 {
			e.state = lineEnds
		}
	}
}
