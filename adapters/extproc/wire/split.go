package wire

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/signalbox-epp/signalbox/engine/protofield"
)

// bodyHead says where the parts of a body message stand in its frame, in bytes from the start of the frame.
type bodyHead struct {
	kind    Kind
	msgTag  int // tag of the HttpBody; other top-level fields may stand before it
	bodyOff int
	bodyEnd int
	msgEnd  int // end of the HttpBody; other top-level fields may follow
}

// readHead reads the start of a frame whose first buffer holds everything before the body, and whose HttpBody begins
// with the body, as generated encoders write it. It returns false for every other form, and for a malformed one.
// Lengths are compared unsigned, before they are converted.
func readHead(first []byte, total int) (h bodyHead, ok bool) {
	h.kind, h.msgTag = findBody(first)
	if h.kind == None {
		return h, false
	}
	at := h.msgTag + 1
	size, n := protowire.ConsumeVarint(first[at:])
	if n < 0 || size > uint64(total-at-n) {
		return h, false
	}
	at += n
	h.msgEnd = at + int(size)
	if at >= len(first) || first[at] != 1<<3|byte(protowire.BytesType) {
		return h, false
	}
	size, n = protowire.ConsumeVarint(first[at+1:])
	h.bodyOff = at + 1 + n
	if n < 0 || h.bodyOff > h.msgEnd || size > uint64(h.msgEnd-h.bodyOff) {
		return h, false
	}
	h.bodyEnd = h.bodyOff + int(size)
	return h, true
}

// findBody returns the kind and the offset of the first body member's tag, or None if a field before it does not lie
// in first as a whole.
func findBody(first []byte) (Kind, int) {
	at := 0
	for at < len(first) {
		switch first[at] {
		case 4<<3 | byte(protowire.BytesType):
			return RequestBody, at
		case 5<<3 | byte(protowire.BytesType):
			return ResponseBody, at
		}
		_, _, n := protowire.ConsumeField(first[at:])
		if n < 0 {
			break
		}
		at += n
	}
	return None, 0
}

// readSplit reads a body message in several buffers without touching the body. It returns false, and leaves the
// Request empty, for every frame that has not the usual form; such frames are joined and read by unmarshal.
func (r *Request) readSplit(data mem.BufferSlice) bool {
	first := data[0].ReadOnlyData()
	h, ok := readHead(first, data.Len())
	if !ok {
		return false
	}
	rest := r.behind(data, h.bodyEnd)
	inner, frame := rest[:h.msgEnd-h.bodyEnd], rest[h.msgEnd-h.bodyEnd:]
	if !check(httpBody, inner, maxDepth-1) || hasBody(inner) {
		return false
	}
	end, about := bodyFlags(inner)
	frame = around(first[:h.msgTag], frame)
	if !check(request, frame, maxDepth) || hasMember(frame) {
		return false
	}
	data.Ref()
	r.held = append(r.held, data...)
	r.frame = frame
	r.extract()
	r.Kind, r.EndOfStream, r.Message = h.kind, end, about
	r.bodyOff, r.bodyLen = h.bodyOff, h.bodyEnd-h.bodyOff
	return true
}

// around returns the fields before and after the body member as one frame. It copies only if neither side is empty,
// which is rare.
func around(before, after []byte) []byte {
	if len(before) == 0 {
		return after
	}
	if len(after) == 0 {
		return before
	}
	frame := make([]byte, 0, len(before)+len(after))
	return append(append(frame, before...), after...)
}

// bodyFlags reads the fields of an HttpBody other than the body.
func bodyFlags(httpBody []byte) (end bool, about Message) {
	c := protofield.Cursor{Rest: httpBody}
	for c.Next() {
		about.read(&c)
		if c.Num == 2 && c.Typ == protowire.VarintType {
			end = c.Varint != 0
		}
	}
	return end, about
}

// behind returns the bytes of data from offset at on. If they lie in the last buffer it returns them in place,
// otherwise joined in the Request's own memory.
func (r *Request) behind(data mem.BufferSlice, at int) []byte {
	for i, b := range data {
		piece := b.ReadOnlyData()
		if at > len(piece) {
			at -= len(piece)
			continue
		}
		if i == len(data)-1 {
			return piece[at:]
		}
		r.tail = append(r.tail[:0], piece[at:]...)
		for _, b := range data[i+1:] {
			r.tail = append(r.tail, b.ReadOnlyData()...)
		}
		return r.tail
	}
	return nil
}

// hasBody reports whether a second body would replace the first.
func hasBody(httpBody []byte) bool {
	c := protofield.Cursor{Rest: httpBody}
	for c.Next() {
		if c.Is(1) {
			return true
		}
	}
	return false
}

// hasMember reports whether a later member of the oneof would replace the body or merge with it.
func hasMember(frame []byte) bool {
	c := protofield.Cursor{Rest: frame}
	for c.Next() {
		if memberKind(&c) != None {
			return true
		}
	}
	return false
}
