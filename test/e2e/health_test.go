package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// outage is something that befalls the first of three servers under load, and its end.
type outage struct {
	bootstrap string
	begin     func(t *testing.T, s *stack, sick *process)
	end       func(t *testing.T, s *stack)
	flags     []string // of serve
}

func faults(text string) func(*testing.T, *stack, *process) {
	return func(t *testing.T, s *stack, _ *process) {
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

// TestEnvoyLeavesSickServersAlone: once there is evidence, at most five more requests are picked for a server that fails, probes
// included; and ten seconds after its recovery it serves again.
func TestEnvoyLeavesSickServersAlone(t *testing.T) {
	const most = 5
	for name, o := range map[string]outage{
		"every request fails":     {overrideHost, faults(`{"error_rate":1}`), noFaults, nil},
		"it drains":               {overrideHost, faults(`{"draining":true}`), noFaults, nil},
		"its engine is dead":      {overrideHost, faults(`{"engine_dead":true}`), noFaults, nil},
		"answers stop, full lane": {overrideHostFull, faults(`{"stalled":true}`), noFaults, []string{"--first-token-timeout", "1s"}},
		"it is restarted": {overrideHost, func(t *testing.T, s *stack, _ *process) {
			t.Helper()
			change(t, http.MethodPost, "http://"+s.servers[0]+"/sim/restart?down=4s", "")
		}, func(*testing.T, *stack) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			sick, servers := simulatedProcess(t, 1, "--model", model, "--decode-rate", "200", "--prefill-rate", "1000000")
			servers = append(servers, simulated(t, 2, "--model", model, "--decode-rate", "200", "--prefill-rate", "1000000")...)
			s := startStackWith(t, o.bootstrap, servers, o.flags...)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			work := startLoad(12, func(client, n int) answer {
				return s.client.stream(ctx, fmt.Sprintf("client %d, question %d", client, n), 10)
			})
			defer func() {
				leave() // answers that stand still end
				work.stop()
			}()
			eventually(t, 10*time.Second, "each server is picked", func() bool { return s.picks(0) > 20 && s.picks(1) > 20 && s.picks(2) > 20 })
			o.begin(t, s, sick)
			eventually(t, 20*time.Second, "there is evidence", func() bool { return s.picker.metric("signalbox_evidence_total") > 0 })
			before := s.picks(0)
			eventually(t, 10*time.Second, "it is suspended", func() bool { return s.suspended(0) })
			settled := time.Now()
			eventually(t, 10*time.Second, "three seconds pass", func() bool { return time.Since(settled) > 3*time.Second })
			after := s.picks(0)
			o.end(t, s)
			back := eventually(t, 10*time.Second, "it is well again", func() bool { return !s.suspended(0) && s.picks(0) > after })
			t.Logf("%d picks after the first evidence; well again %v after its recovery", after-before, back.Round(time.Millisecond))
			if after-before > most {
				t.Errorf("%d picks after the first evidence, want %d at most", after-before, most)
			}
			if s.suspended(1) || s.suspended(2) {
				t.Error("a server that is well was suspended")
			}
		})
	}
}

// TestEnvoyOverloadSuspendsNobody: what an overloaded engine refuses lowers its preference, no more.
func TestEnvoyOverloadSuspendsNobody(t *testing.T) {
	s := startStack(t, simulated(t, 2, quick...))
	faults(`{"overload_rate":1}`)(t, s, nil)
	for n := range 60 {
		s.client.chat(model, fmt.Sprintf("question %d", n), 2)
	}
	if s.suspended(0) || s.suspended(1) {
		t.Error("a server was suspended for 503")
	}
	if s.picks(0) >= s.picks(1) {
		t.Errorf("%d picks for the overloaded server, %d for the other: want fewer", s.picks(0), s.picks(1))
	}
}

func (s *stack) picks(i int) int {
	return int(s.picker.metric("signalbox_endpoint_picks_total", fmt.Sprintf("endpoint=%q", s.servers[i])))
}

func (s *stack) suspended(i int) bool {
	return s.picker.metric("signalbox_endpoint_suspended", fmt.Sprintf("endpoint=%q", s.servers[i])) == 1
}
