package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// endings are modes in which trailers pass: shown to the picker, or by it. Where bodies are full duplex Envoy insists
// on showing them. On a route with retries it sends servers such a body twice, and seldom a streamed one with them
// shown. The third is the light lane.
var endings = []modes{
	{"FULL_DUPLEX_STREAMED", "SEND", "FULL_DUPLEX_STREAMED", "SEND", true},
	{"FULL_DUPLEX_STREAMED", "SEND", "NONE", "SEND", true},
	{"FULL_DUPLEX_STREAMED", "SEND", "NONE", "SKIP", true},
	{"STREAMED", "SEND", "STREAMED", "SEND", true},
	{"STREAMED", "SKIP", "STREAMED", "SKIP", false},
	{"BUFFERED", "SEND", "BUFFERED", "SEND", false},
	{"BUFFERED", "SKIP", "BUFFERED", "SKIP", false},
	{"BUFFERED_PARTIAL", "SEND", "BUFFERED_PARTIAL", "SEND", false},
	{"BUFFERED_PARTIAL", "SKIP", "BUFFERED_PARTIAL", "SKIP", false},
	{"NONE", "SEND", "NONE", "SEND", false},
	{"NONE", "SKIP", "NONE", "SKIP", false},
}

// framed are modes that Envoy 1.36 refuses, and later ones take without doing as they say: a body comes in pieces, not
// in gRPC's messages, and what is given back is not looked at, but for its length where the sender told one.
var framed = []modes{
	{"GRPC", "SEND", "GRPC", "SEND", true},
	{"GRPC", "SKIP", "GRPC", "SKIP", false},
	{"GRPC", "SKIP", "NONE", "SKIP", false},
	{"FULL_DUPLEX_STREAMED", "SEND", "GRPC", "SEND", true},
}

// trailing has Envoy keep the trailers of HTTP/1.1, which it drops by default, on both its sides.
func trailing(t *testing.T) func(string) string {
	return func(text string) string {
		t.Helper()
		const prefix, plain = "          stat_prefix: llm\n", "explicit_http_config: {http_protocol_options: {}}"
		text = replaceOnce(t, text, prefix, prefix+"          http_protocol_options: {enable_trailers: true}\n")
		return replaceOnce(t, text, plain, "explicit_http_config: {http_protocol_options: {enable_trailers: true}}")
	}
}

// signed mirrors, and ends with a trailer of its own.
func signed(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Trailer", "X-Told")
	mirror(w, r)
	w.Header().Set("X-Told", "by "+w.Header().Get("X-Server"))
}

// TestEnvoyPassesTrailers: whether they are shown to the picker or not, the trailers of requests reach the servers,
// those of responses the clients, and the bodies before them stay whole.
func TestEnvoyPassesTrailers(t *testing.T) {
	servers := handlers(t, 2, signed)
	p := serve(t, servers)
	p.sampled(t, len(servers))
	all := endings
	if envoyVersion != "1.36" {
		all = append(slices.Clone(all), framed...)
	}
	e := startEnvoy(t, overrideHost, p.grpcPort, servers, everyMode(t, all), trailing(t))
	e.asksPicker(t)
	s := &stack{servers: servers, picker: p, envoy: e, client: newClient(e.url)}
	t.Cleanup(s.client.close)
	for _, m := range all {
		t.Run(m.String(), func(t *testing.T) { s.passTrailers(t, m) })
	}
	p.idle(t)
	if n := p.metric("signalbox_served_elsewhere_total") + p.metric("signalbox_unlogged_total"); n != 0 {
		t.Errorf("%v requests were served elsewhere or not logged", n)
	}
}

func (s *stack) passTrailers(t *testing.T, m modes) {
	t.Helper()
	const told, failed = "http.llm.ext_proc.epp.stream_msgs_sent", "llm_d_epp_request_error_total"
	errors := s.picker.metric(failed)
	before, picks, messages := s.complaints(), s.picker.picks(), s.envoy.stat(told)
	s.passTrailer(t, m, chatBody(model, "hello", 4, false))
	// Proof that the modes are in force: of a small request each message is told once.
	most := m.messages()
	least := most
	if m.response == "NONE" && m.responseTrailers == "SEND" { // Signalbox may have left by then
		least--
	}
	if n := s.envoy.stat(told) - messages; n < least || n > most {
		t.Errorf("envoy sent %d messages, want %d to %d", n, least, most)
	}
	s.passTrailer(t, m, chatBody(model, strings.Repeat("x", 300_000), 4, false))
	requests := 2
	// there it is the answer to a body that carries the pick
	if m.request != "BUFFERED" && m.request != "BUFFERED_PARTIAL" {
		s.passTrailer(t, m, "")
		requests++
	}
	if n := s.picker.picks() - picks; n != requests {
		t.Errorf("%d picks for %d requests", n, requests)
	}
	s.picker.idle(t)
	if n := s.picker.metric(failed) - errors; n != 0 && m.showsEnd() {
		t.Errorf("%v of %d requests are counted as failed", n, requests)
	}
	if after := s.complaints(); !slices.Equal(after, before) {
		t.Errorf("envoy counts %v of %v, before %v", after, complaints, before)
	}
}

// showsEnd says that Signalbox can learn that a response with trailers came to its end: by them, or by the access log.
// A stream that ends without either looks like one whose client left.
func (m modes) showsEnd() bool {
	return m.responseTrailers == "SEND" || m.response == "NONE"
}

// messages is how many show a request and its response in these modes, if each body comes in one piece.
func (m modes) messages() int {
	n := messagesOf[m.request] + messagesOf[m.response]
	for _, trailers := range []string{m.requestTrailers, m.responseTrailers} {
		if trailers == "SEND" {
			n++
		}
	}
	return n
}

// passTrailer sends one request with a trailer. It is written in one piece, so that a small one comes to Envoy as such.
func (s *stack) passTrailer(t *testing.T, m modes, body string) {
	t.Helper()
	end, piece := fmt.Sprintf("after %d bytes", len(body)), ""
	if body != "" {
		piece = fmt.Sprintf("%x\r\n%s\r\n", len(body), body)
	}
	a := raw(t, s.envoy.url, chatHead+modeField+": "+m.String()+"\r\ntransfer-encoding: chunked\r\n\r\n"+piece+
		"0\r\nx-end: "+end+"\r\n\r\n")
	if !a.whole() {
		t.Fatalf("%d bytes: %s", len(body), a.String())
	}
	if a.header.Get("X-Sum") != sum(body) || a.body != body {
		t.Errorf("%d bytes: %s of them, or others, arrived, and %d came back", len(body), a.header.Get("X-Bytes"),
			len(a.body))
	}
	if got := a.header.Get("X-Ended"); got != end {
		t.Errorf("the server got the trailer %q, want %q", got, end)
	}
	server := a.header.Get("X-Server")
	if got, want := a.trailer.Get("X-Told"), "by "+server; got != want {
		t.Errorf("the client got the trailer %q, want %q", got, want)
	}
	if first, _, _ := strings.Cut(a.header.Get("X-Destination"), ","); first != server {
		t.Errorf("%s served, %s was picked", server, first)
	}
}
