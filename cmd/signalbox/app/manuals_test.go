package app

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// manuals is how a release has the manual pages and the completion of shells written;
// the product needs no code for the pages then.
var manuals = flag.String("manuals", "", "folder to write man/man1 and completions into")

func TestManuals(t *testing.T) {
	folder := *manuals
	if folder == "" {
		folder = t.TempDir()
	}
	pages := filepath.Join(folder, "man", "man1")
	for _, c := range writeManuals(t, pages) {
		page, err := os.ReadFile(filepath.Join(pages, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		if err != nil {
			t.Errorf("%s has no page: %v", c.CommandPath(), err)
		}
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(string(page), `\fB--`+f.Name+`\fP`) {
				t.Errorf("the page of %s lacks --%s", c.CommandPath(), f.Name)
			}
		})
	}
	for name, begin := range writeCompletions(t, filepath.Join(folder, "completions")) {
		text, err := os.ReadFile(filepath.Join(folder, "completions", name))
		if err != nil || !strings.HasPrefix(string(text), begin) || strings.Count(string(text), "\n") < 100 {
			t.Errorf("%s: %v, %.60q, want %q first", name, err, text, begin)
		}
	}
}

// writeManuals returns the commands that must have a page each.
func writeManuals(t *testing.T, folder string) (all []*cobra.Command) {
	t.Helper()
	mustMake(t, folder)
	root := newRoot()
	root.InitDefaultCompletionCmd()
	root.DisableAutoGenTag = true // it has a date
	if err := doc.GenManTree(root, &doc.GenManHeader{Title: "SIGNALBOX", Section: "1", Source: "Signalbox",
		Manual: "Signalbox"}, folder); err != nil {
		t.Fatal(err)
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.IsAvailableCommand() && !c.IsAdditionalHelpTopicCommand() {
			all = append(all, c)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	if len(all) < 15 {
		t.Fatalf("%d commands: not all are found", len(all))
	}
	return all
}

// writeCompletions returns how each file begins.
func writeCompletions(t *testing.T, folder string) map[string]string {
	t.Helper()
	mustMake(t, folder)
	write := func(name string, generate func(c *cobra.Command, w io.Writer) error) {
		f, err := os.Create(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := generate(newRoot(), f); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	write("signalbox.bash", func(c *cobra.Command, w io.Writer) error { return c.GenBashCompletionV2(w, true) })
	write("_signalbox", (*cobra.Command).GenZshCompletion)
	write("signalbox.fish", func(c *cobra.Command, w io.Writer) error { return c.GenFishCompletion(w, true) })
	write("signalbox.ps1", (*cobra.Command).GenPowerShellCompletionWithDesc)
	return map[string]string{
		"signalbox.bash": "# bash completion V2 for signalbox", "_signalbox": "#compdef signalbox",
		"signalbox.fish": "# fish completion for signalbox", "signalbox.ps1": "# powershell completion for signalbox",
	}
}

func mustMake(t *testing.T, folder string) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
}
