// Package parsers reads the request and response bodies of the inference APIs. It owns the rules by which bytes become
// the facts of messages.Request and messages.Usage.
//
// A request body is read once, front to back, by a scanner that builds no tree: what is not needed is checked and
// skipped. An encoded body is decoded into memory of the package for as long as it is read; what that costs is bounded.
// A response body is looked at for its usage object only, piece by piece, whatever the pieces. The package never keeps
// a slice of a body, never changes a byte of one, never decides what a client is answered, and does no I/O.
package parsers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/signalbox-epp/signalbox/adapters/parsers/grpcbody"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/messages"
)

// maxNameBytes is the longest model name and salt that is kept as it is, as written in the body.
const maxNameBytes = 1024

// byteOrderMark stands before the JSON of some clients. Model servers read past it, vLLM among them.
var byteOrderMark = []byte("\xef\xbb\xbf")

// Config holds the settings of a parser.
type Config struct {
	// Seed is the seed of the block hashes. It is one for the whole process, because hashes with different seeds do
	// not compare.
	Seed uint64
	// MaxDecodedBytes is how long the text of a body with a content encoding may be: as long as a body without one, or
	// encoding would be a way around that limit. 0 = 32 MiB.
	MaxDecodedBytes int
}

// Parser reads the bodies of requests in every form that their APIs allow for their content, and the model of forms,
// such as those of audio transcriptions. Any number of goroutines may share one.
type Parser struct {
	config   Config
	formats  Formats
	items    bool // the media of messages are hashed, too
	decoders *decoders
}

// New returns a parser of all formats.
func New(c Config) *Parser {
	if c.MaxDecodedBytes <= 0 {
		c.MaxDecodedBytes = 32 << 20
	}
	return &Parser{config: c, formats: Every, decoders: newDecoders(c.MaxDecodedBytes)}
}

// Of returns a parser of these formats that decodes in the same memory.
func (p *Parser) Of(formats Formats) *Parser {
	return &Parser{config: p.config, formats: formats, decoders: p.decoders}
}

// WithItems returns the parser with Items among the facts that it fills.
func (p *Parser) WithItems() *Parser {
	with := *p
	with.items = true
	return &with
}

// isJSON reports whether a body of this content type is meant to be JSON; without one it is.
func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.TrimSpace(media)
	if media == "" || strings.EqualFold(media, "application/json") || strings.EqualFold(media, "text/json") {
		return true
	}
	const suffix = "+json"
	return len(media) > len(suffix) && strings.EqualFold(media[len(media)-len(suffix):], suffix)
}

// Parse fills into from a body: Model, Salt, Stream, Usage, Form, PromptTokens, Media, Hints,
// OutputTokens, Blocks, with WithItems also Items, and nothing else. Of a form (multipart/form-data, on any path), and
// of a JSON object with a model on a path that is not recognised, it fills what is known without a prompt.
//
// A body with a content encoding is decoded for this, within the limits of this package: gzip, br, zstd,
// and lists of them.
//
// An error means that the client sent what no server can read, in one clause that names the byte: the path is
// recognised, the content type is JSON or absent, and the body is not JSON or not an object. Every other request may be
// served: if the path or the content type is another one, the body is empty or cannot be decoded, or a form is broken,
// into stays as it is; a field that is missing or has the wrong type leaves its fact empty. A key that stands twice
// counts with its last value. A byte order mark before the object is stepped over, and changes no fact and no block;
// UTF-16 and UTF-32 stay unread.
//
// The time is linear in the length of the body, and of its text if it is encoded; allocated are Model, Salt and the
// list of blocks.
func (p *Parser) Parse(path, contentType, contentEncoding string, body []byte, into *messages.Request) error {
	f := p.formats.formatOf(path)
	switch {
	case f.isGRPC():
		if !grpcbody.IsType(contentType) || contentEncoding != "" || len(body) == 0 {
			return nil
		}
		return p.readCall(f, body, into)
	case isForm(contentType):
		f = formFormat
	case !isJSON(contentType) || len(body) == 0:
		return nil
	case f == unknownFormat:
		p.readUnknown(contentEncoding, body, into)
		return nil
	}
	if len(body) == 0 {
		return nil
	}
	if contentEncoding == "" {
		return p.read(f, contentType, body, into)
	}
	return p.readEncoded(f, contentType, contentEncoding, body, into)
}

// readUnknown fills into from a body that goes to a path which is not recognised, if it is an object with a model, as
// those of scores, reranking, classification, pooling and tokenizing are. Any other one is no mistake there.
func (p *Parser) readUnknown(contentEncoding string, body []byte, into *messages.Request) {
	read, scan := *into, p.read
	if contentEncoding != "" {
		scan = func(f format, contentType string, body []byte, into *messages.Request) error {
			return p.readEncoded(f, contentType, contentEncoding, body, into)
		}
	}
	err := scan(namedFormat, "", body, &read)
	if err == nil && read.Model != "" {
		*into = read
	}
}

func (p *Parser) readEncoded(f format, contentType, contentEncoding string, body []byte, into *messages.Request) error {
	list, ok := codings(contentEncoding)
	if !ok {
		return nil
	}
	if list.n == 0 {
		return p.read(f, contentType, body, into)
	}
	err := p.decoders.read(list, body, func(text []byte) error {
		if len(text) == 0 {
			return nil
		}
		return p.read(f, contentType, text, into)
	})
	if err == nil || errors.Is(err, errNotDecoded) {
		return nil
	}
	return fmt.Errorf("once decoded, %w", err)
}

// Rename returns what to put in the place of the bytes from..to of a body, so that it names another model and is the
// same otherwise. Of a model that stands twice that is the last value, which Parse takes too; a JSON object without a
// model gets one as its first member.
//
// The text is nil for a body of which Parse takes no model, for one with a content encoding, for a form without a
// model, and for one of SGLang without, which has no such member and refuses what it does not know.
func (p *Parser) Rename(path, contentType, contentEncoding string, body []byte, model string) (from, to int,
	text []byte) {
	if list, ok := codings(contentEncoding); !ok || list.n > 0 {
		return 0, 0, nil
	}
	switch f := p.formats.formatOf(path); {
	case f.isGRPC():
		return 0, 0, nil
	case isJSON(contentType):
		from, to, text = setMember(body, "model", quote(model))
		if f == generateFormat && from == to {
			return 0, 0, nil
		}
		return from, to, text
	case isForm(contentType):
		value := formModel(contentType, body)
		if value == nil {
			return 0, 0, nil
		}
		from = cap(body) - cap(value) // value is a part of body
		return from, from + len(value), []byte(model)
	}
	return 0, 0, nil
}

// SetPriority returns what to put in the place of the bytes from..to of a body, so that its top object has this
// priority, and not another one that it came with, and is the same otherwise.
//
// The text is nil for a body of a format that model servers do not schedule by priority, for one that is no whole JSON
// object, and for one with a content encoding.
func (p *Parser) SetPriority(path, contentType, contentEncoding string, body []byte, priority int) (from, to int,
	text []byte) {
	if list, ok := codings(contentEncoding); !ok || list.n > 0 || !isJSON(contentType) ||
		!p.formats.formatOf(path).hasPriority() && !pools(path) {
		return 0, 0, nil
	}
	return setMember(body, "priority", strconv.AppendInt(nil, int64(priority), 10))
}

// setMember returns what to put in the place of the bytes from..to of a JSON object, so that its member of this name
// has this value. Of one that stands twice that is the last value; an object without it gets it as its first member.
// The text is nil for what is no object.
func setMember(body []byte, name string, value []byte) (from, to int, text []byte) {
	s := scanner{body: body}
	if bytes.HasPrefix(body, byteOrderMark) {
		s.pos = len(byteOrderMark)
	}
	if s.peek() != '{' {
		return 0, 0, nil
	}
	first, members, found := s.pos+1, false, false
	for more := s.open('}'); more; more = s.next('}') {
		key, ok := s.key()
		isWanted := string(key) == name
		s.peek()
		start := s.pos
		if !ok || !s.skip() {
			return 0, 0, nil
		}
		if members = true; isWanted {
			from, to, found = start, s.pos, true
		}
	}
	switch {
	case s.want != "":
		return 0, 0, nil
	case found:
		return from, to, value
	}
	text = append([]byte(`"`+name+`":`), value...)
	if members {
		text = append(text, ',')
	}
	return first, first, text
}

// quote returns a text as JSON has it.
func quote(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // never fails for a string
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// read reads the text of a body.
func (p *Parser) read(f format, contentType string, body []byte, into *messages.Request) error {
	if f == formFormat {
		if model := (text{raw: formModel(contentType, body)}).name(); model != "" {
			into.Model = model
		}
		return nil
	}
	if isWide(body) {
		return nil
	}
	r := reader{scanner: scanner{body: body}, format: f.wrapped(), wantsItems: p.items}
	// stepped over, not cut off: positions in errors count from the first byte
	if bytes.HasPrefix(body, byteOrderMark) {
		r.pos = len(byteOrderMark)
	}
	r.hasher = blockindex.NewHasher(p.config.Seed)
	if !r.request() {
		return r.problem()
	}
	into.Model, into.Salt = r.model.name(), r.salt.secret(p.config.Seed)
	r.fill(into)
	if f != r.format { // it is rendered, and not answered
		into.Form, into.Hints, into.OutputTokens = messages.AnswerForm{}, messages.OutputHints{}, 0
	}
	return nil
}

// fill fills into with what was read, except for the model and the salt.
func (r *reader) fill(into *messages.Request) {
	into.Stream, into.Usage, into.Form = r.stream, r.usage || !r.stream || r.format.tells(), r.answer()
	if r.format == namedFormat {
		return
	}
	into.PromptTokens, into.Media = r.tokens+(r.promptBytes+3)/4, r.media
	into.OutputTokens, into.Items = r.limit, messages.TakeList(r.items)
	if r.format == chatFormat {
		into.Hints = r.hints
	}
	if r.newLimit > 0 {
		into.OutputTokens = r.newLimit
	}
	if r.format != imageFormat { // the server keeps nothing of its prompt
		r.hasher.KeepApart(r.apart())
		into.Blocks, into.Rest = r.hasher.Blocks(), r.hasher.Rest()
	}
}

// readCall reads the body of a call of gRPC.
func (p *Parser) readCall(f format, body []byte, into *messages.Request) error {
	message, err := grpcbody.Message(body)
	if err != nil || message == nil {
		return err
	}
	if f == engineFormat || f == engineEmbedFormat {
		r := reader{format: f, hasher: blockindex.NewHasher(p.config.Seed)}
		if err := r.engineCall(message); err != nil {
			return err
		}
		r.fill(into)
		return nil
	}
	inner, err := grpcbody.Wrapped(message)
	if err != nil || len(inner) == 0 {
		return err
	}
	if err := p.read(f.wrapped(), "", inner, into); err != nil {
		return fmt.Errorf("within the HttpBody, %w", err)
	}
	if into.Form.API != messages.UnknownAPI { // it is not in UTF-16
		into.Form.API = f.api()
	}
	return nil
}

// isWide reports whether a body is in UTF-16 or UTF-32, which model servers in Python decode: by a byte order mark, or
// by a zero among the first two bytes, which begin an object.
func isWide(body []byte) bool {
	if len(body) < 2 {
		return false
	}
	return body[0] == 0 || body[1] == 0 || body[0] == 0xff && body[1] == 0xfe || body[0] == 0xfe && body[1] == 0xff
}

// text is a string of the body, as it is written; nil = none.
type text struct {
	raw     []byte
	escaped bool
}

// name returns the text if it can name a model. A longer one names none.
func (t text) name() string {
	if len(t.raw) > maxNameBytes {
		return ""
	}
	return copyText(t.raw, t.escaped)
}

// secret returns the text or, if it is long, what stands for it: a salt keeps prompts apart however long it is.
func (t text) secret(seed uint64) string {
	if len(t.raw) <= maxNameBytes {
		return copyText(t.raw, t.escaped)
	}
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	_, _ = d.Write(t.raw) // never fails
	return "xxh64:" + strconv.FormatUint(d.Sum64(), 16)
}
