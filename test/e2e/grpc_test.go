package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// rawCodec is a codec of gRPC for messages that are bytes already.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("a %T is no message", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("a %T takes no message", v)
	}
	*b = data.Materialize()
	return nil
}

// engineService is the service of vLLM for gRPC.
const engineService = "/vllm.grpc.engine.VllmEngine/"

func bytesField(num protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), content)
}

func numberField(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

// calls are what a model server answers to calls, by method.
var calls = map[string][][]byte{
	engineService + "Generate": {
		bytesField(1, slices.Concat(bytesField(1, []byte{1}), numberField(2, 700), numberField(3, 1))),
		bytesField(2, slices.Concat(bytesField(1, bytes.Repeat([]byte{1}, 40000)), bytesField(2, []byte("stop")),
			numberField(3, 700), numberField(4, 9), numberField(5, 640))),
	},
	engineService + "Embed": {slices.Concat(bytesField(1, make([]byte, 64)), numberField(2, 5))},
	"/google.cloud.aiplatform.v1.PredictionService/StreamRawPredict": {
		bytesField(2, []byte("data: {\"response\":{\"usage\":{\"input_tok")),
		bytesField(2, []byte("ens\":11,\"output_tokens\":4}}}\n\n")),
	},
}

// newCallServer returns the address of a model server for gRPC, without TLS.
func newCallServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			method, _ := grpc.MethodFromServerStream(stream)
			var asked []byte
			if err := stream.RecvMsg(&asked); err != nil {
				return err
			}
			answer, known := calls[method]
			if !known {
				return status.Error(codes.Unavailable, "no such method")
			}
			for _, message := range answer {
				if err := stream.SendMsg(message); err != nil {
					return err
				}
			}
			return nil
		}),
	)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// speaksHTTP2 has Envoy speak HTTP/2 to model servers, which gRPC needs.
func speaksHTTP2(t *testing.T) func(string) string {
	return func(text string) string {
		return replaceOnce(t, text, "explicit_http_config: {http_protocol_options: {}}",
			"explicit_http_config: {http2_protocol_options: {}}")
	}
}

// call makes a call through Envoy. It returns the headers, the messages, and how it ended.
func call(
	ctx context.Context,
	c *grpc.ClientConn,
	method string,
	message []byte,
) (id string, answer [][]byte, err error) {
	var head, tail metadata.MD
	stream, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method, grpc.Header(&head),
		grpc.Trailer(&tail))
	if err == nil {
		err = errors.Join(stream.SendMsg(message), stream.CloseSend())
	}
	for err == nil {
		var m []byte
		if err = stream.RecvMsg(&m); err == nil {
			answer = append(answer, m)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	for _, md := range []metadata.MD{head, tail} {
		if got := md.Get("x-signalbox-request-id"); len(got) > 0 {
			id = got[0]
		}
	}
	return id, answer, err
}

// dialCalls returns a client of gRPC for Envoy.
func dialCalls(t *testing.T, e *envoy) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(e.url, "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

const callParsers = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{type: active-request-scorer}, {type: prefix-cache-scorer}]
requestHandler: {parsers: [{pluginRef: vllmgrpc-parser}, {pluginRef: vertexai-parser}]}
`

// Calls of gRPC are read, and so are the tokens of their answers, through a real Envoy that shows bodies.
func TestEnvoyRoutesCalls(t *testing.T) {
	server := newCallServer(t)
	p := serve(t, []string{server}, "--config-text", callParsers)
	p.pooled(t, 1)
	e := startEnvoy(t, overrideHostFull, p.grpcPort, []string{server}, speaksHTTP2(t))
	e.asksPicker(t)
	c := dialCalls(t, e)
	text := bytes.Repeat([]byte("word "), 40000) // longer than what Envoy reads at a time
	for method, want := range map[string]struct {
		message        []byte
		prompt, output int
		model          string
	}{
		engineService + "Generate": {slices.Concat(bytesField(3, text), numberField(5, 1)), 700, 9, ""},
		engineService + "Embed":    {bytesField(2, bytesField(2, []byte{1, 2, 3})), 5, 0, ""},
		"/google.cloud.aiplatform.v1.PredictionService/StreamRawPredict": {
			bytesField(2, bytesField(2, []byte(`{"model":"m","stream":true,"input":"hi"}`))), 11, 4, "m"},
	} {
		t.Run(method[strings.LastIndexByte(method, '/')+1:], func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			id, answer, err := call(ctx, c, method, want.message)
			if err != nil || !slices.EqualFunc(answer, calls[method], bytes.Equal) || id == "" {
				t.Fatalf("id %q, %d messages, %v; want those of the server", id, len(answer), err)
			}
			eventually(t, 5*time.Second, "the request has ended", func() bool { return p.ended(t, id) })
			got := p.record(t, id)
			if got.Usage.PromptTokens != want.prompt || got.Usage.OutputTokens != want.output ||
				got.Model != want.model {
				t.Errorf("got %+v, want %q, %d and %d tokens", got, want.model, want.prompt, want.output)
			}
		})
	}
}

// A client of gRPC hears of refusals, and of errors of the server, as gRPC tells them.
func TestEnvoyTellsErrorsOfCalls(t *testing.T) {
	server := newCallServer(t)
	p := serve(t, []string{server}, "--config-text", callParsers)
	p.pooled(t, 1)
	e := startEnvoy(t, overrideHostFull, p.grpcPort, []string{server}, speaksHTTP2(t))
	e.asksPicker(t)
	c := dialCalls(t, e)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, _, err := call(ctx, c, engineService+"Generate", []byte{0x1a, 5})
	if got := status.Convert(
		err,
	); got.Code() != codes.InvalidArgument ||
		!strings.Contains(got.Message(), "not protobuf") {
		t.Errorf("a broken message: %v, want InvalidArgument", err)
	}
	id, _, err := call(ctx, c, engineService+"Other", nil)
	if status.Code(err) != codes.Unavailable || id == "" {
		t.Errorf("an error of the server: %v with id %q, want Unavailable", err, id)
	}
	p.setEndpoints(t, nil)
	p.pooled(t, 0)
	_, _, err = call(ctx, c, engineService+"Generate", bytesField(3, []byte("hi")))
	if got := status.Convert(err); got.Code() != codes.Unavailable || !strings.Contains(got.Message(),
		"no model server") {
		t.Errorf("without a server: %v, want Unavailable", err)
	}
	eventually(t, 5*time.Second, "the error of the server is recorded", func() bool {
		_, text := get(p.metrics + "/debug/requests/" + id + "?format=json")
		return strings.Contains(text, `"status": `+strconv.Itoa(503)) || strings.Contains(text, `"status":503`)
	})
}
