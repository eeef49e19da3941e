package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"
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

// findEnvoy takes $ENVOY, the one that make envoy fetched, or the one on PATH, and reads the bootstrap.
func findEnvoy(bootstrap string) (*envoyOptions, error) {
	binary, err := envoyBinary()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(bootstrap)
	if err != nil {
		return nil, fmt.Errorf("--envoy-bootstrap: %w; the default is a path in Signalbox's source tree", err)
	}
	return &envoyOptions{binary: binary, bootstrap: string(text)}, nil
}

func envoyBinary() (string, error) {
	if binary := os.Getenv("ENVOY"); binary != "" {
		path, err := exec.LookPath(binary)
		if err != nil {
			return "", fmt.Errorf("--envoy: $ENVOY: %w", err)
		}
		return path, nil
	}
	for _, each := range []string{"./.envoy/envoy", "envoy"} {
		if path, err := exec.LookPath(each); err == nil {
			return path, nil
		}
	}
	return "", errors.New("--envoy: no Envoy: want one in $ENVOY, ./.envoy/envoy (make envoy fetches it) or on PATH")
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
	config, adminPath := filepath.Join(folder, "envoy.yaml"), filepath.Join(folder, "admin")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	var said bytes.Buffer
	run := exec.Command(o.binary, "-c", config, "--concurrency", "1", "--disable-hot-restart", "--admin-address-path", adminPath, "-l", "warning")
	run.Stdout, run.Stderr = &said, &said
	run.SysProcAttr = endsWithUs()
	if err := run.Start(); err != nil {
		return fmt.Errorf("--envoy: %w", err)
	}
	ended := make(chan struct{})
	var how error
	go func() {
		how = cmp.Or(run.Wait(), errors.New("exit status 0"))
		close(ended)
	}()
	s.ends = append(s.ends, func() error {
		err := run.Process.Kill()
		<-ended
		if errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("--envoy: %s ended by itself, saying %.2000q: %w", o.binary, said.String(), cmp.Or(how, errors.New("exit status 0")))
		}
		return err
	})
	admin := ""
	err = s.await(ctx, "Envoy", func() bool {
		address, _ := os.ReadFile(adminPath)
		admin = "http://" + string(address)
		return closed(ended) || len(address) > 0 && strings.Contains(adminPage(ctx, admin+"/clusters"), "::health_flags::healthy")
	})
	if closed(ended) {
		return errors.New("--envoy: want one that serves")
	}
	if err != nil {
		return err
	}
	s.url, err = listenerURL(adminPage(ctx, admin+"/listeners?format=json"))
	return err
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// endsWithUs has the system end a child whose parent was killed, where the system can (Linux).
func endsWithUs() *syscall.SysProcAttr {
	attributes := new(syscall.SysProcAttr)
	if field := reflect.ValueOf(attributes).Elem().FieldByName("Pdeathsig"); field.IsValid() {
		field.SetInt(int64(syscall.SIGKILL))
	}
	return attributes
}

// listenerURL is where Envoy listens, of its admin page of listeners.
func listenerURL(page string) (string, error) {
	var all struct {
		Statuses []struct {
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(page), &all); err != nil || len(all.Statuses) != 1 {
		return "", fmt.Errorf("envoy's listeners: want one, got %.500q", page)
	}
	socket := all.Statuses[0].Local.Socket
	return "http://" + net.JoinHostPort(socket.Address, strconv.Itoa(socket.Port)), nil
}

// adminPage is what a GET brings; nothing if it fails.
func adminPage(ctx context.Context, url string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return ""
	}
	r.Close = true // no idle connection stays behind
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return ""
	}
	return string(text)
}
