package extproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/messages"
)

type (
	ask    = extprocv3.ProcessingRequest
	answer = extprocv3.ProcessingResponse
	modes  = filterv3.ProcessingMode_BodySendMode
)

const (
	chatPath = "/v1/chat/completions"
	fds      = filterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	last     = true
	more     = false
)

// headerMap makes headers of "key: value" lines; a key may begin with a colon.
func headerMap(lines ...string) *corev3.HeaderMap {
	m := &corev3.HeaderMap{}
	for _, line := range lines {
		i := strings.Index(line[1:], ": ") + 1
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: line[:i], RawValue: []byte(line[i+2:])})
	}
	return m
}

func qH(eos bool, lines ...string) *ask {
	if len(lines) == 0 {
		lines = []string{":method: POST", ":path: " + chatPath, ":authority: llm", "content-type: application/json"}
	}
	return &ask{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{
			RequestHeaders: &extprocv3.HttpHeaders{Headers: headerMap(lines...), EndOfStream: eos},
		},
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: fds, ResponseBodyMode: fds},
	}
}

func qB(body string, eos bool) *ask {
	return &ask{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(body),
		EndOfStream: eos}}}
}

func qT() *ask {
	return &ask{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}}
}

func rH(eos bool, lines ...string) *ask {
	if len(lines) == 0 {
		lines = []string{":status: 200", "content-type: application/json"}
	}
	return &ask{
		Request: &extprocv3.ProcessingRequest_ResponseHeaders{
			ResponseHeaders: &extprocv3.HttpHeaders{Headers: headerMap(lines...), EndOfStream: eos},
		},
	}
}

func rB(body string, eos bool) *ask {
	return &ask{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte(body),
		EndOfStream: eos}}}
}

func rT(lines ...string) *ask {
	return &ask{Request: &extprocv3.ProcessingRequest_ResponseTrailers{
		ResponseTrailers: &extprocv3.HttpTrailers{Trailers: headerMap(lines...)},
	}}
}

// withMeta adds filter metadata to a message.
func withMeta(m *ask, namespace string, fields map[string]any) *ask {
	s, err := structpb.NewStruct(fields)
	if err != nil {
		panic(err)
	}
	m.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{namespace: s}}
	return m
}

func withModes(m *ask, request, response modes) *ask {
	m.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: request, ResponseBodyMode: response}
	return m
}

// call is one stream of the client.
type call struct {
	t      *testing.T
	stream extprocv3.ExternalProcessor_ProcessClient
	cancel context.CancelFunc
}

func open(t *testing.T, client extprocv3.ExternalProcessorClient) *call {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	stream, err := client.Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &call{t: t, stream: stream, cancel: cancel}
}

// send sends messages; what the server no longer takes shows where it is received.
func (c *call) send(list ...*ask) {
	c.t.Helper()
	for _, m := range list {
		if err := c.stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
			c.t.Fatalf("Send: %v", err)
		}
	}
}

func (c *call) receive() *answer {
	c.t.Helper()
	m, err := c.stream.Recv()
	if err != nil {
		c.t.Fatalf("Recv: %v", err)
	}
	return m
}

// finish half-closes and gives what the server still has to say; it must end without an error.
func (c *call) finish() []*answer {
	c.t.Helper()
	if err := c.stream.CloseSend(); err != nil {
		c.t.Fatal(err)
	}
	var all []*answer
	for {
		m, err := c.stream.Recv()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			c.t.Fatalf("the stream ends with %v, want OK", err)
		}
		all = append(all, m)
	}
}

// converse sends everything, half-closes, and gives all answers.
func converse(t *testing.T, client extprocv3.ExternalProcessorClient, list ...*ask) []*answer {
	t.Helper()
	c := open(t, client)
	c.send(list...)
	return c.finish()
}

// transcript writes answers one a line, and fails on a mutation that we never make.
func transcript(t *testing.T, all []*answer) []string {
	t.Helper()
	out := make([]string, len(all))
	for i, m := range all {
		out[i] = line(t, m)
	}
	return out
}

func line(t *testing.T, m *answer) string {
	t.Helper()
	switch r := m.GetResponse().(type) {
	case *extprocv3.ProcessingResponse_RequestHeaders:
		if r.RequestHeaders.GetResponse() == nil && m.GetDynamicMetadata() == nil {
			return "qH -"
		}
		return "qH " + picked(t, m, r.RequestHeaders.GetResponse())
	case *extprocv3.ProcessingResponse_ResponseHeaders:
		mutations(t, r.ResponseHeaders.GetResponse(), requestIDHeader)
		return "rH"
	case *extprocv3.ProcessingResponse_RequestBody:
		if c := r.RequestBody.GetResponse(); c.GetHeaderMutation() != nil {
			return "qB pick " + picked(t, m, c)
		}
		return "qB " + chunk(t, r.RequestBody)
	case *extprocv3.ProcessingResponse_ResponseBody:
		return "rB " + chunk(t, r.ResponseBody)
	case *extprocv3.ProcessingResponse_RequestTrailers:
		return "qT"
	case *extprocv3.ProcessingResponse_ResponseTrailers:
		return "rT"
	case *extprocv3.ProcessingResponse_ImmediateResponse:
		set := headers(t, r.ImmediateResponse.GetHeaders())
		return fmt.Sprintf("%d %s", r.ImmediateResponse.GetStatus().GetCode(), set[reasonHeader])
	}
	t.Errorf("unknown answer %v", m)
	return "?"
}

// ours are the headers that only a pick sets.
var ours = [...]string{
	messages.PrefillHeader, messages.EncodeHeader, messages.DataParallelHeader, messages.CacheSourceHeader,
}

// picked returns the destinations of a pick, and holds them against the metadata: one namespace, and in it the header's
// string; with it the request's id where the access log is to bring that back.
func picked(t *testing.T, m *answer, c *extprocv3.CommonResponse) string {
	t.Helper()
	removed := c.GetHeaderMutation().GetRemoveHeaders()
	c.GetHeaderMutation().RemoveHeaders = nil
	set := mutations(t, c, append(ours[:], destinationKey, requestIDHeader)...)
	to := set[destinationKey]
	if !c.GetClearRouteCache() || c.GetBodyMutation() != nil {
		t.Errorf("the pick is %v, want one that clears the route cache and leaves the body", c)
	}
	want, got := map[string]any{destinationKey: to}, m.GetDynamicMetadata().AsMap()
	lb, _ := got[lbNamespace].(map[string]any)
	if _, logged := lb[requestIDHeader]; logged {
		want[requestIDHeader] = set[requestIDHeader]
		if lb[connectionKey] != nil {
			want[connectionKey] = "12"
		}
		to += " logged"
	}
	for _, name := range ours {
		if value, ok := set[name]; ok {
			to += " " + name + "=" + value
		}
	}
	for _, name := range removed {
		to += " without " + name
	}
	if diff := cmp.Diff(map[string]any{lbNamespace: want}, got); diff != "" {
		t.Errorf("dynamic metadata, want -, got +:\n%s", diff)
	}
	return to
}

// chunk is a streamed response: its body in quotes, and its flags. A body that passes without a change is "-".
func chunk(t *testing.T, r *extprocv3.BodyResponse) string {
	t.Helper()
	if r.GetResponse() == nil {
		return "-"
	}
	s := r.GetResponse().GetBodyMutation().GetStreamedResponse()
	if s == nil || r.GetResponse().GetHeaderMutation() != nil {
		t.Errorf("a body is answered with %v, want a streamed response and nothing else", r)
	}
	text := fmt.Sprintf("%q", s.GetBody())
	for flag, set := range map[string]bool{"eos": s.GetEndOfStream(), "none": s.GetEndOfStreamWithoutMessage(),
		"compressed": s.GetGrpcMessageCompressed()} {
		if set {
			text += " " + flag
		}
	}
	if len(s.GetBody()) > 62000 {
		t.Errorf("a chunk has %d bytes, want at most 62000", len(s.GetBody()))
	}
	return text
}

// mutations are the headers that an answer sets. They may be those allowed, and nothing is ever removed.
func mutations(t *testing.T, r *extprocv3.CommonResponse, allowed ...string) map[string]string {
	t.Helper()
	set := headers(t, r.GetHeaderMutation())
	for key := range set {
		found := false
		for _, a := range allowed {
			found = found || a == key
		}
		if !found {
			t.Errorf("header %q is set, want only %q", key, allowed)
		}
	}
	return set
}

func headers(t *testing.T, m *extprocv3.HeaderMutation) map[string]string {
	t.Helper()
	if n := len(m.GetRemoveHeaders()); n > 0 {
		t.Errorf("%d headers are removed, want none", n)
	}
	set := map[string]string{}
	for _, h := range m.GetSetHeaders() {
		key := h.GetHeader().GetKey()
		appends := h.GetAppend() != nil //nolint:staticcheck // deprecated, and the one field that Envoy heeds
		if _, twice := set[key]; twice || h.GetHeader().GetValue() != "" || appends ||
			h.GetAppendAction() != corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
			t.Errorf("header is set by %v, want once, as raw_value, overwriting", h)
		}
		set[key] = string(h.GetHeader().GetRawValue())
	}
	return set
}
