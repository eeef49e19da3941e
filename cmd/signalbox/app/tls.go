package app

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/adapters/secrets"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
)

// tlsOptions are the flags about what guards the ports.
type tlsOptions struct {
	secure                               bool   // the ext_proc port
	certPath                             string // of it; empty = self-signed
	clientCA                             string
	reload                               bool
	minVersion                           string
	suites                               []string
	metricsAuth                          bool
	metricsToken, metricsCert, metricsCA string
	forcedToken                          string

	// forces says which tokens let clients name the endpoints of their requests. openSecrets sets it; nil = none does.
	forces func(token string) bool
}

func (o *tlsOptions) register(f *pflag.FlagSet) {
	f.BoolVar(&o.secure, "secure-serving", true, "TLS on the ext_proc port")
	f.StringVar(&o.certPath, "cert-path", "", "directory with tls.crt and tls.key; empty is self-signed")
	f.StringVar(&o.clientCA, "client-ca-file", "",
		"file of the CA that signs proxies' certificates: others are not served ext_proc; empty serves all")
	f.BoolVar(&o.reload, "enable-cert-reload", true,
		"follow the files of certificates, CAs and tokens while they are in use")
	f.StringVar(&o.minVersion, "tls-min-version", "",
		"oldest TLS of all ports, VersionTLS12 or VersionTLS13; empty is VersionTLS12")
	f.StringSliceVar(&o.suites, "tls-cipher-suites", nil, "cipher suites of all ports, as Go names them, for TLS "+
		"1.2: those of 1.3 are fixed; empty is those that HTTP/2 allows")
	f.BoolVar(&o.metricsAuth, "metrics-endpoint-auth", true,
		"want a token on the metrics port: one of --metrics-token-file, or else, where pods are followed, one that "+
			"Kubernetes gives the right to get the page; with a file of endpoints only --metrics-token-file has effect")
	f.StringVar(&o.metricsToken, "metrics-token-file", "",
		"file of bearer tokens, one a line, of which /metrics and /debug want one; empty is none")
	f.StringVar(&o.forcedToken, "forced-endpoint-token-file", "",
		"file of tokens, one a line: a request with one in x-signalbox-token goes to the endpoint that it names in "+
			"x-signalbox-endpoint; empty is none")
	f.StringVar(&o.metricsCert, "metrics-cert-dir", "",
		"directory with tls.crt and tls.key for the metrics port; empty is no TLS")
	f.StringVar(&o.metricsCA, "metrics-client-ca-file", "",
		"file of the CA that signs the certificates of the metrics port's clients: others are not served")
}

// checkTLS gives every problem of these flags that needs no file.
func (o *options) checkTLS() []error {
	var all []error
	if _, err := secrets.ParseVersion(o.tls.minVersion); err != nil {
		all = append(all, fmt.Errorf("--tls-min-version: %w", err))
	}
	if _, err := secrets.ParseSuites(o.tls.suites); err != nil {
		all = append(all, fmt.Errorf("--tls-cipher-suites: %w", err))
	}
	if o.tls.certPath != "" && !o.tls.secure {
		all = append(all, fmt.Errorf("--cert-path: got %q, want none with --secure-serving=false", o.tls.certPath))
	}
	if o.tls.clientCA != "" && !o.tls.secure {
		all = append(all, errors.New("--client-ca-file: want --secure-serving too"))
	}
	if o.tls.metricsCA != "" && o.tls.metricsCert == "" {
		all = append(all, errors.New("--metrics-client-ca-file: want --metrics-cert-dir too"))
	}
	if !o.followsPods() {
		all = append(all, o.checkMetricsAuth())
	}
	return all
}

// checkMetricsAuth returns what is wrong with the flags of the metrics port if no pods are followed.
func (o *options) checkMetricsAuth() error {
	if o.given("metrics-endpoint-auth") && o.tls.metricsAuth && o.tls.metricsToken == "" {
		return errors.New("--metrics-endpoint-auth: want --metrics-token-file too, for with a file of endpoints " +
			"there is no other authority to ask")
	}
	return nil
}

// portSecrets holds the certificates and tokens that guard the ports.
type portSecrets struct {
	ports  map[string]*secrets.Port // by the names below; those without TLS are left out
	tokens *secrets.Tokens          // of the metrics port; nil = it asks for none
	forced *secrets.Tokens          // of clients that name endpoints; nil = there are none
}

const (
	pickerPort  = "ext_proc"
	xdsPort     = "xds"
	metricsPort = "metrics"
)

// tlsPort says how one port uses TLS.
type tlsPort struct {
	name string
	secrets.Config
}

// flags returns the flags that name the files.
func (p tlsPort) flags() string { return p.Flags.Directory + ", " + p.Flags.ClientCA }

func (o *options) tlsPorts() []tlsPort {
	var all []tlsPort
	add := func(port string, c secrets.Config) { all = append(all, tlsPort{port, c}) }
	if o.tls.secure {
		flags := secrets.Flags{Directory: "--cert-path", ClientCA: "--client-ca-file"}
		add(pickerPort, secrets.Config{Directory: o.tls.certPath, ClientCA: o.tls.clientCA, Flags: flags})
	}
	if o.xds.port != 0 && o.xds.certPath != "" {
		flags := secrets.Flags{Directory: "--xds-cert-path", ClientCA: "--xds-client-ca"}
		add(xdsPort, secrets.Config{Directory: o.xds.certPath, ClientCA: o.xds.clientCA, Flags: flags})
	}
	if o.tls.metricsCert != "" {
		flags := secrets.Flags{Directory: "--metrics-cert-dir", ClientCA: "--metrics-client-ca-file"}
		add(metricsPort, secrets.Config{Directory: o.tls.metricsCert, ClientCA: o.tls.metricsCA, Flags: flags})
	}
	return all
}

// openSecrets reads certificates and tokens, and follows them. Its error has everything that is wrong with them. The
// flags have been checked.
func (o *options) openSecrets(log *telemetry.Log) (*portSecrets, error) {
	s := &portSecrets{ports: map[string]*secrets.Port{}}
	var problems []error
	minVersion, err := secrets.ParseVersion(o.tls.minVersion)
	problems = append(problems, err)
	suites, err := secrets.ParseSuites(o.tls.suites)
	problems = append(problems, err)
	for _, p := range o.tlsPorts() {
		p.Parameters = secrets.Parameters{MinVersion: minVersion, Suites: suites}
		p.Protocols = []string{"h2"}
		if p.name == metricsPort {
			p.Protocols = []string{"h2", "http/1.1"}
		}
		port, err := secrets.NewPort(p.Config, o.watch(log, p.flags()))
		if err != nil {
			problems = append(problems, err)
			continue
		}
		s.ports[p.name] = port
	}
	s.tokens, err = o.openTokens(log, "--metrics-token-file", o.tls.metricsToken)
	problems = append(problems, err)
	s.forced, err = o.openTokens(log, "--forced-endpoint-token-file", o.tls.forcedToken)
	problems = append(problems, err)
	if err := errors.Join(problems...); err != nil {
		s.close()
		return nil, err
	}
	o.tls.forces = s.forces()
	return s, nil
}

// openTokens reads the tokens of a file, and follows it; nil = no file is named.
func (o *options) openTokens(log *telemetry.Log, flag, file string) (*secrets.Tokens, error) {
	if file == "" {
		return nil, nil
	}
	return secrets.NewTokens(file, flag, o.watch(log, flag))
}

// forces returns what says which tokens let clients name the endpoints of their requests.
func (s *portSecrets) forces() func(token string) bool {
	if s.forced == nil {
		return nil
	}
	return func(token string) bool { return s.forced.Accept("Bearer " + token) }
}

// watch follows files, and logs what becomes of them.
func (o *options) watch(log *telemetry.Log, flags string) secrets.Watch {
	w := secrets.Watch{Tell: func(err error) {
		if err != nil {
			log.Error("files: what was read before stays in force", zap.String("of", flags), zap.Error(err))
			return
		}
		log.Info("files: what replaced them is in force", zap.String("of", flags))
	}, Validity: func(err error) {
		if err != nil {
			log.Warn("certificates: peers that verify them refuse the connection", zap.Error(err))
			return
		}
		log.Info("certificates: all are valid", zap.String("of", flags))
	}}
	if !o.tls.reload {
		w.Every = -1
	}
	return w
}

func (s *portSecrets) close() {
	for _, p := range s.ports {
		p.Close()
	}
	for _, t := range []*secrets.Tokens{s.tokens, s.forced} {
		if t != nil {
			t.Close()
		}
	}
}

// metrics returns the metrics of the certificates in force.
func (s *portSecrets) metrics() []prometheus.Collector {
	var all []prometheus.Collector
	for name, p := range s.ports {
		all = append(all, p.Metric(name))
	}
	return all
}

// credentials returns the credentials of a gRPC port.
func (s *portSecrets) credentials(port string) credentials.TransportCredentials {
	p := s.ports[port]
	if p == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(p.Server())
}

// guard makes the metrics port want a token, if there is a file of them, or else if Kubernetes is asked.
func (s *server) guard(next http.Handler) http.Handler {
	switch {
	case s.secrets.tokens != nil:
		return admin.Authenticated(next, s.secrets.tokens.Accept)
	case s.tree.reviews != nil:
		return admin.Guarded(next, s.tree.reviews)
	}
	return next
}
