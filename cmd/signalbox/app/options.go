package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/signalbox-epp/signalbox"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// options holds the flags of serve. Names and defaults are those of the reference where it has the flag.
type options struct {
	sourceOptions
	portOptions
	poolOptions
	pickOptions
	limitOptions
	drainOptions
	shards int // 1 to mostShards
	xds    xdsOptions
	tls    tlsOptions
	log    telemetry.LogOptions
	given  func(flag string) bool // reports whether the command line has it
	hooks  hooks
}

// hooks are for a command that serves and writes its own output. The zero value has no effect.
type hooks struct {
	log io.Writer                        // takes the log; nil = standard error
	say func(format string, args ...any) // prints what the user must see at any verbosity; nil = it is logged
	// the command says which metrics pages can be read, so the log does not
	showsServers bool
}

// mostShards is the most event loops. More loops than the largest machines have processors would do no more work, and
// each has its own buffers and series of metrics.
const mostShards = 1024

func newOptions(c *config.Catalogue) *options {
	return &options{sourceOptions: sourceOptions{catalogue: c}}
}

func (o *options) register(f *pflag.FlagSet) {
	o.sourceOptions.register(f)
	o.portOptions.register(f)
	o.poolOptions.register(f)
	o.pickOptions.register(f)
	o.limitOptions.register(f)
	o.drainOptions.register(f)
	f.IntVar(&o.shards, "shards", min(runtime.GOMAXPROCS(0), mostShards),
		"event loops, which share the work, 1 to 1024; by default one for each CPU that Go may use")
	o.xds.register(f)
	o.tls.register(f)
	o.log.Register(f)
	o.given = f.Changed
}

// check returns every problem of the flags at once.
func (o *options) check() error {
	if !o.given("bind") && o.inCluster() {
		o.bind = []string{anyAddress()}
	}
	if !o.given("single-destination") && o.selector != "" {
		o.singleDestination = true
	}
	all := o.checkPorts()
	all = append(all, o.poolOptions.check(o.endpointsFile), o.sourceOptions.check(), o.pickOptions.check())
	if o.shards < 1 || o.shards > mostShards {
		all = append(all, fmt.Errorf("--shards: got %d, want 1 to %d", o.shards, mostShards))
	}
	all = append(all, o.limitOptions.check(), o.checkDrain())
	all = append(append(all, o.checkXds()...), o.checkTLS()...)
	return errors.Join(append(all, o.log.Check())...)
}

// notNegative returns an error for each flag whose duration is negative.
func notNegative(flags ...durationFlag) (all []error) {
	for _, f := range flags {
		if f.d < 0 {
			all = append(all, fmt.Errorf("--%s: got %v, want 0 or more", f.name, f.d))
		}
	}
	return all
}

type durationFlag struct {
	name string
	d    time.Duration
}

// portOptions says where the ports are and what they answer. No two ports are equal, unless both are 0, which stands
// for any free one.
type portOptions struct {
	grpcPort, healthPort, metricsPort int
	bind                              []string
	healthChecking, openDebug, pprof  bool
	flowLabels                        int // most flows that metrics tell apart
}

func (o *portOptions) register(f *pflag.FlagSet) {
	f.StringSliceVar(&o.bind, "bind", []string{"127.0.0.1"},
		"addresses that all ports listen on, IPv4 or IPv6, by comma or by repetition; 0.0.0.0 and :: are all, which "+
			"is the default in a pod with --pool-name or --endpoint-selector")
	f.IntVar(&o.grpcPort, "grpc-port", 9002, "port of ext_proc")
	f.IntVar(&o.healthPort, "grpc-health-port", 9003, "port of gRPC health")
	f.IntVar(&o.metricsPort, "metrics-port", 9090, "port of /metrics, /healthz, /readyz and /debug")
	f.BoolVar(&o.healthChecking, "health-checking", true,
		"gRPC health on the ext_proc port too; without it a cluster that checks the health of Signalbox finds it "+
			"unhealthy")
	f.BoolVar(&o.openDebug, "open-debug", false, "answer /debug to other machines than this one")
	f.IntVar(&o.flowLabels, "fairness-id-metric-label-limit", signalbox.DefaultFlowLabels,
		"fairness ids that metrics tell apart, 1 or more; others count under other, and so do those for which the "+
			"page has no room")
	f.BoolVar(&o.pprof, "enable-pprof", false, "profiles of this process under /debug/pprof")
}

// checkPorts checks the port of xDS too, which must differ from the others.
func (o *options) checkPorts() (all []error) {
	bad := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	for i, p := range o.ports() {
		if p.port < 0 || p.port > 65535 {
			bad("--%s: got %d, want 0 to 65535", p.flag, p.port)
		}
		for _, other := range o.ports()[:i] {
			if other.port == p.port && p.port != 0 {
				bad("--%s: got %d, want another port than --%s", p.flag, p.port, other.flag)
			}
		}
	}
	if o.flowLabels < 1 {
		bad("--fairness-id-metric-label-limit: got %d, want 1 or more", o.flowLabels)
	}
	if _, err := o.addresses(); err != nil {
		all = append(all, err)
	}
	return all
}

// port is one of Signalbox's ports, and its flag.
type port struct {
	flag string
	port int
}

func (o *options) ports() []port {
	all := []port{{"grpc-port", o.grpcPort}, {"grpc-health-port", o.healthPort}, {"metrics-port", o.metricsPort}}
	if o.xds.on() {
		all = append(all, port{"xds-port", o.xds.port})
	}
	return all
}

// addresses returns the addresses of --bind, or every problem of them.
func (o *portOptions) addresses() ([]netip.Addr, error) {
	var good []netip.Addr
	var problems []error
	for _, text := range o.bind {
		a, err := netip.ParseAddr(strings.TrimSpace(text))
		a = a.Unmap()
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("--bind: got %q, want an IP address, without a port", text))
		case slices.Contains(good, a):
			problems = append(problems, fmt.Errorf("--bind: %s is given twice", a))
		default:
			good = append(good, a)
		}
	}
	if len(o.bind) == 0 {
		problems = append(problems, errors.New("--bind: want one IP address or more"))
	}
	return good, errors.Join(problems...)
}

// pickOptions says how endpoints are judged, and what a pick names.
type pickOptions struct {
	singleDestination  bool
	emitScores         bool
	wholePool          bool          // no subset hint has effect
	maxEjection        float64       // percent
	refresh, staleness time.Duration // of samples; with a refresh of 0 the interval follows their cost
}

func (o *pickOptions) register(f *pflag.FlagSet) {
	f.BoolVar(&o.singleDestination, "single-destination", false,
		"answer with one endpoint, as ORIGINAL_DST clusters need; true with --endpoint-selector, unless it is set, "+
			"for the proxy of the reference's standalone chart has such a cluster")
	f.BoolVar(&o.emitScores, "emit-endpoint-scores", false, "add the scores of endpoints to the dynamic metadata of "+
		"a pick: envoy.lb, x-gateway-destination-endpoint-scores")
	f.BoolVar(&o.wholePool, "disable-endpoint-subset-filter", false, "pick among all endpoints, whatever subset the "+
		"proxy names")
	f.Float64Var(&o.maxEjection, "max-ejection-percent", 50,
		"share of the pool that may be ejected for failing requests, 0 to 100; 0 switches ejection off")
	f.DurationVar(&o.refresh, "refresh-metrics-interval", 0, "interval of metrics scrapes; 10ms or more; 0 lets it "+
		"follow their cost: as often as takes 2 % of a core of the model server and 5 % of one of ours, every 0.5 s "+
		"at most")
	f.DurationVar(&o.staleness, "metrics-staleness-threshold", 2*time.Second,
		"age from which a sample is stale, if that is more than three of its intervals")
}

func (o *pickOptions) check() error {
	all := notNegative(durationFlag{"refresh-metrics-interval", o.refresh},
		durationFlag{"metrics-staleness-threshold", o.staleness})
	if o.refresh > 0 && o.refresh < config.LeastInterval {
		all = append(all, fmt.Errorf("--refresh-metrics-interval: got %v, want 0 or %v or more", o.refresh,
			config.LeastInterval))
	}
	if !(o.maxEjection >= 0 && o.maxEjection <= 100) { // NaN is not within the range either
		all = append(all, fmt.Errorf("--max-ejection-percent: got %v, want 0 to 100", o.maxEjection))
	}
	return errors.Join(all...)
}

// limitOptions bound a request. A body of maxBody fits into maxHeld; a time of 0 is none.
type limitOptions struct {
	maxBody, maxHeld           int64
	bodyTimeout, queueTimeout  time.Duration
	pickTimeout, idleTimeout   time.Duration
	queueOtherModes            time.Duration
	requestTimeout, logTimeout time.Duration
	firstToken                 time.Duration
}

func (o *limitOptions) register(f *pflag.FlagSet) {
	f.Int64Var(&o.maxBody, "max-body-bytes", 32<<20, "largest request body")
	f.Int64Var(&o.maxHeld, "max-held-bytes", 1<<30,
		"request bodies held at a time, all together; what goes beyond takes the room of what waits, or, without the "+
			"feature gate flowControl, is refused with 503")
	f.DurationVar(&o.bodyTimeout, "body-timeout", 30*time.Second, "time for a request body to arrive; 0 is none")
	f.DurationVar(&o.queueTimeout, "queue-timeout", 60*time.Second,
		"time in the queue without a configuration file, or with one in which the feature gate flowControl is off; "+
			"0 is none")
	f.DurationVar(&o.queueOtherModes, "queue-timeout-other-modes", 8*time.Second,
		"time in the queue, at most, of requests in other body modes than FULL_DUPLEX_STREAMED, in which Envoy gives "+
			"up after its message_timeout; 0 is none")
	f.DurationVar(&o.pickTimeout, "pick-timeout", time.Second, "time for a pick once dispatched; 0 is none")
	f.DurationVar(&o.idleTimeout, "response-idle-timeout", 15*time.Minute,
		"time between two signs of life of a response; 0 is none")
	f.DurationVar(&o.requestTimeout, "request-timeout", 0, "time of a whole request; 0 is none")
	f.DurationVar(
		&o.firstToken,
		"first-token-timeout",
		time.Minute,
		"time for the first token of a streamed response; a longer silence is a failure of its endpoint, unless "+
			"that gives "+
			"other first tokens meanwhile; 0 is none",
	)
	f.DurationVar(&o.logTimeout, "access-log-timeout", 15*time.Minute,
		"time for a request's first access log entry once its stream has ended, 8s or more; one whose entries stop "+
			"coming is lost however long it is; 0 is none")
}

func (o *limitOptions) check() error {
	var all []error
	if o.maxBody < 1 || o.maxBody > 1<<30 {
		all = append(all, fmt.Errorf("--max-body-bytes: got %d, want 1 to %d", o.maxBody, 1<<30))
	}
	if o.maxHeld < o.maxBody {
		all = append(all, fmt.Errorf("--max-held-bytes: got %d, want %d, which is --max-body-bytes, or more", o.maxHeld,
			o.maxBody))
	}
	return errors.Join(append(all, notNegative(
		durationFlag{"body-timeout", o.bodyTimeout}, durationFlag{"queue-timeout", o.queueTimeout},
		durationFlag{"queue-timeout-other-modes", o.queueOtherModes},
		durationFlag{"pick-timeout", o.pickTimeout},
		durationFlag{"response-idle-timeout", o.idleTimeout}, durationFlag{"request-timeout", o.requestTimeout},
		durationFlag{"access-log-timeout", o.logTimeout}, durationFlag{"first-token-timeout", o.firstToken},
	)...)...)
}

// warnings returns what is legal, and seldom what is meant.
func (o *limitOptions) warnings() (all []string) {
	if o.queueTimeout == 0 || o.queueTimeout > config.LongestWait {
		all = append(all, fmt.Sprintf("--queue-timeout is %v: clients and proxies give up before, want %v or less, "+
			"and not 0", o.queueTimeout, config.LongestWait))
	}
	if o.queueOtherModes == 0 || o.queueOtherModes >= envoyPatience {
		all = append(all, fmt.Sprintf("--queue-timeout-other-modes is %v: with the files of deploy/envoy Envoy "+
			"answers 504 by itself after %v, want less, and not 0", o.queueOtherModes, envoyPatience))
	}
	return all
}

// envoyPatience is message_timeout in the files of deploy/envoy.
const envoyPatience = 10 * time.Second

// firstEntryFor is how long a first entry of the access log is waited for at least, however short the limit is: the
// shipped Envoy files send it after five seconds, and what has begun to send them is told by their absence.
const firstEntryFor = 8 * time.Second

// timeLimit returns how long something may take by a flag: 24 hours for 0, which means no limit, and at most that.
func timeLimit(d time.Duration) time.Duration {
	const none = 24 * time.Hour
	if d == 0 {
		return none
	}
	return min(d, none)
}

// drainOptions holds the times of the shutdown. The delay is at most the timeout, unless it was not given: see
// options.delay.
type drainOptions struct {
	drainTimeout, drainDelay time.Duration
}

func (o *drainOptions) register(f *pflag.FlagSet) {
	f.DurationVar(&o.drainTimeout, "drain-timeout", 30*time.Second,
		"time for streams to end after SIGTERM, --drain-delay included")
	f.DurationVar(&o.drainDelay, "drain-delay", 6*time.Second, "time after SIGTERM in which requests are still "+
		"taken, so that Envoy sees the health change; unless given, half of --drain-timeout if that is less")
}

func (o *options) checkDrain() error {
	all := notNegative(durationFlag{"drain-timeout", o.drainTimeout}, durationFlag{"drain-delay", o.drainDelay})
	if o.drainTimeout >= 0 && o.given("drain-delay") && o.drainDelay > o.drainTimeout {
		all = append(all, fmt.Errorf("--drain-delay: got %v, want %v, which is --drain-timeout, or less", o.drainDelay,
			o.drainTimeout))
	}
	return errors.Join(all...)
}

// delay returns how long requests are taken after the first signal. Without --drain-delay it is at most half of
// --drain-timeout, so that streams have the other half to end.
func (o *options) delay() time.Duration {
	if o.given("drain-delay") {
		return o.drainDelay
	}
	return min(o.drainDelay, o.drainTimeout/2)
}

// sourceOptions says where endpoints and configuration come from. At most one of configFile and configText is set.
type sourceOptions struct {
	catalogue              *config.Catalogue // the plugin types that a configuration may name
	endpointsFile          string
	endpointsText          []byte // what it says, if there is no such file; nil = it is read
	configFile, configText string
	gates                  []string
}

func (o *sourceOptions) register(f *pflag.FlagSet) {
	f.StringVar(&o.endpointsFile, "endpoints", "",
		"file of endpoints, for use without a configuration; the format is file-discovery's")
	f.StringVar(&o.configFile, "config-file", "", "EndpointPickerConfig file; not with --config-text")
	f.StringVar(&o.configText, "config-text", "", "EndpointPickerConfig as text; not with --config-file")
	f.StringSliceVar(&o.gates, "feature-gates", nil,
		"feature gates over those of the configuration, such as flowControl=true; by comma or by repetition")
}

func (o *sourceOptions) check() error {
	if o.configFile != "" && o.configText != "" {
		return errors.New("--config-file and --config-text: want one of them")
	}
	var all []error
	for _, gate := range o.gates {
		if _, err := config.CheckGate(gate); err != nil {
			all = append(all, fmt.Errorf("--feature-gates: %w", err))
		}
	}
	return errors.Join(all...)
}

// mostDestinations is how many endpoints a pick names at most: the one to use, and others to fall back to.
const mostDestinations = 3

// load reads the configuration that the command line names.
func (o *options) load(ctx context.Context) (*loaded, error) {
	from := source{name: "the default configuration"}
	switch {
	case o.configText != "":
		from = source{name: "--config-text", text: []byte(o.configText)}
	case o.configFile != "":
		text, err := readInput(ctx, o.configFile, os.Stdin)
		if err != nil {
			return nil, fmt.Errorf("--config-file: %w", err)
		}
		info, err := os.Stat(o.configFile)
		from = source{name: o.configFile, text: text, file: err == nil && info.Mode().IsRegular()}
	}
	return o.parse(from, config.Additions{})
}

// parse makes a configuration of a text and what is added to it, beside the flags. A file of --endpoints takes the
// place of its discovery.
func (o *options) parse(from source, added config.Additions) (*loaded, error) {
	destinations := mostDestinations
	if o.singleDestination {
		destinations = 1
	}
	load := config.Load
	if o.configFile == "" && o.configText == "" {
		load = func(_ []byte, s config.Settings) (*config.Config, error) { return config.Default(s) }
	}
	c, err := load(from.text, config.Settings{
		Destinations: destinations, Stale: o.staleness, Catalogue: o.catalogue, Additions: added,
		Wait: timeLimit(o.queueTimeout), Gates: o.gates,
	})
	if err != nil {
		return nil, fmt.Errorf("%s:\n%w", from.name, err)
	}
	if c.Trust.By == config.TrustCertificate && o.tls.clientCA == "" {
		return nil, fmt.Errorf("%s:\n%w", from.name, c.Trust.NoCertificates())
	}
	if o.endpointsFile != "" {
		if c.Discovery.Path != "" {
			text := fmt.Sprintf("--endpoints %s is used, file-discovery's path %s is not", o.endpointsFile,
				c.Discovery.Path)
			c.Warnings = append(c.Warnings, strictyaml.Problem{Text: text})
		}
		c.Discovery = config.Discovery{Path: o.endpointsFile, Watch: o.endpointsText == nil}
	}
	if err := o.checkDiscovery(c.Discovery.Path); err != nil {
		return nil, err
	}
	if c.Discovery.Path != "" {
		if err := o.checkMetricsAuth(); err != nil {
			return nil, err
		}
		if err := withoutCluster(c); err != nil {
			return nil, fmt.Errorf("%s:\n%w", from.name, err)
		}
	}
	return &loaded{c, from}, nil
}
