package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// gatedText has requests wait for servers that take two at a time, six requests at most.
const gatedText = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 2}}
- {type: round-robin-fairness-policy}
- {type: random-picker}
schedulingProfiles: [{name: default, plugins: [{pluginRef: random-picker}]}]
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  maxRequests: 6
  defaultRequestTTL: 20s
  defaultPriorityBand: {fairnessPolicyRef: round-robin-fairness-policy}
objectives: [{name: urgent, priority: 5}, {name: batch, priority: -1}]
`

// longGatedText has more requests wait.
var longGatedText = strings.Replace(gatedText, "maxRequests: 6", "maxRequests: 10k", 1)

const places = 2 // of a server

// heldServer is a model server that answers when it is told to. It drops a request whose client leaves, and begins the
// answer to one with the header X-Early at once.
type heldServer struct {
	*httptest.Server
	mu      sync.Mutex
	prompts []string // of the requests that it works on, in the order in which they came
	began   []string // of all that ever came
	most    int      // that it worked on at a time
	free    bool     // it answers at once
	answer  *sync.Cond
}

func newHeldServer(t *testing.T) *heldServer {
	t.Helper()
	m := &heldServer{}
	m.answer = sync.NewCond(&m.mu)
	m.Server = httptest.NewServer(http.HandlerFunc(m.serve))
	t.Cleanup(func() {
		m.release(-1)
		m.Close()
	})
	return m
}

func (m *heldServer) address() string { return strings.TrimPrefix(m.URL, "http://") }

func (m *heldServer) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	prompt := r.Header.Get("X-Prompt")
	w.Header().Set("Content-Type", "application/json")
	if r.Header.Get("X-Early") != "" {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
	}
	defer context.AfterFunc(r.Context(), func() { m.drop(prompt) })()
	m.mu.Lock()
	m.prompts, m.began = append(m.prompts, prompt), append(m.began, prompt)
	m.most = max(m.most, len(m.prompts))
	for !m.free && slices.Contains(m.prompts, prompt) {
		m.answer.Wait()
	}
	m.prompts = slices.DeleteFunc(m.prompts, func(p string) bool { return p == prompt })
	m.mu.Unlock()
	_, _ = io.WriteString(w, `{"id":"x","object":"chat.completion","choices":[]}`)
}

// drop has the server work on a request no more.
func (m *heldServer) drop(prompt string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.prompts = slices.DeleteFunc(m.prompts, func(p string) bool { return p == prompt })
	m.answer.Broadcast()
}

// forget has the server count anew.
func (m *heldServer) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began = nil
}

// release has the server answer so many requests, the oldest first; -1 = all, and those that come.
func (m *heldServer) release(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free = n < 0
	if n > 0 {
		m.prompts = m.prompts[min(n, len(m.prompts)):]
	}
	m.answer.Broadcast()
}

// works waits until the server is full, after so many requests ever came.
func (m *heldServer) works(t *testing.T, ever int) {
	t.Helper()
	eventually(t, 10*time.Second, fmt.Sprintf("the server works on %d of %d", places, ever), func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.prompts) == places && len(m.began) == ever
	})
}

// gated is a server behind Envoy and a picker whose requests wait.
type gated struct {
	*testing.T
	*stack
	server  *heldServer
	answers map[string]chan answer // by prompt
}

func newGated(t *testing.T, bootstrap string, flags ...string) *gated {
	t.Helper()
	return newGatedBy(t, gatedText, bootstrap, flags...)
}

func newGatedBy(t *testing.T, text, bootstrap string, flags ...string) *gated {
	t.Helper()
	return gatedWith(t, text, flags, func(servers, flags []string) *stack {
		if bootstrap == overrideHost { // with no request in the full lane
			return startStackBy(t, bootstrap, servers, flags, share(t, 0))
		}
		return startStackWith(t, bootstrap, servers, flags...)
	})
}

func gatedWith(t *testing.T, text string, flags []string, start func(servers, flags []string) *stack) *gated {
	t.Helper()
	server, file := newHeldServer(t), filepath.Join(t.TempDir(), "config.yaml")
	writeFile(t, file, text)
	flags = append([]string{"--config-file", file}, flags...)
	return &gated{t, start([]string{server.address()}, flags), server, map[string]chan answer{}}
}

// sends begins a request, with more headers.
func (g *gated) sends(prompt string, header ...string) {
	g.Helper()
	g.sendsBody(prompt, chatBody(model, prompt, 2, false), header...)
}

// sendsBody begins a request with a body of its own.
func (g *gated) sendsBody(prompt, body string, header ...string) {
	g.Helper()
	h := http.Header{"X-Prompt": {prompt}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	back := make(chan answer, 1)
	g.answers[prompt] = back
	go func() {
		back <- g.client.do(g.Context(), http.MethodPost, "/v1/chat/completions", body, h)
	}()
}

// waits waits until so many requests wait for room.
func (g *gated) waits(n int) {
	g.Helper()
	eventually(g.T, 5*time.Second, fmt.Sprintf("%d requests wait", n), func() bool {
		return g.picker.metric("signalbox_flow_waiting_requests") == float64(n)
	})
}

// got wants a request to have this status and, if it was refused, this reason.
func (g *gated) got(prompt string, status int, reason string) answer {
	g.Helper()
	select {
	case a := <-g.answers[prompt]:
		if a.err != nil || a.status != status || a.header.Get("x-llm-d-request-dropped-reason") != reason {
			g.Errorf("%s: want %d %s, got %s", prompt, status, reason, a.String())
		}
		return a
	case <-time.After(20 * time.Second):
		g.Fatalf("%s: no answer", prompt)
		return answer{}
	}
}

// TestEnvoyRequestsWaitForRoom plays a line behind both lanes: nobody is sent to a full server, the right one is next,
// and each that is not served is told so.
func TestEnvoyRequestsWaitForRoom(t *testing.T) {
	for _, bootstrap := range []string{overrideHost, overrideHostFull} {
		t.Run(bootstrap[strings.LastIndexByte(bootstrap, '/')+1:], func(t *testing.T) {
			g := newGated(t, bootstrap)
			g.sends("first")
			g.sends("second")
			g.server.works(t, 2)
			g.sends("hasty", "x-llm-d-inference-ttl", "300ms")
			a := g.got("hasty", http.StatusTooManyRequests, "rejected-ttl-expired")
			if after, err := strconv.Atoi(a.header.Get("retry-after")); err != nil || after < 1 ||
				!strings.Contains(a.body, `"code":"rejected-ttl-expired"`) {
				t.Errorf("retry-after %q, body %s", a.header.Get("retry-after"), a.body)
			}
			if waited := a.ended.Sub(a.sent); waited < 300*time.Millisecond || waited > 800*time.Millisecond {
				t.Errorf("it waited %v, want 300 ms, and little more", waited)
			}
			for i, header := range [][]string{
				{"x-llm-d-inference-objective", "batch"}, {"x-llm-d-inference-fairness-id", "a"},
				{"x-llm-d-inference-fairness-id", "a"}, {"x-llm-d-inference-fairness-id", "b"},
				{"x-llm-d-inference-objective", "urgent"}, {"x-llm-d-inference-fairness-id", "b"},
			} {
				g.sends(strconv.Itoa(i), header...)
				g.waits(i + 1)
			}
			g.sends("too many", "x-llm-d-inference-objective", "batch")
			g.got("too many", http.StatusTooManyRequests, "rejected-saturated")
			g.sends("more urgent", "x-llm-d-inference-objective", "urgent")
			g.got("0", http.StatusTooManyRequests, "evicted-priority")
			for i := range 6 {
				g.server.release(1)
				g.server.works(t, 3+i)
			}
			g.server.release(-1)
			for prompt := range g.answers {
				if !slices.Contains([]string{"hasty", "too many", "0"}, prompt) {
					g.got(prompt, http.StatusOK, "")
				}
			}
			want := []string{"first", "second", "4", "more urgent", "1", "3", "2", "5"}
			if slices.Sort(g.server.began[:2]); !slices.Equal(g.server.began, want) {
				t.Errorf("the server saw %v, want %v", g.server.began, want)
			}
			if g.server.most != places {
				t.Errorf("it worked on %d at a time, want %d", g.server.most, places)
			}
			g.picker.idle(t)
			g.waits(0)
		})
	}
}

// TestEnvoyLineEndsWithThePicker: whoever waits has one answer when the picker is told to end, and when it is killed.
// Told to end, it dispatches while there is room, until its delay is over, and then refuses the rest at once.
func TestEnvoyLineEndsWithThePicker(t *testing.T) {
	const delay, timeout, waiting = 2 * time.Second, 30 * time.Second, 200
	for name, end := range map[string]func(*gated){
		"told":   func(g *gated) { g.picker.signal(g.T, syscall.SIGTERM) },
		"killed": func(g *gated) { g.picker.kill() },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGatedBy(t, longGatedText, overrideHost, "--drain-delay", delay.String(), "--drain-timeout",
				timeout.String())
			g.sends("first")
			g.sends("second")
			g.server.works(t, 2)
			for i := range waiting {
				g.sends(strconv.Itoa(i))
			}
			g.waits(waiting)
			ended := time.Now()
			end(g)
			served := 0
			if name == "told" {
				g.server.release(1)
				g.server.works(t, 3)
				served = 1
			}
			var last time.Duration
			for i := range waiting {
				a := g.answered(strconv.Itoa(i), &served)
				if a == nil {
					continue
				}
				last = max(last, a.ended.Sub(ended))
				reason := a.header.Get("x-llm-d-request-dropped-reason")
				if a.err != nil || a.status < 500 || name == "told" && reason != "rejected-shutting-down" {
					t.Errorf("request %d: %s", i, a.String())
				}
			}
			if last > timeout/2 || name == "told" && last < delay {
				t.Errorf("the last one is answered %v after the order to end, want a little more than %v", last, delay)
			}
			t.Logf("%d requests wait: the last is answered after %v", waiting, last)
			if served > 0 {
				t.Errorf("%d less than released were served", served)
			}
		})
	}
}

// answered returns the answer to a request that waited, unless it is one of those that may be served still: the server
// holds it, so it is not answered for now.
func (g *gated) answered(prompt string, served *int) *answer {
	g.Helper()
	g.server.mu.Lock()
	held := slices.Contains(g.server.prompts, prompt)
	g.server.mu.Unlock()
	if held {
		*served--
		return nil
	}
	select {
	case a := <-g.answers[prompt]:
		return &a
	case <-time.After(20 * time.Second):
		g.Fatalf("%s: no answer", prompt)
		return nil
	}
}

// TestEnvoyWaitsAsLongAsTheBodyModeAllows: Envoy waits for the answer to a message as long as its message_timeout says,
// unless the request is full duplex. Then a request waits longer than that, with a body and without. In the other modes
// it is refused before.
func TestEnvoyWaitsAsLongAsTheBodyModeAllows(t *testing.T) {
	const most, timeout = 500 * time.Millisecond, 1500 * time.Millisecond
	all := map[string]bool{ // whether they wait for long
		"FULL_DUPLEX_STREAMED": true, "BUFFERED": false, "BUFFERED_PARTIAL": false, "STREAMED": false, "NONE": false,
	}
	if envoyVersion != "1.36" {
		all["GRPC"] = false
	}
	var routes []modes
	for mode := range all {
		routes = append(routes, pair(mode, "NONE"))
	}
	g := gatedWith(t, longGatedText, []string{"--queue-timeout-other-modes", most.String()},
		func(servers, flags []string) *stack {
			return startStackBy(t, overrideHost, servers, flags, func(text string) string {
				return strings.ReplaceAll(text, "message_timeout: 10s", "message_timeout: "+timeout.String())
			}, everyMode(t, routes))
		})
	g.sends("first")
	g.sends("second")
	g.server.works(t, 2)
	began := time.Now()
	for _, m := range routes {
		g.sends(m.request, modeField, m.String())
	}
	g.sendsBody("no body", "")
	for mode, long := range all {
		if long {
			continue
		}
		a := g.got(mode, http.StatusTooManyRequests, "rejected-ttl-expired")
		if waited := a.ended.Sub(a.sent); waited < most || waited > timeout {
			t.Errorf("%s: it waited %v, want a little more than %v", mode, waited, most)
		}
		if after, err := strconv.Atoi(a.header.Get("retry-after")); err != nil || after < 1 {
			t.Errorf("%s: retry-after %q, want 1 or more", mode, a.header.Get("retry-after"))
		}
	}
	eventually(t, 10*time.Second, "envoy would have given up", func() bool { return time.Since(began) > 2*timeout })
	g.server.release(-1)
	for mode, long := range all {
		if long {
			g.got(mode, http.StatusOK, "")
		}
	}
	g.got("no body", http.StatusOK, "")
	if got := g.envoy.stat("http.llm.ext_proc.epp.message_timeouts"); got != 0 {
		t.Errorf("envoy gave up %d messages", got)
	}
}

// TestEnvoyRequestsWaitForServers: with the gate on, an empty pool is waited for, and the server that comes serves.
func TestEnvoyRequestsWaitForServers(t *testing.T) {
	g := newGated(t, overrideHost)
	g.picker.setEndpoints(t, nil)
	g.picker.pooled(t, 0)
	g.sends("early")
	g.waits(1)
	g.server.release(-1)
	g.picker.setEndpoints(t, []string{g.server.address()})
	g.got("early", http.StatusOK, "")
}

// TestCommandRefusesALongLineAtOnce: all of a thousand streams that wait are answered when the delay is over, whatever
// the time that is left to those that run.
func TestCommandRefusesALongLineAtOnce(t *testing.T) {
	const delay, waiting = time.Second, 1000
	file := filepath.Join(t.TempDir(), "config.yaml")
	writeFile(t, file, longGatedText)
	p := serve(t, simulated(t, 1, quick...), "--config-file", file, "--drain-delay", delay.String(), "--drain-timeout",
		"30s")
	p.pooled(t, 1)
	conn := dial(t, p.grpcPort)
	for range places {
		picked(t, conn)
	}
	var all []*exchange
	for range waiting {
		x := openExchange(t, conn)
		x.begin()
		x.ask()
		all = append(all, x)
	}
	eventually(t, 10*time.Second, "they wait", func() bool {
		return p.metric("signalbox_flow_waiting_requests") == waiting
	})
	machine, told := lateness.Begin(), time.Now()
	p.signal(t, syscall.SIGTERM)
	for _, x := range all {
		if code, reason := x.refused(); code != 503 || reason != "rejected-shutting-down" {
			t.Fatalf("what waits got %d %q", code, reason)
		}
	}
	took := time.Since(told) - delay
	if took < 0 {
		t.Errorf("they are answered %v before the delay is over", -took)
	}
	most := time.Second
	if raceEnabled() {
		most *= 3
	}
	machine.Within(t, "all are answered after the delay", took, most)
}
