package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"
)

// outage is something that befalls the first of three servers under load, and its end.
type outage struct {
	begin     func(*testing.T, *stack)
	end       func(*testing.T, *stack) // nil = the faults are taken away
	bootstrap string                   // "" = override-host.yaml
	flags     []string                 // of serve
	serves    bool                     // all the while, and stays healthy
	degraded  bool                     // it comes last, and is not ejected
	sign      string                   // the kind of its failures; "" = whichever comes first
}

func faults(text string) func(*testing.T, *stack) {
	return func(t *testing.T, s *stack) {
		t.Helper()
		change(t, http.MethodPut, "http://"+s.servers[0]+"/sim/faults", text)
	}
}

func noFaults(t *testing.T, s *stack) {
	t.Helper()
	change(t, http.MethodDelete, "http://"+s.servers[0]+"/sim/faults", "")
}

func change(t *testing.T, method, url, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode >= 300 {
		t.Fatalf("%s %s: %d", method, url, response.StatusCode)
	}
}

// TestEnvoyEjectsSickServers: once a failure was seen, at most five more requests are picked for a server that fails or
// refuses, probes included; and ten seconds after its recovery it serves again.
func TestEnvoyEjectsSickServers(t *testing.T) {
	impatient := func(limit string) []string { return []string{"--first-token-timeout", limit} }
	outages := map[string]outage{
		"every request fails": {sign: "server-error", begin: faults(`{"error_rate":1}`)},
		"answers stop, full lane": {sign: "no-first-token", begin: faults(`{"stalled":true}`), flags: impatient("2s"),
			bootstrap: overrideHostFull},
		"answers stop": {sign: "no-first-token", begin: faults(`{"stalled":true}`), flags: impatient("3s")},
		"overload":     {sign: "overload\"", begin: faults(`{"overload_rate":1}`), degraded: true},
		"overload, told in the stream": {
			sign: "overload-in-stream", begin: faults(`{"overload_rate":1,"overload_in_stream":true}`), degraded: true,
		},
		"it is restarted": {begin: func(t *testing.T, s *stack) {
			t.Helper()
			change(t, http.MethodPost, "http://"+s.servers[0]+"/sim/restart?down=4s", "")
		}, end: func(*testing.T, *stack) {}},
	}
	if !raceEnabled() || *long { // which would see the same code
		maps.Copy(outages, map[string]outage{
			"it drains":          {sign: "server-error", begin: faults(`{"draining":true}`)},
			"it fails otherwise": {sign: "server-error", begin: faults(`{"error_rate":1,"error_status":502}`)},
			"its engine is dead": {sign: "server-error", begin: faults(`{"engine_dead":true}`)},
			"its engine dies":    {sign: "server-error", begin: faults(`{"engine_dies_after_tokens":30}`)},
			"answers have no body": {sign: "no-first-token", begin: faults(`{"stall_rate":1}`),
				flags: impatient("3s")},
			"its page is an error": {sign: "scrape-failed", begin: faults(`{"page_broken":"error"}`), serves: true},
			"its page is cut":      {sign: "scrape-failed", begin: faults(`{"page_broken":"cut"}`), serves: true},
			"its page is garbled": {sign: "scrape-failed", begin: faults(`{"page_broken":"garbled"}`),
				serves: true},
			"its page takes too long": {sign: "scrape-failed", begin: faults(`{"page_delay":"1m"}`), serves: true},
			"its page is huge":        {sign: "scrape-failed", begin: faults(`{"page_bytes":67108864}`), serves: true},
		})
	}
	for name, o := range outages {
		t.Run(name, o.strike)
	}
}

func (o outage) strike(t *testing.T) {
	t.Parallel() // it mostly waits
	const most = 5
	s := startStackWith(t, cmp.Or(o.bootstrap, overrideHost), simulated(t, 3, "--model", model, "--decode-rate", "200",
		"--prefill-rate", "1000000"), o.flags...)
	ctx, leave := context.WithCancel(t.Context())
	work := startLoad(12, func(client, n int) answer {
		ctx, giveUp := context.WithTimeout(ctx, 8*time.Second) // some stand still for as long as their client waits
		defer giveUp()
		return s.client.stream(ctx, fmt.Sprintf("client %d, question %d", client, n), 10)
	})
	defer func() {
		leave()
		work.stop()
	}()
	eventually(t, 10*time.Second, "each server is picked", func() bool {
		return s.picks(0) > 20 && s.picks(1) > 20 &&
			s.picks(2) > 20
	})
	o.begin(t, s)
	eventually(t, 20*time.Second, "a failure was seen", func() bool {
		return s.picker.metric("signalbox_endpoint_failures_total", "kind=\""+o.sign) > 0
	})
	before := s.picks(0)
	if !o.serves && !o.degraded {
		eventually(t, 10*time.Second, "it is ejected", func() bool { return s.ejected(0) })
	}
	settled := time.Now()
	eventually(t, 10*time.Second, "four seconds pass", func() bool { return time.Since(settled) > 4*time.Second })
	after := s.picks(0)
	if o.end == nil {
		o.end = noFaults
	}
	o.end(t, s)
	back := eventually(t, 10*time.Second, "it is healthy again",
		func() bool { return !s.ejected(0) && s.picks(0) > after })
	t.Logf("%d picks after the first failure; healthy again %v after its recovery", after-before,
		back.Round(time.Millisecond))
	if after-before > most {
		t.Errorf("%d picks after the first failure, want %d at most", after-before, most)
	}
	if s.ejected(1) || s.ejected(2) {
		t.Error("a healthy server was ejected")
	}
	if o.degraded && s.picker.metric("signalbox_endpoint_ejections_total", "") != 0 {
		t.Error("overload ejected a server")
	}
}

// TestEnvoyOverloadEjectsNothing: what an overloaded engine refuses lowers its preference, no more, though it is always
// the idle one of two. An answer that stops in the middle may be one whose client does not read: such a server is
// picked less for the load that stays on it.
func TestEnvoyOverloadEjectsNothing(t *testing.T) {
	seenElsewhere(t)
	for name, text := range map[string]string{
		"overload":                     `{"overload_rate":1}`,
		"overload, told in the stream": `{"overload_rate":1,"overload_in_stream":true}`,
		"answers stop in the middle":   `{"stall_rate":1,"stall_tokens":3}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			s := startStackWith(t, overrideHost, simulated(t, 2, quick...), "--first-token-timeout", "1s")
			faults(text)(t, s)
			const clients = 8
			work := startLoad(clients, func(client, n int) answer {
				ctx, giveUp := context.WithTimeout(t.Context(), 2*time.Second)
				defer giveUp()
				return s.client.stream(ctx, fmt.Sprintf("client %d, question %d", client, n), 10)
			})
			ejected := false
			began := time.Now()
			eventually(t, 20*time.Second, "five seconds and 100 requests", func() bool {
				ejected = ejected || s.ejected(0) || s.ejected(1)
				return time.Since(began) > 5*time.Second && work.count() > 100
			})
			work.stop()
			if ejected {
				t.Error("a server was ejected")
			}
			t.Logf("%d picks for the faulty server, %d for the other", s.picks(0), s.picks(1))
			// a server that stalls has what its clients bear every two seconds
			if most := max(5*clients, s.picks(1)/4); s.picks(0) > most {
				t.Errorf("%d picks for the faulty server, want %d at most", s.picks(0), most)
			}
			noFaults(t, s)
			s.picker.idle(t)
		})
	}
}

func (s *stack) picks(i int) int {
	return int(s.picker.metric("signalbox_endpoint_picks_total", fmt.Sprintf("endpoint=%q", s.servers[i])))
}

func (s *stack) ejected(i int) bool {
	return s.picker.metric("signalbox_endpoint_ejected", fmt.Sprintf("endpoint=%q", s.servers[i])) == 1
}
