// Package protofield reads the fields of an encoded protobuf message one after the other, without a generated type for
// it and without an allocation. It does not know what a field means.
package protofield

import "google.golang.org/protobuf/encoding/protowire"

// Cursor walks the fields of one encoded message. Groups and fixed-width fields are skipped over; callers look only at
// Num, Typ, Varint and Bytes, which are those of the field that Next has read.
type Cursor struct {
	Rest   []byte // what has not been read
	Bytes  []byte // content of a length-delimited field; it ends where Rest begins
	Varint uint64 // of a varint
	Num    protowire.Number
	Typ    protowire.Type
	Bad    bool // a field could not be read: nothing follows
}

// Next reads one field. It returns false at the end and at the first malformed field, which sets Bad.
func (c *Cursor) Next() bool {
	b := c.Rest
	if len(b) < 2 || b[0]&0x87 != byte(protowire.BytesType) || b[0] < 8 {
		return c.next()
	}
	size, n := uint64(b[1]), 2 // most fields are length-delimited, and have a tag of one byte
	if size >= 0x80 {
		if size, n = protowire.ConsumeVarint(b[1:]); n < 0 {
			return c.fail()
		}
		n++
	}
	if size > uint64(len(b)-n) {
		return c.fail()
	}
	end := n + int(size)
	c.Num, c.Typ, c.Bytes, c.Rest = protowire.Number(b[0]>>3), protowire.BytesType, b[n:end], b[end:]
	return true
}

// next reads a field of any form.
func (c *Cursor) next() bool {
	if len(c.Rest) == 0 {
		return false
	}
	tag, n := readVarint(c.Rest)
	if n < 0 || tag>>3 < 1 || tag>>3 > uint64(protowire.MaxValidNumber) {
		return c.fail()
	}
	c.Num, c.Typ = protowire.Number(tag>>3), protowire.Type(tag&7)
	b := c.Rest[n:]
	switch c.Typ {
	case protowire.BytesType:
		var size uint64
		size, n = readVarint(b)
		if n < 0 || size > uint64(len(b)-n) {
			return c.fail()
		}
		c.Bytes, c.Rest = b[n:n+int(size)], b[n+int(size):]
		return true
	case protowire.VarintType:
		c.Varint, n = readVarint(b)
	default:
		n = protowire.ConsumeFieldValue(c.Num, c.Typ, b)
	}
	if n < 0 {
		return c.fail()
	}
	c.Rest = b[n:]
	return true
}

// readVarint is protowire.ConsumeVarint with the common case of one byte inlined; a negative n is an error.
func readVarint(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return protowire.ConsumeVarint(b)
}

func (c *Cursor) fail() bool {
	c.Bad, c.Rest = true, nil
	return false
}

// Is reports whether the field is length-delimited and has number num. A known number with another wire type is an
// unknown field.
func (c *Cursor) Is(num protowire.Number) bool {
	return c.Num == num && c.Typ == protowire.BytesType
}

// valueTypes has the wire type of each member of google.protobuf.Value: null, number, string, bool, struct, list.
var valueTypes = [...]protowire.Type{
	1: protowire.VarintType, 2: protowire.Fixed64Type, 3: protowire.BytesType, 4: protowire.VarintType,
	5: protowire.BytesType, 6: protowire.BytesType,
}

// IsValueMember reports whether the field, in a google.protobuf.Value, is a member that the message knows.
func (c *Cursor) IsValueMember() bool {
	return int(c.Num) < len(valueTypes) && valueTypes[c.Num] == c.Typ
}
