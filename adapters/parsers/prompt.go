package parsers

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
)

// Marks stand between the parts of a prompt in what is hashed, so that parts which are cut differently do not collide.
const (
	markOpen  = 1 // an object or array begins
	markClose = 2 // it ends
	markKey   = 3 // behind an object key
	markValue = 4 // behind a string, number or word
)

// mark writes p and a mark.
func (r *reader) mark(m byte, p []byte) {
	r.hasher.Write(p)
	r.chunk[0] = m
	r.hasher.Write(r.chunk[:1])
}

// feed reads a value of any kind and hashes it: decoded, without white space, with its keys and marks. Bytes of
// strings, numbers and words count as prompt, and those of media as media.
func (r *reader) feed() bool {
	switch r.peek() {
	case '{':
		r.mark(markOpen, nil)
		return r.feedMembers(true)
	case '[':
		r.mark(markOpen, nil)
		for more := r.open(']'); more; more = r.next(']') {
			if !r.feed() {
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
		r.feedString(raw, escaped)
		return true
	}
	word, ok := r.scalar()
	r.mark(markValue, word)
	r.promptBytes += len(word)
	return ok
}

func (r *reader) feedString(raw []byte, escaped bool) {
	if r.at == atMedium {
		r.media++
		r.addItem(raw, escaped)
	}
	if r.at == atMedium && len(raw) > mediaBytes {
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
				r.feedString(raw, escaped)
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
	before, around := r.promptBytes, r.at
	isType, hasTexts := string(key) == "type", !r.asWritten && string(key) == "content" // reading may overwrite key
	if r.asWritten {
		before += len(key)
		r.promptBytes = before
	}
	r.at = r.placeBehind(key)
	var ok bool
	if hasTexts {
		ok = r.feedTexts()
	} else {
		ok = r.feed()
	}
	r.at = around
	if isType && !r.asWritten { // it is no text
		r.promptBytes = before
	}
	return ok
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
		return r.feed()
	}
	for more := r.open(']'); more; more = r.next(']') {
		var ok bool
		if r.peek() == '{' {
			ok = r.feedMembers(false)
		} else {
			ok = r.feed()
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
		r.feedString(raw, escaped)
		r.mark(markClose, nil)
		r.role = text{}
		return true
	}
	defer func() { r.at = elsewhere }()
	for more := r.open(']'); more; more = r.next(']') {
		var ok bool
		if r.at = inMessage; r.peek() == '{' {
			r.messageBegins(r.roleAhead())
			ok = r.feedMembers(true)
		} else {
			ok = r.feed()
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
	r.feedText(role.raw, role.escaped)
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
		return r.feed()
	}
	r.mark(markKey, key)
	before, named := r.promptBytes, r.peek() != '['
	ok := r.feed()
	if named {
		r.promptBytes = before
	}
	return ok
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
