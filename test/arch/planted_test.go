package arch

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var updatePlanted = flag.Bool("update-planted", false, "write testdata/*/want.txt from what the checks find")

// plantedLimits are small, so that planted trees stay readable.
var plantedLimits = Limits{FunctionLines: 10, Nesting: 2, StructFields: 3}

// TestPlanted proves each check on a tree that breaks its rules: what it finds is exactly want.txt, and every rule of
// the check is found broken at least once. Beside each violation the tree holds its allowed neighbour.
func TestPlanted(t *testing.T) {
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) {
			dir := filepath.Join("testdata", c.Name)
			tree := planted(t, dir)
			run := c.Run
			if c.Name == "sizes" {
				run = plantedLimits.check
			}
			list := sorted(run(tree))
			compareGolden(t, filepath.Join(dir, "want.txt"), list)
			found := map[string]bool{}
			for _, v := range list {
				found[v.Rule] = true
				if !strings.Contains(v.Text, "; ") && !strings.Contains(v.Text, ": ") {
					t.Errorf("%v: does not say what to do instead", v)
				}
			}
			for _, rule := range c.Rules {
				if !found[rule] {
					t.Errorf("rule %s: no planted violation in %s, so nothing proves it", rule, dir)
				}
			}
			if len(found) > len(c.Rules) {
				t.Errorf("found rules %v, want only %v", found, c.Rules)
			}
		})
	}
}

// TestEachWordIsPlanted proves that the planted tree holds every word that was replaced, and that each is found there.
func TestEachWordIsPlanted(t *testing.T) {
	list := checkWords(planted(t, filepath.Join("testdata", "words")))
	for _, w := range replaced {
		if !slices.ContainsFunc(list, func(v Violation) bool { return strings.HasSuffix(v.Text, w.advice) }) {
			t.Errorf("%v: got nothing found in testdata/words, want a planted case", w.pattern)
		}
	}
}

// TestPlantedLab proves that the lab is imported by commands, tests of the whole and itself,
// and by nothing that serves.
func TestPlantedLab(t *testing.T) {
	dir := filepath.Join("testdata", "lab")
	compareGolden(t, filepath.Join(dir, "want.txt"), sorted(checkImports(planted(t, dir))))
}

// planted is the tree in a folder, or in the archive that lies there:
// files in an archive are no Go files to tools that walk this module.
func planted(t *testing.T, root string) *Tree {
	t.Helper()
	if packed := filepath.Join(root, "tree.txtar"); exists(packed) {
		archive, err := txtar.ParseFile(packed)
		if err != nil {
			t.Fatal(err)
		}
		files, err := txtar.FS(archive)
		if err != nil {
			t.Fatal(err)
		}
		root = t.TempDir()
		if err := os.CopyFS(root, files); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func compareGolden(t *testing.T, file string, list []Violation) {
	t.Helper()
	var got strings.Builder
	for _, v := range list {
		got.WriteString(v.String() + "\n")
	}
	if *updatePlanted {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("%s: -want +got:\n%s", file, d)
	}
}

// TestClean proves that no check objects to a tree that keeps every rule.
func TestClean(t *testing.T) {
	dir := filepath.Join("testdata", "clean")
	tree := planted(t, dir)
	for _, c := range Checks() {
		for _, v := range sorted(c.Run(tree)) {
			t.Errorf("%s: %v", c.Name, v)
		}
	}
	want, err := MessageTable(tree)
	if err != nil {
		t.Fatal(err)
	}
	b := Block{filepath.Join(dir, "ARCHITECTURE.md"), "messages", want}
	if *updatePlanted {
		err = b.Update()
	} else {
		err = errors.Join(b.Check(), CheckLength(b.File))
	}
	if err != nil {
		t.Error(err)
	}
}

// TestEmpty proves that a tree without the folders that the rules speak of fails and says what is missing.
func TestEmpty(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir); err == nil {
		t.Error("Load without go.mod: no error")
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.test/empty\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tree, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range Checks() {
		needs := slices.Contains([]string{"immutable", "sealed", "refusable", "messagedocs", "reserved", "plugins"},
			c.Name)
		if got := len(c.Run(tree)) > 0; got != needs {
			t.Errorf("%s on an empty module: objects %v, want %v", c.Name, got, needs)
		}
	}
	if _, err := MessageTable(tree); !errors.Is(err, ErrNoMessages) {
		t.Errorf("MessageTable of an empty module: %v, want %v", err, ErrNoMessages)
	}
}

func TestAllow(t *testing.T) {
	long := Violation{Rule: "function-lines", Path: "a/b.go", Line: 3, Symbol: "T.Run", Text: "long"}
	files := Violation{Rule: "nesting", Path: "a", Text: "long"}
	start := Violation{Rule: "goroutine", Path: "a/b.go", Line: 9, Text: "go"}
	for name, c := range map[string]struct {
		list []Violation
		text string
		want []string // rule and line of what is left
	}{
		"nothing": {nil, "# a comment\n\n", nil},
		"excepted": {[]Violation{long, files},
			"function-lines a/b.go:T.Run one table\nnesting a one format\n", nil},
		"other symbol": {[]Violation{long}, "function-lines a/b.go:Run one table\n",
			[]string{"function-lines 3", "allow 1"}},
		"symbol left out": {[]Violation{long}, "function-lines a/b.go one table\n",
			[]string{"function-lines 3", "allow 1"}},
		"no reason": {[]Violation{long}, "function-lines a/b.go:T.Run\n", []string{"function-lines 3", "allow 1"}},
		"unused": {[]Violation{long}, "function-lines a/b.go:T.Run one table\nnesting c.go:F deep\n",
			[]string{"allow 2"}},
		"unused twice":  {[]Violation{files}, "nesting a x\nnesting a x\n", []string{"allow 2"}},
		"no exceptions": {[]Violation{start}, "goroutine a/b.go we like it\n", []string{"goroutine 9", "allow 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, v := range Allow(c.list, "allow.txt", c.text) {
				got = append(got, fmt.Sprintf("%s %d", v.Rule, v.Line))
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("Allow(%v, %q): -want +got:\n%s", c.list, c.text, d)
			}
		})
	}
}

func TestBlock(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		problem string // in the error of Check; empty = none
		updated string // after Update; empty = it fails too
	}{
		"equal": {"a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb\n", "",
			"a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb\n"},
		"differs": {"a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n", "-update",
			"a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb\n"},
		"empty":    {"<!-- x:begin -->\n<!-- x:end -->", "-update", "<!-- x:begin -->\nnew\n<!-- x:end -->"},
		"no end":   {"<!-- x:begin -->\nnew\n", "<!-- x:end -->", ""},
		"reversed": {"<!-- x:end -->\n<!-- x:begin -->\n", "in this order", ""},
		"twice":    {strings.Repeat("<!-- x:begin -->\nnew\n<!-- x:end -->\n", 2), "once each", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "DOC.md")
			if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			b := Block{file, "x", "new\n"}
			if err := b.Check(); (err != nil) != (c.problem != "") ||
				(err != nil && !strings.Contains(err.Error(), c.problem)) {
				t.Errorf("Check(%q) = %v, want an error with %q", c.text, err, c.problem)
			}
			if err := b.Update(); (err == nil) != (c.updated != "") {
				t.Fatalf("Update(%q) = %v, want success %v", c.text, err, c.updated != "")
			}
			got, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if want := c.updated; want != "" && string(got) != want {
				t.Errorf("Update(%q) wrote %q, want %q", c.text, got, want)
			}
		})
	}
	missing := Block{filepath.Join(t.TempDir(), "DOC.md"), "x", "new\n"}
	if err := missing.Check(); err == nil || !strings.Contains(err.Error(), "write it") {
		t.Errorf("Check without a document = %v, want what to do", err)
	}
}

func TestCheckLength(t *testing.T) {
	for lines, ok := range map[int]bool{documentLimit - 1: true, documentLimit: false} {
		file := filepath.Join(t.TempDir(), "DOC.md")
		if err := os.WriteFile(file, []byte(strings.Repeat("x\n", lines)), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := CheckLength(file); (err == nil) != ok {
			t.Errorf("CheckLength of %d lines = %v, want success %v", lines, err, ok)
		}
	}
}
