package wire

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

func pattern(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// poisonPool overwrites a buffer that is given back, so that a view that outlives its reference shows.
type poisonPool struct{ out int }

func (p *poisonPool) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

func (p *poisonPool) Put(b *[]byte) {
	p.out--
	full := (*b)[:cap(*b)]
	for i := range full {
		full[i] = 0xEE
	}
}

// buffer copies b into a counted buffer of its own, of a capacity that grpc does not exempt from pooling.
func (p *poisonPool) buffer(b []byte) mem.Buffer {
	p.out++
	own := append(make([]byte, 0, max(len(b), 2048)), b...)
	return mem.NewBuffer(&own, p)
}

// cut returns frame in pieces of at most size bytes.
func (p *poisonPool) cut(frame []byte, size int) (data mem.BufferSlice) {
	for piece := range slices.Chunk(frame, size) {
		data = append(data, p.buffer(piece))
	}
	return data
}

func received(t testing.TB, direction Direction, body []byte, eos bool, pieceBytes int) *Request {
	t.Helper()
	return decoded(t, bodyMessage(direction, body, eos), pieceBytes)
}

// decoded is m as the codec reads it from buffers of at most pieceBytes.
func decoded(t testing.TB, m *extprocv3.ProcessingRequest, pieceBytes int) *Request {
	t.Helper()
	frame, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	data := new(poisonPool).cut(frame, pieceBytes)
	defer data.Free()
	r := new(Request)
	if err := (Codec{}).Unmarshal(data, r); err != nil {
		t.Fatal(err)
	}
	return r
}

// view is everything that a Request shows; viewOf and viewOfProto must agree on each frame.
type view struct {
	Kind          Kind
	EndOfStream   bool
	Message       Message
	Observability bool
	HasModes      bool
	Modes         Modes
	Headers       []string
	Body          string
	Meta          map[string]metaView
	Attr          map[string]string
}

type metaView struct {
	Kind   MetaKind
	Values []string
}

// names are the keys that generated messages use; lookups of all of them, and of pairs, are compared.
var names = []string{"", "envoy.lb", "envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset", "served",
	attributesKey}

func viewOf(r *Request) view {
	v := view{Kind: r.Kind, EndOfStream: r.EndOfStream, Message: r.Message, Observability: r.Observability(),
		Body: string(r.AppendBody(nil))}
	v.Meta, v.Attr = map[string]metaView{}, map[string]string{}
	v.Modes, v.HasModes = r.Modes()
	r.Headers(func(key, value []byte) bool {
		v.Headers = append(v.Headers, string(key)+"="+string(value))
		return true
	})
	meta := func(ns string, path ...string) {
		var m metaView
		m.Kind = r.Meta(ns, path, func(s []byte) bool {
			m.Values = append(m.Values, string(s))
			return true
		})
		if m.Kind != MetaAbsent {
			v.Meta[fmt.Sprintf("%q %q", ns, path)] = m
		}
	}
	for _, ns := range names {
		for _, key := range names {
			meta(ns, key)
			for _, sub := range names[:3] {
				meta(ns, key, sub)
			}
		}
		if s := r.Attr(ns); s != "" {
			v.Attr[ns] = s
		}
	}
	return v
}

func viewOfProto(m *extprocv3.ProcessingRequest) view {
	v := view{Observability: m.GetObservabilityMode(), Meta: map[string]metaView{}, Attr: map[string]string{}}
	if c := m.GetProtocolConfig(); c != nil {
		v.HasModes = true
		v.Modes = Modes{BodyMode(c.GetRequestBodyMode()), BodyMode(c.GetResponseBodyMode())}
	}
	viewMember(&v, m)
	for ns, s := range m.GetMetadataContext().GetFilterMetadata() {
		for key, val := range s.GetFields() {
			viewMeta(&v, ns, val, key)
			for sub, val := range val.GetStructValue().GetFields() {
				viewMeta(&v, ns, val, key, sub)
			}
		}
	}
	for key, val := range m.GetAttributes()[attributesKey].GetFields() {
		if s := val.GetStringValue(); s != "" && slices.Contains(names, key) {
			v.Attr[key] = s
		}
	}
	return v
}

func viewMember(v *view, m *extprocv3.ProcessingRequest) {
	var headers *corev3.HeaderMap
	switch o := m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		v.Kind, v.EndOfStream, headers = RequestHeaders, o.RequestHeaders.GetEndOfStream(),
			o.RequestHeaders.GetHeaders()
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		v.Kind, v.EndOfStream, headers = ResponseHeaders, o.ResponseHeaders.GetEndOfStream(),
			o.ResponseHeaders.GetHeaders()
	case *extprocv3.ProcessingRequest_RequestBody:
		v.Kind = RequestBody
		v.body(o.RequestBody)
	case *extprocv3.ProcessingRequest_ResponseBody:
		v.Kind = ResponseBody
		v.body(o.ResponseBody)
	case *extprocv3.ProcessingRequest_RequestTrailers:
		v.Kind, headers = RequestTrailers, o.RequestTrailers.GetTrailers()
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		v.Kind, headers = ResponseTrailers, o.ResponseTrailers.GetTrailers()
	}
	for _, h := range headers.GetHeaders() {
		value := string(h.GetRawValue())
		if value == "" {
			value = h.GetValue()
		}
		v.Headers = append(v.Headers, h.GetKey()+"="+value)
	}
}

func viewMeta(v *view, ns string, val *structpb.Value, path ...string) {
	if !slices.Contains(names, ns) || !slices.Contains(names, path[0]) || len(path) > 1 &&
		!slices.Contains(names[:3], path[1]) {
		return
	}
	m := metaView{Kind: MetaOther}
	switch k := val.GetKind().(type) {
	case *structpb.Value_StringValue:
		m = metaView{MetaString, []string{k.StringValue}}
	case *structpb.Value_ListValue:
		m.Kind = MetaList
		for _, e := range k.ListValue.GetValues() {
			if s, ok := e.GetKind().(*structpb.Value_StringValue); ok {
				m.Values = append(m.Values, s.StringValue)
			}
		}
	}
	v.Meta[fmt.Sprintf("%q %q", ns, path)] = m
}

func goldenRequests(t testing.TB) map[string]*extprocv3.ProcessingRequest {
	t.Helper()
	meta, err := structpb.NewStruct(map[string]any{
		"x-gateway-destination-endpoint-subset": []any{"10.0.0.1:8000", 7.0, "[::1]:8000", nil},
		"served":                                "10.0.0.2:8000",
		"":                                      map[string]any{"envoy.lb": "deep"}, "envoy.lb": true,
	})
	if err != nil {
		t.Fatal(err)
	}
	headers := &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
		{Key: ":method", RawValue: []byte("POST")}, {Key: "cookie", RawValue: []byte("a\xff")},
		{Key: "cookie", Value: "b"}, {Key: "empty"},
		{Key: "long", RawValue: pattern(60 << 10)},
	}}
	requests := map[string]*extprocv3.ProcessingRequest{
		"nothing": {},
		"request headers": {
			Request: &extprocv3.ProcessingRequest_RequestHeaders{
				RequestHeaders: &extprocv3.HttpHeaders{Headers: headers, EndOfStream: true},
			},
		},
		"response headers": {
			Request: &extprocv3.ProcessingRequest_ResponseHeaders{
				ResponseHeaders: &extprocv3.HttpHeaders{Headers: headers},
			},
		},
		"request trailers": {
			Request: &extprocv3.ProcessingRequest_RequestTrailers{
				RequestTrailers: &extprocv3.HttpTrailers{Trailers: headers},
			},
		},
		"response trailers": {
			Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}},
		},
		"request body":    bodyMessage(RequestDirection, pattern(40000), true),
		"response body":   bodyMessage(ResponseDirection, pattern(70), false),
		"empty last body": bodyMessage(ResponseDirection, nil, true),
	}
	for _, m := range requests {
		m.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb": meta,
			"envoy.lb.subset_hint": {}}}
		m.Attributes = map[string]*structpb.Struct{attributesKey: meta, "other": {}}
		m.ProtocolConfig = &extprocv3.ProtocolConfiguration{
			RequestBodyMode:  extprocfilterv3.ProcessingMode_FULL_DUPLEX_STREAMED,
			ResponseBodyMode: extprocfilterv3.ProcessingMode_NONE, SendBodyWithoutWaitingForHeaderResponse: true,
		}
		m.ObservabilityMode = m.Request == nil
	}
	return requests
}

// TestDecodeGolden decodes frames in pieces. Each piece has a buffer of 2 KB, so values are short where pieces are.
func TestDecodeGolden(t *testing.T) {
	decodeGolden(t, goldenRequests(t), 1000, 16<<10, 1<<30)
	short := goldenRequests(t)
	for _, m := range short {
		shorten(m)
	}
	decodeGolden(t, short, 1, 2, 7)
}

// shorten cuts long values, whose lengths still take two bytes then.
func shorten(m *extprocv3.ProcessingRequest) {
	const most = 300
	for _, h := range slices.Concat(m.GetRequestHeaders().GetHeaders().GetHeaders(),
		m.GetResponseHeaders().GetHeaders().GetHeaders(), m.GetRequestTrailers().GetTrailers().GetHeaders()) {
		h.RawValue = h.RawValue[:min(len(h.RawValue), most)]
	}
	if b := m.GetRequestBody(); b != nil {
		b.Body = b.Body[:min(len(b.Body), most)]
	}
}

func decodeGolden(t *testing.T, requests map[string]*extprocv3.ProcessingRequest, pieces ...int) {
	t.Helper()
	for name, m := range requests {
		frame, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		for _, pieceBytes := range pieces {
			t.Run(fmt.Sprintf("%s in pieces of %d", name, pieceBytes),
				func(t *testing.T) { decodeOne(t, frame, viewOfProto(m), pieceBytes) })
		}
	}
}

func decodeOne(t *testing.T, frame []byte, want view, pieceBytes int) {
	pool := new(poisonPool)
	data := pool.cut(frame, pieceBytes)
	var r Request
	if err := (Codec{}).Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	data.Free() // as grpc does right after Unmarshal
	if diff := cmp.Diff(want, viewOf(&r)); diff != "" {
		t.Errorf("want -, got +:\n%.2000s", diff)
	}
	r.Release()
	if pool.out != 0 {
		t.Errorf("%d buffers are still held after Release", pool.out)
	}
	if diff := cmp.Diff(view{Meta: map[string]metaView{}, Attr: map[string]string{}}, viewOf(&r)); diff != "" {
		t.Errorf("a released request still shows something:\n%s", diff)
	}
}

// A body in the usual form must stay where it was received.
func TestSplitBodyIsNotCopied(t *testing.T) {
	frame, err := proto.Marshal(goldenRequests(t)["request body"])
	if err != nil {
		t.Fatal(err)
	}
	pool := new(poisonPool)
	data := pool.cut(frame, 16<<10)
	defer data.Free()
	var r Request
	if err := (Codec{}).Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	pieces := 0
	r.BodyPieces(func([]byte) bool { pieces++; return true })
	if pieces != 3 {
		t.Errorf("body of 40000 bytes received in 16 KiB pieces is held in %d pieces, want 3", pieces)
	}
}

func TestVisitsStop(t *testing.T) {
	frame, err := proto.Marshal(goldenRequests(t)["request headers"])
	var r Request
	if err = errors.Join(err, Codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(frame)}, &r)); err != nil {
		t.Fatal(err)
	}
	headers, elements := 0, 0
	r.Headers(func(_, _ []byte) bool { headers++; return false })
	r.Meta("envoy.lb", []string{"x-gateway-destination-endpoint-subset"},
		func([]byte) bool { elements++; return false })
	if headers != 1 || elements != 1 {
		t.Errorf("visit was called %d and %d times after it gave false, want once each", headers, elements)
	}
}
