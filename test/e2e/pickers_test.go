package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// TestEnvoyTwoPickers: each picker has a log of its own, and takes what is its own from it; the other's entries are
// dropped. Both are idle once the load is over, and so is each after the other was killed under load.
func TestEnvoyTwoPickers(t *testing.T) {
	t.Parallel() // it mostly waits
	servers := simulated(t, 2, "--model", model, "--decode-rate", "200", "--prefill-rate", "1000000")
	pickers := []*picker{serve(t, servers), serve(t, servers)}
	for _, p := range pickers {
		p.pooled(t, 2)
	}
	e := startText(t, share(t, 10)(besideAnother(t, pickers[0], pickers[1])))
	c := newClient(e.url)
	t.Cleanup(c.close)
	begin := func() *load {
		eventually(t, 20*time.Second, "envoy holds both pickers healthy",
			func() bool { return e.stat("cluster.epp.membership_healthy") == 2 })
		picks := []int{pickers[0].picks(), pickers[1].picks()}
		work := startLoad(8, func(client, n int) answer {
			return c.stream(context.Background(), fmt.Sprintf("client %d, question %d", client, n), 20)
		})
		eventually(t, 20*time.Second, "both pick", func() bool {
			return pickers[0].picks() > picks[0]+100 &&
				pickers[1].picks() > picks[1]+100
		})
		return work
	}
	for _, a := range begin().stop() {
		if !a.whole() {
			t.Error(a.String())
		}
	}
	for _, p := range pickers {
		p.ownUp(t)
	}
	for i, doomed := range pickers {
		other := pickers[1-i]
		work := begin()
		doomed.kill()
		before := other.picks()
		eventually(t, 20*time.Second, "one picks on", func() bool { return other.picks() > before+200 })
		var o outcome
		for _, a := range work.stop() {
			o.add(a)
		}
		t.Logf("%d of two killed: %+v", i+1, o)
		other.ownUp(t)
		doomed.startAgain(t)
		doomed.pooled(t, 2)
	}
}

// ownUp waits until a picker of two has nothing in flight, and every load is zero.
// It must have seen what is not its own.
func (p *picker) ownUp(t *testing.T) {
	t.Helper()
	p.idle(t)
	eventually(t, 5*time.Second, "the load of each endpoint is zero", func() bool {
		return len(p.account("llm_d_epp_inflight_requests", "llm_d_epp_inflight_tokens",
			"signalbox_endpoint_inflight_requests")) == 0
	})
	if p.metric("signalbox_access_log_entries_total", `whose="foreign"`) == 0 {
		t.Error("no entry of the other instance came: the logs are not apart")
	}
	if n := p.metric("signalbox_unlogged_total"); n != 0 {
		t.Errorf("%v requests were never logged", n)
	}
}

// besideAnother is a bootstrap for two pickers, each with an access log of its own.
func besideAnother(t *testing.T, one, other *picker) string {
	t.Helper()
	return printedFor(t, one, "--other-picker", fmt.Sprintf("127.0.0.1:%d", other.grpcPort))
}
