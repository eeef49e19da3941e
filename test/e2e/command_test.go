package e2e

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCommandRefuses: what cannot work ends at once, with a code other than 0 and a sentence that names what is wrong.
func TestCommandRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := fmt.Sprint(taken.Addr().(*net.TCPAddr).Port)
	folder := t.TempDir()
	good, bad := filepath.Join(folder, "good.yaml"), filepath.Join(folder, "bad.yaml")
	writeFile(t, good, "endpoints: []\n")
	writeFile(t, bad, "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins:\n- type: no-such-scorer\n- "+
		"{type: queue-scorer, colour: red}\n")

	cases := map[string]struct {
		args  []string
		names []string
	}{
		"unknown flag":    {[]string{"serve", "--no-such-flag"}, []string{"--no-such-flag"}},
		"unknown command": {[]string{"no-such-command"}, []string{"no-such-command"}},
		"flag of wrong kind": {[]string{"serve", "--endpoints", good, "--grpc-port", "many"},
			[]string{"grpc-port", "many"}},
		"grpc port in use":    {serveArgs(t, good, "--grpc-port", port), []string{port, "in use"}},
		"health port in use":  {serveArgs(t, good, "--grpc-health-port", port), []string{port, "in use"}},
		"metrics port in use": {serveArgs(t, good, "--metrics-port", port), []string{port, "in use"}},
		"no endpoints file":   {serveArgs(t, filepath.Join(folder, "absent.yaml")), []string{"absent.yaml"}},
		"no configuration": {serveArgs(t, good, "--config-file", filepath.Join(folder, "none.yaml")),
			[]string{"none.yaml"}},
		"bad configuration": {serveArgs(t, good, "--config-file", bad), []string{"no-such-scorer", "colour", "4", "5"}},
		"config check":      {[]string{"config", "check", bad}, []string{"no-such-scorer", "colour", "4", "5"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := start(t, "signalbox", binary, c.args...)
			if code := p.exitCode(t, 10*time.Second); code == 0 {
				t.Error("exit code 0")
			}
			text := p.log.text()
			if !containsAll(text, c.names) {
				t.Errorf("the output does not name all of %q:\n%s", c.names, text)
			}
			if strings.Contains(text, "goroutine ") {
				t.Errorf("a stack in place of a sentence:\n%s", text)
			}
		})
	}
}

// serveArgs puts every port on a free one; a flag given again wins.
func serveArgs(t *testing.T, endpoints string, more ...string) []string {
	t.Helper()
	ports := freePorts(t, 3)
	return append([]string{
		"serve", "--endpoints", endpoints, "--bind", "127.0.0.1", "--grpc-port", fmt.Sprint(ports[0]),
		"--grpc-health-port", fmt.Sprint(ports[1]), "--metrics-port", fmt.Sprint(ports[2]),
	}, more...)
}

func TestCommandAnswers(t *testing.T) {
	cases := map[string]struct {
		args  []string
		names []string
	}{
		"version": {[]string{"version"}, []string{"go1."}},
		"plugins": {[]string{"plugins"}, []string{"queue-scorer", "prefix-cache-scorer", "max-score-picker",
			"decode-filter"}},
		"help": {[]string{"--help"}, []string{"serve", "sim", "explain", "demo"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := start(t, "signalbox", binary, c.args...)
			if code := p.exitCode(t, 10*time.Second); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if !containsAll(p.log.text(), c.names) {
				t.Errorf("the output does not name all of %q:\n%s", c.names, p.log.text())
			}
		})
	}
}

// TestCommandStops: SIGTERM ends an idle Signalbox with code 0, well within its drain timeout.
func TestCommandStops(t *testing.T) {
	p := serve(t, simulated(t, 1, quick...))
	p.pooled(t, 1)
	p.stop()
	if code := p.exitCode(t, time.Second); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}
