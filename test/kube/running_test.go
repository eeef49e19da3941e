package kube

import (
	"context"
	"net/http"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// running is a request that was picked for, and whose response is still to come.
type running struct {
	stream   extprocv3.ExternalProcessor_ProcessClient
	endpoint string
}

// begin begins a request.
func (p *picker) begin(ctx context.Context) running {
	p.t.Helper()
	stream, err := extprocv3.NewExternalProcessorClient(p.grpc).Process(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	const mode = filterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	err = stream.Send(&extprocv3.ProcessingRequest{
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: mode, ResponseBodyMode: mode},
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
			Headers: headerMap(":method", "GET", ":path", "/v1/models", ":authority", "x"), EndOfStream: true,
		}},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		p.t.Fatal(err)
	}
	r := running{stream: stream}
	for _, h := range answer.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		if h.GetHeader().GetKey() == "x-gateway-destination-endpoint" {
			r.endpoint, _, _ = strings.Cut(string(h.GetHeader().GetRawValue()), ",")
		}
	}
	return r
}

func headerMap(pairs ...string) *corev3.HeaderMap {
	all := &corev3.HeaderMap{}
	for i := 0; i < len(pairs); i += 2 {
		all.Headers = append(all.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return all
}

// end has the response come, and reports whether the picker took it as any other.
func (r running) end() (ok bool, _ error) {
	err := r.stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{
		ResponseHeaders: &extprocv3.HttpHeaders{
			Headers: headerMap(":status", "200", "content-type", "application/json"), EndOfStream: true,
		},
	}})
	if err != nil {
		return false, err
	}
	answer, err := r.stream.Recv()
	return answer.GetResponseHeaders() != nil, err
}

// A pod that terminates gets no new picks, and keeps the requests that it has.
func TestTerminatingPodKeepsItsRequests(t *testing.T) {
	s := newSpace(t, shared)
	s.pod("a", "10.0.0.1", vllm, nil)
	s.pool(8000)
	p := startPicker(t, s.inPool()...)
	p.knows("a-rank-0 10.0.0.1:8000")
	p.ready(true)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	before := p.begin(ctx)
	if before.endpoint != "10.0.0.1:8000" {
		t.Fatalf("picked %q", before.endpoint)
	}
	s.pod("b", "10.0.0.2", vllm, nil)
	s.merge(s.pods()+"/a", object{"metadata": object{"finalizers": []string{"test.example.com/hold"}}})
	s.remove(s.pods() + "/a") // it terminates until the finalizer goes
	p.knows("b-rank-0 10.0.0.2:8000")
	for range 20 {
		if got, status, text := p.pick(); status != http.StatusOK || !strings.HasPrefix(got, "10.0.0.2:8000") {
			t.Errorf("picked %q, %d %s; want the pod that stays", got, status, text)
		}
	}
	s.merge(s.pods()+"/a", object{"metadata": object{"finalizers": nil}})
	if ok, err := before.end(); !ok || err != nil {
		t.Errorf("the request of the pod that terminates: %v, %v", ok, err)
	}
	eventually(t, "its record", func() bool {
		page := p.page("/debug/requests?format=json")
		return strings.Contains(page, "10.0.0.1:8000")
	})
}
