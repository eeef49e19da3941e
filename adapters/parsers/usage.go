package parsers

import (
	"bytes"
	"math"

	"github.com/signalbox-epp/signalbox/messages"
)

// usageKey begins what a response says about its tokens. In JSON these seven bytes, without a backslash before and with
// a colon behind, can only be an object key: inside a string the quotes would be escaped. SGLang's own answers have it
// under metaKey.
const (
	usageKey = `"usage"`
	metaKey  = `"meta_info"`
)

// usageLetters and metaLetters are the last letters of these keys.
var usageLetters, metaLetters = []byte(`ge"`), []byte(`fo"`)

// UsageScanner finds the token usage of a response in its body, JSON or server-sent events, as it passes: it reads the
// usage objects, in the names of chat completions or in those of responses and messages, and looks at nothing else. Of
// several objects the last value of each field counts. The body may be cut anywhere. The zero UsageScanner is ready; it
// keeps some 200 bytes and never allocates. Not for concurrent use.
type UsageScanner struct {
	lines lines
	meta  bool // the objects have the name of SGLang

	state   usageState
	matched int  // bytes of the key seen while searching
	last    byte // the byte before those

	depth   int      // of objects and arrays; the usage object itself is 1
	key     [28]byte // the last string
	keyLen  int      // its length; longer than the array if it did not fit
	escaped bool     // the last byte was a backslash
	details bool     // inside prompt_tokens_details, or input_tokens_details
	number  int      // the one in hand; -1 = not a whole number
	named   bool     // the last string was a key

	found, usage reported // with those of the object being read, and of whole ones alone
	filled       bool     // the object being read has one
	objects      int      // that were whole
}

// reported are the tokens that objects have named so far. Of the prompt Anthropic names three parts.
type reported struct {
	any                   bool
	prompt, output        int
	cached                int
	cacheRead, cacheWrite int
	cachedKnown           bool // cached or cacheRead was named
}

// usage returns the tokens in the words of messages.
func (r *reported) usage() (u messages.Usage) {
	if r.any {
		u = messages.Usage{
			Source: messages.UsageReported, PromptTokens: r.prompt + r.cacheRead + r.cacheWrite,
			CachedTokens: max(r.cached, r.cacheRead), CachedKnown: r.cachedKnown, OutputTokens: r.output,
		}
	}
	return u
}

type usageState uint8

const (
	searching  usageState = iota
	afterKey              // the key is there; its colon is due
	afterColon            // its object is due
	inObject
	inString
	inNumber
)

// Usage returns what complete usage objects said. A number that was missing in all is zero, and of the cached tokens it
// is told that they were missing; NoUsage = there was no object.
func (u *UsageScanner) Usage() messages.Usage {
	usage := u.usage.usage()
	usage.OwnBytes = u.lines.own
	return usage
}

// wanted returns the name of the objects.
func (u *UsageScanner) wanted() string {
	if u.meta {
		return metaKey
	}
	return usageKey
}

// Write looks at the next piece of the body, and keeps nothing of it.
func (u *UsageScanner) Write(p []byte) {
	for len(p) > 0 {
		rest := p
		if u.state == searching {
			rest = u.search(p)
		} else if u.step(p[0]) {
			rest = p[1:]
		}
		u.lines.pass(p[:len(p)-len(rest)])
		p = rest
	}
}

// lines measures the line of server-sent events in which a usage object stands. The zero lines measures nothing.
type lines struct {
	events bool  // the body has lines at all
	due    bool  // the end of a line with a usage object is due
	length int64 // of the line in hand so far
	own    int64 // of the last whole line with a usage object, with the blank line behind; 0 = none
}

// pass counts bytes that were looked at.
func (l *lines) pass(p []byte) {
	if !l.events || len(p) == 0 {
		return
	}
	if l.due {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			l.length += int64(len(p))
			return
		}
		l.own, l.due = l.length+int64(end)+2, false
	}
	if last := bytes.LastIndexByte(p, '\n'); last >= 0 {
		l.length, p = 0, p[last+1:]
	}
	l.length += int64(len(p))
}

// search looks for the key and returns what stands behind it.
func (u *UsageScanner) search(p []byte) []byte {
	key := u.wanted()
	for u.matched > 0 && len(p) > 0 { // the piece before ended within the key
		if p[0] != key[u.matched] {
			u.last, u.matched = key[u.matched-1], 0
			break
		}
		u.matched++
		p = p[1:]
		if u.matched == len(key) {
			u.begin()
			return p
		}
	}
	for len(p) > 0 {
		i := indexKey(p, key)
		if i < 0 {
			u.keepTail(p)
			return nil
		}
		if i > 0 {
			u.last = p[i-1]
		}
		p = p[i+len(key):]
		u.begin()
		if u.state != searching {
			return p
		}
	}
	return p
}

// indexKey returns where the key begins; -1 = it is not there. It looks for the last letters, which are rare, and not
// for the quote that a key begins with, at which a search for the whole would halt at every key and string.
func indexKey(p []byte, key string) int {
	last := usageLetters
	if key == metaKey {
		last = metaLetters
	}
	for from := 0; ; {
		i := bytes.Index(p[from:], last)
		if i < 0 {
			return -1
		}
		from += i + len(last)
		if begin := from - len(key); begin >= 0 && string(p[begin:from]) == key {
			return begin
		}
	}
}

// keepTail notes how much of the key p ends with.
func (u *UsageScanner) keepTail(p []byte) {
	if last := p[len(p)-1]; last == '\n' { // as of all pieces that are whole events
		u.last = last
		return
	}
	key := u.wanted()
	for n := min(len(p), len(key)-1); n > 0; n-- {
		if p[len(p)-n] != key[0] || string(p[len(p)-n:]) != key[:n] {
			continue
		}
		if len(p) > n {
			u.last = p[len(p)-n-1]
		}
		u.matched = n
		return
	}
	u.last = p[len(p)-1]
}

// begin starts on the object behind the key, unless the key was the end of some string.
func (u *UsageScanner) begin() {
	escaped := u.last == '\\'
	u.last, u.matched = '"', 0
	if !escaped {
		u.state = afterKey
	}
}

// step takes one byte, and reports whether it has used it: false = the state has changed, and the byte is to be looked
// at again. Inside the object what is not JSON, such as the prefix of a further data line, is passed over.
func (u *UsageScanner) step(c byte) bool {
	switch u.state {
	case searching:
		return false
	case afterKey, afterColon:
		return u.stepBefore(c)
	case inObject:
		u.stepObject(c)
	case inString:
		u.stepString(c)
	case inNumber:
		return u.stepNumber(c)
	}
	return true
}

func (u *UsageScanner) stepNumber(c byte) bool {
	switch {
	case c >= '0' && c <= '9':
		if u.number >= 0 {
			u.number = min(u.number*10+int(c-'0'), math.MaxInt32)
		}
		return true
	case c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-':
		u.number = -1
		return true
	}
	u.set()
	u.state = inObject
	return false
}

// stepBefore waits for the colon and the brace behind the key. Anything else means that there is no usage object.
func (u *UsageScanner) stepBefore(c byte) bool {
	switch {
	case c == ' ' || c == '\t' || c == '\r' || c == '\n':
		return true
	case c == ':' && u.state == afterKey:
		u.state = afterColon
		return true
	case c == '{' && u.state == afterColon:
		u.state, u.depth, u.details, u.named, u.filled = inObject, 1, false, false, false
		u.found = u.usage
		return true
	}
	u.state = searching
	return false
}

func (u *UsageScanner) stepObject(c byte) {
	switch {
	case c == '"':
		u.state, u.keyLen, u.escaped, u.named = inString, 0, false, false
	case c == ':':
		u.named = true
	case c == ',':
		u.named = false
	case c == '{' || c == '[':
		u.details = u.depth == 1 && u.named && (u.keyIs("prompt_tokens_details") || u.keyIs("input_tokens_details"))
		u.depth++
		u.named = false
	case c == '}' || c == ']':
		u.close()
	case c >= '0' && c <= '9' && u.named:
		u.state, u.number = inNumber, int(c-'0')
	case c == '-':
		u.named = false
	}
}

func (u *UsageScanner) close() {
	u.named = false
	u.depth--
	if u.depth == 1 {
		u.details = false
	}
	if u.depth > 0 {
		return
	}
	u.state, u.last = searching, '}'
	if u.filled {
		u.usage = u.found
		u.objects++
		u.lines.due = true
	}
}

func (u *UsageScanner) stepString(c byte) {
	switch {
	case u.escaped:
		u.escaped = false
	case c == '\\':
		u.escaped = true
	case c == '"':
		u.state = inObject
		return
	}
	if u.keyLen < len(u.key) {
		u.key[u.keyLen] = c
	}
	u.keyLen = min(u.keyLen+1, len(u.key)+1)
}

func (u *UsageScanner) keyIs(s string) bool {
	return u.keyLen == len(s) && string(u.key[:u.keyLen]) == s
}

// set stores the number in hand in the field that its key names.
func (u *UsageScanner) set() {
	u.named = false
	if u.number < 0 {
		return
	}
	to := u.field()
	if to == nil {
		return
	}
	*to, u.found.any, u.filled = u.number, true, true
	u.found.cachedKnown = u.found.cachedKnown || to == &u.found.cached || to == &u.found.cacheRead
}

// field returns where the number goes that the last key names; nil = it is none of those that are wanted.
func (u *UsageScanner) field() *int {
	if u.depth == 2 && u.details && u.keyIs("cached_tokens") {
		return &u.found.cached
	}
	if u.depth != 1 {
		return nil
	}
	switch string(u.key[:min(u.keyLen, len(u.key))]) {
	case "prompt_tokens", "input_tokens":
		return &u.found.prompt
	case "completion_tokens", "output_tokens":
		return &u.found.output
	case "cache_read_input_tokens":
		return &u.found.cacheRead
	case "cache_creation_input_tokens":
		return &u.found.cacheWrite
	case "cached_tokens":
		if u.meta {
			return &u.found.cached
		}
	}
	return nil
}
