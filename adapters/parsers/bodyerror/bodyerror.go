// Package bodyerror finds the errors that the bodies of responses tell of, though their headers told of none.
package bodyerror

import (
	"bytes"
	"strings"

	"github.com/signalbox-epp/signalbox/messages"
)

// byteOrderMark may stand before everything.
var byteOrderMark = []byte("\xef\xbb\xbf")

// namedStatus has the HTTP status of errors that have a name and no status of their own. Those of Anthropic's API come
// first, then those of OpenAI's, then those of vLLM. An overload, which is 529 in Anthropic's, is the 503 of model
// servers.
var namedStatus = map[string]int{
	"invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403,
	"not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429, "timeout_error": 504,
	"overloaded_error": 503, "api_error": 500,
	"server_error": 500, "internal_error": 500, "internal_server_error": 500, "rate_limit_exceeded": 429,
	"insufficient_quota": 429, "vector_store_timeout": 504, "service_unavailable": 503, "unavailable_error": 503,
	"InternalServerError": 500, "ServiceUnavailableError": 503, "BadRequestError": 400, "NotFoundError": 404,
	"UnprocessableEntityError": 422, "NotImplementedError": 501,
}

// Scanner finds the first error that the body of a response tells, though its headers told of none: engines tell
// of one there if it comes after them. The body is server-sent events or one JSON object, which its first byte tells.
//
// Only what a server writes of its own accord is looked into, whatever a client had it echo:
//
//	{"error": {"code": …, "type": …}}                                 all APIs
//	{"type": "error", "code": …}, {"object": "error", "code": …}      all APIs; or an event named error
//	{"response": {"error": …}}, {"type": "response.failed"}           responses
//	{"meta_info": {"finish_reason": {"type": "abort", "status_code": …}}}   generate of SGLang
//
// The status is the number that the error names, or else the one that its name stands for. An error that names neither
// is one of the server, of SGLang one of the client. A response that is incomplete is no error.
//
// The body may be cut anywhere. The zero Scanner is ready for an API that is not known; it never allocates. Not
// for concurrent use.
type Scanner struct {
	api        messages.API
	form       Form
	status     int // of the first error; 0 = none was found
	line       line
	doc        document
	top, inner told
}

// New returns a Scanner for the answer to a request of this API, in a body of this form.
func New(api messages.API, form Form) Scanner {
	s := Scanner{api: api, form: form}
	if form == Object {
		s.line.state = lineData
	}
	return s
}

// line is where in a line of server-sent events the body is. One JSON object is a line of its own.
type line struct {
	state  lineState
	length int     // bytes of the name of the field so far, or of an event's
	name   [8]byte // that name, as far as it fits
	event  named   // what the name of the event in hand says
}

// document is where in JSON the body is. The zero document is before an object.
type document struct {
	depth   int       // of objects and arrays
	at      [4]within // the objects in hand, by depth; those deeper are of no interest
	quoted  bool      // within a string
	escaped bool      // its last byte was a backslash
	text    [28]byte  // the last string
	size    int       // its length; longer than the array if it did not fit
	key     member    // whose value is due
	number  int       // the one in hand; 0 = none, -1 = none that is a status
}

// Form is how a body holds its objects.
type Form uint8

const (
	Due    Form = iota // its first byte tells
	Events             // in the data of server-sent events
	Object             // it is one
)

// lineState is what part of a line the body is in.
type lineState uint8

const (
	lineBegins lineState = iota // within the name of the field
	lineNames                   // within the name of the event
	lineData
	lineEnds // the line is of no interest
)

// named is what the name of an event, or of its type, says.
type named uint8

const (
	namedNothing named = iota
	namedError         // it is one
	namedFailed        // its response has failed
)

// within is an object that may say something of an error.
type within uint8

const (
	inOther within = iota // it does not, or is an array
	inTop
	inError
	inResponse
	inMeta
	inFinish
)

// member is a member of such an object.
type member uint8

const (
	otherMember member = iota
	codeMember
	typeMember
	objectMember
	statusMember
	statusCodeMember
	errorMember
	responseMember
	metaMember
	finishMember
)

// members are the members by their names.
var members = map[string]member{
	"code": codeMember, "type": typeMember, "object": objectMember, "status": statusMember,
	"status_code": statusCodeMember, "error": errorMember, "response": responseMember, "meta_info": metaMember,
	"finish_reason": finishMember,
}

// told is what an object says of an error.
type told struct {
	is       named
	aborted  bool
	status   int  // the number that it names
	byCode   int  // the status of its code
	byType   int  // the status of its type
	hasCode  bool // its code is a text
	hasError bool // it is an error, or has one
}

// of returns the HTTP status of an error of this API.
func (f *told) of(api messages.API) int {
	switch {
	case f.status > 0:
		return f.status
	case f.byCode > 0:
		return f.byCode
	case f.byType > 0:
		return f.byType
	case f.hasCode, api == messages.GenerateAPI: // the names of what a client can do wrong have no end
		return 400
	}
	return 500
}

// Status returns the HTTP status that the error names, or that its name stands for; 0 = none was found.
func (e *Scanner) Status() int { return e.status }

// Write looks at the next piece of the body, and keeps nothing of it.
func (e *Scanner) Write(p []byte) {
	if e.form == Due {
		e.form, p = FormOf(p)
		if e.form == Object {
			e.line.state = lineData
		}
	}
	if e.form == Events && e.line == (line{}) && e.doc.depth == 0 {
		p = p[e.clean(p):]
	}
	for len(p) > 0 && e.status == 0 {
		switch {
		case e.line.state == lineEnds && e.form == Object:
			return
		case e.line.state == lineEnds:
			i := bytes.IndexByte(p, '\n')
			if i < 0 {
				return
			}
			e.lineBreak()
			p = p[i+1:]
		case e.doc.quoted:
			p = e.string(p)
		default:
			e.step(p[0])
			p = p[1:]
		}
	}
}

// clean returns the length of p if it ends with an event that is whole, and cannot tell of an error, as nearly all
// pieces do: it lacks the words without which nothing does. Else it returns 0. p begins with an event. Of the words
// their rarer letters are looked for, at which the search seldom halts.
func (e *Scanner) clean(p []byte) int {
	if !bytes.HasSuffix(p, []byte("\n\n")) && !bytes.HasSuffix(p, []byte("\n\r\n")) {
		return 0
	}
	switch {
	case bytes.Contains(p, []byte("rror")):
	case e.responses() && bytes.Contains(p, []byte("failed")):
	case e.api == messages.GenerateAPI && bytes.Contains(p, []byte("bort")):
	default:
		return len(p)
	}
	return 0
}

// responses reports whether the body is one of OpenAI's responses.
func (e *Scanner) responses() bool {
	return e.api == messages.ResponsesAPI
}

// FormOf returns the form of a body by its first byte that is no blank, and the body from there on.
func FormOf(p []byte) (Form, []byte) {
	for i, c := range p {
		switch {
		case c == '{' || c == '[':
			return Object, p[i:]
		case c != ' ' && c != '\t' && c != '\r' && c != '\n' && bytes.IndexByte(byteOrderMark, c) < 0:
			return Events, p[i:]
		}
	}
	return Due, nil
}

func (e *Scanner) step(c byte) {
	switch {
	case c == '\n' && e.form == Events:
		e.lineBreak()
	case e.line.state == lineData:
		e.stepData(c)
	case c == ' ' || c == '\r':
	case e.line.state == lineBegins && c == ':':
		e.field()
	default:
		if e.line.length < len(e.line.name) {
			e.line.name[e.line.length] = c
		}
		e.line.length = min(e.line.length+1, len(e.line.name)+1)
	}
}

// field looks at the name of a field.
func (e *Scanner) field() {
	switch string(e.line.name[:min(e.line.length, len(e.line.name))]) {
	case "data":
		e.line.state = lineData
	case "event":
		e.line.state = lineNames
	default:
		e.line.state = lineEnds
	}
	e.line.length = 0
}

// lineBreak ends a line. The data of an event may go on in another one, but not within a text. A blank line ends the
// event.
func (e *Scanner) lineBreak() {
	switch {
	case e.line.state == lineNames:
		e.line.event = nameOf(e.line.name[:min(e.line.length, len(e.line.name))])
	case e.line.state == lineBegins && e.line.length == 0:
		e.line.event, e.doc.depth = namedNothing, 0
	case e.line.state == lineData:
		e.endNumber()
	}
	if e.doc.quoted {
		e.doc.quoted, e.doc.depth = false, 0
	}
	e.line = line{event: e.line.event}
}

// nameOf returns what the name of an event says. That of a failed response does not fit, and is told by its type.
func nameOf(event []byte) named {
	if string(event) == "error" {
		return namedError
	}
	return namedNothing
}

// string takes bytes of a string, and returns those behind.
func (e *Scanner) string(p []byte) []byte {
	if e.doc.escaped {
		e.doc.escaped = false
		e.keep(p[:1])
		return p[1:]
	}
	part, end := p, bytes.IndexByte(p, '"')
	if end >= 0 {
		part = p[:end]
	}
	if i := bytes.IndexByte(part, '\\'); i >= 0 {
		e.doc.escaped = true
		e.keep(part[:i+1])
		return p[i+1:]
	}
	if i := bytes.IndexByte(part, '\n'); i >= 0 && e.form == Events { // no string has a line break in it
		e.lineBreak()
		return p[i+1:]
	}
	e.keep(part)
	if end < 0 {
		return nil
	}
	e.doc.quoted = false
	if e.doc.key != otherMember {
		e.value()
	}
	return p[end+1:]
}

// keep keeps bytes of a string, if the object in hand is of interest.
func (e *Scanner) keep(p []byte) {
	if e.within() == inOther {
		return
	}
	if e.doc.size < len(e.doc.text) {
		copy(e.doc.text[e.doc.size:], p)
	}
	e.doc.size = min(e.doc.size+len(p), len(e.doc.text)+1)
}

// within returns the object in hand.
func (e *Scanner) within() within {
	if e.doc.depth == 0 || e.doc.depth > len(e.doc.at) {
		return inOther
	}
	return e.doc.at[e.doc.depth-1]
}

// last returns the last string, as far as it fits.
func (e *Scanner) last() []byte { return e.doc.text[:min(e.doc.size, len(e.doc.text))] }

// stepData takes a byte of JSON that is not within a string.
func (e *Scanner) stepData(c byte) {
	switch {
	case c == ' ' || c == '\t' || c == '\r' || c == '\n':
		e.endNumber()
	case e.doc.depth == 0 && c != '{':
		e.line.state = lineEnds
	case c == '"':
		e.doc.quoted, e.doc.size = true, 0
	case c == '{' || c == '[':
		e.open(c)
	case c == '}' || c == ']':
		if e.endNumber(); e.status == 0 {
			e.close()
		}
	case e.within() == inOther:
	case c == ':':
		e.doc.key = members[string(e.last())]
	case c == ',':
		e.endNumber()
		e.doc.key = otherMember
	case isDigit(c) && e.doc.number >= 0:
		e.doc.number = min(e.doc.number*10+int(c-'0'), 600)
	default:
		e.doc.number = -1
	}
}

// open steps into an object or array.
func (e *Scanner) open(c byte) {
	in := inOther
	if c == '{' {
		in = e.child()
	}
	if e.doc.depth < len(e.doc.at) {
		e.doc.at[e.doc.depth] = in
	}
	e.doc.depth++
	e.doc.key, e.doc.number, e.doc.size = otherMember, 0, 0
	switch in {
	case inTop:
		e.top = told{is: e.line.event}
	case inError, inFinish:
		e.inner = told{}
	case inOther, inResponse, inMeta:
	}
}

// child returns what the object is that is the value in hand.
func (e *Scanner) child() within {
	if e.doc.depth == 0 {
		return inTop
	}
	switch in := e.within(); {
	case in == inTop && e.doc.key == errorMember, in == inResponse && e.doc.key == errorMember:
		return inError
	case in == inTop && e.doc.key == responseMember && e.responses():
		return inResponse
	case in == inTop && e.doc.key == metaMember && e.api == messages.GenerateAPI:
		return inMeta
	case in == inMeta && e.doc.key == finishMember:
		return inFinish
	}
	return inOther
}

// close steps out of an object or array. What an object says counts once it is whole.
func (e *Scanner) close() {
	switch e.within() {
	case inError:
		e.status = e.inner.of(e.api)
	case inFinish:
		if e.inner.aborted {
			e.status = e.inner.status
		}
	case inTop:
		if e.top.is == namedError || e.top.hasError {
			e.status = e.top.of(e.api)
		} else if e.top.is == namedFailed && e.responses() {
			e.status = 500
		}
	case inOther, inResponse, inMeta:
	}
	e.doc.depth--
	e.doc.key = otherMember
	if e.doc.depth == 0 {
		e.line.state = lineEnds
	}
}

// endNumber ends the number in hand. A status of an error counts at once: what tells of it may be cut.
func (e *Scanner) endNumber() {
	number := e.doc.number
	e.doc.number = 0
	if number < 400 || number > 599 {
		return
	}
	switch in := e.within(); {
	case in == inError && e.doc.key == codeMember:
		e.status = number
	case in == inFinish && e.doc.key == statusCodeMember:
		e.inner.status = number
	case in == inTop && e.doc.key == codeMember:
		e.top.status = number
	}
}

// value takes the text that is the value of a member.
func (e *Scanner) value() {
	text := e.last()
	switch in := e.within(); in {
	case inTop, inResponse:
		if in == inTop {
			e.top.take(e.doc.key, text)
		}
		if e.doc.key == statusMember && string(text) == "failed" && e.responses() && e.top.is == namedNothing {
			e.top.is = namedFailed
		}
	case inError, inFinish:
		e.inner.take(e.doc.key, text)
	case inOther, inMeta:
	}
	e.doc.key = otherMember
}

// take takes the text that is the value of a member.
func (f *told) take(key member, text []byte) {
	switch key {
	case codeMember:
		f.hasCode, f.byCode = true, namedStatus[string(text)]
		if len(text) == 3 && (text[0] == '4' || text[0] == '5') && isDigit(text[1]) && isDigit(text[2]) {
			f.byCode = int(text[0]-'0')*100 + int(text[1]-'0')*10 + int(text[2]-'0')
		}
	case typeMember:
		f.byType, f.aborted = namedStatus[string(text)], string(text) == "abort"
		switch string(text) {
		case "error":
			f.is = namedError
		case "response.failed":
			f.is = namedFailed
		}
	case objectMember:
		f.hasError = f.hasError || string(text) == "error"
	case errorMember:
		f.hasError = f.hasError || strings.TrimSpace(string(text)) != ""
	case otherMember, statusMember, statusCodeMember, responseMember, metaMember, finishMember:
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
