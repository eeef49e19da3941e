package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
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

// streamPieces are events as three APIs have them, cut within names.
var streamPieces = []string{
	"data: {\"id\":\"chatcmpl-1\",\"model\":\"chat-ver", "sion-2\",\"choices\":[{\"delta\":{\"content\":" +
		"\"\\\"model\\\":",
	"\\\"chat-version-2\\\"\"}}]}\n\ndata: {\"model\" : \"chat-version-2", "\"}\r\n\r\n",
	"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[],\"mod",
	"el\":\"chat-version-2\"}}\n\n",
	"event: response.created\ndata:{\"response\":{\"metadata\":{\"model\":\"chat-version-2\"}," +
		"\"model\":\"chat-version-2\"}}\n\n",
	"data: [DONE]\n\n",
}

// namesServers answer requests for a stream with streamPieces, and others with what they received.
func namesServers(t *testing.T) []string {
	t.Helper()
	return handlers(t, 2, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Stream") == "" {
			mirror(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, piece := range streamPieces {
			_, _ = io.WriteString(w, piece)
			w.(http.Flusher).Flush()
			<-time.After(2 * time.Millisecond) // so that Envoy does not join them
		}
	})
}

// TestEnvoyPutsNamesBack: in the full lane the client reads the name that it asked for, and every other byte as the
// server wrote it; in the light lane the target's name stays in all responses.
func TestEnvoyPutsNamesBack(t *testing.T) {
	const rules = "{apiVersion: llm-d.ai/v1, kind: EndpointPickerConfig, modelRewrites: [{name: canary, " +
		"rules: [{matches: [{model: {value: chat}}], targets: [{modelRewrite: chat-version-2}]}]}]}"
	full := []modes{pair("FULL_DUPLEX_STREAMED", "STREAMED"), pair("BUFFERED", "BUFFERED"),
		pair("FULL_DUPLEX_STREAMED", "BUFFERED_PARTIAL"), pair("BUFFERED", "STREAMED")}
	for lane, all := range map[string][]modes{overrideHostFull: full, overrideHost: nil} {
		t.Run(lane, func(t *testing.T) {
			servers := namesServers(t)
			p := serve(t, servers, "--config-text", rules)
			e := startEnvoy(t, lane, p.grpcPort, servers, everyMode(t, all))
			e.asksPicker(t)
			c := newClient(e.url)
			t.Cleanup(c.close)
			name := "chat"
			if lane == overrideHost {
				name = "chat-version-2"
			}
			for _, m := range append(all, modes{}) { // the last has no route of its own
				for range 40 / (len(all) + 1) { // some of the light lane's are shown
					putsNamesBack(t, c, m, name)
				}
			}
		})
	}
}

// putsNamesBack checks that answers name a model.
func putsNamesBack(t *testing.T, c *client, m modes, name string) {
	t.Helper()
	for _, size := range []int{0, 20_000} {
		more := strings.Repeat("x", size)
		a := c.do(t.Context(), http.MethodPost, "/v1/chat/completions", chatBody("chat", more, 4, false),
			http.Header{modeField: {m.String()}})
		if got, want := a.header.Get("X-Sum"), sum(chatBody("chat-version-2", more, 4, false)); got != want {
			t.Errorf("%s: the server received another body than the one rewritten: %s", m, a.String())
		}
		if want := chatBody(name, more, 4, false); a.body != want {
			t.Errorf("%s: got %.200s of %d bytes, want %.200s of %d", m, a.body, len(a.body), want, len(want))
		}
		if length := a.header.Get("Content-Length"); length != "" && length != strconv.Itoa(len(a.body)) {
			t.Errorf("%s: content-length %s, want that of %d bytes", m, length, len(a.body))
		}
	}
	got := c.raw(t, chatBody("chat", "", 4, true), http.Header{modeField: {m.String()}, "X-Stream": {"1"}})
	want := strings.Join(streamPieces, "")
	if name == "chat" {
		kept := []string{"\\\"chat-version-2", "\\\"CHAT",
			"metadata\":{\"model\":\"chat-version-2", "metadata\":{\"model\":\"CHAT"}
		want = strings.NewReplacer(kept...).Replace(want)
		want = strings.ReplaceAll(strings.ReplaceAll(want, "chat-version-2", "chat"), "CHAT", "chat-version-2")
	}
	if got != want {
		t.Errorf("%s: got %q, want %q", m, got, want)
	}
}

// raw returns the body of an answer as it came.
func (c *client) raw(t *testing.T, body string, header http.Header) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.base+"/v1/chat/completions",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header.Clone()
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(read)
}

// TestEnvoySetsPriorities: the server receives the priority of the request's objective, negated if it is a vLLM, and
// every other byte as it was.
func TestEnvoySetsPriorities(t *testing.T) {
	for engine, sign := range map[string]string{"vllm": "-", "sglang": ""} {
		t.Run(engine, func(t *testing.T) {
			servers := echoServers(t, 1)
			host, port, _ := net.SplitHostPort(servers[0])
			list := filepath.Join(t.TempDir(), "endpoints.yaml")
			writeFile(t, list, fmt.Sprintf("endpoints: [{name: a, address: %s, port: %q, "+
				"labels: {llm-d.ai/engine-type: %s}}]\n", host, port, engine))
			s := startStackWith(t, overrideHost, servers, "--endpoints", list, "--config-text",
				"{apiVersion: llm-d.ai/v1, kind: EndpointPickerConfig, objectives: [{name: chat, priority: 10}], "+
					"requestHandler: {propagatePriority: true}}")
			for _, size := range []int{0, 20_000} {
				more := strings.Repeat("x", size)
				for priority, objective := range map[string]string{sign + "10": "chat", "0": "other"} {
					const body = "{ \"seed\" : 12345678901234567890,\t\"priority\" : %s , \"model\":\"m\", " +
						"\"prompt\":\"%s\"}\n"
					a := s.client.do(t.Context(), http.MethodPost, "/v1/completions", fmt.Sprintf(body, "-7", more),
						http.Header{"X-Llm-D-Inference-Objective": {objective}})
					if e, want := a.echoed(t), fmt.Sprintf(body, priority, more); e.SHA256 != sum(want) {
						t.Errorf("objective %s: the server received %d bytes, want the %d of %.90s", objective, e.Bytes,
							len(want), want)
					}
				}
			}
		})
	}
}
