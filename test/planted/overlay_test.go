package planted

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const self = "test/planted/rig_test.go"

// TestFaultsHaveTheirPlace is quick: it plays none of them.
func TestFaultsHaveTheirPlace(t *testing.T) {
	for _, f := range everyFault() {
		if _, err := f.source(); err != nil {
			t.Error(err)
		}
	}
}

func TestFaultsThatHaveNoPlaceAnyMore(t *testing.T) {
	for name, c := range map[string]struct {
		fault fault
		want  string
	}{
		"text gone":  {fault{file: self, was: "no line of it"}, "0 times, want once"},
		"text twice": {fault{file: self, was: "err != nil"}, "times, want once"},
		"file gone":  {fault{file: "test/planted/gone.go", was: "a"}, "no such file"},
	} {
		if list, err := c.fault.overlay(t.TempDir()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v gives %q, %v, want an error with %q", name, c.fault, list, err, c.want)
		}
	}
}

func TestOnlyTheOverlayIsFaulty(t *testing.T) {
	folder, before := t.TempDir(), read(t, filepath.Join(root, self))
	f := fault{file: self, was: "package planted\n", is: "package faulty\n"}
	list, err := f.overlay(folder)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(before, "package planted\n", "package faulty\n", 1)
	if got := read(t, filepath.Join(folder, filepath.Base(self))); got != want {
		t.Errorf("the faulty source is\n%s", got)
	}
	if text := read(t, list); !strings.Contains(text, self) || !strings.Contains(text, folder) {
		t.Errorf("the overlay is %s", text)
	}
	if read(t, filepath.Join(root, self)) != before {
		t.Error("the module's own file has changed")
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

// TestSwitchedOffFaultsAreNotThere runs every test that finds a fault in the switched build, with none acting: that it
// fails with one would otherwise prove nothing.
func TestSwitchedOffFaultsAreNotThere(t *testing.T) {
	finders := map[string][]string{} // by package, how the names begin
	for _, table := range contractTables {
		for _, c := range table {
			finders[c.tests] = append(finders[c.tests], c.fails)
		}
	}
	for folder, names := range finders {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			args := slices.Concat([]string{"-test.run=^(" + strings.Join(names, "|") + ")"}, drawn(t, folder))
			if out, err := playBinary(t, folder, 0, args...); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	for _, g := range []game{simGame, chaosGame} {
		folder, args := g.words()
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			if out, err := playBinary(t, folder, 0, args...); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestMostFaultsAreSwitched counts what is built alone, which takes ten times as long.
func TestMostFaultsAreSwitched(t *testing.T) {
	s, err := switches()
	if err != nil {
		t.Fatal(err)
	}
	var alone []string
	for _, f := range everyFault() {
		if s.number[f.place()] == 0 {
			alone = append(alone, f.file+": "+f.was)
		}
	}
	if most := 10; len(alone) > most {
		t.Errorf("%d faults of %d are built alone, want at most %d:\n%s", len(alone), len(everyFault()), most,
			strings.Join(alone, "\n"))
	}
}
