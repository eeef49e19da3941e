package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

const clients = 8 // of a load

// onBoth plays with an Envoy that fails open while no picker is healthy, and with one that then has nowhere to go.
func onBoth(t *testing.T, play func(t *testing.T, cluster string)) {
	t.Helper()
	for _, cluster := range []string{"override-host", "original-dst"} {
		t.Run(cluster, func(t *testing.T) {
			t.Parallel() // it mostly waits
			play(t, cluster)
		})
	}
}

// replica is one of several pickers of a pool. It runs on a port of its own, again and again.
type replica struct {
	*picker
	port   int
	middle *middle  // between it and the API server
	flags  []string // of pool and port
}

// replicas are pickers of a pool of two model servers, behind one Envoy.
type replicas struct {
	*space
	all   []*replica
	envoy *envoy
}

// newReplicas makes the pool, starts the first two of a number of pickers, and Envoy, which knows all of them.
func newReplicas(t *testing.T, c *cluster, count int, envoyCluster string, flags ...string) *replicas {
	t.Helper()
	r := &replicas{space: newSpace(t, c)}
	ports := startServers(t, 2)
	for i, name := range []string{"a", "b"} {
		r.pod(name, "127.0.0.1", vllm, map[string]string{"llm-d.ai/active-ports": strconv.Itoa(ports[i])})
	}
	r.pool(ports...)
	addresses := []string{}
	for range count {
		m, kubeconfig := newMiddle(t, c)
		x := &replica{port: freePort(t), middle: m}
		x.flags = append(r.inPool("--kubeconfig", kubeconfig, "--grpc-port", strconv.Itoa(x.port), "--drain-delay",
			"6s", "--drain-timeout", "20s"), flags...)
		r.all = append(r.all, x)
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", x.port))
	}
	for i, x := range r.all[:2] {
		x.start(t)
		if i == 0 {
			x.ready(true)
		}
	}
	endpoints := fmt.Sprintf("endpoints:\n- {name: a, address: 127.0.0.1, port: %q}\n"+
		"- {name: b, address: 127.0.0.1, port: %q}\n", strconv.Itoa(ports[0]), strconv.Itoa(ports[1]))
	r.envoy = startEnvoy(t, "--secure-serving=false", "--grpc-port", strconv.Itoa(r.all[0].port),
		"--other-picker", strings.Join(addresses[1:], ","), "--endpoints", writeTemp(t, "endpoints.yaml", endpoints),
		"--cluster", envoyCluster)
	return r
}

// start starts the picker, and waits until it knows the model servers.
func (x *replica) start(t *testing.T) {
	t.Helper()
	x.picker = startPicker(t, x.flags...)
	eventually(t, "it knows the model servers", func() bool { return len(x.endpoints()) == 2 })
}

// kill ends the process without notice, and returns when it is gone.
func (x *replica) kill(t *testing.T) time.Time {
	t.Helper()
	_ = x.cmd.Process.Kill()
	x.ends(t)
	return time.Now()
}

// ends waits until the process has ended.
func (x *replica) ends(t *testing.T) {
	t.Helper()
	eventually(t, "it ends", func() bool {
		_, over := x.log.with("\x00")
		return over
	})
}

// leader returns the one of the running replicas that is ready, and the other one.
func (r *replicas) leader(t *testing.T) (leads, standby *replica) {
	t.Helper()
	eventually(t, "one of two leads", func() bool {
		leads, standby = r.all[0], r.all[1]
		if !leads.isReady() {
			leads, standby = standby, leads
		}
		return leads.isReady()
	})
	return leads, standby
}

// begin begins a load that reaches pickers.
func (r *replicas) begin(t *testing.T) *load {
	t.Helper()
	l := r.envoy.startLoad(clients)
	l.goesOn(t, 50)
	return l
}

// smooth checks that no request failed, and that answers came all the while.
func (s shown) smooth(t *testing.T) {
	t.Helper()
	if s.lost+s.failed > 0 {
		t.Errorf("%d requests failed that were sent before, and %d that were sent after, want 0", s.lost, s.failed)
	}
	s.quick(t)
}

// rough checks that no more failed than what was on its way to a picker that died, which takes it a moment, also to
// notice on a machine that is late, and the requests by which Envoy's threads notice.
func (s shown) rough(t *testing.T) {
	t.Helper()
	if s.lost+s.noticing > 2*clients || s.failed-s.noticing > clients/2 {
		t.Errorf("%d requests failed that were sent before, and %d that were sent after, want %d and %d at most",
			s.lost, s.failed, 2*clients, clients/2)
	}
	s.quick(t)
}

// quick checks the longest time in which no answer came.
func (s shown) quick(t *testing.T) {
	t.Helper()
	if limit := 5*time.Second + 2*s.late; s.gap > limit {
		t.Errorf("no answer came for %v, want %v at most", s.gap, limit)
	}
}

// A leader that is killed costs what was on it, and little else.
func TestReplicasLeaderIsKilled(t *testing.T) { onBoth(t, leaderIsKilled) }

func leaderIsKilled(t *testing.T, cluster string) {
	t.Helper()
	r := newReplicas(t, shared, 2, cluster, elected)
	leads, standby := r.leader(t)
	work := r.begin(t)
	killed := leads.kill(t)
	standby.ready(true)
	work.goesOn(t, 200)
	work.stop(t, "leader killed, "+cluster, killed).rough(t)
}

// A leader that is asked to end costs nothing.
func TestReplicasLeaderEnds(t *testing.T) { onBoth(t, leaderEnds) }

func leaderEnds(t *testing.T, cluster string) {
	t.Helper()
	r := newReplicas(t, shared, 2, cluster, elected)
	leads, standby := r.leader(t)
	work := r.begin(t)
	terminated := time.Now()
	_ = leads.cmd.Process.Signal(syscall.SIGTERM)
	machine := lateness.Begin()
	machine.Within(t, "the other one is ready after SIGTERM, "+cluster, standby.ready(true), 1500*time.Millisecond)
	leads.ends(t)
	work.goesOn(t, 200)
	work.stop(t, "leader gets SIGTERM, "+cluster, terminated).smooth(t)
}

// A leader that is cut off from the API server costs nothing.
func TestReplicasLeaderIsCutOff(t *testing.T) { onBoth(t, leaderIsCutOff) }

func leaderIsCutOff(t *testing.T, cluster string) {
	t.Helper()
	r := newReplicas(t, shared, 2, cluster, elected)
	leads, standby := r.leader(t)
	work := r.begin(t)
	cut := time.Now()
	leads.middle.set(true, 0)
	leads.middle.cut()
	machine := lateness.Begin()
	machine.Within(t, "the other one is ready after the cut, "+cluster, standby.ready(true), 8*time.Second)
	leads.ready(false)
	r.envoy.holds(1)
	work.goesOn(t, 200)
	work.stop(t, "leader cut off from the API server, "+cluster, cut).smooth(t)
}

// A rolling restart costs nothing, with a leader and without.
func TestReplicasRestartOneByOne(t *testing.T) {
	for name, of := range map[string]struct {
		cluster string
		flags   []string
		ready   int
	}{
		"with a leader":                   {"override-host", []string{elected}, 1},
		"with a leader, without fallback": {"original-dst", []string{elected}, 1},
		"without a leader":                {"override-host", nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			r := newReplicas(t, shared, 2, of.cluster, of.flags...)
			r.envoy.holds(of.ready)
			work := r.begin(t)
			began := time.Now()
			for _, x := range r.all {
				_ = x.cmd.Process.Signal(syscall.SIGTERM)
				x.ends(t)
				x.start(t)
				r.envoy.holds(of.ready)
			}
			work.goesOn(t, 200)
			work.stop(t, "rolling restart, "+name, began).smooth(t)
		})
	}
}

// An update of the Deployment of deploy/kubernetes/ha starts two new pods and ends both old ones at once.
func TestReplicasAreReplacedAtOnce(t *testing.T) {
	r := newReplicas(t, shared, 4, "override-host", elected)
	r.envoy.holds(1)
	work := r.begin(t)
	began := time.Now()
	for _, x := range r.all[:2] {
		_ = x.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, x := range r.all[2:] {
		x.start(t)
	}
	for _, x := range r.all[:2] {
		x.ends(t)
	}
	r.envoy.holds(1)
	work.goesOn(t, 200)
	work.stop(t, "both replaced at once", began).smooth(t)
}

// Without a leader both serve. One that is killed costs no more than a leader does.
func TestReplicasOneOfTwoIsKilled(t *testing.T) {
	r := newReplicas(t, shared, 2, "override-host")
	r.envoy.holds(2)
	work := r.begin(t)
	killed := r.all[0].kill(t)
	r.envoy.holds(1)
	work.goesOn(t, 200)
	work.stop(t, "one of two that serve killed", killed).rough(t)
}

// While the API server is away for both, neither is ready and clients lose nothing; one leads soon after its return.
func TestReplicasInABlackout(t *testing.T) { onBoth(t, inABlackout) }

func inABlackout(t *testing.T, cluster string) {
	t.Helper()
	c := newCluster(t)
	r := newReplicas(t, c, 2, cluster, elected)
	r.envoy.holds(1)
	work := r.begin(t)
	began := time.Now()
	c.kill()
	c.http.CloseIdleConnections()
	r.all[0].ready(false)
	r.all[1].ready(false)
	r.envoy.holds(0)
	<-time.After(3 * time.Second) // so it stays
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	machine, back := lateness.Begin(), time.Now()
	r.leader(t)
	machine.Within(t, "one leads after the return of the API server, "+cluster, time.Since(back), 8*time.Second)
	r.envoy.holds(1)
	work.goesOn(t, 200)
	work.stop(t, "API server away for both, "+cluster, began).smooth(t)
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := quietPort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func writeTemp(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
