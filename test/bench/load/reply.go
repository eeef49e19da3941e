package load

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// reply is what a ProcessingResponse says.
type reply struct {
	field     protowire.Number // of the oneof
	bodyBytes int
	end       bool
	content   []byte // of the whole message
}

var errReply = errors.New("an answer that cannot be read")

// readReply reads the member of the oneof, and of a streamed body its length and its end.
func readReply(b []byte) (reply, error) {
	r := reply{content: b}
	for len(b) > 0 {
		num, value, rest, err := field(b)
		if err != nil {
			return r, err
		}
		b = rest
		if num < 1 || num > 7 {
			continue
		}
		r.field = num
		if num != 3 && num != 4 {
			continue
		}
		for _, step := range []protowire.Number{1, 3, 3} { // response, body_mutation, streamed_response
			if value, err = inside(value, step); err != nil {
				return r, err
			}
		}
		if err := r.readStreamed(value); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (r *reply) readStreamed(b []byte) error {
	for len(b) > 0 {
		num, value, rest, err := field(b)
		if err != nil {
			return err
		}
		switch num {
		case 1:
			r.bodyBytes += len(value)
		case 2:
			r.end = true
		}
		b = rest
	}
	return nil
}

// inside gives the last field of that number.
func inside(b []byte, want protowire.Number) (found []byte, err error) {
	for len(b) > 0 {
		num, value, rest, err := field(b)
		if err != nil {
			return nil, err
		}
		if num == want {
			found = value
		}
		b = rest
	}
	return found, nil
}

func field(b []byte) (num protowire.Number, value, rest []byte, err error) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		return 0, nil, nil, errReply
	}
	if typ == protowire.BytesType {
		v, m := protowire.ConsumeBytes(b[n:])
		if m < 0 {
			return 0, nil, nil, errReply
		}
		return num, v, b[n+m:], nil
	}
	m := protowire.ConsumeFieldValue(num, typ, b[n:])
	if m < 0 {
		return 0, nil, nil, errReply
	}
	return num, nil, b[n+m:], nil
}
