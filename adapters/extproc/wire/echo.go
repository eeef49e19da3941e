package wire

import (
	"slices"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// ChunkBytes is the largest body that Echo puts into one response; some proxies refuse messages above 64 KiB.
const ChunkBytes = 62000

// copyBytes is the largest chunk that is copied into its frame: up to this size one copy costs less than references to
// the parts.
const copyBytes = 256

// Echo turns a body into streamed responses. Start it, then call Next until it returns false, and send each response.
// The zero value has no response; one Echo can be started again and again.
type Echo struct {
	one       mem.Buffer      // an owned reference to the only part; nil = there are several
	parts     mem.BufferSlice // owned references to several
	at        int             // index of the part where the next chunk begins
	skip      int             // bytes of that part that were taken
	left      int             // bytes of the body that were not taken
	direction Direction
	eos       bool // the body ends the stream
	about     Message
	whole     bool   // one response, however large
	more      bool   // Next has another response
	tail      []byte // what follows the body in the last response; it belongs to the transport then
}

// StartRequest takes over the body of r and its end_of_stream without a copy, to send the same bytes back in the same
// direction. It releases r, so whatever is needed of r must be read before. An empty body that is not the last has no
// response.
func (e *Echo) StartRequest(r *Request) {
	e.Discard()
	e.direction, e.eos, e.left, e.skip = r.Kind.Direction(), r.EndOfStream, r.bodyLen, r.bodyOff
	e.more = (r.Kind == RequestBody || r.Kind == ResponseBody) && (e.left > 0 || e.eos)
	if len(r.held) == 1 {
		e.one, r.held[0] = r.held[0], nil
		r.held = r.held[:0]
	} else {
		e.parts, r.held = r.held, e.parts
	}
	r.Release()
}

// StartMessage is StartRequest for mode GRPC: the one message of r is sent back whole, even if it is empty.
func (e *Echo) StartMessage(r *Request) {
	about, body := r.Message, r.Kind == RequestBody || r.Kind == ResponseBody
	e.StartRequest(r)
	e.about, e.whole, e.more = about, true, body
}

// StartBody takes over the buffer of b, which is empty afterwards. The buffer returns to the pool when the last chunk
// is written.
func (e *Echo) StartBody(direction Direction, b *Body, endOfStream bool) {
	e.start(direction, b.Len(), endOfStream)
	if b.buf != nil {
		e.one = mem.NewBuffer(b.buf, buffers)
		b.buf = nil
	}
}

func (e *Echo) start(direction Direction, size int, endOfStream bool) {
	e.Discard()
	e.direction, e.eos, e.left, e.more = direction, endOfStream, size, size > 0 || endOfStream
}

// Tell adds dynamic metadata to the last response. It is called after Start.
func (e *Echo) Tell(metadata []Namespace) { e.tail = appendMetadata(nil, metadata) }

// Discard drops what Next has not returned.
func (e *Echo) Discard() {
	if e.one != nil {
		e.one.Free()
	}
	e.parts.Free()
	clear(e.parts)
	*e = Echo{parts: e.parts[:0]}
}

// Next sets out to the next response. The last one has end_of_stream if the body ends the stream. Next returns false
// when there is no response left.
func (e *Echo) Next(out *Response) bool {
	if !e.more {
		return false
	}
	n := e.left
	if !e.whole {
		n = min(n, ChunkBytes)
	}
	e.more = n < e.left
	head := chunkHead{direction: e.direction, size: n, eos: e.eos && !e.more, about: e.about}
	var tail []byte
	if !e.more {
		tail = e.tail
	}
	if n <= copyBytes {
		f := new(smallFrame)
		frame := head.append(f.raw[:0])
		e.advance(n, func(part mem.Buffer, from, to int) {
			frame = append(frame, part.ReadOnlyData()[from:to]...)
		})
		out.set(&f.plainFrame, append(frame, tail...))
	} else {
		out.Discard()
		out.frame = e.cut(head)
		if len(tail) > 0 {
			out.frame = append(out.frame, mem.SliceBuffer(tail))
		}
	}
	if !e.more {
		e.Discard()
	}
	return true
}

// smallFrame holds a frame of one plain buffer, and the bytes of it, in one allocation.
type smallFrame struct {
	plainFrame
	raw [maxHeadBytes + copyBytes]byte
}

// chunkFrame holds the list of a frame's buffers and its first buffer in one allocation. It is never used twice,
// because the transport may read it long after Send.
type chunkFrame struct {
	list [6]mem.Buffer
	head mem.SliceBuffer
	raw  [maxHeadBytes]byte
}

// cut returns the frame of one chunk. The frame refers to the parts.
func (e *Echo) cut(head chunkHead) mem.BufferSlice {
	f := new(chunkFrame)
	f.head = head.append(f.raw[:0])
	f.list[0] = &f.head
	frame := mem.BufferSlice(f.list[:1])
	e.advance(head.size, func(part mem.Buffer, from, to int) {
		frame = append(frame, part.Slice(from, to))
	})
	return frame
}

// advance calls visit for the pieces of the next n bytes.
func (e *Echo) advance(n int, visit func(part mem.Buffer, from, to int)) {
	e.left -= n
	for n > 0 {
		part := e.one
		if part == nil {
			part = e.parts[e.at]
		}
		size := min(n, part.Len()-e.skip)
		if size <= 0 {
			e.skip -= part.Len()
			e.at++
			continue
		}
		visit(part, e.skip, e.skip+size)
		e.skip, n = e.skip+size, n-size
	}
}

// maxHeadBytes is room for what stands before the body in a frame: five tags, five lengths of at most 5 bytes,
// three flags.
const maxHeadBytes = 36

// chunkHead is a streamed response without its body.
type chunkHead struct {
	size      int
	direction Direction
	eos       bool
	about     Message
}

// append writes all fields that stand before the body: ProcessingResponse.{request,response}_body (3, 4),
// BodyResponse.response (1), CommonResponse.body_mutation (3), BodyMutation.streamed_response (3), and the flags.
// Flags stand before the body so that nothing follows it.
func (h chunkHead) append(dst []byte) []byte {
	streamed := 0
	if h.size > 0 {
		streamed += 1 + protowire.SizeBytes(h.size)
	}
	for _, flag := range h.flags() {
		if flag {
			streamed += 2
		}
	}
	mutation := 1 + protowire.SizeBytes(streamed)
	common := 1 + protowire.SizeBytes(mutation)
	body := 1 + protowire.SizeBytes(common)
	dst = appendLength(dst, 3+protowire.Number(h.direction), body)
	dst = appendLength(dst, 1, common)
	dst = appendLength(dst, 3, mutation)
	dst = appendLength(dst, 3, streamed)
	for i, flag := range h.flags() {
		if flag {
			dst = appendUint(dst, 2+protowire.Number(i), 1)
		}
	}
	if h.size > 0 {
		dst = appendLength(dst, 1, h.size)
	}
	return dst
}

// flags returns the fields 2 to 4 of a StreamedBodyResponse.
func (h chunkHead) flags() [3]bool { return [3]bool{h.eos, h.about.None, h.about.Compressed} }

func appendLength(dst []byte, num protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.BytesType), uint64(size))
}

// maxReserveBytes bounds what Reserve allocates because a header announced a length: a client that then sends nothing
// costs no more.
const maxReserveBytes = 64 << 10

// Body gathers the body of one direction in one pooled buffer, so that it can be read as a whole and then echoed. The
// buffer doubles as the body grows. Once half of the length that was told has come, the buffer gets exactly that
// length. The zero value is empty.
type Body struct {
	buf  *[]byte
	told int // the length of the body, if a header told one, which may be wrong
}

// Reserve notes that the body will have size bytes, and makes room for at most 64 KiB of them: size may come from a
// content-length, which can be any number.
func (b *Body) Reserve(size int) {
	b.told = size
	size = Reservable(size)
	if size > 0 && (b.buf == nil || cap(*b.buf) < size) {
		b.grow(size)
	}
}

// Reservable returns how much of a length Reserve makes room for.
func Reservable(size int) int { return min(size, maxReserveBytes) }

// Takes returns the memory that the body takes once n more bytes have come or are reserved: the capacity of its
// buffer.
func (b *Body) Takes(n int) int {
	if n == 0 && b.buf == nil {
		return 0
	}
	return b.room(b.Len() + n)
}

// room returns the capacity of the buffer for need bytes.
func (b *Body) room(need int) int {
	if b.buf == nil {
		return capacity(need)
	}
	if c := cap(*b.buf); c >= need {
		return c
	}
	twice := capacity(max(need, 2*cap(*b.buf)))
	switch half := (b.told + 1) / 2; {
	case b.told < need: // no length was told, or one that was wrong
		return twice
	case half <= need:
		return capacity(b.told)
	case half < twice:
		return capacity(half)
	}
	return twice
}

// Append copies the body of r to the end of b.
func (b *Body) Append(r *Request) {
	need := b.Len() + r.bodyLen
	if r.bodyLen == 0 {
		return
	}
	if room := b.room(need); b.buf == nil || cap(*b.buf) < room {
		b.grow(room)
	}
	*b.buf = r.AppendBody(*b.buf)
}

// Fill has add append to the body, with room for n bytes more made ready.
func (b *Body) Fill(n int, add func(dst []byte) []byte) {
	if need := b.Len() + n; b.buf == nil || cap(*b.buf) < need {
		b.grow(need)
	}
	*b.buf = add(*b.buf)
}

// Splice puts text in the place of the bytes from..to.
func (b *Body) Splice(from, to int, text []byte) {
	if room := b.room(b.Len() + max(len(text)-(to-from), 0)); b.buf == nil || cap(*b.buf) < room {
		b.grow(room)
	}
	*b.buf = slices.Replace(*b.buf, from, to, text...)
}

// spareBytes is how much more than its bytes the buffer of a body may take while it is kept for long.
const spareBytes = 8 << 10

// Settle moves a body that will be kept for long to a buffer of its own size, if that takes much less memory. It
// returns the capacity of the buffer.
func (b *Body) Settle() int {
	if b.buf == nil {
		return 0
	}
	if cap(*b.buf)-len(*b.buf) > spareBytes {
		own := append(make([]byte, 0, len(*b.buf)), *b.buf...)
		b.Release()
		b.buf = &own
	}
	return cap(*b.buf)
}

// Len returns how many bytes were gathered.
func (b *Body) Len() int {
	return len(b.Bytes())
}

// Bytes returns the body. It is valid until the next Append, Reserve, Release or Echo.StartBody.
func (b *Body) Bytes() []byte {
	if b.buf == nil {
		return nil
	}
	return *b.buf
}

// Release gives the buffer back to the pool. The Body is empty then, and may be used again.
func (b *Body) Release() {
	if b.buf != nil {
		buffers.Put(b.buf)
		b.buf = nil
	}
}

func (b *Body) grow(size int) {
	bigger := buffers.Get(size)
	*bigger = append((*bigger)[:0], b.Bytes()...)
	b.Release()
	b.buf = bigger
}
