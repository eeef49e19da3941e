package planted

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the module's, seen from this folder, in which the go command runs the tests.
const root = "../.."

// fault is one text in the place of another in the product's own source.
type fault struct {
	file      string // below the root, with slashes
	was, is   string // was stands in it once
	complaint string // with which the test must fail
}

// game is a test that plays one seed.
type game struct {
	test    string // its name, or how that begins
	command string // as it must say how to repeat it: "go test ./test/sim -seed 3"
}

// finds plays over each fault, several at a time.
func (g game) finds(t *testing.T, faults map[string]fault) {
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overlay, err := f.overlay(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			g.complains(t, f.complaint, "-overlay", overlay)
		})
	}
}

// complains plays in a process of its own, built with further flags. The test must fail, for the right reason.
func (g game) complains(t *testing.T, complaint string, flags ...string) {
	t.Helper()
	words := strings.Fields(g.command) // "go", "test" first
	args := slices.Concat([]string{"test", "-vet=off"}, flags, words[2:])
	cmd := exec.Command(words[0], args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("nobody noticed: go %s\n%s", strings.Join(args, " "), out)
	}
	if !strings.Contains(string(out), "--- FAIL: "+g.test) {
		t.Fatalf("go %s did not play: %v\n%s", strings.Join(args, " "), err, out)
	}
	if !strings.Contains(string(out), complaint) {
		t.Errorf("it failed for another reason, want one with %q:\n%s", complaint, out)
	}
	if !strings.Contains(string(out), g.command) {
		t.Errorf("it does not say how to repeat it, want %q:\n%s", g.command, out)
	}
}

// overlay makes a file in the folder that tells the go command to build the faulty source.
func (f fault) overlay(folder string) (string, error) {
	actual, err := filepath.Abs(filepath.Join(root, f.file))
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(actual)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), f.was); n != 1 {
		return "", fmt.Errorf("%s has %q %d times, want once: say anew where the fault goes", f.file, f.was, n)
	}
	faulty, list := filepath.Join(folder, filepath.Base(f.file)), filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(faulty, []byte(strings.Replace(string(source), f.was, f.is, 1)), 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {actual: faulty}})
	if err != nil {
		return "", err
	}
	return list, os.WriteFile(list, text, 0o600)
}
