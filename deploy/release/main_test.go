package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const root = "../.."

const app = "github.com/signalbox-epp/signalbox/cmd/signalbox/app" // the path in deploy/version.sh

var made = origin{
	flags: "-X " + app + ".linkedVersion=v9.8.7+x -X " + app + ".linkedCommit=" + strings.Repeat("a1", 20) +
		" -X " + app + ".linkedDate=2026-11-22T16:34:24Z",
	version: "v9.8.7+x", commit: strings.Repeat("a1", 20), date: time.Date(2026, 11, 22, 16, 34, 24, 0, time.UTC),
}

// TestReleasesOfEqualCommitsAreEqual builds a release here, and a later one from a copy of the files in another folder.
// It compares their checksums, and checks the contents of the first.
func TestReleasesOfEqualCommitsAreEqual(t *testing.T) {
	linux := platforms[:2]
	here := release{root: root, out: filepath.Join(t.TempDir(), "dist"), origin: made, platforms: linux}
	there := release{root: copied(t), out: filepath.Join(t.TempDir(), "other"), origin: made, platforms: linux}
	for _, r := range []release{here, there} {
		if err := r.build(); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := read(t, here.out, sumsFile), read(t, there.out, sumsFile); !bytes.Equal(a, b) {
		t.Errorf("two releases of the same files:\n%s\n%s", a, b)
	}
	sumsHold(t, here)
	for _, p := range linux {
		isStatic(t, here.path(p), p)
		billHolds(t, here, p)
	}
	imageHolds(t, here)
	knowsItself(t, here)
}

// copied copies the working tree to another folder and returns that folder.
func copied(t *testing.T) string {
	t.Helper()
	list, err := output(root, nil, "git", "ls-files", "--cached", "--others", "--exclude-standard")
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "elsewhere")
	for _, name := range strings.Split(list, "\n") {
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil {
			continue // deleted in the working tree, but not yet in a commit
		}
		to := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755),
			os.WriteFile(to, read(t, root, name), info.Mode().Perm())); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// sumsHold checks that some files of each kind exist and are listed with their checksums.
func sumsHold(t *testing.T, r release) {
	t.Helper()
	for _, name := range []string{"signalbox-linux-amd64", "signalbox-linux-arm64.cdx.json", "image/index.json",
		"man/man1/signalbox.1", "completions/_signalbox"} {
		sum, err := sha256Of(filepath.Join(r.out, name))
		if err != nil || !strings.Contains(string(read(t, r.out, sumsFile)), sum+"  "+name+"\n") {
			t.Errorf("%s: %v, or its sum %s is not listed", name, err, sum)
		}
	}
}

func isStatic(t *testing.T, path string, p platform) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[p.arch]; f.Machine != want {
		t.Errorf("%s is of %v, want %v", path, f.Machine, want)
	}
	for _, prog := range f.Progs {
		if prog.Type == elf.PT_INTERP || prog.Type == elf.PT_DYNAMIC {
			t.Errorf("%s has a program header %v", path, prog.Type)
		}
	}
	if f.Section(".symtab") != nil {
		t.Errorf("%s has symbols", path)
	}
}

// billHolds reads the bill of materials and checks its version, its checksum and modules that every build has.
func billHolds(t *testing.T, r release, p platform) {
	t.Helper()
	var bom cyclonedx.BOM
	text := read(t, r.out, "signalbox-"+p.String()+".cdx.json")
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(text), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	sum, err := sha256Of(r.path(p))
	if c := bom.Metadata.Component; err != nil || c.Version != made.version || (*c.Hashes)[0].Value != sum {
		t.Errorf("the bill is of %+v, want version %s and sum %s (%v)", c, made.version, sum, err)
	}
	for _, prefix := range []string{"pkg:golang/std@1.", "pkg:golang/google.golang.org/grpc@v1.",
		"pkg:golang/github.com/spf13/cobra@v1."} {
		if !slices.ContainsFunc(*bom.Components,
			func(c cyclonedx.Component) bool { return strings.HasPrefix(c.PackageURL, prefix) }) {
			t.Errorf("the bill lacks %s", prefix)
		}
	}
	if n, listed := len(*(*bom.Dependencies)[0].Dependencies), len(*bom.Components); n != listed {
		t.Errorf("%d dependencies of %d components", n, listed)
	}
}

// imageHolds reads the image layout as a registry client does,
// and compares it with the container file and the binaries.
func imageHolds(t *testing.T, r release) {
	t.Helper()
	outer, err := layout.ImageIndexFromPath(filepath.Join(r.out, "image"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(outer); err != nil {
		t.Errorf("the layout: %v", err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 ||
		manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v9.8.7-x" {
		t.Fatalf("index.json: %+v, %v, want one manifest named v9.8.7-x", manifest, err)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = index.IndexManifest(); err != nil || len(manifest.Manifests) != 2 {
		t.Fatalf("the index: %+v, %v, want two platforms", manifest, err)
	}
	for i, m := range manifest.Manifests {
		if p := r.platforms[i]; m.Platform == nil || m.Platform.OS != p.os || m.Platform.Architecture != p.arch {
			t.Errorf("platform %+v, want %v", m.Platform, p)
		}
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		runsAs(t, img)
		contains(t, img, read(t, r.out, "signalbox-"+r.platforms[i].String()))
	}
}

func runsAs(t *testing.T, img v1.Image) {
	t.Helper()
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := file.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/signalbox"}) || len(c.Cmd) == 0 ||
		c.Cmd[0] != "serve" {
		t.Errorf("the image runs %v %v as %q", c.Entrypoint, c.Cmd, c.User)
	}
	if len(c.ExposedPorts) != 3 || c.Labels["org.opencontainers.image.licenses"] != "Apache-2.0" ||
		c.Labels["org.opencontainers.image.revision"] != made.commit {
		t.Errorf("ports %v, labels %v", c.ExposedPorts, c.Labels)
	}
	if !file.Created.Equal(made.date) {
		t.Errorf("created %v, want the commit's %v", file.Created, made.date)
	}
}

func contains(t *testing.T, img v1.Image, binary []byte) {
	t.Helper()
	found := map[string][]byte{}
	stream := mutate.Extract(img)
	defer stream.Close()
	for r := tar.NewReader(stream); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if found[head.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		if head.Typeflag == tar.TypeSymlink {
			found[head.Name] = []byte(head.Linkname)
		}
		if runnable := head.Mode&0o111 != 0; head.Typeflag == tar.TypeReg && runnable != (head.Name == "signalbox") {
			t.Errorf("%s has mode %o", head.Name, head.Mode)
		}
	}
	for _, name := range []string{"bin/sh", "bin/sleep"} {
		if got := string(found[name]); got != "/signalbox" {
			t.Errorf("%s is a link to %q, want the binary", name, got)
		}
	}
	if !bytes.Equal(found["signalbox"], binary) {
		t.Error("the image has another binary")
	}
	if !bytes.Contains(found["LICENSE"], []byte("Apache License")) {
		t.Error("the image has no license")
	}
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(found["etc/ssl/certs/ca-certificates.crt"]) ||
		bytes.Count(found["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN")) < 100 {
		t.Error("the image has not the certificate authorities")
	}
}

// knowsItself runs the binary for this machine's platform, if it was built, and checks the version that it reports.
func knowsItself(t *testing.T, r release) {
	t.Helper()
	p := platform{runtime.GOOS, runtime.GOARCH}
	if !slices.Contains(r.platforms, p) {
		return
	}
	out, err := exec.Command(r.path(p), "version").Output()
	if want := "signalbox " + made.version + ", commit " + made.commit + " of 2026-11-22T16:34:24Z, "; err != nil ||
		!strings.HasPrefix(string(out), want) {
		t.Errorf("the binary says %q, %v, want %q", out, err, want)
	}
}

func TestOrigin(t *testing.T) {
	if got, err := parseOrigin(made.flags); err != nil || got != made {
		t.Errorf("%q is %+v, %v", made.flags, got, err)
	}
	for _, flags := range []string{"", strings.Replace(made.flags, "a1a1", "xx", 1),
		strings.Replace(made.flags, "2026-11", "2026-13", 1), made.flags + " -race"} {
		if got, err := parseOrigin(flags); err == nil {
			t.Errorf("%q is %+v, want an error", flags, got)
		}
	}
}

func TestReleaseIsOfACommit(t *testing.T) {
	if _, err := originOf(t.TempDir()); err == nil || !strings.Contains(err.Error(), "built of a commit") {
		t.Errorf("without a repository: %v", err)
	}
	folder := t.TempDir()
	if _, err := output(folder, nil, "git", "init", "-q"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "new.go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := originOf(folder); err == nil || !strings.Contains(err.Error(), "?? new.go") {
		t.Errorf("with a file that no commit has: %v", err)
	}
}

func TestFoldersWithOtherThingsStay(t *testing.T) {
	folder := t.TempDir()
	keep := filepath.Join(folder, "thesis.txt")
	if err := os.WriteFile(keep, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (release{root: root, out: folder}).build(); err == nil || !strings.Contains(err.Error(), "thesis.txt") {
		t.Errorf("building over it: %v", err)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
}

func TestContainerFilesThatCannotBeFollowed(t *testing.T) {
	for text, want := range map[string]string{
		"FROM golang\nRUN x\n":                "FROM scratch",
		"FROM scratch\nHEALTHCHECK NONE\n":    "HEALTHCHECK is not known",
		"FROM scratch\nENTRYPOINT /signalbox": "invalid character",
	} {
		if _, err := readRecipe(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := (release{root: root}).files(platforms[0], recipe{files: []string{"/other"}}); err == nil ||
		!strings.Contains(err.Error(), "/other") {
		t.Errorf("a file from nowhere: %v", err)
	}
}

func TestReplacedModulesAreNamedAsWhatReplacesThem(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: "m"}, Deps: []*debug.Module{
		{Path: "a", Version: "v1.0.0+incompatible"},
		{Path: "b", Version: "v1.0.0", Replace: &debug.Module{Path: "c", Version: "v2.0.0"}}}}
	var urls []string
	for _, c := range *billOf(info, made).Components {
		urls = append(urls, c.PackageURL)
	}
	if want := []string{"pkg:golang/std@1.26.8", "pkg:golang/a@v1.0.0%2Bincompatible",
		"pkg:golang/c@v2.0.0"}; !slices.Equal(urls, want) {
		t.Errorf("got %v, want %v", urls, want)
	}
	if text, err := json.Marshal(billOf(info, made)); err != nil || bytes.Contains(text, []byte(`"b"`)) {
		t.Errorf("%s, %v", text, err)
	}
}

func read(t *testing.T, folder, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
