package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// headerServer is a model server that keeps the headers of what it was asked, by the prompt of the chat, and answers as
// vLLM does: with an id that it makes of the request's.
type headerServer struct {
	*httptest.Server
	mu   sync.Mutex
	seen []http.Header
}

func newHeaderServer(t *testing.T) *headerServer {
	t.Helper()
	m := &headerServer{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		m.mu.Lock()
		m.seen = append(m.seen, r.Header.Clone())
		m.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/v1/responses" { // their ids are vLLM's own
			_, _ = io.WriteString(w, `{"id":"resp_0123456789abcdef","object":"response","output":[]}`)
			return
		}
		_, _ = io.WriteString(w, mustJSON(map[string]any{"id": "chatcmpl-" + r.Header.Get("X-Request-Id"),
			"object": "chat.completion", "choices": []int{}}))
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *headerServer) address() string { return strings.TrimPrefix(m.URL, "http://") }

// last is what the newest request brought.
func (m *headerServer) last(t *testing.T) http.Header {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.seen) == 0 {
		t.Fatal("no request reached the server")
	}
	return m.seen[len(m.seen)-1]
}

// behindEach runs a test with every file of deploy/envoy before one server.
func behindEach(t *testing.T, run func(t *testing.T, p *picker, c *client, server *headerServer)) {
	for path := range printedBy {
		name := path[strings.LastIndexByte(path, '/')+1:]
		t.Run(name, func(t *testing.T) {
			server := newHeaderServer(t)
			var p *picker
			var e *envoy
			if path == xdsLight || path == xdsFull {
				var port int
				p, port = serveXds(t, []string{server.address()})
				e = startXdsEnvoy(t, path, port)
			} else {
				p = serve(t, []string{server.address()})
				p.pooled(t, 1)
				e = startEnvoy(t, path, p.grpcPort, []string{server.address()})
				e.asksPicker(t)
			}
			c := newClient(e.url)
			t.Cleanup(c.close)
			run(t, p, c, server)
		})
	}
}

func (c *client) chatWith(t *testing.T, header http.Header) answer {
	t.Helper()
	return c.do(t.Context(), http.MethodPost, "/v1/chat/completions", chatBody(model, "hello", 2, false), header)
}

// TestEnvoyPassesHeadersWithUnderscores: agents send session_id and the like. What would be read as a header that is
// trusted, where a server takes an underscore for a hyphen, does not pass.
func TestEnvoyPassesHeadersWithUnderscores(t *testing.T) {
	seenElsewhere(t)
	passes := map[string]string{
		"session_id": "s-1", "conversation_id": "c-1", "x_session_id": "s-2", "x_request": "3", "x-my_own-gateway": "4",
		"x-llm-data_id":                 "5",
		"x-llm-d-inference-fairness-id": "tenant",
	}
	drops := []string{
		"x_gateway_destination_endpoint", "x-gateway_destination-endpoint", "x-gateway-destination-endpoint_served",
		"x-gateway-destination-endpoint_subset", "x_signalbox_request_id", "x-signalbox-request_id",
		"x_llm_d_inference_fairness_id",
		"x-llm_d-inference-fairness-id", "x-llm-d-inference_objective", "x_request_id", "x-request_id",
		"x_forwarded_for", "x-forwarded_for",
		"x_envoy_external_address", "content_type", "content_length", "transfer_encoding",
	}
	behindEach(t, func(t *testing.T, _ *picker, c *client, server *headerServer) {
		header := http.Header{}
		for name, value := range passes {
			header[name] = []string{value}
		}
		for _, name := range drops {
			header[name] = []string{"forged"}
		}
		if a := c.chatWith(t, header); a.status != http.StatusOK {
			t.Fatal(a.String())
		}
		seen := server.last(t)
		for name, value := range passes {
			if got := seen.Get(name); got != value {
				t.Errorf("%s arrives as %q, want %q", name, got, value)
			}
		}
		for _, name := range drops {
			if got := seen.Values(name); len(got) > 0 {
				t.Errorf("%s arrives as %q, want it dropped", name, got)
			}
		}
	})
}

// TestEnvoyKeepsTheClientsRequestID: the id that a client gives, or else the one that Envoy makes, reaches the server
// and comes back with the answer, and it leads to the record, as does what a server makes of it.
func TestEnvoyKeepsTheClientsRequestID(t *testing.T) {
	seenElsewhere(t)
	behindEach(t, func(t *testing.T, p *picker, c *client, server *headerServer) {
		for _, given := range []string{"mine-1", "5f2c0f3e-6a3b-4f6d-9c1e-0123456789ab", strings.Repeat("long ", 60) +
			"\u00fc/?#%", ""} {
			header := http.Header{}
			if given != "" {
				header.Set("X-Request-Id", given)
			}
			a := c.chatWith(t, header)
			ids := a.header.Values("X-Request-Id")
			if a.status != http.StatusOK || len(ids) != 1 || given != "" && ids[0] != given || ids[0] == "" {
				t.Fatalf("%s\nit was given the id %q and has %q", a.String(), given, ids)
			}
			if got := server.last(t).Get("X-Request-Id"); got != ids[0] {
				t.Errorf("the server sees the id %q, want %q", got, ids[0])
			}
			for _, id := range []string{ids[0], "chatcmpl-" + ids[0]} {
				if status, page := get(p.metrics + "/debug/requests/" + url.PathEscape(id)); status != http.StatusOK ||
					!strings.Contains(page, a.header.Get("x-signalbox-request-id")) {
					t.Errorf("/debug/requests/%s: HTTP %d, %s", id, status, page)
				}
			}
		}
		refused := c.do(t.Context(), http.MethodPost, "/v1/chat/completions", "no JSON",
			http.Header{"X-Request-Id": {"mine-2"}})
		if refused.status != http.StatusBadRequest || refused.header.Get("X-Request-Id") != "mine-2" {
			t.Errorf("%s\nits id is %q, want mine-2", refused.String(), refused.header.Get("X-Request-Id"))
		}
	})
}

// TestEnvoyShowsTheIDsOfResponses: in the full lane Signalbox learns an id that the model server makes by itself;
// elsewhere it says what to look for.
func TestEnvoyShowsTheIDsOfResponses(t *testing.T) {
	seenElsewhere(t)
	behindEach(t, func(t *testing.T, p *picker, c *client, _ *headerServer) {
		full := strings.Contains(t.Name(), "-full")
		a := c.post("/v1/responses", mustJSON(map[string]any{"model": model, "input": "hello"}))
		if a.status != http.StatusOK {
			t.Fatal(a.String())
		}
		id := a.header.Get("x-signalbox-request-id")
		eventually(t, 5*time.Second, "the request has ended", func() bool {
			_, page := get(p.metrics + "/debug/requests/" + id + "?format=json")
			return strings.Contains(page, `"running": false`)
		})
		_, own := get(p.metrics + "/debug/requests/" + id)
		shown := strings.Contains(own, "resp_0123456789abcdef") // a share of the light lane's are shown too
		status, page := get(p.metrics + "/debug/requests/resp_0123456789abcdef")
		switch {
		case full && !shown:
			t.Errorf("the record has no id of the response: %s", own)
		case shown && (status != http.StatusOK || !strings.Contains(page, id)):
			t.Errorf("HTTP %d, %s", status, page)
		case !shown && (status != http.StatusNotFound ||
			!strings.Contains(page, "x-request-id of the answer's headers")):
			t.Errorf("HTTP %d, %s", status, page)
		}
	})
}
