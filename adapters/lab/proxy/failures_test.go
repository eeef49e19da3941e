package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

func TestImmediateResponseByPhase(t *testing.T) {
	json := setHeaders("content-type", "application/json", "retry-after", "1")
	tests := map[string]struct {
		at     string
		code   typev3.StatusCode
		change func(*http.Request)
		status int
		body   string
	}{
		"request headers":          {at: "qH", code: 429, status: 429, body: "no"},
		"request body":             {at: "qE", code: 503, status: 503, body: "no"},
		"response headers":         {at: "rH", code: 502, status: 502, body: "no"},
		"unset status becomes 200": {at: "qH", code: 0, status: 200, body: "no"},
		"grpc client": {at: "qE", code: 429,
			change: func(r *http.Request) { r.Header.Set("Content-Type", "application/grpc") }, status: 200},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			epp := startEPP(t, startUpstream(t, echoUpstream))
			epp.fault = plant(test.at, immediateAnswer(test.code, "no", json),
				headersAnswer(exchange.Response, nil))
			r := startRig(t, Config{EPP: epp.address})
			response, body := r.post(strings.NewReader("hello"), test.change)
			if response == nil || response.StatusCode != test.status || body != test.body ||
				response.Header.Get("Retry-After") != "1" {
				t.Fatalf("got %v %q", response, body)
			}
			if test.change != nil && response.Header.Get("Grpc-Status") != "14" {
				t.Errorf("grpc headers: %v", response.Header)
			}
			until(t, "request ended", func() bool { return r.proxy.Stats().Active == 0 })
			if v := r.violations(); len(v) != 0 || r.proxy.Stats().Immediate != 1 {
				t.Errorf("violations %v, stats %+v", v, r.proxy.Stats())
			}
		})
	}
}

func TestImmediateResponseAfterResponseHeadersResets(t *testing.T) {
	reached := make(chan struct{})
	epp := startEPP(t, startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.(http.Flusher).Flush()
		<-reached // the client has the headers
		_, _ = w.Write([]byte("data"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	epp.fault = plant("rB", immediateAnswer(503, "evicted", nil))
	r := startRig(t, Config{EPP: epp.address})
	response, err := r.client.Post(r.front.URL, "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	close(reached)
	if body, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("the response ended as whole: %q", body)
	}
}

func TestImmediateResponseWhileClientStillSends(t *testing.T) {
	epp := startEPP(t, startUpstream(t, echoUpstream))
	epp.fault = plant("qB", immediateAnswer(413, "too large", nil))
	r := startRig(t, Config{EPP: epp.address})
	source, sink := io.Pipe()
	defer source.Close()
	go func() { _, _ = sink.Write([]byte("first")) }() // and no end
	request, _ := http.NewRequest(http.MethodPost, r.front.URL, source)
	response, err := r.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusRequestEntityTooLarge ||
		string(body) != "too large" {
		t.Errorf("got %d %q", response.StatusCode, body)
	}
	until(t, "request ended", func() bool { return r.proxy.Stats().Active == 0 })
}

func TestEPPFailures(t *testing.T) {
	boom := func(step string) func(string, *eppStream) (bool, error) {
		return func(s string, _ *eppStream) (bool, error) {
			if s == step {
				return true, errors.New("boom")
			}
			return false, nil
		}
	}
	tests := map[string]struct {
		dead   bool
		allow  bool
		body   string
		fault  func(string, *eppStream) (bool, error)
		status int
	}{
		"dead, fail open":                     {dead: true, allow: true, body: "hello", status: 200},
		"dead, fail closed":                   {dead: true, body: "hello", status: 503},
		"error on headers, fail open":         {allow: true, fault: boom("qH"), status: 200},
		"error on headers, fail closed":       {fault: boom("qH"), status: 503},
		"error after body, fail open":         {allow: true, body: "hello", fault: boom("qE"), status: 503},
		"error on empty response, fail open":  {allow: true, fault: boom("rH"), status: 200},
		"error on response body, fail open":   {allow: true, body: "hello", fault: boom("rE"), status: 503},
		"error on response body, fail closed": {body: "hello", fault: boom("rE"), status: 503},
		"OK on headers without a pick":        {fault: leave("qH"), status: 200},
		"spurious before a body, fail open": {allow: true,
			fault: plant("qH", headersAnswer(exchange.Response, nil)), status: 200},
		"an invalid mutation is refused though it fails open": {allow: true,
			fault: plant("qH", headersAnswer(exchange.Request, setHeaders("a", "\n"))), status: 503},
		"body kept for ever, stream ended OK": {body: "hello",
			fault: func(s string, _ *eppStream) (bool, error) {
				return true,
					map[bool]error{true: errDone}[s == "qE"]
			},
			status: 503},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			upstream := startUpstream(t, echoUpstream)
			epp := startEPP(t, upstream)
			epp.fault = test.fault
			address := epp.address
			if test.dead {
				address = deadAddress(t)
			}
			r := startRig(t, Config{EPP: address, FailureModeAllow: test.allow,
				Fallback: func() []string { return []string{upstream} }})
			var source io.Reader = http.NoBody
			if test.body != "" {
				source = strings.NewReader(test.body)
			}
			response, body := r.post(source, nil)
			cut := strings.HasPrefix(body, "broken:") // how a failure shows once the response headers went out
			if response == nil || response.StatusCode != test.status && !cut || cut && test.status == http.StatusOK {
				t.Fatalf("got %v %q, want %d; violations %v", response, body, test.status, r.violations())
			}
			if test.status == http.StatusOK && body != test.body {
				t.Errorf("body: got %q, want %q", body, test.body)
			}
		})
	}
}

// leave ends the stream with OK after the right answer to a step; headers are not answered.
func leave(step string) func(string, *eppStream) (bool, error) {
	right := after(step)
	return func(got string, s *eppStream) (bool, error) {
		if got != step {
			return false, nil
		}
		if got == "qH" {
			return true, errDone
		}
		done, err := right(got, s)
		if !done || err != nil {
			return done, err
		}
		return true, errDone
	}
}

func TestEPPLeavesAfterTheRequest(t *testing.T) {
	gate := make(chan struct{})
	upstream := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			<-gate
		}
		echoUpstream(w, r)
	})
	epp := startEPP(t, upstream)
	epp.fault = leave("qE")
	r := startRig(t, Config{EPP: epp.address})
	var post sync.WaitGroup
	post.Go(func() {
		if response, body := r.post(strings.NewReader("hello"), nil); response == nil ||
			response.StatusCode != http.StatusOK || body != "hello" {
			t.Errorf("got %v %q", response, body)
		}
	})
	until(t, "EPP left", func() bool { epp.mu.Lock(); defer epp.mu.Unlock(); return epp.ended == 1 })
	// A second exchange on the same connection: when it is over, the end of the first has arrived too.
	response, err := r.client.Get(r.front.URL)
	if err != nil {
		t.Error(err)
	} else {
		response.Body.Close()
	}
	close(gate)
	post.Wait()
	if v := r.violations(); len(v) != 0 || r.proxy.Stats().Failures != 0 {
		t.Errorf("violations %v, stats %+v", v, r.proxy.Stats())
	}
}

func TestParallelRequests(t *testing.T) {
	upstream := startUpstream(t, echoUpstream)
	epp := startEPP(t, upstream)
	r := startRig(t, Config{EPP: epp.address})
	start := time.Now()
	const workers, each = 8, 50
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for i := range each {
				want := strings.Repeat(fmt.Sprintf("%d.%d ", worker, i), 400)
				if response, got := r.post(strings.NewReader(want), nil); response == nil || got != want {
					t.Errorf("worker %d request %d: %v %.60q", worker, i, response, got)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d requests in %s", workers*each, time.Since(start))
	if s := r.proxy.Stats(); s.Requests != workers*each || s.Violations != 0 || s.Failures != 0 {
		t.Errorf("stats: %+v", s)
	}
}
