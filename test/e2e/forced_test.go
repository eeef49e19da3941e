package e2e

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestEnvoySendsWhereClientsSay: a client that may names the server of its request, past filters and scores. Servers
// receive none of the headers by which it does.
func TestEnvoySendsWhereClientsSay(t *testing.T) {
	const attributes = "              response_attributes: ["
	knows := func(text string) string {
		return replaceOnce(t, text, attributes, "              request_attributes: [source.address]\n"+attributes)
	}
	config := filepath.Join(t.TempDir(), "config.yaml")
	writeFile(t, config, "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins: "+
		"[{type: label-selector-filter, parameters: {matchLabels: {use: never}}}, {type: queue-scorer}]\n")
	tokens := filepath.Join(t.TempDir(), "tokens")
	writeFile(t, tokens, "s3cret\n")
	for name, c := range map[string]struct {
		bootstrap string
		tells     bool // Envoy says where clients are
		token     string
		reaches   bool // the server that the client names; else the filter leaves none
	}{
		"loopback":                {overrideHost, true, "", true},
		"loopback, full lane":     {overrideHostFull, true, "", true},
		"a token":                 {overrideHost, false, "s3cret", true},
		"a token, full lane":      {overrideHostFull, false, "s3cret", true},
		"a wrong token":           {overrideHost, false, "secret", false},
		"Envoy does not tell":     {overrideHostFull, false, "", false},
		"loopback, a wrong token": {overrideHost, true, "secret", true},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []func(string) string
			if c.tells {
				changes = append(changes, knows)
			}
			servers := []*headerServer{newHeaderServer(t), newHeaderServer(t)}
			s := startStackBy(t, c.bootstrap, []string{servers[0].address(), servers[1].address()},
				[]string{"--config-file", config, "--forced-endpoint-token-file", tokens}, changes...)
			for _, server := range servers {
				asksFor(t, s, server, c.token, c.reaches)
			}
			if !c.reaches {
				return
			}
			header := http.Header{"X-Signalbox-Endpoint": {"192.0.2.1:80"}, "X-Signalbox-Token": {c.token}}
			a := s.client.chatWith(t, header)
			if a.status != http.StatusServiceUnavailable || !strings.Contains(a.String(), "no endpoint 192.0.2.1:80") {
				t.Errorf("answered %s, want 503, because there is no such endpoint", a.String())
			}
		})
	}
}

// asksFor has a client name its server. If that reaches no server, the filter has left none.
func asksFor(t *testing.T, s *stack, server *headerServer, token string, reaches bool) {
	t.Helper()
	header := http.Header{"X-Signalbox-Endpoint": {server.address()}}
	if token != "" {
		header.Set("X-Signalbox-Token", token)
	}
	a := s.client.chatWith(t, header)
	if !reaches {
		if a.status != http.StatusServiceUnavailable {
			t.Errorf("answered %s, want 503: the filter leaves no server", a.String())
		}
		return
	}
	if a.status != http.StatusOK {
		t.Fatal(a.String())
	}
	seen := server.last(t)
	if seen.Get("X-Signalbox-Endpoint")+seen.Get("X-Signalbox-Token") != "" {
		t.Errorf("the server receives %v", seen)
	}
	_, page := get(s.picker.metrics + "/debug/requests/" + a.header.Get("X-Signalbox-Request-Id"))
	if !strings.Contains(page, "x-signalbox-endpoint") || strings.Contains(page, "label-selector-filter") {
		t.Errorf("explained as\n%s", page)
	}
}
