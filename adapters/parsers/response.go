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
	events eventScanner
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
		return &ResponseScanner{engine: true, answer: grpcbody.Answer{Embeds: api == messages.EngineEmbedAPI}}
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
	r.usage.meta, r.usage.outputAtEnd = api == messages.GenerateAPI, api == messages.MessagesAPI
	r.events.begun = r.events.begun || r.other
	return r
}

// is says how the body holds its objects.
func (r *ResponseScanner) is(form bodyerror.Form, events bool) {
	r.form, r.usage.lines.events = form, events
	r.err = bodyerror.New(r.api, form)
	if form == bodyerror.Object {
		r.events.begun, r.events.none = true, true
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

// noChoices is in the event of a stream that has its usage and no output.
var noChoices = []byte(`"choices":[]`)

func (r *ResponseScanner) look(p []byte) {
	if r.form == bodyerror.Due {
		if form, _ := bodyerror.FormOf(p); form != bodyerror.Due {
			r.is(form, form == bodyerror.Events)
		}
	}
	objects := r.usage.objects
	r.usage.Write(p)
	r.id.Write(p)
	r.events.Write(p)
	if r.usage.objects != objects && r.events.count > 0 && bytes.Contains(p, noChoices) {
		r.events.count--
	}
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

// Began reports whether output may have come: a stream may begin with comments and with events that have none.
func (r *ResponseScanner) Began() bool {
	if r.engine {
		return r.answer.Began()
	}
	return r.events.begun
}

// Events returns how many events of a stream with output have come; 0 of a body that is no stream. An event of the
// usage alone counts only if a piece ends within it.
func (r *ResponseScanner) Events() int {
	if r.engine {
		return r.answer.Chunks()
	}
	return r.events.count
}

// ID returns the id that the body gives the response, or nil if it has given none so far. It must not be written to.
func (r *ResponseScanner) ID() []byte { return r.id.ID() }

// ErrorStatus returns the HTTP status of an error that the body tells; 0 = there was none.
func (r *ResponseScanner) ErrorStatus() int { return r.err.Status() }

// preamble are the events with which streams of responses and messages begin before there is output.
var preamble = []string{
	"response.created", "response.queued", "response.in_progress", "response.output_item.added",
	"response.content_part.added", "message_start", "content_block_start", "ping",
}

// fields are those of server-sent events; a line that begins with a colon is a comment.
var fields = [][]byte{[]byte("data:"), []byte("event:"), []byte("id:"), []byte("retry:"), []byte(":")}

// eventScanner finds where output begins in a stream, and counts the events that have some. Output begins with the
// first event that has no name, or one that is not of the preamble, or with what is no event. Of the events those
// without a name count whose data is an object, which that of the end is not, and those whose name ends with delta, but
// for that of Anthropic's last usage. The body may be cut anywhere. The zero eventScanner is ready.
type eventScanner struct {
	begun bool
	none  bool // the body is no stream
	count int  // events with output whose data has come

	silent  bool     // the event in hand has a name of the preamble
	outputs event    // whether it has output
	counted bool     // it was counted
	line    [48]byte // the line in hand, as far as it is of interest, if a piece ended within it
	length  int      // of it; longer than the array if it did not fit
}

// event says what the name of an event tells of its output.
type event uint8

const (
	unnamed event = iota // it has output if its data is an object
	delta
	other
)

// Write looks at the next piece of the body, and keeps nothing of it.
func (e *eventScanner) Write(p []byte) {
	if e.usual(p) {
		e.count++
		return
	}
	for len(p) > 0 && !e.none {
		end := bytes.IndexByte(p, '\n')
		switch {
		case end < 0:
			e.keep(p)
			if !e.begun {
				e.begins(e.kept(), false)
			}
			return
		case e.length == 0:
			e.take(p[:end])
		default:
			e.keep(p[:end])
			e.take(e.kept())
			e.length = 0
		}
		p = p[end+1:]
	}
}

// usual reports whether a piece is one event without a name, as nearly all pieces are, which takes one search to see.
func (e *eventScanner) usual(p []byte) bool {
	const begin = "data: {"
	end := len(p) - len("\n\n")
	return e.begun && !e.none && e.length == 0 && e.outputs == unnamed && !e.counted && end > len(begin) &&
		string(p[:len(begin)]) == begin && p[end+1] == '\n' && bytes.IndexByte(p, '\n') == end
}

func (e *eventScanner) keep(part []byte) {
	n := copy(e.line[min(e.length, len(e.line)):], part)
	if e.length += n; n < len(part) {
		e.length = len(e.line) + 1
	}
}

func (e *eventScanner) kept() []byte { return e.line[:min(e.length, len(e.line))] }

// take takes a whole line, or its first bytes.
func (e *eventScanner) take(line []byte) {
	if !e.begun {
		e.begins(line, true)
	}
	switch {
	case len(line) == 0 || len(line) == 1 && line[0] == '\r': // the event has ended
		e.silent, e.outputs, e.counted = false, unnamed, false
	case line[0] == 'd' && !e.counted && e.outputs != other && hasPrefix(line, "data:"):
		data := bytes.TrimLeft(line[len("data:"):], " ")
		if e.counted = e.outputs == delta || len(data) > 0 && data[0] == '{'; e.counted {
			e.count++
		}
	case line[0] == 'e' && hasPrefix(line, "event:"):
		e.outputs = other
		if name := bytes.TrimSpace(line[len("event:"):]); bytes.HasSuffix(name, []byte("delta")) &&
			string(name) != "message_delta" {
			e.outputs = delta
		}
	}
}

func hasPrefix(line []byte, field string) bool {
	return len(line) >= len(field) && string(line[:len(field)]) == field
}

// begins looks for the begin of output in a line. whole says that it has ended.
func (e *eventScanner) begins(line []byte, whole bool) {
	name, isName := bytes.CutPrefix(line, []byte("event:"))
	switch {
	case isName && whole:
		name = bytes.TrimSpace(name)
		e.silent = slices.ContainsFunc(preamble, func(of string) bool { return of == string(name) })
		e.begun = !e.silent
	case isName || len(bytes.TrimSpace(line)) == 0:
	case bytes.HasPrefix(line, []byte("data:")):
		e.begun = !e.silent
	default:
		e.begun = !slices.ContainsFunc(fields, func(field []byte) bool {
			return bytes.HasPrefix(line, field) || !whole && bytes.HasPrefix(field, line)
		})
	}
}
