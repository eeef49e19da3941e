package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/signalbox-epp/signalbox/engine/protofield"
)

// attributesKey is the key under which Envoy sends the attributes of an ext_proc filter.
const attributesKey = "envoy.filters.http.ext_proc"

// MetaKind says what a path in the metadata leads to.
type MetaKind uint8

// The kinds of metadata values.
const (
	MetaAbsent MetaKind = iota
	MetaString
	MetaList
	MetaOther // present, but a number, a bool, null, a struct or nothing
)

// Headers calls visit for each entry of headers or trailers in the order received, until visit returns false. value is
// the raw_value of the entry, or its value if that is empty; it need not be UTF-8. Both views are valid until Release.
func (r *Request) Headers(visit func(key, value []byte) bool) {
	var num protowire.Number
	switch r.Kind {
	case RequestHeaders:
		num = 2
	case ResponseHeaders:
		num = 3
	case RequestTrailers:
		num = 6
	case ResponseTrailers:
		num = 7
	default:
		return
	}
	member := merged(r.frame[r.member:], num)
	list := merged(member, 1)
	c := protofield.Cursor{Rest: list}
	for c.Next() {
		if !c.Is(1) {
			continue
		}
		if key, value := readHeader(c.Bytes); !visit(key, value) {
			return
		}
	}
}

func readHeader(b []byte) (key, value []byte) {
	var raw []byte
	c := protofield.Cursor{Rest: b}
	for c.Next() {
		if c.Typ != protowire.BytesType {
			continue
		}
		switch c.Num {
		case 1:
			key = c.Bytes
		case 2:
			value = c.Bytes
		case 3:
			raw = c.Bytes
		}
	}
	if len(raw) > 0 {
		return key, raw
	}
	return key, value
}

// HasMeta reports whether metadata_context.filter_metadata has a namespace.
func (r *Request) HasMeta(namespace string) bool {
	_, has := entry(merged(r.frame, 8), 1, namespace)
	return has
}

// Meta looks up path, which has at least one key, in metadata_context.filter_metadata[namespace]. It calls visit with
// the string found there, or with each string of the list found there, until visit returns false; other elements of
// the list are skipped. The views are valid until Release.
func (r *Request) Meta(namespace string, path []string, visit func(value []byte) bool) MetaKind {
	context := merged(r.frame, 8)
	fields, ok := entry(context, 1, namespace)
	if !ok || len(path) == 0 {
		return MetaAbsent
	}
	last := len(path) - 1
	for _, key := range path[:last] {
		v, _ := entry(fields, 1, key)
		num, content := readValue(v)
		if num != 5 {
			return MetaAbsent
		}
		fields = content
	}
	v, ok := entry(fields, 1, path[last])
	if !ok {
		return MetaAbsent
	}
	return visitValue(v, visit)
}

func visitValue(v []byte, visit func(value []byte) bool) MetaKind {
	num, content := readValue(v)
	switch num {
	case 3:
		visit(content)
		return MetaString
	case 6:
		c := protofield.Cursor{Rest: content}
		for c.Next() {
			if !c.Is(1) {
				continue
			}
			if num, s := readValue(c.Bytes); num == 3 && !visit(s) {
				break
			}
		}
		return MetaList
	default:
		return MetaOther
	}
}

// Attr returns a copy of the string attribute key of the ext_proc filter. It returns "" if the attribute is absent or
// not a string.
func (r *Request) Attr(key string) string {
	fields, _ := entry(r.frame, 9, attributesKey)
	v, _ := entry(fields, 1, key)
	if num, content := readValue(v); num == 3 {
		return string(content)
	}
	return ""
}

// merged returns the content of the message field num of b. If the field stands there several times the contents are
// joined, since joining two encodings is how protobuf merges messages. Only joining allocates, in proportion to what
// is joined.
func merged(b []byte, num protowire.Number) []byte {
	var content []byte
	pieces := 0
	c := protofield.Cursor{Rest: b}
	for c.Next() {
		if !c.Is(num) {
			continue
		}
		switch pieces++; pieces {
		case 1:
			content = c.Bytes
		case 2: // the capacity is cut, so that append does not overwrite the frame
			content = append(content[:len(content):len(content)], c.Bytes...)
		default:
			content = append(content, c.Bytes...)
		}
	}
	return content
}

// entry returns the value of key in the map field num of b. The last entry of a key wins.
func entry(b []byte, num protowire.Number, key string) (content []byte, ok bool) {
	var found []byte
	c := protofield.Cursor{Rest: b}
	for c.Next() {
		if c.Is(num) && string(entryKey(c.Bytes)) == key {
			found, ok = c.Bytes, true
		}
	}
	content = merged(found, 2)
	return content, ok
}

func entryKey(b []byte) (key []byte) {
	c := protofield.Cursor{Rest: b}
	for c.Next() {
		if c.Is(1) {
			key = c.Bytes
		}
	}
	return key
}

// readValue returns the number of the member that a google.protobuf.Value holds, 0 if none, and its content if it is a
// string, a struct or a list.
func readValue(b []byte) (num protowire.Number, content []byte) {
	run := 0
	c := protofield.Cursor{Rest: b}
	for {
		at := len(b) - len(c.Rest)
		if !c.Next() {
			break
		}
		if !c.IsValueMember() {
			continue
		}
		if c.Num != num {
			num, run = c.Num, at
		}
		content = c.Bytes
	}
	if num == 5 || num == 6 {
		content = merged(b[run:], num)
	}
	return num, content
}
