package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// cookies are what quotingServers answer with: several, one of them twice, and one that is no UTF-8.
var cookies = []string{"a=1", "b=\xff", "a=1"}

// quotingServers are echo servers that quote the header values they got, so that JSON carries every byte.
func quotingServers(t *testing.T, count int) []string {
	t.Helper()
	addresses := make([]string, 0, count)
	for range count {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, values := range r.Header {
				for i := range values {
					values[i] = fmt.Sprintf("%q", values[i])
				}
			}
			w.Header()["Set-Cookie"] = cookies
			echo(w, r)
		}))
		t.Cleanup(server.Close)
		addresses = append(addresses, server.Listener.Addr().String())
	}
	return addresses
}

// uncleanHeader has 90 headers besides those of the client and of Envoy, up to 40 KB long and some no UTF-8.
func uncleanHeader() http.Header {
	h := http.Header{
		"X-Twice": {"a\xff", "b", "a\xff"}, "X-Long": {strings.Repeat("é\xff", 40_000/3)},
		"X-Llm-D-Inference-Fairness-Id": {"tenant\xff"},
		"X-Request-Id":                  {"id\xfe"}, "User-Agent": {"\xc3"},
	}
	for len(h) < 90 {
		h[fmt.Sprintf("X-Filler-%d", len(h))] = []string{fmt.Sprintf("%d\xfe", len(h))}
	}
	return h
}

// TestEnvoyPassesUncleanHeaders: what is no text, repeated, long or many arrives as it was sent, both ways, and nothing
// that Signalbox says of it is unclean.
func TestEnvoyPassesUncleanHeaders(t *testing.T) {
	s := startStack(t, quotingServers(t, 2))
	sent := uncleanHeader()
	a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", chatBody(model+"\xff", "hello", 4, false),
		sent)
	got := a.echoed(t).Header
	for key, values := range sent {
		if key == "X-Request-Id" { // Envoy's own
			continue
		}
		want := make([]string, len(values))
		for i, v := range values {
			want[i] = fmt.Sprintf("%q", v)
		}
		if !slices.Equal(got[key], want) {
			t.Errorf("%s: sent %.200q, the server received %.200q", key, want, got[key])
		}
	}
	if !slices.Equal(a.header["Set-Cookie"], cookies) {
		t.Errorf("set-cookie: the server sent %q, the client got %q", cookies, a.header["Set-Cookie"])
	}
	s.picker.idle(t)
	saysOf(t, s.picker, `"fairness_id": "tenant`)
}

// saysOf waits until the records hold a text, and checks that they and the metrics are clean.
func saysOf(t *testing.T, p *picker, text string) {
	t.Helper()
	records := ""
	eventually(t, 5*time.Second, "the record with "+text, func() bool {
		_, records = get(p.metrics + "/debug/requests?format=json")
		return strings.Contains(records, text)
	})
	if _, page := get(p.metrics + "/metrics"); !utf8.ValidString(page) || !utf8.ValidString(records) ||
		!json.Valid([]byte(records)) {
		t.Errorf("unclean: metrics %t, records %t, JSON %t", !utf8.ValidString(page), !utf8.ValidString(records),
			!json.Valid([]byte(records)))
	}
}

// TestEnvoyPassesEncodedBodies: a compressed request and a form are routed by their model, and arrive byte by byte.
func TestEnvoyPassesEncodedBodies(t *testing.T) {
	s := startStack(t, echoServers(t, 2))
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := io.WriteString(w, chatBody("compressed-model", strings.Repeat("hello ", 1000), 4, false)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	form := "--cut\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n" +
		strings.Repeat("\x00\xff\r\n--", 100_000) +
		"\r\n--cut\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nform-model\r\n--cut--\r\n"
	for name, tc := range map[string]struct {
		path, body, model string
		header            http.Header
	}{
		"gzip": {"/v1/chat/completions", zipped.String(), "compressed-model",
			http.Header{"Content-Encoding": {"gzip"}}},
		"gzip, cut": {"/v1/chat/completions", zipped.String()[:zipped.Len()-9], "",
			http.Header{"Content-Encoding": {"gzip"}}},
		"no gzip": {"/v1/completions", "\x00\xff", "", http.Header{"Content-Encoding": {"identity", "gzip"}}},
		"form": {"/v1/audio/transcriptions", form, "form-model",
			http.Header{"Content-Type": {"multipart/form-data; boundary=cut"}}},
		"broken form": {"/v1/audio/transcriptions", form[:1000], "",
			http.Header{"Content-Type": {"multipart/form-data; boundary=cut"}}},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.client.do(t.Context(), http.MethodPost, tc.path, tc.body, tc.header)
			e := a.echoed(t)
			if e.Bytes != len(tc.body) || e.SHA256 != sum(tc.body) ||
				strings.Join(e.Header["Content-Encoding"], ",") != strings.Join(tc.header["Content-Encoding"], ",") {
				t.Errorf("sent %d bytes as %q, the server received %d as %q, or others", len(tc.body), tc.header,
					e.Bytes, e.Header)
			}
			if tc.model != "" {
				saysOf(t, s.picker, fmt.Sprintf(`"model": %q`, tc.model))
			}
		})
	}
	s.picker.idle(t)
}
