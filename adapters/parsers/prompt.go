package parsers

import (
	"bytes"
	"encoding/binary"
	"slices"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/messages"
)

// Marks stand between the parts of a prompt in what is hashed, so that parts which are cut differently do not collide.
const (
	markOpen  = 1 // an object or array begins
	markClose = 2 // it ends
	markKey   = 3 // behind an object key
	markValue = 4 // behind a string, number or word
)

// mediaBytes is what an image, sound or file in a message stands for at most: 256 tokens. The bytes of its transport
// say nothing about its tokens, and would push the text behind it out of the hashed part.
const mediaBytes = 1024

// mark writes p and a mark.
func (r *reader) mark(m byte, p []byte) {
	r.hasher.Write(p)
	r.chunk[0] = m
	r.hasher.Write(r.chunk[:1])
}

// feed reads a value of any kind and hashes it: decoded, without white space, with its keys and marks. Bytes of
// strings, numbers and words count as prompt. media says that a long string is an image, a sound or a file.
func (r *reader) feed(media bool) bool {
	switch r.peek() {
	case '{':
		r.mark(markOpen, nil)
		return r.feedMembers(true)
	case '[':
		r.mark(markOpen, nil)
		for more := r.open(']'); more; more = r.next(']') {
			if !r.feed(false) {
				return false
			}
		}
		r.mark(markClose, nil)
		return r.want == ""
	case '"':
		raw, escaped, ok := r.str()
		if !ok {
			return false
		}
		r.feedString(raw, escaped, media)
		return true
	}
	word, ok := r.scalar()
	r.mark(markValue, word)
	r.promptBytes += len(word)
	return ok
}

func (r *reader) feedString(raw []byte, escaped, media bool) {
	if media && !r.asWritten {
		r.media++
		r.addItem(raw, escaped)
	}
	if media && len(raw) > mediaBytes {
		r.feedMedia(raw)
	} else {
		r.feedText(raw, escaped)
	}
	r.mark(markValue, nil)
}

// feedMembers reads the members of an object, and marks its end. If the object is not marked as open yet, it is marked
// with the first member that is not its text: one that holds a text alone is hashed like that text.
func (r *reader) feedMembers(opened bool) bool {
	kind, role := r.kind, r.role
	r.role = text{}
	for more := r.open('}'); more; more = r.next('}') {
		key, ok := r.key()
		switch {
		case !ok:
			return false
		case r.isLeftOut(key), role.raw != nil && string(key) == "role":
			if !r.skip() {
				return false
			}
		case !r.asWritten && string(key) == "text" && r.peek() == '"':
			raw, escaped, ok := r.str()
			if !ok {
				return false
			}
			if !r.isSystem || !bytes.HasPrefix(raw, billing) {
				r.feedString(raw, escaped, false)
			}
		default:
			if !opened {
				opened = true
				r.mark(markOpen, nil)
			}
			if !r.feedMember(key) {
				return false
			}
		}
	}
	r.kind = kind
	if opened {
		r.mark(markClose, nil)
	}
	return r.want == ""
}

// feedMember reads the value of a member.
func (r *reader) feedMember(key []byte) bool {
	r.mark(markKey, key)
	if r.wantsItems {
		r.kind = r.kindBehind(key, r.kind)
	}
	before, marker := r.promptBytes, isMarker(key) // reading the value may overwrite key
	if r.asWritten {
		before += len(key)
		r.promptBytes = before
	}
	if !r.asWritten && string(key) == "content" {
		return r.feedTexts()
	}
	if !r.feed(isMedia(key)) {
		return false
	}
	if marker && !r.asWritten {
		r.promptBytes = before
	}
	return true
}

// billing is what a text of Claude Code's system prompt begins with that is new with each request. Engines leave it
// out.
var billing = []byte("x-anthropic-billing-header")

// isLeftOut reports whether a member is not in the prompt. Everywhere that is what says where to cache, which clients
// move from turn to turn. In messages it is what says nothing, and the type of what a text and a role show to be one.
func (r *reader) isLeftOut(key []byte) bool {
	switch {
	case string(key) == "cache_control":
		return true
	case r.asWritten:
		return false
	case r.peek() == 'n':
		return true
	case string(key) != "type":
		return false
	}
	for _, word := range [...]string{`"text"`, `"input_text"`, `"output_text"`, `"message"`} {
		if bytes.HasPrefix(r.body[r.pos:], []byte(word)) {
			return true
		}
	}
	return false
}

// feedTexts reads a text, or a list of texts and media. A text is hashed as a list of that text alone is.
func (r *reader) feedTexts() bool {
	if r.peek() != '[' {
		return r.feed(false)
	}
	for more := r.open(']'); more; more = r.next(']') {
		var ok bool
		if r.peek() == '{' {
			ok = r.feedMembers(false)
		} else {
			ok = r.feed(false)
		}
		if !ok {
			return false
		}
	}
	return r.want == ""
}

// turns reads messages. A text is hashed as a message of the user with that text is.
func (r *reader) turns() bool {
	if r.peek() == '"' {
		raw, escaped, ok := r.str()
		if !ok {
			return false
		}
		r.messageBegins(text{raw: user})
		r.mark(markKey, contentKey)
		r.feedString(raw, escaped, false)
		r.mark(markClose, nil)
		r.role = text{}
		return true
	}
	for more := r.open(']'); more; more = r.next(']') {
		var ok bool
		if r.peek() == '{' {
			r.messageBegins(r.roleAhead())
			ok = r.feedMembers(true)
		} else {
			ok = r.feed(false)
		}
		if !ok {
			return false
		}
	}
	return r.want == ""
}

var roleKey, contentKey, user = []byte("role"), []byte("content"), []byte("user")

// messageBegins hashes the beginning of a message with its role, if that is not read in its place.
func (r *reader) messageBegins(role text) {
	r.mark(markOpen, nil)
	if r.role = role; role.raw == nil {
		return
	}
	r.mark(markKey, roleKey)
	before := r.promptBytes
	r.feedText(role.raw, role.escaped)
	r.promptBytes = before
	r.mark(markValue, nil)
}

// roleAhead returns the role of the message that comes if other members stand before it, for engines begin a message
// with it. Of a message that begins with its role, and of one without, it returns none.
func (r *reader) roleAhead() (role text) {
	if bytes.HasPrefix(r.body[r.pos:], []byte(`{"role"`)) {
		return text{}
	}
	ahead := r.scanner
	for more := ahead.open('}'); more; more = ahead.next('}') {
		key, ok := ahead.key()
		switch {
		case !ok, string(key) == "type" && !bytes.HasPrefix(ahead.body[ahead.pos:], []byte(`"message"`)):
			return text{} // items of another type have no role
		case string(key) == "role" && ahead.peek() == '"':
			raw, escaped, _ := ahead.str()
			return text{raw: raw, escaped: escaped}
		case !ahead.skip():
			return text{}
		}
	}
	return text{}
}

// written reads a member that templates print as JSON. The name of earlier turns is no text, unlike the turns
// themselves.
func (r *reader) written(of blockindex.Part, key []byte) bool {
	r.asWritten = true
	if of != blockindex.History {
		return r.feed(false)
	}
	r.mark(markKey, key)
	before, named := r.promptBytes, r.peek() != '['
	ok := r.feed(false)
	if named {
		r.promptBytes = before
	}
	return ok
}

// kindBehind returns of what kind the media are that stand in the value of a key, or, behind a type, beside it. If
// neither says so, kind is what stands around them.
func (r *reader) kindBehind(key []byte, kind messages.MediumKind) messages.MediumKind {
	says := key
	if string(key) == "type" || string(key) == "media_type" {
		if r.peek() != '"' {
			return kind
		}
		says = r.body[r.pos+1:]
	}
	says = bytes.TrimPrefix(says, []byte("input_"))
	for _, of := range mediumWords {
		if bytes.HasPrefix(says, []byte(of.word)) {
			return of.kind
		}
	}
	return kind
}

// mediumWords are what keys and types begin with that say what kind of medium they are of.
var mediumWords = [...]struct {
	word string
	kind messages.MediumKind
}{
	{"image", messages.Image}, {"audio", messages.Audio}, {"video", messages.Video}, {"file", messages.File},
	{"document", messages.File},
}

// hint looks at the value of a key of chat_template_kwargs, which is read next.
func (r *reader) hint(key []byte) {
	switch string(key) {
	case "enable_thinking":
		is := r.peek()
		r.hints.Thinking, r.hints.NoThinking = is == 't', is == 'f'
	case "thinking_budget":
		r.peek()
		end := r.pos
		for end < len(r.body) && r.body[end] >= '0' && r.body[end] <= '9' {
			end++
		}
		r.hints.ThinkingTokens = 0
		if end > r.pos {
			r.hints.ThinkingTokens = count(r.body[r.pos:end])
		}
	}
}

// isMarker reports whether the value of a key in a message says what stands beside it, and is no text itself.
func isMarker(key []byte) bool { return string(key) == "role" || string(key) == "type" }

// isMedia reports whether messages carry media under a key: image_url.url, input_audio.data, file.file_data.
func isMedia(key []byte) bool {
	switch string(key) {
	case "url", "data", "file_data", "image_url":
		return true
	}
	return false
}

// feedMedia hashes the fingerprint of the bytes, repeated, instead of the bytes.
func (r *reader) feedMedia(raw []byte) {
	sum := xxhash.Sum64(raw)
	for i := 0; i < len(r.chunk); i += 8 {
		binary.LittleEndian.PutUint64(r.chunk[i:], sum)
	}
	for range mediaBytes / len(r.chunk) {
		r.hasher.Write(r.chunk[:])
	}
	r.promptBytes += mediaBytes
}

// maxItems is how many media of a request are told apart.
const maxItems = 64

// addItem adds a medium, by the hash of its text as it would be decoded, if it is wanted and new.
func (r *reader) addItem(raw []byte, escaped bool) {
	if !r.wantsItems || len(r.items) == maxItems {
		return
	}
	sum := xxhash.Sum64(raw)
	if escaped {
		sum = xxhash.Sum64String(copyText(raw, true))
	}
	if !slices.ContainsFunc(r.items, func(m messages.Medium) bool { return m.Hash == sum }) {
		r.items = append(r.items, messages.Medium{Hash: sum, Kind: r.kind})
	}
}

// feedText hashes a string of the body, decoded. Bytes that are not UTF-8 are hashed as they are.
func (r *reader) feedText(raw []byte, escaped bool) {
	if !escaped {
		r.hasher.Write(raw)
		r.promptBytes += len(raw)
		return
	}
	for len(raw) > 0 {
		n := bytes.IndexByte(raw, '\\')
		if n < 0 {
			n = len(raw)
		}
		r.hasher.Write(raw[:n])
		r.promptBytes += n
		raw = raw[n:]
		if len(raw) > 0 {
			raw = r.feedEscapes(raw)
		}
	}
}

// feedEscapes hashes the escapes that raw begins with, and returns what stands behind them.
func (r *reader) feedEscapes(raw []byte) []byte {
	out := r.chunk[:0]
	for len(raw) > 0 && raw[0] == '\\' {
		char, size := unescape(raw)
		raw = raw[size:]
		out = utf8.AppendRune(out, char)
		if len(out) > len(r.chunk)-utf8.UTFMax {
			out = r.flush(out)
		}
	}
	r.flush(out)
	return raw
}

// flush hashes what was decoded, and returns its memory for what comes next.
func (r *reader) flush(out []byte) []byte {
	r.hasher.Write(out)
	r.promptBytes += len(out)
	return out[:0]
}

// prompt reads the prompt of a completion: a string, strings, tokens, or arrays of tokens. Several prompts of one
// request are hashed one behind the other; the first one is what other requests can share.
func (r *reader) prompt() bool {
	switch r.peek() {
	case '"':
		raw, escaped, ok := r.str()
		if ok {
			r.feedText(raw, escaped)
		}
		return ok
	case '[':
	default:
		return r.skip()
	}
	for more := r.open(']'); more; more = r.next(']') {
		if !r.promptItem() {
			return false
		}
	}
	return r.want == ""
}

func (r *reader) promptItem() bool {
	switch r.peek() {
	case '"':
		raw, escaped, ok := r.str()
		if ok {
			r.form.prompts++
			r.feedText(raw, escaped)
			r.mark(markValue, nil)
		}
		return ok
	case '[':
		r.form.prompts++
		for more := r.open(']'); more; more = r.next(']') {
			if !r.token() {
				return false
			}
		}
		r.mark(markValue, nil)
		return r.want == ""
	}
	return r.token()
}

// token reads one token of a prompt: 4 bytes of what is hashed, wrapped if it is none.
// Anything but a number is skipped.
func (r *reader) token() bool {
	if c := r.peek(); c != '-' && (c < '0' || c > '9') {
		return r.skip()
	}
	digits, ok := r.number()
	if !ok {
		return false
	}
	n := uint32(0)
	for _, c := range digits {
		n = n*10 + uint32(c-'0')
	}
	r.feedToken(n)
	return true
}

func (r *reader) feedToken(token uint32) {
	r.tokens++
	r.hasher.Write(binary.LittleEndian.AppendUint32(r.chunk[:0], token))
}
