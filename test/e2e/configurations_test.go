package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// configurations are files of testdata/run as people run them with the reference, and what must hold with each. Model
// servers are simulated.
var configurations = map[string]func(t *testing.T, bootstrap, config string){
	"default": keepsPrompts, "payload-agnostic": readsNoBodies, "prefill-decode": splitsNewPrompts,
	"sessions-lora": keepsSessionsAndAdapters,
}

// TestEnvoyConfigurations runs each file in both lanes.
func TestEnvoyConfigurations(t *testing.T) {
	for name, holds := range configurations {
		for lane, bootstrap := range map[string]string{"light": overrideHost, "full": overrideHostFull} {
			t.Run(name+" "+lane, func(t *testing.T) { holds(t, bootstrap, readFile(t, "testdata/run/"+name+".yaml")) })
		}
	}
}

// simName is where a simulated server says its name in an answer.
const simName = "X-Sim-Name"

// stays sends the same request, and returns the server that answered each time.
func (s *stack) stays(t *testing.T, body string, header http.Header) string {
	t.Helper()
	server := ""
	for range 8 {
		a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", body, header)
		got := a.header.Get(simName)
		if !a.whole() || server != "" && got != server {
			t.Fatalf("%s, by %q, before by %q", a.String(), got, server)
		}
		server = got
	}
	return server
}

// keepsPrompts: a prompt goes where it was read, streamed or not, while the servers have little to do.
func keepsPrompts(t *testing.T, bootstrap, config string) {
	servers := simulated(t, 3, quick...)
	s := startStackWith(t, bootstrap, servers, "--config-text", config)
	s.picker.sampled(t, len(servers))
	for i := range 6 {
		prompt := strings.Repeat(fmt.Sprintf("conversation %d ", i), 100)
		s.stays(t, chatBody(model, prompt, 2, i%2 == 0), nil)
	}
	s.picker.idle(t)
	if n := s.picker.picks(); n < 48 {
		t.Errorf("%d picks are counted, want 48 and more", n)
	}
}

// readsNoBodies: any bytes pass, requests go where the fewest run, and a token of a session keeps it.
func readsNoBodies(t *testing.T, bootstrap, config string) {
	release := make(chan struct{})
	servers := handlers(t, 2, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Hold") != "" {
			<-release
		}
		mirror(w, r)
	})
	s := startStackWith(t, bootstrap, servers, "--config-text", config)
	const body = "\x00no JSON\xff"
	ask := func(header http.Header) (server, token string) {
		t.Helper()
		a := s.client.do(t.Context(), http.MethodPost, "/anything", body, header)
		if !a.whole() || a.body != body {
			t.Fatalf("%s, want the body back", a.String())
		}
		return a.header.Get("X-Server"), a.header.Get("X-Session-Token")
	}
	held := make(chan string)
	go func() {
		a := s.client.do(t.Context(), http.MethodPost, "/anything", body, http.Header{"X-Hold": {"1"}})
		held <- a.header.Get("X-Server")
	}()
	s.picker.inFlight(t, 1)
	other, token := ask(nil)
	for range 8 {
		s.picker.inFlight(t, 1) // the light lane hears of an end from the access log
		if got, _ := ask(nil); got != other {
			t.Errorf("went to %s, want %s, which has no request", got, other)
		}
	}
	close(release)
	if busy := <-held; busy == other || busy == "" {
		t.Errorf("requests went to %s beside one at %q", other, busy)
	}
	for range 8 {
		s.picker.idle(t)
		if got, _ := ask(http.Header{"X-Session-Token": {token}}); got != other {
			t.Errorf("a session of %s went to %s", other, got)
		}
	}
	s.picker.idle(t)
}

// splitsNewPrompts: a prompt is read by a prefill server the first time, and not again where it lies in the cache.
func splitsNewPrompts(t *testing.T, bootstrap, config string) {
	s := newSplitBy(t, bootstrap, config)
	split := func() float64 {
		return s.picker.metric("llm_d_epp_disagg_decision_total", `decision_type="prefill-decode"`)
	}
	for i := range 4 {
		prompt := strings.Repeat(fmt.Sprintf("document %d ", i), 200)
		for again := range 3 {
			if a := s.client.chat(model, prompt, 2); !a.whole() {
				t.Fatal(a.String())
			}
			s.picker.idle(t)
			if got, want := split(), float64(i+1); got != want {
				t.Fatalf("prompt %d, time %d: %v were split, want %v", i, again, got, want)
			}
		}
	}
	if p, d := work(s.prefill), work(s.decode); p != 4 || d != 12 {
		t.Errorf("prefill servers finished %d requests and decode servers %d, want 4 and 12", p, d)
	}
}

// keepsSessionsAndAdapters: three adapters come to rest at three servers with a slot each, once pages tell of them,
// which those of vLLM do not before the first request for one. Until then requests wait while their adapter is loaded,
// and an adapter whose requests wait may spread. A new session begins where its adapter is, and stays at its server.
func keepsSessionsAndAdapters(t *testing.T, bootstrap, config string) {
	adapters := []string{"sql", "chat", "code"}
	servers := simulated(t, 3, append(quick, "--adapters", strings.Join(adapters, ","), "--max-loras", "1")...)
	s := startStackWith(t, bootstrap, servers, "--config-text", config)
	s.picker.sampled(t, len(servers))
	at := map[string]string{} // the server of each adapter
	ask := func(adapter, token string) (server, next string) {
		t.Helper()
		header := http.Header{}
		if token != "" {
			header.Set("X-Session-Token", token)
		}
		a := s.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", chatBody(adapter, "hello", 2, false),
			header)
		if !a.whole() {
			t.Fatal(a.String())
		}
		return a.header.Get(simName), a.header.Get("X-Session-Token")
	}
	tokens := map[string]string{} // of the newest session of each adapter
	eventually(t, 30*time.Second, "each adapter stays at a server of its own", func() bool {
		clear(at)
		for range 12 { // by chance it is one in 3 to the power of 33
			for _, adapter := range adapters {
				got, token := ask(adapter, "")
				tokens[adapter] = token
				if before, asked := at[adapter]; asked && got != before {
					return false
				}
				at[adapter] = got
			}
		}
		return at["sql"] != at["chat"] && at["chat"] != at["code"] && at["code"] != at["sql"]
	})
	for _, adapter := range adapters {
		for range 4 {
			var got string
			if got, tokens[adapter] = ask(adapter, tokens[adapter]); got != at[adapter] {
				t.Errorf("a session with %s went to %s, want %s, where it began", adapter, got, at[adapter])
			}
		}
	}
	for _, adapter := range adapters { // a turn for another adapter stays, too
		if got, _ := ask("sql", tokens[adapter]); got != at[adapter] {
			t.Errorf("a session of %s went to %s", at[adapter], got)
		}
	}
	s.picker.idle(t)
}
