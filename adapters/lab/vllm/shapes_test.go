package vllm

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// reply is a status, the headers that matter, and a body.
type reply struct {
	status int
	header http.Header
	body   string
}

// capture is what a real vLLM answered.
func capture(t *testing.T, name string) reply {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/vllm-0.32.0.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range archive.Files {
		if f.Name != name {
			continue
		}
		text := string(f.Data)
		if !strings.HasPrefix(text, "HTTP/") { // one capture lacks the status line
			text = "HTTP/1.1 503 Service Unavailable\n" + strings.Replace(text, "\n\n\n", "\n\n", 1)
		}
		head, body, _ := strings.Cut(text, "\n\n")
		r := reply{header: http.Header{}, body: strings.TrimSpace(body)}
		for i, line := range strings.Split(head, "\n") {
			if key, value, ok := strings.Cut(line, ": "); i > 0 && ok {
				r.header.Set(key, value)
			}
		}
		if _, err := fmt.Sscanf(head, "HTTP/1.1 %d", &r.status); err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Fatalf("no capture %s", name)
	return reply{}
}

// shape is JSON with its keys in order and types instead of values; equal neighbours in an array are one.
func shape(t *testing.T, text string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	s, err := shapeOf(d)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

func shapeOf(d *json.Decoder) (string, error) {
	token, err := d.Token()
	if err != nil {
		return "", err
	}
	switch v := token.(type) {
	case json.Delim:
		return shapeOfMany(d, v)
	case nil:
		return "null", nil
	default:
		return fmt.Sprintf("%T", v), nil
	}
}

func shapeOfMany(d *json.Decoder, open json.Delim) (string, error) {
	var b strings.Builder
	b.WriteString(open.String())
	last := ""
	for d.More() {
		if open == '{' {
			key, err := d.Token()
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "%s:", key)
			last = ""
		}
		s, err := shapeOf(d)
		if err != nil {
			return "", err
		}
		if s != last {
			b.WriteString(s + " ")
		}
		last = s
	}
	_, err := d.Token()
	b.WriteString("end")
	return b.String(), err
}

// events are the shapes of a stream's data, equal neighbours as one.
func events(t *testing.T, body string) []string {
	t.Helper()
	var out []string
	for event := range strings.SplitSeq(strings.TrimSpace(body), "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		if !ok {
			t.Fatalf("not an event: %q", event)
		}
		if data != "[DONE]" {
			data = shape(t, data)
		}
		if len(out) == 0 || out[len(out)-1] != data {
			out = append(out, data)
		}
	}
	return out
}

// start runs a server whose engine takes next to no time, so that tests of answers need no clock.
func start(t *testing.T, change func(*Config)) *Server {
	t.Helper()
	cfg := Config{
		Model: "tiny", MaxModelLen: 4096, PrefillTokensPerSecond: 1e6, DecodeTokensPerSecond: 1e4, LoRALoad: -1,
		Tick: time.Millisecond,
	}
	if change != nil {
		change(&cfg)
	}
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		http.DefaultClient.CloseIdleConnections()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return s
}

// ask sends one request, "METHOD /path", and reads the answer to its end.
func ask(t *testing.T, s *Server, what, body string, headers ...string) reply {
	t.Helper()
	r := request(t, s, what, body)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return send(t, http.DefaultClient, r)
}

func request(t *testing.T, s *Server, what, body string) *http.Request {
	t.Helper()
	method, path, _ := strings.Cut(what, " ")
	r, err := http.NewRequest(method, s.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return r
}

func send(t *testing.T, client *http.Client, r *http.Request) reply {
	t.Helper()
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(b)}
}

const hello = `"messages":[{"role":"user","content":"Say hello"}]`

func TestAnswersHaveTheShapeOfVLLMs(t *testing.T) {
	s := start(t, func(c *Config) { c.Adapters = []string{"lora-a", "lora-b"} })
	details := start(t, func(c *Config) { c.PromptTokensDetails = true })
	const chat, completion = "POST /v1/chat/completions", "POST /v1/completions"
	tests := map[string]struct {
		server     *Server
		what, body string
	}{
		"chat":        {s, chat, `{"model":"tiny","max_tokens":16,` + hello + `}`},
		"chat_stream": {s, chat, `{"model":"tiny","max_tokens":6,"stream":true,` + hello + `}`},
		"chat_stream_usage": {s, chat,
			`{"model":"tiny","max_tokens":6,"stream":true,"stream_options":{"include_usage":true},` + hello + `}`},
		"chat_stream_continuous_usage": {s, chat,
			`{"model":"tiny","max_tokens":6,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},` + hello + `}`},
		"completion": {s, completion, `{"model":"tiny","prompt":"Hello there"}`},
		"completion_stream_usage": {s, completion,
			`{"model":"tiny","prompt":"Hello","max_tokens":6,"stream":true,"stream_options":{"include_usage":true}}`},
		"completion_token_ids": {s, completion, `{"model":"tiny","prompt":[1,2,3,4],"max_tokens":4}`},
		"prefix_second_cached": {details, completion, `{"model":"tiny","prompt":"Hello there"}`},
		"error_no_model_field": {s, completion, `{"prompt":"Hello","max_tokens":1}`},
		"lora_models_two":      {s, "GET /v1/models", ""},
		"models":               {details, "GET /v1/models", ""},
		"load":                 {s, "GET /load", ""},
		"tokenize":             {s, "POST /tokenize", `{"prompt":"Hello there"}`},
		"tokenize_chat":        {s, "POST /tokenize", `{` + hello + `}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want, got := capture(t, name), ask(t, tt.server, tt.what, tt.body)
			if got.status != want.status || got.header.Get("Content-Type") != want.header.Get("Content-Type") {
				t.Errorf("got %d %s, want %d %s", got.status, got.header.Get("Content-Type"), want.status,
					want.header.Get("Content-Type"))
			}
			if strings.Contains(name, "stream") {
				if diff := cmp.Diff(events(t, want.body), events(t, got.body)); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				return
			}
			if diff := cmp.Diff(shape(t, want.body), shape(t, got.body)); diff != "" {
				t.Errorf("shape (-want +got):\n%s", diff)
			}
		})
	}
}

func TestErrorsAreThoseOfVLLM(t *testing.T) {
	s := start(t, func(c *Config) { c.MaxLoRAs = 2 })
	const chat, completion = "POST /v1/chat/completions", "POST /v1/completions"
	tests := []struct{ capture, what, body string }{
		{"error_404", "GET /v1/nothing", ""},
		{"error_405", "GET /v1/chat/completions", ""},
		{"error_bad_model", chat, `{"model":"nope",` + hello + `}`},
		{"error_missing_messages", chat, `{"model":"tiny"}`},
		{"error_wrong_type", chat, `{"model":"tiny","max_tokens":"x",` + hello + `}`},
		{"error_max_tokens_too_large", chat, `{"model":"tiny","max_tokens":100000,` + hello + `}`},
		{"error_prompt_too_long", completion, `{"model":"tiny","prompt":"` + strings.Repeat("long", 5000) + `"}`},
		{"lora_load", "POST /v1/load_lora_adapter", `{"lora_name":"lora-b","lora_path":"lora-b"}`},
		{"lora_load_again", "POST /v1/load_lora_adapter", `{"lora_name":"lora-b","lora_path":"lora-b"}`},
		{"lora_unload", "POST /v1/unload_lora_adapter", `{"lora_name":"lora-b"}`},
		{"lora_error_bad_model", chat, `{"model":"lora-z",` + hello + `}`},
		{"version", "GET /version", ""},
		{"health", "GET /health", ""},
		{"reset_prefix_cache", "POST /reset_prefix_cache", ""},
	}
	for _, tt := range tests {
		want, got := capture(t, tt.capture), ask(t, s, tt.what, tt.body)
		if got.status != want.status || got.body != want.body || got.header.Get("Allow") != want.header.Get("Allow") {
			t.Errorf("%s:\ngot  %d %s\nwant %d %s", tt.capture, got.status, got.body, want.status, want.body)
		}
	}
	got, want := ask(t, s, chat, "x=1", "Content-Type", "text/plain"), capture(t, "error_content_type")
	if got.status != want.status || got.body != want.body {
		t.Errorf("content type: got %d %s, want %d %s", got.status, got.body, want.status, want.body)
	}
	got, want = ask(t, s, "GET /metrics", ""), capture(t, "metrics_headers")
	if got.status != want.status || got.header.Get("Content-Type") != want.header.Get("Content-Type") {
		t.Errorf("metrics: got %d %s, want %d %s", got.status, got.header.Get("Content-Type"), want.status,
			want.header.Get("Content-Type"))
	}
	got, want = ask(t, s, chat, `{"model": "tiny", "messages": [}`), capture(t, "error_bad_json")
	if got.status != want.status || shape(t, got.body) != shape(t, want.body) ||
		!strings.Contains(got.body, "json_invalid") {
		t.Errorf("broken JSON: got %d %s, want %d %s", got.status, got.body, want.status, want.body)
	}
}

func TestRequestIDBecomesTheAnswers(t *testing.T) {
	s := start(t, nil)
	got := ask(t, s, "POST /v1/completions", `{"prompt":"Hello","max_tokens":2}`, "X-Request-Id", "my-id-1")
	var id struct{ ID string }
	if err := json.Unmarshal([]byte(got.body), &id); err != nil || id.ID != "cmpl-my-id-1" {
		t.Errorf("got %q (%v), want cmpl-my-id-1", id.ID, err)
	}
	if got.header.Get("x-served-by") != s.Addr() {
		t.Errorf("x-served-by: got %q, want %q", got.header.Get("x-served-by"), s.Addr())
	}
}

// readEvent reads past one event of a stream.
func readEvent(r *bufio.Reader) error {
	for {
		line, err := r.ReadString('\n')
		if err != nil || line == "\n" {
			return err
		}
	}
}

func TestStartRefusesBadConfig(t *testing.T) {
	for _, cfg := range []Config{{KVBlocks: -1}, {Tick: -1}, {MaxModelLen: -1}, {Address: "127.0.0.1:99999"},
		{DecodeTokensPerSecond: -1}} {
		if s, err := Start(cfg); err == nil {
			s.Kill()
			t.Errorf("%+v: no error", cfg)
		}
	}
}

func TestShownTextEndsWithAWholeCharacter(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("a", 101):      strings.Repeat("a", 100),
		strings.Repeat("a", 99) + "é": strings.Repeat("a", 99),
	} {
		if got := shown(json.RawMessage(strconv.Quote(text))); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
