package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// observing has Envoy show its requests and take no answer. It keeps a stream for a while after its request,
// 5 s by default.
func observing(t *testing.T) func(string) string {
	return func(text string) string {
		t.Helper()
		const prefix = "              stat_prefix: epp\n"
		return replaceOnce(t, text, prefix, prefix+
			"              observability_mode: true\n              deferred_close_timeout: 0.2s\n")
	}
}

// shown are modes of a picker that observes. Bodies that are full duplex elsewhere are not shown to it,
// by Envoy's own rule.
var shown = []modes{
	pair("STREAMED", "STREAMED"), pair("STREAMED", "NONE"), pair("NONE", "NONE"),
	pair("FULL_DUPLEX_STREAMED", "NONE"), pair("FULL_DUPLEX_STREAMED", "FULL_DUPLEX_STREAMED"),
}

// TestEnvoyOnlyShows: in observability mode Signalbox reads, and neither picks, nor answers,
// nor counts anything against a server.
func TestEnvoyOnlyShows(t *testing.T) {
	servers := mirrors(t, 2)
	p := serve(t, servers)
	p.sampled(t, len(servers))
	e := startEnvoy(t, overrideHost, p.grpcPort, servers, everyMode(t, shown), observing(t))
	e.asksPicker(t)
	s := &stack{servers: servers, picker: p, envoy: e, client: newClient(e.url)}
	t.Cleanup(s.client.close)
	before, sizes := s.complaints(), []int{200, 70_000, 900_000}
	for _, m := range shown {
		t.Run(m.String(), func(t *testing.T) { s.shows(t, m, sizes) })
	}
	eventually(t, 10*time.Second, "one stream for each request has come to Signalbox, and ended", func() bool {
		return p.metric("llm_d_epp_extproc_streams_total") == float64(len(shown)*len(sizes))
	})
	p.idle(t)
	for _, quiet := range append(slices.Clone(counted), "llm_d_epp_scheduler_attempts_total",
		"signalbox_stream_panics_total") {
		if n := p.metric(quiet); n != 0 {
			t.Errorf("%s is %v", quiet, n)
		}
	}
	if n := e.stat("http.llm.ext_proc.epp.stream_msgs_received"); n != 0 {
		t.Errorf("Signalbox answered with %d messages", n)
	}
	if after := s.complaints(); !slices.Equal(after, before) {
		t.Errorf("envoy counts %v of %v, before %v", after, complaints, before)
	}
	if text := p.log.text(); strings.Contains(text, `"level":"warn"`) || strings.Contains(text, `"level":"error"`) {
		t.Errorf("Signalbox complains:\n%s", text)
	}
}

// shows sends a request of each size, which Envoy sends where it likes.
func (s *stack) shows(t *testing.T, m modes, sizes []int) {
	t.Helper()
	const told = "http.llm.ext_proc.epp.stream_msgs_sent"
	messages := s.envoy.stat(told)
	for _, size := range sizes {
		body := chatBody(model, strings.Repeat("x", size), 4, false)
		a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", body,
			http.Header{http.CanonicalHeaderKey(modeField): {m.String()}})
		if !a.whole() {
			t.Fatalf("%d bytes: %s", len(body), a.String())
		}
		if a.header.Get("X-Sum") != sum(body) || a.body != body {
			t.Errorf("%d bytes: %s of them, or others, arrived, and %d came back", len(body), a.header.Get("X-Bytes"),
				len(a.body))
		}
		if picked := a.header.Get("X-Destination"); picked != "" {
			t.Errorf("%d bytes: %s was picked", len(body), picked)
		}
	}
	least := 2 * len(sizes) // both headers of each
	for _, mode := range []string{m.request, m.response} {
		if mode == "STREAMED" {
			least += len(sizes)
		}
	}
	n := s.envoy.stat(told) - messages
	if exact := m.request != "STREAMED"; n < least || exact && n > least {
		t.Errorf("envoy sent %d messages for %d requests, want %d, or more if streamed", n, len(sizes), least)
	}
}
