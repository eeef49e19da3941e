package app

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// referenceFlags are the reference's, with their defaults; those that name single metrics are deprecated and left out.
var referenceFlags = map[string]string{
	"grpc-port": "9002", "grpc-health-port": "9003", "metrics-port": "9090", "grpc-max-recv-msg-size": "",
	"grpc-max-send-msg-size": "",
	"pool-name":              "", "pool-namespace": "", "pool-group": "inference.networking.k8s.io",
	"endpoint-selector": "", "endpoint-target-ports": "[]",
	"disable-endpoint-subset-filter": "false", "emit-endpoint-scores": "false", "refresh-metrics-interval": "50ms",
	"refresh-prometheus-metrics-interval": "5s", "metrics-staleness-threshold": "2s", "config-file": "",
	"config-text":                "",
	"allow-experimental-plugins": "false", "ha-enable-leader-election": "false", "drain-timeout": "30s",
	"health-checking": "false",
	"secure-serving":  "true", "cert-path": "", "enable-cert-reload": "false", "tls-min-version": "",
	"tls-cipher-suites":     "[]",
	"metrics-endpoint-auth": "true", "metrics-cert-dir": "", "metrics-client-ca-file": "", "enable-pprof": "true",
	"enable-grpc-stream-metrics": "false", "tracing": "true", "v": "2", "zap-devel": "", "zap-encoder": "",
	"zap-log-level":        "",
	"zap-stacktrace-level": "", "zap-time-encoding": "",
	"feature-gates": "[]", "plugin-state-staleness-threshold": "5m0s", "fairness-id-metric-label-limit": "1000",
}

// Whoever comes with the reference's flags finds what is not there, or has another default, in the list of differences.
func TestDifferencesNameFlagsAsTheyAre(t *testing.T) {
	data, err := os.ReadFile("../../../deploy/docs/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	_, absent, ok := strings.Cut(text, "- Flags that Signalbox does not have: `--")
	absent, _, end := strings.Cut("`--"+absent, "An unknown flag ends the start.")
	if !ok || !end {
		t.Fatal("differences.md has no list of flags that are not there")
	}
	rest := strings.Replace(text, absent, "", 1)
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	newOptions(nil).register(flags)
	for name, byDefault := range referenceFlags {
		f := flags.Lookup(name)
		named := strings.Contains(rest, "`--"+name+"`")
		switch {
		case f == nil && !named && !strings.Contains(absent, "`--"+name+"`"):
			t.Errorf("--%s of the reference is not there, and differences.md does not say so", name)
		case f == nil && absentFlags[name] == "":
			t.Errorf("--%s of the reference is not there, and absentFlags does not say what to do instead", name)
		case f != nil && strings.Contains(absent, "`--"+name+"`"):
			t.Errorf("--%s is there, and differences.md says that it is not", name)
		case f != nil && !strings.HasPrefix(name, "zap-") && f.DefValue != byDefault && !named && name != "v":
			t.Errorf("--%s defaults to %q, not to the reference's %q, and differences.md does not say so", name,
				f.DefValue, byDefault)
		}
	}
	for name := range absentFlags {
		if flags.Lookup(name) != nil {
			t.Errorf("--%s is there, and absentFlags says that it is not", name)
		}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if _, reference := referenceFlags[f.Name]; !reference && !strings.Contains(rest, "`--"+f.Name+"`") &&
			!strings.Contains(rest, "`--"+f.Name+" ") {
			t.Errorf("--%s is not the reference's, and differences.md does not name it", f.Name)
		}
	})
	for _, m := range regexp.MustCompile("`--([a-z-]+)").FindAllStringSubmatch(rest, -1) {
		if _, reference := referenceFlags[m[1]]; flags.Lookup(m[1]) == nil && !reference {
			t.Errorf("differences.md names --%s, which neither Signalbox nor the reference has", m[1])
		}
	}
}
