package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

// healthNames are what gRPC health answers for. The first says that the process works, the others whether it serves.
var healthNames = []string{"liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"}

// unserving waits until every health name on both ports but liveness, and the readiness page, say no.
func unserving(t *testing.T, p *picker, within time.Duration, conns ...*grpc.ClientConn) {
	t.Helper()
	for _, conn := range conns {
		for _, name := range healthNames[1:] {
			eventually(t, within, name+" is NOT_SERVING", func() bool {
				return healthOf(conn, name) == healthpb.HealthCheckResponse_NOT_SERVING
			})
		}
		if got := healthOf(conn, healthNames[0]); got != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("liveness in the drain: %v, want SERVING", got)
		}
	}
	eventually(t, within, "/readyz says 503", func() bool {
		code, _ := get(p.metrics + "/readyz")
		return code == http.StatusServiceUnavailable
	})
}

// TestCommandDrains plays every kind of stream through a whole shutdown that comes to its deadline.
func TestCommandDrains(t *testing.T) {
	const delay, timeout = 2 * time.Second, 4 * time.Second // for a busy machine
	p := serve(t, simulated(t, 1, quick...), "--drain-delay", delay.String(), "--drain-timeout", timeout.String())
	p.pooled(t, 1)
	conn, checks := dial(t, p.grpcPort), dialPlain(t, p.healthPort)
	for _, name := range healthNames {
		eventually(t, 5*time.Second, name+" is SERVING", func() bool {
			return healthOf(checks, name) == healthpb.HealthCheckResponse_SERVING
		})
	}
	waiting := openExchange(t, conn)
	waiting.begin()
	running, open, ending := picked(t, conn), picked(t, conn), picked(t, conn)
	open.respond(false)
	ending.respond(false)
	eventually(t, 5*time.Second, "four streams", func() bool { return p.metric("signalbox_streams") == 4 })

	machine, terminated := lateness.Begin(), time.Now()
	p.signal(t, syscall.SIGTERM)
	unserving(t, p, delay/2, conn, checks)
	picked(t, conn).respond(true) // still taken
	if took := time.Since(terminated); took > delay {
		t.Fatalf("the machine is too slow for this test: %v for one exchange", took)
	}
	goneAway(t, conn, timeout)
	if early := time.Since(terminated); early < delay {
		t.Errorf("GOAWAY came after %v, want not before %v", early, delay)
	}
	ending.last() // what was open may end after GOAWAY
	if code, reason := waiting.refused(); code != 503 || reason != "rejected-shutting-down" {
		t.Errorf("what waits at the deadline got %d %q", code, reason)
	}
	if at := time.Since(terminated); at < timeout {
		t.Errorf("what waits was refused after %v, want not before %v", at, timeout)
	}
	for name, x := range map[string]*exchange{"running": running, "open": open} {
		if answer, err := x.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("%s at the deadline: %v, %v; want it cut", name, answer, err)
		}
	}
	if code := p.exitCode(t, 3*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	machine.Within(t, "gone", time.Since(terminated), timeout+2*time.Second)
	if cut := p.logged(t, "streams cut")["streams"]; cut != 2.0 {
		t.Errorf("%v streams cut by its log, want 2", cut)
	}
}

// TestCommandDrainsNoLongerThanItMust: once the delay is over and no stream is open, nothing is waited for.
func TestCommandDrainsNoLongerThanItMust(t *testing.T) {
	seenElsewhere(t)
	const delay = 300 * time.Millisecond
	cases := map[string]func(t *testing.T, p *picker){
		"a stream ends":                   endsLater,
		"an idle connection":              func(t *testing.T, p *picker) { healthOf(dial(t, p.grpcPort), "") },
		"connections that say nothing":    connectSilently,
		"somebody who watches the health": watchesHealth,
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			p := serve(t, simulated(t, 1, quick...), "--drain-delay", delay.String(), "--drain-timeout", "20s")
			p.pooled(t, 1)
			prepare(t, p)
			machine, terminated := lateness.Begin(), time.Now()
			p.signal(t, syscall.SIGTERM)
			if code := p.exitCode(t, 10*time.Second); code != 0 {
				t.Errorf("exit code %d", code)
			}
			took := time.Since(terminated)
			if took < delay {
				t.Errorf("gone after %v, want %v and a little", took, delay)
			}
			machine.Within(t, "gone", took, delay+5*time.Second)
			if strings.Contains(p.log.text(), "streams cut") {
				t.Error("streams were cut")
			}
		})
	}
}

// endsLater opens a stream that ends when it has seen GOAWAY.
func endsLater(t *testing.T, p *picker) {
	t.Helper()
	conn := dial(t, p.grpcPort)
	x := picked(t, conn)
	x.respond(false)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		goneAway(t, conn, 10*time.Second)
		x.last()
	}()
	t.Cleanup(func() { <-ended })
}

func watchesHealth(t *testing.T, p *picker) {
	t.Helper()
	for _, conn := range []*grpc.ClientConn{dial(t, p.grpcPort), dialPlain(t, p.healthPort)} {
		watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(),
			&healthpb.HealthCheckRequest{Service: "readiness"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCommandEndsAtOnce: the second signal does not wait for anything, once half a second has passed since the first.
func TestCommandEndsAtOnce(t *testing.T) {
	for _, second := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(second.String(), func(t *testing.T) {
			p := serve(t, simulated(t, 1, quick...), "--drain-delay", "10s", "--drain-timeout", "20s")
			p.pooled(t, 1)
			first := time.Now()
			p.signal(t, syscall.SIGTERM)
			unserving(t, p, 2*time.Second)
			eventually(t, 2*time.Second, "a second signal counts",
				func() bool { return time.Since(first) > 600*time.Millisecond })
			again := time.Now()
			p.signal(t, second)
			if code := p.exitCode(t, 2*time.Second); code != 128+int(second) {
				t.Errorf("exit code %d, want %d", code, 128+int(second))
			}
			t.Logf("gone %v after the second signal", time.Since(again))
		})
	}
}

// TestCommandTakesOneCtrlCForOne: a terminal sends SIGINT to the whole group, and a parent passes its own on. That is
// one order to end, in good order.
func TestCommandTakesOneCtrlCForOne(t *testing.T) {
	const delay = time.Second
	var p *picker
	var began time.Time
	for tries := 0; tries == 0 || time.Since(began) > 400*time.Millisecond; tries++ {
		if tries == 10 {
			t.Fatal("the machine is too slow for this test")
		}
		p = serve(t, simulated(t, 1, quick...), "--drain-delay", delay.String())
		p.pooled(t, 1)
		began = time.Now()
		p.signal(t, syscall.SIGINT)
		unserving(t, p, 2*time.Second) // the first is taken: the two do not merge into one
	}
	p.signal(t, syscall.SIGINT)
	if code := p.exitCode(t, 10*time.Second); code != 0 {
		t.Errorf("exit code %d, want 0\n%s", code, tail(p.log.text(), 5))
	}
	if took := time.Since(began); took < delay {
		t.Errorf("gone after %v, want the delay of %v", took, delay)
	}
}

// TestEnvoyLosesNothingInADrain: a planned stop with the default delay costs no request, neither those that run nor
// those that come while Envoy has not noticed.
func TestEnvoyLosesNothingInADrain(t *testing.T) {
	t.Parallel() // it mostly waits
	s := startStack(t, simulated(t, 2, "--model", model, "--decode-rate", "200", "--prefill-rate", "1000000"),
		"--drain-delay", "6s")
	work := startLoad(8, func(client, n int) answer {
		return s.client.stream(context.Background(), fmt.Sprintf("client %d, question %d", client, n), 20)
	})
	eventually(t, 10*time.Second, "picks are made", func() bool { return s.picker.picks() >= 50 })
	terminated := time.Now()
	s.picker.signal(t, syscall.SIGTERM)
	eventually(t, 6*time.Second, "envoy has noticed",
		func() bool { return s.envoy.stat("cluster.epp.membership_healthy") == 0 })
	noticed := time.Since(terminated)
	if code := s.picker.exitCode(t, 10*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	took, sent := time.Since(terminated), work.count()
	eventually(t, 10*time.Second, "requests go on without a picker", func() bool { return work.count() >= sent+50 })
	answers := work.stop()
	for _, a := range answers {
		if !a.whole() {
			t.Error(a.String())
		}
	}
	figures(t, "SIGTERM under load", answers, terminated)
	t.Logf("%d requests; noticed after %v, gone after %v", len(answers), noticed, took)
}

// connectSilently opens a connection to each port and says nothing.
func connectSilently(t *testing.T, p *picker) {
	t.Helper()
	for _, address := range []string{fmt.Sprintf("127.0.0.1:%d", p.grpcPort), fmt.Sprintf("127.0.0.1:%d", p.healthPort),
		strings.TrimPrefix(p.metrics, "http://")} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
}

// logged is the last log line with this message.
func (p *picker) logged(t *testing.T, message string) map[string]any {
	t.Helper()
	var found map[string]any
	for line := range strings.Lines(p.log.text()) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == message {
			found = entry
		}
	}
	if found == nil {
		t.Fatalf("no log line %q", message)
	}
	return found
}
