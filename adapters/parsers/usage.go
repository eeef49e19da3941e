package parsers

import (
	"bytes"
	"math"
	"strconv"

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
// usage objects, in the names of chat completions or in those of responses and messages, and looks at nothing else.
// Their figures are cumulative: of several objects the highest value of each counts. The body may be cut anywhere. The
// zero UsageScanner is ready; it keeps some 200 bytes, and allocates only for what is no number. Not for concurrent
// use.
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
	named   bool     // the last string was a key
	number  [32]byte // the one in hand
	digits  int      // its length; longer than the array if it did not fit

	object  figures // of the object being read
	usage   messages.Usage
	objects int // that were whole
}

// figure is a number of tokens in a usage object.
type figure struct {
	tokens  int
	known   bool
	garbled bool // it is there, and cannot be read
}

// figures are those of one object. Of the prompt Anthropic names three parts.
type figures struct {
	prompt, output        figure
	cached                figure
	cacheRead, cacheWrite figure
}

// any reports whether one of the figures is known.
func (f *figures) any() bool {
	return f.prompt.known || f.output.known || f.cached.known || f.cacheRead.known || f.cacheWrite.known
}

// addTo adds what an object says to what those before it said.
func (f *figures) addTo(u *messages.Usage) {
	if f.output.known {
		u.Source, u.OutputTokens = messages.UsageReported, max(u.OutputTokens, f.output.tokens)
	}
	if f.prompt.known && !f.cacheRead.garbled && !f.cacheWrite.garbled {
		u.PromptKnown = true
		u.PromptTokens = max(u.PromptTokens, f.prompt.tokens+f.cacheRead.tokens+f.cacheWrite.tokens)
	}
	if f.cached.known || f.cacheRead.known {
		u.CachedKnown, u.CachedTokens = true, max(u.CachedTokens, f.cached.tokens, f.cacheRead.tokens)
	}
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

// Usage returns what complete usage objects said. A figure is unknown that was missing in all, or is no whole number of
// 0 or more; NoUsage = that of the output is.
func (u *UsageScanner) Usage() messages.Usage {
	usage := u.usage
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
	if c >= '0' && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-' {
		if u.digits < len(u.number) {
			u.number[u.digits] = c
		}
		u.digits = min(u.digits+1, len(u.number)+1)
		return true
	}
	u.set(whole(u.number[:min(u.digits, len(u.number))], u.digits <= len(u.number)))
	u.state = inObject
	return false
}

// whole returns the value of a number, which is unknown unless it is a whole one of 0 or more that tokens can have.
func whole(text []byte, fits bool) figure {
	n, err := strconv.ParseFloat(string(text), 64)
	if !fits || err != nil || n < 0 || n > math.MaxInt32 || n != math.Trunc(n) {
		return figure{garbled: true}
	}
	return figure{tokens: int(n), known: true}
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
		u.state, u.depth, u.details, u.named = inObject, 1, false, false
		u.object = figures{}
		return true
	}
	u.state = searching
	return false
}

func (u *UsageScanner) stepObject(c byte) {
	switch {
	case c == '"':
		if u.named {
			u.set(figure{garbled: true})
		}
		u.state, u.keyLen, u.escaped = inString, 0, false
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
	case (c >= '0' && c <= '9' || c == '-') && u.named:
		u.state, u.digits = inNumber, 0
		u.stepNumber(c)
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
	if u.object.any() {
		u.object.addTo(&u.usage)
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

// set stores what the last key names, if it is a figure.
func (u *UsageScanner) set(is figure) {
	u.named = false
	if to := u.field(); to != nil {
		*to = is
	}
}

// field returns the figure that the last key names; nil = it names none.
func (u *UsageScanner) field() *figure {
	if u.depth == 2 && u.details && u.keyIs("cached_tokens") {
		return &u.object.cached
	}
	if u.depth != 1 {
		return nil
	}
	switch string(u.key[:min(u.keyLen, len(u.key))]) {
	case "prompt_tokens", "input_tokens":
		return &u.object.prompt
	case "completion_tokens", "output_tokens":
		return &u.object.output
	case "cache_read_input_tokens":
		return &u.object.cacheRead
	case "cache_creation_input_tokens":
		return &u.object.cacheWrite
	case "cached_tokens":
		if u.meta {
			return &u.object.cached
		}
	}
	return nil
}
