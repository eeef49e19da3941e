package app

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func parsed(t *testing.T, args ...string) *options {
	t.Helper()
	o, flags := newOptions(nil), pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.register(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestFlagsOfServeThatAreRefused(t *testing.T) {
	for args, want := range map[string]string{
		"--grpc-port 9003":                      "--grpc-health-port: got 9003, want another port than --grpc-port",
		"--grpc-port 9090 --metrics-port 70000": "--metrics-port: got 70000, want 0 to 65535",
		"--secure-serving=false --cert-path x":  `--cert-path: got "x", want none with --secure-serving=false`,
		"--grpc-port 0 --grpc-health-port 0":    "",

		"--drain-delay 31s":                   "--drain-delay: got 31s, want 30s, which is --drain-timeout, or less",
		"--drain-delay 3s --drain-timeout 2s": "--drain-delay: got 3s, want 2s, which is --drain-timeout, or less",
		"--drain-delay 2s --drain-timeout 2s": "",
		"--drain-timeout 2s":                  "",
		"--refresh-metrics-interval 9ms":      "--refresh-metrics-interval: got 9ms, want 0 or 10ms or more",
		"--refresh-metrics-interval -1ms":     "--refresh-metrics-interval: got -1ms, want 0 or more",
		"--refresh-metrics-interval 10ms":     "",
		"--shards 0":                          "--shards: got 0, want 1 to 1024",
		"--shards 1025":                       "--shards: got 1025, want 1 to 1024",
		"--shards 1024":                       "",
		"-v 9":                                "--v: got 9, want 0 to 5",
		"-v -1":                               "--v: got -1, want 0 to 5",
		"--zap-log-level 9":                   `--zap-log-level: got "9", want debug, info, warn, error, panic or a number from 1 to 5`,
		"--advertise 10.0.0.5:9002":           `--advertise: got "10.0.0.5:9002", want an IP address or a host name, without a port`,
		"--advertise [::1]":                   `--advertise: got "[::1]", want an IP address or a host name, without a port`,
		"--advertise 10.0.0.500":              `--advertise: got "10.0.0.500", want an IP address or a host name, without a port`,
		"--advertise http://box":              `--advertise: got "http://box", want an IP address or a host name, without a port`,
		"--advertise box.svc.":                "",
		"--advertise ::1":                     "",

		"--feature-gates flowControl=true,haPopulateNonLeaderDatastore=true": "",
		"--feature-gates flowControl --feature-gates flow=true": `--feature-gates: unknown feature gate "flow", ` +
			"known are flowControl and haPopulateNonLeaderDatastore",
		"--feature-gates flowControl=yes": `--feature-gates: got "flowControl=yes", want flowControl=true or ` +
			"flowControl=false",
		"--feature-gates flow=false,dataLayer":  "",
		"--plugin-state-staleness-threshold 1m": "",
		"--fairness-id-metric-label-limit 1":    "",
		"--fairness-id-metric-label-limit 0":    "--fairness-id-metric-label-limit: got 0, want 1 or more",

		"--pool-name p":                    "",
		"--pool-name p --endpoints e.yaml": "",
		"--pool-group=":                    "--pool-group: want the API group of the InferencePool",
		"--endpoint-target-ports 1": "--endpoint-target-ports: want --endpoint-selector too; an InferencePool has " +
			"ports of its own",
		"--endpoint-selector a=b": "--endpoint-target-ports: got 0 ports, want 1 to 8",
		"--endpoint-selector a!b --endpoint-target-ports 1": `--endpoint-selector: got "a!b": unable to parse requirement: ` +
			`found '!', expected: in, notin, =, ==, !=, gt, lt`,
	} {
		got := ""
		if err := parsed(t, strings.Fields(args)...).check(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", args, got, want)
		}
	}
}

func TestPortsAndSelectorsThatAreRefused(t *testing.T) {
	for args, want := range map[string]string{
		"--endpoint-target-ports 8000,8001":         "",
		"--endpoint-target-ports 1,2,3,4,5,6,7,8,9": "--endpoint-target-ports: got 9 ports, want 1 to 8",
		"--endpoint-target-ports 8000,8000":         "--endpoint-target-ports: got port 8000 twice",
		"--endpoint-target-ports 0":                 "--endpoint-target-ports: got port 0, want 1 to 65535",
		"--endpoint-target-ports 1 --pool-name p":   "--pool-name and --endpoint-selector: want one of them",
		"--endpoint-target-ports 1 --endpoints e":   "--endpoints and --endpoint-selector: want one of them",
	} {
		got := ""
		if err := parsed(t, append(strings.Fields(args), "--endpoint-selector", "a in (b, c)")...).check(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", args, got, want)
		}
	}
}

// A --drain-timeout that is shorter than the default delay leaves streams time to end.
// Waits without an end, and those that nobody outlasts, are worth a warning; none is longer than a day.
func TestFlagsOfLongWaits(t *testing.T) {
	for args, want := range map[string]int{
		"":                                 0,
		"--queue-timeout 0":                1,
		"--queue-timeout 10m":              0,
		"--queue-timeout 10m1s":            1,
		"--queue-timeout-other-modes 0":    1,
		"--queue-timeout-other-modes 9.9s": 0,
		"--queue-timeout-other-modes 10s":  1,
		"--queue-timeout 2562047h --queue-timeout-other-modes 2562047h": 2,
	} {
		o := parsed(t, strings.Fields(args)...)
		if got := o.limitOptions.warnings(); len(got) != want {
			t.Errorf("%s: %q, want %d warnings", args, got, want)
		}
		if got := timeLimit(o.queueTimeout) + timeLimit(o.pickTimeout); got <= 0 || got > 25*time.Hour {
			t.Errorf("%s: an answer is due within %v", args, got)
		}
	}
}

func TestDrainDelayFollowsAShortTimeout(t *testing.T) {
	for args, want := range map[string]time.Duration{
		"": 6 * time.Second, "--drain-timeout 4s": 2 * time.Second,
		"--drain-timeout 4s --drain-delay 3s": 3 * time.Second, "--drain-delay 0s": 0,
	} {
		if got := parsed(t, strings.Fields(args)...).delay(); got != want {
			t.Errorf("%q: got %v, want %v", args, got, want)
		}
	}
}

// An empty file is not taken for the default configuration; no file is.
func TestEmptyConfigurationFileIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	writeText(t, file, "")
	if _, err := parsed(t, "--endpoints", "e.yaml", "--config-file", file).load(t.Context()); err == nil ||
		!strings.Contains(err.Error(), file+":\nempty;") {
		t.Errorf("got %v, want that it is empty", err)
	}
	if _, err := parsed(t, "--endpoints", "e.yaml").load(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStartNamesAllThatCannotBeHad(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	folder := t.TempDir()
	endpoints, crt := filepath.Join(folder, "endpoints.yaml"), filepath.Join(folder, "tls.crt")
	for path, text := range map[string]string{endpoints: "endpoints: [{name: a}]\n", crt: "garbage",
		filepath.Join(folder, "tls.key"): "garbage"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := parsed(t, "--grpc-port", strconv.Itoa(taken.Addr().(*net.TCPAddr).Port), "--grpc-health-port=0",
		"--metrics-port=0",
		"--cert-path", folder, "--endpoints", endpoints)
	_, err = start(t.Context(), o)
	if err == nil {
		t.Fatal("start returned no error")
	}
	for _, want := range []string{"--grpc-port: listen", "tls.crt and tls.key in " + folder,
		"endpoints[0].port: missing"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

func TestEndpointsFlagBesideFileDiscoveryIsSaid(t *testing.T) {
	o := parsed(t, "--endpoints", "mine.yaml", "--config-text", `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins:
- {type: file-discovery, parameters: {path: theirs.yaml}}
dataLayer: {discovery: {endpoints: {pluginRef: file-discovery}}}
`)
	c, err := o.load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const want = "--endpoints mine.yaml is used, file-discovery's path theirs.yaml is not"
	if n := len(c.Warnings); c.Discovery.Path != "mine.yaml" || n == 0 || c.Warnings[n-1].String() != want {
		t.Errorf("path %q, warnings %v, want mine.yaml and %q", c.Discovery.Path, c.Warnings, want)
	}
}

// Without --client-ca-file no proxy has a name, so headers would count of none.
func TestTrustInCertificatesNeedsThem(t *testing.T) {
	text := []string{"--endpoints", "e.yaml", "--config-text", "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\n" +
		"requestHandler:\n  trust: mtls\n  trustedProxies: [gateway]\n"}
	const want = "--config-text:\nline 4: requestHandler.trust: got mtls, which needs --client-ca-file: without it " +
		"no proxy shows a certificate"
	if _, err := parsed(t, text...).load(t.Context()); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	c, err := parsed(t, append(text, "--client-ca-file", "ca.pem")...).load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := describe(c.Config); !strings.Contains(got, "\ntrust     mtls gateway\n") {
		t.Errorf("described as\n%s", got)
	}
}
