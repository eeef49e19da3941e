package accesslog

import (
	"math"
	"net/netip"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/signalbox-epp/signalbox/engine/protofield"
	"github.com/signalbox-epp/signalbox/messages"
)

// entry is what is read of an HTTPAccessLogEntry. The generated type would build some sixty objects for a dozen
// numbers. entry has the same meaning as that type: of a field that stands twice the last counts, and messages merge.
// Its texts are views into the message.
type entry struct {
	intermediate bool
	id           []byte
	connection   []byte  // that the request came on
	started      span    // start of the request, since 1970
	headers      span    // from started to the response's first byte from upstream
	bodyBegan    uint64  // microseconds from started to the first byte of the response's body; 0 = not reported
	lasted       [3]span // from started to the end, the last byte from upstream, and the last byte sent downstream
	host         []byte  // of the server
	port         uint32
	flags        uint64 // bit n is field n of ResponseFlags
	status       uint32 // HTTP
	bytes        uint64 // of the response's body
	malformed    bool
}

// span is a Duration or a Timestamp.
type span struct {
	seconds int64
	nanos   int32
}

func (s *span) duration() time.Duration {
	return (&durationpb.Duration{Seconds: s.seconds, Nanos: s.nanos}).AsDuration()
}

// Numbers of the fields of ResponseFlags.
const (
	noHealthyUpstream     = 2
	upstreamRemoteReset   = 5
	upstreamFailure       = 6
	upstreamTermination   = 7
	downstreamTermination = 15
	upstreamRetryLimit    = 16
	upstreamProtocolError = 24
	downstreamRemoteReset = 28

	clientLeft = 1<<downstreamTermination | 1<<downstreamRemoteReset
	broken     = 1<<upstreamRemoteReset | 1<<upstreamTermination | 1<<upstreamFailure | 1<<upstreamProtocolError |
		1<<noHealthyUpstream | 1<<upstreamRetryLimit
)

// eachEntry calls visit for the entries of a StreamAccessLogsMessage. It returns false, without a visit, if the
// message is malformed. Entries are read twice, first to see that all are well-formed: a message of 2 MiB may have a
// million entries, which are too many to keep. An entry is valid only during its visit.
func eachEntry(message []byte, visit func(*entry)) bool {
	var e entry
	logs := httpLogs(&e, message)
	count := 0
	eachLog(&e, logs, func(b []byte) {
		e.read(b)
		count++
	})
	switch {
	case e.malformed:
		return false
	case count == 1:
		visit(&e)
		return true
	}
	eachLog(&e, logs, func(b []byte) {
		e.read(b)
		visit(&e)
	})
	return true
}

// httpLogs returns the part of a message whose http_logs count. Both kinds of log are members of one oneof, so
// tcp_logs discard the http_logs before them.
func httpLogs(e *entry, message []byte) []byte {
	logs := message
	e.walk(message, func(c protofield.Cursor) {
		switch {
		case c.Is(2): // http_logs
			e.walk(c.Bytes, func(protofield.Cursor) {})
		case c.Is(3): // tcp_logs
			logs = c.Rest
		}
	})
	return logs
}

// eachLog calls each with the bytes of every entry.
func eachLog(e *entry, logs []byte, each func([]byte)) {
	e.walk(logs, func(c protofield.Cursor) {
		if !c.Is(2) {
			return
		}
		e.walk(c.Bytes, func(c protofield.Cursor) {
			if c.Is(1) {
				each(c.Bytes)
			}
		})
	})
}

// read replaces the entry by another one. malformed stays set.
func (e *entry) read(b []byte) {
	*e = entry{malformed: e.malformed}
	e.walk(b, e.entry)
}

// end returns what an entry says of the end of its request.
func (e *entry) end() messages.ResponseEnded {
	lasted := max(e.lasted[0].duration(), e.lasted[1].duration(), e.lasted[2].duration())
	return messages.ResponseEnded{
		At:            time.Unix(e.started.seconds, int64(e.started.nanos)).UTC().Add(lasted),
		ResponseBytes: e.bodyBytes(),
		Logged: messages.Logged{
			Status: int(e.status), Served: e.served(), Headers: e.headers.duration(),
			FirstToken: time.Duration(min(e.bodyBegan, math.MaxInt64/1000)) * time.Microsecond,
			ClientLeft: e.flags&clientLeft != 0, Broken: e.flags&broken != 0,
		},
	}
}

func (e *entry) bodyBytes() int64 { return int64(min(e.bytes, 1<<62)) }

// served returns the ip:port of the server as the pool writes it; "" = the entry has none.
func (e *entry) served() messages.Address {
	ip, err := netip.ParseAddr(string(e.host))
	if err != nil || e.port > math.MaxUint16 {
		return ""
	}
	return messages.Address(netip.AddrPortFrom(ip.Unmap(), uint16(e.port)).String())
}

// walk calls field for the fields of a message, and notes whether the message is malformed.
func (e *entry) walk(b []byte, field func(protofield.Cursor)) {
	c := protofield.Cursor{Rest: b}
	for c.Next() {
		field(c)
	}
	e.malformed = e.malformed || c.Bad
}

func (e *entry) entry(c protofield.Cursor) {
	switch {
	case c.Is(1):
		e.walk(c.Bytes, e.common)
	case c.Is(4):
		e.walk(c.Bytes, e.response)
	}
}

func (e *entry) common(c protofield.Cursor) {
	if c.Typ == protowire.VarintType && c.Num == 27 {
		e.intermediate = c.Varint != 0
	}
	if c.Typ != protowire.BytesType {
		return
	}
	switch c.Num {
	case 5:
		e.span(&e.started, c.Bytes)
	case 9:
		e.span(&e.headers, c.Bytes)
	case 10:
		e.span(&e.lasted[1], c.Bytes)
	case 12:
		e.span(&e.lasted[2], c.Bytes)
	case 13:
		e.walk(c.Bytes, e.address)
	case 16:
		e.walk(c.Bytes, e.flag)
	case 17:
		e.walk(c.Bytes, e.metadata)
	case 22:
		e.tag(c.Bytes)
	case 23:
		e.span(&e.lasted[0], c.Bytes)
	}
}

func (e *entry) span(s *span, b []byte) {
	e.walk(b, func(c protofield.Cursor) {
		switch {
		case c.Typ != protowire.VarintType:
		case c.Num == 1:
			s.seconds = int64(c.Varint)
		case c.Num == 2:
			s.nanos = int32(c.Varint)
		}
	})
}

func (e *entry) flag(c protofield.Cursor) {
	if c.Typ != protowire.VarintType || c.Num > 63 {
		return
	}
	if e.flags &^= 1 << c.Num; c.Varint != 0 {
		e.flags |= 1 << c.Num
	}
}

// address reads an Address. One that is no socket address discards the socket address before it.
func (e *entry) address(c protofield.Cursor) {
	switch {
	case c.Is(1):
		e.walk(c.Bytes, e.socket)
	case c.Is(2), c.Is(3):
		e.host, e.port = nil, 0
	}
}

func (e *entry) socket(c protofield.Cursor) {
	switch {
	case c.Is(2):
		e.host = c.Bytes
	case c.Is(4): // named_port
		e.port = 0
	case c.Typ == protowire.VarintType && c.Num == 3:
		e.port = uint32(c.Varint)
	}
}

// tag reads an entry of custom_tags, if it is the one that says when the body began.
func (e *entry) tag(b []byte) {
	var key, value []byte
	e.walk(b, func(c protofield.Cursor) {
		switch {
		case c.Is(1):
			key = c.Bytes
		case c.Is(2):
			value = c.Bytes
		}
	})
	if string(key) == bodyBegan {
		e.bodyBegan = microseconds(value)
	}
}

// microseconds returns a number in decimal digits; 0 = the text is none.
func microseconds(text []byte) (n uint64) {
	if len(text) > 18 { // digits that surely fit
		return 0
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

// metadata looks for the namespace among filter_metadata.
func (e *entry) metadata(c protofield.Cursor) {
	if c.Is(1) && string(e.key(c.Bytes)) == namespace {
		e.id, e.connection = nil, nil
		e.values(c.Bytes, e.fields)
	}
}

// fields looks for the id and the connection in a Struct.
func (e *entry) fields(c protofield.Cursor) {
	if !c.Is(1) {
		return
	}
	switch string(e.key(c.Bytes)) {
	case idKey:
		e.id = e.text(c.Bytes)
	case connectionKey:
		e.connection = e.text(c.Bytes)
	}
}

// key returns the key of an entry of a map.
func (e *entry) key(b []byte) (key []byte) {
	e.walk(b, func(c protofield.Cursor) {
		if c.Is(1) {
			key = c.Bytes
		}
	})
	return key
}

// values reads the value of an entry of a map. A later entry with the same key replaces an earlier one.
func (e *entry) values(b []byte, value func(protofield.Cursor)) {
	e.walk(b, func(c protofield.Cursor) {
		if c.Is(2) {
			e.walk(c.Bytes, value)
		}
	})
}

// text reads the Value of an entry of a map. It returns the string, or nil if the Value is of another kind.
func (e *entry) text(b []byte) (text []byte) {
	e.values(b, func(c protofield.Cursor) {
		if !c.IsValueMember() {
			return
		}
		if text = nil; c.Num == 3 {
			text = c.Bytes
		}
	})
	return text
}

func (e *entry) response(c protofield.Cursor) {
	switch {
	case c.Is(1): // a UInt32Value
		e.walk(c.Bytes, func(c protofield.Cursor) {
			if c.Num == 1 && c.Typ == protowire.VarintType {
				e.status = uint32(c.Varint)
			}
		})
	case c.Num == 3 && c.Typ == protowire.VarintType:
		e.bytes = c.Varint
	}
}
