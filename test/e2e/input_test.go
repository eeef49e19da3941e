package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// refusal is what a client must be able to rely on when Signalbox itself says no.
func refusal(t *testing.T, a answer, status int, reason string) {
	t.Helper()
	if a.err != nil || a.status != status || a.header.Get("x-llm-d-request-dropped-reason") != reason {
		t.Fatalf("%s; want %d %s", a.String(), status, reason)
	}
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("content-type %q, want application/json", got)
	}
	var body struct {
		Error *struct {
			Message string
			Type    string
			Code    any
		}
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || body.Error == nil || body.Error.Message == "" {
		t.Errorf("%v: want OpenAI's error object, got %q", err, a.body)
	}
	if a.header.Get("x-signalbox-request-id") == "" {
		t.Error("the refusal carries no x-signalbox-request-id")
	}
}

func TestEnvoyRefusesBadInput(t *testing.T) {
	s := startStack(t, simulated(t, 2, quick...))
	cases := map[string]struct {
		path, body string
		status     int
		reason     string
	}{
		"broken JSON": {"/v1/chat/completions", `{"model":"` + model + `","messages":[`, 400,
			"invalid-request"},
		"one byte":           {"/v1/chat/completions", `x`, 400, "invalid-request"},
		"array":              {"/v1/completions", `[1,2,3]`, 400, "invalid-request"},
		"null":               {"/v1/completions", `null`, 400, "invalid-request"},
		"a million brackets": {"/v1/chat/completions", strings.Repeat("[", 1<<20), 400, "invalid-request"},
		"two objects":        {"/v1/chat/completions", `{"model":"a"}{"model":"b"}`, 400, "invalid-request"},
		"longer than the most": {"/v1/chat/completions", chatBody(model, strings.Repeat("x", 33<<20), 2, false), 413,
			"body-too-large"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			refusal(t, s.client.post(c.path, c.body), c.status, c.reason)
		})
	}
	t.Run("empty body", func(t *testing.T) {
		// Signalbox picks without looking; the model server knows what to say.
		before := s.picker.picks()
		if a := s.client.post("/v1/chat/completions", ""); a.err != nil || a.status < 400 || a.status > 499 {
			t.Errorf("%s; want the server's own refusal", a.String())
		}
		eventually(t, 5*time.Second, "it is picked for once", func() bool { return s.picker.picks()-before == 1 })
	})
	t.Run("byte order mark", func(t *testing.T) {
		// Model servers step over it.
		before := s.picker.picks()
		a := s.client.post("/v1/chat/completions", "\ufeff"+chatBody(model, "hello", 2, false))
		if a.err != nil || a.status != http.StatusOK || a.header.Get("x-signalbox-request-id") == "" {
			t.Errorf("%s; want an answer", a.String())
		}
		eventually(t, 5*time.Second, "it is picked for once", func() bool { return s.picker.picks()-before == 1 })
	})
	t.Run("any other path", func(t *testing.T) {
		before := s.picker.picks()
		if a := s.client.post("/v1/whatever", `{"model":`); a.err != nil || a.status != http.StatusNotFound {
			t.Errorf("%s; want the server's 404", a.String())
		}
		eventually(t, 5*time.Second, "it is picked for once", func() bool { return s.picker.picks()-before == 1 })
	})
	stillWell(t, s)
}

// TestEnvoyOddWire sends by hand what no HTTP library would.
func TestEnvoyOddWire(t *testing.T) {
	s := startStack(t, simulated(t, 2, quick...))
	body := chatBody(model, "hello", 2, false)
	sized := func(headers string) string {
		return chatHead + headers + "content-length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	}
	chunked := chatHead + "transfer-encoding: chunked\r\n\r\n" + chunks(body)
	answered := map[string]struct {
		request  string
		statuses []int
	}{
		"header that is not UTF-8":     {sized("x-odd: \xff\xfe\r\n"), []int{200}},
		"header repeated 50 times":     {sized(strings.Repeat("x-again: y\r\n", 50)), []int{200}},
		"two content types":            {sized("content-type: text/plain\r\n"), []int{200, 400}},
		"header of 60 KB":              {sized("x-big: " + strings.Repeat("b", 60<<10) + "\r\n"), []int{200}},
		"chunked, in pieces of 1 byte": {chunked + "0\r\n\r\n", []int{200}},
		"chunked, with trailers":       {chunked + "0\r\nx-end: 1\r\n\r\n", []int{200}},
	}
	for name, c := range answered {
		t.Run(name, func(t *testing.T) {
			a := raw(t, s.envoy.url, c.request)
			if a.err != nil || !slices.Contains(c.statuses, a.status) {
				t.Errorf("%s; want %v", a.String(), c.statuses)
			}
		})
	}
	// The client hangs up after this much, whether it got an answer or not.
	abandoned := map[string]string{
		"header of 100 KB, over Envoy's limit": sized("x-big: " + strings.Repeat("b", 100<<10) + "\r\n"),
		"content-length 10^12":                 chatHead + "content-length: 1000000000000\r\n\r\n" + body,
		"cut in the middle of a chunk":         chatHead + "transfer-encoding: chunked\r\n\r\nff\r\n{\"model\"",
	}
	for name, request := range abandoned {
		t.Run(name, func(t *testing.T) {
			conn := rawSend(t, s.envoy.url, request)
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			stillWell(t, s)
		})
	}
	stillWell(t, s)
}

// TestEnvoyEndlessBody: a body that never ends is answered by Signalbox's deadline, and holds nothing afterwards.
func TestEnvoyEndlessBody(t *testing.T) {
	s := startStack(t, simulated(t, 2, quick...), "--body-timeout", "1s")
	a := raw(t, s.envoy.url, chatHead+"transfer-encoding: chunked\r\n\r\n"+chunks(`{"model":"`))
	refusal(t, a, 408, "body-timeout")
	stillWell(t, s)
}

// ungated is a configuration without flow control: requests are sent as they come, or refused.
const ungated = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
`

// waiting turns flow control on without a configuration file.
const waiting = "--feature-gates=flowControl"

// TestEnvoyWithoutEndpoints: by default requests are refused while there is no server. With flow control they wait for
// a while, and are served by one that comes meanwhile.
func TestEnvoyWithoutEndpoints(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		waits bool
	}{
		"by default":        {nil, false},
		"with flow control": {[]string{waiting, "--queue-timeout", "1s"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			servers := simulated(t, 2, quick...)
			s := startStack(t, servers, c.flags...)
			s.picker.setEndpoints(t, nil)
			s.picker.pooled(t, 0)
			for _, a := range []answer{
				s.client.chat(model, "anyone?", 2), s.client.do(t.Context(), http.MethodGet, "/v1/models", "", nil),
			} {
				refusal(t, a, 503, "rejected-no-endpoints")
				if took := a.ended.Sub(a.sent); c.waits && took < time.Second {
					t.Errorf("it was refused after %v, want a second at least", took)
				}
			}
			want := map[bool]float64{true: 2}[c.waits]
			eventually(t, 5*time.Second, "those that waited in vain are counted", func() bool { // behind their answers
				return s.picker.metric(referencePrefix+"flow_control_requests_total",
					`outcome="EvictedNoEndpoints"`) == want
			})
			s.picker.setEndpoints(t, servers)
			s.picker.pooled(t, 2)
			stillWell(t, s)
		})
	}
}

// TestEnvoyWaitsForEndpoints: what waits for a server is served by the first that comes.
func TestEnvoyWaitsForEndpoints(t *testing.T) {
	servers := simulated(t, 2, quick...)
	s := startStack(t, servers, waiting)
	s.picker.setEndpoints(t, nil)
	s.picker.pooled(t, 0)
	answers := make(chan answer, 1)
	go func() { answers <- s.client.chat(model, "anyone?", 2) }()
	eventually(t, 10*time.Second, "the request waits", func() bool {
		return s.picker.metric("signalbox_flow_waiting_requests") == 1
	})
	s.picker.setEndpoints(t, servers[:1])
	if a := <-answers; !a.whole() {
		t.Errorf("%s; want an answer of the server that came", a.String())
	}
	stillWell(t, s)
}

// stillWell: the same process serves, and nothing is held for what went wrong.
func stillWell(t *testing.T, s *stack) {
	t.Helper()
	if s.picker.gone() {
		t.Fatalf("signalbox ended: %v", s.picker.result)
	}
	if a := s.client.chat(model, "still well?", 2); !a.whole() {
		t.Error(a.String())
	}
	s.picker.idle(t)
}

// chatHead begins a chat request that is written by hand.
const chatHead = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"

// rawSend writes the bytes as they are. Envoy may refuse, and close, before it has read them all: no error of the test.
func rawSend(t *testing.T, url, request string) net.Conn {
	t.Helper()
	conn, err := dialRaw(url, request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func dialRaw(url, request string) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), 10*time.Second)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	_, _ = io.WriteString(conn, request)
	return conn, nil
}

// raw sends by hand and reads one answer.
func raw(t *testing.T, url, request string) answer {
	t.Helper()
	return readAnswer(rawSend(t, url, request))
}

func readAnswer(conn net.Conn) answer {
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{status: response.StatusCode, header: response.Header, body: string(text), trailer: response.Trailer,
		err: err}
}

func chunks(body string) string {
	var out strings.Builder
	for i := range len(body) {
		fmt.Fprintf(&out, "1\r\n%c\r\n", body[i])
	}
	return out.String()
}
