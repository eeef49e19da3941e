package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestEnvoyDropsLostPrefixes: a server loses its prefix cache. Within 20 of its answers the index gives it no credit
// any more for the prompts of conversations that have not come again, and the metrics and /debug/endpoints show it.
// That is so also if nine tenths of each prompt are those of all, which it has again after one answer.
func TestEnvoyDropsLostPrefixes(t *testing.T) {
	for name, c := range map[string]struct {
		lose   []string
		common int // as in prefixes
		own    int
	}{
		"a reset":   {[]string{"/reset_prefix_cache"}, 900, 100},
		"sleep":     {[]string{"/sleep?level=1", "/wake_up"}, 100, 500},
		"a restart": {[]string{"/sim/restart"}, 100, 500},
	} {
		t.Run(name, func(t *testing.T) {
			p, other := startPrefixes(t)
			p.common, p.own = c.common, c.own
			const all, again = 30, 20
			for n := range all + again {
				p.asks(t, n%all)
			}
			before := p.found()
			if before.lost != 0 || before.predicted == 0 || before.reported < before.predicted*8/10 {
				t.Fatalf("before: %+v", before)
			}

			for _, path := range c.lose {
				if path == "/wake_up" {
					p.servesNone(t, other)
				}
				change(t, http.MethodPost, "http://"+p.server+path, "")
			}
			p.answers(t, all)
			noticed := 0
			for n := range again {
				if p.asks(t, n); noticed == 0 && p.found().lost > 0 {
					noticed = n + 1
				}
			}
			after := p.found()
			for n := again; n < all; n++ { // these have not come since
				p.asks(t, n)
			}
			last := p.found()
			predicted, reported := last.predicted-after.predicted, last.reported-after.reported
			t.Logf("noticed after %d answers; then %.0f tokens predicted, %.0f reported", noticed, predicted, reported)
			// A restart may be told by the metrics page first: then the server is another incarnation.
			anew := after.predicted < before.predicted
			if noticed == 0 && !anew || predicted > reported*1.05 {
				t.Errorf("before %+v, after %d answers %+v, in the end %+v", before, again, after, last)
			}
			if lost := p.picker.metric("signalbox_endpoint_prefix_lost_blocks_total", other); lost != 0 {
				t.Errorf("%v blocks of the other server were dropped", lost)
			}
			p.shown(t, last)
		})
	}
}

// TestEnvoySeesDrift: the chat template of a server begins to put the time before every prompt. Within 20 of its
// answers the index gives it no credit any more, and gives it none while that lasts.
func TestEnvoySeesDrift(t *testing.T) {
	p, _ := startPrefixes(t)
	const talks = 6
	ask := func(times int) {
		for n := range times {
			p.asks(t, n%talks)
		}
	}
	for n := range 2 * 3 * talks { // it keeps more than the index will ask of it
		p.asks(t, n%(3*talks))
	}
	if before := p.found(); before.lost != 0 || before.predicted == 0 || before.drifting != 0 {
		t.Fatalf("before: %+v", before)
	}
	change(t, http.MethodPut, "http://"+p.server+"/sim/faults", `{"render_drift":true}`)
	ask(20)
	after := p.found()
	ask(2 * talks) // of which nothing is predicted
	last := p.found()
	t.Logf("after 20 answers %+v, after %d more %+v", after, 2*talks, last)
	if after.drifting != 1 || last.drifting != 1 || last.predicted != after.predicted || after.lost == 0 {
		t.Errorf("after 20 answers %+v, in the end %+v", after, last)
	}
	p.shown(t, last)
	change(t, http.MethodDelete, "http://"+p.server+"/sim/faults", "")
	ask(3 * talks)
	again := p.found()
	if again.drifting != 0 || again.predicted == last.predicted {
		t.Errorf("once it finds prompts again: %+v, before %+v", again, last)
	}
	p.shown(t, again)
}

// prefixes are prompts that all go to one server.
type prefixes struct {
	*stack
	server string
	common int // sentences that all prompts begin with
	own    int // sentences of each behind them
}

// startPrefixes also returns the other server of the pool.
func startPrefixes(t *testing.T) (p *prefixes, other string) {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens")
	writeFile(t, tokens, "s3cret\n")
	servers := simulated(t, 2, append(quick[:len(quick):len(quick)], "--enable-prompt-tokens-details")...)
	s := startStackWith(t, overrideHostFull, servers, "--forced-endpoint-token-file", tokens)
	return &prefixes{stack: s, server: servers[0], common: 100, own: 500}, servers[1]
}

// servesNone checks that requests which may go to either server go to the other one, once a page says that the first
// sleeps, although that has their prompts.
func (p *prefixes) servesNone(t *testing.T, other string) {
	t.Helper()
	eventually(t, 5*time.Second, "a page says that the server sleeps", func() bool {
		return p.picker.metric("signalbox_endpoint_asleep", p.server) == 1
	})
	before := p.picker.metric("signalbox_endpoint_picks_total", other)
	const times = 4
	for n := range times {
		body := chatBody(model, p.prompt(n), 2, false)
		a := p.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", body, nil)
		if a.status != http.StatusOK {
			t.Fatalf("answered %d while a server sleeps", a.status)
		}
	}
	if n := p.picker.metric("signalbox_endpoint_picks_total", other) - before; n != times {
		t.Errorf("%v of %d requests went to the server that is awake", n, times)
	}
}

// answers waits until the server answers the conversation n.
func (p *prefixes) answers(t *testing.T, n int) {
	t.Helper()
	eventually(t, 10*time.Second, "the server is back", func() bool {
		status, _ := get("http://" + p.server + "/health")
		return status == http.StatusOK && p.status(t, n) == http.StatusOK
	})
}

// prompt returns that of a conversation: all begin alike.
func (p *prefixes) prompt(n int) string {
	return strings.Repeat("Answer politely. ", p.common) + strings.Repeat(fmt.Sprintf("Talk %d goes on. ", n), p.own)
}

func (p *prefixes) status(t *testing.T, n int) int {
	t.Helper()
	header := http.Header{"X-Signalbox-Endpoint": {p.server}, "X-Signalbox-Token": {"s3cret"}}
	body := chatBody(model, p.prompt(n), 2, false)
	a := p.client.do(t.Context(), http.MethodPost, "/v1/chat/completions", body, header)
	p.picker.idle(t)
	return a.status
}

func (p *prefixes) asks(t *testing.T, n int) {
	t.Helper()
	if status := p.status(t, n); status != http.StatusOK {
		t.Fatalf("conversation %d: %d", n, status)
	}
}

// found is what audits have found of the server.
type found struct{ predicted, reported, lost, drifting float64 }

func (p *prefixes) found() found {
	of := func(name string) float64 {
		return p.picker.metric("signalbox_endpoint_prefix_"+name+"_total", p.server)
	}
	drifting := p.picker.metric("signalbox_endpoint_prefix_drifting", p.server)
	return found{of("predicted_tokens"), of("reported_tokens"), of("lost_blocks"), drifting}
}

// shown checks what /debug/endpoints says of it.
func (p *prefixes) shown(t *testing.T, want found) {
	t.Helper()
	_, page := get(p.picker.metrics + "/debug/endpoints?format=json")
	var view struct {
		Endpoints []struct {
			Address string
			Prefix  struct {
				Predicted float64 `json:"predicted_tokens"`
				Reported  float64 `json:"reported_tokens"`
				Lost      float64 `json:"lost_blocks"`
				Drifting  bool
			}
		}
	}
	if err := json.Unmarshal([]byte(page), &view); err != nil {
		t.Fatalf("%v\n%s", err, page)
	}
	for _, e := range view.Endpoints {
		drifting := 0.0
		if e.Prefix.Drifting {
			drifting = 1
		}
		if e.Address == p.server && (found{e.Prefix.Predicted, e.Prefix.Reported, e.Prefix.Lost, drifting}) != want {
			t.Errorf("/debug/endpoints has %+v, want %+v", e.Prefix, want)
		}
	}
	if len(view.Endpoints) != 2 {
		t.Errorf("/debug/endpoints has %d endpoints\n%s", len(view.Endpoints), page)
	}
}
