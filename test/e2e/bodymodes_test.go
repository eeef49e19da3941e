package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mirrors are model servers that answer with the body they received, up to mirrored bytes of it, and say in headers who they are,
// what the request named as its destination, and what arrived.
func mirrors(t *testing.T, count int) []string {
	t.Helper()
	addresses := make([]string, 0, count)
	for range count {
		server := httptest.NewServer(http.HandlerFunc(mirror))
		t.Cleanup(server.Close)
		addresses = append(addresses, server.Listener.Addr().String())
	}
	return addresses
}

const mirrored = 1 << 20

func mirror(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		echo(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("X-Server", fmt.Sprint(r.Context().Value(http.LocalAddrContextKey)))
	w.Header().Set("X-Destination", r.Header.Get("X-Gateway-Destination-Endpoint"))
	w.Header().Set("X-Bytes", strconv.Itoa(len(body)))
	w.Header().Set("X-Sum", sum(string(body)))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body[:min(len(body), mirrored)])
}

var bodyModes = []string{"FULL_DUPLEX_STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "STREAMED", "NONE"}

// modeField is the request header by which the route of a pair of body modes is chosen.
const modeField = "x-e2e-modes"

// everyMode gives the bootstrap a route for each pair of body modes.
func everyMode(t *testing.T) func(string) string {
	return func(text string) string {
		t.Helper()
		const match = "              - match: {prefix: /}\n"
		begin := strings.Index(text, match)
		end := begin + strings.Index(text[begin:], "          http_filters:\n")
		plain := strings.TrimPrefix(text[begin:end], match)
		var routes strings.Builder
		for _, request := range bodyModes {
			for _, response := range bodyModes {
				routes.WriteString(modeRoute(request, response) + plain)
			}
		}
		const first = "              routes:\n"
		return replaceOnce(t, text, first, first+routes.String())
	}
}

func modeRoute(request, response string) string {
	trailers := func(mode string) string {
		if mode == bodyModes[0] { // Envoy insists
			return "SEND"
		}
		return "SKIP"
	}
	return fmt.Sprintf(`              - match: {prefix: /, headers: [{name: %s, string_match: {exact: %s-%s}}]}
                typed_per_filter_config:
                  envoy.filters.http.ext_proc:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute
                    overrides:
                      processing_mode:
                        request_header_mode: SEND
                        request_body_mode: %s
                        request_trailer_mode: %s
                        response_header_mode: SEND
                        response_body_mode: %s
                        response_trailer_mode: %s
`, modeField, request, response, request, trailers(request), response, trailers(response))
}

// complaints are the counters by which Envoy shows that the picker spoke out of turn or was given up.
var complaints = []string{"spurious_msgs_received", "streams_failed", "failure_mode_allowed", "message_timeouts", "rejected_header_mutations"}

// TestEnvoyTakesEveryBodyMode: in each pair of body modes the picked server serves, what arrives on either side is what was sent,
// and Envoy has nothing to complain about.
func TestEnvoyTakesEveryBodyMode(t *testing.T) {
	servers := mirrors(t, 3)
	p := serve(t, servers)
	p.sampled(t, len(servers))
	e := startEnvoy(t, overrideHost, p.grpcPort, servers, everyMode(t))
	e.asksPicker(t)
	s := &stack{servers: servers, picker: p, envoy: e, client: newClient(e.url)}
	t.Cleanup(s.client.close)
	for _, request := range bodyModes {
		for _, response := range bodyModes {
			t.Run(request+" "+response, func(t *testing.T) { s.mirrors(t, request, response) })
		}
	}
	p.idle(t)
	if n := p.metric("signalbox_served_elsewhere_total") + p.metric("signalbox_unlogged_total"); n != 0 {
		t.Errorf("%v requests were served elsewhere or not logged", n)
	}
}

// messagesOf a lane are its headers and, in one piece at least, its body.
var messagesOf = map[string]int{"FULL_DUPLEX_STREAMED": 2, "BUFFERED": 2, "BUFFERED_PARTIAL": 2, "STREAMED": 2, "NONE": 1}

// buffer is what Envoy holds of a body in bytes, by the bootstrap.
const buffer = 4 << 20

func (s *stack) mirrors(t *testing.T, request, response string) {
	t.Helper()
	sizes := []int{200, 70_000, 900_000}
	// Of longer ones Envoy answers 413 by itself if they are BUFFERED; 1.36 sends a server the cut ones twice over.
	if cut := request == "BUFFERED_PARTIAL"; request != "BUFFERED" && (!cut || envoyVersion != "1.36") {
		sizes = append(sizes, buffer+100_000)
	}
	const asked, told = "http.llm.ext_proc.epp.streams_started", "http.llm.ext_proc.epp.stream_msgs_sent"
	before, picks, streams, messages := s.complaints(), s.picker.picks(), s.envoy.stat(asked), s.envoy.stat(told)
	for _, size := range sizes {
		prompt := strings.Repeat("All work and no play. ", size/22+1)[:size-len(chatBody(model, "", 4, false))]
		body := chatBody(model, prompt, 4, false)
		a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", body, http.Header{http.CanonicalHeaderKey(modeField): {request + "-" + response}})
		if !a.whole() {
			t.Fatalf("%d bytes: %s", size, a.String())
		}
		if a.header.Get("X-Sum") != sum(body) || a.body != body[:min(len(body), mirrored)] {
			t.Errorf("%d bytes: %s of them, or others, arrived, and %d came back", size, a.header.Get("X-Bytes"), len(a.body))
		}
		list, server := strings.Split(a.header.Get("X-Destination"), ","), a.header.Get("X-Server")
		if list[0] != server || !slices.Contains(s.servers, server) || len(list) != len(s.servers) {
			t.Errorf("%d bytes: %s served, %v were picked", size, server, list)
		}
	}
	if n := s.picker.picks() - picks; n != len(sizes) {
		t.Errorf("%d picks for %d requests", n, len(sizes))
	}
	if n := s.envoy.stat(asked) - streams; n != len(sizes) {
		t.Errorf("envoy started %d streams for %d requests", n, len(sizes))
	}
	// Proof that the modes are in force.
	n, least := s.envoy.stat(told)-messages, len(sizes)*(messagesOf[request]+messagesOf[response])
	if exact := !strings.Contains(request+response, "STREAMED"); n < least || exact && n > least {
		t.Errorf("envoy sent %d messages for %d requests, want %d, or more if streamed", n, len(sizes), least)
	}
	if after := s.complaints(); !slices.Equal(after, before) {
		t.Errorf("envoy counts %v of %v, before %v", after, complaints, before)
	}
}

func (s *stack) complaints() []int {
	counts := make([]int, 0, len(complaints))
	for _, name := range complaints {
		counts = append(counts, s.envoy.stat("http.llm.ext_proc.epp."+name))
	}
	return counts
}
