package parsers

import (
	"bytes"
	"slices"
	"strings"

	"github.com/signalbox-epp/signalbox/adapters/parsers/grpcbody"
	"github.com/signalbox-epp/signalbox/messages"
)

// ResponseScanner looks for everything that the body of a response says about itself. It never allocates. It is not
// for concurrent use.
type ResponseScanner struct {
	usage  UsageScanner
	err    ErrorScanner
	id     IDScanner
	begin  beginScanner
	events bool // server-sent: elsewhere a client could have a server say anything
	engine bool // the body is an answer of vLLM's own service
	answer grpcbody.Answer
	bodies *grpcbody.Bodies // takes the body out of the answer to a call of Vertex; nil = it is not in one
}

// NewResponseScanner returns a scanner for a body of this content type that answers a request of this API; "" = the
// content type is unknown.
func NewResponseScanner(api messages.API, contentType string) *ResponseScanner {
	var bodies *grpcbody.Bodies
	switch api {
	case messages.EngineAPI, messages.EngineEmbedAPI:
		r := &ResponseScanner{engine: true, answer: grpcbody.Answer{Embeds: api == messages.EngineEmbedAPI}}
		r.begin.begun = true
		return r
	case messages.VertexChatAPI:
		api, contentType, bodies = messages.ChatAPI, "", new(grpcbody.Bodies)
	case messages.VertexResponsesAPI:
		api, contentType, bodies = messages.ResponsesAPI, "", new(grpcbody.Bodies)
	}
	kind, _, _ := strings.Cut(contentType, ";")
	r := &ResponseScanner{events: kind == "" || strings.EqualFold(strings.TrimSpace(kind), "text/event-stream"),
		bodies: bodies}
	r.usage.lines.events = r.events
	r.usage.meta = api == messages.GenerateAPI
	r.begin.begun = !r.events || api != messages.ResponsesAPI && api != messages.MessagesAPI
	return r
}

// Write looks at the next piece of the body, and keeps nothing of it.
func (r *ResponseScanner) Write(p []byte) {
	switch {
	case r.engine:
		r.answer.Write(p)
	case r.bodies != nil:
		r.bodies.Write(p, (*unwrapped)(r))
	default:
		r.look(p)
	}
}

// unwrapped takes a body that was in another one.
type unwrapped ResponseScanner

func (u *unwrapped) Write(p []byte) (int, error) {
	(*ResponseScanner)(u).look(p)
	return len(p), nil
}

func (r *ResponseScanner) look(p []byte) {
	r.usage.Write(p)
	r.id.Write(p)
	r.begin.Write(p)
	if r.events {
		r.err.Write(p)
	}
}

// Usage returns what the last complete usage object said.
func (r *ResponseScanner) Usage() messages.Usage {
	if r.engine {
		return r.answer.Usage()
	}
	return r.usage.Usage()
}

// Began reports whether output may have come: some APIs begin a stream with events that have none.
func (r *ResponseScanner) Began() bool { return r.begin.begun }

// ID returns the id that the body gives the response, or nil if it has given none so far. It must not be written to.
func (r *ResponseScanner) ID() []byte { return r.id.ID() }

// ErrorStatus returns the HTTP status that an error event of the body names; 0 = there was none.
func (r *ResponseScanner) ErrorStatus() int { return r.err.Status() }

// preamble are the events with which streams of responses and messages begin before there is output.
var preamble = []string{
	"response.created", "response.queued", "response.in_progress", "response.output_item.added",
	"response.content_part.added", "message_start", "content_block_start", "ping",
}

// beginScanner finds the first event that may have output: the first one that has no name, or one that is not of the
// preamble. The body may be cut anywhere. The zero beginScanner is ready.
type beginScanner struct {
	begun  bool
	named  bool     // the event in hand has a name, of the preamble
	line   [48]byte // the one in hand, as far as it is of interest
	length int      // of it; longer than the array if it did not fit
}

// Write looks at the next piece of the body, and keeps nothing of it.
func (b *beginScanner) Write(p []byte) {
	for len(p) > 0 && !b.begun {
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part = p[:end]
		}
		n := copy(b.line[min(b.length, len(b.line)):], part)
		if b.length += n; n < len(part) {
			b.length = len(b.line) + 1
		}
		b.look(end >= 0)
		if end < 0 {
			return
		}
		p, b.length = p[end+1:], 0
	}
}

// look looks at the line in hand. whole says that it has ended.
func (b *beginScanner) look(whole bool) {
	line := b.line[:min(b.length, len(b.line))]
	name, isName := bytes.CutPrefix(line, []byte("event:"))
	switch {
	case isName && whole:
		name = bytes.TrimSpace(name)
		b.named = slices.ContainsFunc(preamble, func(of string) bool { return of == string(name) })
		b.begun = !b.named
	case whole && len(bytes.TrimSpace(line)) == 0: // the event has ended
		b.named = false
	case bytes.HasPrefix(line, []byte("data:")):
		b.begun = !b.named
	case len(line) > 0 && !isName && !bytes.ContainsRune([]byte("ed:ir\r \t"), rune(line[0])): // no event
		b.begun = true
	}
}

// errorBegin is what an event begins with that tells of an error, blanks left out. That of Anthropic's API is
// typedBegin, which differs from it at byte beginsDiffer.
const (
	errorBegin   = `data:{"error":{`
	typedBegin   = `data:{"type":"error","error":{`
	beginsDiffer = len(`data:{"`)
)

// typedStatus has the status of the types of errors of Anthropic's API. Others are errors of the server. An overload,
// which is 529 there, is the 503 of model servers.
var typedStatus = map[string]int{
	"invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403,
	"not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429, "timeout_error": 504,
	"overloaded_error": 503,
}

// ErrorScanner finds the first error in server-sent events that names a status from 400 to 599, as its number "code",
// or by its "type" in the API of Anthropic: engines tell of one in the stream if it comes after the headers. Only an
// event that is an error is looked into, so that nothing a client had echoed is taken for one. The body may be cut
// anywhere. The zero ErrorScanner is ready.
type ErrorScanner struct {
	state   errorState
	typed   bool // it began like typedBegin
	matched int  // bytes of the begin
	depth   int  // of objects and arrays within the error; the error itself is 1
	quoted  int  // bytes of the string in hand, its quote included; 0 = none
	code    bool // that string, or the one before, begins like the key that is wanted
	named   bool // that was a key, and its value is due
	number  int  // that value so far; -1 = none
	escaped bool // the last byte was a backslash
	kind    kind // the value of "type"
	status  int
}

// kind is a string as it comes.
type kind struct {
	text   [24]byte
	length int // of what is in text
	due    bool
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
	default:
		e.stepBegin(c)
	}
}

// stepBegin takes a byte of what an event begins with.
func (e *ErrorScanner) stepBegin(c byte) {
	if e.matched == beginsDiffer {
		e.typed = c == typedBegin[beginsDiffer]
	}
	begin := errorBegin
	if e.typed {
		begin = typedBegin
	}
	if c != begin[e.matched] {
		e.state = lineEnds
		return
	}
	if e.matched++; e.matched == len(begin) {
		e.state, e.depth, e.number = inError, 1, -1
	}
}

const (
	codeKey = `"code"`
	typeKey = `"type"` // as long as codeKey
)

func (e *ErrorScanner) stepString(c byte) {
	key := codeKey
	if e.typed {
		key = typeKey
	}
	e.code = e.code && e.quoted < len(key) && c == key[e.quoted]
	e.quoted++
	if e.kind.due {
		e.stepKind(c)
	}
	switch {
	case e.escaped:
		e.escaped = false
	case c == '\\':
		e.escaped = true
	case c == '"':
		e.code = e.code && e.quoted == len(key)
		e.quoted = 0
	}
}

// stepKind takes a byte of the type of an error, or the quote behind it.
func (e *ErrorScanner) stepKind(c byte) {
	k := &e.kind
	switch {
	case c == '"' && !e.escaped:
		status, known := typedStatus[string(k.text[:min(k.length, len(k.text))])]
		if !known {
			status = 500
		}
		e.status = status
	case k.length < len(k.text):
		k.text[k.length] = c
		k.length++
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
	named := e.named
	e.named, e.number = false, -1
	switch c {
	case '"':
		e.quoted, e.code = 1, true
		e.kind = kind{due: named && e.typed}
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
