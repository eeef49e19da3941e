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

// entry is what is read of an HTTPAccessLogEntry: an entry has some sixty objects, and a dozen numbers say all. It
// means what the generated types would: of a field that stands twice the last counts, and messages merge.
// Its texts are views into the message.
type entry struct {
	intermediate bool
	id           []byte
	connection   []byte  // that the request came on
	started      span    // since 1970
	headers      span    // from upstream
	bodyBegan    uint64  // µs, the first byte of the response's body from upstream; 0 = not told
	lasted       [3]span // the whole of it, to the last byte from upstream, and to the last byte sent downstream
	host         []byte  // of who served
	port         uint32
	flags        uint64 // by number of the field
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

// Flags of ResponseFlags.
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

// eachEntry reads the entries of a StreamAccessLogsMessage. False = it is malformed, and no entry was visited. Entries
// are read twice, once to see that all can be: of a message of 2 MiB a million entries can be kept nowhere.
// The entry dies with its visit.
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

// httpLogs is the part of a message whose http_logs count: tcp_logs take the place of those before them.
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

// read makes e another entry, and keeps in mind whether one was malformed.
func (e *entry) read(b []byte) {
	*e = entry{malformed: e.malformed}
	e.walk(b, e.entry)
}

// end is what an entry says.
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

// served is an ip:port as the pool writes it; "" = it is none.
func (e *entry) served() messages.Address {
	ip, err := netip.ParseAddr(string(e.host))
	if err != nil || e.port > math.MaxUint16 {
		return ""
	}
	return messages.Address(netip.AddrPortFrom(ip.Unmap(), uint16(e.port)).String())
}

// walk reads the fields of a message, and notes whether it is malformed.
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

// address reads an Address: a socket's, or another kind's, which takes its place.
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

// tag reads an entry of custom_tags if it tells when the body began.
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

// microseconds reads a number; 0 = it is none.
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

// key is that of a map's entry.
func (e *entry) key(b []byte) (key []byte) {
	e.walk(b, func(c protofield.Cursor) {
		if c.Is(1) {
			key = c.Bytes
		}
	})
	return key
}

// values reads the value of a map's entry: a later entry of a key takes the place of an earlier one.
func (e *entry) values(b []byte, value func(protofield.Cursor)) {
	e.walk(b, func(c protofield.Cursor) {
		if c.Is(2) {
			e.walk(c.Bytes, value)
		}
	})
}

// valueTypes has the wire type of each member of google.protobuf.Value: null, number, string, bool, struct, list.
var valueTypes = [...]protowire.Type{
	1: protowire.VarintType, 2: protowire.Fixed64Type, 3: protowire.BytesType, 4: protowire.VarintType,
	5: protowire.BytesType, 6: protowire.BytesType,
}

// text reads the Value of a map's entry: a string, or another kind, which takes its place.
func (e *entry) text(b []byte) (text []byte) {
	e.values(b, func(c protofield.Cursor) {
		if int(c.Num) >= len(valueTypes) || valueTypes[c.Num] != c.Typ {
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
