package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox-epp/signalbox/adapters/envoy"
	"github.com/signalbox-epp/signalbox/adapters/lab/demo"
)

// The longest loads, so that two runs, or one overload, take less than 90 s with their ends.
const (
	demoLongest     = 25 * time.Second
	overloadLongest = time.Minute
)

type demoOptions struct {
	demo.Config
	envoy     bool
	bootstrap string
	serve     bool
	overload  bool
}

func newDemo() *cobra.Command {
	o := &demoOptions{}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Simulated servers, Signalbox, and a load: the default against random picking",
		Long: "Play a chat load through Signalbox to four unequal simulated servers, twice: with the default " +
			"configuration, then with random picking. The exit status is 0 if the default's mean time to first " +
			"token is at least 20 % shorter, else 1.\n\n" +
			"With --overload, two tenants send chat and batches, twice as much as two small servers bear, at the " +
			"same time to a Signalbox with flow control and to one without, and a table shows both. The exit status " +
			"is 0 if all of the chat was served with flow control, its p99 of the time to first token is half as " +
			"long at most, and the servers gave at least 90 % of the tokens, else 1.",
		Example: "  signalbox demo\n  signalbox demo --serve\n  signalbox demo --overload",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmd.OutOrStdout()
			return o.run(cmd.Context())
		},
	}
	f := c.Flags()
	f.Uint64Var(&o.Seed, "seed", 1, "decides the load; the same in both runs")
	f.DurationVar(&o.Length, "duration", 15*time.Second, "how long new conversations begin, in each run, up to 25s; "+
		"up to 1m with --overload")
	f.BoolVar(&o.envoy, "envoy", false, "use a real Envoy ($ENVOY, PATH or .envoy/envoy) instead of the built-in proxy")
	f.StringVar(&o.bootstrap, "envoy-bootstrap", "deploy/envoy/original-dst.yaml",
		"bootstrap that --envoy starts Envoy with; its addresses are replaced")
	f.BoolVar(&o.serve, "serve", false, "no load: stay up for requests of yours, until interrupted")
	f.BoolVar(&o.overload, "overload", false, "more load than the servers bear, with flow control and without")
	f.BoolVar(&o.Plain, "plain", false, "plain lines on a terminal too")
	return c
}

func (o *demoOptions) run(ctx context.Context) error {
	longest, play, stay := demoLongest, o.Compare, o.Stay
	if o.overload {
		longest, play, stay = overloadLongest, o.Overload, o.StayOverloaded
	}
	if o.Length <= 0 || o.Length > longest {
		return fmt.Errorf("--duration: got %v, want more than 0, %v at most", o.Length, longest)
	}
	o.Picker = startForDemo
	if o.envoy {
		proxy, err := newDemoEnvoy(o.bootstrap)
		if err != nil {
			return err
		}
		o.Proxy = proxy.start
	}
	if o.serve {
		return stay(ctx)
	}
	won, err := play(ctx)
	if err == nil && !won {
		return exitError(1)
	}
	return err
}

// demoPicker makes a running Signalbox the Picker of the demo.
type demoPicker struct {
	prometheus.Gatherer
	*server
}

// startForDemo starts Signalbox with default flags, apart from ports, the log and the times of the shutdown.
func startForDemo(ctx context.Context, endpoints, config string) (demo.Picker, error) {
	o := newOptions(nil)
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	o.register(flags)
	err := flags.Parse([]string{
		"--grpc-port=0", "--grpc-health-port=0", "--metrics-port=0",
		"--endpoints=" + endpoints, "--config-text=" + config, "--zap-log-level=error",
		"--drain-delay=0", "--drain-timeout=2s",
	})
	if err != nil {
		return nil, err
	}
	s, err := start(ctx, o)
	if err != nil {
		return nil, err
	}
	return demoPicker{s.tree.registry, s}, nil
}

func (p demoPicker) Addr() string         { return p.addrs["grpc-port"][0].String() }
func (p demoPicker) Admin() string        { return p.addrs["metrics-port"][0].String() }
func (p demoPicker) Endpoints() int       { return len(p.tree.picker.Pool().Snapshot().Endpoints) }
func (p demoPicker) Failed() <-chan error { return p.failed }
func (p demoPicker) Stop() error          { return p.stop(0) }

// demoEnvoy holds what a demo with a real Envoy needs.
type demoEnvoy struct {
	binary    string
	bootstrap string // its text
}

// subsetFilter is the Envoy filter that turns the demo's header into a subset hint. It stands before ext_proc.
const subsetFilter = `          - name: demo_subset
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
              request_rules:
              - header: ` + demo.ServersHeader + `
                on_header_present:
                  {metadata_namespace: envoy.lb.subset_hint, key: x-gateway-destination-endpoint-subset, type: STRING}
                remove: true
`

// newDemoEnvoy finds the binary and reads the bootstrap.
func newDemoEnvoy(bootstrap string) (*demoEnvoy, error) {
	binary, err := envoy.Find(self())
	if err != nil {
		return nil, fmt.Errorf("--envoy: %w", err)
	}
	text, err := os.ReadFile(bootstrap)
	if err != nil {
		return nil, fmt.Errorf("--envoy-bootstrap: %w; the default is a path in Signalbox's source tree", err)
	}
	return &demoEnvoy{binary: binary, bootstrap: string(text)}, nil
}

// self returns the path of this binary; "" = the system does not tell it.
func self() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}

// fit returns the bootstrap with this run's addresses in the place of the default ones.
func (o *demoEnvoy) fit(epp string) (string, error) {
	_, port, err := net.SplitHostPort(epp)
	if err != nil {
		return "", err
	}
	text := o.bootstrap
	for _, r := range []struct {
		old, new string
		repeated bool // the picker's port stands once in each cluster that leads to it
	}{
		{"port_value: 19000}", "port_value: 0}", false}, {"port_value: 8080}", "port_value: 0}", false},
		{"port_value: 9002}", "port_value: " + port + "}", true},
		{"          - name: envoy.filters.http.ext_proc\n", subsetFilter +
			"          - name: envoy.filters.http.ext_proc\n", false},
	} {
		n := strings.Count(text, r.old)
		switch {
		case n == 0 && r.repeated:
			return "", fmt.Errorf("--envoy-bootstrap: got no %q in it, want one or more", r.old)
		case n != 1 && !r.repeated:
			return "", fmt.Errorf("--envoy-bootstrap: got %q in it %d times, want once", r.old, n)
		}
		text = strings.ReplaceAll(text, r.old, r.new)
	}
	return text, nil
}

// start starts Envoy, and returns once Envoy serves and its health checks find the picker healthy.
func (o *demoEnvoy) start(ctx context.Context, picker string) (url string, end func() error, err error) {
	text, err := o.fit(picker)
	if err != nil {
		return "", nil, err
	}
	p, err := envoy.Start(envoy.Config{Binary: o.binary, Bootstrap: text, Flags: []string{"--concurrency", "1"}})
	if err != nil {
		return "", nil, fmt.Errorf("--envoy: %w", err)
	}
	end = func() error {
		if p.Gone() {
			return fmt.Errorf("--envoy: %s ended by itself, saying %.2000q: %s", o.binary,
				strings.Join(p.LastLines(), "\n"), p.How())
		}
		p.Kill()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if url, err = p.Ready(ctx); err != nil {
		return "", nil, errors.Join(fmt.Errorf("--envoy: want one that serves: %w", err), end())
	}
	return url, end, nil
}
