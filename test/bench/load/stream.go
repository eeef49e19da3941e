package load

import (
	"encoding/binary"
)

// stream is one gRPC stream of a connection: what is unsent of its messages, and what is not whole of those that came.
type stream struct {
	conn    *conn
	owner   owner
	number  uint32 // HTTP/2's
	window  int
	unsent  []byte // of messages, with their prefixes
	sizes   []int  // bytes left of each of them
	lengths []int  // whose memory sizes is
	blocked bool   // in the connection's list of those that wait for a window
	partial []byte // of a message that is not whole
}

// owner is what a stream belongs to. It is called under the connection's mu.
type owner interface {
	onMessage(b []byte) error
	allSent()
}

// send gives the stream messages, after all before them are sent.
func (s *stream) send(messages []byte, sizes []int) {
	s.unsent, s.lengths = messages, append(s.lengths[:0], sizes...)
	s.sizes = s.lengths
	s.conn.pump(s)
}

// add gives the stream one more message, which is copied.
func (s *stream) add(message []byte) {
	s.unsent, s.sizes = append(s.unsent, message...), append(s.sizes, len(message))
	s.conn.pump(s)
}

// onData takes what came, and gives whole messages to the owner.
func (s *stream) onData(payload []byte) error {
	if len(s.partial) > 0 {
		s.partial = append(s.partial, payload...)
		payload = s.partial
	}
	for len(payload) >= 5 {
		end := 5 + int(binary.BigEndian.Uint32(payload[1:]))
		if len(payload) < end {
			break
		}
		if err := s.owner.onMessage(payload[5:end]); err != nil {
			return err
		}
		payload = payload[end:]
	}
	s.partial = append(s.partial[:0], payload...)
	return nil
}

// callHeaders are the headers of every ext_proc stream, logHeaders those of an access log's,
// as literals that no table remembers.
var (
	callHeaders = literals("/envoy.service.ext_proc.v3.ExternalProcessor/Process")
	logHeaders  = literals("/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs")
)

func literals(path string) []byte {
	pairs := []string{
		":method", "POST", ":scheme", "http", ":path", path, ":authority", "signalbox", "te", "trailers",
		"content-type", "application/grpc", "x-request-id", "5f2c0f3e-6a3b-4f6d-9c1e-0123456789ab", "user-agent",
		"bench",
	}
	var b []byte
	for i := 0; i < len(pairs); i += 2 {
		b = append(b, 0, byte(len(pairs[i])))
		b = append(append(b, pairs[i]...), byte(len(pairs[i+1])))
		b = append(b, pairs[i+1]...)
	}
	return b
}
