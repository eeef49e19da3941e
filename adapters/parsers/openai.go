package parsers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/messages"
)

// maxNameBytes is the longest model name and salt that is kept as it is, as written in the body.
const maxNameBytes = 1024

// byteOrderMark stands before the JSON of some clients. Model servers read past it, vLLM among them.
var byteOrderMark = []byte("\xef\xbb\xbf")

// Config holds the settings of an OpenAI parser.
type Config struct {
	// Seed is the seed of the block hashes. It is one for the whole process, because hashes with different seeds do
	// not compare.
	Seed uint64
	// MaxDecodedBytes is how long the text of a body with a content encoding may be: as long as a body without one, or
	// encoding would be a way around that limit. 0 = 32 MiB.
	MaxDecodedBytes int
}

// OpenAI reads the bodies of chat completions and completions, in every form that the API allows for their content, and
// the model of forms, such as those of audio transcriptions. Any number of goroutines may share one.
type OpenAI struct {
	config   Config
	decoders *decoders
}

// NewOpenAI returns a parser.
func NewOpenAI(c Config) *OpenAI {
	if c.MaxDecodedBytes <= 0 {
		c.MaxDecodedBytes = 32 << 20
	}
	return &OpenAI{config: c, decoders: newDecoders(c.MaxDecodedBytes)}
}

type format uint8

const (
	unknownFormat format = iota
	chatFormat
	completionFormat
	formFormat // multipart/form-data
)

func formatOf(path string) format {
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	path = strings.TrimSuffix(path, "/")
	rest, ok := strings.CutSuffix(path, "completions")
	switch {
	case !ok || rest != "" && !strings.HasSuffix(rest, "/"):
		return unknownFormat
	case rest == "chat/" || strings.HasSuffix(rest, "/chat/"):
		return chatFormat
	}
	return completionFormat
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

// Parse fills into from a body: Model, Salt, Stream, Usage, Form, PromptTokens, Media,
// OutputTokens, Blocks, and nothing else. Of a form (multipart/form-data, on any path) it fills Model.
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
func (o *OpenAI) Parse(path, contentType, contentEncoding string, body []byte, into *messages.Request) error {
	f := formatOf(path)
	switch {
	case f != unknownFormat && isJSON(contentType):
	case isForm(contentType):
		f = formFormat
	default:
		return nil
	}
	if len(body) == 0 {
		return nil
	}
	if contentEncoding == "" {
		return o.read(f, contentType, body, into)
	}
	return o.readEncoded(f, contentType, contentEncoding, body, into)
}

func (o *OpenAI) readEncoded(f format, contentType, contentEncoding string, body []byte, into *messages.Request) error {
	list, ok := codings(contentEncoding)
	if !ok {
		return nil
	}
	if list.n == 0 {
		return o.read(f, contentType, body, into)
	}
	err := o.decoders.read(list, body, func(text []byte) error {
		if len(text) == 0 {
			return nil
		}
		return o.read(f, contentType, text, into)
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
// The text is nil for a body of which Parse takes no model, for one with a content encoding, and for a form without a
// model.
func (o *OpenAI) Rename(path, contentType, contentEncoding string, body []byte, model string) (from, to int,
	text []byte) {
	if list, ok := codings(contentEncoding); !ok || list.n > 0 {
		return 0, 0, nil
	}
	switch {
	case formatOf(path) != unknownFormat && isJSON(contentType):
		return renameObject(body, model)
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

// renameObject is Rename for a JSON object.
func renameObject(body []byte, model string) (from, to int, text []byte) {
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
		isModel := string(key) == "model"
		s.peek()
		start := s.pos
		if !ok || !s.skip() {
			return 0, 0, nil
		}
		if members = true; isModel {
			from, to, found = start, s.pos, true
		}
	}
	switch {
	case s.want != "":
		return 0, 0, nil
	case found:
		return from, to, quote(model)
	}
	text = append([]byte(`"model":`), quote(model)...)
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
func (o *OpenAI) read(f format, contentType string, body []byte, into *messages.Request) error {
	if f == formFormat {
		if model := (text{raw: formModel(contentType, body)}).name(); model != "" {
			into.Model = model
		}
		return nil
	}
	if isWide(body) {
		return nil
	}
	r := reader{scanner: scanner{body: body}, format: f}
	// stepped over, not cut off: positions in errors count from the first byte
	if bytes.HasPrefix(body, byteOrderMark) {
		r.pos = len(byteOrderMark)
	}
	r.hasher = blockindex.NewHasher(o.config.Seed)
	if !r.request() {
		return r.problem()
	}
	into.Model, into.Salt = r.model.name(), r.salt.secret(o.config.Seed)
	into.Stream, into.Usage, into.Form = r.stream, r.usage || !r.stream, r.answer()
	into.PromptTokens, into.Media = r.tokens+(r.promptBytes+3)/4, r.media
	into.OutputTokens = r.limit
	if r.newLimit > 0 {
		into.OutputTokens = r.newLimit
	}
	into.Blocks = r.hasher.Blocks()
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
