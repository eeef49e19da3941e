package app

import (
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// shedding is a configuration with a sheddable objective, and this section for its detector.
func shedding(section string) string {
	return `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
objectives: [{name: batch, priority: -1}, {name: chat, priority: 0}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
plugins:
- {type: queue-scorer}
` + section
}

// What a detector's thresholds say decides whether a request of negative priority is refused, for a server whose page
// has a queue of six and a cache half in use. Requests of other priorities are served at any load.
func TestDetectorsOfTheFileDecideWhatIsShed(t *testing.T) {
	named := func(parameters string) string {
		return "- {name: u, " + parameters + "}\nflowControl: {saturationDetector: {pluginRef: u}}\n"
	}
	for name, c := range map[string]struct {
		section string
		refused bool
	}{
		"by default":    {"", true},
		"a queue below": {named("type: utilization-detector, parameters: {queueDepthThreshold: 7}"), false},
		"a queue at it": {named("type: utilization-detector, parameters: {queueDepthThreshold: 6}"), true},
		"a cache at it": {named("type: utilization-detector, parameters: {queueDepthThreshold: 9, " +
			"kvCacheUtilThreshold: 0.5}"), true},
		"a cache below": {named("type: utilization-detector, parameters: {queueDepthThreshold: 9, " +
			"kvCacheUtilThreshold: 0.6}"), false},
		"by what was sent": {named("type: concurrency-detector"), false},
	} {
		t.Run(name, func(t *testing.T) {
			page := newPageServer(t, "/metrics", "vllm:num_requests_waiting 6\nvllm:kv_cache_usage_perc 0.5\n",
				httptest.NewServer)
			file := filepath.Join(t.TempDir(), "endpoints.yaml")
			writeText(t, file, `endpoints: [{name: a, address: 127.0.0.1, port: "`+page.port()+`"}]`)
			s := running(t, "--endpoints", file, "--secure-serving=false", "--config-file",
				configFile(t, shedding(c.section)))
			awaitTrue(t, "the first page", func() bool {
				at := s.tree.picker.Pool().Snapshot().Endpoints
				return len(at) == 1 && at[0].Sample() != nil
			})
			want := 0
			if c.refused {
				want = 429
			}
			if status, body := asks(t, s, "batch"); status != want || c.refused &&
				!strings.Contains(body, "saturated") {
				t.Errorf("a request of priority -1: got status %d %s, want %d", status, body, want)
			}
			if status, body := asks(t, s, "chat"); status != 0 {
				t.Errorf("a request of priority 0: got status %d %s, want a pick", status, body)
			}
		})
	}
}

// asks sends a request without a body for an objective. It returns the status and the body of a refusal; 0 = there was
// a pick.
func asks(t *testing.T, s *server, objective string) (int, string) {
	t.Helper()
	stream, err := extprocv3.NewExternalProcessorClient(dialed(t, s.at("grpc-port"), nil)).Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var list []*corev3.HeaderValue
	for _, h := range [][2]string{
		{":method", "GET"}, {":path", "/v1/models"}, {":authority", "a"}, {":scheme", "http"},
		{"x-llm-d-inference-objective", objective},
	} {
		list = append(list, &corev3.HeaderValue{Key: h[0], RawValue: []byte(h[1])})
	}
	err = stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: list}, EndOfStream: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if refusal := answer.GetImmediateResponse(); refusal != nil {
		return int(refusal.GetStatus().GetCode()), string(refusal.GetBody())
	}
	if answer.GetRequestHeaders() == nil {
		t.Fatalf("got %v, want an answer to the headers", answer)
	}
	return 0, ""
}
