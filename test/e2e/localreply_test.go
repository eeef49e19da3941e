package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ownAnswer is an error object as the clients of both APIs read it.
type ownAnswer struct {
	Type  string `json:"type"` // of the Anthropic API
	Error struct {
		Type    string  `json:"type"`
		Message string  `json:"message"`
		Code    *string `json:"code"`
	} `json:"error"`
}

// What Envoy answers by itself, because no server can be reached, is an error of the client's API. Its status, its
// flags and the name of the request are kept.
func TestEnvoyAnswersInTheClientsForm(t *testing.T) {
	for name, bootstrap := range bootstraps {
		t.Run(name, func(t *testing.T) {
			sims, servers := simulatedProcess(t, 2, quick...)
			s := startStackWith(t, bootstrap, servers)
			sims.stop()
			a := s.client.chat(model, "hello", 2)
			s.answersItself(t, a, false)
			if got := s.envoy.attemptsOf(t, []string{a.name})[a.name]; got.Status != http.StatusServiceUnavailable ||
				!strings.Contains(got.Flags, "UF") {
				t.Errorf("Envoy logs %+v, want 503 with UF", got)
			}
			for _, path := range []string{"/v1/messages", "/v1/messages/count_tokens?beta=true"} {
				s.answersItself(t, s.client.post(path, chatBody(model, "hello", 2, false)), true)
			}
			refused := s.client.post("/v1/chat/completions", `{"model": `)
			var body ownAnswer
			if err := json.Unmarshal([]byte(refused.body), &body); err != nil || refused.status != 400 ||
				body.Error.Code == nil || *body.Error.Code != "invalid-request" {
				t.Errorf("a refusal of Signalbox is changed: %s", refused.String())
			}
		})
	}
}

// The listener that comes over xDS has the same form.
func TestEnvoyAnswersInTheClientsFormOverXds(t *testing.T) {
	for name, bootstrap := range map[string]string{"light": xdsLight, "full": xdsFull} {
		t.Run(name, func(t *testing.T) {
			sims, servers := simulatedProcess(t, 1, quick...)
			p, port := serveXds(t, servers)
			e := startXdsEnvoy(t, bootstrap, port)
			e.knows(t, servers)
			s := &stack{servers: servers, picker: p, envoy: e, client: newClient(e.url)}
			defer s.client.close()
			sims.stop()
			s.answersItself(t, s.client.chat(model, "hello", 2), false)
			s.answersItself(t, s.client.post("/v1/messages", chatBody(model, "hello", 2, false)), true)
		})
	}
}

// Without a picker and without a list of servers the error has the form too, although Envoy has no text for it.
func TestEnvoyWithoutPickerAnswersInTheClientsForm(t *testing.T) {
	e := startEnvoy(t, originalDst, freePorts(t, 1)[0], nil)
	c := newClient(e.url)
	defer c.close()
	a := c.chat(model, "hello", 2)
	var body ownAnswer
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || a.status != http.StatusServiceUnavailable ||
		body.Error.Message == "" {
		t.Error(a.String(), err)
	}
}

// answersItself checks an answer of Envoy's own.
func (s *stack) answersItself(t *testing.T, a answer, anthropic bool) {
	t.Helper()
	var body ownAnswer
	if err := json.Unmarshal([]byte(a.body), &body); err != nil {
		t.Errorf("%v: %s", err, a.String())
		return
	}
	if a.status != http.StatusServiceUnavailable || a.header.Get("Content-Type") != "application/json" ||
		!strings.Contains(body.Error.Message, "upstream connect error") || body.Error.Type == "" {
		t.Error(a.String(), a.header)
	}
	if anthropic != (body.Type == "error") || anthropic == (body.Error.Code != nil) {
		t.Errorf("of the Anthropic API: %v, got %s", anthropic, a.body)
	}
	if envoyVersion != "1.36" && a.header.Get("x-signalbox-request-id") == "" {
		t.Errorf("the answer does not name its request: %v", a.header)
	}
}

// A call of gRPC that reaches no server is told what it was told before.
func TestEnvoyAnswersCallsAsGRPC(t *testing.T) {
	gone := fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0])
	p := serve(t, []string{gone}, "--config-text", callParsers)
	p.pooled(t, 1)
	e := startEnvoy(t, overrideHost, p.grpcPort, []string{gone}, speaksHTTP2(t))
	e.asksPicker(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, _, err := call(ctx, dialCalls(t, e), engineService+"Generate", bytesField(3, []byte("hi")))
	if got := status.Convert(err); got.Code() != codes.Unavailable ||
		!strings.HasPrefix(got.Message(), "upstream connect error") {
		t.Errorf("%v, want Unavailable with Envoy's text", err)
	}
}
