package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox-epp/signalbox/adapters/discovery"
	"github.com/signalbox-epp/signalbox/adapters/envoy"
	"github.com/signalbox-epp/signalbox/adapters/xds"
	"github.com/signalbox-epp/signalbox/engine/config"
)

// upOptions are the flags of up: those of serve, and where Envoy listens.
type upOptions struct {
	*options
	listen, admin string
	sims          int
	servers       []string // the arguments, HOST:PORT
}

const (
	mostSims      = 64
	listenDefault = "127.0.0.1:8080"
	adminDefault  = "127.0.0.1:19000"
)

const noServers = `no model servers: name them, by one of
  signalbox up 127.0.0.1:8001 127.0.0.1:8002   each HOST:PORT
  signalbox up --endpoints endpoints.yaml      a file, which may change while all runs
  signalbox up --sim 2                         none at hand: simulated ones`

func newUp(types *config.Catalogue) *cobra.Command {
	o := &upOptions{options: newOptions(types)}
	c := &cobra.Command{
		Use:   "up [HOST:PORT...]",
		Short: "Start Envoy and Signalbox in front of your model servers, in one terminal",
		Long: "Start Envoy and, in this process, Signalbox in front of model servers, until interrupted; then let " +
			"running answers finish. Envoy is the one that $ENVOY names, else the one on PATH, else .envoy/envoy, " +
			"where make envoy puts it. It is configured over xDS, so that servers may come and go in the file of " +
			"--endpoints. If Envoy dies it is started again. Signalbox takes the flags of serve.",
		Example: "  signalbox up 127.0.0.1:8001 127.0.0.1:8002\n" +
			"  signalbox up --endpoints endpoints.yaml\n" +
			"  signalbox up --sim 2",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.servers = args
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.register(c.Flags())
	return c
}

// register adds the flags of serve, some with other defaults, because this command starts Envoy itself: Envoy needs no
// drain delay, the xDS port may be any free one, and people read the log.
func (o *upOptions) register(f *pflag.FlagSet) {
	o.options.register(f)
	f.StringVar(&o.listen, "listen", listenDefault,
		"where clients come: the address and port that Envoy listens on; port 0 is any free one")
	f.StringVar(&o.admin, "admin", adminDefault, "address and port of Envoy's admin page; port 0 is any free one")
	f.IntVar(&o.sims, "sim", 0, "start so many simulated vLLMs on free ports, and take them for servers")
	for name, value := range map[string]string{"v": "0", "drain-delay": "0s", "zap-encoder": "console"} {
		flag := f.Lookup(name)
		flag.DefValue = value
		_ = flag.Value.Set(value) // each is a value of its flag
	}
	f.Lookup("xds-port").Usage = "port of xDS, by which Envoy is told everything; 0 is any free one"
	f.Lookup("xds-listen").Hidden = true // --listen says it
	o.xds.anyPort = true
}

// check returns every problem of the arguments and flags at once.
func (o *upOptions) check() error {
	problems := []error{o.checkSources()}
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for i, server := range o.servers {
		if err := checkServer(server); err != nil {
			problems = append(problems, err)
		} else if slices.Contains(o.servers[:i], server) {
			bad("%s is given twice", server)
		}
	}
	if o.given("sim") && (o.sims < 1 || o.sims > mostSims) {
		bad("--sim: got %d, want 1 to %d", o.sims, mostSims)
	}
	if o.given("xds-listen") {
		bad("--xds-listen: want --listen in its place")
	}
	for _, a := range o.envoyAddresses() {
		if err := a.complete(); err != nil {
			bad("--%s: %w", a.flag, err)
			*a.value = a.standard // so that the checks below, of what depends on it, do not repeat its problem
		}
	}
	if bind, err := o.addresses(); err == nil && o.xds.advertise == "" && bind[0].IsUnspecified() {
		o.xds.advertise = loopback(bind[0]) // Envoy is on this machine
	}
	o.xds.listen = o.listen
	return errors.Join(append(problems, o.options.check())...)
}

// envoyAddress is a flag that names an address and a port of Envoy's.
type envoyAddress struct {
	flag     string
	value    *string
	standard string
}

func (o *upOptions) envoyAddresses() []envoyAddress {
	return []envoyAddress{{"listen", &o.listen, listenDefault}, {"admin", &o.admin, adminDefault}}
}

// complete puts loopback before a port without an address. It returns an error if the value has no port, or a name in
// the place of an IP address.
func (a envoyAddress) complete() error {
	at, err := xds.ParsePlace(*a.value)
	if err != nil {
		return err
	}
	if at.Host == "" {
		at.Host = "127.0.0.1"
		*a.value = at.String()
	}
	if _, err := netip.ParseAddr(at.Host); err != nil {
		return fmt.Errorf("got %q, want an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080", *a.value)
	}
	return nil
}

// loopback returns the loopback address of the family of an address.
func loopback(a netip.Addr) string {
	if a.Is6() {
		return "::1"
	}
	return "127.0.0.1"
}

// checkSources returns an error unless exactly one source of servers is named.
func (o *upOptions) checkSources() error {
	var sources []string
	for _, s := range []struct {
		name  string
		given bool
	}{{"HOST:PORT", len(o.servers) > 0}, {"--endpoints", o.endpointsFile != ""}, {"--sim", o.given("sim")}} {
		if s.given {
			sources = append(sources, s.name)
		}
	}
	switch {
	case len(sources) > 1:
		return fmt.Errorf("model servers: got %s, want one of them", strings.Join(sources, " and "))
	case len(sources) == 0 && o.configFile == "" && o.configText == "":
		return errors.New(noServers)
	}
	return nil
}

// checkServer returns an error for text that is not HOST:PORT by the rules of endpoints files.
func checkServer(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err == nil {
		_, _, err = discovery.Parse(asEndpointsFile([][2]string{{host, port}}))
	}
	if err == nil {
		return nil
	}
	hint := ""
	switch {
	case strings.Contains(text, "://"):
		hint = "; leave out " + text[:strings.Index(text, "://")+3] + " and any path"
	case strings.HasSuffix(text, ".yaml") || strings.HasSuffix(text, ".yml") || strings.HasSuffix(text, ".json"):
		hint = "; a file of servers is named with --endpoints " + text
	case net.ParseIP(text) != nil || strings.Contains(err.Error(), "missing port"):
		hint = "; the port is missing"
	}
	return fmt.Errorf("got %q, want HOST:PORT, such as 127.0.0.1:8001, [::1]:8001 or gpu-1:8000%s", text, hint)
}

// asEndpointsFile returns an endpoints file of hosts and ports. Each server is named after its host and port.
func asEndpointsFile(servers [][2]string) []byte {
	var b bytes.Buffer
	b.WriteString("endpoints:\n")
	for _, s := range servers {
		fmt.Fprintf(&b, "- {name: %q, address: %q, port: %q}\n", net.JoinHostPort(s[0], s[1]), s[0], s[1])
	}
	return b.Bytes()
}

// tryPorts opens and closes all ports, so that every port that is taken is reported before anything starts. For a port
// 0 of Envoy it chooses a free one, so that an Envoy that is started again has the same port.
func (o *upOptions) tryPorts() error {
	attempt := &server{opts: o.options, addrs: map[string][]netip.AddrPort{}}
	listeners, err := attempt.listen()
	defer closeAll(listeners)
	problems := []error{err}
	for _, a := range o.envoyAddresses() {
		l, err := net.Listen("tcp", *a.value)
		if err != nil {
			problems = append(problems, fmt.Errorf("--%s: %w%s", a.flag, err, remedy(err, a.flag)))
			continue
		}
		defer l.Close()
		*a.value = l.Addr().String()
	}
	o.xds.listen = o.listen
	return errors.Join(problems...)
}

// findEnvoy finds an Envoy that takes the configuration it will get, and keeps its version for xDS.
func (o *upOptions) findEnvoy(ctx context.Context) (path, version string, err error) {
	if path, err = envoy.Find(self()); err != nil {
		return "", "", err
	}
	if version, err = envoy.Version(ctx, path); err != nil {
		return "", "", fmt.Errorf("%w; %s", err, envoy.Howto)
	}
	setup := xds.DefaultSetup(xds.Served, xds.Light)
	if setup.Version, err = xds.ParseVersion(version); err == nil {
		_, err = setup.Bootstrap()
	}
	if err != nil {
		return "", "", fmt.Errorf("%s: %w; %s", path, err, envoy.Howto)
	}
	o.xds.envoy = setup.Version
	return path, version, nil
}

// bootstrap returns what envoy-config prints for a Signalbox that runs with these flags on these ports. Its cluster is
// xds. With a list of servers in the file, a change of the endpoints would need another Envoy, and with ORIGINAL_DST
// Envoy would have no second server to try. Over xDS the process that picks tells Envoy the servers, by the addresses
// that it has resolved, and Envoy keeps them to fall back to.
func (o *upOptions) bootstrap(ctx context.Context, version string, xdsPort netip.AddrPort) ([]byte, error) {
	bound := *o.options
	bound.xds.port = int(xdsPort.Port())
	w := envoyConfigOptions{cluster: xds.Served, lane: xds.Light, version: version, listen: o.listen, admin: o.admin}
	return w.bootstrap(ctx, &bound)
}

// run starts everything, says what it finds, and ends everything when ctx is done.
func (o *upOptions) run(ctx context.Context, out io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	path, version, err := o.findEnvoy(ctx)
	if err = errors.Join(err, o.tryPorts()); err != nil {
		return err
	}
	u := &up{upOptions: o, out: newConsole(out)}
	if err := u.start(ctx, path, version); err != nil {
		return errors.Join(err, u.close())
	}
	if err := u.follow(ctx); err != nil { // nothing is served any more, so nothing is waited for
		if p := u.envoy.Settle(); p != nil {
			p.End()
		}
		return errors.Join(err, u.close())
	}
	return u.drain()
}

// explainLine returns the command that explains the last request, with the address if that is not the default.
func explainLine(metrics netip.AddrPort) string {
	line := os.Args[0] + " explain --last"
	if metrics.Port() != 9090 || metrics.Addr() != netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
		line += " --addr http://" + metrics.String()
	}
	return line
}

// reachedAt returns the URL at which a client on this machine reaches a listener.
func reachedAt(url string) string {
	host, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	if err != nil {
		return url
	}
	if a, err := netip.ParseAddr(host); err == nil && a.IsUnspecified() {
		return "http://" + net.JoinHostPort(loopback(a), port)
	}
	return url
}

// simServers returns the options of so many simulated servers on free ports.
func simServers(count int) *simOptions {
	o := &simOptions{}
	o.register(pflag.NewFlagSet("sim", pflag.ContinueOnError))
	o.count, o.port = count, 0
	return o
}
