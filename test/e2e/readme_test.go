package e2e

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fenced is a block of shell commands in README.
var fenced = regexp.MustCompile("(?s)```sh\n(.*?)```")

// shellBlocks are the commands of a section, as they stand.
func shellBlocks(t *testing.T, section string) []string {
	t.Helper()
	_, rest, found := strings.Cut(readFile(t, "../../README.md"), "\n## "+section+"\n")
	if !found {
		t.Fatalf("README has no section %q", section)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	text, _, _ = strings.Cut(text, "\n### ")
	var all []string
	for _, m := range fenced.FindAllStringSubmatch(text, -1) {
		var lines []string
		for line := range strings.Lines(m[1]) {
			lines = append(lines, strings.TrimPrefix(line, "   ")) // of the list
		}
		all = append(all, strings.Join(lines, ""))
	}
	return all
}

// sourceCopy is the source in a folder of its own, without what was built there.
func sourceCopy(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel("../..", path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && slices.Contains([]string{".git", ".envoy", "bin"}, name):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		case !d.Type().IsRegular():
			return nil // such as the .git of a worktree, which is a file there, or a link
		}
		return copyFile(path, filepath.Join(to, name))
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode().Perm())
}

// TestEnvoyFiveMinutes types what README says, in a copy of the source,
// with simulated servers in the place of two vLLMs.
func TestEnvoyFiveMinutes(t *testing.T) {
	seenElsewhere(t)
	blocks := shellBlocks(t, "Five minutes to your two vLLMs")
	if len(blocks) != 3 {
		t.Fatalf("README has %d blocks of commands there, want those that build, start and explain: %q", len(blocks),
			blocks)
	}
	mustBeFree(t, 8001, 8002, 8080, 9002, 9003, 9090, 19000)
	simulated(t, 2, append(quick, "--port", "8001")...)
	folder := sourceCopy(t)
	t.Setenv("ENVOY", envoyPath)
	t.Setenv("MAKEFLAGS", "") // this test may run below a make of its own
	typed := func(commands string) string {
		shell := exec.Command("bash", "-euo", "pipefail", "-c", commands)
		shell.Dir = folder
		out, err := shell.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", commands, err, out)
		}
		return string(out)
	}
	typed(blocks[0])
	up := start(t, "up", "bash", "-c", "cd '"+folder+"' && exec "+strings.TrimSpace(blocks[1]))
	curl := "curl " + up.linesAfter(t, "  curl ", 1, 20*time.Second)[0]
	got := typed(curl + " --silent --show-error --max-time 20")
	m := answered.FindStringSubmatch(got)
	if m == nil {
		t.Fatalf("%s\ngave %s", curl, got)
	}
	if why := typed(blocks[2]); !strings.Contains(why, m[1]) || !strings.Contains(why, model) {
		t.Errorf("%s says nothing of request %s:\n%s", blocks[2], m[1], why)
	}
	if lines := up.linesAfter(t, "server ", 2, time.Second); !strings.HasSuffix(lines[0], ": vllm, model "+model+
		", metrics can be read") {
		t.Errorf("of the servers: %q", lines)
	}
	up.signal(t, syscall.SIGINT)
	if code := up.exitCode(t, 15*time.Second); code != 0 {
		t.Errorf("exit status %d", code)
	}
	mustBeFree(t, 8080, 9002, 9003, 9090, 19000)
}
