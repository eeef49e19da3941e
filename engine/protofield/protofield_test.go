package protofield_test

import (
	"bytes"
	"math"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/signalbox-epp/signalbox/engine/protofield"
)

// A cursor reads what protowire reads, field by field, and stops where protowire finds a field malformed.
func FuzzCursor(f *testing.F) {
	message := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 300)
	message = protowire.AppendBytes(protowire.AppendTag(message, 2, protowire.BytesType), []byte("text"))
	message = protowire.AppendFixed64(protowire.AppendTag(message, 15, protowire.Fixed64Type), 1)
	message = protowire.AppendGroup(protowire.AppendTag(message, 16, protowire.StartGroupType), 16, nil)
	f.Add(message)
	f.Add(message[:len(message)-1])
	f.Add(protowire.AppendTag(nil, 3, protowire.BytesType))
	f.Add(protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.BytesType), math.MaxUint64))
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, message []byte) {
		c := protofield.Cursor{Rest: message}
		for rest := message; ; {
			num, typ, value, n := consume(rest)
			if more := c.Next(); more != (n > 0) || c.Bad != (n < 0) {
				t.Fatalf("before %x: got more %v, bad %v; protowire reads %d bytes", rest, more, c.Bad, n)
			}
			if n <= 0 {
				return
			}
			if c.Num != num || c.Typ != typ || c.Is(num) != (typ == protowire.BytesType) {
				t.Fatalf("%x: got field %d of type %d, want %d of %d", rest, c.Num, c.Typ, num, typ)
			}
			switch typ {
			case protowire.BytesType:
				if content, _ := protowire.ConsumeBytes(value); !bytes.Equal(c.Bytes, content) {
					t.Fatalf("%x: got %x, want %x", rest, c.Bytes, content)
				}
			case protowire.VarintType:
				if v, _ := protowire.ConsumeVarint(value); c.Varint != v {
					t.Fatalf("%x: got %d, want %d", rest, c.Varint, v)
				}
			}
			rest = rest[n:]
		}
	})
}

// consume is protowire's reading of one field; n = 0 at the end, below 0 where it is malformed. Numbers that no message
// may have are malformed too, as generated code has it; protowire takes some.
func consume(b []byte) (num protowire.Number, typ protowire.Type, value []byte, n int) {
	if len(b) == 0 {
		return 0, 0, nil, 0
	}
	num, typ, tag := protowire.ConsumeTag(b)
	if tag < 0 || num > protowire.MaxValidNumber {
		return 0, 0, nil, -1
	}
	length := protowire.ConsumeFieldValue(num, typ, b[tag:])
	if length < 0 {
		return 0, 0, nil, length
	}
	return num, typ, b[tag:], tag + length
}
