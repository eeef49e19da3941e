package grpcbody

import (
	"encoding/binary"
	"io"

	"github.com/signalbox-epp/signalbox/messages"
)

// frames takes a body apart into its messages. The body may be cut anywhere. The zero frames is ready.
type frames struct {
	head [headBytes]byte
	have int    // bytes of the head
	left uint32 // bytes of the message in hand that are still to come
	bad  bool   // a message was compressed, or there was no frame: what follows says nothing
}

// receiver takes the messages of a body.
type receiver interface {
	begin()
	piece(p []byte)
	end()
}

func (f *frames) write(p []byte, to receiver) {
	for len(p) > 0 && !f.bad {
		if f.have < headBytes {
			n := copy(f.head[f.have:], p)
			p, f.have = p[n:], f.have+n
			if f.have < headBytes {
				return
			}
			f.left = binary.BigEndian.Uint32(f.head[1:])
			if f.bad = f.head[0] != plain; f.bad {
				return
			}
			to.begin()
		}
		n := int(min(uint64(f.left), uint64(len(p))))
		to.piece(p[:n])
		p, f.left = p[n:], f.left-uint32(n)
		if f.left == 0 {
			f.have = 0
			to.end()
		}
	}
}

// visitor takes the fields of a message. Those of a fixed width are left out.
type visitor interface {
	varint(num int, v uint64)
	begins(num int) // a field that is length-delimited
	bytes(num int, p []byte)
	ends(num int)
}

// walker reads a message that may be cut anywhere. The zero walker is at the beginning of one.
//
//	          tag of a varint            its last byte
//	atTag ─────────────────────► inVarint ────────────► atTag
//	atTag ── of bytes ──► inLength ── its last byte ──► inBytes ── all are here ──► atTag
//	atTag ── of a fixed width ────────────────────────► inFixed ── all are here ──► atTag
//	any   ── what no message has ──► broken
type walker struct {
	state walkerState
	value uint64 // the varint in hand, as far as it has come
	shift uint   // how many bits of it have come
	num   int    // of the field in hand
	left  uint64 // bytes of its content that are still to come
}

type walkerState uint8

const (
	atTag    walkerState = iota // the next byte is of a tag
	inVarint                    // of a value
	inLength                    // of the length of a content
	inBytes                     // of a content
	inFixed                     // of a value of fixed width
	broken                      // nothing that follows is read
)

// whole reports whether a message may end here.
func (w *walker) whole() bool { return w.state == atTag && w.shift == 0 }

func (w *walker) write(p []byte, to visitor) {
	for len(p) > 0 && w.state != broken {
		if w.state != inBytes && w.state != inFixed {
			w.step(p[0], to)
			p = p[1:]
			continue
		}
		n := int(min(w.left, uint64(len(p))))
		if w.state == inBytes {
			to.bytes(w.num, p[:n])
		}
		w.left -= uint64(n)
		p = p[n:]
		w.close(to)
	}
}

// close ends a content of which nothing is still to come.
func (w *walker) close(to visitor) {
	if w.left > 0 {
		return
	}
	if w.state == inBytes {
		to.ends(w.num)
	}
	w.state = atTag
}

// step takes a byte of a tag, a value or a length.
func (w *walker) step(c byte, to visitor) {
	if w.shift == 63 && c > 1 {
		w.state = broken
		return
	}
	w.value |= uint64(c&0x7f) << w.shift
	w.shift += 7
	if c >= 0x80 {
		return
	}
	value := w.value
	w.value, w.shift = 0, 0
	switch w.state {
	case inVarint:
		to.varint(w.num, value)
		w.state = atTag
	case inLength:
		w.state, w.left = inBytes, value
		to.begins(w.num)
		w.close(to)
	case atTag:
		w.tag(value)
	case inBytes, inFixed, broken: // they take no single bytes
	}
}

// tag begins a field. A group, which proto3 does not have, ends the reading.
func (w *walker) tag(value uint64) {
	const largest = 1<<29 - 1
	if num := value >> 3; num == 0 || num > largest {
		w.state = broken
		return
	}
	w.num = int(value >> 3)
	switch value & 7 {
	case 0:
		w.state = inVarint
	case 1:
		w.state, w.left = inFixed, 8
	case 2:
		w.state = inLength
	case 5:
		w.state, w.left = inFixed, 4
	default:
		w.state = broken
	}
}

// Fields of GenerateResponse, and of EmbedResponse, which has its tokens at the top.
const (
	chunkField    = 1
	completeField = 2
	embedTokens   = 2
	tokensField   = 1 // of both parts of a GenerateResponse
)

// usageFields has the numbers of prompt_tokens, completion_tokens and cached_tokens.
var usageFields = [...][3]int{chunkField: {2, 3, 4}, completeField: {3, 4, 5}}

// Answer reads the token usage in the answers of vLLM's own service, of the methods Generate and Embed. Of the prompt
// and of cached tokens the highest value counts. A message counts once it is whole. The zero Answer is ready for the
// method Generate; it never allocates. Not for concurrent use.
//
// The output of an answer is the sum over its messages: each chunk of a stream tells the tokens that it has itself, and
// each choice has a message of its own. What completes a choice of a stream tells again of its last chunk, and of an
// answer that is not streamed, which has no chunks, of all.
type Answer struct {
	Embeds bool // the answer is one of the method Embed

	frames        frames
	message, part walker
	lost          bool // the message in hand has a part that is broken
	kind          int  // of the part in hand: its field
	output        int  // tokens of the part in hand
	tokens        bool // the part in hand has some
	began         bool
	chunks        int
	found, told   tokens
}

// tokens is what messages have told: with those of the message in hand, and of whole ones alone.
type tokens struct {
	usage  messages.Usage        // without its output
	output [len(usageFields)]int // by the kind of the part
}

// Write looks at the next piece of the body, and keeps nothing of it.
func (a *Answer) Write(p []byte) { a.frames.write(p, (*answerMessages)(a)) }

// Usage returns what the answer has said so far; NoUsage = nothing.
func (a *Answer) Usage() messages.Usage {
	usage := a.told.usage
	usage.OutputTokens = max(a.told.output[chunkField], a.told.output[completeField])
	return usage
}

// Began reports whether output may have come: tokens of a chunk, what completes an answer, an embedding, or what cannot
// be read.
func (a *Answer) Began() bool {
	return a.began || a.frames.bad || a.message.state == broken || a.part.state == broken
}

// Chunks returns how many chunks with tokens have come.
func (a *Answer) Chunks() int { return a.chunks }

type answerMessages Answer

func (a *answerMessages) begin() {
	a.message, a.lost, a.found = walker{}, false, a.told
}

func (a *answerMessages) piece(p []byte) { a.message.write(p, (*answerFields)(a)) }

func (a *answerMessages) end() {
	if a.message.whole() && !a.lost {
		a.told = a.found
	}
}

type answerFields Answer

func (a *answerFields) varint(num int, v uint64) {
	if a.Embeds && num == embedTokens {
		a.found.usage.PromptTokens, a.found.usage.PromptKnown = count(v), true
		a.found.usage.Source = messages.UsageReported
	}
}

// hasUsage reports whether a field is a message that may say how many tokens there are.
func (a *answerFields) hasUsage(num int) bool {
	return !a.Embeds && (num == chunkField || num == completeField)
}

func (a *answerFields) begins(num int) {
	a.began = a.began || a.Embeds || num == completeField
	if a.hasUsage(num) {
		a.part, a.kind, a.output, a.tokens = walker{}, num, 0, false
	}
}

func (a *answerFields) bytes(num int, p []byte) {
	if a.hasUsage(num) {
		a.part.write(p, (*answerPart)(a))
	}
}

func (a *answerFields) ends(num int) {
	if a.hasUsage(num) {
		a.lost = a.lost || !a.part.whole()
		a.found.output[num] = count(uint64(a.found.output[num]) + uint64(a.output))
		if a.tokens && num == chunkField {
			a.chunks++
		}
	}
}

// answerPart is a chunk, or what completes an answer.
type answerPart Answer

func (p *answerPart) varint(num int, v uint64) {
	p.begins(num)
	found, fields := &p.found.usage, &usageFields[p.kind]
	switch num {
	case fields[0]:
		found.PromptTokens, found.PromptKnown = max(found.PromptTokens, count(v)), true
	case fields[1]:
		p.output = count(v)
	case fields[2]:
		found.CachedTokens = max(found.CachedTokens, count(v))
	default:
		return
	}
	// Of what proto3 leaves out the value is 0, and the service sets cached_tokens whenever it sets the others.
	found.Source, found.CachedKnown = messages.UsageReported, true
}

// begins notes the tokens of a chunk, which may be one field, or one for each.
func (p *answerPart) begins(num int) {
	if num == tokensField {
		p.tokens, p.began = true, true
	}
}

func (p *answerPart) bytes(int, []byte) {}
func (p *answerPart) ends(int)          {}

// Bodies takes the data out of the messages HttpBody that calls to Vertex are answered with. Those of all messages are
// one text, which may be cut anywhere. The zero Bodies is ready. Not for concurrent use.
type Bodies struct {
	frames frames
	body   walker
	to     io.Writer
}

// Write looks at the next piece of the answer, and writes what it has of the text to to, whose errors are ignored.
func (b *Bodies) Write(p []byte, to io.Writer) {
	b.to = to
	b.frames.write(p, (*bodyMessages)(b))
	b.to = nil
}

type bodyMessages Bodies

func (b *bodyMessages) begin()         { b.body = walker{} }
func (b *bodyMessages) piece(p []byte) { b.body.write(p, (*bodyFields)(b)) }
func (b *bodyMessages) end()           {}

type bodyFields Bodies

func (b *bodyFields) varint(int, uint64) {}
func (b *bodyFields) begins(int)         {}
func (b *bodyFields) ends(int)           {}

func (b *bodyFields) bytes(num int, p []byte) {
	if num == 2 {
		_, _ = b.to.Write(p)
	}
}
