package wire

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/signalbox-epp/signalbox/engine/protofield"
)

// Request is one received ProcessingRequest. The zero value is ready for Recv; reuse one per stream.
type Request struct {
	Kind Kind
	// EndOfStream is the end_of_stream of headers and bodies. It is false for trailers, which always end their
	// direction.
	EndOfStream bool
	// Message is what a body in mode GRPC says of the gRPC message in it. It is zero in other modes.
	Message Message

	observability bool
	hasModes      bool
	modes         Modes

	held    mem.BufferSlice // references kept until Release
	frame   []byte          // the top-level fields, without the body member if that lies in several buffers
	member  int             // offset in frame at which the fields of the current oneof member begin
	bodyOff int             // offset of the body in held, counted over all buffers
	bodyLen int             // bytes of the body
	tail    []byte          // memory of its own, for fields behind a split body that must be joined
}

// Message is what mode GRPC says of the one gRPC message that a body carries.
type Message struct {
	None       bool // the end of the stream came without a message
	Compressed bool
}

// maxTailBytes bounds the memory that a Request keeps from one message to the next.
const maxTailBytes = 16 << 10

// Observability reports whether the proxy only shows its messages and takes no answer.
func (r *Request) Observability() bool { return r.observability }

// Modes returns the stream's protocol_config. It returns false if the message carries none.
func (r *Request) Modes() (Modes, bool) { return r.modes, r.hasModes }

// Release gives the buffers back. No view is valid after it; the Request is empty and may be used again.
func (r *Request) Release() {
	r.held.Free()
	clear(r.held)
	tail := r.tail[:0]
	if cap(tail) > maxTailBytes {
		tail = nil
	}
	*r = Request{held: r.held[:0], tail: tail}
}

// BodyLen returns how many bytes the body has; 0 for other kinds.
func (r *Request) BodyLen() int { return r.bodyLen }

// AppendBody appends the body to dst.
func (r *Request) AppendBody(dst []byte) []byte {
	r.BodyPieces(func(piece []byte) bool {
		dst = append(dst, piece...)
		return true
	})
	return dst
}

// BodyPieces calls visit for each piece of the body in order, until visit returns false. Pieces are never empty, and
// are valid until Release.
func (r *Request) BodyPieces(visit func(piece []byte) bool) {
	skip, left := r.bodyOff, r.bodyLen
	for _, b := range r.held {
		if left == 0 {
			return
		}
		data := b.ReadOnlyData()
		if skip >= len(data) {
			skip -= len(data)
			continue
		}
		piece := data[skip:min(len(data), skip+left)]
		skip, left = 0, left-len(piece)
		if !visit(piece) {
			return
		}
	}
}

// unmarshal reads one frame. A body message in several buffers stays in them if it has the usual form. Any other frame
// in several buffers is joined first, so that one reader handles everything unusual.
func (r *Request) unmarshal(data mem.BufferSlice) error {
	r.Release()
	if len(data) == 0 {
		return nil
	}
	if len(data) > 1 && r.readSplit(data) {
		return nil
	}
	joined := join(data)
	frame := joined.ReadOnlyData()
	if !check(request, frame, maxDepth) {
		joined.Free()
		return errMalformed
	}
	r.held = append(r.held, joined)
	r.frame = frame
	r.extract()
	return nil
}

// join returns one buffer with the bytes of data and a reference of its own.
func join(data mem.BufferSlice) mem.Buffer {
	if len(data) == 1 {
		data[0].Ref()
		return data[0]
	}
	b := buffers.Get(data.Len())
	data.CopyTo(*b)
	return mem.NewBuffer(b, buffers)
}

// memberKinds maps the field numbers of the oneof to kinds.
var memberKinds = [...]Kind{
	2: RequestHeaders, 3: ResponseHeaders, 4: RequestBody, 5: ResponseBody, 6: RequestTrailers, 7: ResponseTrailers,
}

func memberKind(c *protofield.Cursor) Kind {
	if c.Typ != protowire.BytesType || int(c.Num) >= len(memberKinds) {
		return None
	}
	return memberKinds[c.Num]
}

// extract reads the top-level fields of a frame that passed check. As in protobuf, the last member of the oneof wins,
// and a member that is repeated merges with itself.
func (r *Request) extract() {
	c := protofield.Cursor{Rest: r.frame}
	for {
		at := len(r.frame) - len(c.Rest)
		if !c.Next() {
			return
		}
		kind := memberKind(&c)
		switch {
		case kind != None:
			if kind != r.Kind {
				r.Kind, r.member, r.EndOfStream, r.Message, r.bodyOff, r.bodyLen = kind, at, false, Message{}, 0, 0
			}
			r.extractMember(c.Bytes, len(r.frame)-len(c.Rest)-len(c.Bytes))
		case c.Num == 10 && c.Typ == protowire.VarintType:
			r.observability = c.Varint != 0
		case c.Is(11):
			r.extractModes(c.Bytes)
		}
	}
}

// extractMember reads what is wanted of headers and bodies at once. b stands at offset at of the held bytes.
func (r *Request) extractMember(b []byte, at int) {
	var eos protowire.Number
	isBody := false
	switch r.Kind {
	case RequestHeaders, ResponseHeaders:
		eos = 3
	case RequestBody, ResponseBody:
		eos, isBody = 2, true
	default:
		return
	}
	c := protofield.Cursor{Rest: b}
	for c.Next() {
		if c.Num == eos && c.Typ == protowire.VarintType {
			r.EndOfStream = c.Varint != 0
		}
		if isBody {
			r.Message.read(&c)
		}
		if isBody && c.Is(1) {
			r.bodyOff, r.bodyLen = at+len(b)-len(c.Rest)-len(c.Bytes), len(c.Bytes)
		}
	}
}

// read takes a field of an HttpBody.
func (m *Message) read(c *protofield.Cursor) {
	if c.Typ != protowire.VarintType {
		return
	}
	switch c.Num {
	case 3:
		m.None = c.Varint != 0
	case 4:
		m.Compressed = c.Varint != 0
	}
}

func (r *Request) extractModes(b []byte) {
	r.hasModes = true
	c := protofield.Cursor{Rest: b}
	for c.Next() {
		if c.Typ != protowire.VarintType {
			continue
		}
		switch c.Num {
		case 1:
			r.modes.RequestBody = BodyMode(c.Varint)
		case 2:
			r.modes.ResponseBody = BodyMode(c.Varint)
		}
	}
}
