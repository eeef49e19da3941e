package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func parsed(t *testing.T, args ...string) *options {
	t.Helper()
	o, flags := newOptions(), pflag.NewFlagSet("serve", pflag.ContinueOnError)
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

func TestStartNamesAllThatCannotBeHad(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	folder := t.TempDir()
	endpoints, crt := filepath.Join(folder, "endpoints.yaml"), filepath.Join(folder, "tls.crt")
	for path, text := range map[string]string{endpoints: "endpoints: [{name: a}]\n", crt: "garbage", filepath.Join(folder, "tls.key"): "garbage"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := parsed(t, "--grpc-port", strconv.Itoa(taken.Addr().(*net.TCPAddr).Port), "--grpc-health-port=0", "--metrics-port=0",
		"--cert-path", folder, "--endpoints", endpoints)
	_, err = start(t.Context(), o)
	if err == nil {
		t.Fatal("it starts")
	}
	for _, want := range []string{"--grpc-port: listen", "tls.crt and tls.key in " + folder, "endpoints[0].port: is missing"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

func TestEndpointsFlagBesideFileDiscoveryIsSaid(t *testing.T) {
	o := parsed(t, "--endpoints", "mine.yaml", "--config-text", `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: file-discovery, parameters: {path: theirs.yaml}}
dataLayer: {discovery: {pluginRef: file-discovery}}
`)
	c, err := o.load()
	if err != nil {
		t.Fatal(err)
	}
	const want = "--endpoints mine.yaml is used, file-discovery's path theirs.yaml is not"
	if n := len(c.Warnings); c.Discovery.Path != "mine.yaml" || n == 0 || c.Warnings[n-1].String() != want {
		t.Errorf("path %q, warnings %v, want mine.yaml and %q", c.Discovery.Path, c.Warnings, want)
	}
}
