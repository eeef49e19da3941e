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
// usage objects, in the names of chat completions or in those of responses and messages, and looks at nothing else
// before the first. Their figures are cumulative: of several objects the highest value of each counts. What is deeper
// in a document than the server's own usage is what a client or the model wrote, such as the input of a tool. The body
// may be cut anywhere. The zero UsageScanner is ready; it keeps some 300 bytes, and allocates only for what is no
// number. Not for concurrent use.
type UsageScanner struct {
	lines       lines
	walk        walk
	meta        bool // the objects have the name of SGLang
	outputAtEnd bool // an object within another one begins a stream, and does not know its output

	state   usageState
	matched int  // bytes of the key seen while searching
	last    byte // the byte before those, or before the one in hand

	object  figures // of the object being read
	before  tally   // of the documents before
	now     tally   // with the document in hand
	objects int     // that were whole
}

// walk is where the scanner is in a document, from the first usage object on.
type walk struct {
	depth int // of objects and arrays, counted from where the first usage object stood
	level int // where the outermost usage object stood
	in    int // depth inside the usage object being read; inNone = none is

	key     [28]byte // the last string
	keyLen  int      // its length; longer than the array if it did not fit
	escaped bool     // the last byte was a backslash
	hidden  bool     // the last string has a backslash
	details bool     // inside prompt_tokens_details, or input_tokens_details
	named   bool     // the last string was a key
	number  [32]byte // the one in hand
	digits  int      // its length; longer than the array if it did not fit
}

const (
	inNone = math.MinInt
	// deepest is how deep a server's own usage is: in the document, or in its message, response or choice.
	deepest = 2
)

// figure is a number of tokens in a usage object.
type figure struct {
	tokens  int
	known   bool
	garbled bool // it is there, and cannot be read
}

// renew replaces the figure by a newer one, unless that is missing, or cannot be read and this one is known.
func (f *figure) renew(newer figure) {
	if newer.known || newer.garbled && !f.known {
		*f = newer
	}
}

// figures are those of one object. Of the prompt Anthropic names three parts.
type figures struct {
	prompt, output        figure
	cached                figure
	cacheRead, cacheWrite figure
	parts                 bool // it names the prompt as Anthropic does
	hidden                bool // a figure may stand under a key that cannot be read
}

// any reports whether one of the figures is known.
func (f *figures) any() bool {
	return f.prompt.known || f.output.known || f.cached.known || f.cacheRead.known || f.cacheWrite.known
}

// tally is what objects have said.
type tally struct {
	messages.Usage

	prompt, cacheRead, cacheWrite figure // the newest
}

// add adds what an object says to what those before it said. Parts of the prompt that it does not name stay.
func (t *tally) add(f *figures) {
	if f.output.known {
		t.Source, t.OutputTokens = messages.UsageReported, max(t.OutputTokens, f.output.tokens)
	}
	t.prompt.renew(f.prompt)
	t.cacheRead.renew(f.cacheRead)
	t.cacheWrite.renew(f.cacheWrite)
	partial := t.cacheRead.garbled || t.cacheWrite.garbled || f.parts && f.hidden
	if t.prompt.known && !partial {
		t.PromptKnown = true
		t.PromptTokens = max(t.PromptTokens, t.prompt.tokens+t.cacheRead.tokens+t.cacheWrite.tokens)
	}
	if f.cached.known || f.cacheRead.known {
		t.CachedKnown, t.CachedTokens = true, max(t.CachedTokens, f.cached.tokens, f.cacheRead.tokens)
	}
}

type usageState uint8

const (
	searching  usageState = iota
	afterKey              // the key is there; its colon is due
	afterColon            // its object is due
	inDocument
	inString
	inNumber
)

// Usage returns what complete usage objects said. A figure is unknown that was missing in all, or is no whole number of
// 0 or more, or of cached tokens is more than the prompt's; NoUsage = that of the output is.
func (u *UsageScanner) Usage() messages.Usage {
	usage := u.told().Usage
	if usage.PromptKnown && usage.CachedTokens > usage.PromptTokens {
		usage.CachedKnown, usage.CachedTokens = false, 0
	}
	usage.OwnBytes = u.lines.own
	return usage
}

// told returns what was said if the document in hand ends here.
func (u *UsageScanner) told() tally {
	if u.state < inDocument {
		return u.before
	}
	told := u.now
	switch deep := u.walk.level - u.walk.depth; {
	case deep > deepest:
		return u.before
	case deep == deepest && u.outputAtEnd:
		told.Source, told.OutputTokens = u.before.Source, u.before.OutputTokens
	}
	return told
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
	case inDocument:
		u.stepDocument(c)
	case inString:
		u.stepString(c)
	case inNumber:
		return u.stepNumber(c)
	}
	return true
}

func (u *UsageScanner) stepNumber(c byte) bool {
	w := &u.walk
	if c >= '0' && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-' {
		if w.digits < len(w.number) {
			w.number[w.digits] = c
		}
		w.digits = min(w.digits+1, len(w.number)+1)
		return true
	}
	u.set(whole(w.number[:min(w.digits, len(w.number))], w.digits <= len(w.number)))
	u.state = inDocument
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

// stepBefore waits for the colon and the brace behind the first key. Anything else means that there is no usage object.
func (u *UsageScanner) stepBefore(c byte) bool {
	switch {
	case c == ' ' || c == '\t' || c == '\r' || c == '\n':
		return true
	case c == ':' && u.state == afterKey:
		u.state = afterColon
		return true
	case c == '{' && u.state == afterColon:
		u.state, u.now = inDocument, u.before
		u.walk = walk{level: 1, in: inNone} // deeper than where the first object stands, which is 0
		u.enter()
		return true
	}
	u.state = searching
	return false
}

// enter begins a usage object.
func (u *UsageScanner) enter() {
	u.walk.depth++
	u.walk.in, u.walk.details, u.walk.named = u.walk.depth, false, false
	u.object = figures{}
}

func (u *UsageScanner) stepDocument(c byte) {
	w, last := &u.walk, u.last
	if c != '\r' {
		u.last = c
	}
	switch {
	case c == '"':
		if w.named {
			u.set(figure{garbled: true})
		}
		u.state, w.keyLen, w.escaped, w.hidden = inString, 0, false, false
	case c == ':':
		w.named = true
		u.object.hidden = u.object.hidden || w.hidden && w.depth == w.in
	case c == ',':
		w.named = false
	case c == '{' || c == '[':
		u.open(c)
	case c == '}' || c == ']':
		u.close()
	case c == '\n' && last == '\n': // an event has ended, and with it the document
		u.before = u.told()
		u.state = searching
	case (c >= '0' && c <= '9' || c == '-') && w.named && w.in != inNone:
		u.state, w.digits = inNumber, 0
		u.stepNumber(c)
	case (c == 't' || c == 'f') && w.named && (last == ':' || last == ' '):
		u.set(figure{garbled: true})
	}
}

func (u *UsageScanner) open(c byte) {
	w, quoted := &u.walk, u.wanted()
	if c == '{' && w.in == inNone && w.named && u.keyIs(quoted[1:len(quoted)-1]) {
		u.enter()
		return
	}
	w.details = w.depth == w.in && w.named && (u.keyIs("prompt_tokens_details") || u.keyIs("input_tokens_details"))
	if w.named && !w.details {
		u.set(figure{garbled: true})
	}
	w.depth++
	w.named = false
}

// close ends an object or array. The outermost usage objects of a document count, and of others nothing.
func (u *UsageScanner) close() {
	w := &u.walk
	w.named = false
	w.depth--
	if w.depth == w.in {
		w.details = false
	}
	if w.depth >= w.in {
		return
	}
	w.in = inNone
	switch {
	case !u.object.any() || w.depth > w.level:
		return
	case w.depth < w.level:
		w.level, u.now = w.depth, u.before
	}
	u.now.add(&u.object)
	u.objects++
	u.lines.due = true
}

func (u *UsageScanner) stepString(c byte) {
	w := &u.walk
	switch {
	case w.escaped:
		w.escaped = false
	case c == '\\':
		w.escaped, w.hidden = true, true
	case c == '"':
		u.state, u.last = inDocument, c
		return
	}
	if w.keyLen < len(w.key) {
		w.key[w.keyLen] = c
	}
	w.keyLen = min(w.keyLen+1, len(w.key)+1)
}

// keyIs reports whether the last string is this one.
func (u *UsageScanner) keyIs(s string) bool {
	w := &u.walk
	return w.keyLen == len(s) && string(w.key[:w.keyLen]) == s
}

// set stores what the last key names, if it is a figure.
func (u *UsageScanner) set(is figure) {
	u.walk.named = false
	if to := u.field(); to != nil {
		*to = is
	}
}

// field returns the figure that the last key names; nil = it names none.
func (u *UsageScanner) field() *figure {
	w := &u.walk
	if w.depth == w.in+1 && w.details && u.keyIs("cached_tokens") {
		return &u.object.cached
	}
	if w.depth != w.in {
		return nil
	}
	switch string(w.key[:min(w.keyLen, len(w.key))]) {
	case "input_tokens":
		u.object.parts = true
		return &u.object.prompt
	case "prompt_tokens":
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
