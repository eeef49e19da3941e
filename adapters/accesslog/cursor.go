package accesslog

import "google.golang.org/protobuf/encoding/protowire"

// cursor steps through the fields of a message.
type cursor struct {
	rest      []byte
	num       protowire.Number
	typ       protowire.Type
	varint    uint64 // of VarintType
	bytes     []byte // of BytesType
	malformed bool
}

func (c cursor) is(message protowire.Number) bool {
	return c.num == message && c.typ == protowire.BytesType
}

// next takes a field; false at the end, and where none can be read.
func (c *cursor) next() bool {
	if len(c.rest) == 0 {
		return false
	}
	num, typ, n := protowire.ConsumeTag(c.rest)
	if c.malformed = n < 0; c.malformed {
		return false
	}
	c.num, c.typ, c.rest = num, typ, c.rest[n:]
	switch typ {
	case protowire.VarintType:
		c.varint, n = protowire.ConsumeVarint(c.rest)
	case protowire.BytesType:
		c.bytes, n = protowire.ConsumeBytes(c.rest)
	default:
		n = protowire.ConsumeFieldValue(num, typ, c.rest)
	}
	if c.malformed = n < 0; c.malformed {
		return false
	}
	c.rest = c.rest[n:]
	return true
}
