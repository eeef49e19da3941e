package wire

import (
	"bytes"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
)

// sent decodes what Send would write with the generated types and frees it as grpc does.
func sent(t *testing.T, r *Response) *extprocv3.ProcessingResponse {
	t.Helper()
	frame, err := Codec{}.Marshal(r)
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	defer frame.Free()
	got := new(extprocv3.ProcessingResponse)
	if err := proto.Unmarshal(frame.Materialize(), got); err != nil {
		t.Fatalf("generated types refuse our frame: %v", err)
	}
	return got
}

func setHeader(key, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: key, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

func strct(t *testing.T, m map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestHeadersAnswer(t *testing.T) {
	long := strings.Repeat("10.0.0.1:8000,", 2000)
	tests := map[string]struct {
		in   HeadersAnswer
		want *extprocv3.ProcessingResponse
	}{
		"empty": {HeadersAnswer{}, requestHeaders(&extprocv3.CommonResponse{}, nil)},
		"pick": {
			HeadersAnswer{
				Set: []Header{{"x-gateway-destination-endpoint", "10.0.0.1:8000"}}, ClearRouteCache: true,
				Metadata: []Namespace{{Name: "envoy.lb", Fields: []Field{
					{"x-gateway-destination-endpoint", "10.0.0.1:8000"}, {"id", "7"},
				}}},
			},
			requestHeaders(&extprocv3.CommonResponse{
				HeaderMutation: &extprocv3.HeaderMutation{
					SetHeaders: []*corev3.HeaderValueOption{
						setHeader("x-gateway-destination-endpoint", "10.0.0.1:8000"),
					},
				},
				ClearRouteCache: true,
			}, strct(t, map[string]any{"envoy.lb": map[string]any{"x-gateway-destination-endpoint": "10.0.0.1:8000",
				"id": "7"}})),
		},
		"two namespaces, long values, remove, bytes that are not UTF-8": {
			HeadersAnswer{
				Set: []Header{{"a", long}, {"b", "\xff\x00"}}, Remove: []string{"c", "d"},
				Metadata: []Namespace{{Name: "n1", Fields: []Field{{"k", long}}}, {Name: "n2"},
					{Name: "n\xff", Fields: []Field{{"\xfe", "v\xfe"}},
						Structs: []Struct{{"s\xff", []Number{{"\xfe", 1}}}}}},
			},
			requestHeaders(&extprocv3.CommonResponse{
				HeaderMutation: &extprocv3.HeaderMutation{
					SetHeaders:    []*corev3.HeaderValueOption{setHeader("a", long), setHeader("b", "\xff\x00")},
					RemoveHeaders: []string{"c", "d"},
				},
			}, strct(t, map[string]any{
				"n1": map[string]any{"k": long}, "n2": map[string]any{}, "n\uFFFD": map[string]any{
					"\uFFFD": "v\uFFFD", "s\uFFFD": map[string]any{"\uFFFD": 1},
				},
			})),
		},
		"scores": {
			HeadersAnswer{Metadata: []Namespace{{
				Name: "envoy.lb", Fields: []Field{{"k", "v"}}, Structs: []Struct{
					{"scores", []Number{{"10.0.0.1:8000", .5}, {"[::1]:1", 0}, {long, -1e300}}}, {Key: "none"},
				},
			}}},
			requestHeaders(&extprocv3.CommonResponse{}, strct(t, map[string]any{"envoy.lb": map[string]any{
				"k": "v", "scores": map[string]any{"10.0.0.1:8000": .5, "[::1]:1": 0, long: -1e300},
				"none": map[string]any{},
			}})),
		},
		"on the body": {
			HeadersAnswer{OnBody: true, Set: []Header{{"a", "b"}}, ClearRouteCache: true},
			&extprocv3.ProcessingResponse{
				Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{
					Response: &extprocv3.CommonResponse{
						HeaderMutation: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{setHeader("a",
							"b")}},
						ClearRouteCache: true,
					},
				}},
			},
		},
		"other modes": {
			HeadersAnswer{Direction: ResponseDirection,
				Override: &Modes{RequestBody: BodyBuffered, ResponseBody: BodyStreamed}},
			&extprocv3.ProcessingResponse{
				Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{
					Response: &extprocv3.CommonResponse{},
				}},
				ModeOverride: &filterv3.ProcessingMode{
					RequestBodyMode:  filterv3.ProcessingMode_BUFFERED,
					ResponseBodyMode: filterv3.ProcessingMode_STREAMED,
				},
			},
		},
		"response direction": {
			HeadersAnswer{Direction: ResponseDirection, Set: []Header{{"a", "b"}}},
			&extprocv3.ProcessingResponse{
				Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{
					Response: &extprocv3.CommonResponse{
						HeaderMutation: &extprocv3.HeaderMutation{
							SetHeaders: []*corev3.HeaderValueOption{setHeader("a", "b")},
						},
					},
				}},
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var r Response
			r.SetFrame(AppendHeadersAnswer(nil, &tc.in))
			if diff := cmp.Diff(tc.want, sent(t, &r), protocmp.Transform()); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

func requestHeaders(c *extprocv3.CommonResponse, meta *structpb.Struct) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestHeaders{
			RequestHeaders: &extprocv3.HeadersResponse{Response: c},
		},
		DynamicMetadata: meta,
	}
}

// Each nesting level of an answer needs one or two length bytes; sizes around the step must all come out right.
func TestAnswerLengthSteps(t *testing.T) {
	for size := range 300 {
		value := strings.Repeat("v", size)
		var r Response
		r.SetFrame(AppendHeadersAnswer([]byte{},
			&HeadersAnswer{Set: []Header{{"k", value}}, Metadata: []Namespace{{
				Name: "n", Fields: []Field{{"k", value}}, Structs: []Struct{{"s", []Number{{value, float64(size)}}}},
			}}}))
		got := sent(t, &r)
		raw := got.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders()[0].GetHeader().GetRawValue()
		fields := got.GetDynamicMetadata().GetFields()["n"].GetStructValue().GetFields()
		meta, number := fields["k"].GetStringValue(), fields["s"].GetStructValue().AsMap()[value]
		if string(raw) != value || meta != value || number != float64(size) {
			t.Fatalf("value of %d bytes: header has %d, metadata has %d, its number is %v", size, len(raw), len(meta),
				number)
		}
	}
}

func TestImmediate(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 70000)
	tests := map[string]struct {
		in   Immediate
		want *extprocv3.ImmediateResponse
		meta map[string]any
	}{
		"status only": {Immediate{Status: 503}, &extprocv3.ImmediateResponse{Status: &typev3.HttpStatus{Code: 503}},
			nil},
		"gRPC": {Immediate{Status: 200, GRPC: 8}, &extprocv3.ImmediateResponse{
			Status: &typev3.HttpStatus{Code: 200}, GrpcStatus: &extprocv3.GrpcStatus{Status: 8},
		}, nil},
		"everything": {
			Immediate{
				Status: 429, Headers: []Header{{"content-type", "application/json"}, {"retry-after", "1"}}, Body: body,
				Details:  "no capacity",
				Metadata: []Namespace{{Name: "envoy.lb", Fields: []Field{{"reason", "saturated"}}}},
			},
			&extprocv3.ImmediateResponse{
				Status: &typev3.HttpStatus{Code: 429}, Body: body, Details: "no capacity",
				Headers: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{setHeader("content-type",
					"application/json"), setHeader("retry-after", "1")}},
			},
			map[string]any{"envoy.lb": map[string]any{"reason": "saturated"}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			want := &extprocv3.ProcessingResponse{
				Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: tc.want},
			}
			if tc.meta != nil {
				want.DynamicMetadata = strct(t, tc.meta)
			}
			var r Response
			r.SetFrame(AppendImmediate(nil, &tc.in))
			if diff := cmp.Diff(want, sent(t, &r), protocmp.Transform()); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

func TestEmptyAnswers(t *testing.T) {
	tests := map[string]struct {
		set  func(*Response)
		want *extprocv3.ProcessingResponse
	}{
		"request headers": {func(r *Response) { r.SetEmptyHeaders(RequestDirection) },
			&extprocv3.ProcessingResponse{
				Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}},
			}},
		"response headers": {func(r *Response) { r.SetEmptyHeaders(ResponseDirection) },
			&extprocv3.ProcessingResponse{
				Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}},
			}},
		"request body": {func(r *Response) { r.SetEmptyBody(RequestDirection) },
			&extprocv3.ProcessingResponse{
				Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{}},
			}},
		"response body": {func(r *Response) { r.SetEmptyBody(ResponseDirection) },
			&extprocv3.ProcessingResponse{
				Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{}},
			}},
		"request trailers": {func(r *Response) { r.SetEmptyTrailers(RequestDirection) },
			&extprocv3.ProcessingResponse{
				Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}},
			}},
		"response trailers": {func(r *Response) { r.SetEmptyTrailers(ResponseDirection) },
			&extprocv3.ProcessingResponse{
				Response: &extprocv3.ProcessingResponse_ResponseTrailers{
					ResponseTrailers: &extprocv3.TrailersResponse{},
				},
			}},
	}
	tests["response trailers with metadata"] = struct {
		set  func(*Response)
		want *extprocv3.ProcessingResponse
	}{
		func(r *Response) {
			r.SetFrame(AppendTrailersAnswer(nil, ResponseDirection,
				[]Namespace{{Name: "n", Numbers: []Number{{"zero", 0}, {"half", .5}}}}))
		},
		&extprocv3.ProcessingResponse{
			Response: &extprocv3.ProcessingResponse_ResponseTrailers{
				ResponseTrailers: &extprocv3.TrailersResponse{},
			},
			DynamicMetadata: strct(t, map[string]any{"n": map[string]any{"zero": 0, "half": .5}}),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var r Response
			for range 2 { // a constant survives its first use
				tc.set(&r)
				if diff := cmp.Diff(tc.want, sent(t, &r), protocmp.Transform()); diff != "" {
					t.Errorf("want -, got +:\n%s", diff)
				}
			}
			if _, err := (Codec{}).Marshal(&r); err == nil {
				t.Error("a response that was sent can be sent again")
			}
		})
	}
}

// chunk returns the streamed response of a direction, or fails.
func chunk(t *testing.T, direction Direction, r *extprocv3.ProcessingResponse) *extprocv3.StreamedBodyResponse {
	t.Helper()
	body := r.GetRequestBody()
	if direction == ResponseDirection {
		body = r.GetResponseBody()
	}
	s := body.GetResponse().GetBodyMutation().GetStreamedResponse()
	want := &extprocv3.CommonResponse{
		BodyMutation: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: s}},
	}
	if s == nil || !proto.Equal(want, body.GetResponse()) {
		t.Fatalf("not a plain streamed response in the %v direction: %.300v", direction, r)
	}
	return s
}

// echoed drains e and gives the joined bytes and the sizes of the chunks; only the last may end the stream.
func echoed(t *testing.T, direction Direction, e *Echo) (body []byte, sizes []int, endOfStream bool) {
	t.Helper()
	var out Response
	for e.Next(&out) {
		if endOfStream {
			t.Fatal("a chunk follows the end of stream")
		}
		c := chunk(t, direction, sent(t, &out))
		body = append(body, c.GetBody()...)
		sizes = append(sizes, len(c.GetBody()))
		endOfStream = c.GetEndOfStream()
	}
	return body, sizes, endOfStream
}

func TestEchoSizes(t *testing.T) {
	tests := map[int][]int{
		1: {1}, copyBytes: {copyBytes}, copyBytes + 1: {copyBytes + 1}, ChunkBytes - 1: {ChunkBytes - 1},
		ChunkBytes:     {ChunkBytes},
		ChunkBytes + 1: {ChunkBytes, 1}, 3*ChunkBytes + 500: {ChunkBytes, ChunkBytes, ChunkBytes, 500},
	}
	for size, want := range tests {
		for _, direction := range []Direction{RequestDirection, ResponseDirection} {
			for source := range sources {
				echoSize(t, source, direction, size, want)
			}
		}
	}
}

func echoSize(t *testing.T, source string, direction Direction, size int, want []int) {
	t.Helper()
	for _, eos := range []bool{false, true} {
		var e Echo
		body := pattern(size)
		sources[source](t, &e, direction, body, eos)
		got, sizes, end := echoed(t, direction, &e)
		if !bytes.Equal(got, body) || !cmp.Equal(sizes, want) || end != eos {
			t.Errorf("%s, %d bytes, %v direction, eos %v: got %d bytes in %v, eos %v", source, size, direction, eos,
				len(got), sizes, end)
		}
	}
}

func TestEchoEmpty(t *testing.T) {
	for source, start := range sources {
		var e Echo
		start(t, &e, ResponseDirection, nil, false)
		if _, sizes, _ := echoed(t, ResponseDirection, &e); len(sizes) != 0 {
			t.Errorf("%s: an empty body that does not end gave chunks %v", source, sizes)
		}
		start(t, &e, ResponseDirection, nil, true)
		if _, sizes, end := echoed(t, ResponseDirection, &e); !cmp.Equal(sizes, []int{0}) || !end {
			t.Errorf("%s: an empty last body gave chunks %v, eos %v; want one empty chunk with eos", source, sizes, end)
		}
	}
}

// sources start an Echo in each of its ways; a received body comes in one buffer, in transport-sized pieces,
// and in small ones.
var sources = map[string]func(t *testing.T, e *Echo, direction Direction, body []byte, eos bool){
	"request, one piece": func(t *testing.T, e *Echo, direction Direction, body []byte, eos bool) {
		e.StartRequest(received(t, direction, body, eos, 1<<30))
	},
	"request, 16 KiB pieces": func(t *testing.T, e *Echo, direction Direction, body []byte, eos bool) {
		e.StartRequest(received(t, direction, body, eos, 16<<10))
	},
	"request, odd pieces": func(t *testing.T, e *Echo, direction Direction, body []byte, eos bool) {
		e.StartRequest(received(t, direction, body, eos, 3333))
	},
	"gathered body": func(t *testing.T, e *Echo, direction Direction, body []byte, eos bool) {
		var b Body
		b.Reserve(len(body) / 2)
		b.Append(received(t, direction, body, eos, 16<<10))
		if !bytes.Equal(b.Bytes(), body) {
			t.Fatalf("gathered %d bytes, want the %d sent", b.Len(), len(body))
		}
		e.StartBody(direction, &b, eos)
		if b.Len() != 0 {
			t.Fatal("the body still has its buffer after Echo took it")
		}
	},
}
