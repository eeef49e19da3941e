package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// logMark is the line by which a bootstrap says that it has an access log for Signalbox.
const logMark = "                initial_metadata: [{key: x-signalbox-access-log, value: \"1\"}]\n"

// withoutLog takes the access log for Signalbox out of a bootstrap, and the share of the full lane: what is left is
// response headers only, a natural configuration where a gateway writes Envoy's.
func withoutLog(t *testing.T) func(string) string {
	return func(text string) string {
		t.Helper()
		begin := strings.Index(text, "          - name: envoy.access_loggers.http_grpc\n")
		end := strings.Index(text, "          access_log_options:")
		if begin < 0 || end < begin {
			t.Fatal("the bootstrap has no access log for Signalbox")
		}
		return replaced(t, logMark, "")(share(t, 0)(text[:begin] + text[end:]))
	}
}

const noLog = "sends no access log"

// TestEnvoyWithoutAccessLog: where Envoy shows the response's headers only and sends no access log, requests end with
// their stream, one warning names the setting, and nothing is waited for at the end.
func TestEnvoyWithoutAccessLog(t *testing.T) {
	seenElsewhere(t)
	t.Parallel() // it mostly waits
	s := startChanged(t, overrideHost, simulated(t, 2, leisurely...), []string{"--drain-timeout", "25s"}, withoutLog(t))
	noneInFlight := func() {
		t.Helper()
		for _, gauge := range append(gauges[:len(gauges):len(gauges)], "signalbox_streams",
			"signalbox_outlived_requests") {
			eventually(t, time.Second, gauge+" at 0", func() bool { return s.picker.metric(gauge) == 0 })
		}
	}
	for i := range 10 {
		if a := s.client.chat(model, fmt.Sprintf("question %d", i), 2); !a.whole() {
			t.Error(a.String())
		}
		noneInFlight()
	}
	told := startStories(s.client, 8, longTokens)
	eventually(t, 5*time.Second, "the stories run",
		func() bool { return s.picker.metric("llm_d_epp_request_total") == 18 })
	noneInFlight()
	for _, a := range told() {
		if !a.whole() {
			t.Error(a.String())
		}
	}
	eventually(t, 20*time.Second, "a warning", func() bool { return strings.Contains(s.picker.log.text(), noLog) })
	eventually(t, 20*time.Second, "the records end", func() bool {
		_, text := get(s.picker.metrics + "/debug/requests?format=json")
		return strings.Count(text, `"running": false`) == 18
	})
	s.client.chat(model, "one more", 2)
	noneInFlight()
	if n := s.picker.failures(); n != 0 {
		t.Errorf("%v failures of servers that are well", n)
	}
	if _, text := get(s.picker.metrics + "/debug/proxies"); strings.Count(text, "127.0.0.1") != 1 ||
		!containsAll(text, []string{"unknown", "light", "missing"}) {
		t.Errorf("proxies are shown as\n%s", text)
	}
	s.picker.signal(t, syscall.SIGTERM)
	if code := s.picker.exitCode(t, 5*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if n := strings.Count(s.picker.log.text(), noLog); n != 1 ||
		!strings.Contains(s.picker.log.text(), "envoy.access_loggers.http_grpc") {
		t.Errorf("%d warnings, want one that names the setting", n)
	}
}

// TestEnvoyDiesBeforeItsFirstEntry: of requests that run through an Envoy which is killed before it has sent an entry
// nothing is in flight once the doubt has passed, whether another Envoy of its address sends entries or none does.
func TestEnvoyDiesBeforeItsFirstEntry(t *testing.T) {
	seenElsewhere(t)
	for name, another := range map[string]bool{"alone": false, "beside one that logs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			const running = 8
			servers := simulated(t, 2, leisurely...)
			p := serve(t, servers)
			p.pooled(t, 2)
			if another {
				e := startEnvoy(t, overrideHost, p.grpcPort, servers, share(t, 0))
				e.asksPicker(t)
				send(t, newClient(e.url), 4)
				p.idle(t)
			}
			sent := p.metric("llm_d_epp_request_total")
			e := startEnvoy(t, overrideHost, p.grpcPort, servers, share(t, 0))
			e.asksPicker(t)
			c := newClient(e.url)
			t.Cleanup(c.close)
			began := make(chan struct{}, running)
			for i := range running {
				go func() {
					a := c.stream(context.Background(), fmt.Sprintf("story %d", i), 100*longTokens)
					if a.whole() {
						t.Error("a story ended: nothing is proved")
					}
					began <- struct{}{}
				}()
			}
			eventually(t, 4*time.Second, "the stories run", func() bool {
				return p.metric("llm_d_epp_request_total") == sent+running && p.metric("signalbox_streams") == 0
			})
			if another {
				p.inFlight(t, running)
			}
			killed := time.Now()
			e.kill()
			for range running {
				<-began
			}
			eventually(t, 10*time.Second, "nothing in flight", func() bool {
				status, page := get(p.metrics + "/metrics")
				return status == http.StatusOK && sumOf(page, gauges[0])+sumOf(page, gauges[1]) == 0
			})
			t.Logf("nothing in flight %v after it", time.Since(killed).Round(time.Millisecond))
		})
	}
}

// TestEnvoyIsShownAsAProxy from its first request to its end: what it calls itself, its version, its lane,
// and that its access log comes.
func TestEnvoyIsShownAsAProxy(t *testing.T) {
	seenElsewhere(t)
	s := startChanged(t, overrideHost, simulated(t, 2, quick...), nil, share(t, 0))
	send(t, s.client, 4)
	page := func() string {
		_, text := get(s.picker.metrics + "/debug/proxies")
		return text
	}
	eventually(t, 5*time.Second, "a proxy with an access log", func() bool {
		text := page()
		return strings.Count(text, "127.0.0.1") == 1 &&
			containsAll(text, []string{"edge-override-host", envoyVersion, "light", "seen"})
	})
	s.envoy.kill()
	eventually(t, 5*time.Second, "no proxy", func() bool { return page() == "no proxies\n" })
	for _, line := range []string{"a proxy connects", "a proxy sends its access log", "a proxy leaves"} {
		if n := strings.Count(s.picker.log.text(), `"`+line+`"`); n != 1 {
			t.Errorf("%d lines %q, want 1", n, line)
		}
	}
}
