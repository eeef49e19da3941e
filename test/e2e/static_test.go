package e2e

import (
	"debug/buildinfo"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestCommandIsStatic: what make build leaves runs on any Linux, an image without a C library included.
func TestCommandIsStatic(t *testing.T) {
	folder := t.TempDir()
	build := exec.Command("make", "--no-print-directory", "-C", "../..", "build", "BIN="+folder)
	build.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=") // this test may run below a make of its own
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	path := filepath.Join(folder, "signalbox")
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["CGO_ENABLED"] != "0" || settings["-trimpath"] != "true" {
		t.Errorf("CGO_ENABLED=%s, -trimpath=%s; want 0 and true", settings["CGO_ENABLED"], settings["-trimpath"])
	}
	image := readFile(t, "../../deploy/Containerfile")
	for _, part := range []string{"CGO_ENABLED=0", "-trimpath", `-ldflags="-s -w $`, "deploy/version.sh)"} {
		if !strings.Contains(image, part) || !strings.Contains(readFile(t, "../../Makefile"), part) {
			t.Errorf("Containerfile and Makefile do not both build with %s", part)
		}
	}
	if runtime.GOOS == "linux" {
		isStaticELF(t, path)
	}
	saysItsCommit(t, path)
}

// saysItsCommit holds what a binary says of itself against the repository, where there is one.
func saysItsCommit(t *testing.T, path string) {
	t.Helper()
	out, err := exec.Command(path, "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"rev-parse", "HEAD"},
		{"log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ"}} {
		git := exec.Command("git", args...)
		git.Env = append(os.Environ(), "TZ=UTC")
		want, err := git.Output()
		if err != nil {
			want = []byte("unknown")
		}
		if !strings.Contains(string(out), strings.TrimSpace(string(want))) {
			t.Errorf("signalbox version says %q, without the %s of git %v", out, want, args)
		}
	}
}

// isStaticELF looks for what a dynamic or unstripped binary has: an interpreter, libraries, a table of symbols.
func isStaticELF(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary has a program header %v", p.Type)
		}
	}
	for _, name := range []string{".symtab", ".debug_info", ".zdebug_info"} {
		if f.Section(name) != nil {
			t.Errorf("the binary has a section %s", name)
		}
	}
}
