package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/signalbox-epp/signalbox/adapters/discovery"
	"github.com/signalbox-epp/signalbox/adapters/xds"
	"github.com/signalbox-epp/signalbox/engine/config"
)

// xdsOptions are the flags of xDS, by which Signalbox configures Envoy.
type xdsOptions struct {
	port              int
	listen, advertise string
	authority         string
	certPath          string
	clientCA          string
	identity          string      // directory at Envoy
	anyPort           bool        // port 0 stands for any free one, not for none
	envoy             xds.Version // that the configuration is for; zero = the newest
}

// on reports whether there is an xDS port.
func (o *xdsOptions) on() bool { return o.port != 0 || o.anyPort }

func (o *xdsOptions) register(f *pflag.FlagSet) {
	f.IntVar(&o.port, "xds-port", 0, "port of xDS, which tells Envoy the endpoints of the pool as those of the "+
		"cluster model_servers; 0 is none")
	f.StringVar(&o.listen, "xds-listen", "", "tell Envoy by xDS to listen here too, such as :8080 (loopback) or "+
		"0.0.0.0:8080 (every address), with all that belongs to it; empty is endpoints alone")
	f.StringVar(&o.advertise, "advertise", "",
		"address or name, without a port, by which Envoy reaches this Signalbox; empty is --bind")
	f.StringVar(&o.authority, "envoy-ca", "",
		"path at Envoy of the CA that signed the certificates of Signalbox's ports; empty takes any certificate")
	f.StringVar(&o.identity, "envoy-cert-path", "/etc/envoy/certs",
		"directory at Envoy with the tls.crt and tls.key that --client-ca-file and --xds-client-ca want")
	f.StringVar(&o.certPath, "xds-cert-path", "",
		"directory with tls.crt and tls.key for the xDS port; empty is no TLS")
	f.StringVar(&o.clientCA, "xds-client-ca", "",
		"file of the CA that signs proxies' certificates: others are not served xDS")
}

// checkXds returns every problem of these flags but that of the port's number, which checkPorts reports.
func (o *options) checkXds() []error {
	var all []error
	x := o.xds
	if _, err := netip.ParseAddr(x.advertise); x.advertise != "" && err != nil && !discovery.IsHostName(x.advertise) {
		all = append(all, fmt.Errorf("--advertise: got %q, want an IP address or a host name, without a port",
			x.advertise))
	}
	if x.listen != "" && !x.on() {
		all = append(all, errors.New("--xds-listen: want --xds-port too"))
	}
	if x.clientCA != "" && x.certPath == "" {
		all = append(all, errors.New("--xds-client-ca: want --xds-cert-path too"))
	}
	if x.listen != "" {
		_, err := o.envoySetup()
		all = append(all, err)
	}
	return all
}

// envoySetup returns what Envoy's configuration depends on, as far as the flags of serve say it. Its error holds every
// problem of them but those of --bind, which addresses reports.
func (o *options) envoySetup() (xds.Setup, error) {
	s := xds.DefaultSetup(xds.OverrideHost, xds.Light)
	var problems []error
	host, err := o.reachable()
	if err != nil {
		problems = append(problems, err)
	}
	s.Picker, s.Version = xds.Place{Host: host, Port: o.grpcPort}, cmp.Or(o.xds.envoy, s.Version)
	s.Secure, s.HealthChecked, s.MaxBodyBytes, s.Authority = o.tls.secure, o.healthChecking, o.maxBody, o.xds.authority
	s.Xds = xds.Place{Host: host, Port: cmp.Or(o.xds.port, s.Xds.Port)}
	s.XdsSecure = o.xds.certPath != ""
	if o.xds.clientCA != "" {
		s.Identity = o.xds.identity
	}
	if o.tls.clientCA != "" {
		s.PickerIdentity = o.xds.identity
	}
	if o.xds.listen != "" {
		if s.Listen, err = parseListen(o.xds.listen); err != nil {
			problems = append(problems, fmt.Errorf("--xds-listen: %w", err))
		}
	}
	return s, errors.Join(problems...)
}

// parseListen reads where Envoy listens. A port without an address is on loopback, as Signalbox's own ports are.
func parseListen(s string) (xds.Place, error) {
	at, err := xds.ParsePlace(s)
	if err != nil {
		return at, err
	}
	at.Host = cmp.Or(at.Host, "127.0.0.1")
	if _, err := netip.ParseAddr(at.Host); err != nil {
		return at, fmt.Errorf("got %q, want an IP address before the port: Envoy listens on no name", s)
	}
	return at, nil
}

// reachable returns the address or name by which Envoy reaches Signalbox: --advertise, or the first address of --bind.
// It is "" if neither says one.
func (o *options) reachable() (string, error) {
	host, origin := o.xds.advertise, "got"
	if bind, _ := o.addresses(); host == "" && len(bind) > 0 {
		host, origin = bind[0].String(), "got none, and --bind"
	}
	if a, err := netip.ParseAddr(host); err == nil && a.IsUnspecified() {
		return "", fmt.Errorf("--advertise: %s %s, want the address or name by which Envoy reaches Signalbox",
			origin, host)
	}
	return host, nil
}

// announceByXds makes the xDS server, if there is an xDS port.
func (t *tree) announceByXds(picker netip.AddrPort) error {
	if !t.opts.xds.on() {
		return nil
	}
	cfg := xds.Config{Met: t.peers.Configured}
	if t.opts.xds.listen != "" {
		setup, err := t.opts.envoySetup()
		if err != nil {
			return err
		}
		setup.Picker.Port = int(picker.Port())
		cfg.Serve = &setup
	}
	var err error
	t.xds, err = xds.NewServer(cfg, xds.NewMetrics(t.registry), t.log.Logger)
	return err
}

// hangs logs that proxies no longer wait for a loop that hangs.
func (t *tree) hangs(loop int, waited time.Duration) {
	t.log.Error("a loop hangs: proxies are told to forget endpoints that it may still be picking",
		zap.Int("loop", loop), zap.Duration("waited", waited))
}

// serveXds starts the xDS port.
func (s *server) serveXds(listeners []net.Listener) *grpc.Server {
	g := grpc.NewServer(guardedOptions(s.secrets.credentials(xdsPort), s.log)...)
	s.tree.xds.Register(g)
	s.run("xds", listeners, g.Serve)
	return g
}

// envoyConfigOptions are the flags of envoy-config beside those of serve.
type envoyConfigOptions struct {
	cluster, lane, version, listen, admin string
	others                                []string
}

// newEnvoyConfig returns the command that prints a bootstrap. It takes the flags of serve, so that what serves is what
// is written.
func newEnvoyConfig(types *config.Catalogue) *cobra.Command {
	o, w := newOptions(types), envoyConfigOptions{}
	c := &cobra.Command{
		Use:   "envoy-config",
		Short: "Print an Envoy bootstrap that fits the flags of serve",
		Long: "Print an Envoy bootstrap that fits the flags of serve, which it takes too. Without any it prints " +
			"the shipped file. With --endpoints the servers of an override-host cluster are those of the file.",
		Example: "  signalbox envoy-config --endpoints endpoints.yaml > envoy.yaml\n" +
			"  signalbox envoy-config --cluster xds --xds-port 18000 --xds-listen 127.0.0.1:8080\n" +
			"  signalbox envoy-config --lane full --envoy-version 1.38",
		Args: cobra.NoArgs,
	}
	o.register(c.Flags())
	f := c.Flags()
	f.StringVar(&w.cluster, "cluster", xds.OverrideHost,
		"how Envoy knows the servers: override-host (a list), original-dst (by the pick alone) or xds (from Signalbox)")
	f.StringVar(&w.lane, "lane", xds.Light, "light: response bodies bypass Signalbox; full: they go through it")
	f.StringVar(&w.version, "envoy-version", "1.40", "Envoy that the file is for, 1.36 or newer")
	f.StringVar(&w.listen, "listen", "127.0.0.1:8080",
		"where Envoy's clients come; not with --cluster xds, where --xds-listen of serve says it")
	f.StringSliceVar(&w.others, "other-picker", nil,
		"host:port of another Signalbox of the same pool, as Envoy sees it; several by comma or repetition")
	f.StringVar(&w.admin, "admin", "127.0.0.1:19000", "Envoy's admin page")
	c.RunE = func(c *cobra.Command, _ []string) error {
		text, err := w.bootstrap(c.Context(), o)
		if err != nil {
			return err
		}
		_, err = c.OutOrStdout().Write(text)
		return err
	}
	return c
}

// bootstrap returns the file for these flags and those of serve, or every problem of them.
func (w *envoyConfigOptions) bootstrap(ctx context.Context, o *options) ([]byte, error) {
	problems := []error{o.check()}
	s, err := o.envoySetup()
	if o.xds.listen == "" { // else check has it
		problems = append(problems, err)
	}
	bad := func(flag string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	s.Cluster, s.Lane = w.cluster, w.lane
	version, err := xds.ParseVersion(w.version)
	if err == nil {
		s.Version = version
	}
	bad("envoy-version", err)
	s.Listen, err = parseListen(w.listen)
	bad("listen", err)
	s.Admin, err = parseListen(w.admin)
	bad("admin", err)
	for _, other := range w.others {
		place, err := xds.ParsePlace(other)
		bad("other-picker", err)
		s.Others = append(s.Others, place)
	}
	s.Servers, err = serversOf(ctx, &o.sourceOptions, s.Servers)
	bad("endpoints", err)
	standard := xds.DefaultSetup(w.cluster, w.lane)
	s.File = standard.File
	s.Standard = s.Picker == standard.Picker && len(s.Others) == 0 && s.Secure == standard.Secure &&
		s.MaxBodyBytes == standard.MaxBodyBytes && s.HealthChecked == standard.HealthChecked && s.PickerIdentity == ""
	text, err := s.Bootstrap()
	return text, errors.Join(append(problems, err)...)
}

// serversOf returns the servers of an endpoints file; without a file, standard.
func serversOf(ctx context.Context, o *sourceOptions, standard []xds.Place) ([]xds.Place, error) {
	if o.endpointsFile == "" {
		return standard, nil
	}
	text, err := o.endpointsText, error(nil)
	if text == nil {
		text, err = readInput(ctx, o.endpointsFile, os.Stdin)
	}
	if err != nil {
		return nil, err
	}
	entries, _, err := discovery.Parse(text)
	if err != nil {
		return nil, err
	}
	all := make([]xds.Place, 0, len(entries))
	for _, e := range entries {
		host := e.Host
		if host == "" {
			host = e.IP.String()
		}
		all = append(all, xds.Place{Host: host, Port: int(e.Port)})
	}
	return all, nil
}
