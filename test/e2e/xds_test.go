package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/lateness"
)

const (
	xdsLight = "../../deploy/envoy/xds-bootstrap.yaml"
	xdsFull  = "../../deploy/envoy/xds-bootstrap-full.yaml"
)

// serveXds starts Signalbox with an xDS port of its own, and gives that port.
func serveXds(t *testing.T, servers []string, flags ...string) (*picker, int) {
	t.Helper()
	return serveXdsOn(t, "127.0.0.1", servers, flags...)
}

// serveXdsOn does, listening on that address alone.
func serveXdsOn(t *testing.T, host string, servers []string, flags ...string) (*picker, int) {
	t.Helper()
	ports := freePorts(t, 2)
	p := serveOn(t, host, servers, append([]string{
		"--xds-port", strconv.Itoa(ports[0]), "--xds-listen", fmt.Sprintf("127.0.0.1:%d", ports[1]),
	}, flags...)...)
	p.pooled(t, len(servers))
	return p, ports[0]
}

// startXdsEnvoy runs a bootstrap with nothing changed but its ports.
func startXdsEnvoy(t *testing.T, bootstrap string, port int) *envoy {
	t.Helper()
	folder := t.TempDir()
	text := bootstrapText(t, bootstrap)
	text = replaceOnce(t, text, "port_value: 19000", "port_value: 0")
	text = replaceOnce(t, text, "port_value: 18000", fmt.Sprintf("port_value: %d", port))
	config := filepath.Join(folder, "envoy.yaml")
	writeFile(t, config, text)
	e := &envoy{}
	e.run(t, config, folder)
	e.asksPicker(t)
	return e
}

// knows waits until Envoy has exactly these servers, in any health.
func (e *envoy) knows(t *testing.T, servers []string) time.Duration {
	t.Helper()
	return eventually(t, 10*time.Second, fmt.Sprintf("envoy knows %v", servers), func() bool {
		_, page := get(e.admin + "/clusters")
		known := 0
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "model_servers::") && strings.Contains(line, "::weight::") {
				known++
			}
		}
		for _, s := range servers {
			if !strings.Contains(page, "model_servers::"+s+"::weight::") {
				return false
			}
		}
		return known == len(servers)
	})
}

// TestEnvoyXdsBootstrapsFitTheDefaults runs each file as it is shipped before a Signalbox with the flags that it names.
func TestEnvoyXdsBootstrapsFitTheDefaults(t *testing.T) {
	seenElsewhere(t)
	for name, path := range map[string]string{"light": xdsLight, "full": xdsFull} {
		t.Run(name, func(t *testing.T) {
			mustBeFree(t, 8001, 8002, 8080, 9002, 9003, 9090, 18000, 19000)
			_, servers := simulatedProcess(t, 2, append(quick, "--port", "8001")...)
			file := filepath.Join(t.TempDir(), "endpoints.yaml")
			writeFile(t, file, endpointsFile(t, servers))
			p := &picker{
				file: file, metrics: "http://127.0.0.1:9090",
				flags: []string{"serve", "--endpoints", file, "--xds-port", "18000", "--xds-listen", ":8080"},
			}
			p.startAgain(t)
			defer func() { p.kill() }() // it would wait for its drain delay
			p.pooled(t, 2)
			e := &envoy{}
			e.run(t, bootstrapFile(t, path), t.TempDir())
			if e.url != "http://127.0.0.1:8080" || e.admin != "http://127.0.0.1:19000" {
				t.Errorf("listener %s, admin %s", e.url, e.admin)
			}
			e.asksPicker(t)
			countPicks(t, p, e, servers)
			if n := p.metric("signalbox_access_log_entries_total", `whose="ours"`); (n > 0) != (name == "light") {
				t.Errorf("%v access log entries in the %s lane", n, name)
			}
		})
	}
}

// TestEnvoyTakesPicksWhileThePoolChanges: every second a server joins or leaves, under load through two Envoys. No
// request fails, and none is served by another than the picked one: Envoy knew each pick,
// before its first and until after its last request.
func TestEnvoyTakesPicksWhileThePoolChanges(t *testing.T) {
	seenElsewhere(t)
	for name, bootstrap := range map[string]string{"light": xdsLight, "full": xdsFull} {
		t.Run(name, func(t *testing.T) { changeUnderLoad(t, bootstrap) })
	}
}

func changeUnderLoad(t *testing.T, bootstrap string) {
	servers := simulated(t, 4, "--model", model, "--decode-rate", "2000", "--prefill-rate", "1000000")
	p, port := serveXds(t, servers[:3])
	// Both listen where Signalbox says, and the kernel spreads connections over them.
	// What one of them is told arrives late: picks have to wait for it.
	envoys := []*envoy{startXdsEnvoy(t, bootstrap, port),
		startXdsEnvoy(t, bootstrap, slowLink(t, port, 300*time.Millisecond))}
	c := newClient(envoys[0].url)
	t.Cleanup(c.close)
	work := startLoad(8, func(client, n int) answer {
		return c.stream(context.Background(), fmt.Sprintf("client %d, question %d", client, n), 4)
	})
	// Each set takes one away and brings one back.
	sets := [][]string{{servers[1], servers[2], servers[3]}, {servers[0], servers[2]}, {servers[3], servers[1]},
		servers, {servers[0]}, servers[:3]}
	const changes = 8
	for i := range changes {
		set := sets[i%len(sets)]
		began := time.Now()
		p.setEndpoints(t, set)
		p.pooled(t, len(set))
		before := work.count()
		eventually(t, 10*time.Second, "requests go on for a second", func() bool {
			return time.Since(began) > time.Second && work.count() > before+20
		})
	}
	p.setEndpoints(t, servers[:3])
	for _, e := range envoys {
		e.knows(t, servers[:3])
	}
	answers := work.stop()
	for _, a := range answers {
		if !a.whole() {
			t.Error(a.String())
		}
	}
	p.idle(t)
	t.Logf("%d requests, %d and %d of them through each, while the pool changed %d times: %v served elsewhere, %v "+
		"acknowledgements overdue",
		len(answers), envoys[0].stat("http.llm.downstream_rq_total"), envoys[1].stat("http.llm.downstream_rq_total"),
		changes,
		p.metric("signalbox_served_elsewhere_total"), p.metric("signalbox_pool_acknowledgements_overdue_total"))
	if n := p.metric("signalbox_served_elsewhere_total"); n != 0 {
		t.Errorf("%v requests were served by another than the picked server", n)
	}
	p.toldInTime(t)
}

// toldInTime: every change was handed to Envoy within 200 ms of its discovery, and no proxy refused any.
func (p *picker) toldInTime(t *testing.T) {
	t.Helper()
	if n := p.metric("signalbox_xds_nacks_total"); n != 0 {
		t.Errorf("envoy refused %v xDS responses", n)
	}
	within, all := p.metric("signalbox_xds_publish_seconds_bucket", `le="0.2"`),
		p.metric("signalbox_xds_publish_seconds_count")
	if within != all || all == 0 {
		t.Errorf("%v of %v changes were told within 200 ms", within, all)
	}
}

// TestEnvoyComesBackToARestartedSignalbox: while it is away requests are served by what was told last; then Envoy hears
// soon of what has changed meanwhile.
func TestEnvoyComesBackToARestartedSignalbox(t *testing.T) {
	servers := simulated(t, 3, quick...)
	p, port := serveXds(t, servers[:2])
	e := startXdsEnvoy(t, xdsLight, port)
	c := newClient(e.url)
	t.Cleanup(c.close)
	if a := c.chat(model, "before", 2); !a.whole() {
		t.Error(a.String())
	}
	p.kill()
	eventually(t, 10*time.Second, "requests are served without a picker",
		func() bool { a := c.chat(model, "without", 2); return a.whole() })
	p.setEndpoints(t, servers[1:])
	p.startAgain(t)
	t.Logf("envoy knew the other servers %v after Signalbox was back", e.knows(t, servers[1:]))
	e.asksPicker(t)
	for n := range 20 {
		if a := c.chat(model, "after "+strconv.Itoa(n), 2); !a.whole() {
			t.Error(a.String())
		}
	}
	if p.picks() == 0 || p.metric("signalbox_served_elsewhere_total") != 0 {
		t.Errorf("%d picks, %v served elsewhere", p.picks(), p.metric("signalbox_served_elsewhere_total"))
	}
	second := startXdsEnvoy(t, xdsFull, port)
	second.knows(t, servers[1:])
	second.kill()
	eventually(t, 5*time.Second, "a proxy that is gone is not counted",
		func() bool { return p.metric("signalbox_xds_streams") == 1 })
	machine := lateness.Begin()
	p.setEndpoints(t, servers)
	machine.Within(t, "an endpoint waits for no proxy that is gone", p.pooled(t, 3), 900*time.Millisecond)
}

// TestEnvoyRefusesAListenerThatItCannotBind: the refusal is counted and logged with Envoy's reason, and nothing is sent
// again. 192.0.2.1 is an address for documentation, which no machine has.
func TestEnvoyRefusesAListenerThatItCannotBind(t *testing.T) {
	servers := simulated(t, 2, quick...)
	ports := freePorts(t, 1)
	p := serve(t, servers, "--xds-port", strconv.Itoa(ports[0]), "--xds-listen", "192.0.2.1:8080")
	p.pooled(t, 2)
	config := filepath.Join(t.TempDir(), "envoy.yaml")
	text := replaceOnce(t, bootstrapText(t, xdsLight), "port_value: 19000", "port_value: 0")
	writeFile(t, config, replaceOnce(t, text, "port_value: 18000", fmt.Sprintf("port_value: %d", ports[0])))
	start(t, "envoy", envoyPath, "-c", config, "--concurrency", "1", "--disable-hot-restart", "-l", "critical")
	eventually(t, 10*time.Second, "the refusal is counted", func() bool {
		return p.metric("signalbox_xds_nacks_total", `type="listener"`) == 1
	})
	eventually(t, 5*time.Second, "the refusal is logged",
		func() bool { return strings.Contains(p.log.text(), "192.0.2.1") })
	p.setEndpoints(t, servers[:1]) // the rest of it goes on
	eventually(t, 5*time.Second, "the endpoints are taken", func() bool {
		return p.metric("signalbox_xds_acks_total", `type="endpoint"`) >= 2
	})
	if n := p.metric("signalbox_xds_responses_total", `type="listener"`); n != 1 {
		t.Errorf("the listener was sent %v times, want once", n)
	}
}
