package app

import (
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
)

const documentText = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {type: document-data-source, parameters: {path: /state, interval: 10ms}}
- {type: json-extractor, parameters: {attributes: [{name: example.com/watts, field: power.watts}]}}
- {type: endpoint-attribute-scorer, parameters: {attributeKey: example.com/watts}}
dataLayer:
  injectDefaults: false
  sources: [{pluginRef: document-data-source, extractors: [{pluginRef: json-extractor}]}]
`

// A field of a JSON document that every server has decides by configuration alone.
func TestDocumentDecides(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	var entries []string
	for i, text := range []string{`{"power": {"watts": 300}}`, `{"power": {"watts": 100}}`, `{"power": {}}`} {
		at := newPageServer(t, "/state", text, httptest.NewServer).port()
		entries = append(entries, fmt.Sprintf(`{name: %c, address: 127.0.0.1, port: "%s"}`, 'a'+i, at))
	}
	tr, end := treeOver(t, io.Discard, strings.Join(entries, "\n"), "--config-text", documentText)
	defer end()
	all := tr.picker.Pool().Snapshot().Endpoints
	answered(t, tr, all, "document-data-source")
	tr.request(t, 1, 200)
	if a, b, c := all[0].Picks(), all[1].Picks(), all[2].Picks(); a != 0 || b != 1 || c != 0 {
		t.Errorf("picks %d, %d, %d, want that for the second, which needs the least power", a, b, c)
	}
}

// answered waits for the first answer of a source for each endpoint: until then those that came with it are equal.
func answered(t *testing.T, tr *tree, all []*endpoints.Endpoint, source string) {
	t.Helper()
	tr.until(t, "the documents", func(*endpoints.Endpoint) bool {
		return !slices.ContainsFunc(all, func(e *endpoints.Endpoint) bool {
			p := e.Pages().Of(source)
			return p == nil || p.At.IsZero()
		})
	})
}

const poolDocumentText = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {type: document-data-source, name: hints, parameters: {%s, interval: %v}}
- {type: json-extractor, parameters: {attributes: [{name: example.com/cost, field: "hints.{endpoint}.cost"}]}}
- {type: endpoint-attribute-scorer, parameters: {attributeKey: example.com/cost}}
dataLayer:
  injectDefaults: false
  sources: [{pluginRef: hints, extractors: [{pluginRef: json-extractor}]}]
`

// One document of the whole pool, in a file or at a URL, decides by configuration alone, and follows what is written.
// A server is asked for it once an interval, not once an endpoint.
func TestDocumentOfThePoolDecides(t *testing.T) {
	const every = 50 * time.Millisecond
	hints := func(a, b int) string { return fmt.Sprintf(`{"hints": {"a": {"cost": %d}, "b": {"cost": %d}}}`, a, b) }
	file := filepath.Join(t.TempDir(), "hints.json")
	server := newPageServer(t, "/hints", hints(2, 1), httptest.NewServer)
	for at, write := range map[string]func(text string){
		"url: '" + server.URL + "/hints'": func(text string) { server.text.Store(&text) },
		"file: " + file: func(text string) {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(strings.Split(at, ":")[0], func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			write(hints(2, 1))
			tr, end := treeOver(t, io.Discard, "{name: a, address: 127.0.0.1, port: 1}\n"+
				"{name: b, address: 127.0.0.1, port: 2}\n{name: c, address: 127.0.0.1, port: 3}",
				"--config-text", fmt.Sprintf(poolDocumentText, at, every))
			defer end()
			all := tr.picker.Pool().Snapshot().Endpoints
			costs := func(of int, want float64) {
				t.Helper()
				tr.until(t, "the documents", func(*endpoints.Endpoint) bool {
					p := all[of].Pages().Of("hints")
					return p != nil && p.Value("example.com/cost", "json-extractor") == want
				})
			}
			answered(t, tr, all, "hints")
			costs(0, 2)
			costs(1, 1)
			tr.request(t, 1, 200)
			if a, b, c := all[0].Picks(), all[1].Picks(), all[2].Picks(); a != 0 || b != 1 || c != 0 {
				t.Errorf("picks %d, %d, %d, want that for b, which costs least", a, b, c)
			}
			if strings.HasPrefix(at, "url") {
				server.times(t, 1) // for which it was connected to
				if took := server.times(t, 10); took < 6*every {
					t.Errorf("asked 10 times within %v, want once in %v for 3 endpoints", took, every)
				}
			}
			write(hints(1, 3))
			costs(1, 3)
			costs(0, 1)
			tr.request(t, 2, 200)
			if a := all[0].Picks(); a != 1 {
				t.Errorf("a has %d picks, want the second", a)
			}
		})
	}
}

// pushDocument puts a document into force by the metrics port, and returns the status and the body of the response.
func pushDocument(t *testing.T, tr *tree, source, ttl, document string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "PUT", "http://127.0.0.1/sources/"+source+"?ttl="+ttl,
		strings.NewReader(document))
	r.RemoteAddr = "127.0.0.1:1"
	w := httptest.NewRecorder()
	tr.admin.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// A document that is pushed decides until it expires, over a reload of the configuration too. One with a mistake
// changes nothing.
func TestPushedDocumentDecidesUntilItExpires(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	text := fmt.Sprintf(poolDocumentText, "pushed: true", 10*time.Millisecond)
	file := filepath.Join(t.TempDir(), "config.yaml")
	rewrite(t, file, text)
	tr, end := treeOver(t, io.Discard, "{name: a, address: 127.0.0.1, port: 1}\n"+
		"{name: b, address: 127.0.0.1, port: 2}", "--config-file", file)
	defer end()
	all := tr.picker.Pool().Snapshot().Endpoints
	page := func(says string, is func(*endpoints.Page) bool) {
		t.Helper()
		tr.until(t, says, func(*endpoints.Endpoint) bool {
			return !slices.ContainsFunc(all, func(e *endpoints.Endpoint) bool {
				p := e.Pages().Of("hints")
				return p == nil || !is(p)
			})
		})
	}
	costs := func(p *endpoints.Page) float64 { return p.Value("example.com/cost", "json-extractor") }
	page("nothing pushed", func(p *endpoints.Page) bool { return p.Failing && p.At.IsZero() })
	if code, body := pushDocument(t, tr, "other", "1m", `{}`); code != 404 || !strings.Contains(body, "no-source") {
		t.Errorf("got %d %s for a source that there is not, want 404", code, body)
	}
	code, body := pushDocument(t, tr, "hints", "1m", `{"hints": {"a": {"cost": 2}, "b": {"cost": 1}, "c": {}}}`)
	if code != 200 || !strings.Contains(body, `"example.com/cost": 2`) || !strings.Contains(body, `"ttl_seconds": 60`) {
		t.Errorf("got %d %s, want 200 and 2 values", code, body)
	}
	page("the document", func(p *endpoints.Page) bool { return costs(p) > 0 })
	tr.request(t, 1, 200)
	if a, b := all[0].Picks(), all[1].Picks(); a != 0 || b != 1 {
		t.Errorf("picks %d and %d, want that for b, which costs less", a, b)
	}
	code, body = pushDocument(t, tr, "hints", "1m", `{"hints": {"a": {"cost": "1"}, "b": 7}}`)
	for _, want := range []string{"nothing changed", "hints.a.cost: got a string, want a number, true or false",
		"hints.b: got a number, want an object or a list"} {
		if code != 400 || !strings.Contains(body, want) {
			t.Errorf("got %d %s for mistakes, want 400 and %q", code, body, want)
		}
	}
	rewrite(t, file, strings.Replace(text, "endpoint-attribute-scorer,", "endpoint-attribute-scorer, name: other,", 1))
	if err := tr.configuration.reload(); err != nil {
		t.Fatal(err)
	}
	page("the document", func(p *endpoints.Page) bool { return costs(p) > 0 })
	tr.request(t, 2, 200)
	if b := all[1].Picks(); b != 2 {
		t.Errorf("b has %d picks after a reload, want 2", b)
	}
	pushDocument(t, tr, "hints", "50ms", `{"hints": {"a": {"cost": 1}, "b": {"cost": 3}}}`)
	page("the end of the document", func(p *endpoints.Page) bool {
		return p.Failing && time.Now().After(p.FreshUntil(time.Hour))
	})
}
