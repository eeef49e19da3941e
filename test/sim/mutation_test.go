package sim_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutations are the build tags that plant a fault, and how the simulation must complain about it.
var mutations = map[string]string{
	"mutation_release": "signalbox_flow_places",
	"mutation_answer":  "more than one answer",
	"mutation_stale":   "blocks, want",
	"mutation_stop":    "after it had stopped",
}

// TestPlantedFaultsAreFound builds this package with each fault and plays one seed: it must fail, for the right reason.
func TestPlantedFaultsAreFound(t *testing.T) {
	for tag, complaint := range mutations {
		t.Run(tag, func(t *testing.T) {
			t.Parallel()
			out := fails(t, "-tags", tag)
			if !strings.Contains(out, complaint) {
				t.Errorf("it failed for another reason, want one with %q:\n%s", complaint, out)
			}
			if want := "go test -tags " + tag + " ./test/sim -seed 3 -requests 3000"; !strings.Contains(out, want) {
				t.Errorf("it does not say how to repeat it, want %q:\n%s", want, out)
			}
		})
	}
}

// planting is a fault in the product's own source: one text in the place of another.
type planting struct {
	file, was, is string
	complaint     string
}

var plantings = map[string]planting{
	"load is never given back": {
		"actors/cycle/end.go", "c.letGo()\n\tif c.placed", "if c.placed", "load {",
	},
	"a cycle that falls answers again": {
		"actors/cycle/end.go", "c.stream != nil && !c.answered", "c.stream != nil && !c.finished", "more than one answer",
	},
	"prefix takes any older generation": {
		"actors/prefix/prefix.go", "return e.Generation == *floor", "return e.Generation <= *floor", ", want",
	},
	"a stop comes after what is queued": {
		"engine/runtime/spawn.go", "{ t.stop() }", "{ t.loop.post(item{kind: itemCall, msg: t.stop}, false) }", "after it had stopped",
	},
	"timers outlive their actor": {
		"engine/runtime/mailbox.go", "m.fallen.Add(1)\n\tm.cancelTimers()", "m.fallen.Add(1)", "timers",
	},
	"a message for a broken actor is not kept": {
		"engine/runtime/loop.go", "if box.suspended || box.inv == nil {", "if box.inv == nil {", "after a panic",
	},
}

// TestFaultsInTheSourceAreFound does the same with faults that stand where they could have been made.
func TestFaultsInTheSourceAreFound(t *testing.T) {
	for name, p := range plantings {
		if !allPlanted {
			break
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := fails(t, "-overlay", p.overlay(t))
			if !strings.Contains(out, p.complaint) {
				t.Errorf("it failed for another reason, want one with %q:\n%s", p.complaint, out)
			}
		})
	}
}

// overlay is a file that tells the go command to build the faulty source.
func (p planting) overlay(t *testing.T) string {
	t.Helper()
	actual, err := filepath.Abs(filepath.Join("../..", p.file))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(actual)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), p.was); n != 1 {
		t.Fatalf("%s has %q %d times, want once: say anew where the fault goes", p.file, p.was, n)
	}
	dir := t.TempDir()
	faulty, list := filepath.Join(dir, filepath.Base(p.file)), filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {actual: faulty}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{faulty: strings.Replace(string(source), p.was, p.is, 1), list: string(text)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// fails plays a seed in a process of its own, built with further flags, and gives what it said as it failed.
func fails(t *testing.T, flags ...string) string {
	t.Helper()
	args := append(append([]string{"test", "-vet=off"}, flags...), "./test/sim", "-seed", "3", "-requests", "3000")
	cmd := exec.Command("go", args...)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("nobody noticed: go %s\n%s", strings.Join(args, " "), out)
	}
	if !strings.Contains(string(out), "--- FAIL: TestNamedSeed") {
		t.Fatalf("go %s did not play: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
