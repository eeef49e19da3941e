package exchange

import (
	"fmt"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
)

// The body modes by short names.
const (
	None            = filterv3.ProcessingMode_NONE
	Streamed        = filterv3.ProcessingMode_STREAMED
	Buffered        = filterv3.ProcessingMode_BUFFERED
	BufferedPartial = filterv3.ProcessingMode_BUFFERED_PARTIAL
	Duplex          = filterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	GRPC            = filterv3.ProcessingMode_GRPC
)

// Mode is what one direction sends to the EPP.
type Mode struct {
	SkipHeaders bool
	Body        filterv3.ProcessingMode_BodySendMode
	Trailers    bool
}

// FullDuplex returns the mode that the endpoint picker protocol asks for.
func FullDuplex() Mode { return Mode{Body: Duplex, Trailers: true} }

// Duplex reports whether body messages go out without waiting for answers, and the EPP gives every byte back.
func (m Mode) Duplex() bool { return m.Body == Duplex || m.Body == GRPC }

// Buffers reports whether the body comes in one message, after the headers answer.
func (m Mode) Buffers() bool { return m.Body == Buffered || m.Body == BufferedPartial }

// changesLate reports whether the headers are still held when the body is answered, so that the answer may change them.
// Headers that are not sent to the EPP go on at once: Envoy 1.40.0 ignores changes,
// and has chosen the upstream by then.
func (m Mode) changesLate() bool { return m.Buffers() && !m.SkipHeaders }

// Validate refuses what Envoy refuses.
func (m Mode) Validate() error {
	if _, known := filterv3.ProcessingMode_BodySendMode_name[int32(m.Body)]; !known {
		return fmt.Errorf("body mode %d: unknown", m.Body)
	}
	if m.Duplex() && !m.Trailers {
		return fmt.Errorf("body mode %s: trailers must be sent", m.Body)
	}
	return nil
}

// dropsLength reports whether Envoy removes content-length, and drops one that the EPP sets:
// the body may change on its way.
func (m Mode) dropsLength() bool {
	switch m.Body {
	case None:
		return false
	case Buffered:
		return m.SkipHeaders
	}
	return true
}
