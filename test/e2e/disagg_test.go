package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// disaggregated picks a decode server, and a prefill server for every prompt if there is one.
const disaggregated = `
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- type: prefill-filter
- type: decode-filter
- type: queue-scorer
- type: active-request-scorer
- type: always-disagg-pd-decider
- type: disagg-profile-handler
  parameters: {deciders: {prefill: always-disagg-pd-decider}}
schedulingProfiles:
- name: prefill
  plugins: [{pluginRef: prefill-filter}, {pluginRef: queue-scorer}, {pluginRef: active-request-scorer}]
- name: decode
  plugins: [{pluginRef: decode-filter}, {pluginRef: queue-scorer}, {pluginRef: active-request-scorer}]
`

// sidecar stands before the engine of a decode server: it has a prompt read by the prefill server that a header names,
// and then passes the request on.
type sidecar struct {
	*httptest.Server
	engine *httputil.ReverseProxy
	deaf   bool     // it only passes requests on, as where decode servers have none
	named  sync.Map // prefill server -> *atomic.Int64, the requests that named it
}

func newSidecar(t *testing.T, engine string) *sidecar {
	t.Helper()
	c := &sidecar{engine: httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: engine})}
	c.engine.FlushInterval = -1
	c.engine.ErrorHandler = func(w http.ResponseWriter, _ *http.Request,
		_ error) {
		w.WriteHeader(http.StatusBadGateway)
	}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *sidecar) address() string { return c.Listener.Addr().String() }

func (c *sidecar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if server := r.Header.Get("X-Prefiller-Host-Port"); server != "" {
		c.times(server).Add(1)
		if !c.deaf && !prefilled(server, r.URL.Path, body) {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	c.engine.ServeHTTP(w, r)
}

// times counts the requests that named a prefill server.
func (c *sidecar) times(server string) *atomic.Int64 {
	n, _ := c.named.LoadOrStore(server, new(atomic.Int64))
	return n.(*atomic.Int64)
}

// prefilled has a server read the prompt of a request, and reports whether it did.
func prefilled(server, path string, body []byte) bool {
	var asked map[string]any
	if json.Unmarshal(body, &asked) != nil {
		return false
	}
	asked["max_tokens"], asked["stream"] = 1, false
	delete(asked, "stream_options")
	response, err := http.Post("http://"+server+path, "application/json", strings.NewReader(mustJSON(asked)))
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return err == nil && response.StatusCode == http.StatusOK
}

// split is a pool of two prefill and two decode servers, each in a process of its own.
type split struct {
	*stack
	prefill, decode   []string // addresses; those of decode servers are their engines'
	prefills, decodes []*process
	sidecars          []*sidecar
}

func newSplit(t *testing.T) *split {
	t.Helper()
	return newSplitBy(t, overrideHost, disaggregated)
}

// newSplitBy has another file of Envoy, and another configuration.
func newSplitBy(t *testing.T, bootstrap, config string) *split {
	t.Helper()
	s := new(split)
	var front []string
	for range 2 {
		p, at := simulatedProcess(t, 1, slow...)
		s.prefills, s.prefill = append(s.prefills, p), append(s.prefill, at[0])
		p, at = simulatedProcess(t, 1, slow...)
		s.decodes, s.decode = append(s.decodes, p), append(s.decode, at[0])
		s.sidecars = append(s.sidecars, newSidecar(t, at[0]))
		front = append(front, s.sidecars[len(s.sidecars)-1].address())
	}
	s.stack = &stack{servers: front, picker: serve(t, nil, "--config-text", config)}
	s.list(t, s.prefill, front)
	s.picker.sampled(t, 4)
	s.envoy = startEnvoy(t, bootstrap, s.picker.grpcPort, front)
	s.envoy.asksPicker(t)
	s.client = newClient(s.envoy.url)
	t.Cleanup(s.client.close)
	return s
}

// list writes the endpoints file with the roles of servers.
func (s *split) list(t *testing.T, prefill, decode []string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("endpoints:\n")
	for role, all := range map[string][]string{"prefill": prefill, "decode": decode} {
		for _, address := range all {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "- {name: %s-%s, address: %q, port: %q, labels: {llm-d.ai/role: %s}}\n", role, port, host,
				port,
				role)
		}
	}
	writeFile(t, s.picker.file, b.String())
}

// work returns how many requests servers have finished.
func work(servers []string) (n int) {
	for _, a := range servers {
		n += served(a)
	}
	return n
}

// asks sends requests one after the other, and fails the test unless each is served.
func (s *split) asks(t *testing.T) {
	t.Helper()
	for i := range askedOfSplit {
		if a := s.client.chat(model, fmt.Sprint("prompt ", i), 4); !a.whole() {
			t.Fatalf("request %d of %d: %s", i+1, askedOfSplit, a.String())
		}
	}
}

// settles waits until requests are served without a failure, as long as it takes a scrape to find out what has died.
func (s *split) settles(t *testing.T) {
	t.Helper()
	eventually(t, 10*time.Second, "five requests in a row are served", func() bool {
		for range 5 {
			if a := s.client.chat(model, "again", 4); !a.whole() {
				return false
			}
		}
		return true
	})
}

// TestEnvoySplitsPrefillFromDecode has prompts read by prefill servers and tokens generated by decode servers. Each of
// them dies in turn, until none is left.
func TestEnvoySplitsPrefillFromDecode(t *testing.T) {
	s := newSplit(t)
	s.shares(t)
	s.losesAPrefillServer(t)
	s.doesWithoutPrefillServers(t)
	s.losesItsDecodeServers(t)
}

const askedOfSplit = 20

// shares has every prompt read by a prefill server, and all servers work.
func (s *split) shares(t *testing.T) {
	t.Helper()
	s.asks(t)
	if p, d := work(s.prefill), work(s.decode); p != askedOfSplit || d != askedOfSplit {
		t.Fatalf("prefill servers finished %d requests and decode servers %d, want %d each", p, d, askedOfSplit)
	}
	for _, a := range append(s.prefill, s.decode...) {
		if n := served(a); n < askedOfSplit/5 {
			t.Errorf("%s finished %d of %d requests, want a share", a, n, askedOfSplit)
		}
	}
	a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", chatBody(model, "hello", 2, false),
		http.Header{"X-Request-Id": {"mine"}})
	if !a.whole() {
		t.Fatal(a.String())
	}
	if n := s.picker.metric("llm_d_epp_disagg_decision_total", `plugin_name="disagg-profile-handler"`,
		`plugin_type="disagg-profile-handler"`, `model_name="`+model+`"`, `decision_type="prefill-decode"`); n !=
		askedOfSplit+1 {
		t.Errorf("%v requests are counted as split, want %d", n, askedOfSplit+1)
	}
	_, page := get(s.picker.metrics + "/debug/requests/mine")
	for _, want := range []string{"x-prefiller-host-port", "works for the request before", "profile prefill"} {
		if !strings.Contains(page, want) {
			t.Errorf("explain has no %q:\n%s", want, page)
		}
	}
	s.picker.idle(t)
}

// losesAPrefillServer kills one under load. The other one then reads all prompts.
func (s *split) losesAPrefillServer(t *testing.T) {
	t.Helper()
	load := steady(s.client, 4)
	eventually(t, 10*time.Second, "clients are busy", func() bool { return load.count() > 20 })
	s.prefills[0].kill()
	killed := load.count()
	eventually(t, time.Minute, "clients go on", func() bool { return load.count() > killed+100 })
	failures := 0
	for _, a := range load.stop() {
		if !a.whole() {
			failures++
		}
	}
	t.Logf("FIGURES | a prefill server of two dies under 4 clients | failed: %d |", failures)
	s.settles(t)
	before := served(s.prefill[1])
	s.asks(t)
	if got := served(s.prefill[1]) - before; got != askedOfSplit {
		t.Errorf("the prefill server that is left read %d of %d prompts", got, askedOfSplit)
	}
}

// doesWithoutPrefillServers kills the last one: decode servers read prompts themselves.
func (s *split) doesWithoutPrefillServers(t *testing.T) {
	t.Helper()
	s.prefills[1].kill()
	s.settles(t)
	if s.picker.metric("signalbox_optional_profile_failures_total", `profile="prefill"`) == 0 {
		t.Error("no run of the profile prefill is counted as failed")
	}
	before := s.decodedOnly()
	s.asks(t)
	if n := s.decodedOnly() - before; n != askedOfSplit {
		t.Errorf("%v requests are counted as decode-only, want %d", n, askedOfSplit)
	}
	a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", chatBody(model, "hello", 2, false),
		http.Header{"X-Prefiller-Host-Port": {"127.0.0.1:1"}})
	if !a.whole() {
		t.Errorf("with a prefill server that the client made up: %s", a.String())
	}
}

// decodedOnly returns how many requests are counted for which no prefill server worked.
func (s *split) decodedOnly() float64 {
	return s.picker.metric("llm_d_epp_disagg_decision_total", `decision_type="decode-only"`)
}

// losesItsDecodeServers kills one, and then the last one.
func (s *split) losesItsDecodeServers(t *testing.T) {
	t.Helper()
	s.decodes[0].kill()
	s.sidecars[0].Close()
	s.settles(t)
	s.asks(t)
	s.decodes[1].kill()
	s.sidecars[1].Close()
	if a := s.client.chat(model, "nothing is left", 4); a.status < 500 {
		t.Errorf("with no server left: %s", a.String())
	}
	s.list(t, s.prefill, nil)
	s.picker.pooled(t, 2)
	a := s.client.chat(model, "no decode server is listed", 4)
	if a.status != 503 || a.header.Get("X-Llm-D-Request-Dropped-Reason") != "rejected-no-endpoints" {
		t.Errorf("without decode servers: %s, %v", a.String(), a.header)
	}
	s.picker.idle(t)
}

// TestEnvoyChoosesAProfileByHeader sends requests to the server of the profile that a header names.
func TestEnvoyChoosesAProfileByHeader(t *testing.T) {
	servers := simulated(t, 2, slow...)
	s := &stack{servers: servers, picker: serve(t, nil, "--config-text", `
apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {type: label-selector-filter, name: small, parameters: {matchLabels: {size: small}}}
- {type: label-selector-filter, name: large, parameters: {matchLabels: {size: large}}}
- {type: header-profile-handler, parameters: {headerName: X-Size, defaultProfile: small}}
schedulingProfiles:
- {name: small, plugins: [{pluginRef: small}]}
- {name: large, plugins: [{pluginRef: large}]}
`)}
	s.picker.label(t, servers, "size", "small", "large")
	s.picker.labelled(t, len(servers), "size")
	s.envoy = startEnvoy(t, overrideHost, s.picker.grpcPort, servers)
	s.envoy.asksPicker(t)
	s.client = newClient(s.envoy.url)
	t.Cleanup(s.client.close)
	for _, c := range []struct {
		header http.Header
		want   int
	}{{nil, 0}, {http.Header{"X-Size": {"large"}}, 1}} {
		before := served(servers[c.want])
		a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", chatBody(model, "hello", 2, false),
			c.header)
		if !a.whole() || served(servers[c.want]) != before+1 {
			t.Errorf("with %v: %s; server %d finished %d requests more, want 1", c.header, a.String(), c.want,
				served(servers[c.want])-before)
		}
	}
	a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", chatBody(model, "hello", 2, false),
		http.Header{"X-Size": {"huge"}})
	if a.status != http.StatusBadRequest {
		t.Errorf("a size that no profile has: %s, want 400", a.String())
	}
}

// A prefill server that was down when the picker started gets its share once it is up, in either lane, with a sidecar
// that asks it and without one. Envoy never asks it, so only requests that name it in a header can show that it serves.
func TestEnvoyPrefillServerStartsLate(t *testing.T) {
	for name, c := range map[string]struct {
		bootstrap string
		deaf      bool
	}{
		"light lane": {overrideHost, false}, "light lane, no sidecar": {overrideHost, true},
		"full lane": {overrideHostFull, false}, "full lane, no sidecar": {overrideHostFull, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, front := new(split), newSidecar(t, simulated(t, 1, slow...)[0])
			front.deaf = c.deaf
			late := strconv.Itoa(freePorts(t, 1)[0])
			s.prefill = append(simulated(t, 1, slow...), net.JoinHostPort("127.0.0.1", late))
			decode := []string{front.address()}
			s.stack = &stack{servers: decode, picker: serve(t, nil, "--config-text", disaggregated)}
			s.list(t, s.prefill, decode)
			s.envoy = startEnvoy(t, c.bootstrap, s.picker.grpcPort, decode)
			s.envoy.asksPicker(t)
			s.client = newClient(s.envoy.url)
			t.Cleanup(s.client.close)
			ejected := func() bool { return s.picker.metric("signalbox_endpoint_ejected") == 1 }
			eventually(t, 10*time.Second, "the server that is down is ejected", ejected)
			s.asks(t)
			if n := front.times(s.prefill[1]).Load(); n > 0 {
				t.Errorf("%d requests named a server that is down", n)
			}
			simulatedProcess(t, 1, append([]string{"--port", late}, slow...)...)
			eventually(t, time.Minute, "requests show that it serves", func() bool {
				s.asks(t)
				return !ejected()
			})
			before := front.times(s.prefill[1]).Load()
			s.asks(t)
			if n := front.times(s.prefill[1]).Load() - before; n < askedOfSplit/5 {
				t.Errorf("%d of %d requests named it, want a share", n, askedOfSplit)
			}
		})
	}
}
