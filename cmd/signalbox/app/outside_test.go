package app

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const shareHead = "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\n" +
	"plugins: [{type: example.com/share, parameters: "

// anotherModule returns a folder with go.mod and go.sum of a module that requires ours. It needs no network: it also
// requires what ours does, as go mod tidy would have it, so that go asks no further module.
func anotherModule(t *testing.T) (folder string) {
	t.Helper()
	tree, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(tree, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile(filepath.Join(tree, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	_, requirements, _ := strings.Cut(string(ours), "\n") // without the module's name
	folder = t.TempDir()
	writeText(t, filepath.Join(folder, "go.sum"), string(sums))
	writeText(t, filepath.Join(folder, "go.mod"), "module example.com/other\n"+requirements+"\nrequire "+ownModule+
		" v0.1.2\n\nreplace "+ownModule+" => "+tree+"\n")
	return folder
}

// TestMainOfAnotherModule builds a program of another module around the command, and runs it.
func TestMainOfAnotherModule(t *testing.T) {
	folder := anotherModule(t)
	for name, text := range map[string]string{
		"main.go": `package main

import (
	"github.com/spf13/cobra"

	"` + ownModule + `/cmd/signalbox/app"
	"` + ownModule + `/engine/config"
	"` + ownModule + `/engine/schedule"
)

type share struct {
	Share int64       ` + "`json:\"share\"`" + `
	Steps [][]float32 ` + "`json:\"steps\"`" + `
}

func (*share) Filter(*schedule.Input, []bool) {}

func main() {
	app.Main(app.Named("other-picker", "v1.2.3"), app.With(&cobra.Command{
		Use: "greet", Short: "Say hello", Run: func(c *cobra.Command, _ []string) { c.Println("hello") },
	}), app.Plugins(config.PluginType{Type: "example.com/share", New: func() any { return new(share) }}))
}
`,
		"share.yaml":  shareHead + "{share: 9007199254740993, steps: [[0.5, 1], []]}}]\n",
		"shares.yaml": shareHead + "{share: 1.5, steps: [[half]]}}]\n",
		"config.yaml": randomPicking,
	} {
		writeText(t, filepath.Join(folder, name), text)
	}
	binary := filepath.Join(folder, "other-picker")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	build.Dir, build.Env = folder, append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line, c := range map[string]struct {
		ok   bool
		want string
	}{
		"version": {true,
			`^other-picker v1\.2\.3 with signalbox v0\.1\.2, commit unknown of unknown, go`},
		"greet":                    {true, `^hello\n$`},
		"config check config.yaml": {true, `picker  random-picker`},
		"config show share.yaml":   {true, `share: 9007199254740993`},
		"config check shares.yaml": {false, `(?s)parameters.share: got 1.5, .*steps\[0\]\[0\]: got "half"`},
		"--help": {true,
			`(?s)Usage:\n  other-picker \[flags\].*Examples:\n  other-picker up .*\n\nCommands:\n  greet +Say hello\n`},
		"plugins none-such": {false, `^other-picker: no plugin type "none-such"`},
		"greet --to me":     {false, `^other-picker: unknown flag: --to; see other-picker greet --help\n$`},
	} {
		run := exec.CommandContext(t.Context(), binary, strings.Fields(line)...)
		run.Dir = folder
		out, err := run.CombinedOutput()
		if (err == nil) != c.ok || !regexp.MustCompile(c.want).Match(out) {
			t.Errorf("other-picker %s: %v, printed\n%s\nwant success %v and %s", line, err, out, c.ok, c.want)
		}
	}
}
