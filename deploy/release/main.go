// Command release builds the files that are published for one commit: binaries, their bills of materials, an OCI image,
// manual pages, shell completion and checksums. It is a separate module, so that its dependencies stay out of the
// product's. It needs no container daemon, and uses the network only for modules that Go's module cache lacks. Equal
// commits give equal files.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// platform is an operating system and an architecture. OCI uses the same names for them as Go.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "-" + p.arch }

var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// origin describes the commit that is built.
type origin struct {
	flags           string // for the linker: they set the other three in the binary
	version, commit string
	date            time.Time
}

// release is one run of this command.
type release struct {
	root      string // folder of the product's module
	out       string // folder for the results, absolute; it is deleted and created again
	origin    origin
	platforms []platform
}

func main() {
	root := flag.String("root", "../..", "folder of the product's module")
	out := flag.String("out", "../../dist", "folder for what is built; what is in it goes")
	flag.Parse()
	if err := run(*root, *out); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(root, out string) error {
	o, err := originOf(root)
	if err != nil {
		return err
	}
	r := release{root: root, origin: o, platforms: platforms}
	if r.out, err = filepath.Abs(out); err != nil {
		return err
	}
	return r.build()
}

// originOf reads the commit from the repository. It fails if the working tree differs from the commit, because the
// build would include the differences.
func originOf(root string) (origin, error) {
	changed, err := output(root, nil, "git", "status", "--porcelain")
	if err != nil {
		return origin{}, fmt.Errorf("a release is built of a commit: %w", err)
	}
	if changed != "" {
		return origin{}, fmt.Errorf("the working tree differs from its commit; commit, stash or remove:\n%s", changed)
	}
	flags, err := output(root, nil, "deploy/version.sh")
	if err != nil {
		return origin{}, err
	}
	return parseOrigin(flags)
}

var linked = regexp.MustCompile(`^-X \S+\.linkedVersion=(\S+) -X \S+\.linkedCommit=([0-9a-f]{40,64}) -X \S+\.linkedDate=(\S+)$`)

func parseOrigin(flags string) (origin, error) {
	m := linked.FindStringSubmatch(flags)
	if m == nil {
		return origin{}, fmt.Errorf("deploy/version.sh prints %q, which names no version, commit and date", flags)
	}
	date, err := time.Parse(time.RFC3339, m[3])
	if err != nil {
		return origin{}, fmt.Errorf("deploy/version.sh: %w", err)
	}
	return origin{flags: flags, version: m[1], commit: m[2], date: date.UTC()}, nil
}

func (r release) build() error {
	if err := r.emptied(); err != nil {
		return err
	}
	for _, p := range r.platforms {
		if err := r.binary(p); err != nil {
			return err
		}
		if err := r.bill(p); err != nil {
			return err
		}
	}
	if err := r.image(); err != nil {
		return err
	}
	if err := r.manuals(); err != nil {
		return err
	}
	return r.sums()
}

// sumsFile is the name of the file with the checksums.
const sumsFile = "SHA256SUMS"

// emptied deletes the folder for the results and creates it again. If the folder has an entry that no release has,
// emptied leaves it unchanged and returns an error.
func (r release) emptied() error {
	entries, err := os.ReadDir(r.out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); name != sumsFile && name != "image" && name != "man" && name != "completions" &&
			!strings.HasPrefix(name, "signalbox-") {
			return fmt.Errorf("%s holds %s, which no release has; name another folder", r.out, name)
		}
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	return os.MkdirAll(r.out, 0o755)
}

func (r release) path(p platform) string { return filepath.Join(r.out, "signalbox-"+p.String()) }

func (r release) binary(p platform) error {
	began := time.Now()
	_, err := output(r.root, []string{"CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch}, "go", "build", "-trimpath",
		"-buildvcs=false",
		"-ldflags=-s -w "+r.origin.flags, "-o", r.path(p), "./cmd/signalbox")
	if err == nil {
		fmt.Printf("%s in %v\n", filepath.Base(r.path(p)), time.Since(began).Round(time.Second))
	}
	return err
}

// manuals writes manual pages and shell completion by a test of the command. The test has access to the commands, so
// the product needs no code for it.
func (r release) manuals() error {
	// Built as the binary is, so that both share what is compiled.
	_, err := output(r.root, []string{"CGO_ENABLED=0", "GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH, "TZ=UTC",
		"SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.origin.date.Unix(), 10)}, "go", "test", "-count=1", "-trimpath",
		"-buildvcs=false", "-vet=off", "-run", "^TestManuals$", "./cmd/signalbox/app", "-manuals", r.out)
	return err
}

// sums writes the checksums of all files except the image's blobs. A blob's name is its digest, and the image's index,
// which has a checksum, names the blobs.
func (r release) sums() error {
	var list bytes.Buffer
	err := filepath.WalkDir(r.out, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == "blobs" {
				return fs.SkipDir
			}
			return nil
		}
		sum, err := sha256Of(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(r.out, path)
		if err == nil {
			fmt.Fprintf(&list, "%s  %s\n", sum, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		return err
	}
	fmt.Print(list.String())
	return os.WriteFile(filepath.Join(r.out, sumsFile), list.Bytes(), 0o644)
}

func sha256Of(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// output runs a command in a folder, with additional environment variables. It returns the command's standard output
// without trailing newlines.
func output(folder string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return strings.TrimRight(string(out), "\n"), nil
}
