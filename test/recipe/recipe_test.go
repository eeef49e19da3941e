// Package recipe follows CONTRIBUTING.md to the letter, in a copy of the repository that is thrown away.
package recipe

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// block is a block of code of the recipe.
type block struct {
	language, file string // the file is of those that are written or changed
	text           string
}

// blocks returns the blocks of a section of CONTRIBUTING.md.
func blocks(t *testing.T, section string) (all []block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("CONTRIBUTING.md has no section %s", section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	fenced := regexp.MustCompile("(?ms)^```([a-z]+) ?([^\n]*)\n(.*?)^```$")
	for _, found := range fenced.FindAllStringSubmatch(rest, -1) {
		all = append(all, block{found[1], found[2], found[3]})
	}
	return all
}

// copyTree copies the repository, without what Git and tools keep in it.
func copyTree(t *testing.T, to string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		switch {
		case name == ".":
			return nil
		case entry.IsDir() && (strings.HasPrefix(name, ".") || name == "bin" || name == "dist"):
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), text, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// apply writes a new file, or adds lines to one behind those that stand above them.
func (b block) apply(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, b.file)
	if b.language == "go" {
		if _, err := os.Stat(path); err == nil {
			t.Fatalf("%s is there", b.file)
		}
		if err := os.WriteFile(path, []byte(b.text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	above, added := "", ""
	for line := range strings.Lines(b.text) {
		switch line[0] {
		case ' ':
			above += line[1:]
		case '+':
			added += line[1:]
		default:
			t.Fatalf("%s: the line %q begins neither with a space nor with +", b.file, line)
		}
	}
	if n := strings.Count(string(text), above); n != 1 {
		t.Fatalf("%s has these lines %d times, want once:\n%s", b.file, n, above)
	}
	changed := strings.Replace(string(text), above, above+added, 1)
	if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The recipe for a scorer gives one that is built, tested, measured and documented.
func TestRecipeForAScorer(t *testing.T) {
	if testing.Short() {
		t.Log("LEFT OUT: it builds a copy of the repository")
		return
	}
	dir := t.TempDir()
	copyTree(t, dir)
	changes, said := 0, ""
	for _, b := range blocks(t, "Add a scorer") {
		if b.language != "sh" {
			b.apply(t, dir)
			changes++
			continue
		}
		cmd := exec.CommandContext(t.Context(), "bash", "-eux", "-c", b.text)
		cmd.Dir = dir
		// Without symbols it links faster. Without paths and cgo, it uses what was compiled for another copy.
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="+os.Getenv("GOFLAGS")+" -ldflags=-w -trimpath")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		said += string(out)
	}
	if changes < 6 || said == "" {
		t.Fatalf("the recipe has %d changes and says %q", changes, said)
	}
	for _, c := range []struct{ file, want string }{
		{"deploy/docs/plugins.md", "### `batch-room-scorer`\n\nPrefers servers whose batch has room"},
		{"deploy/docs/plugins.md", "Source: `engine/scorers/batch_room.go`."},
		{"deploy/docs/plugins.md", "- `limit` (int, default `64`; 1 or more): The number of running requests that scores 0."},
		{"deploy/docs/differences.md", "Plugin types that only Signalbox has: `batch-room-scorer`, "},
		{"engine/config/testdata/costs.txt", "\nbatch-room-scorer "},
	} {
		text, err := os.ReadFile(filepath.Join(dir, c.file))
		if err != nil || !strings.Contains(string(text), c.want) {
			t.Errorf("%s lacks %q (%v)", c.file, c.want, err)
		}
	}
	for _, want := range []string{
		"batch-room-scorer (scorers)", "Reads running-requests (unknown if the server does not report it).",
		"Takes ", `limit  int, default "64"`, "Values: 1 or more.",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the commands do not say %q:\n%s", want, said)
		}
	}
}
