package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// Conversations of an agent meet at one server while it has room, as in the reference: they have the tools and the
// system prompt in common, though the client sends messages first, and a billing line that is new with each request.
func TestConversationsOfAnAgentMeet(t *testing.T) {
	r := startRig(t, []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80"}, nil)
	client := r.client(t)
	at := map[string]int{}
	for i := range 24 {
		before := r.indexed(t)
		at[r.pick(t, client, "/v1/messages", agentBody(i))]++
		r.until(t, "the index has the conversation", func() bool { return r.indexed(t) > before })
	}
	if len(at) != 1 {
		t.Errorf("24 conversations went to %v, want one server", at)
	}
}

// agentBody is the first request of a conversation.
func agentBody(conversation int) string {
	long := func(text string) string { return strings.Repeat(text+" and so on, ", 100) }
	return fmt.Sprintf(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"%s"}],"system":[{"type":"text",`+
		`"text":"x-anthropic-billing-header: cc_version=2.1.77; cch=%05x;"},{"type":"text","text":"%s"}],`+
		`"tools":[{"name":"read","description":"%s","input_schema":{"type":"object"}}],"stream":true}`,
		long(fmt.Sprint("conversation ", conversation)), conversation, long("You are an agent"), long("Reads a file"))
}

// indexed returns how many blocks the prefix index has.
func (r *rig) indexed(t *testing.T) float64 {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "llm_d_epp_prefix_indexer_size" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("no size of the prefix index")
	return 0
}

// pick sends a request, whose server answers at once, and returns which one was picked.
func (r *rig) pick(t *testing.T, client extprocv3.ExternalProcessorClient, path, body string) (server string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	stream, err := client.Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const whole = filterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	send(t, stream, &extprocv3.ProcessingRequest{
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: whole, ResponseBodyMode: whole},
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: headers(":method", "POST", ":path", path,
			"content-type", "application/json")},
	}, &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
		RequestBody: &extprocv3.HttpBody{Body: []byte(body), EndOfStream: true},
	}})
	for server == "" {
		server = destination(receive(t, stream))
	}
	send(t, stream, &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: headers(":status", "200", "content-type",
			"text/event-stream")},
	}, &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{
		ResponseBody: &extprocv3.HttpBody{Body: []byte("event: message_stop\ndata: {}\n\n"), EndOfStream: true},
	}})
	for receive(t, stream).GetResponseBody() == nil { // what comes before is the rest of the request
	}
	r.until(t, "the server is idle", func() bool { return r.load(server) == 0 })
	return server
}

func headers(pairs ...string) *extprocv3.HttpHeaders {
	all := &corev3.HeaderMap{}
	for i := 0; i < len(pairs); i += 2 {
		all.Headers = append(all.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return &extprocv3.HttpHeaders{Headers: all}
}

// destination returns the first server that an answer names; "" = it names none.
func destination(answer *extprocv3.ProcessingResponse) string {
	for _, h := range answer.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		if h.GetHeader().GetKey() == "x-gateway-destination-endpoint" {
			first, _, _ := strings.Cut(string(h.GetHeader().GetRawValue()), ",")
			return first
		}
	}
	return ""
}

func send(t *testing.T, to extprocv3.ExternalProcessor_ProcessClient, requests ...*extprocv3.ProcessingRequest) {
	t.Helper()
	for _, request := range requests {
		if err := to.Send(request); err != nil {
			t.Fatal(err)
		}
	}
}

func receive(t *testing.T, from extprocv3.ExternalProcessor_ProcessClient) *extprocv3.ProcessingResponse {
	t.Helper()
	answer, err := from.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
