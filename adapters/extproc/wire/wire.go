// Package wire is the encoding of Envoy's ext_proc stream: it reads ProcessingRequest frames and writes
// ProcessingResponse frames straight on grpc-go's buffers, with the same meaning as the generated protobuf types but
// without building them.
//
// It owns the codec, the buffer pool of the gRPC server, the views into a received frame and the frames to be sent. It
// is the only package that touches grpc's experimental buffer APIs. It never decides what to answer and never keeps the
// state of a stream.
//
// Ownership: a Request holds references to the received buffers until Release, Recv or Echo.StartRequest; every view
// handed out by it dies then. A Response is consumed by Send. Nothing here is safe for use by several goroutines at
// once, except the codec and the pool.
package wire

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto" // registers the codec of all other messages
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

var (
	errMalformed = errors.New("wire: malformed ProcessingRequest")
	errNoFrame   = errors.New("wire: response has no frame: never set, or sent before")
)

// Direction is one of the two directions of an HTTP exchange: from the client, or to it.
type Direction uint8

// The directions.
const (
	RequestDirection Direction = iota
	ResponseDirection
)

// String returns "request" or "response".
func (d Direction) String() string {
	if d == RequestDirection {
		return "request"
	}
	return "response"
}

// Kind says which message of the exchange a Request carries.
type Kind uint8

// The kinds. None is a frame without any of the six messages: only metadata, a window update, or something newer than
// this codec.
const (
	None Kind = iota
	RequestHeaders
	RequestBody
	RequestTrailers
	ResponseHeaders
	ResponseBody
	ResponseTrailers
)

var kindNames = [...]string{
	None: "none", RequestHeaders: "request headers", RequestBody: "request body", RequestTrailers: "request trailers",
	ResponseHeaders: "response headers", ResponseBody: "response body", ResponseTrailers: "response trailers",
}

// String returns the kind in words.
func (k Kind) String() string { return kindNames[k] }

// Direction returns the direction of k; None counts to the request direction.
func (k Kind) Direction() Direction {
	if k >= ResponseHeaders {
		return ResponseDirection
	}
	return RequestDirection
}

// BodyMode says how the proxy sends a body, by the numbers of ProcessingMode.BodySendMode. Numbers without a name here
// are kept as received.
type BodyMode int32

// The body modes of Envoy 1.40.
const (
	BodyNone BodyMode = iota
	BodyStreamed
	BodyBuffered
	BodyBufferedPartial
	BodyFullDuplexStreamed
	BodyGRPC
)

var modeNames = [...]string{"NONE", "STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED", "GRPC"}

// String returns the name that the mode has in Envoy's configuration.
func (m BodyMode) String() string {
	if m < 0 || int(m) >= len(modeNames) {
		return fmt.Sprintf("BodySendMode(%d)", int32(m))
	}
	return modeNames[m]
}

// Modes holds the body modes of the protocol_config of a stream's first message.
type Modes struct {
	RequestBody, ResponseBody BodyMode
}

// Codec is the grpc codec of the server: it handles *Request and *Response and leaves every other type to grpc's
// protobuf codec, since the health service and the access log share the server.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

var others = encoding.GetCodecV2(protocodec.Name)

// Name returns the content subtype of protobuf.
func (Codec) Name() string { return protocodec.Name }

// Marshal takes the frame out of a *Response.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(*Response)
	if !ok {
		return others.Marshal(v)
	}
	if r.frame == nil {
		return nil, errNoFrame
	}
	frame := r.frame
	r.frame = nil
	return frame, nil
}

// Unmarshal reads one frame into a *Request, which takes references of its own to data. It fails exactly when
// proto.Unmarshal would.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*Request)
	if !ok {
		return others.Unmarshal(data, v)
	}
	return r.unmarshal(data)
}

const serviceName = "envoy.service.ext_proc.v3.ExternalProcessor"

// Handler serves streams. Process is called on a goroutine of its own for each stream; the stream ends when it
// returns.
type Handler interface {
	Process(Stream) error
}

// Stream is one ext_proc stream. Recv and Send may each be used by one goroutine at a time.
type Stream interface {
	// Context is done when the proxy resets the stream, the deadline passes or Process returns.
	Context() context.Context
	// Recv releases what r held and fills it with the next message. It returns io.EOF after the proxy's half-close.
	Recv(r *Request) error
	// Send consumes the frame of r, whether it succeeds or fails.
	// It blocks while the stream's flow control window is closed.
	Send(r *Response) error
}

type stream struct{ grpc.ServerStream }

func (s stream) Recv(r *Request) error {
	r.Release()
	return s.RecvMsg(r)
}

func (s stream) Send(r *Response) error { return s.SendMsg(r) }

// Register adds the ExternalProcessor service to s, which must have been made with ServerOptions.
func Register(s grpc.ServiceRegistrar, h Handler) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: serviceName,
		HandlerType: (*Handler)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: "Process",
			Handler: func(srv any, ss grpc.ServerStream) error {
				if err := srv.(Handler).Process(stream{ss}); err != nil {
					return err
				}
				return status.FromContextError(ss.Context().Err()).Err() // an error if its deadline passed
			},
			ServerStreams: true,
			ClientStreams: true,
		}},
		Metadata: "envoy/service/ext_proc/v3/external_processor.proto",
	}, h)
}

// ServerOptions returns the options that give a gRPC server this package's codec and buffer pool. Limits, windows and
// stream workers stay with the caller; the receive limit must exceed the proxy's buffer limit, because one body
// message can be as large as that.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ForceServerCodecV2(Codec{}), experimental.BufferPool(buffers)}
}

// The tiers of the pool are the powers of two from 2 KiB to 4 MiB. Below 2 KiB grpc would not give buffers back (its
// threshold is 1 KiB of capacity); above 4 MiB a buffer is left to the garbage collector.
const (
	minTierBits = 11
	maxTierBits = 22
)

// buffers is shared by the server and the codec, so that each can use what the other puts back.
var buffers = new(bufferPool)

// bufferPool hands out buffers with old content in them: grpc's own pool clears the whole capacity on each Get, which
// costs more than all decoding at 64 KiB. Each byte of a buffer must be written before it is read.
type bufferPool struct {
	tiers [maxTierBits - minTierBits + 1]sync.Pool
}

var _ mem.BufferPool = (*bufferPool)(nil)

// Get returns a buffer of length bytes whose content is undefined.
func (p *bufferPool) Get(length int) *[]byte {
	if length > 1<<maxTierBits {
		b := make([]byte, length)
		return &b
	}
	tier := max(bits.Len(uint(max(length, 1)-1)), minTierBits) - minTierBits
	if b, ok := p.tiers[tier].Get().(*[]byte); ok {
		*b = (*b)[:length]
		return b
	}
	b := make([]byte, length, 1<<(tier+minTierBits))
	return &b
}

// capacity returns the capacity of the buffer that Get returns for length bytes.
func capacity(length int) int {
	if length > 1<<maxTierBits {
		return length
	}
	return 1 << max(bits.Len(uint(max(length, 1)-1)), minTierBits)
}

// Put takes a buffer back; those whose capacity is not that of a tier are dropped.
func (p *bufferPool) Put(b *[]byte) {
	size := cap(*b)
	if size < 1<<minTierBits || size > 1<<maxTierBits || size&(size-1) != 0 {
		return
	}
	p.tiers[bits.Len(uint(size))-1-minTierBits].Put(b)
}
