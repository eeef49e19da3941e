package app

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/envoy"
)

// envoyOptions are what a run with a real Envoy needs.
type envoyOptions struct {
	binary    string
	bootstrap string // text
}

// subsetFilter makes the subset hint of the demo's header. It stands before ext_proc.
const subsetFilter = `          - name: demo_subset
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
              request_rules:
              - header: ` + demoServersHeader + `
                on_header_present: {metadata_namespace: envoy.lb.subset_hint, key: x-gateway-destination-endpoint-subset, type: STRING}
                remove: true
`

// findEnvoy finds the binary and reads the bootstrap.
func findEnvoy(bootstrap string) (*envoyOptions, error) {
	binary, err := envoy.Find(self())
	if err != nil {
		return nil, fmt.Errorf("--envoy: %w", err)
	}
	text, err := os.ReadFile(bootstrap)
	if err != nil {
		return nil, fmt.Errorf("--envoy-bootstrap: %w; the default is a path in Signalbox's source tree", err)
	}
	return &envoyOptions{binary: binary, bootstrap: string(text)}, nil
}

// self is the path of this binary, "" if the system does not tell it.
func self() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}

// fit puts this stack's addresses in the place of the default ones.
func (o *envoyOptions) fit(epp string) (string, error) {
	_, port, err := net.SplitHostPort(epp)
	if err != nil {
		return "", err
	}
	text := o.bootstrap
	for _, r := range []struct {
		old, new string
		often    bool // the picker's port stands once in each cluster that leads to it
	}{
		{"port_value: 19000}", "port_value: 0}", false}, {"port_value: 8080}", "port_value: 0}", false},
		{"port_value: 9002}", "port_value: " + port + "}", true},
		{"          - name: envoy.filters.http.ext_proc\n", subsetFilter + "          - name: envoy.filters.http.ext_proc\n", false},
	} {
		n := strings.Count(text, r.old)
		switch {
		case n == 0 && r.often:
			return "", fmt.Errorf("--envoy-bootstrap: %q does not stand in it", r.old)
		case n != 1 && !r.often:
			return "", fmt.Errorf("--envoy-bootstrap: %q stands in it %d times, want once", r.old, n)
		}
		text = strings.ReplaceAll(text, r.old, r.new)
	}
	return text, nil
}

// startEnvoy returns when Envoy serves and holds Signalbox healthy.
func (s *stack) startEnvoy(ctx context.Context, o *envoyOptions, folder string) error {
	text, err := o.fit(s.box.addrs["grpc-port"][0].String())
	if err != nil {
		return err
	}
	config := filepath.Join(folder, "envoy.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	p, err := envoy.Start(envoy.Config{Binary: o.binary, Bootstrap: config, Folder: folder, Flags: []string{"--concurrency", "1"}})
	if err != nil {
		return fmt.Errorf("--envoy: %w", err)
	}
	s.ends = append(s.ends, func() error {
		if p.Gone() {
			return fmt.Errorf("--envoy: %s ended by itself, saying %.2000q: %s", o.binary, strings.Join(p.LastLines(), "\n"), p.How())
		}
		p.Kill()
		return nil
	})
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if s.url, err = p.Ready(ctx); err != nil {
		return fmt.Errorf("--envoy: want one that serves: %w", err)
	}
	return nil
}
