package wire

import (
	"encoding/hex"
	"math/rand/v2"
	"sort"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// compare decodes frame both ways: both fail, or both show the same. The codec gets it cut as cuts say, in buffers that
// are poisoned when given back. It gives whether protobuf accepts the frame.
func compare(t *testing.T, frame []byte, cuts []int) (accepted bool) {
	t.Helper()
	pool := new(poisonPool)
	var data mem.BufferSlice
	rest := frame
	for _, n := range cuts {
		n = min(n, len(rest))
		data = append(data, pool.buffer(rest[:n]))
		rest = rest[n:]
	}
	data = append(data, pool.buffer(rest))
	var r Request
	err := Codec{}.Unmarshal(data, &r)
	data.Free()
	defer func() {
		r.Release()
		if pool.out != 0 {
			t.Fatalf("%d buffers leaked; frame %s, cuts %v", pool.out, hex.EncodeToString(frame), cuts)
		}
	}()
	var want extprocv3.ProcessingRequest
	wantErr := proto.Unmarshal(frame, &want)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("frame %s, cuts %v: got error %v, protobuf gives %v", hex.EncodeToString(frame), cuts, err, wantErr)
	}
	if err != nil {
		return false
	}
	got, expected := viewOf(&r), viewOfProto(&want)
	if !equal(&got, &expected) {
		t.Fatalf("frame %s, cuts %v, want -, got +:\n%s", hex.EncodeToString(frame), cuts, cmp.Diff(expected, got))
	}
	return true
}

// equal is cmp.Equal for views, without its cost for the common case of empty maps.
func equal(a, b *view) bool {
	same := a.Kind == b.Kind && a.EndOfStream == b.EndOfStream && a.Message == b.Message &&
		a.Observability == b.Observability && a.Body == b.Body &&
		a.HasModes == b.HasModes && a.Modes == b.Modes && len(a.Headers) == len(b.Headers)
	if !same {
		return false
	}
	for i := range a.Headers {
		if a.Headers[i] != b.Headers[i] {
			return false
		}
	}
	return len(a.Meta)+len(b.Meta)+len(a.Attr)+len(b.Attr) == 0 || cmp.Equal(*a, *b)
}

// frames makes random frames from the message descriptors: fields in any order, repeated, unknown,
// or with a wrong wire type.
type frames struct{ *rand.Rand }

func (f frames) message(d protoreflect.MessageDescriptor, depth int) (b []byte) {
	fields := d.Fields()
	for range f.IntN(5) {
		fd := fields.Get(f.IntN(fields.Len()))
		typ := wireType(fd.Kind())
		num := fd.Number()
		switch f.IntN(30) {
		case 0:
			typ = protowire.Type(f.IntN(6))
		case 1:
			num = protowire.Number(1 + f.IntN(40))
		}
		b = protowire.AppendTag(b, num, typ)
		b = f.field(b, fd, num, typ, depth)
	}
	return b
}

func (f frames) field(b []byte, fd protoreflect.FieldDescriptor, num protowire.Number, typ protowire.Type,
	depth int) []byte {
	switch typ {
	case protowire.VarintType:
		return protowire.AppendVarint(b, []uint64{0, 1, 4, 1 << 40, 1<<64 - 1}[f.IntN(5)])
	case protowire.Fixed64Type:
		return protowire.AppendFixed64(b, f.Uint64())
	case protowire.Fixed32Type:
		return protowire.AppendFixed32(b, f.Uint32())
	case protowire.StartGroupType:
		return protowire.AppendTag(protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), 1), num,
			protowire.EndGroupType)
	case protowire.BytesType:
		return protowire.AppendBytes(b, f.content(fd, depth))
	default:
		return b
	}
}

func (f frames) content(fd protoreflect.FieldDescriptor, depth int) []byte {
	switch {
	case fd.Message() != nil && depth > 0:
		return f.message(fd.Message(), depth-1)
	case fd.Message() != nil:
		return nil
	case fd.Kind() == protoreflect.BytesKind:
		return pattern([]int{0, 1, 20, 300, 5000}[f.IntN(5)])
	case f.IntN(40) == 0:
		return []byte("\xff")
	default:
		return []byte(names[f.IntN(len(names))])
	}
}

func wireType(k protoreflect.Kind) protowire.Type {
	switch k {
	case protoreflect.MessageKind, protoreflect.StringKind, protoreflect.BytesKind:
		return protowire.BytesType
	case protoreflect.DoubleKind:
		return protowire.Fixed64Type
	default:
		return protowire.VarintType
	}
}

// mutate changes a few bytes: flips, cuts, repeats, and the length bytes that overflow a signed number.
func (f frames) mutate(b []byte) []byte {
	for range 1 + f.IntN(3) {
		at := f.IntN(len(b) + 1)
		switch f.IntN(6) {
		case 0:
			if at < len(b) {
				b[at] ^= 1 << f.IntN(8)
			}
		case 1:
			b = b[:at]
		case 2:
			b = append(b[:at:at], b[min(len(b), at+1+f.IntN(4)):]...)
		case 3:
			b = append(b[:at:at], append([]byte{byte(f.IntN(256))}, b[at:]...)...)
		case 4:
			huge := [][]byte{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
				{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1}, {0x80, 0}, {0xff, 0xff, 0xff, 0xff, 0x0f}}
			b = append(b[:at:at], append(huge[f.IntN(len(huge))], b[min(len(b), at+1):]...)...)
		case 5:
			to := min(len(b), at+f.IntN(12))
			b = append(b[:to:to], b[at:]...)
		}
	}
	return b
}

// frame makes one frame: by the descriptors, or with a body in the usual form with something before and after it.
func (f frames) frame() []byte {
	d := (&extprocv3.ProcessingRequest{}).ProtoReflect().Descriptor()
	if f.IntN(3) > 0 {
		return f.message(d, 7)
	}
	body := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), pattern(f.IntN(200)))
	if f.IntN(2) == 0 {
		body = append(body, 0x10, byte(f.IntN(2)))
	}
	var b []byte
	if f.IntN(4) == 0 {
		b = f.message(d, 3)
	}
	b = protowire.AppendBytes(protowire.AppendTag(b, protowire.Number(4+f.IntN(2)), protowire.BytesType), body)
	if f.IntN(2) == 0 {
		b = append(b, f.message(d, 5)...)
	}
	return b
}

func TestMutations(t *testing.T) {
	count := 150_000
	if testing.Short() || underRace() {
		count = 40_000
	}
	const seed = 20261121
	f := frames{rand.New(rand.NewPCG(seed, 1))}
	accepted := 0
	for range count {
		frame := f.frame()
		if f.IntN(3) > 0 {
			frame = f.mutate(frame)
		}
		var cuts []int
		for range f.IntN(4) {
			cuts = append(cuts, f.IntN([]int{4, 16, 400}[f.IntN(3)]))
		}
		if compare(t, frame, cuts) {
			accepted++
		}
	}
	t.Logf("seed %d: %d frames, %d accepted", seed, count, accepted)
	if accepted < count/5 || accepted > count*9/10 {
		t.Errorf("protobuf accepts %d of %d frames: the mix no longer tests both sides", accepted, count)
	}
}

// nest is a message that is written from its end, so that n levels cost n steps.
type nest struct {
	bytes []byte
	begin int // of what is written
}

// wrap makes all that is written the content of each of these fields in turn.
func (n *nest) wrap(numbers ...protowire.Number) {
	for _, number := range numbers {
		head := protowire.AppendVarint(nil, protowire.EncodeTag(number, protowire.BytesType))
		n.write(protowire.AppendVarint(head, uint64(len(n.bytes)-n.begin)))
	}
}

func (n *nest) write(head []byte) {
	if n.begin < len(head) {
		grown := make([]byte, 2*len(n.bytes)+64)
		copy(grown[len(grown)-len(n.bytes):], n.bytes)
		n.begin += len(grown) - len(n.bytes)
		n.bytes = grown
	}
	n.begin -= copy(n.bytes[n.begin-len(head):], head)
}

func (n *nest) message() []byte { return n.bytes[n.begin:] }

// nestings wrap so many levels around nothing, in the three ways that can recurse.
var nestings = map[string]func(levels int) []byte{
	"structs": func(levels int) []byte {
		var n nest
		for range levels {
			n.wrap(5, 2, 1) // Value.struct_value, FieldsEntry.value, Struct.fields
		}
		n.wrap(2, 9)
		return n.message()
	},
	"lists": func(levels int) []byte {
		var n nest
		for range levels {
			n.wrap(1, 6) // ListValue.values, Value.list_value
		}
		n.wrap(2, 1, 2, 9)
		return n.message()
	},
	"groups": func(levels int) (b []byte) {
		for range levels {
			b = protowire.AppendTag(b, 40, protowire.StartGroupType)
		}
		for range levels {
			b = protowire.AppendTag(b, 40, protowire.EndGroupType)
		}
		return b
	},
	// A map field with a wrong wire type is refused at the last level, although it would be skipped elsewhere.
	"wrong map": func(levels int) []byte {
		var n nest
		n.write([]byte{1 << 3, 0})
		for range levels {
			n.wrap(5, 2, 1)
		}
		n.wrap(2, 2, 2) // the second is HttpHeaders.attributes
		return n.message()
	},
}

func TestDepthLimit(t *testing.T) {
	for name, nest := range nestings {
		ours := sort.Search(12000, func(n int) bool {
			return Codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(nest(n))}, new(Request)) != nil
		})
		theirs := sort.Search(12000, func(n int) bool {
			return proto.Unmarshal(nest(n),
				new(extprocv3.ProcessingRequest)) != nil
		})
		if ours != theirs || theirs == 12000 {
			t.Errorf("%s: we refuse from %d levels on, protobuf from %d", name, ours, theirs)
		}
	}
}

func FuzzRequest(f *testing.F) {
	for _, m := range goldenRequests(f) {
		for _, h := range append(m.GetRequestHeaders().GetHeaders().GetHeaders(),
			m.GetRequestTrailers().GetTrailers().GetHeaders()...) {
			h.RawValue = h.RawValue[:min(len(h.RawValue), 20)]
		}
		frame, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		if len(frame) < 2000 {
			f.Add(frame, uint16(4), uint16(30))
		}
	}
	f.Add([]byte("\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x0a\x01x"), uint16(12), uint16(1))
	f.Add([]byte("\x22\x05\x0a\x03abc\x10\x01\x22\x02\x0a\x00"), uint16(5), uint16(1))
	f.Fuzz(func(t *testing.T, frame []byte, first, second uint16) {
		compare(t, frame, []int{int(first), int(second)})
	})
}
