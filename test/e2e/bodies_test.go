package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// echoed is what an echo server says about the request that reached it.
type echoed struct {
	Bytes  int
	SHA256 string
	Header http.Header
}

// echoServers start model servers that have a vLLM's metrics page and answer every request with what they received.
func echoServers(t *testing.T, count int) []string {
	t.Helper()
	addresses := make([]string, 0, count)
	for range count {
		server := httptest.NewServer(http.HandlerFunc(echo))
		t.Cleanup(server.Close)
		addresses = append(addresses, server.Listener.Addr().String())
	}
	return addresses
}

func echo(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/metrics":
		fmt.Fprintf(w, "vllm:num_requests_running{model_name=%q} 0\nvllm:num_requests_waiting{model_name=%q} 0\n"+
			"vllm:kv_cache_usage_perc{model_name=%q} 0\n", model, model, model)
		return
	case "/v1/models":
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model"}]}`, model)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, mustJSON(echoed{Bytes: len(body), SHA256: sum(string(body)), Header: r.Header}))
}

func sum(body string) string {
	digest := sha256.Sum256([]byte(body))
	return hex.EncodeToString(digest[:])
}

func (a *answer) echoed(t *testing.T) echoed {
	t.Helper()
	var e echoed
	if a.err != nil || a.status != http.StatusOK {
		t.Fatal(a.String())
	}
	if err := json.Unmarshal([]byte(a.body), &e); err != nil {
		t.Fatalf("%v in %.300q", err, a.body)
	}
	return e
}

// TestEnvoyPassesBodiesExactly: from one byte to 8 MiB, parsed or not, what a server receives is what the client sent.
func TestEnvoyPassesBodiesExactly(t *testing.T) {
	s := startStack(t, echoServers(t, 2))
	const chunk = 62000 // bytes: the longest piece Signalbox gives back at once
	sizes := []int{1, 2, 1000, chunk - 1, chunk, chunk + 1, 1<<16 - 1, 1 << 16, 1<<16 + 1, 1 << 20, 4<<20 - 1,
		4<<20 + 1, 8 << 20}
	for _, size := range sizes {
		t.Run(fmt.Sprintf("opaque %d", size), func(t *testing.T) {
			passesExactly(t, s, "/v1/anything", strings.Repeat("\x00\xffé\n", size/5+1)[:size])
		})
	}
	frame := len(chatBody(model, "", 4, false))
	for _, size := range sizes[2:] {
		t.Run(fmt.Sprintf("chat %d", size), func(t *testing.T) {
			prompt := strings.Repeat("All work and no play. ", size/22+1)[:size-frame]
			passesExactly(t, s, "/v1/chat/completions", chatBody(model, prompt, 4, false))
		})
	}
	s.picker.idle(t)
}

func passesExactly(t *testing.T, s *stack, path, body string) {
	t.Helper()
	before := s.picker.picks()
	a := s.client.post(path, body)
	e := a.echoed(t)
	if e.Bytes != len(body) || e.SHA256 != sum(body) {
		t.Errorf("sent %d bytes (%s), the server received %d (%s)", len(body), sum(body), e.Bytes, e.SHA256)
	}
	eventually(t, 5*time.Second, "it is picked for once", func() bool { return s.picker.picks()-before == 1 })
}

// TestEnvoyPassesHeaders: tracing headers arrive as they were sent, and no client chooses its own server.
func TestEnvoyPassesHeaders(t *testing.T) {
	servers := echoServers(t, 2)
	stranger := echoServers(t, 1)[0]
	for _, bootstrap := range []string{overrideHost, originalDst} {
		t.Run(bootstrap, func(t *testing.T) {
			s := startStackWith(t, bootstrap, servers)
			const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", chatBody(model, "hello", 4, false),
				http.Header{
					"Traceparent":                    {trace},
					"X-Gateway-Destination-Endpoint": {stranger},
					"X-Twice":                        {"a", "b"},
				})
			e := a.echoed(t)
			if got := e.Header.Get("Traceparent"); got != trace {
				t.Errorf("traceparent: sent %q, the server received %q", trace, got)
			}
			if got := e.Header.Values("X-Twice"); strings.Join(got, ",") != "a,b" {
				t.Errorf("x-twice: sent a and b, the server received %q", got)
			}
			destination := e.Header.Get("X-Gateway-Destination-Endpoint")
			if strings.Contains(destination, stranger) || !strings.Contains(destination, "127.0.0.1:") {
				t.Errorf("destination %q, want one of %v and never %s", destination, servers, stranger)
			}
		})
	}
}
