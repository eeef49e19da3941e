package parsers

import (
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/messages"
)

// maxNameBytes is the longest model name and salt that is kept as it is, as written in the body.
const maxNameBytes = 1024

// Config of an OpenAI parser.
type Config struct {
	// Seed of the block hashes: one for the whole process, or prompts do not compare.
	Seed uint64
	// MaxBlocks is how many blocks of a prompt are hashed. 0 = blockindex.DefaultMaxBlocks.
	MaxBlocks int
}

// OpenAI reads the bodies of chat completions and completions, in every form that the API allows for their content.
// It has no state: any number of goroutines may share one.
type OpenAI struct{ config Config }

// NewOpenAI makes a parser.
func NewOpenAI(c Config) *OpenAI { return &OpenAI{config: c} }

type format uint8

const (
	unknownFormat format = iota
	chatFormat
	completionFormat
)

// Recognised says whether bodies sent to this path are parsed: those of chat/completions and of completions. The path may
// have anything before that, up to a slash, and a query behind.
func Recognised(path string) bool { return formatOf(path) != unknownFormat }

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

// readable says whether a body with these headers is meant to be JSON that we can see.
func readable(contentType, contentEncoding string) bool {
	if e := strings.TrimSpace(contentEncoding); e != "" && !strings.EqualFold(e, "identity") {
		return false
	}
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.TrimSpace(media)
	if media == "" || strings.EqualFold(media, "application/json") || strings.EqualFold(media, "text/json") {
		return true
	}
	const suffix = "+json"
	return len(media) > len(suffix) && strings.EqualFold(media[len(media)-len(suffix):], suffix)
}

// Parse fills into from a body: Model, Salt, Stream, Usage, PromptTokens, OutputTokens, Blocks, and nothing else.
//
// An error means that the client sent what no server can read, in one clause that names the byte: the path is recognised,
// the content type is JSON or absent, and the body is not JSON or not an object. Every other request may be served: if the
// path, the content type or the content encoding is another one or the body is empty, into stays as it is; a field that is
// missing or has the wrong type leaves its fact empty. A key that stands twice counts with its last value.
//
// The time is linear in the length of the body; allocated are Model, Salt and the list of blocks.
func (o *OpenAI) Parse(path, contentType, contentEncoding string, body []byte, into *messages.Request) error {
	f := formatOf(path)
	if f == unknownFormat || len(body) == 0 || !readable(contentType, contentEncoding) {
		return nil
	}
	r := reader{scanner: scanner{body: body}, format: f}
	r.hasher = blockindex.NewHasher(o.config.Seed, o.config.MaxBlocks)
	if !r.request() {
		return r.problem()
	}
	into.Model, into.Salt = r.model.name(), r.salt.secret(o.config.Seed)
	into.Stream, into.Usage = r.stream, r.usage || !r.stream
	into.PromptTokens = r.tokens + (r.promptBytes+3)/4
	into.OutputTokens = r.limit
	if r.newLimit > 0 {
		into.OutputTokens = r.newLimit
	}
	into.Blocks = r.hasher.Blocks()
	return nil
}

// text is a string of the body, as it is written; nil = none.
type text struct {
	raw     []byte
	escaped bool
}

// name is the text if it is one that names something. What is longer names no model.
func (t text) name() string {
	if len(t.raw) > maxNameBytes {
		return ""
	}
	return copyText(t.raw, t.escaped)
}

// secret is the text, or what stands for it: a salt keeps prompts apart however long it is.
func (t text) secret(seed uint64) string {
	if len(t.raw) <= maxNameBytes {
		return copyText(t.raw, t.escaped)
	}
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	_, _ = d.Write(t.raw) // never fails
	return "xxh64:" + strconv.FormatUint(d.Sum64(), 16)
}
