package parsers

import (
	"bytes"
	"slices"
	"strings"

	"github.com/signalbox-epp/signalbox/adapters/parsers/bodyerror"
	"github.com/signalbox-epp/signalbox/adapters/parsers/grpcbody"
	"github.com/signalbox-epp/signalbox/messages"
)

// ResponseScanner looks for everything that the body of a response says about itself. It never allocates. It is not
// for concurrent use.
type ResponseScanner struct {
	api    messages.API
	usage  UsageScanner
	err    bodyerror.Scanner
	id     IDScanner
	begin  beginScanner
	form   bodyerror.Form
	other  bool // the body may be anything: a client could have a server say what it wants
	engine bool // the body is an answer of vLLM's own service
	answer grpcbody.Answer
	bodies *grpcbody.Bodies // takes the body out of the answer to a call of Vertex; nil = it is not in one
}

// NewResponseScanner returns a scanner for a body that answers a request of this API. The API says how the body is
// read, and its first byte whether it is server-sent events. The content type, "" if it is unknown, counts for an API
// that is not known: errors are looked for in server-sent events then, and nowhere else.
func NewResponseScanner(api messages.API, contentType string) *ResponseScanner {
	var bodies *grpcbody.Bodies
	switch api {
	case messages.EngineAPI, messages.EngineEmbedAPI:
		r := &ResponseScanner{engine: true, answer: grpcbody.Answer{Embeds: api == messages.EngineEmbedAPI}}
		r.begin.begun = true
		return r
	case messages.VertexChatAPI:
		api, bodies = messages.ChatAPI, new(grpcbody.Bodies)
	case messages.VertexResponsesAPI:
		api, bodies = messages.ResponsesAPI, new(grpcbody.Bodies)
	}
	r := &ResponseScanner{api: api, bodies: bodies}
	if kind, _, _ := strings.Cut(contentType, ";"); api == messages.UnknownAPI && kind != "" {
		events := strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
		r.other = !events
		r.is(bodyerror.Events, events)
	}
	r.usage.meta = api == messages.GenerateAPI
	r.begin.begun = r.begin.begun || api != messages.ResponsesAPI && api != messages.MessagesAPI
	return r
}

// is says how the body holds its objects.
func (r *ResponseScanner) is(form bodyerror.Form, events bool) {
	r.form, r.usage.lines.events = form, events
	r.err = bodyerror.New(r.api, form)
	if form == bodyerror.Object {
		r.begin.begun = true
	}
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
	if r.form == bodyerror.Due {
		if form, _ := bodyerror.FormOf(p); form != bodyerror.Due {
			r.is(form, form == bodyerror.Events)
		}
	}
	r.usage.Write(p)
	r.id.Write(p)
	r.begin.Write(p)
	if !r.other {
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

// ErrorStatus returns the HTTP status of an error that the body tells; 0 = there was none.
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
