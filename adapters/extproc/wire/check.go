package wire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// cursor walks the fields of one encoded message. Groups and fixed-width fields are skipped over; callers look only at
// num, typ, varint and bytes.
type cursor struct {
	rest   []byte
	bytes  []byte // content of a length-delimited field; it ends where rest begins
	varint uint64
	num    protowire.Number
	typ    protowire.Type
	bad    bool
}

// next reads one field. It gives false at the end and at the first malformed field, which sets bad.
func (c *cursor) next() bool {
	if len(c.rest) == 0 {
		return false
	}
	tag, n := readVarint(c.rest)
	if n < 0 || tag>>3 < 1 || tag>>3 > uint64(protowire.MaxValidNumber) {
		return c.fail()
	}
	c.num, c.typ = protowire.Number(tag>>3), protowire.Type(tag&7)
	b := c.rest[n:]
	switch c.typ {
	case protowire.BytesType:
		var size uint64
		size, n = readVarint(b)
		if n < 0 || size > uint64(len(b)-n) {
			return c.fail()
		}
		c.bytes, c.rest = b[n:n+int(size)], b[n+int(size):]
		return true
	case protowire.VarintType:
		c.varint, n = readVarint(b)
	default:
		n = protowire.ConsumeFieldValue(c.num, c.typ, b)
	}
	if n < 0 {
		return c.fail()
	}
	c.rest = b[n:]
	return true
}

// readVarint is protowire.ConsumeVarint with the common case of one byte inlined; a negative n is an error.
func readVarint(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return protowire.ConsumeVarint(b)
}

func (c *cursor) fail() bool {
	c.bad, c.rest = true, nil
	return false
}

// is tells whether the field is length-delimited and has number num.
// A known number with another wire type is an unknown field.
func (c *cursor) is(num protowire.Number) bool {
	return c.num == num && c.typ == protowire.BytesType
}

// shape names a message type; rules says what its length-delimited fields hold.
// Fields without a rule need no check beyond their length.
type shape uint8

const (
	request shape = iota
	httpHeaders
	httpBody
	httpTrailers
	headerMap
	headerValue
	metadata
	structValue // google.protobuf.Struct
	value       // google.protobuf.Value
	listValue
	anyValue
	numbers // only varints: ProtocolConfiguration, FlowControlInit, ClientWindowUpdate
	shapes
)

type content uint8

const (
	plain   content = iota
	text            // a string: UTF-8, or the frame is refused
	message         // of the rule's shape
	entries         // map<string, message of the rule's shape>
)

type rule struct {
	content content
	shape   shape
}

// maxFields is one more than the highest field number with a rule.
const maxFields = 14

var rules = [shapes][maxFields]rule{
	request: {
		2: {message, httpHeaders}, 3: {message, httpHeaders}, 4: {message, httpBody}, 5: {message, httpBody},
		6: {message, httpTrailers}, 7: {message, httpTrailers}, 8: {message, metadata}, 9: {entries, structValue},
		11: {message, numbers}, 12: {message, numbers}, 13: {message, numbers},
	},
	httpHeaders:  {1: {message, headerMap}, 2: {entries, structValue}},
	httpTrailers: {1: {message, headerMap}},
	headerMap:    {1: {message, headerValue}},
	headerValue:  {1: {content: text}, 2: {content: text}},
	metadata:     {1: {entries, structValue}, 2: {entries, anyValue}},
	structValue:  {1: {entries, value}},
	value:        {3: {content: text}, 5: {message, structValue}, 6: {message, listValue}},
	listValue:    {1: {message, value}},
	anyValue:     {1: {content: text}},
}

// maxDepth is the nesting of messages that proto.Unmarshal accepts.
const maxDepth = protowire.DefaultRecursionLimit

// check tells whether proto.Unmarshal would accept b as a message of shape s with depth levels left.
func check(s shape, b []byte, depth int) bool {
	depth--
	if depth < 0 {
		return false
	}
	c := cursor{rest: b}
	for c.next() {
		if c.num < maxFields && !rules[s][c.num].holds(&c, depth) {
			return false
		}
	}
	return !c.bad
}

func (r rule) holds(c *cursor, depth int) bool {
	if r.content == entries && depth < 1 {
		return false
	}
	if c.typ != protowire.BytesType {
		return true
	}
	switch r.content {
	case text:
		return utf8.Valid(c.bytes)
	case message:
		return check(r.shape, c.bytes, depth)
	case entries:
		return checkEntry(r.shape, c.bytes, depth-1)
	default:
		return true
	}
}

// checkEntry is check for one entry of a map.
func checkEntry(s shape, b []byte, depth int) bool {
	c := cursor{rest: b}
	for c.next() {
		if c.is(1) && !utf8.Valid(c.bytes) {
			return false
		}
		if c.is(2) && !check(s, c.bytes, depth) {
			return false
		}
	}
	return !c.bad
}
