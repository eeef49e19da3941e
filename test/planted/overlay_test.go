package planted

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const self = "test/planted/rig_test.go"

// TestFaultsHaveTheirPlace is quick: it plays none of them.
func TestFaultsHaveTheirPlace(t *testing.T) {
	for _, faults := range []map[string]fault{simFaults, chaosFaults} {
		for name, f := range faults {
			if _, err := f.overlay(t.TempDir()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, table := range []map[string]contract{contracts, detectors, door, gate, policies, shown, usageLimits} {
		for name, c := range table {
			if _, err := c.overlay(t.TempDir()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
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
	list, err := fault{file: self, was: "package planted\n", is: "package faulty\n"}.overlay(folder)
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
