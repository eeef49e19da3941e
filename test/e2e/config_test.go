package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what `config check` says into testdata/config")

// TestCommandConfigCheck runs every file of testdata/config: those of the reference's documentation and chart, one with
// every section, and one with a fault in each. Beside each stands what the command says, word for word.
func TestCommandConfigCheck(t *testing.T) {
	seenElsewhere(t)
	files, err := filepath.Glob("testdata/config/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			got, golden := configCheck(t, file), strings.TrimSuffix(file, ".yaml")+".txt"
			if *update {
				writeFile(t, golden, got)
			}
			if want := readFile(t, golden); got != want {
				t.Errorf("want:\n%s\ngot:\n%s", want, got)
			}
		})
	}
	if got := configCheck(t, "testdata/config/absent.yaml"); !strings.HasPrefix(got, "exit 1\n") ||
		!strings.Contains(got, "absent.yaml") {
		t.Errorf("a file that is not there: %s", got)
	}
}

// configCheck is the exit code, and what stands on standard output and, behind a line ---, on standard error.
func configCheck(t *testing.T, file string) string {
	t.Helper()
	var out, complaints bytes.Buffer
	command := exec.CommandContext(t.Context(), binary, "config", "check", filepath.Base(file))
	command.Dir = filepath.Dir(file) // where relative paths of the files begin
	command.Stdout, command.Stderr = &out, &complaints
	_ = command.Run() // the exit code says it
	return fmt.Sprintf("exit %d\n%s---\n%s", command.ProcessState.ExitCode(), out.String(), complaints.String())
}

// TestCommandServesCheckedConfigs: what `config check` passes, `serve` starts with,
// and shows again on its metrics port.
func TestCommandServesCheckedConfigs(t *testing.T) {
	seenElsewhere(t)
	for _, name := range []string{"default", "nothing", "deprecated"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata/config", name+".yaml")
			want, _, _ := strings.Cut(strings.TrimPrefix(configCheck(t, file), "exit 0\n"), "---\n")
			p := serve(t, nil, "--config-file", file)
			if _, page := get(p.metrics + "/debug/config"); !strings.HasPrefix(page, want) {
				t.Errorf("/debug/config says\n%s\nconfig check says\n%s", page, want)
			}
		})
	}
}
