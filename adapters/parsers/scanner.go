package parsers

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// maxDepth is how deep objects and arrays may nest: far beyond any client, and little stack.
const maxDepth = 512

const wantObject = "an object"

// scanner walks JSON text as RFC 8259 defines it. Each method that can fail says so by false, after which pos and want
// tell where and why. Strings may hold bytes that are not UTF-8, as encoding/json allows too.
type scanner struct {
	body  []byte
	pos   int
	depth int
	want  string    // what should have stood at pos; "" = no failure
	name  [128]byte // the last object key, if it was written with escapes
}

// fail notes the failure; the first one stays.
func (s *scanner) fail(want string) bool {
	if s.want == "" {
		s.want = want
	}
	return false
}

// problem returns the failure as one clause.
func (s *scanner) problem() error {
	switch {
	case s.depth > maxDepth:
		return fmt.Errorf("body is not acceptable JSON: byte %d: nested deeper than %d levels", s.pos, maxDepth)
	case s.want == wantObject && s.pos < len(s.body):
		return fmt.Errorf("body is not a JSON object: byte %d: got %q", s.pos, s.body[s.pos:s.pos+1])
	case s.pos >= len(s.body):
		return fmt.Errorf("body is not JSON: it ends at byte %d, want %s", len(s.body), s.want)
	}
	return fmt.Errorf("body is not JSON: byte %d: got %q, want %s", s.pos, s.body[s.pos:s.pos+1], s.want)
}

// peek returns the next byte that is not white space, or 0 at the end. A NUL in the body is 0 too; either makes the
// reader fail that goes on.
func (s *scanner) peek() byte {
	for s.pos < len(s.body) {
		switch c := s.body[s.pos]; c {
		case ' ', '\n', '\r', '\t':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// open steps into the object or array at pos, which ends with the byte end. It returns false if the value is empty or
// nested too deep.
func (s *scanner) open(end byte) bool {
	s.pos++
	s.depth++
	if s.depth > maxDepth {
		return s.fail("less depth")
	}
	if s.peek() != end {
		return true
	}
	s.pos++
	s.depth--
	return false
}

// next steps to the next member. It returns false if there is none, or after a failure.
func (s *scanner) next(end byte) bool {
	switch s.peek() {
	case ',':
		s.pos++
		return true
	case end:
		s.pos++
		s.depth--
		return false
	}
	if end == '}' {
		return s.fail("',' or '}'")
	}
	return s.fail("',' or ']'")
}

// key reads an object key and its colon. The result lives until the next call. A key with escapes that is longer than
// any known one stays as it is written: its backslash keeps it from being taken for another.
func (s *scanner) key() ([]byte, bool) {
	if s.peek() != '"' {
		return nil, s.fail("an object key")
	}
	raw, escaped, ok := s.str()
	if !ok {
		return nil, false
	}
	if escaped && len(raw) <= len(s.name) {
		raw = appendDecoded(s.name[:0], raw)
	}
	if s.peek() != ':' {
		return nil, s.fail("':'")
	}
	s.pos++
	return raw, true
}

// str reads the string at pos. raw is what stands between the quotes.
func (s *scanner) str() (raw []byte, escaped, ok bool) {
	s.pos++
	start, quote := s.pos, -1
	for {
		if quote < s.pos { // the one before was escaped
			if quote = bytes.IndexByte(s.body[s.pos:], '"'); quote < 0 {
				quote = len(s.body) - s.pos
			}
			quote += s.pos
		}
		plain := s.body[s.pos:quote]
		slash := bytes.IndexByte(plain, '\\')
		if slash >= 0 {
			plain = plain[:slash]
		}
		if i := control(plain); i >= 0 {
			s.pos += i
			return nil, false, s.fail("no bare control character in a string")
		}
		s.pos += len(plain)
		switch {
		case slash >= 0:
			escaped = true
			if !s.escapes() {
				return nil, false, false
			}
		case s.pos == len(s.body):
			return nil, false, s.fail("'\"'")
		default:
			raw = s.body[start:s.pos]
			s.pos++
			return raw, escaped, true
		}
	}
}

// control returns the position of the first control character; -1 = there is none. It looks at eight bytes at a time:
// a control character is one whose subtraction borrows from its highest bit. A borrow can mark a byte wrongly only
// above the first one that is marked rightly.
func control(p []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(p); i += 8 {
		w := binary.LittleEndian.Uint64(p[i:])
		if found := (w - ones*' ') &^ w & highs; found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(p); i++ {
		if p[i] < ' ' {
			return i
		}
	}
	return -1
}

// escapes checks the escapes at pos and steps over them: some clients write whole languages as escapes.
func (s *scanner) escapes() bool {
	for s.pos < len(s.body) && s.body[s.pos] == '\\' {
		if !s.escape() {
			return false
		}
	}
	return true
}

// escape checks the escape at pos and steps over it.
func (s *scanner) escape() bool {
	s.pos++
	if s.pos >= len(s.body) {
		return s.fail("an escape")
	}
	switch s.body[s.pos] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return true
	case 'u':
		for range 4 {
			s.pos++
			if s.pos >= len(s.body) || hexDigit(s.body[s.pos]) < 0 {
				return s.fail("a hexadecimal digit")
			}
		}
		s.pos++
		return true
	}
	return s.fail("an escape")
}

// number reads the number at pos, as it is written.
func (s *scanner) number() ([]byte, bool) {
	start := s.pos
	if s.body[s.pos] == '-' {
		s.pos++
	}
	if s.pos < len(s.body) && s.body[s.pos] == '0' {
		s.pos++
	} else if !s.digits() {
		return nil, false
	}
	if s.pos < len(s.body) && s.body[s.pos] == '.' {
		s.pos++
		if !s.digits() {
			return nil, false
		}
	}
	if s.pos < len(s.body) && (s.body[s.pos] == 'e' || s.body[s.pos] == 'E') {
		s.pos++
		if s.pos < len(s.body) && (s.body[s.pos] == '+' || s.body[s.pos] == '-') {
			s.pos++
		}
		if !s.digits() {
			return nil, false
		}
	}
	return s.body[start:s.pos], true
}

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.body) && s.body[s.pos] >= '0' && s.body[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start || s.fail("a digit")
}

// scalar reads true, false, null or a number, as it is written.
func (s *scanner) scalar() ([]byte, bool) {
	switch c := s.peek(); {
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	}
	return nil, s.fail("a value")
}

func (s *scanner) word(w string) ([]byte, bool) {
	start := s.pos
	for i := range len(w) {
		if s.pos >= len(s.body) || s.body[s.pos] != w[i] {
			return nil, s.fail(w)
		}
		s.pos++
	}
	return s.body[start:s.pos], true
}

// skip checks the value at pos, whatever it is, and steps over it.
func (s *scanner) skip() bool {
	switch s.peek() {
	case '{':
		for more := s.open('}'); more; more = s.next('}') {
			if _, ok := s.key(); !ok || !s.skip() {
				return false
			}
		}
		return s.want == ""
	case '[':
		for more := s.open(']'); more; more = s.next(']') {
			if !s.skip() {
				return false
			}
		}
		return s.want == ""
	case '"':
		_, _, ok := s.str()
		return ok
	}
	_, ok := s.scalar()
	return ok
}
