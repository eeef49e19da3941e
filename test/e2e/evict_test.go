package e2e

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// evictText has running requests end for waiting ones.
var evictText = strings.Replace(gatedText, "  maxRequests: 6\n", "  enableEviction: true\n", 1)

// evicting is a full server, whose two requests have negative priority. The second one came last.
func evicting(t *testing.T, bootstrap string, header ...string) *gated {
	t.Helper()
	g := newGatedBy(t, evictText, bootstrap)
	answered := 0
	if bootstrap == overrideHost { // until the log has come once, what outlives its stream is no load
		g.sends("warm")
		eventually(t, 10*time.Second, "the access log comes", func() bool {
			g.server.release(1)
			return strings.Contains(g.picker.log.text(), "a proxy sends its access log")
		})
		g.got("warm", http.StatusOK, "")
		delete(g.answers, "warm")
		g.picker.idle(t)
		g.server.forget()
		answered = 1
	}
	const body = `{"model":"` + model + `","messages":[],"stream":true}` // tells no usage, so nobody asks to see it
	for i, prompt := range []string{"first", "second"} {
		g.sendsBody(prompt, body, append(header, "x-llm-d-inference-objective", "batch")...)
		eventually(t, 10*time.Second, prompt+" is worked on", func() bool {
			g.server.mu.Lock()
			defer g.server.mu.Unlock()
			return len(g.server.began) == i+1
		})
	}
	if len(header) > 0 {
		g.begun(answered + 2)
	}
	return g
}

// begun waits until the headers of so many responses have passed the picker.
func (g *gated) begun(n int) {
	g.Helper()
	eventually(g.T, 5*time.Second, "the responses have begun", func() bool {
		_, page := get(g.picker.metrics + "/debug/requests?format=json")
		return strings.Count(page, `"status": 200`) == n
	})
}

// TestEnvoyEvictsBeforeTheResponse: a request of higher priority that finds no room has the newest one of negative
// priority end, which is told when to come again. One of the same priority waits.
func TestEnvoyEvictsBeforeTheResponse(t *testing.T) {
	for _, bootstrap := range []string{overrideHost, overrideHostFull} {
		t.Run(bootstrap[strings.LastIndexByte(bootstrap, '/')+1:], func(t *testing.T) {
			g := evicting(t, bootstrap)
			g.sends("equal", "x-llm-d-inference-objective", "batch")
			g.waits(1)
			g.sends("urgent", "x-llm-d-inference-objective", "urgent")
			a := g.got("second", http.StatusTooManyRequests, "evicted")
			if after, err := strconv.Atoi(a.header.Get("retry-after")); err != nil || after < 1 ||
				!strings.Contains(a.body, `"code":"evicted"`) {
				t.Errorf("retry-after %q, body %s", a.header.Get("retry-after"), a.body)
			}
			g.server.works(t, 3)
			g.waits(1)
			g.server.release(-1)
			for _, prompt := range []string{"first", "urgent", "equal"} {
				g.got(prompt, http.StatusOK, "")
			}
			g.picker.idle(t)
			if !slices.Equal(g.server.began, []string{"first", "second", "urgent", "equal"}) {
				t.Errorf("the server saw %v", g.server.began)
			}
			confirmed := g.picker.metric("llm_d_epp_flow_control_revocations_total", `outcome="confirmed"`)
			failures := g.picker.failures()
			if confirmed != 1 || failures != 0 {
				t.Errorf("%v revocations are confirmed, %v failures of the server counted", confirmed, failures)
			}
		})
	}
}

// TestEnvoyCutsAResponseThatHasBegun: in the full lane the answer is cut.
func TestEnvoyCutsAResponseThatHasBegun(t *testing.T) {
	g := evicting(t, overrideHostFull, "x-early", "1")
	g.sends("urgent", "x-llm-d-inference-objective", "urgent")
	select {
	case a := <-g.answers["second"]:
		if a.status != http.StatusOK || a.err == nil {
			t.Errorf("want an answer that is cut, got %s", a.String())
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the answer is not cut")
	}
	g.server.works(t, 3)
	g.server.release(-1)
	g.got("first", http.StatusOK, "")
	g.got("urgent", http.StatusOK, "")
	g.picker.idle(t)
}

// TestEnvoyLeavesALightResponseAlone: in the light lane a response that has begun cannot be ended, so nobody is.
func TestEnvoyLeavesALightResponseAlone(t *testing.T) {
	g := evicting(t, overrideHost, "x-early", "1")
	g.sends("urgent", "x-llm-d-inference-objective", "urgent")
	g.waits(1)
	g.server.release(1)
	g.server.works(t, 3)
	g.server.release(-1)
	for _, prompt := range []string{"first", "second", "urgent"} {
		g.got(prompt, http.StatusOK, "")
	}
	g.picker.idle(t)
	if n := g.picker.metric("llm_d_epp_flow_control_revocations_issued_total"); n != 0 {
		t.Errorf("%v requests were told to end", n)
	}
}
