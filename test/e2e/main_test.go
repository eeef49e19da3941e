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
	"regexp"
	"runtime/debug"
	"testing"
)

// Set once by TestMain, read by every test.
var (
	binary    string // the signalbox under test
	envoyPath string // "" if there is none
	// as "1.40"; the one that bootstraps are shipped for if there is none
	envoyVersion = shippedVersion
)

// shippedVersion is the Envoy that the files of deploy/envoy are for.
const shippedVersion = "1.40"

// long asks for the tests that wait for keepalives and deadlines of half a minute and more.
var long = flag.Bool("long", false, "also run tests that wait for longer than 20 s, and under the race detector "+
	"those that see nothing new")

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
		fmt.Fprintln(os.Stderr, "*** NO ENVOY: tests named TestEnvoy... are left out. Run `make envoy`, or set "+
			"$ENVOY. ***")
		if underCI() {
			fmt.Fprintln(os.Stderr, "*** Under CI that is a failure. ***")
			return 1
		}
		if err := flag.Set("test.skip", "^TestEnvoy"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}
	if envoyVersion, err = versionOf(envoyPath); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
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

// seenElsewhere leaves a test out under the race detector, unless long ones are asked for: what it runs,
// quicker ones run too.
func seenElsewhere(t *testing.T) {
	t.Helper()
	if raceEnabled() && !*long {
		t.Skip("under the race detector only with -long") //nolint:forbidigo // make race says what it leaves out
	}
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

// versionOf reads "1.40" out of "envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL".
func versionOf(path string) (string, error) {
	out, err := exec.Command(path, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w\n%s", path, err, out)
	}
	found := regexp.MustCompile(`version: [^/]*/(\d+\.\d+)\.`).FindSubmatch(out)
	if found == nil {
		return "", fmt.Errorf("%s --version says %q", path, out)
	}
	return string(found[1]), nil
}

// reportsServed reports whether Envoy has selected_host_key, and can log every server that it tried: from 1.38 on.
func reportsServed() bool { return envoyVersion != "1.36" && envoyVersion != "1.37" }

func underCI() bool {
	switch os.Getenv("CI") {
	case "", "0", "false":
		return false
	}
	return true
}
