package e2e

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// loopbacks are the addresses of this machine on which no other machine can reach a test: not every machine has IPv6.
func loopbacks(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, address := range []string{"127.0.0.1", "127.0.0.2", "::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			t.Logf("%s is left out: %v", address, err)
			continue
		}
		l.Close()
		all = append(all, address)
	}
	return all
}

// TestCommandBinds: every port answers on every address of --bind.
func TestCommandBinds(t *testing.T) {
	all := loopbacks(t)
	for name, flags := range map[string][]string{
		"by comma":      {"--bind", strings.Join(all, ",")},
		"by repetition": {"--bind", strings.Join(all, " --bind ")},
	} {
		t.Run(name, func(t *testing.T) {
			ports := freePorts(t, 3)
			file := filepath.Join(t.TempDir(), "endpoints.yaml")
			writeFile(t, file, "endpoints: []\n")
			args := append([]string{"serve", "--endpoints", file, "--drain-delay", "0s", "--secure-serving=false",
				"--grpc-port", fmt.Sprint(ports[0]), "--grpc-health-port", fmt.Sprint(ports[1]), "--metrics-port",
				fmt.Sprint(ports[2])},
				strings.Fields(strings.Join(flags, " "))...)
			p := start(t, "signalbox", binary, args...)
			for _, address := range all {
				eventually(t, 10*time.Second, "/healthz on "+address, func() bool {
					status, _ := get("http://" + net.JoinHostPort(address, fmt.Sprint(ports[2])) + "/healthz")
					return status == http.StatusOK
				})
				for _, port := range ports[:2] {
					conn := dialWith(t, net.JoinHostPort(address, fmt.Sprint(port)), insecure.NewCredentials())
					eventually(t, 10*time.Second, fmt.Sprintf("SERVING on %s, port %d", address, port), func() bool {
						return healthOf(conn, "readiness") == healthpb.HealthCheckResponse_SERVING
					})
				}
			}
			p.stop()
			if code := p.exitCode(t, time.Second); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestCommandRefusesAddresses names each address that cannot be had, all at once.
func TestCommandRefusesAddresses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	writeFile(t, file, "endpoints: []\n")
	all := loopbacks(t)
	last := all[len(all)-1]
	taken, err := net.Listen("tcp", net.JoinHostPort(last, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := fmt.Sprint(taken.Addr().(*net.TCPAddr).Port)
	cases := map[string]struct {
		args  []string
		names []string
	}{
		"port in use on one of them": {[]string{"--bind", strings.Join(all, ","), "--metrics-port", port},
			[]string{"--metrics-port", taken.Addr().String(), "in use"}},
		"not an address of ours": {[]string{"--bind", "127.0.0.1,192.0.2.1"},
			[]string{"--grpc-port", "192.0.2.1", "cannot assign"}},
		"no addresses": {[]string{"--bind", "localhost,127.0.0.1:9002,[::1]"}, []string{
			`"localhost"`, `"127.0.0.1:9002"`, `"[::1]"`, "want an IP address"}},
		"twice":        {[]string{"--bind", "127.0.0.1,::ffff:127.0.0.1"}, []string{"--bind", "127.0.0.1", "twice"}},
		"none":         {[]string{"--bind", ""}, []string{"--bind", "one IP address or more"}},
		"one is empty": {[]string{"--bind", "127.0.0.1,"}, []string{`--bind: got ""`}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			args := serveArgs(t, file)
			at := 3 // behind --endpoints FILE, in place of its --bind
			p := start(t, "signalbox", binary, append(append(args[:at:at], args[at+2:]...), c.args...)...)
			if code := p.exitCode(t, 10*time.Second); code == 0 {
				t.Error("exit code 0")
			}
			if text := p.log.text(); !containsAll(text, c.names) {
				t.Errorf("the output does not name all of %q:\n%s", c.names, text)
			}
		})
	}
}
