package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// series are the numbers of the cases: the first and the last ones of each letter.
var series = []struct {
	letter      string
	first, last int
}{{"A", 1, 19}, {"B", 1, 13}, {"C", 1, 15}, {"D", 1, 110}, {"E", 1, 57}}

// line is a line of the table in README.md.
type line struct{ number, verdict, file, reason string }

// TestCases holds the table to be whole and true.
func TestCases(t *testing.T) {
	readme := read(t, "README.md")
	differences := strings.Join(strings.Fields(read(t, "../../deploy/docs/differences.md")), " ")
	named := rows(t)
	var got []string
	for _, l := range lines(t, readme) {
		got = append(got, l.number)
		switch {
		case l.verdict != "green" && l.verdict != "differs":
			t.Errorf("%s is %q, want green or differs", l.number, l.verdict)
		case l.file == "":
			t.Errorf("%s names no test", l.number)
		case l.verdict == "green" && l.reason != "":
			t.Errorf("%s is green, want no reason", l.number)
		case l.verdict == "differs" && (l.reason == "" || !strings.Contains(differences, l.reason)):
			t.Errorf("%s differs for %q, which differences.md does not say", l.number, l.reason)
		}
		if where := named[l.number]; !slices.Equal(where, []string{l.file}) {
			t.Errorf("%s is said to be in %s; rows of tests with its number are in %v", l.number, l.file, where)
		}
		delete(named, l.number)
	}
	var want []string
	for _, s := range series {
		for n := s.first; n <= s.last; n++ {
			want = append(want, fmt.Sprint(s.letter, n))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table has the numbers %v, want %v", got, want)
	}
	if len(named) > 0 {
		t.Errorf("rows of tests have numbers that the table lacks: %v", named)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func lines(t *testing.T, readme string) []line {
	t.Helper()
	_, table, _ := strings.Cut(readme, "\n|---|---|---|---|---|\n")
	var out []line
	for row := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
		if len(cells) != 5 {
			t.Fatalf("%q has %d cells, want 5", row, len(cells))
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		out = append(out, line{cells[0], cells[2], strings.Trim(cells[3], "`"), cells[4]})
	}
	return out
}

// rowName is the name of a row of a test that shows cases, such as "D17 D18 leading slash".
var rowName = regexp.MustCompile(`^((?:[A-E][1-9]\d* )+)\S`)

// rows returns, for each number, the files with a row that has it in its name, once for each such row. The cases that
// test/kube plays again have the same numbers.
func rows(t *testing.T) map[string][]string {
	t.Helper()
	const root = "../.."
	out := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		again := strings.HasPrefix(filepath.ToSlash(path), root+"/test/kube/")
		if err != nil || again || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, _ := filepath.Rel(root, path)
		for _, name := range texts(t, path) {
			if m := rowName.FindStringSubmatch(name); m != nil {
				for _, number := range strings.Fields(m[1]) {
					out[number] = append(out[number], filepath.ToSlash(file))
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// texts returns the string literals in the functions of a file: what stands in a comment, or in a declaration that no
// test may use, names no row.
func texts(t *testing.T, path string) (all []string) {
	t.Helper()
	file, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == gotoken.STRING {
				text, _ := strconv.Unquote(lit.Value) // the file is parsed
				all = append(all, text)
			}
			return true
		})
	}
	return all
}
