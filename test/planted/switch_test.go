package planted

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// switchedBy is the environment variable that says which fault of a switched build acts. Without it none does.
const switchedBy = "PLANTED_FAULT"

// switched is the source of the module with many faults at once, so that it is built once for all of them. A function
// with faults begins with one `if plantedFault == 17 { faulty body }` for each, and so a fault that lies within the
// body of one function can be had so. Others are built alone.
type switched struct {
	number  map[place]int // from 1
	overlay string        // the list that the go command reads
}

// place is what a fault changes.
type place struct{ file, was, is string }

func (f *fault) place() place { return place{f.file, f.was, f.is} }

var (
	scratch  string // what is built and written; TestMain removes it
	switches = sync.OnceValues(func() (switched, error) { return switchAll(filepath.Join(scratch, "source")) })
	// building is held by the go command that builds: two at once would compile the same packages twice.
	building sync.Mutex
	binaries = map[string]string{} // package -> its tests with all switched faults
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "planted"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}

// everyFault gives the faults of all tables.
func everyFault() []fault {
	all := slices.Concat(slices.Collect(maps.Values(simFaults)), slices.Collect(maps.Values(chaosFaults)))
	for _, table := range contractTables {
		for _, c := range table {
			all = append(all, c.fault)
		}
	}
	return all
}

// switchAll writes the switched source of all faults into a folder.
func switchAll(folder string) (switched, error) {
	s := switched{number: map[place]int{}, overlay: filepath.Join(folder, "overlay.json")}
	faults := map[string]map[place]fault{} // by file; two tables may plant the same
	for _, f := range everyFault() {
		if faults[f.file] == nil {
			faults[f.file] = map[place]fault{}
		}
		faults[f.file][f.place()] = f
	}
	replace, n := map[string]string{}, 0
	write := func(actual, text string) error {
		n++
		to := filepath.Join(folder, strconv.Itoa(n)+".go")
		replace[actual] = to
		return os.WriteFile(to, []byte(text), 0o600)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return s, err
	}
	for file, planted := range faults {
		actual, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			return s, err
		}
		text, pkg, err := s.switchFile(actual, planted)
		if err != nil {
			return s, err
		}
		if err := errors.Join(write(actual, text), write(filepath.Join(filepath.Dir(actual), "planted_fault.go"),
			"package "+pkg+"\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\n"+
				"var plantedFault, _ = strconv.Atoi(os.Getenv(\""+switchedBy+"\"))\n")); err != nil {
			return s, err
		}
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return s, err
	}
	return s, os.WriteFile(s.overlay, list, 0o600)
}

// switchFile numbers those of a file's faults that can be switched. It returns its source with them, and its package.
func (s *switched) switchFile(path string, faults map[place]fault) (text, pkg string, _ error) {
	original, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	was, err := functionsOf(string(original))
	if err != nil {
		return "", "", err
	}
	bodies := make([]string, len(was.functions)) // faulty ones, switched, by function
	for at, f := range faults {
		source, err := f.source()
		if err != nil {
			return "", "", err
		}
		is, err := functionsOf(source)
		if err != nil {
			return "", "", err
		}
		if i, ok := was.onlyDifference(is); ok {
			s.number[at] = len(s.number) + 1
			bodies[i] += fmt.Sprintf("if plantedFault == %d {%s\n%s}\n", s.number[at], is.functions[i].body,
				is.functions[i].leave)
		}
	}
	text = was.rest[0]
	for i, f := range was.functions {
		text += f.head + "{" + bodies[i] + f.body + "}" + was.rest[i+1]
	}
	return text, was.pkg, nil
}

// source is a file cut at its functions.
type source struct {
	pkg       string
	functions []function
	rest      []string // the text before the first function, between the functions, and after the last one
}

type function struct {
	head, body string // the body without its braces
	leave      string // what ends a function without results
	labelled   bool   // a label must not stand twice in a function
}

func functionsOf(text string) (source, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", text, parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	at := func(p token.Pos) int { return files.Position(p).Offset }
	s, last := source{pkg: file.Name.Name}, 0
	for _, decl := range file.Decls {
		d, ok := decl.(*ast.FuncDecl)
		if !ok || d.Body == nil {
			continue
		}
		f := function{head: text[at(d.Pos()):at(d.Body.Lbrace)], body: text[at(d.Body.Lbrace)+1 : at(d.Body.Rbrace)]}
		if d.Type.Results == nil {
			f.leave = "return\n"
		}
		ast.Inspect(d.Body, func(n ast.Node) bool {
			_, label := n.(*ast.LabeledStmt)
			f.labelled = f.labelled || label
			return true
		})
		s.functions, s.rest = append(s.functions, f), append(s.rest, text[last:at(d.Pos())])
		last = at(d.Body.Rbrace) + 1
	}
	s.rest = append(s.rest, text[last:])
	return s, nil
}

// onlyDifference returns the only function whose body differs, if nothing else does.
func (s *source) onlyDifference(from source) (int, bool) {
	if !slices.Equal(s.rest, from.rest) || len(s.functions) != len(from.functions) {
		return 0, false
	}
	found := -1
	for i, f := range s.functions {
		if f.head != from.functions[i].head || f.body != from.functions[i].body && (found >= 0 || f.labelled) {
			return 0, false
		}
		if f.body != from.functions[i].body {
			found = i
		}
	}
	return found, found >= 0
}

// play runs tests of a package with a fault in the product, in a process of its own.
func (f *fault) play(t *testing.T, folder string, args ...string) (string, error) {
	t.Helper()
	s, err := switches()
	if err != nil {
		t.Fatal(err)
	}
	if number := s.number[f.place()]; number > 0 {
		return playBinary(t, folder, number, args...)
	}
	overlay, err := f.overlay(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", slices.Concat([]string{"test", "-vet=off", "-overlay", overlay, "./" + folder}, args)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// playBinary runs tests of a package in the switched build. Number 0 is no fault.
func playBinary(t *testing.T, folder string, number int, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(binary(t, folder), append([]string{"-test.timeout=10m"}, args...)...)
	cmd.Dir, cmd.Env = filepath.Join(root, folder), append(os.Environ(), switchedBy+"="+strconv.Itoa(number))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// binary builds the tests of a package with all switched faults, once.
func binary(t *testing.T, folder string) string {
	t.Helper()
	s, err := switches()
	if err != nil {
		t.Fatal(err)
	}
	building.Lock()
	defer building.Unlock()
	if binaries[folder] == "" {
		to := filepath.Join(scratch, strings.NewReplacer("/", "_", ".", "root").Replace(folder)+".test")
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", s.overlay, "-o", to,
			"./"+folder)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
		binaries[folder] = to
	}
	return binaries[folder]
}
