package planted

import (
	"encoding/json"
	"fmt"
	"os"
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
			folder, args := g.words()
			out, err := f.play(t, folder, args...)
			g.complains(t, f.complaint, out, err)
		})
	}
}

// words gives the folder of the tests and the words after it: "test/sim", "-seed", "3".
func (g game) words() (folder string, args []string) {
	words := strings.Fields(g.command)
	at := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "./") })
	return words[at][2:], words[at+1:]
}

// complains checks what a run has printed: the test must have failed, for the right reason.
func (g game) complains(t *testing.T, complaint, out string, err error) {
	t.Helper()
	if err == nil {
		t.Fatalf("nobody noticed: %s\n%s", g.command, out)
	}
	if !strings.Contains(out, "--- FAIL: "+g.test) {
		t.Fatalf("%s did not play: %v\n%s", g.command, err, out)
	}
	if !strings.Contains(out, complaint) {
		t.Errorf("it failed for another reason, want one with %q:\n%s", complaint, out)
	}
	if !strings.Contains(out, g.command) {
		t.Errorf("it does not say how to repeat it, want %q:\n%s", g.command, out)
	}
}

// source gives the faulty source of the file.
func (f *fault) source() (string, error) {
	source, err := os.ReadFile(filepath.Join(root, f.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), f.was); n != 1 {
		return "", fmt.Errorf("%s has %q %d times, want once: say anew where the fault goes", f.file, f.was, n)
	}
	return strings.Replace(string(source), f.was, f.is, 1), nil
}

// overlay makes a file in the folder that tells the go command to build the faulty source.
func (f *fault) overlay(folder string) (string, error) {
	actual, err := filepath.Abs(filepath.Join(root, f.file))
	if err != nil {
		return "", err
	}
	text, err := f.source()
	if err != nil {
		return "", err
	}
	faulty, list := filepath.Join(folder, filepath.Base(f.file)), filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(faulty, []byte(text), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {actual: faulty}})
	if err != nil {
		return "", err
	}
	return list, os.WriteFile(list, replace, 0o600)
}
