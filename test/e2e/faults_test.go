package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// figures prints the line of a fault, and gives those of the requests that were sent before it and after it. The gap is
// the longest time after the fault in which no answer came whole.
func figures(t *testing.T, fault string, answers []answer, at time.Time) (before, after outcome, gap time.Duration) {
	t.Helper()
	var whole []time.Time
	end := at
	for i := range answers {
		a := &answers[i]
		if a.sent.Before(at) {
			before.add(*a)
		} else {
			after.add(*a)
		}
		if a.ended.After(at) && a.whole() {
			whole = append(whole, a.ended)
		}
		if a.ended.After(end) {
			end = a.ended
		}
	}
	gap = longestGap(append(whole, end), at)
	t.Logf("FIGURES | %s | sent before it: %d, failed: %d | sent after it: %d, failed: %d | longest gap %v |",
		fault, before.sent, before.sent-before.whole, after.sent, after.sent-after.whole, gap.Round(time.Millisecond))
	return before, after, gap
}

func longestGap(times []time.Time, from time.Time) time.Duration {
	slices.SortFunc(times, time.Time.Compare)
	gap := time.Duration(0)
	for _, at := range times {
		gap = max(gap, at.Sub(from))
		from = at
	}
	return gap
}

// steady are clients with streams of about 60 ms that wait a moment after a failure, as clients do: each its own, for
// those that fail together would otherwise come again together, all before Envoy can eject whom they failed at.
func steady(c *client, clients int) *load {
	return startLoad(clients, func(client, n int) answer {
		a := c.stream(context.Background(), fmt.Sprintf("client %d, question %d", client, n), 10)
		if !a.whole() {
			<-time.After(time.Duration(50+10*client) * time.Millisecond)
		}
		return a
	})
}

// brisk servers take 5 ms for a token.
var brisk = []string{"--model", model, "--decode-rate", "200", "--prefill-rate", "1000000", "--max-num-seqs", "256"}

// TestEnvoyOutlivesOneOfTwoPickers: each of two is killed in turn under load, and started again. Of the requests that
// it had not accepted at most two fail a time.
func TestEnvoyOutlivesOneOfTwoPickers(t *testing.T) {
	const clients, most = 8, 2
	servers := simulated(t, 2, brisk...)
	pickers := []*picker{serve(t, servers), serve(t, servers)}
	for _, p := range pickers {
		p.pooled(t, 2)
	}
	e := startText(t, besideAnother(t, pickers[0], pickers[1]))
	c := newClient(e.url)
	t.Cleanup(c.close)
	for i, doomed := range pickers {
		eventually(t, 20*time.Second, "envoy holds both pickers healthy",
			func() bool { return e.stat("cluster.epp.membership_healthy") == 2 })
		work := steady(c, clients)
		picks := []int{pickers[0].picks(), pickers[1].picks()}
		eventually(t, 20*time.Second, "both pick", func() bool {
			return pickers[0].picks() > picks[0]+50 &&
				pickers[1].picks() > picks[1]+50
		})
		doomed.kill()
		killed, sent := time.Now(), work.count()
		eventually(t, 30*time.Second, "the other one picks on",
			func() bool { return time.Since(killed) > 2*time.Second && work.count() > sent+300 })
		before, after, _ := figures(t, fmt.Sprintf("Signalbox killed, %d of two", i+1), work.stop(), killed)
		if failed := after.sent - after.whole; failed > most {
			t.Errorf("%d of %d requests failed that were sent after it was dead, want %d at most", failed, after.sent,
				most)
		}
		if lost := before.sent - before.whole; lost > clients {
			t.Errorf("%d requests failed that were sent before, but only %d clients were waiting", lost, clients)
		}
		pickers[1-i].idle(t)
		doomed.startAgain(t)
		doomed.pooled(t, 2)
	}
}

// TestEnvoyRidesOutAnEmptyPool: the endpoints file is emptied and filled again. What runs comes whole, what is sent
// while it is empty gets 503 at once, and nothing else fails.
func TestEnvoyRidesOutAnEmptyPool(t *testing.T) {
	seenElsewhere(t)
	s := startStack(t, simulated(t, 2, brisk...))
	work := steady(s.client, 8)
	eventually(t, 10*time.Second, "picks are made", func() bool { return s.picker.picks() > 50 })
	emptied := time.Now()
	s.picker.setEndpoints(t, nil)
	s.picker.pooled(t, 0)
	eventually(t, 10*time.Second, "two seconds without servers",
		func() bool { return time.Since(emptied) > 2*time.Second })
	s.picker.setEndpoints(t, s.servers)
	s.picker.pooled(t, 2)
	filled, sent := time.Now(), work.count()
	eventually(t, 20*time.Second, "requests are served again", func() bool { return work.count() > sent+200 })
	answers := work.stop()
	before, _, gap := figures(t, "endpoints file emptied for 2 s and filled again", answers, emptied)
	if before.whole != before.sent {
		t.Errorf("what ran was lost: %+v", before)
	}
	for _, a := range answers {
		switch {
		case a.whole():
		case a.err != nil || a.status != http.StatusServiceUnavailable || a.ended.Sub(a.sent) > time.Second:
			t.Errorf("not refused at once: %s", a.String())
		case a.sent.After(filled):
			t.Errorf("refused after the pool was full again: %s", a.String())
		}
	}
	if limit := filled.Sub(emptied) + time.Second; gap > limit {
		t.Errorf("no answer for %v, want %v at most", gap, limit)
	}
	s.picker.idle(t)
}

// TestEnvoyPassesAStalledServer: one of two servers stops in the middle of all answers, without a close. Clients give
// up after a second and ask again; no request fails but those that hung there, and the other server goes on.
func TestEnvoyPassesAStalledServer(t *testing.T) {
	seenElsewhere(t)
	for lane, bootstrap := range map[string]string{"light": overrideHost, "full": overrideHostFull} {
		t.Run(lane, func(t *testing.T) {
			const clients, patience = 8, time.Second
			s := startStackWith(t, bootstrap, simulated(t, 2, brisk...), "--first-token-timeout", "500ms")
			work := startLoad(clients, func(client, n int) answer {
				ctx, giveUp := context.WithTimeout(context.Background(), patience)
				defer giveUp()
				return s.client.stream(ctx, fmt.Sprintf("client %d, question %d", client, n), 10)
			})
			eventually(t, 10*time.Second, "both servers are picked",
				func() bool { return s.picks(0) > 20 && s.picks(1) > 20 })
			stalled := time.Now()
			faults(`{"stalled":true}`)(t, s)
			// In the light lane the access log says so, at the latest when the first clients have given up. Was only
			// one answer silent (the others had begun), then the server comes last for 10 s,
			// and is ejected for the next.
			eventually(t, 20*time.Second, "the server is ejected", func() bool { return s.ejected(0) })
			sent := work.count()
			eventually(t, 30*time.Second, "clients go on", func() bool {
				return work.count() > sent+100 &&
					time.Since(stalled) > 3*patience
			})
			answers := work.stop()
			_, _, gap := figures(t, "server stalled for 3 s, "+lane+" lane, clients give up after 1 s", answers,
				stalled)
			for _, a := range answers {
				if !a.whole() && !errors.Is(a.err, context.DeadlineExceeded) {
					t.Errorf("failed although it did not hang: %s", a.String())
				}
			}
			if gap > 2*patience {
				t.Errorf("no answer for %v", gap)
			}
			noFaults(t, s)
			s.picker.idle(t)
		})
	}
}

// TestEnvoyKeepsStreamsInADrain: SIGTERM with 200 answers on the streams of the full lane, each shorter than the drain
// timeout and longer than its delay, loses none, nor a request of clients that are at work beside them.
func TestEnvoyKeepsStreamsInADrain(t *testing.T) {
	seenElsewhere(t)
	t.Parallel() // it mostly waits
	const running, delay = 200, 6 * time.Second
	servers := simulated(t, 2, "--model", model, "--decode-rate", "50", "--prefill-rate", "1000000", "--max-num-seqs",
		"256")
	s := startStackWith(t, overrideHostFull, servers, "--drain-delay", delay.String(), "--drain-timeout", "25s")
	stories := startStories(s.client, running, 500)
	s.picker.inFlight(t, running)
	work := steady(s.client, 8)
	eventually(t, 10*time.Second, "clients are at work", func() bool { return work.count() > 16 })
	terminated := time.Now()
	s.picker.signal(t, syscall.SIGTERM)
	answers, late := stories(), 0
	for _, a := range answers {
		if a.ended.Sub(terminated) > delay {
			late++
		}
	}
	figures(t, "SIGTERM with 200 answers running, full lane: those", answers, terminated)
	if code := s.picker.exitCode(t, 20*time.Second); code != 0 || strings.Contains(s.picker.log.text(), "streams cut") {
		t.Errorf("exit code %d, or streams were cut", code)
	}
	sent := work.count()
	eventually(t, 10*time.Second, "requests go on without a picker", func() bool { return work.count() >= sent+50 })
	others := work.stop()
	figures(t, "the clients beside them", others, terminated)
	for _, a := range append(answers, others...) {
		if !a.whole() {
			t.Error(a.String())
		}
	}
	if late < running/2 {
		t.Errorf("%d answers ended after the drain delay: the test proves little", late)
	}
}
