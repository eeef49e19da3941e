package envoy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

// Howto says where an Envoy can be had. It ends the error of Find.
const Howto = "set $ENVOY to one, or put one on PATH " +
	"(envoyproxy.io/docs/envoy/latest/start/install has packages for each system), " +
	"or have `make envoy`, in Signalbox's source folder, fetch the pinned one as .envoy/envoy (Linux x86-64)"

// pinned is where make envoy leaves its binary, below the source folder.
var pinned = filepath.Join(".envoy", "envoy")

// Find returns the path of the Envoy to start. It takes $ENVOY, else the one on PATH, else the pinned one: below the
// working directory, beside the binary self, or in the folder above it, because self is in the folder bin of the
// source. self may be "". An $ENVOY that cannot be run is an error, because it was asked for.
func Find(self string) (string, error) {
	if asked := os.Getenv("ENVOY"); asked != "" {
		path, err := exec.LookPath(asked)
		if err != nil {
			return "", fmt.Errorf("$ENVOY: got %q: %w; unset it, or run `make envoy` and name .envoy/envoy", asked,
				causeOf(err))
		}
		return path, nil
	}
	if path, err := exec.LookPath("envoy"); err == nil {
		return path, nil
	}
	places := []string{pinned}
	if self != "" {
		folder := filepath.Dir(self)
		places = append(places, filepath.Join(folder, pinned), filepath.Join(filepath.Dir(folder), pinned),
			filepath.Join(folder, "envoy"))
	}
	for _, place := range places {
		path, err := filepath.Abs(place)
		if err != nil {
			continue
		}
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return "", errors.New("no Envoy was found: " + Howto)
}

// causeOf returns why LookPath did not find a file, without the name that Go puts before it, up to twice.
func causeOf(err error) error {
	if look := new(exec.Error); errors.As(err, &look) {
		err = look.Err
	}
	if path := new(fs.PathError); errors.As(err, &path) {
		err = path.Err
	}
	return err
}

// versionText matches what Envoy prints of itself: "envoy version: <commit>/1.40.0/Clean/RELEASE/BoringSSL".
var versionText = regexp.MustCompile(`version: [^/\s]*/(\d+\.\d+\.\d+)`)

// Version returns the version that the binary gives, such as "1.40.0".
func Version(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ask := exec.CommandContext(ctx, path, "--version")
	ask.WaitDelay = time.Second
	said, err := ask.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w; it said %.200q", path, err, said)
	}
	found := versionText.FindSubmatch(said)
	if found == nil {
		return "", fmt.Errorf("%s --version: want an Envoy, which names its version; it said %.200q", path, said)
	}
	return string(found[1]), nil
}
