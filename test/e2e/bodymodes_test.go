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

// mirrors are model servers that answer with the body they received, up to mirrored bytes of it, and say in headers who
// they are, what the request named as its destination, and what arrived.
func mirrors(t *testing.T, count int) []string {
	t.Helper()
	return handlers(t, count, mirror)
}

func handlers(t *testing.T, count int, handler http.HandlerFunc) []string {
	t.Helper()
	addresses := make([]string, 0, count)
	for range count {
		server := httptest.NewServer(handler)
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
	w.Header().Set("X-Ended", r.Trailer.Get("X-End"))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body[:min(len(body), mirrored)])
}

var bodyModes = []string{"FULL_DUPLEX_STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "STREAMED", "NONE"}

// modes are those of a request's and its response's bodies and trailers.
type modes struct {
	request, requestTrailers, response, responseTrailers string
	once                                                 bool // no retries
}

// pair is two body modes, with trailers only where Envoy insists on them.
func pair(request, response string) modes {
	trailers := func(mode string) string {
		if mode == bodyModes[0] {
			return "SEND"
		}
		return "SKIP"
	}
	return modes{request, trailers(request), response, trailers(response), false}
}

// pairs are all pairs of body modes.
func pairs() []modes {
	var all []modes
	for _, request := range bodyModes {
		for _, response := range bodyModes {
			all = append(all, pair(request, response))
		}
	}
	return all
}

// modeField is the request header by which the route of some modes is chosen.
const modeField = "x-e2e-modes"

func (m modes) String() string {
	return strings.Join([]string{m.request, m.requestTrailers, m.response, m.responseTrailers}, "-")
}

// everyMode gives the bootstrap a route for each of these modes.
func everyMode(t *testing.T, all []modes) func(string) string {
	return func(text string) string {
		t.Helper()
		const match = "              - match: {prefix: /}\n"
		begin := strings.Index(text, match)
		end := begin + strings.Index(text[begin:], "          http_filters:\n")
		plain := strings.TrimPrefix(text[begin:end], match)
		var routes strings.Builder
		for _, m := range all {
			action := plain
			if m.once {
				action = withoutRetries(plain)
			}
			routes.WriteString(m.route() + action)
		}
		const first = "              routes:\n"
		return replaceOnce(t, text, first, first+routes.String())
	}
}

// withoutRetries cuts a route's policy of retries, with all that is indented below it.
func withoutRetries(action string) string {
	var kept strings.Builder
	inside := false
	for line := range strings.Lines(action) {
		inside = strings.HasPrefix(strings.TrimSpace(line), "retry_policy:") || inside &&
			strings.HasPrefix(line, strings.Repeat(" ", 20))
		if !inside {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func (m modes) route() string {
	return fmt.Sprintf(`              - match: {prefix: /, headers: [{name: %s, string_match: {exact: %s}}]}
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
`, modeField, m, m.request, m.requestTrailers, m.response, m.responseTrailers)
}

// complaints are the counters by which Envoy shows that the picker spoke out of turn or was given up.
var complaints = []string{"spurious_msgs_received", "streams_failed", "failure_mode_allowed", "message_timeouts",
	"rejected_header_mutations"}

// TestEnvoyTakesEveryBodyMode: in each pair of body modes the picked server serves, what arrives on either side is what
// was sent, and Envoy has nothing to complain about.
func TestEnvoyTakesEveryBodyMode(t *testing.T) {
	servers := mirrors(t, 3)
	p := serve(t, servers)
	p.sampled(t, len(servers))
	e := startEnvoy(t, overrideHost, p.grpcPort, servers, everyMode(t, pairs()))
	e.asksPicker(t)
	s := &stack{servers: servers, picker: p, envoy: e, client: newClient(e.url)}
	t.Cleanup(s.client.close)
	for _, m := range pairs() {
		t.Run(m.request+" "+m.response, func(t *testing.T) { s.mirrors(t, m) })
	}
	p.idle(t)
	if n := p.metric("signalbox_served_elsewhere_total") + p.metric("signalbox_unlogged_total"); n != 0 {
		t.Errorf("%v requests were served elsewhere or not logged", n)
	}
}

// messagesOf a lane are its headers and, in one piece at least, its body.
var messagesOf = map[string]int{"FULL_DUPLEX_STREAMED": 2, "BUFFERED": 2, "BUFFERED_PARTIAL": 2, "STREAMED": 2,
	"NONE": 1, "GRPC": 2}

// buffer is what Envoy holds of a body in bytes, by the bootstrap.
const buffer = 4 << 20

func (s *stack) mirrors(t *testing.T, m modes) {
	t.Helper()
	sizes := []int{200, 70_000, 900_000}
	// Of longer ones Envoy answers 413 by itself if they are BUFFERED; 1.36 sends a server the cut ones twice over.
	if cut := m.request == "BUFFERED_PARTIAL"; m.request != "BUFFERED" && (!cut || envoyVersion != "1.36") {
		sizes = append(sizes, buffer+100_000)
	}
	const asked, told = "http.llm.ext_proc.epp.streams_started", "http.llm.ext_proc.epp.stream_msgs_sent"
	before, picks, streams, messages := s.complaints(), s.picker.picks(), s.envoy.stat(asked), s.envoy.stat(told)
	for _, size := range sizes {
		prompt := strings.Repeat("All work and no play. ", size/22+1)[:size-len(chatBody(model, "", 4, false))]
		body := chatBody(model, prompt, 4, false)
		a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", body,
			http.Header{http.CanonicalHeaderKey(modeField): {m.String()}})
		if !a.whole() {
			t.Fatalf("%d bytes: %s", size, a.String())
		}
		if a.header.Get("X-Sum") != sum(body) || a.body != body[:min(len(body), mirrored)] {
			t.Errorf("%d bytes: %s of them, or others, arrived, and %d came back", size, a.header.Get("X-Bytes"),
				len(a.body))
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
	n, least := s.envoy.stat(told)-messages, len(sizes)*(messagesOf[m.request]+messagesOf[m.response])
	if exact := !strings.Contains(m.request+m.response, "STREAMED"); n < least || exact && n > least {
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
