package kube

import (
	"context"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

const elected = "--ha-enable-leader-election"

func (s *space) leases() string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + s.name + "/leases"
}

// isReady is serving of readiness; a picker that does not answer is not ready.
func (p *picker) isReady() bool {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	r, err := healthpb.NewHealthClient(p.checks).Check(ctx, &healthpb.HealthCheckRequest{Service: "readiness"})
	return err == nil && r.GetStatus() == healthpb.HealthCheckResponse_SERVING
}

// neverBoth fails the test if two pickers are ready at a time, until it is stopped. One that is ready before and after
// the other one was seen ready was so meanwhile, for it takes far longer than two answers to lose the lease and get it.
func neverBoth(t *testing.T, a, b *picker) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			case <-t.Context().Done():
				return
			default:
			}
			if a.isReady() && b.isReady() && a.isReady() {
				t.Error("both are ready")
				return
			}
		}
	}()
	return func() {
		close(ended)
		<-done
	}
}

// standsBy checks that a picker that knows the endpoint a is live and not ready, says who leads, and answers what
// reaches it.
func (p *picker) standsBy(holds string) {
	p.t.Helper()
	p.knows("a-rank-0 10.0.0.1:8000")
	p.follows(holds)
}

// follows is standsBy of a picker whose pages want a token.
func (p *picker) follows(holds string) {
	p.t.Helper()
	eventually(p.t, "/readyz says "+holds, func() bool { return strings.Contains(p.page("/readyz"), holds) })
	p.ready(false)
	if got, status, text := p.pick(); status != http.StatusOK || !strings.HasPrefix(got, "10.0.0.1:") {
		p.t.Errorf("a standby picked %q, %d %s", got, status, text)
	}
}

// One of two pickers is ready. The other one is, once the first has died or ends.
func TestStandbyTakesOver(t *testing.T) {
	s := newSpace(t, shared)
	s.pod("a", "10.0.0.1", vllm, nil)
	s.pool(8000)
	t.Setenv("POD_NAME", "first")
	first := startPicker(t, s.inPool(elected)...)
	first.ready(true)
	t.Setenv("POD_NAME", "second")
	second := startPicker(t, s.inPool(elected)...)
	second.standsBy("not the leader: first leads")
	if page := second.page("/metrics"); !strings.Contains(page, `leader_election_master_status{name="epp-`+s.name+
		`-llama.llm-d.ai"} 0`) {
		t.Error("the metrics of the standby do not say that it stands by")
	}
	lease := s.must(http.MethodGet, s.leases()+"/epp-"+s.name+"-llama.llm-d.ai", "", nil)
	if got := lease["spec"].(map[string]any)["holderIdentity"]; got != "first" {
		t.Errorf("the lease is held by %v, want first", got)
	}
	<-time.After(10 * time.Second) // it stays so
	second.standsBy("not the leader: first leads")

	_ = first.cmd.Process.Kill()
	machine := lateness.Begin()
	machine.Within(t, "ready after the leader was killed", second.ready(true), 8*time.Second)

	t.Setenv("POD_NAME", "third")
	third := startPicker(t, s.inPool(elected)...)
	third.standsBy("not the leader: second leads")
	stop := neverBoth(t, second, third)
	_ = second.cmd.Process.Signal(syscall.SIGTERM)
	machine = lateness.Begin()
	machine.Within(t, "ready after the leader was asked to end", third.ready(true), 1500*time.Millisecond)
	stop()
}

// A leader that is cut off from the API server yields, and the other one leads. It answers what reaches it all the
// while, and leads again when it is asked to.
func TestLeaderIsCutOff(t *testing.T) {
	s := newSpace(t, shared)
	m, kubeconfig := newMiddle(t, shared)
	s.pod("a", "10.0.0.1", vllm, nil)
	s.pool(8000)
	first := startPicker(t, s.inPool("--kubeconfig", kubeconfig, elected)...)
	first.ready(true)
	second := startPicker(t, s.inPool(elected)...)
	second.standsBy("not the leader")
	stopPicks := first.pickAlways()
	stop := neverBoth(t, first, second)
	for _, fault := range []struct {
		begin func()
		cuts  bool // no call gets through; else the lease may move, or not
	}{
		{func() { m.set(true, 0); m.cut() }, true},
		{m.forget, false},
		{func() { m.set(false, 10*time.Second) }, true},
	} {
		fault.begin()
		if fault.cuts {
			machine := lateness.Begin()
			machine.Within(t, "the other one is ready after the cut", second.ready(true), 8*time.Second)
			first.standsBy("not the leader")
		} else {
			<-time.After(10 * time.Second)
		}
		m.set(false, 0)
		m.cut()
		eventually(t, "one is ready", func() bool { return first.isReady() || second.isReady() })
		eventually(t, "the first reaches the lease again", func() bool {
			return !strings.Contains(first.page("/readyz"), "leases.coordination.k8s.io")
		})
		if second.isReady() {
			_ = second.cmd.Process.Signal(syscall.SIGTERM)
			machine := lateness.Begin()
			machine.Within(t, "the first is ready again after SIGTERM", first.ready(true), 1500*time.Millisecond)
			stop()
			second = startPicker(t, s.inPool(elected)...)
			second.standsBy("not the leader")
			stop = neverBoth(t, first, second)
		}
	}
	stop()
	if n := stopPicks(); n < 10 {
		t.Errorf("%d picks meanwhile, want 10 or more", n)
	}
}

// While the API server is away for both no process ends and no pick fails; one is ready again once it is back.
func TestOutageForLeaderAndStandby(t *testing.T) {
	s := newSpace(t, newCluster(t))
	s.pod("a", "10.0.0.1", vllm, nil)
	s.pool(8000)
	first := startPicker(t, s.inPool(elected)...)
	first.ready(true)
	second := startPicker(t, s.inPool(elected)...)
	second.standsBy("not the leader")
	stopFirst, stopSecond, stop := first.pickAlways(), second.pickAlways(), neverBoth(t, first, second)
	s.kill()
	s.http.CloseIdleConnections()
	machine := lateness.Begin()
	machine.Within(t, "not ready after the API server was killed", first.ready(false), 4500*time.Millisecond)
	second.ready(false)
	first.says("leader election: a problem")
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	machine = lateness.Begin()
	machine.Within(t, "one leads after the API server is back", eventually(t, "one is ready", func() bool {
		return first.isReady() || second.isReady()
	}), 8*time.Second)
	stop()
	if a, b := stopFirst(), stopSecond(); a < 10 || b < 10 {
		t.Errorf("%d and %d picks meanwhile, want 10 or more", a, b)
	}
}

// Without the right to leases the picker is not ready, says so, and is once it has the right.
func TestRightToLeasesThatComesLater(t *testing.T) {
	s := newSpace(t, shared)
	s.pod("a", "10.0.0.1", vllm, nil)
	token := s.user("picker")
	s.grant("", "pods")
	p := startPicker(t, "--kubeconfig", s.kubeconfigOf(t, token), "--pool-namespace", s.name,
		"--endpoint-selector", "app=vllm", "--endpoint-target-ports", "8000", elected)
	p.standsBy(`cannot get resource "leases"`)
	p.says(`leases.coordination.k8s.io`)
	s.grant("coordination.k8s.io", "leases", "get", "create", "update")
	machine := lateness.Begin()
	machine.Within(t, "ready after the right came", p.ready(true), 2*time.Second)
	p.says("leader election: all is well again")
}
