package app

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A plugin of each family can be begun, and its module builds. They build as packages of one module, and the tests of
// two run, because each test links a whole picker.
func TestNewPluginsBuild(t *testing.T) {
	t.Chdir(anotherModule(t))
	families := pluginFamilies()
	if len(families) < 15 {
		t.Errorf("there are %q, want every family", families)
	}
	for _, family := range families {
		var out bytes.Buffer
		name := "my-own-" + family
		if err := writeModule(&out, family, name); err != nil || !strings.Contains(out.String(), "go mod tidy") {
			t.Fatalf("%s: %v, printed %s", family, err, out.String())
		}
		text, err := os.ReadFile(filepath.Join(name, "go.mod"))
		if err != nil || !strings.HasPrefix(string(text), "module example.com/"+name+"\n\ngo 1.") {
			t.Errorf("%s: %v, go.mod is\n%s", family, err, text)
		}
		if err := os.Remove(filepath.Join(name, "go.mod")); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{"go vet -mod=mod ./...", "go test -mod=mod ./my-own-scorer ./my-own-queue"} {
		args := strings.Fields(line)
		run := exec.CommandContext(t.Context(), args[0], args[1:]...)
		run.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off")
		if out, err := run.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	if err := writeModule(new(bytes.Buffer), "scorer", "my-own-scorer"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a folder that is there: got %v, want that it exists", err)
	}
}

func TestNewPluginsNeedAFamilyAndAName(t *testing.T) {
	t.Chdir(t.TempDir())
	for of, want := range map[[2]string]string{
		{"scorers", "a"}:            `no family "scorers"; known are admitter,`,
		{"scorer", "Cheapest"}:      `got "Cheapest", want a name in lower case`,
		{"scorer", "../cheapest"}:   "want a name in lower case",
		{"scorer", "example.com/"}:  "want a name in lower case",
		{"scorer", "a/b"}:           "want a name in lower case",
		{"scorer", "cheapest--one"}: "want a name in lower case",
	} {
		if err := writeModule(new(bytes.Buffer), of[0], of[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", of, err, want)
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("%v, left %v", err, left)
	}
}
