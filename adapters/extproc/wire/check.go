package wire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/signalbox-epp/signalbox/engine/protofield"
)

// shape names a message type. rules says what its length-delimited fields hold; fields without a rule need no check
// beyond their length.
type shape uint8

const (
	request shape = iota
	httpHeaders
	httpBody
	httpTrailers
	headerMap
	headerValue
	metadata
	structValue // google.protobuf.Struct
	value       // google.protobuf.Value
	listValue
	anyValue
	numbers // only varints: ProtocolConfiguration, FlowControlInit, ClientWindowUpdate
	shapes
)

type content uint8

const (
	plain   content = iota
	text            // a string: UTF-8, or the frame is refused
	message         // of the rule's shape
	entries         // map<string, message of the rule's shape>
)

type rule struct {
	content content
	shape   shape
}

// maxFields is one more than the highest field number with a rule.
const maxFields = 14

var rules = [shapes][maxFields]rule{
	request: {
		2: {message, httpHeaders}, 3: {message, httpHeaders}, 4: {message, httpBody}, 5: {message, httpBody},
		6: {message, httpTrailers}, 7: {message, httpTrailers}, 8: {message, metadata}, 9: {entries, structValue},
		11: {message, numbers}, 12: {message, numbers}, 13: {message, numbers},
	},
	httpHeaders:  {1: {message, headerMap}, 2: {entries, structValue}},
	httpTrailers: {1: {message, headerMap}},
	headerMap:    {1: {message, headerValue}},
	headerValue:  {1: {content: text}, 2: {content: text}},
	metadata:     {1: {entries, structValue}, 2: {entries, anyValue}},
	structValue:  {1: {entries, value}},
	value:        {3: {content: text}, 5: {message, structValue}, 6: {message, listValue}},
	listValue:    {1: {message, value}},
	anyValue:     {1: {content: text}},
}

// maxDepth is the nesting of messages that proto.Unmarshal accepts.
const maxDepth = protowire.DefaultRecursionLimit

// check reports whether proto.Unmarshal would accept b as a message of shape s with depth levels left.
func check(s shape, b []byte, depth int) bool {
	depth--
	if depth < 0 {
		return false
	}
	c := protofield.Cursor{Rest: b}
	for c.Next() {
		if c.Num < maxFields && !rules[s][c.Num].holds(&c, depth) {
			return false
		}
	}
	return !c.Bad
}

func (r rule) holds(c *protofield.Cursor, depth int) bool {
	if r.content == entries && depth < 1 {
		return false
	}
	if c.Typ != protowire.BytesType {
		return true
	}
	switch r.content {
	case text:
		return utf8.Valid(c.Bytes)
	case message:
		return check(r.shape, c.Bytes, depth)
	case entries:
		return checkEntry(r.shape, c.Bytes, depth-1)
	default:
		return true
	}
}

// checkEntry is check for one entry of a map.
func checkEntry(s shape, b []byte, depth int) bool {
	c := protofield.Cursor{Rest: b}
	for c.Next() {
		if c.Is(1) && !utf8.Valid(c.Bytes) {
			return false
		}
		if c.Is(2) && !check(s, c.Bytes, depth) {
			return false
		}
	}
	return !c.Bad
}
