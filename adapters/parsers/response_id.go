package parsers

import (
	"bytes"

	"github.com/signalbox-epp/signalbox/engine/records"
)

// idKey begins what a response says of its own id. As with usageKey,
// these bytes with a colon behind are an object key in JSON.
const idKey = `"id"`

// IDScanner finds the id of a response in its body, JSON or server-sent events: the first one that begins as such ids
// do. The body may be cut anywhere. The zero IDScanner is ready; it never allocates. Not for concurrent use.
type IDScanner struct {
	state   idState
	matched int       // bytes of idKey
	id      [128]byte // that in hand, or the one that was found
	length  int       // of it; longer than the array if it did not fit
}

type idState uint8

const (
	idSought idState = iota
	idNamed          // its colon is due
	idDue            // its value is due
	idRead           // within its value
	idFound
)

// toolPrefix is that of a call of a tool, which stands in a response of vLLM too.
const toolPrefix = "chatcmpl-tool-"

// ID returns the id, or nil if none was found so far. It must not be written to.
func (s *IDScanner) ID() []byte {
	if s.state != idFound {
		return nil
	}
	return s.id[:s.length]
}

// Write looks at the next piece of the body, and keeps nothing of it but the id.
func (s *IDScanner) Write(p []byte) {
	for len(p) > 0 && s.state != idFound {
		if s.state == idSought && s.matched == 0 {
			i := bytes.IndexByte(p, idKey[0])
			if i < 0 {
				return
			}
			p = p[i:]
		}
		s.step(p[0])
		p = p[1:]
	}
}

func (s *IDScanner) step(c byte) {
	switch {
	case s.state == idSought && c == idKey[s.matched]:
		if s.matched++; s.matched == len(idKey) {
			s.state = idNamed
		}
	case s.state == idRead:
		s.stepValue(c)
	case s.state != idSought && (c == ' ' || c == '\t' || c == '\r' || c == '\n'): // white space around the colon
	case s.state == idNamed && c == ':':
		s.state = idDue
	case s.state == idDue && c == '"':
		s.state, s.length = idRead, 0
	default:
		s.seekOn(c)
	}
}

// seekOn begins anew; c may be the first byte of the key.
func (s *IDScanner) seekOn(c byte) {
	s.state, s.matched = idSought, 0
	if c == idKey[0] {
		s.matched = 1
	}
}

// stepValue takes a byte of the id. One with a backslash in it is none that a model server makes.
func (s *IDScanner) stepValue(c byte) {
	switch {
	case c == '"':
		id := s.id[:min(s.length, len(s.id))]
		if s.length <= len(s.id) && records.IsResponseID(id) && !bytes.HasPrefix(id, []byte(toolPrefix)) {
			s.state = idFound
			return
		}
		s.seekOn(0)
	case c == '\\' || c < ' ' || c > '~':
		s.length = len(s.id) + 1
	case s.length < len(s.id):
		s.id[s.length] = c
		s.length++
	default:
		s.length = len(s.id) + 1
	}
}
