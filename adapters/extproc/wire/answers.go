package wire

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Response is one ProcessingResponse to be sent. The zero value is empty; set it, Send it, set it again. Setting one
// that was not sent drops the frame before.
type Response struct {
	frame mem.BufferSlice
}

// Discard drops a frame that will not be sent.
func (r *Response) Discard() {
	r.frame.Free()
	r.frame = nil
}

// The frames of the empty answers: shared and unpooled, so that any number of streams can send them at once.
var (
	emptyHeaders  = [2]mem.BufferSlice{fixedFrame(1), fixedFrame(2)}
	emptyBody     = [2]mem.BufferSlice{fixedFrame(3), fixedFrame(4)}
	emptyTrailers = [2]mem.BufferSlice{fixedFrame(5), fixedFrame(6)}
)

func fixedFrame(num protowire.Number) mem.BufferSlice {
	return mem.BufferSlice{mem.SliceBuffer(protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.BytesType),
		0))}
}

// SetEmptyHeaders answers the direction's headers without a change.
func (r *Response) SetEmptyHeaders(direction Direction) {
	r.Discard()
	r.frame = emptyHeaders[direction]
}

// SetEmptyBody answers a body message of the direction without a change,
// in modes other than FULL_DUPLEX_STREAMED and GRPC.
func (r *Response) SetEmptyBody(direction Direction) {
	r.Discard()
	r.frame = emptyBody[direction]
}

// SetEmptyTrailers answers the direction's trailers without a change. Send it only if trailers were received.
func (r *Response) SetEmptyTrailers(direction Direction) {
	r.Discard()
	r.frame = emptyTrailers[direction]
}

// plainFrame keeps a frame of one plain buffer in one allocation:
// a pointer to the SliceBuffer is a Buffer without boxing.
type plainFrame struct {
	list [1]mem.Buffer
	data mem.SliceBuffer
}

// SetFrame sends the encoding made by one of the Append functions.
// The memory of frame belongs to the transport from here on.
func (r *Response) SetFrame(frame []byte) {
	r.set(new(plainFrame), frame)
}

func (r *Response) set(f *plainFrame, frame []byte) {
	r.Discard()
	f.data = frame
	f.list[0] = &f.data
	r.frame = f.list[:]
}

// Header is one header to set. It overwrites what is there.
type Header struct {
	Key, Value string
}

// Field is one string of dynamic metadata.
type Field struct {
	Key, Value string
}

// Struct is one struct of dynamic metadata, all of whose fields are numbers.
type Struct struct {
	Key     string
	Numbers []Number
}

// Number is one number of a Struct or a Namespace. It is finite, for proxies write metadata as JSON, which has no other
// numbers.
type Number struct {
	Key   string
	Value float64
}

// Namespace is one top-level key of dynamic metadata. Of two with one name, or two of its entries with one key, the
// later wins; structs come after fields, and numbers after structs.
type Namespace struct {
	Name    string
	Fields  []Field
	Structs []Struct
	Numbers []Number
}

// HeadersAnswer is an answer that changes the headers of a direction.
type HeadersAnswer struct {
	Direction Direction
	// OnBody makes it the answer to the body, which the proxy holds together with the headers (mode BUFFERED).
	OnBody          bool
	Body            []byte // takes the place of the one that the proxy holds; only with OnBody; nil = that one stays
	Set             []Header
	Remove          []string
	ClearRouteCache bool // Envoy ignores it without a header mutation, and in the response direction
	Metadata        []Namespace
	// Override asks the proxy for other body modes; nil = it does not. Envoy takes it if its filter has
	// allow_mode_override, the modes are among its allowed_override_modes, if there are any, and neither mode so far is
	// FULL_DUPLEX_STREAMED. Else it says nothing.
	Override *Modes
}

// Immediate is a reply to the client in place of the exchange.
type Immediate struct {
	Status   int // HTTP status, 200 to 599
	GRPC     int // status of gRPC for a client of it; 0 = the proxy derives it from Status
	Headers  []Header
	Body     []byte
	Details  string // appears in Envoy's RESPONSE_CODE_DETAILS
	Metadata []Namespace
}

// AppendHeadersAnswer appends the encoding of a to dst. Header values are sent as raw_value with append_action
// OVERWRITE_IF_EXISTS_OR_ADD, which means the same to Envoy, which ignores it, and to proxies that honour it. Here and
// in AppendImmediate, names, metadata and details that are not UTF-8 get U+FFFD in the place of what is wrong, since
// the proxy would refuse the whole frame.
func AppendHeadersAnswer(dst []byte, a *HeadersAnswer) []byte {
	num := 1 + protowire.Number(a.Direction)
	if a.OnBody {
		num += 2
	}
	dst = slices.Grow(dst, a.room())
	dst, headers := open(dst, num)
	dst, common := open(dst, 1)
	if len(a.Set)+len(a.Remove) > 0 {
		dst = appendMutation(dst, 2, a.Set, a.Remove)
	}
	if a.Body != nil {
		var body int
		dst, body = open(dst, 3)
		dst = protowire.AppendBytes(protowire.AppendTag(dst, 1, protowire.BytesType), a.Body)
		dst = shut(dst, body)
	}
	if a.ClearRouteCache {
		dst = appendUint(dst, 5, 1)
	}
	dst = shut(dst, common)
	dst = shut(dst, headers)
	if a.Override != nil {
		var mode int
		dst, mode = open(dst, 9)
		dst = appendUint(dst, 3, uint64(a.Override.RequestBody))
		dst = appendUint(dst, 4, uint64(a.Override.ResponseBody))
		dst = shut(dst, mode)
	}
	return appendMetadata(dst, a.Metadata)
}

// room returns how many bytes the encoding takes at most, unless a length is above 16 KiB or a name is not UTF-8.
func (a *HeadersAnswer) room() int {
	const each = 24 // tags and lengths of one entry: of one or two texts, or of the modes
	n := 3*each + len(a.Body)
	for _, h := range a.Set {
		n += each + len(h.Key) + len(h.Value)
	}
	for _, key := range a.Remove {
		n += each + len(key)
	}
	for _, ns := range a.Metadata {
		n += each + len(ns.Name)
		for _, f := range ns.Fields {
			n += each + len(f.Key) + len(f.Value)
		}
		for _, s := range ns.Structs {
			n += each + len(s.Key)
			for _, number := range s.Numbers {
				n += each + len(number.Key)
			}
		}
		for _, number := range ns.Numbers {
			n += each + len(number.Key)
		}
	}
	return n
}

// AppendImmediate appends the encoding of i to dst. It sets no content-type; Envoy's default is text/plain.
func AppendImmediate(dst []byte, i *Immediate) []byte {
	dst, immediate := open(dst, 7)
	dst, status := open(dst, 1)
	dst = appendUint(dst, 1, uint64(i.Status))
	dst = shut(dst, status)
	if len(i.Headers) > 0 {
		dst = appendMutation(dst, 2, i.Headers, nil)
	}
	if len(i.Body) > 0 {
		dst = protowire.AppendBytes(protowire.AppendTag(dst, 3, protowire.BytesType), i.Body)
	}
	if i.GRPC != 0 {
		var grpc int
		dst, grpc = open(dst, 4)
		dst = appendUint(dst, 1, uint64(i.GRPC))
		dst = shut(dst, grpc)
	}
	if i.Details != "" {
		dst = appendText(dst, 5, i.Details)
	}
	dst = shut(dst, immediate)
	return appendMetadata(dst, i.Metadata)
}

// overwriteIfExistsOrAdd is the number of the append_action OVERWRITE_IF_EXISTS_OR_ADD.
const overwriteIfExistsOrAdd = 2

func appendMutation(dst []byte, num protowire.Number, set []Header, remove []string) []byte {
	dst, mutation := open(dst, num)
	for _, h := range set {
		var option, header int
		dst, option = open(dst, 1)
		dst, header = open(dst, 1)
		dst = appendText(dst, 1, h.Key)
		dst = protowire.AppendString(protowire.AppendTag(dst, 3, protowire.BytesType), h.Value)
		dst = shut(dst, header)
		dst = appendUint(dst, 3, overwriteIfExistsOrAdd)
		dst = shut(dst, option)
	}
	for _, key := range remove {
		dst = appendText(dst, 2, key)
	}
	return shut(dst, mutation)
}

// AppendTrailersAnswer appends an answer to the direction's trailers that leaves them as they are, with metadata. Send
// it only if trailers were received.
func AppendTrailersAnswer(dst []byte, direction Direction, metadata []Namespace) []byte {
	dst, trailers := open(dst, 5+protowire.Number(direction))
	return appendMetadata(shut(dst, trailers), metadata)
}

// appendMetadata appends the dynamic_metadata of a ProcessingResponse: Struct{namespace: Value{Struct{key:
// Value{string}, key: Value{Struct{key: Value{number}}}, key: Value{number}}}}.
func appendMetadata(dst []byte, namespaces []Namespace) []byte {
	if len(namespaces) == 0 {
		return dst
	}
	dst, top := open(dst, 8)
	for _, ns := range namespaces {
		var namespaceEntry, val, fields int
		dst, namespaceEntry = open(dst, 1)
		dst = appendText(dst, 1, ns.Name)
		dst, val = open(dst, 2)
		dst, fields = open(dst, 5)
		for _, f := range ns.Fields {
			dst = appendStringEntry(dst, f)
		}
		for _, s := range ns.Structs {
			dst = appendStructEntry(dst, s)
		}
		for _, n := range ns.Numbers {
			dst = appendNumberEntry(dst, n)
		}
		dst = shut(dst, fields)
		dst = shut(dst, val)
		dst = shut(dst, namespaceEntry)
	}
	return shut(dst, top)
}

func appendStringEntry(dst []byte, f Field) []byte {
	dst, fieldEntry := open(dst, 1)
	dst = appendText(dst, 1, f.Key)
	dst, val := open(dst, 2)
	dst = appendText(dst, 3, f.Value)
	dst = shut(dst, val)
	return shut(dst, fieldEntry)
}

func appendStructEntry(dst []byte, s Struct) []byte {
	dst, fieldEntry := open(dst, 1)
	dst = appendText(dst, 1, s.Key)
	dst, val := open(dst, 2)
	dst, fields := open(dst, 5)
	for _, n := range s.Numbers {
		dst = appendNumberEntry(dst, n)
	}
	dst = shut(dst, fields)
	dst = shut(dst, val)
	return shut(dst, fieldEntry)
}

// appendNumberEntry writes a zero too: a Value without a member is no number.
func appendNumberEntry(dst []byte, n Number) []byte {
	dst, fieldEntry := open(dst, 1)
	dst = appendText(dst, 1, n.Key)
	dst, val := open(dst, 2)
	dst = protowire.AppendFixed64(protowire.AppendTag(dst, 2, protowire.Fixed64Type), math.Float64bits(n.Value))
	dst = shut(dst, val)
	return shut(dst, fieldEntry)
}

func appendText(dst []byte, num protowire.Number, s string) []byte {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return protowire.AppendString(protowire.AppendTag(dst, num, protowire.BytesType), s)
}

func appendUint(dst []byte, num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.VarintType), v)
}

// open begins a message field with one byte of room for its length; start is where its content begins.
func open(dst []byte, num protowire.Number) (out []byte, start int) {
	dst = append(protowire.AppendTag(dst, num, protowire.BytesType), 0)
	return dst, len(dst)
}

// shut writes the length of the message that open began, moving the content if the length needs more than one byte.
func shut(dst []byte, start int) []byte {
	size := len(dst) - start
	extra := protowire.SizeVarint(uint64(size)) - 1
	for range extra {
		dst = append(dst, 0)
	}
	copy(dst[start+extra:], dst[start:start+size])
	protowire.AppendVarint(dst[:start-1], uint64(size))
	return dst
}
