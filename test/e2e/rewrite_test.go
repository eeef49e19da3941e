package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestEnvoyRewritesModels: the server receives the body of the client with another model in it and every other byte as
// it was, by weight, in both lanes and in each mode that shows the body. A change of the file is in force for the
// requests after it.
func TestEnvoyRewritesModels(t *testing.T) {
	for _, lane := range []string{overrideHost, overrideHostFull} {
		t.Run(lane, func(t *testing.T) { rewritesModels(t, lane) })
	}
}

func rewritesModels(t *testing.T, bootstrap string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	rules := func(list string) {
		writeFile(t, file, "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nmodelRewrites:\n- name: canary\n"+
			"  rules:\n"+list)
	}
	rules("  - matches: [{model: {value: chat}}]\n" +
		"    targets: [{modelRewrite: chat-v1, weight: 70}, {modelRewrite: chat-version-2, weight: 30}]\n")
	s := startStackWith(t, bootstrap, echoServers(t, 2), "--config-file", file)

	// numbers beyond 2^53, order, spaces and escapes: what decoding and encoding would change
	const text = "{ \"seed\" : 12345678901234567890,\t\"z\":1e400, \"model\" :  \"%s\" ,\n\"messages\":" +
		"[{\"role\":\"user\",\"content\":\"<\\u00e9 \\\"model\\\": \\\"chat\\\">%s\"}] }\n"
	got := map[string]int{}
	const requests = 200
	for i := range requests {
		more := strings.Repeat("x", i*i*5) // up to 200 KB
		a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", fmt.Sprintf(text, "chat", more), nil)
		e := a.echoed(t)
		for _, target := range []string{"chat", "chat-v1", "chat-version-2"} {
			if body := fmt.Sprintf(text, target, more); e.Bytes == len(body) && e.SHA256 == sum(body) {
				got[target]++
			}
		}
	}
	// 70 of 100 within four standard deviations of 200 draws
	if got["chat-v1"]+got["chat-version-2"] != requests || got["chat-v1"] < 114 || got["chat-v1"] > 166 {
		t.Errorf("%d requests for chat arrived as %v, want only chat-v1 (70 %%) and chat-version-2 (30 %%), else "+
			"unchanged", requests, got)
	}
	for header, want := range map[string]string{
		"X-Llm-D-Model-Name-Rewrite": "by-header", "X-Gateway-Model-Name-Rewrite": "by-header", "X-Other": "plain",
	} {
		a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", fmt.Sprintf(text, "plain", ""),
			http.Header{header: {"by-header"}})
		if e, want := a.echoed(t), fmt.Sprintf(text, want, ""); e.Bytes != len(want) || e.SHA256 != sum(want) {
			t.Errorf("%s: the server received %d bytes, want %q", header, e.Bytes, want)
		}
	}
	s.picker.shows(t, "/debug/requests?format=json", `"model": "chat"`, `"target_model": "chat-v`)
	s.picker.shows(t, "/metrics",
		`_request_total{fairness_id="default-flow",model_name="chat",priority="0",target_model_name="chat-v1"}`,
		`_request_total{fairness_id="default-flow",model_name="chat",priority="0",target_model_name="chat-version-2"}`)

	rules("  - targets: [{modelRewrite: other}]\n")
	s.picker.shows(t, "/debug/config", "number        2,", `every other model to "other"`)
	for name, body := range map[string]string{"chat": text, "anything": text} {
		a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", fmt.Sprintf(body, name, ""), nil)
		if e, want := a.echoed(t), fmt.Sprintf(body, "other", ""); e.SHA256 != sum(want) {
			t.Errorf("%s: the server received %d bytes, want %q", name, e.Bytes, want)
		}
	}
}

// TestEnvoyRewritesHeldBodies is the same in the modes in which Envoy holds the body for the answer.
func TestEnvoyRewritesHeldBodies(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	writeFile(t, file, "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nmodelRewrites:\n- name: canary\n"+
		"  rules: [{matches: [{model: {value: chat}}], targets: [{modelRewrite: chat-version-2}]}]\n")
	servers := echoServers(t, 2)
	p := serve(t, servers, "--config-file", file)
	held := []modes{pair("BUFFERED", "NONE"), pair("BUFFERED_PARTIAL", "NONE"), pair("FULL_DUPLEX_STREAMED", "NONE")}
	e := startEnvoy(t, overrideHost, p.grpcPort, servers, everyMode(t, held))
	e.asksPicker(t)
	s := &stack{servers: servers, picker: p, envoy: e, client: newClient(e.url)}
	t.Cleanup(s.client.close)
	for _, m := range held {
		for _, size := range []int{0, 20_000} {
			more := strings.Repeat("x", size)
			a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", chatBody("chat", more, 4, false),
				http.Header{modeField: {m.String()}})
			want := chatBody("chat-version-2", more, 4, false)
			if e := a.echoed(t); e.Bytes != len(want) || e.SHA256 != sum(want) {
				t.Errorf("%s: the server received %d bytes, want the %d of the rewritten body", m, e.Bytes, len(want))
			}
		}
	}
}
