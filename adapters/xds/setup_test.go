package xds

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/google/go-cmp/cmp"

	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3" // stands in files only
)

var update = flag.Bool("update", false, "write the shipped files")

// TestShippedFilesAreTheTemplates holds deploy/envoy to the one template.
func TestShippedFilesAreTheTemplates(t *testing.T) {
	for _, cluster := range []string{OverrideHost, OriginalDst, Served} {
		for _, lane := range []string{Light, Full} {
			shipped(t, DefaultSetup(cluster, lane))
		}
	}
}

func shipped(t *testing.T, s Setup) {
	t.Helper()
	want, err := s.Bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("..", "..", "deploy", "envoy", s.FileName())
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil { //nolint:gosec // a file for everybody to read
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s differs from what envoy-config prints; go test ./adapters/xds -update writes it "+
			"(-printed +shipped):\n%s", path, d)
	}
}

// TestEverySetupIsValid reads each bootstrap by the rules of Envoy's protos, with everything off and everything on.
func TestEverySetupIsValid(t *testing.T) {
	for _, cluster := range []string{OverrideHost, OriginalDst, Served} {
		for _, lane := range []string{Light, Full} {
			s := DefaultSetup(cluster, lane)
			t.Run(s.FileName(), func(t *testing.T) { valid(t, s) })
			bare := s
			bare.Version, bare.Servers, bare.MaxBodyBytes = Version{1, 36}, nil, 1<<20
			bare.Secure, bare.HealthChecked = false, false
			t.Run(s.FileName()+" bare", func(t *testing.T) { valid(t, bare) })
			all := s
			all.Picker, all.Xds = Place{"picker.example", 1}, Place{"::1", 2}
			all.Servers = []Place{{"one.example", 3}, {"::1", 4}}
			if cluster != Served {
				all.Others = []Place{{"::1", 9}, {"other.example", 1}}
			}
			all.XdsSecure, all.Authority, all.Identity, all.PickerIdentity = true, "/etc/ca.pem", "/etc/identity",
				"/etc/picker"
			t.Run(s.FileName()+" all", func(t *testing.T) { valid(t, all) })
		}
	}
}

func valid(t *testing.T, s Setup) {
	t.Helper()
	b, err := s.parse()
	if err != nil {
		t.Fatal(err)
	}
	if err := validate(b); err != nil {
		t.Error(err)
	}
	knowsBothFamilies(t, b.GetStaticResources().GetClusters())
	if served, err := s.serve(); err != nil {
		t.Error(err)
	} else {
		knowsBothFamilies(t, served.clusters)
	}
	text, err := s.Bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	for part, want := range map[string]bool{
		"selected_host_key:": s.Cluster == OverrideHost && s.ServedReported(),
		"access_log:":        s.Cluster != Served && s.Lane == Light,
		"US_RX_BODY_BEG":     s.Cluster != Served && s.Lane == Light && !s.Version.before(Version{1, 37}),
		"name: epp_log_3":    len(s.Others) == 2 && s.Lane == Light,
		"exact: \"other.":    len(s.Others) == 2,
		"UpstreamTlsContext": s.Cluster != Served && s.Secure || s.Cluster == Served && s.XdsSecure,
		"trusted_ca":         s.Authority != "",
		"tls_certificates":   s.Identity != "",
		"/etc/identity":      s.Cluster == Served && s.Identity != "",
		"/etc/picker":        s.Cluster != Served && s.PickerIdentity != "",
		"grpc_health_check":  s.Cluster != Served && s.HealthChecked,
		"type: STRICT_DNS\n    # Signalbox picks": s.Cluster == OverrideHost && s.Named(),
	} {
		if got := strings.Contains(string(text), part); got != want {
			t.Errorf("%q stands in it: %t, want %t", part, got, want)
		}
	}
}

// knowsBothFamilies: of a name with addresses of IPv4 and IPv6, Envoy would otherwise know those of one, and
// Signalbox may be reached by the other, or pick it.
func knowsBothFamilies(t *testing.T, clusters []*clusterv3.Cluster) {
	t.Helper()
	for _, c := range clusters {
		switch c.GetType() {
		case clusterv3.Cluster_STRICT_DNS, clusterv3.Cluster_LOGICAL_DNS:
			if c.GetDnsLookupFamily() != clusterv3.Cluster_ALL {
				t.Errorf("cluster %s looks up %v, want ALL", c.GetName(), c.GetDnsLookupFamily())
			}
		}
	}
}

func TestAWrongSetupSaysAllThatIsWrong(t *testing.T) {
	s := DefaultSetup("round-robin", "fast")
	s.Version = Version{1, 35}
	_, err := s.Bootstrap()
	if err == nil {
		t.Fatal("taken")
	}
	for _, part := range []string{"round-robin", "fast", "1.35"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not said of in: %v", part, err)
		}
	}
	s = DefaultSetup(Served, Light)
	s.Others = []Place{{"127.0.0.1", 1}}
	if _, err := s.Bootstrap(); err == nil || !strings.Contains(err.Error(), "other pickers") {
		t.Errorf("other pickers with xDS: %v", err)
	}
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]Version{"1.38": {1, 38}, "v1.40.0": {1, 40}, "2.0.1": {2, 0}} {
		if got, err := ParseVersion(text); err != nil || got != want {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1", "one.two", "1.x"} {
		if got, err := ParseVersion(text); err == nil {
			t.Errorf("%q is %v, want an error", text, got)
		}
	}
}
