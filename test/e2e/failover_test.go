package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// outcome counts the answers of requests that were sent in one phase.
type outcome struct{ sent, whole, refused, cut int }

func (o *outcome) add(a answer) {
	o.sent++
	switch {
	case a.whole():
		o.whole++
	case a.err == nil && a.status != http.StatusOK:
		o.refused++
	default:
		o.cut++
	}
}

// TestEnvoyFailsOpen: Signalbox is killed under load and started again. What was on its streams may end, visibly; of
// what is sent later at most one request per ejection fails; after the restart it picks again within ten seconds.
func TestEnvoyFailsOpen(t *testing.T) {
	seenElsewhere(t)
	s := startStack(t, simulated(t, 2, "--model", model, "--decode-rate", "200", "--prefill-rate", "1000000"))
	work := steady(s.client, 8)
	eventually(t, 10*time.Second, "picks are made", func() bool { return s.picker.picks() >= 50 })

	machine := lateness.Begin()
	s.picker.kill()
	killed := time.Now()
	// Long enough for the first ejection, of five seconds, to end while Signalbox is still away.
	eventually(t, 20*time.Second, "seven seconds without Signalbox",
		func() bool { return time.Since(killed) > 7*time.Second })
	_, late := machine.End()
	// On a busy machine Envoy learns late that its connection is gone.
	noticed := killed.Add(250*time.Millisecond + 2*late)
	restarted := time.Now()
	s.picker.startAgain(t)
	took := eventually(t, 10*time.Second, "picks again", func() bool { return s.picker.picks() > 0 })
	picking := time.Now()
	before := s.picker.picks()
	eventually(t, 10*time.Second, "and goes on", func() bool { return s.picker.picks() >= before+50 })
	answers := work.stop()

	ejections := s.envoy.stat("cluster.epp.outlier_detection.ejections_enforced_total")
	inFlight, away, back := sorted(t, answers, noticed, picking)
	t.Logf("sent before the kill or within %v: %+v", noticed.Sub(killed), inFlight)
	t.Logf("sent while away (%v): %+v, ejections: %d", restarted.Sub(killed).Round(time.Millisecond), away, ejections)
	t.Logf("sent after: %+v; picks again %v after the restart", back, took.Round(time.Millisecond))
	figures(t, "Signalbox killed, alone", answers, killed)
	failed := away.refused + away.cut
	if failed > ejections {
		t.Errorf("%d requests sent while Signalbox was away failed in %d ejections", failed, ejections)
	}
	// However late it learns it, each client waits for one request then. One that costs an ejection may be among them.
	if lost := inFlight.refused + inFlight.cut; lost > 8+ejections-failed {
		t.Errorf("%d requests sent before Envoy noticed failed, but only 8 clients were waiting", lost)
	}
	if away.whole == 0 {
		t.Error("no request was served while Signalbox was away")
	}
	if back.whole != back.sent {
		t.Errorf("requests failed after the restart: %+v", back)
	}
	s.picker.idle(t)
}

// sorted tells apart what was sent before the kill, while Signalbox was away, and after.
// Nothing may end without a word.
func sorted(t *testing.T, answers []answer, killed, picking time.Time) (inFlight, away, back outcome) {
	t.Helper()
	for _, a := range answers {
		switch {
		case a.sent.Before(killed):
			inFlight.add(a)
		case a.sent.Before(picking):
			away.add(a)
		default:
			back.add(a)
		}
		if a.err == nil && a.status == http.StatusOK && !a.whole() {
			t.Errorf("cut short without a word: %s", a.String())
		}
		if a.err == nil && a.status != http.StatusOK && a.status != http.StatusServiceUnavailable {
			t.Errorf("an answer other than 200 and 503: %s", a.String())
		}
	}
	return inFlight, away, back
}

// TestEnvoyBeforeSignalbox: an Envoy that was started first finds Signalbox as soon as it is there.
func TestEnvoyBeforeSignalbox(t *testing.T) {
	seenElsewhere(t)
	servers := simulated(t, 2, quick...)
	p := serve(t, servers)
	p.stop()
	e := startEnvoy(t, overrideHost, p.grpcPort, servers)
	c := newClient(e.url)
	t.Cleanup(c.close)
	eventually(t, 10*time.Second, "envoy knows that the picker is away", func() bool {
		return e.stat("cluster.epp.membership_total") == 1 && e.stat("cluster.epp.health_check.failure") >= 1
	})
	p.startAgain(t)
	e.asksPicker(t)
	if a := c.chat(model, "hello", 2); !a.whole() {
		t.Error(a.String())
	}
	if p.picks() != 1 {
		t.Errorf("%d picks for one request", p.picks())
	}
}
