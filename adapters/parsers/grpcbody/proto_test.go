package grpcbody_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// shapes are the messages of the two services, as far as they are read: a line a field, with its number, type and name.
// oneof is "|" before the number.
var shapes = map[string]string{
	"SamplingParams": `8 uint32 max_tokens
15 uint32 n
16 string json_schema
20 bool json_object
22 int32 logprobs
23 int32 prompt_logprobs`,
	"TokenizedInput": `1 string original_text
2 repeated uint32 input_ids`,
	"GenerateRequest": `1 string request_id
|2 TokenizedInput tokenized
|3 string text
4 SamplingParams sampling_params
5 bool stream`,
	"GenerateStreamChunk": `1 repeated uint32 token_ids
2 uint32 prompt_tokens
3 uint32 completion_tokens
4 uint32 cached_tokens`,
	"GenerateComplete": `1 repeated uint32 output_ids
2 string finish_reason
3 uint32 prompt_tokens
4 uint32 completion_tokens
5 uint32 cached_tokens`,
	"GenerateResponse": `|1 GenerateStreamChunk chunk
|2 GenerateComplete complete`,
	"EmbedRequest": `1 string request_id
2 TokenizedInput tokenized`,
	"EmbedResponse": `1 repeated float embedding
2 uint32 prompt_tokens`,
	"HttpBody": `1 string content_type
2 bytes data`,
	"RawPredictRequest": `1 string endpoint
2 HttpBody http_body`,
}

var types = map[string]descriptorpb.FieldDescriptorProto_Type{
	"uint32": descriptorpb.FieldDescriptorProto_TYPE_UINT32, "int32": descriptorpb.FieldDescriptorProto_TYPE_INT32,
	"string": descriptorpb.FieldDescriptorProto_TYPE_STRING, "bytes": descriptorpb.FieldDescriptorProto_TYPE_BYTES,
	"bool": descriptorpb.FieldDescriptorProto_TYPE_BOOL, "float": descriptorpb.FieldDescriptorProto_TYPE_FLOAT,
}

// described are the shapes as the library for protobuf knows them, which the reading by hand is held against.
var described = describe()

func describe() protoreflect.FileDescriptor {
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("shapes.proto"), Package: proto.String("t"), Syntax: proto.String("proto3"),
	}
	for name, lines := range shapes {
		m := &descriptorpb.DescriptorProto{Name: proto.String(name)}
		for line := range strings.SplitSeq(lines, "\n") {
			m.Field = append(m.Field, field(m, line))
		}
		file.MessageType = append(file.MessageType, m)
	}
	d, err := protodesc.NewFile(file, nil)
	if err != nil {
		panic(err)
	}
	return d
}

func field(m *descriptorpb.DescriptorProto, line string) *descriptorpb.FieldDescriptorProto {
	line, isOne := strings.CutPrefix(line, "|")
	words := strings.Fields(line)
	f := &descriptorpb.FieldDescriptorProto{Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	if words[1] == "repeated" {
		words = append(words[:1], words[2:]...)
		f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	}
	var number int32
	_, _ = fmt.Sscan(words[0], &number)
	f.Number, f.Name = proto.Int32(number), proto.String(words[2])
	if typ, scalar := types[words[1]]; scalar {
		f.Type = typ.Enum()
	} else {
		f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String(".t."+words[1])
	}
	if isOne {
		if len(m.OneofDecl) == 0 {
			m.OneofDecl = []*descriptorpb.OneofDescriptorProto{{Name: proto.String("one")}}
		}
		f.OneofIndex = proto.Int32(0)
	}
	return f
}

// message is one of a shape.
type message struct{ *dynamicpb.Message }

func blank(shape string) message {
	return message{dynamicpb.NewMessage(described.Messages().ByName(protoreflect.Name(shape)))}
}

// with sets a field: to a number of its kind, a string, bytes, a list of tokens, or a message.
func (m message) with(name string, value any) message {
	f := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	switch v := value.(type) {
	case []uint32:
		list := m.Mutable(f).List()
		for _, token := range v {
			list.Append(protoreflect.ValueOfUint32(token))
		}
	case message:
		m.Set(f, protoreflect.ValueOfMessage(v.Message))
	default:
		m.Set(f, protoreflect.ValueOf(v))
	}
	return m
}

func (m message) get(name string) protoreflect.Value {
	return m.Message.Get(m.Descriptor().Fields().ByName(protoreflect.Name(name)))
}

func (m message) has(name string) bool {
	return m.Has(m.Descriptor().Fields().ByName(protoreflect.Name(name)))
}

func (m message) sub(name string) message {
	sub, ok := m.get(name).Message().Interface().(*dynamicpb.Message)
	if !ok {
		panic(name + " is no message")
	}
	return message{sub}
}

func (m message) encoded(t testing.TB) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.Message)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// framed returns a message as it stands in a body.
func framed(m []byte) []byte {
	return append([]byte{0, byte(len(m) >> 24), byte(len(m) >> 16), byte(len(m) >> 8), byte(len(m))}, m...)
}
