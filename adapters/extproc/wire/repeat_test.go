package wire

import (
	"bytes"
	"runtime"
	"slices"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// field is a length-delimited field.
func field(num protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), content)
}

// repeated is a field that stands n times.
func repeated(n int, num protowire.Number, content []byte) []byte {
	return bytes.Repeat(field(num, content), n)
}

// pair is an entry of a map.
func pair(key string, value []byte) []byte { return append(field(1, []byte(key)), value...) }

// repetitions are frames in which one field stands n times and is to be merged, with what reads it.
// Each shows n strings.
var repetitions = map[string]struct {
	frame func(n int) []byte
	read  func(r *Request, seen func())
}{
	"the message": {
		func(n int) []byte { return repeated(n, 2, field(1, field(1, nil))) },
		readAllHeaders,
	},
	"its headers": {
		func(n int) []byte { return field(2, repeated(n, 1, field(1, nil))) },
		readAllHeaders,
	},
	"the metadata": {
		func(n int) []byte {
			element := field(6, field(1, field(3, nil)))
			return append(field(8, field(1, pair("ns", field(2, field(1, pair("k", repeated(n, 2, element))))))),
				repeated(n, 8, nil)...)
		},
		readAllMeta,
	},
	"a map's value": {
		func(n int) []byte {
			list := repeated(n, 6, field(1, field(3, nil)))
			return field(8,
				field(1, pair("ns", append(repeated(n, 2, nil), field(2, field(1, pair("k", field(2, list))))...))))
		},
		readAllMeta,
	},
}

func readAllHeaders(r *Request, seen func()) {
	r.Headers(func(_, _ []byte) bool { seen(); return true })
}

func readAllMeta(r *Request, seen func()) {
	r.Meta("ns", []string{"k"}, func([]byte) bool { seen(); return true })
}

// What is merged costs in proportion to its size, and the frame that it is merged from stays as it is.
func TestRepeatedFieldsCostTheirSize(t *testing.T) {
	const few, many = 2000, 16000
	for name, tc := range repetitions {
		cost := func(n int) uint64 {
			frame := tc.frame(n)
			before := slices.Clone(frame)
			var r Request
			if err := (Codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(frame)}, &r); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			count := 0
			bytesTaken := allocated(func() { tc.read(&r, func() { count++ }) })
			if count != n {
				t.Errorf("%s, %d times: %d strings are seen", name, n, count)
			}
			if !bytes.Equal(frame, before) {
				t.Errorf("%s, %d times: the frame is written over", name, n)
			}
			return bytesTaken
		}
		short, long := cost(few), cost(many)
		if short == 0 || long > 3*many/few*short {
			t.Errorf("%s: %d bytes for %d times, %d for %d, want them in proportion", name, short, few, long, many)
		}
	}
}

// allocated is how many bytes are allocated by what a function does.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
