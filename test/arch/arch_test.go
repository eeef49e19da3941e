package arch

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "write the generated parts of ARCHITECTURE.md")

const root = "../.."

// house is the source of this repository, loaded once.
var house = sync.OnceValues(func() (*Tree, error) { return Load(root) })

// TestHouse holds this repository against every rule.
func TestHouse(t *testing.T) {
	tree, err := house()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("allow.txt")
	if err != nil {
		t.Fatal(err)
	}
	var list []Violation
	checks := append(Checks(), Check{Name: "allow", Rules: []string{"allow"}})
	for _, c := range checks[:len(checks)-1] {
		list = append(list, c.Run(tree)...)
	}
	list = Allow(sorted(list), "test/arch/allow.txt", string(text))
	for _, c := range checks {
		t.Run(c.Name, func(t *testing.T) {
			for _, v := range list {
				if slices.Contains(c.Rules, v.Rule) {
					t.Error(v)
				}
			}
		})
	}
}

// TestArchitecture holds the generated parts of ARCHITECTURE.md against the code.
func TestArchitecture(t *testing.T) {
	file := filepath.Join(root, "ARCHITECTURE.md")
	for name, text := range map[string]func() (string, error){
		"messages": func() (string, error) {
			tree, err := house()
			if err != nil {
				return "", err
			}
			return MessageTable(tree)
		},
		"tree": supervisionTree,
	} {
		t.Run(name, func(t *testing.T) {
			want, err := text()
			if err != nil {
				t.Fatal(err)
			}
			b := Block{file, name, want}
			if *update {
				err = b.Update()
			} else {
				err = b.Check()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("length", func(t *testing.T) {
		if err := CheckLength(file); err != nil {
			t.Error(err)
		}
	})
}

// supervisionTree is the supervision tree as the binary prints it, as a block of text.
func supervisionTree() (string, error) {
	cmd := exec.Command("go", "run", "./cmd/signalbox", "tree")
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("`signalbox tree` prints no supervision tree: %w\n%s", err, stderr.String())
	}
	if len(strings.TrimSpace(string(out))) == 0 {
		return "", fmt.Errorf("`signalbox tree` printed nothing; it prints the supervision tree")
	}
	return "```text\n" + strings.TrimRight(string(out), "\n") + "\n```\n", nil
}
