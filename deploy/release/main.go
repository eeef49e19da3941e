// Command release builds what is published of one commit: binaries, what they are made of, an image, manual pages,
// completion and checksums. It is a module of its own, so that what it needs stays out of the product's. It starts no
// daemon, and asks nothing of the network that Go's module cache has. Equal commits give equal files.
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

// platform is an operating system and an architecture in Go's words, which are those of OCI too.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "-" + p.arch }

var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// origin is the commit that is built.
type origin struct {
	flags           string // of the linker, by which the binary knows the rest
	version, commit string
	date            time.Time
}

// release is one run.
type release struct {
	root      string // of the product's module
	out       string // absolute; made anew
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

// originOf asks the repository. Files that no commit has would be built too, so there must be none.
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

// sumsFile is the checksums' name, and the sign that a folder holds a release.
const sumsFile = "SHA256SUMS"

// emptied makes the folder. One with other things in it than a release or the beginning of one stays as it is.
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

// manuals has the command's own tests write them, which have its commands and need no further code in the product.
func (r release) manuals() error {
	_, err := output(r.root, []string{"GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH, "TZ=UTC",
		"SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.origin.date.Unix(), 10)}, "go", "test", "-count=1", "-run",
		"^TestManuals$", "./cmd/signalbox/app", "-manuals", r.out)
	return err
}

// sums are those of all files but the image's blobs, whose names are their digests; the image's index names them.
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

// output runs a command in a folder, with further environment, and returns what it prints, without the last line's end.
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
