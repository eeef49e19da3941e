package grpcbody

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/signalbox-epp/signalbox/engine/protofield"
)

// headBytes is the length of what stands before each message of a body: a flag, and the length of the message.
const headBytes = 5

// The flags of a message. Others are reserved.
const (
	plain      = 0
	compressed = 1
)

var errNoMessage = errors.New("body is not gRPC: its message is not protobuf of this method")

// IsType reports whether a content type is that of gRPC: application/grpc alone, or with a suffix such as +proto.
func IsType(contentType string) bool {
	const name = "application/grpc"
	if len(contentType) < len(name) || !strings.EqualFold(contentType[:len(name)], name) {
		return false
	}
	rest := contentType[len(name):]
	return rest == "" || rest[0] == '+' || rest[0] == ';' || rest[0] == ' '
}

// Message returns the first message of a body. The message is nil if it is compressed.
func Message(body []byte) (message []byte, err error) {
	if len(body) < headBytes {
		return nil, fmt.Errorf("body is not gRPC: it ends at byte %d, within the head of its message", len(body))
	}
	size := uint64(binary.BigEndian.Uint32(body[1:]))
	switch rest := body[headBytes:]; {
	case body[0] > compressed:
		return nil, fmt.Errorf("body is not gRPC: byte 0: got flag %d, want 0 or 1", body[0])
	case size > uint64(len(rest)):
		return nil, fmt.Errorf("body is not gRPC: its message has %d bytes, want %d", len(rest), size)
	case body[0] == compressed:
		return nil, nil
	default:
		return rest[:size:size], nil
	}
}

// Generate is what is read of a message GenerateRequest. Its slices are parts of the message.
type Generate struct {
	Text      []byte // the prompt, if it is a text
	Tokenized []byte // a message TokenizedInput, if the prompt is tokens; nil = it is not
	Stream    bool
	Sampling
}

// Sampling is what is read of a message SamplingParams.
type Sampling struct {
	MaxTokens      int  // 0 = no limit
	Choices        int  // 0 = one
	LogProbs       int  // for each token of the output; -1 = none are asked for
	PromptLogProbs bool // the answer says how probable the prompt was
	Constrained    bool // by a schema, a grammar, or the like
}

// ReadGenerate reads a GenerateRequest. Of the prompt the last one counts, as of any field.
func ReadGenerate(message []byte) (g Generate, err error) {
	g.LogProbs = -1
	c := protofield.Cursor{Rest: message}
	for c.Next() {
		switch {
		case c.Is(2):
			g.Tokenized, g.Text = c.Bytes, nil
		case c.Is(3):
			g.Text, g.Tokenized = c.Bytes, nil
		case c.Is(4):
			if !g.readSampling(c.Bytes) {
				return Generate{}, errNoMessage
			}
		case isNumber(&c, 5):
			g.Stream = c.Varint != 0
		}
	}
	if c.Bad {
		return Generate{}, errNoMessage
	}
	return g, nil
}

// readSampling reads a SamplingParams. It returns false if the message is none.
func (s *Sampling) readSampling(message []byte) bool {
	c := protofield.Cursor{Rest: message}
	for c.Next() {
		switch {
		case isNumber(&c, 8):
			s.MaxTokens = count(c.Varint)
		case isNumber(&c, 15):
			s.Choices = count(c.Varint)
		case isNumber(&c, 22):
			s.LogProbs = max(int(int32(c.Varint)), 0) // -1 asks for all, which a number cannot say
		case isNumber(&c, 23):
			s.PromptLogProbs = true
		case c.Is(16), c.Is(17), c.Is(18), c.Is(19), c.Is(21), isNumber(&c, 20):
			s.Constrained = true
		}
	}
	return !c.Bad
}

// ReadEmbed returns the message TokenizedInput of an EmbedRequest; nil = it has none.
func ReadEmbed(message []byte) (tokenized []byte, err error) {
	return last(message, 2)
}

// Tokens calls use for each token of a TokenizedInput, in order. It returns an error if the message is none.
func Tokens(tokenized []byte, use func(token uint32)) error {
	c := protofield.Cursor{Rest: tokenized}
	for c.Next() {
		switch {
		case isNumber(&c, 2):
			use(uint32(c.Varint))
		case c.Is(2) && !packed(c.Bytes, use):
			return errNoMessage
		}
	}
	if c.Bad {
		return errNoMessage
	}
	return nil
}

// packed calls use for each of several numbers in one field. It returns false if it is none.
func packed(numbers []byte, use func(token uint32)) bool {
	for len(numbers) > 0 {
		v, n := protowire.ConsumeVarint(numbers)
		if n < 0 {
			return false
		}
		use(uint32(v))
		numbers = numbers[n:]
	}
	return true
}

// Wrapped returns the body that a call to Vertex wraps: the data of the HttpBody of its message.
func Wrapped(message []byte) (data []byte, err error) {
	body, err := last(message, 2)
	if err != nil {
		return nil, err
	}
	return last(body, 2)
}

// last returns the content of a field that is length-delimited; nil = the message does not have it.
func last(message []byte, num protowire.Number) (content []byte, err error) {
	c := protofield.Cursor{Rest: message}
	for c.Next() {
		if c.Is(num) {
			content = c.Bytes
		}
	}
	if c.Bad {
		return nil, errNoMessage
	}
	return content, nil
}

func isNumber(c *protofield.Cursor, num protowire.Number) bool {
	return c.Num == num && c.Typ == protowire.VarintType
}

// count returns a number of tokens, which a uint32 of the message is.
func count(v uint64) int { return int(min(uint64(uint32(v)), 1<<31-1)) }
