package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// patientFor gives each client so long for a whole answer.
func patientFor(s *stack, patience time.Duration, flow string) func(client, n int) answer {
	header := http.Header{"Content-Type": {"application/json"}}
	if flow != "" {
		header.Set("x-gateway-inference-fairness-id", flow)
	}
	return func(client, n int) answer {
		ctx, giveUp := context.WithTimeout(context.Background(), patience)
		defer giveUp()
		prompt := fmt.Sprintf("%s client %d, question %d", flow, client, n)
		return s.client.do(ctx, http.MethodPost, "/v1/chat/completions", chatBody(model, prompt, 10, true), header)
	}
}

// TestEnvoyEjectsAServerThatClientsLeave: clients that wait for two seconds leave a server that hangs behind a good
// metrics page. Long before silence counts by itself, the server is ejected, and none of its requests is shown as 200.
func TestEnvoyEjectsAServerThatClientsLeave(t *testing.T) {
	t.Parallel() // it mostly waits
	for lane, bootstrap := range lanes {
		t.Run(lane, func(t *testing.T) {
			s := startStackWith(t, bootstrap, simulated(t, 3, brisk...))
			work := startLoad(8, patientFor(s, 2*time.Second, ""))
			eventually(t, 10*time.Second, "each server is picked", func() bool {
				return s.picks(0) > 5 && s.picks(1) > 5 && s.picks(2) > 5
			})
			faults(`{"stalled":true}`)(t, s)
			took := eventually(t, 30*time.Second, "the server is ejected", func() bool { return s.ejected(0) })
			lost := 0
			for _, a := range work.stop() {
				if !a.whole() {
					lost++
				}
			}
			t.Logf("ejected after %v, %d answers lost", took, lost)
			if n := s.picker.metric("signalbox_endpoint_failures_total", `kind="clients-left"`); n == 0 {
				t.Error("it is not ejected for the clients that left it")
			}
			_, list := get(s.picker.metrics + "/debug/requests?format=text&limit=1000&endpoint=" + s.servers[0])
			left := 0
			for line := range strings.Lines(list) {
				fields := strings.Fields(line)
				if len(fields) > 6 && fields[4] == "200" && fields[6] == "-" && !strings.Contains(line, "running") {
					t.Errorf("without a first token, and shown as 200: %s", line)
				}
				if strings.Contains(line, "context-cancelled") {
					left++
				}
			}
			if left == 0 {
				t.Errorf("no client is shown as one that left:\n%s", list)
			}
		})
	}
}

// TestEnvoyKeepsServersThatAFlowAlwaysLeaves: a flow whose clients always leave before the first token ejects nothing,
// while others wait for theirs and get them.
func TestEnvoyKeepsServersThatAFlowAlwaysLeaves(t *testing.T) {
	t.Parallel() // it mostly waits
	s := startStackWith(t, overrideHostFull, simulated(t, 2, "--model", model, "--decode-rate", "200",
		"--prefill-rate", "40"))
	begun := time.Now()
	hasty := startLoad(4, patientFor(s, 100*time.Millisecond, "hasty"))
	others := startLoad(2, patientFor(s, time.Minute, ""))
	eventually(t, 60*time.Second, "others are served for ten seconds", func() bool {
		return time.Since(begun) > 10*time.Second && others.count() > 4
	})
	hasty.stop()
	for _, a := range others.stop() {
		if !a.whole() {
			t.Error(a.String())
		}
	}
	if n := s.picker.metric("signalbox_endpoint_failures_total", `kind="clients-left"`); n != 0 {
		t.Errorf("%v leaves count as failures", n)
	}
}
