package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lanes are the bootstraps of both lanes.
var lanes = map[string]string{"light": overrideHost, "full": overrideHostFull}

// TestEnvoyDies under load, and another is started at its address: all that it held ends visibly, nothing stays in
// flight here, and once the other one listens no request fails.
func TestEnvoyDies(t *testing.T) {
	seenElsewhere(t)
	t.Parallel() // it mostly waits
	for lane, bootstrap := range lanes {
		t.Run(lane, func(t *testing.T) {
			const clients = 16
			s := startStackWith(t, bootstrap, simulated(t, 2, brisk...))
			address := strings.TrimPrefix(s.envoy.url, "http://")
			work := steady(s.client, clients)
			eventually(t, 10*time.Second, "picks are made", func() bool { return s.picker.picks() > 100 })
			killed := time.Now()
			s.envoy.kill()
			if lane == "full" { // the light lane waits 8 s for log entries, while others are served
				s.picker.idle(t)
				t.Logf("nothing in flight %v after it", time.Since(killed).Round(time.Millisecond))
			}
			s.envoy = startEnvoy(t, bootstrap, s.picker.grpcPort, s.servers,
				func(text string) string { return listenOn(t, text, address) })
			listens := time.Now()
			s.envoy.asksPicker(t)
			sent := work.count()
			eventually(t, 20*time.Second, "clients go on", func() bool { return work.count() > sent+300 })
			answers := work.stop()
			before, after, _ := figures(t, "Envoy killed, another started, "+lane+" lane", answers, killed)
			t.Logf("%d of those after it found nobody who listens; the other one was up after %v",
				refusedDials(answers), listens.Sub(killed).Round(time.Millisecond))
			// Of those after it, some may have been sent while it was about to die.
			if lost := before.sent - before.whole + after.sent - after.whole - refusedDials(answers); lost > clients {
				t.Errorf("%d requests failed of %d clients, beside those that found nobody who listens", lost, clients)
			}
			for _, a := range answers {
				if !a.whole() && (a.err == nil || a.sent.After(listens)) {
					t.Errorf("cut without a word, or though an Envoy was there: %s", a.String())
				}
			}
			s.picker.idle(t)
			t.Logf("all idle %v after it; %v requests were never logged", time.Since(killed).Round(time.Millisecond),
				s.picker.metric("signalbox_unlogged_total"))
		})
	}
}

// listenOn makes a bootstrap's listener take an address that another one had.
func listenOn(t *testing.T, text, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(text, "  listeners:\n")
	if at < 0 || !strings.Contains(text[at:], "port_value: 0") {
		t.Fatal("the bootstrap has no listener with any free port")
	}
	return text[:at] + strings.Replace(text[at:], "port_value: 0", "port_value: "+port, 1)
}

// refusedDials counts the requests that were sent to a server that is gone.
func refusedDials(answers []answer) int {
	n := 0
	for _, a := range answers {
		if errors.Is(a.err, syscall.ECONNREFUSED) {
			n++
		}
	}
	return n
}

// TestEnvoyVanishes: between Envoy and Signalbox nothing arrives any more, without a close, as when a host is gone.
// Keepalives end within a minute what was in flight here; requests go on by the fallback once Envoy has noticed.
func TestEnvoyVanishes(t *testing.T) {
	if !*long {
		t.Log("*** LEFT OUT: it takes a minute. Run `make e2e-long`. ***")
		return
	}
	for lane, bootstrap := range lanes {
		t.Run(lane, func(t *testing.T) { vanishes(t, lane, bootstrap) })
	}
}

func vanishes(t *testing.T, lane, bootstrap string) {
	const clients, stories = 8, 16
	servers := simulated(t, 2, brisk...)
	s := &stack{servers: servers, picker: serve(t, servers)}
	s.picker.pooled(t, 2)
	port, cut := deadLink(t, s.picker.grpcPort)
	s.envoy = startEnvoy(t, bootstrap, port, servers)
	s.envoy.asksPicker(t)
	s.client = newClient(s.envoy.url)
	t.Cleanup(s.client.close)
	ctx, leave := context.WithCancel(t.Context())
	told := make(chan answer, stories)
	for i := range stories { // they run on while nothing arrives
		go func() { told <- s.client.stream(ctx, fmt.Sprintf("story %d", i), 10000) }()
	}
	s.picker.inFlight(t, stories)
	work := steady(s.client, clients)
	eventually(t, 10*time.Second, "picks are made", func() bool { return s.picker.picks() > 100 })
	cut()
	at := time.Now()
	for _, gauge := range append([]string{"signalbox_streams"}, gauges...) {
		eventually(t, time.Minute-time.Since(at), gauge+" at 0", func() bool { return s.picker.metric(gauge) == 0 })
	}
	released := time.Since(at)
	sent := work.count()
	eventually(t, time.Minute, "requests are served without a picker", func() bool { return work.count() > sent+50 })
	leave()
	for range stories {
		<-told
	}
	before, after, _ := figures(t, "the link to Envoy's host goes dead, "+lane+" lane", work.stop(), at)
	t.Logf("nothing in flight %v after it", released.Round(time.Millisecond))
	if lost := before.sent - before.whole + after.sent - after.whole; lost > 2*clients {
		t.Errorf("%d requests failed of %d clients", lost, clients)
	}
}
