package admin

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestPush(t *testing.T) {
	from := func(address string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = address } }
	page := func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:9090") }
	for name, c := range map[string]struct {
		method, path, body string
		change             func(*http.Request)
		tokens             bool
		status             int
		says               string
		pushed             bool
	}{
		"taken":          {path: "hints?ttl=30s", status: 200, says: `"ttl_seconds": 30`, pushed: true},
		"with a token":   {path: "hints?ttl=30s", change: from("192.0.2.1:1"), tokens: true, status: 200, pushed: true},
		"stranger":       {path: "hints?ttl=30s", change: from("192.0.2.1:1"), status: 403, says: "not-loopback"},
		"web page":       {path: "hints?ttl=30s", change: page, status: 403, says: "a web page sent"},
		"without a ttl":  {path: "hints", status: 400, says: "ttl: got"},
		"no duration":    {path: "hints?ttl=30", status: 400, says: "ttl: got"},
		"expired":        {path: "hints?ttl=0s", status: 400, says: "ttl: got"},
		"for ever":       {path: "hints?ttl=25h", status: 400, says: "at most 24h"},
		"misspelt":       {path: "hints?tll=30s", status: 400, says: "did you mean ttl"},
		"longest":        {path: "hints?ttl=1s", body: "0123456789", status: 200, pushed: true},
		"too long":       {path: "hints?ttl=1s", body: "0123456789+", status: 413, says: "at most 10 bytes"},
		"refused":        {path: "bad?ttl=1s", status: 400, says: "nothing changed: a.cost", pushed: true},
		"no such source": {path: "gone?ttl=1s", status: 404, says: "no-source", pushed: true},
		"read":           {method: "GET", path: "hints", status: 405, says: "want PUT"},
		"posted":         {method: "POST", path: "hints?ttl=30s", status: 405, says: "want PUT"},
		"no name":        {path: "?ttl=30s", status: 405, says: "want PUT"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(answering())
			cfg.Tokens, cfg.PushBytes = c.tokens, 10
			pushed := false
			cfg.Push = func(source string, document []byte, ttl time.Duration) (map[string]int, error) {
				pushed = true
				switch {
				case source == "bad":
					return nil, errors.New("a.cost: got a string")
				case source == "gone":
					return nil, NoSource("there is none")
				case string(document) != c.body || ttl <= 0:
					t.Errorf("got %q for %v", document, ttl)
				}
				return map[string]int{"a/b": 1}, nil
			}
			method := c.method
			if method == "" {
				method = http.MethodPut
			}
			r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1/sources/"+c.path,
				strings.NewReader(c.body))
			r.RemoteAddr = "127.0.0.1:1"
			if c.change != nil {
				c.change(r)
			}
			w := httptest.NewRecorder()
			NewHandler(cfg).ServeHTTP(w, r)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) || pushed != c.pushed ||
				w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("got %d %s, pushed: %v; want %d, %q, %v", w.Code, w.Body, pushed, c.status, c.says, c.pushed)
			}
		})
	}
}

func TestIndexSaysWhereValuesAreTaken(t *testing.T) {
	cfg := config(answering())
	if w := get(cfg, "/"); strings.Contains(w.Body.String(), "/sources/") {
		t.Error("a process that takes no values says that it does")
	}
	cfg.Push = func(string, []byte, time.Duration) (map[string]int, error) { return nil, nil }
	if w := get(cfg, "/"); !strings.Contains(w.Body.String(), "PUT /sources/{source}") {
		t.Errorf("the list of paths does not say where values are taken:\n%s", w.Body)
	}
}
