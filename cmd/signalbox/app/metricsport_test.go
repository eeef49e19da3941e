package app

import (
	"bytes"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"
)

// Without flags the port is as the reference's without authentication: open, without TLS, and without profiles.
func TestMetricsPortIsOpenByDefault(t *testing.T) {
	c := asked{url: "http://" + running(t).at("metrics-port")}
	for path, want := range map[string]int{"/metrics": 200, "/healthz": 200, "/readyz": 200, "/debug/config": 200,
		"/debug/pprof/": 404, "/debug/pprof/heap": 404} {
		if got, body := c.get(t, path); got != want {
			t.Errorf("%s: %d %s, want %d", path, got, body, want)
		}
	}
}

func TestProfilesAreShownOnDemand(t *testing.T) {
	c := asked{url: "http://" + running(t, "--enable-pprof").at("metrics-port")}
	for path, says := range map[string]string{
		"/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=1": "goroutine profile:",
		"/debug/pprof/cmdline": "test", "/debug/pprof/symbol": "num_symbols",
	} {
		if got, body := c.get(t, path); got != 200 || !strings.Contains(body, says) {
			t.Errorf("%s: %d, want %q in it", path, got, says)
		}
	}
	// A name that leads here from a web page is a stranger's, as on the other pages.
	if got, _ := (asked{url: c.url, host: "evil.example"}).get(t, "/debug/pprof/heap"); got != 403 {
		t.Errorf("the heap, asked for under the name of another site: got status %d, want 403", got)
	}
}

func TestMetricsPortWantsAToken(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	writeText(t, tokens, "of-prometheus\nof-an-operator\n")
	s := running(t, "--metrics-endpoint-auth", "--metrics-token-file", tokens, "--enable-pprof")
	url := "http://" + s.at("metrics-port")
	for path, guarded := range map[string]bool{
		"/metrics": true, "/debug/config": true, "/debug/requests": true, "/debug/pprof/": true,
		"/debug/pprof/heap": true, "/": true,
		"//metrics": true, "/healthz/../metrics": true, "/healthz": false, "/readyz": false,
	} {
		for token, good := range map[string]bool{"": false, "of-a-stranger": false, "of-prometheus": true,
			"of-an-operator": true} {
			got, body := asked{url: url, token: token}.get(t, path)
			if refused := got == 401; refused != (guarded && !good) {
				t.Errorf("%s with token %q: %d %s", path, token, got, body)
			}
		}
	}
	writeText(t, tokens, "of-somebody-else\n")
	within10s(t, "the tokens that took the place of the first", func() bool {
		got, _ := asked{url: url, token: "of-somebody-else"}.get(t, "/metrics")
		return got == 200
	})
	if got, _ := (asked{url: url, token: "of-prometheus"}).get(t, "/metrics"); got != 401 {
		t.Errorf("a token that was removed: got status %d, want 401", got)
	}
}

func TestMetricsPortOverTLS(t *testing.T) {
	own, scraper, stranger := newIdentity(t, "signalbox"), newIdentity(t, "scraper"), newIdentity(t, "stranger")
	for name, c := range map[string]struct {
		flags         []string
		met, unserved []asked
	}{
		"certificate": {nil, []asked{{tls: own.trusting()}}, []asked{{tls: stranger.trusting()}}},
		"client CA": {[]string{"--metrics-client-ca-file", scraper.crt}, []asked{{tls: own.trusting(scraper.pair)}},
			[]asked{{tls: own.trusting()}, {tls: own.trusting(stranger.pair)}}},
	} {
		t.Run(name, func(t *testing.T) {
			at := running(t, append(c.flags, "--metrics-cert-dir", own.folder)...).at("metrics-port")
			for i, client := range c.met {
				client.url = "https://" + at
				if got, body := client.get(t, "/metrics"); got != 200 {
					t.Errorf("client %d: %d %s", i, got, body)
				}
			}
			for i, client := range c.unserved {
				client.url = "https://" + at
				if got, _ := client.get(t, "/metrics"); got != 0 {
					t.Errorf("client %d is served: %d", i, got)
				}
			}
			if got, _ := (asked{url: "http://" + at}).get(t, "/metrics"); got == 200 {
				t.Error("a client without TLS is served")
			}
		})
	}
}

// explain gets through everything that may guard the port.
func TestExplainShowsTokenAndCertificate(t *testing.T) {
	own, operator := newIdentity(t, "signalbox"), newIdentity(t, "operator")
	tokens := filepath.Join(t.TempDir(), "tokens")
	writeText(t, tokens, "of-an-operator\n")
	s := running(t, "--metrics-token-file", tokens, "--metrics-cert-dir", own.folder, "--metrics-client-ca-file",
		operator.crt)
	explain := func(flags ...string) string {
		root, out := newRoot(), new(bytes.Buffer)
		root.SetArgs(append([]string{"explain", "no-such-request", "--addr", "https://" + s.at("metrics-port")},
			flags...))
		root.SetOut(out)
		err := root.ExecuteContext(t.Context())
		if err == nil {
			t.Fatalf("a request that never was is explained: %s", out)
		}
		return err.Error()
	}
	ca, cert, token := []string{"--ca-file", own.crt}, []string{"--cert-path", operator.folder},
		[]string{"--token-file", tokens}
	for name, c := range map[string]struct {
		flags []string
		says  string
	}{
		"all":         {append(append(ca[:2:2], cert...), token...), "no-such-request"},
		"no token":    {append(ca[:2:2], cert...), "--token-file"},
		"no identity": {append(ca[:2:2], token...), "certificate required"},
		"no CA":       {append(cert[:2:2], token...), "unknown authority"},
		"bad CA":      {[]string{"--ca-file", tokens}, "no certificate in it"},
	} {
		if got := explain(c.flags...); !strings.Contains(got, c.says) {
			t.Errorf("%s: %s, want %q", name, got, c.says)
		}
	}
}

// Profiles that are asked for change none of their rates.
func TestProfilesTakeNoSamples(t *testing.T) {
	running(t, "--enable-pprof")
	if rate := runtime.SetMutexProfileFraction(-1); rate != 0 {
		t.Errorf("the mutex profile takes one of %d events, want none", rate)
	}
	blocked := make(chan struct{})
	time.AfterFunc(time.Millisecond, func() { close(blocked) })
	<-blocked
	if n := pprof.Lookup("block").Count(); n != 0 {
		t.Errorf("the block profile has %d stacks, want none", n)
	}
}
