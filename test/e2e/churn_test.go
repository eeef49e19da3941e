package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// TestEnvoyFollowsTheEndpointsFile: with ORIGINAL_DST an edit of the file adds and removes servers, and nothing fails.
func TestEnvoyFollowsTheEndpointsFile(t *testing.T) {
	servers := simulated(t, 2, quick...)
	first, second := servers[0], servers[1]
	s := startStackWith(t, originalDst, servers[:1])
	work := startLoad(4, func(client, n int) answer {
		return s.client.chat(model, fmt.Sprintf("client %d, question %d", client, n), 20)
	})
	eventually(t, 5*time.Second, "the first server serves", func() bool { return served(first) > 10 })

	machine := lateness.Begin()
	s.picker.setEndpoints(t, servers)
	machine.Within(t, "the added endpoint is known", s.picker.pooled(t, 2), time.Second)
	eventually(t, 5*time.Second, "the added server serves", func() bool { return served(second) > 10 })

	machine = lateness.Begin()
	s.picker.setEndpoints(t, servers[1:])
	machine.Within(t, "the removed endpoint is gone", s.picker.pooled(t, 1), time.Second)
	// What was picked before the removal may still be running.
	eventually(t, 5*time.Second, "the removed server runs nothing", func() bool {
		return seriesSum("http://"+first+"/metrics", "vllm:num_requests_running") == 0
	})
	atFirst, atSecond := served(first), served(second)
	eventually(t, 5*time.Second, "the other one serves on", func() bool { return served(second) > atSecond+20 })
	if now := served(first); now != atFirst {
		t.Errorf("the removed server finished %d more requests", now-atFirst)
	}

	// A file that cannot be read as endpoints keeps the last good set.
	writeFile(t, s.picker.file, "endpoints: [{name: x, address: ")
	eventually(t, 5*time.Second, "signalbox complains about the file", func() bool {
		return containsAll(s.picker.log.text(), []string{s.picker.file + ":", "the last good set stays in force"})
	})
	atSecond = served(second)
	eventually(t, 5*time.Second, "the last good set serves", func() bool { return served(second) > atSecond+20 })

	answers := work.stop()
	failed := 0
	for _, a := range answers {
		if !a.whole() {
			failed++
			t.Error(a.String())
		}
	}
	t.Logf("%d requests, %d failed", len(answers), failed)
	s.picker.idle(t)
}

// TestEnvoySurvivesAServersDeath: a server is killed under load. No request fails that had not been sent to it, and
// none of the others ends without the client being told.
func TestEnvoySurvivesAServersDeath(t *testing.T) {
	seenElsewhere(t)
	doomedProcess, doomed := simulatedProcess(t, 1, slow...)
	survivor := simulated(t, 1, slow...)
	s := startStack(t, []string{doomed[0], survivor[0]})
	const clients = 16
	work := startLoad(clients, func(client, n int) answer {
		return s.client.stream(context.Background(), fmt.Sprintf("client %d, question %d", client, n), 10)
	})
	eventually(t, 20*time.Second, "both servers are at work", func() bool {
		return served(doomed[0]) >= clients && served(survivor[0]) >= clients
	})
	doomedProcess.kill()
	died, killed := time.Now(), work.count()
	eventually(t, 20*time.Second, "clients go on", func() bool { return work.count() > killed+10*clients })
	answers := work.stop()

	figures(t, "server killed", answers, died)
	onlySentOnesFailed(t, s, answers, doomed[0], clients)
}

// onlySentOnesFailed looks at a load during which a server ended: what failed had been sent to it and ended visibly,
// and is no more than there were clients.
func onlySentOnesFailed(t *testing.T, s *stack, answers []answer, dead string, clients int) {
	t.Helper()
	names := make([]string, 0, len(answers))
	for _, a := range answers {
		names = append(names, a.name)
	}
	log := s.envoy.attemptsOf(t, names)
	whole, lost := 0, 0
	for _, a := range answers {
		if a.whole() {
			whole++
			continue
		}
		lost++
		entry := log[a.name]
		switch {
		case !strings.Contains(entry.Hosts, dead) || entry.SentBytes == 0:
			t.Errorf("failed without having been sent to the dead server: %s, %+v", a.String(), entry)
		case a.err == nil && a.status == 200:
			t.Errorf("cut short without a word: %s, %+v", a.String(), entry)
		}
	}
	t.Logf("%d requests: %d whole, %d that were on the dead server ended visibly", len(answers), whole, lost)
	if lost > clients {
		t.Errorf("%d requests failed, but no more than %d were in flight when the server died", lost, clients)
	}
	s.picker.idle(t)
}
