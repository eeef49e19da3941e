package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestEnvoyOddFairnessIDs has requests with odd ids wait in a full line: each is served when there is room, nothing
// ends, and the page stays small and readable.
func TestEnvoyOddFairnessIDs(t *testing.T) {
	const ids = 500
	g := newGatedBy(t, longGatedText, overrideHost)
	g.sends("first")
	g.sends("second")
	g.server.works(t, 2)
	body, sent := chatBody(model, "hello", 2, false), 0
	send := func(id string) chan answer {
		sent++
		back := make(chan answer, 1)
		request := "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nx-prompt: " +
			strconv.Itoa(sent) + "\r\nx-llm-d-inference-fairness-id: " + id + "\r\ncontent-length: " +
			strconv.Itoa(len(body)) + "\r\n\r\n" + body
		conn := rawSend(t, g.envoy.url, request)
		go func() { back <- readAnswer(conn) }()
		return back
	}
	waiting := map[string]chan answer{}
	for name, id := range map[string]string{
		"no UTF-8": "\xff\xfe\x80", "cut within a character": strings.Repeat("🙂", 40),
		"long":   strings.Repeat("x", 50<<10),
		"quotes": `a"b\c{d}`, "spaces": "a b", "empty": "",
	} {
		waiting[name] = send(id)
	}
	for i := range ids {
		waiting[strconv.Itoa(i)] = send(fmt.Sprintf("id-\xff-%d", i))
	}
	g.waits(len(waiting))
	g.server.release(-1)
	for name, back := range waiting {
		if a := <-back; a.err != nil || a.status != http.StatusOK {
			t.Errorf("%s: %s", name, a.String())
		}
	}
	g.picker.idle(t)
	status, page := get(g.picker.metrics + "/metrics")
	if status != http.StatusOK || !utf8.ValidString(page) || strings.Count(page, "\n") > 20_000 {
		t.Errorf("status %d, UTF-8: %t, %d lines", status, utf8.ValidString(page), strings.Count(page, "\n"))
	}
}
