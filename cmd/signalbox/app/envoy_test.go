package app

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Whoever mends all that is said need not start a second time to hear of the rest, and reads nothing twice.
func TestEveryProblemOfEnvoysFlagsIsSaidOnce(t *testing.T) {
	const (
		bind      = `--bind: got "nope", want an IP address, without a port`
		listen    = `--xds-listen: got "80", want host:port`
		advertise = "--advertise: got none, and --bind 0.0.0.0, want the address or name by which Envoy reaches " +
			"Signalbox"
	)
	places := []string{`--listen: got "x", want host:port`, `--admin: got "y", want host:port`}
	for args, want := range map[string][]string{
		"--bind=nope --xds-port=1800 --xds-listen=:8080": {bind},
		"--bind=nope --xds-port=1800 --xds-listen=80":    {bind, listen},
		"--bind=nope --xds-port=1800 --xds-listen=80 --advertise=0.0.0.0": {bind,
			"--advertise: got 0.0.0.0, want the address or name by which Envoy reaches Signalbox", listen},
		"--bind=0.0.0.0 --xds-port=1800 --xds-listen=:8080": {advertise},
		"--xds-port=1800 --xds-listen=localhost:80": {
			`--xds-listen: got "localhost:80", want an IP address before the port: Envoy listens on no name`},
		"--xds-port=70000":                                         {"--xds-port: got 70000, want 0 to 65535"},
		"--xds-port=-1 --xds-listen=80":                            {"--xds-port: got -1, want 0 to 65535", listen},
		"envoy-config --bind=0.0.0.0":                              {advertise},
		"envoy-config --bind=nope":                                 {bind},
		"envoy-config --bind=0.0.0.0 --xds-port=1 --xds-listen=80": {advertise, listen},
		"envoy-config --listen=x --admin=y --endpoints=/no/file --envoy-version=z --shards=0": slices.Concat(
			[]string{"--shards: got 0, want 1 to 1024", `--envoy-version: got "z", want a version like 1.40`}, places,
			[]string{"--endpoints: open /no/file: no such file or directory"}),
		"envoy-config --listen=x --admin=y --cluster=c --lane=l --envoy-version=1.2": slices.Concat(places, []string{
			`cluster: got "c", want override-host, original-dst or xds`, `lane: got "l", want light or full`,
			"envoy version: got 1.2, want 1.36 or newer",
		}),
	} {
		c := newRoot()
		c.SetArgs(strings.Fields(args))
		c.SetOut(io.Discard)
		err := c.ExecuteContext(t.Context())
		if err == nil {
			t.Errorf("signalbox %s is taken", args)
			continue
		}
		if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, want) {
			t.Errorf("signalbox %s:\n got %q\nwant %q", args, got, want)
		}
	}
}

// TestEnvoyListensOnLoopback: no port is open to other machines unless an address says so.
func TestEnvoyListensOnLoopback(t *testing.T) {
	for listen, want := range map[string]string{
		":8080": "127.0.0.1:8080", "0.0.0.0:8080": "0.0.0.0:8080", "[::]:8080": "[::]:8080",
		"10.0.0.5:80": "10.0.0.5:80",
	} {
		o, f := newOptions(nil), pflag.NewFlagSet("", pflag.ContinueOnError)
		o.register(f)
		if err := f.Parse([]string{"--xds-port=18000", "--xds-listen=" + listen, "--advertise=10.0.0.1"}); err != nil {
			t.Fatal(err)
		}
		if s, err := o.envoySetup(); err != nil || s.Listen.String() != want {
			t.Errorf("--xds-listen %s: Envoy listens on %s (%v), want %s", listen, s.Listen, err, want)
		}
		w := envoyConfigOptions{cluster: "override-host", lane: "light", version: "1.40", listen: listen,
			admin: ":19000"}
		plain := newOptions(nil)
		plain.register(pflag.NewFlagSet("", pflag.ContinueOnError))
		text, err := w.bootstrap(t.Context(), plain)
		host := want[:strings.LastIndexByte(want, ':')]
		for _, part := range []string{"address: " + strings.Trim(host, "[]") + ",",
			"address: 127.0.0.1, port_value: 19000"} {
			if err != nil || !strings.Contains(strings.ReplaceAll(string(text), `"`, ""), part) {
				t.Errorf("--listen %s: %q does not stand in the file (%v)", listen, part, err)
			}
		}
	}
}
