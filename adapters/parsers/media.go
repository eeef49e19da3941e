package parsers

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/signalbox-epp/signalbox/messages"
)

// mediaBytes is what an image, sound or file in a message stands for at most: 256 tokens. The bytes of its transport
// say nothing about its tokens, and would push the text behind it out of the hashed part.
const mediaBytes = 1024

// place is where in the turns a value stands, as far as media go: tools are called with URLs, and texts have them in
// annotations, which are no media.
type place uint8

const (
	elsewhere place = iota // no media stand here or below
	inMessage
	inPart    // one of a message, of a tool's result or of a document, or a list of these
	inCarrier // an object that has a medium
	atMedium  // the data of a medium, or its URL
)

// placeBehind returns where the value of a member is, which is read next.
func (r *reader) placeBehind(key []byte) place {
	is := r.peek()
	switch r.at {
	case inMessage: // of the API of responses the outputs of tools too
		if string(key) == "content" || string(key) == "output" {
			return inPart
		}
	case inPart:
		switch string(key) {
		case "content":
			return inPart
		case "image_url", "video_url", "audio_url", "file_data", "file_url":
			if is == '"' {
				return atMedium
			}
		case "input_audio", "file":
		case "source": // of search results a text
			if is != '{' || r.isTextAhead() {
				return elsewhere
			}
		default:
			return elsewhere
		}
		if is == '{' {
			return inCarrier
		}
	case inCarrier:
		switch string(key) {
		case "content":
			return inPart
		case "url", "data", "file_data":
			if is == '"' {
				return atMedium
			}
		}
	case elsewhere, atMedium:
	}
	return elsewhere
}

// isTextAhead reports whether the object that comes is of the type text: the source of a document in words.
func (r *reader) isTextAhead() bool {
	ahead := r.scanner
	for more := ahead.open('}'); more; more = ahead.next('}') {
		key, ok := ahead.key()
		switch {
		case !ok:
			return false
		case string(key) == "type":
			ahead.peek()
			return bytes.HasPrefix(ahead.body[ahead.pos:], []byte(`"text"`))
		case !ahead.skip():
			return false
		}
	}
	return false
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
