package parsers

import (
	"bytes"

	"github.com/signalbox-epp/signalbox/messages"
)

// ResponseScanner looks for all that the body of a response says about itself. The zero ResponseScanner is ready; it never allocates. Not for
// concurrent use.
type ResponseScanner struct {
	usage UsageScanner
	err   ErrorScanner
}

// Write looks at the next piece of the body, and keeps nothing of it.
func (r *ResponseScanner) Write(p []byte) {
	r.usage.Write(p)
	r.err.Write(p)
}

// Usage is what the last whole usage object said.
func (r *ResponseScanner) Usage() messages.Usage { return r.usage.Usage() }

// ErrorStatus is the HTTP status that an event of the body names; 0 = none.
func (r *ResponseScanner) ErrorStatus() int { return r.err.Status() }

// What an event that tells of an error begins with, and what names its status, blanks left out. In JSON the bytes of the second can only be
// an object key: inside a string its quotes would be escaped.
const (
	errorBegin = `data:{"error":`
	codeKey    = `"code":`
)

// ErrorScanner finds the first error in server-sent events that names a status from 400 to 599: engines tell of one in the stream if it comes
// after the headers. Only an event that is an error is looked into, so that nothing a client had echoed is taken for one. The body may be cut
// anywhere. The zero ErrorScanner is ready.
type ErrorScanner struct {
	state  errorState
	at     int // bytes of errorBegin or codeKey that were seen
	number int
	status int
}

type errorState uint8

const (
	lineBegins  errorState = iota
	lineEnds               // the line is of no interest
	errorEvent             // codeKey is looked for
	codeFollows            // its number
)

// Status is the HTTP status that the error names; 0 = none was found.
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
	case c == '\n':
		e.endCode()
		e.state, e.at = lineBegins, 0
	case e.state == codeFollows && c >= '0' && c <= '9':
		e.number = min(e.number*10+int(c-'0'), 600)
	case e.state == codeFollows && (c != ' ' || e.number > 0):
		e.endCode()
		e.state = errorEvent
	case c == ' ':
	case e.state == lineBegins:
		e.stepBegin(c)
	case e.state == errorEvent:
		e.stepKey(c)
	}
}

func (e *ErrorScanner) stepBegin(c byte) {
	if c != errorBegin[e.at] {
		e.state = lineEnds
		return
	}
	if e.at++; e.at == len(errorBegin) {
		e.state, e.at = errorEvent, 0
	}
}

func (e *ErrorScanner) stepKey(c byte) {
	switch c {
	case codeKey[e.at]:
		e.at++
	case codeKey[0]: // a string begins, or ended
		e.at = 1
	default:
		e.at = 0
	}
	if e.at == len(codeKey) {
		e.state, e.at, e.number = codeFollows, 0, 0
	}
}

// endCode takes the number that has ended for the status, if it can be one.
func (e *ErrorScanner) endCode() {
	if e.state == codeFollows && e.number >= 400 && e.number <= 599 {
		e.status = e.number
	}
	e.number = 0
}
