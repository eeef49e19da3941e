package chaos

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// planting is a fault in the product's own source: one text in the place of another, and how the run must complain about it.
type planting struct {
	file, was, is string
	complaint     string
}

var plantings = map[string]planting{
	"load is never given back": {
		"actors/cycle/end.go", "c.letGo()\n\tif c.placed", "if c.placed", "load is left on",
	},
	"a place is never given back": {
		"actors/cycle/end.go", "\tif c.admission {", "\tif c.admission && c.rec.Reason != messages.ClientGone {", "signalbox_flow_places is 0",
	},
	"bodies of clients that left are held": {
		"adapters/extproc/stream.go", "\tst.letGo()\n\tswitch", "\tswitch", "bytes of bodies are held",
	},
	"a cycle that falls answers again": {
		"actors/cycle/end.go", "c.stream != nil && !c.answered", "c.stream != nil && !c.finished", "its cycle told its stream",
	},
	"headers are answered twice": {
		"adapters/extproc/pick.go", "\tst.body.Release()\n\tst.letGo()\n\tif a.trailers",
		"\tst.body.Release()\n\tst.letGo()\n\tif st.id%100 == 0 {\n\t\t_ = st.send(func(r *wire.Response) { r.SetEmptyHeaders(wire.RequestLane) })\n\t}\n\tif a.trailers",
		"duplicate-headers",
	},
	"a goroutine stays": {
		"adapters/extproc/stream.go", "go st.refuse(messages.PickFailed{Reason: m.Reason, RetryAfter: m.RetryAfter})",
		"go func() { st.refuse(messages.PickFailed{Reason: m.Reason}); select {} }()", "goroutines, ",
	},
	"the body's timer stays": {
		"adapters/extproc/stream.go", "\t\tst.timer.Stop()\n", "", "are still referred to",
	},
}

// TestPlantedFaultsAreFound builds this package with each fault and plays one seed: it must fail, for the right reason.
func TestPlantedFaultsAreFound(t *testing.T) {
	if !allPlanted {
		return
	}
	for name, p := range plantings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"test", "-vet=off", "-overlay", p.overlay(t), "./test/chaos", "-seed", "3", "-requests", "1500"}
			cmd := exec.Command("go", args...)
			cmd.Dir = "../.."
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("nobody noticed: go %s\n%s", strings.Join(args, " "), out)
			}
			if !strings.Contains(string(out), p.complaint) {
				t.Errorf("it failed for another reason, want one with %q:\n%s", p.complaint, out)
			}
			if want := "go test ./test/chaos -seed 3 -requests 1500"; !strings.Contains(string(out), want) {
				t.Errorf("it does not say how to repeat it, want %q:\n%s", want, out)
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
