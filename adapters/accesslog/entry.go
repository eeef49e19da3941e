package accesslog

import (
	"math"
	"net/netip"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

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
	e.walk(message, func(c cursor) {
		switch {
		case c.is(2): // http_logs
			e.walk(c.bytes, func(cursor) {})
		case c.is(3): // tcp_logs
			logs = c.rest
		}
	})
	return logs
}

// eachLog calls each with the bytes of every entry.
func eachLog(e *entry, logs []byte, each func([]byte)) {
	e.walk(logs, func(c cursor) {
		if !c.is(2) {
			return
		}
		e.walk(c.bytes, func(c cursor) {
			if c.is(1) {
				each(c.bytes)
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
func (e *entry) walk(b []byte, field func(cursor)) {
	c := cursor{rest: b}
	for c.next() {
		field(c)
	}
	e.malformed = e.malformed || c.malformed
}

func (e *entry) entry(c cursor) {
	switch {
	case c.is(1):
		e.walk(c.bytes, e.common)
	case c.is(4):
		e.walk(c.bytes, e.response)
	}
}

func (e *entry) common(c cursor) {
	if c.typ == protowire.VarintType && c.num == 27 {
		e.intermediate = c.varint != 0
	}
	if c.typ != protowire.BytesType {
		return
	}
	switch c.num {
	case 5:
		e.span(&e.started, c.bytes)
	case 9:
		e.span(&e.headers, c.bytes)
	case 10:
		e.span(&e.lasted[1], c.bytes)
	case 12:
		e.span(&e.lasted[2], c.bytes)
	case 13:
		e.walk(c.bytes, e.address)
	case 16:
		e.walk(c.bytes, e.flag)
	case 17:
		e.walk(c.bytes, e.metadata)
	case 22:
		e.tag(c.bytes)
	case 23:
		e.span(&e.lasted[0], c.bytes)
	}
}

func (e *entry) span(s *span, b []byte) {
	e.walk(b, func(c cursor) {
		switch {
		case c.typ != protowire.VarintType:
		case c.num == 1:
			s.seconds = int64(c.varint)
		case c.num == 2:
			s.nanos = int32(c.varint)
		}
	})
}

func (e *entry) flag(c cursor) {
	if c.typ != protowire.VarintType || c.num > 63 {
		return
	}
	if e.flags &^= 1 << c.num; c.varint != 0 {
		e.flags |= 1 << c.num
	}
}

// address reads an Address: a socket's, or another kind's, which takes its place.
func (e *entry) address(c cursor) {
	switch {
	case c.is(1):
		e.walk(c.bytes, e.socket)
	case c.is(2), c.is(3):
		e.host, e.port = nil, 0
	}
}

func (e *entry) socket(c cursor) {
	switch {
	case c.is(2):
		e.host = c.bytes
	case c.is(4): // named_port
		e.port = 0
	case c.typ == protowire.VarintType && c.num == 3:
		e.port = uint32(c.varint)
	}
}

// tag reads an entry of custom_tags if it tells when the body began.
func (e *entry) tag(b []byte) {
	var key, value []byte
	e.walk(b, func(c cursor) {
		switch {
		case c.is(1):
			key = c.bytes
		case c.is(2):
			value = c.bytes
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
func (e *entry) metadata(c cursor) {
	if c.is(1) && string(e.key(c.bytes)) == namespace {
		e.id, e.connection = nil, nil
		e.values(c.bytes, e.fields)
	}
}

// fields looks for the id and the connection in a Struct.
func (e *entry) fields(c cursor) {
	if !c.is(1) {
		return
	}
	switch string(e.key(c.bytes)) {
	case idKey:
		e.id = e.text(c.bytes)
	case connectionKey:
		e.connection = e.text(c.bytes)
	}
}

// key is that of a map's entry.
func (e *entry) key(b []byte) (key []byte) {
	e.walk(b, func(c cursor) {
		if c.is(1) {
			key = c.bytes
		}
	})
	return key
}

// values reads the value of a map's entry: a later entry of a key takes the place of an earlier one.
func (e *entry) values(b []byte, value func(cursor)) {
	e.walk(b, func(c cursor) {
		if c.is(2) {
			e.walk(c.bytes, value)
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
	e.values(b, func(c cursor) {
		if int(c.num) >= len(valueTypes) || valueTypes[c.num] != c.typ {
			return
		}
		if text = nil; c.num == 3 {
			text = c.bytes
		}
	})
	return text
}

func (e *entry) response(c cursor) {
	switch {
	case c.is(1): // a UInt32Value
		e.walk(c.bytes, func(c cursor) {
			if c.num == 1 && c.typ == protowire.VarintType {
				e.status = uint32(c.varint)
			}
		})
	case c.num == 3 && c.typ == protowire.VarintType:
		e.bytes = c.varint
	}
}
