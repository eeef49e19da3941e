package proxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func echoUpstream(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	for name, values := range r.Trailer {
		w.Header().Set("X-Got-Trailer-"+name, values[0])
	}
	w.Header().Set("X-Got-Destination", r.Header.Get("X-Gateway-Destination-Endpoint"))
	w.Header().Set("X-Got-Host", r.Host)
	w.Header().Set("X-Got-Length", fmt.Sprint(r.ContentLength))
	w.Header().Set("X-Got-Path", r.RequestURI)
	_, _ = w.Write(body)
}

func TestBodiesPassUnchanged(t *testing.T) {
	upstream := startUpstream(t, echoUpstream)
	epp := startEPP(t, upstream)
	r := startRig(t, Config{EPP: epp.address})
	for _, size := range []int{0, 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 3 << 20} {
		body := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		for _, chunked := range []bool{false, true} {
			var source io.Reader = bytes.NewReader(body)
			if chunked {
				source = io.MultiReader(source) // hides the length
			}
			response, got := r.post(source, func(q *http.Request) {
				q.Header.Set("X-Gateway-Destination-Endpoint", "evil:1")
				q.Header.Set("X-Gateway-Destination-Endpoint-Subset", "evil:1")
			})
			if response == nil || response.StatusCode != http.StatusOK || got != string(body) {
				t.Fatalf("%d bytes, chunked %v: response %v, %d bytes back: %.80s", size, chunked, response, len(got),
					got)
			}
			h := response.Header
			if h.Get("X-Got-Destination") != upstream || h.Get("X-Seen") != "yes" ||
				h.Get("X-Got-Path") != "/v1/chat/completions?x=1" {
				t.Errorf("%d bytes: headers %v", size, h)
			}
			if want := strings.TrimPrefix(r.front.URL, "http://"); h.Get("X-Got-Host") != want {
				t.Errorf("host: got %q, want %q", h.Get("X-Got-Host"), want)
			}
		}
	}
	if v := r.violations(); len(v) != 0 {
		t.Errorf("violations of a correct EPP: %v", v)
	}
	if s := r.proxy.Stats(); s.Picks != 12 || s.Streams != 12 || s.Fallbacks != 0 || s.Failures != 0 {
		t.Errorf("stats: %+v", s)
	}
	for _, m := range epp.asks {
		for _, h := range m.GetRequestHeaders().GetHeaders().GetHeaders() {
			if strings.HasPrefix(h.Key, "x-gateway-destination-endpoint") || h.Key != strings.ToLower(h.Key) ||
				h.Value != "" {
				t.Errorf("request header %v", h)
			}
		}
	}
}

func TestFirstMessageAndServedEndpoint(t *testing.T) {
	dead, upstream := deadAddress(t), startUpstream(t, echoUpstream)
	epp := startEPP(t, dead+","+upstream)
	r := startRig(t, Config{EPP: epp.address, Subset: func(*http.Request) []string { return []string{upstream} }})
	if response, got := r.post(strings.NewReader("hi"), nil); response == nil || got != "hi" {
		t.Fatalf("response %v: %s", response, got)
	}
	if s := r.proxy.Stats(); s.Retries != 1 {
		t.Errorf("retries: got %d, want 1", s.Retries)
	}
	first := epp.asks[0]
	if first.GetProtocolConfig().GetRequestBodyMode().String() != "FULL_DUPLEX_STREAMED" ||
		epp.asks[1].GetProtocolConfig() != nil {
		t.Errorf("protocol_config: first %v, second %v", first.GetProtocolConfig(), epp.asks[1].GetProtocolConfig())
	}
	hints := first.GetMetadataContext().GetFilterMetadata()["envoy.lb.subset_hint"].GetFields()
	hint := hints["x-gateway-destination-endpoint-subset"]
	if hint.GetListValue().GetValues()[0].GetStringValue() != upstream {
		t.Errorf("subset hint: %v", hint)
	}
	for _, m := range epp.asks {
		if m.GetResponseHeaders() == nil {
			continue
		}
		lb := m.GetMetadataContext().GetFilterMetadata()["envoy.lb"].GetFields()
		if got := lb["x-gateway-destination-endpoint-served"].GetStringValue(); got != upstream {
			t.Errorf("served: got %q, want %q", got, upstream)
		}
		attributes := m.GetAttributes()["envoy.filters.http.ext_proc"].GetFields()
		if got := attributes["upstream.address"].GetStringValue(); got != upstream {
			t.Errorf("upstream.address: got %q, want %q", got, upstream)
		}
		return
	}
	t.Error("no response headers reached the EPP")
}

func TestServerSentEventsArriveOneByOne(t *testing.T) {
	next := make(chan struct{})
	upstream := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	})
	epp := startEPP(t, upstream)
	r := startRig(t, Config{EPP: epp.address})
	response, err := r.client.Post(r.front.URL, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for i := range 5 {
		// The upstream waits for us: an event that is held back would hang the test.
		line, err := lines.ReadString('\n')
		if want := fmt.Sprintf("data: %d\n", i); err != nil || line != want {
			t.Fatalf("got %q (%v), want %q", line, err, want)
		}
		_, _ = lines.ReadString('\n')
		next <- struct{}{}
	}
	if rest, err := io.ReadAll(lines); err != nil || len(rest) != 0 {
		t.Errorf("rest %q, %v", rest, err)
	}
}

func TestTrailersBothWays(t *testing.T) {
	upstream := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		echoUpstream(w, r)
		w.(http.Flusher).Flush() // a body of known length has no trailers
		w.Header().Set(http.TrailerPrefix+"X-End", "down")
	})
	epp := startEPP(t, upstream)
	r := startRig(t, Config{EPP: epp.address})
	response, got := r.post(io.MultiReader(strings.NewReader("body")), func(q *http.Request) {
		q.Trailer = http.Header{"X-Up": {"up"}}
	})
	if response == nil || got != "body" {
		t.Fatalf("response %v: %s", response, got)
	}
	if g := response.Header.Get("X-Got-Trailer-X-Up"); g != "up" {
		t.Errorf("request trailer: got %q", g)
	}
	if response.Trailer.Get("X-End") != "down" || response.Trailer.Get("X-Trailer-Seen") != "yes" {
		t.Errorf("response trailers: %v", response.Trailer)
	}
	if v := r.violations(); len(v) != 0 {
		t.Errorf("violations: %v", v)
	}
}

func TestBodylessRequestsAndResponses(t *testing.T) {
	upstream := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Method", r.Method)
		if r.URL.Path == "/empty" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = w.Write([]byte("models"))
	})
	epp := startEPP(t, upstream)
	r := startRig(t, Config{EPP: epp.address})
	tests := map[string]struct {
		method, path, body string
		status             int
	}{
		"get":        {http.MethodGet, "/", "models", 200},
		"head":       {http.MethodHead, "/", "", 200},
		"no content": {http.MethodGet, "/empty", "", 204},
		"delete":     {http.MethodDelete, "/", "models", 200},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			request, _ := http.NewRequest(test.method, r.front.URL+test.path, nil)
			response, err := r.client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil || string(body) != test.body || response.StatusCode != test.status ||
				response.Header.Get("X-Method") != test.method {
				t.Errorf("got %d %q %v (%v)", response.StatusCode, body, response.Header, err)
			}
		})
	}
	if v := r.violations(); len(v) != 0 {
		t.Errorf("violations: %v", v)
	}
}

func TestClientDisconnectEndsStreamAndUpstream(t *testing.T) {
	upstreamGone := make(chan struct{})
	upstream := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(upstreamGone)
	})
	epp := startEPP(t, upstream)
	r := startRig(t, Config{EPP: epp.address})
	ctx, cancel := context.WithCancel(t.Context())
	request, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.front.URL, strings.NewReader("x"))
	response, err := r.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	response.Body.Close()
	<-upstreamGone
	until(t, "EPP stream ended", func() bool { epp.mu.Lock(); defer epp.mu.Unlock(); return epp.ended == 1 })
	until(t, "request ended", func() bool { return r.proxy.Stats().Active == 0 })
}

func TestClientAbortsUpload(t *testing.T) {
	epp := startEPP(t, startUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			t.Error("the broken upload reached the upstream as whole")
		}
	}))
	r := startRig(t, Config{EPP: epp.address})
	source, sink := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	request, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.front.URL, source)
	failed := make(chan struct{})
	go func() {
		defer close(failed)
		if response, err := r.client.Do(request); err == nil {
			response.Body.Close()
		}
	}()
	_, _ = sink.Write([]byte("part"))
	until(t, "first chunk at the EPP", func() bool { epp.mu.Lock(); defer epp.mu.Unlock(); return len(epp.asks) >= 2 })
	cancel()
	_ = sink.CloseWithError(io.ErrUnexpectedEOF)
	<-failed
	until(t, "request ended", func() bool { return r.proxy.Stats().Active == 0 })
	until(t, "EPP stream ended", func() bool { epp.mu.Lock(); defer epp.mu.Unlock(); return epp.ended == 1 })
}

func TestUpstreamBreaksOffMidBody(t *testing.T) {
	epp := startEPP(t, startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("half"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	abort := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write([]byte("half"))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	epp.destination = abort
	r := startRig(t, Config{EPP: epp.address})
	// If the break is seen before the headers went out, a reply is right; afterwards only a reset is.
	response, got := r.post(strings.NewReader("x"), nil)
	if response != nil && response.StatusCode == http.StatusOK && !strings.HasPrefix(got, "broken:") {
		t.Errorf("the cut response arrived as whole: %q", got)
	}
}

func TestUpstreamFailureSkipsResponseDirection(t *testing.T) {
	dead := deadAddress(t)
	epp := startEPP(t, dead)
	r := startRig(t, Config{EPP: epp.address})
	response, got := r.post(strings.NewReader("x"), nil)
	if response == nil || response.StatusCode != http.StatusServiceUnavailable {
		t.Fatalf("response %v: %s", response, got)
	}
	until(t, "EPP stream ended", func() bool { epp.mu.Lock(); defer epp.mu.Unlock(); return epp.ended == 1 })
	for _, m := range epp.asks {
		if m.GetResponseHeaders() != nil {
			t.Errorf("the local reply reached the response direction: %v", m)
		}
	}
}
