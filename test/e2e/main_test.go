// Package e2e drives the real binary and a real Envoy from outside, over HTTP only; it imports nothing of this module.
// Tests whose name begins with TestEnvoy need Envoy. Without one they are left out with a loud line, and under CI the
// run fails.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"
)

// Set once by TestMain, read by every test.
var (
	binary    string // the signalbox under test
	envoyPath string // "" if there is none
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	folder, err := os.MkdirTemp("", "signalbox-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	binary = filepath.Join(folder, "signalbox")
	if err := build(binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	envoyPath = findEnvoy()
	if envoyPath == "" {
		fmt.Fprintln(os.Stderr, "*** NO ENVOY: tests named TestEnvoy... are left out. Run `make envoy`, or set $ENVOY. ***")
		if underCI() {
			fmt.Fprintln(os.Stderr, "*** Under CI that is a failure. ***")
			return 1
		}
		if err := flag.Set("test.skip", "^TestEnvoy"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// build compiles the binary, with the race detector if the test itself has it.
func build(to string) error {
	args := []string{"build", "-o", to}
	if raceEnabled() {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "../../cmd/signalbox")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building signalbox: %w\n%s", err, out)
	}
	return nil
}

func raceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return false
	}
	for _, setting := range info.Settings {
		if setting.Key == "-race" {
			return setting.Value == "true"
		}
	}
	return false
}

// findEnvoy looks at $ENVOY, then at what `make envoy` fetched, then at PATH.
func findEnvoy() string {
	if path := os.Getenv("ENVOY"); path != "" {
		return path
	}
	if path, err := filepath.Abs("../../.envoy/envoy"); err == nil {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	path, err := exec.LookPath("envoy")
	if err != nil {
		return ""
	}
	return path
}

func underCI() bool {
	switch os.Getenv("CI") {
	case "", "0", "false":
		return false
	}
	return true
}
