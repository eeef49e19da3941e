package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

func (p *bufferPool) buffer(b []byte) mem.Buffer {
	own := p.Get(len(b))
	copy(*own, b)
	return mem.NewBuffer(own, p)
}

// benchHeaders is what Envoy sends for a chat request: 14 headers, the subset hint and the served endpoint.
func benchHeaders() *extprocv3.ProcessingRequest {
	h := &corev3.HeaderMap{}
	for i, key := range []string{":method", ":path", ":authority", ":scheme", "content-type", "content-length",
		"user-agent", "accept", "authorization",
		"x-forwarded-for", "x-forwarded-proto", "x-request-id", "traceparent", "x-envoy-expected-rq-timeout-ms"} {
		h.Headers = append(h.Headers, &corev3.HeaderValue{Key: key, RawValue: pattern(8 + 3*i)})
	}
	list := structpb.NewListValue(&structpb.ListValue{
		Values: []*structpb.Value{structpb.NewStringValue("10.0.0.1:8000"), structpb.NewStringValue("10.0.0.2:8000")},
	})
	return &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: h}},
		MetadataContext: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{
			"envoy.lb.subset_hint": {Fields: map[string]*structpb.Value{"x-gateway-destination-endpoint-subset": list}},
		}},
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: 4, ResponseBodyMode: 4},
	}
}

// readHeaders decodes a headers frame and looks at all that a handler wants of it.
func readHeaders(t testing.TB, frame mem.BufferSlice, r *Request) {
	if err := (Codec{}).Unmarshal(frame, r); err != nil {
		t.Fatal(err)
	}
	size := 0
	r.Headers(func(key, value []byte) bool {
		size += len(key) + len(value)
		return true
	})
	if kind := r.Meta("envoy.lb.subset_hint", []string{"x-gateway-destination-endpoint-subset"}, func(v []byte) bool {
		size += len(v)
		return true
	}); kind != MetaList || size < 100 {
		t.Fatalf("metadata kind %d, %d bytes seen", kind, size)
	}
}

func readGenerated(t testing.TB, frame mem.BufferSlice) {
	var m extprocv3.ProcessingRequest
	if err := encoding.GetCodecV2("proto").Unmarshal(frame, &m); err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, h := range m.GetRequestHeaders().GetHeaders().GetHeaders() {
		size += len(h.GetKey()) + len(h.GetRawValue())
	}
	hints := m.GetMetadataContext().GetFilterMetadata()["envoy.lb.subset_hint"].GetFields()
	list := hints["x-gateway-destination-endpoint-subset"].GetListValue()
	if len(list.GetValues()) != 2 || size < 100 {
		t.Fatalf("%d values, %d bytes seen", len(list.GetValues()), size)
	}
}

func BenchmarkHeaders(b *testing.B) {
	encoded, err := proto.Marshal(benchHeaders())
	if err != nil {
		b.Fatal(err)
	}
	frame := mem.BufferSlice{mem.SliceBuffer(encoded)}
	b.Run("wire", func(b *testing.B) {
		var r Request
		b.ReportAllocs()
		for b.Loop() {
			readHeaders(b, frame, &r)
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			readGenerated(b, frame)
		}
	})
}

// BenchmarkEcho reads one response body message, as the transport hands it over, and writes it back.
func BenchmarkEcho(b *testing.B) {
	for _, size := range []int{200, 1 << 10, 8 << 10, 48 << 10} {
		encoded, err := proto.Marshal(bodyMessage(ResponseDirection, pattern(size), false))
		if err != nil {
			b.Fatal(err)
		}
		var data mem.BufferSlice
		for at := 0; at < len(encoded); at += 16 << 10 {
			data = append(data, buffers.buffer(encoded[at:min(len(encoded), at+16<<10)]))
		}
		b.Run(fmt.Sprintf("%d/wire", size), func(b *testing.B) { benchEcho(b, data) })
		b.Run(fmt.Sprintf("%d/generated", size), func(b *testing.B) { benchEchoGenerated(b, data) })
	}
}

func benchEcho(b *testing.B, data mem.BufferSlice) {
	var e exchange
	b.ReportAllocs()
	for b.Loop() {
		if err := (Codec{}).Unmarshal(data, &e.req); err != nil {
			b.Fatal(err)
		}
		e.echo.StartRequest(&e.req)
		for e.echo.Next(&e.out) {
			frame, err := Codec{}.Marshal(&e.out)
			if err != nil {
				b.Fatal(err)
			}
			frame.Free()
		}
	}
}

func benchEchoGenerated(b *testing.B, data mem.BufferSlice) {
	codec := encoding.GetCodecV2("proto")
	b.ReportAllocs()
	for b.Loop() {
		var m extprocv3.ProcessingRequest
		if err := codec.Unmarshal(data, &m); err != nil {
			b.Fatal(err)
		}
		streamed := &extprocv3.StreamedBodyResponse{Body: m.GetResponseBody().GetBody(),
			EndOfStream: m.GetResponseBody().GetEndOfStream()}
		mutation := &extprocv3.BodyMutation{
			Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: streamed},
		}
		frame, err := codec.Marshal(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{
			ResponseBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: mutation}},
		}})
		if err != nil {
			b.Fatal(err)
		}
		frame.Free()
	}
}

func TestAllocations(t *testing.T) {
	if underRace() {
		t.Log("under the race detector pools forget on purpose: only that it runs is checked")
	}
	headers, err := proto.Marshal(benchHeaders())
	if err != nil {
		t.Fatal(err)
	}
	frame := mem.BufferSlice{mem.SliceBuffer(headers)}
	body, err := proto.Marshal(bodyMessage(ResponseDirection, pattern(16<<10), false))
	if err != nil {
		t.Fatal(err)
	}
	pieces := mem.BufferSlice{buffers.buffer(body[:9000]), buffers.buffer(body[9000:])}
	var e exchange
	e.req.held = make(mem.BufferSlice, 0, 4)
	tests := map[string]struct {
		want float64
		run  func()
	}{
		"read headers and metadata": {0, func() { readHeaders(t, frame, &e.req) }},
		"echo a body of 16 KiB by reference": {1, func() {
			if err := (Codec{}).Unmarshal(pieces, &e.req); err != nil {
				t.Fatal(err)
			}
			e.echo.StartRequest(&e.req)
			for e.echo.Next(&e.out) {
				e.out.Discard()
			}
		}},
		"empty answer": {0, func() { e.out.SetEmptyHeaders(RequestDirection); e.out.Discard() }},
	}
	for name, tc := range tests {
		if got := testing.AllocsPerRun(1000, tc.run); got != tc.want && !underRace() {
			t.Errorf("%s: %v allocations, want %v", name, got, tc.want)
		}
	}
}

// underRace reports whether the race detector slows everything down and makes pools forget.
func underRace() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func TestPoolSizes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2047, 2048, 2049, 16384, 16385, 1 << 22, 1<<22 + 1, random.IntN(1 << 22)} {
		b := buffers.Get(n)
		if len(*b) != n || mem.IsBelowBufferPoolingThreshold(cap(*b)) {
			t.Errorf("Get(%d): length %d, capacity %d", n, len(*b), cap(*b))
		}
		for i := range *b {
			(*b)[i] = 1
		}
		buffers.Put(b)
		if again := buffers.Get(n); len(*again) != n || bytes.Count(*again, []byte{1})+
			bytes.Count(*again, []byte{0}) != n {
			t.Errorf("Get(%d) after Put: length %d", n, len(*again))
		}
	}
	odd := make([]byte, 3000)
	buffers.Put(&odd)
	if b := buffers.Get(2049); cap(*b) < 2049 {
		t.Errorf("Get(2049) gave capacity %d", cap(*b))
	}
}

// generatedServer does with the generated types what echoServer does, but echoes request bodies chunk by chunk.
type generatedServer struct {
	extprocv3.UnimplementedExternalProcessorServer
}

func (generatedServer) Process(s extprocv3.ExternalProcessor_ProcessServer) error {
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answer := &extprocv3.ProcessingResponse{}
		switch o := m.GetRequest().(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			answer.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			answer.Response = &extprocv3.ProcessingResponse_ResponseHeaders{
				ResponseHeaders: &extprocv3.HeadersResponse{},
			}
		case *extprocv3.ProcessingRequest_RequestBody:
			answer.Response = &extprocv3.ProcessingResponse_RequestBody{RequestBody: echoGenerated(o.RequestBody)}
		case *extprocv3.ProcessingRequest_ResponseBody:
			answer.Response = &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: echoGenerated(o.ResponseBody)}
		}
		if err := s.Send(answer); err != nil {
			return err
		}
	}
}

func echoGenerated(b *extprocv3.HttpBody) *extprocv3.BodyResponse {
	streamed := &extprocv3.StreamedBodyResponse{Body: b.GetBody(), EndOfStream: b.GetEndOfStream()}
	mutation := &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: streamed}}
	return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: mutation}}
}

// BenchmarkServer runs whole exchanges over loopback. The client, which uses the generated types,
// is part of both figures.
func BenchmarkServer(b *testing.B) {
	headers := map[string]*extprocv3.ProcessingRequest{"request headers": benchHeaders(), "response headers": {
		Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{}},
	}}
	generated := func(s *grpc.Server) { extprocv3.RegisterExternalProcessorServer(s, generatedServer{}) }
	conns := map[string]*grpc.ClientConn{"wire": serve(b, ours, ServerOptions()...), "generated": serve(b, generated)}
	for _, size := range []int{1 << 10, 8 << 10, 64 << 10} {
		for _, name := range []string{"wire", "generated"} {
			b.Run(fmt.Sprintf("%d/%s", size, name), func(b *testing.B) {
				body := pattern(size)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := transact(conns[name], headers, body, false); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}
