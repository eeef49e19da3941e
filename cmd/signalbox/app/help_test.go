package app

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox-epp/signalbox/engine/config"
)

// said is what a command line prints, and that it ends well.
func said(t *testing.T, args ...string) string {
	t.Helper()
	var out strings.Builder
	c := newRoot()
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&out)
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("signalbox %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}

// everyCommand lists the words of each command, those that cobra adds included.
func everyCommand(t *testing.T) (all [][]string) {
	t.Helper()
	root := newRoot()
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		all = append(all, strings.Fields(c.CommandPath())[1:])
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

func TestHelpOfEveryCommandFitsIts100Columns(t *testing.T) {
	for _, words := range everyCommand(t) {
		text := said(t, append(words, "--help")...)
		for i, line := range strings.Split(text, "\n") {
			if n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "        ")); n > helpColumns ||
				strings.TrimRight(line, " ") != line {
				t.Errorf("signalbox %s --help, line %d has %d columns, or ends in white space: %q",
					strings.Join(words, " "), i+1, n, line)
			}
		}
		if !strings.Contains(text, "\nUsage:\n  signalbox") || !strings.Contains(text, "\nHelp:\n  -h, --help") {
			t.Errorf("signalbox %s --help has no usage or no help flag:\n%s", strings.Join(words, " "), text)
		}
	}
}

func TestDocumentationOfPluginsFitsIts100Columns(t *testing.T) {
	texts := []string{said(t, "plugins")}
	for _, f := range (*config.Catalogue)(nil).Describe() {
		for _, p := range f.Plugins {
			texts = append(texts, said(t, "plugins", p.Type))
		}
	}
	for _, text := range texts {
		if strings.Count(text, "\n") < 3 {
			t.Errorf("documentation has fewer than 3 lines: %q", text)
		}
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > helpColumns {
				t.Errorf("a line has %d columns, want %d at most: %q", n, helpColumns, line)
			}
		}
	}
}

// A command or flag that is new is put where people look for it.
func TestHelpHasAGroupForEachCommandAndFlagOfServe(t *testing.T) {
	root := newRoot()
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	text := said(t, "--help")
	if strings.Contains(text, "\nCommands:\n") || strings.Contains(text, "\nFlags:\n") {
		t.Errorf("a command has no group in commandGroups, or a flag of serve none in flagGroups: give it one\n%s",
			text)
	}
	count := func(what string, groups []group, exists func(string) bool) {
		seen := map[string]bool{}
		for _, g := range groups {
			for _, name := range g.names {
				if seen[name] || !exists(name) {
					t.Errorf("%s %s stands in two groups, or is not there", what, name)
				}
				seen[name] = true
			}
		}
	}
	flags := root.Flags()
	root.InitDefaultVersionFlag()
	root.InitDefaultHelpFlag()
	count("flag", flagGroups, func(name string) bool { return flags.Lookup(name) != nil })
	count("command", commandGroups, func(name string) bool {
		found, _, err := root.Find([]string{name})
		return err == nil && found != root
	})
	order := []string{"Usage:", "Examples:\n  signalbox up ", "Serving:\n  up ",
		"Endpoints and configuration:\n      --endpoints", "Ports:\n      --bind", "Help:"}
	for _, part := range order {
		_, rest, found := strings.Cut(text, "\n"+part)
		if !found {
			t.Fatalf("no %q behind what comes before it:\n%s", part, text)
		}
		text = rest
	}
	if text := said(t, "sim", "--help"); !strings.Contains(text, "\nFlags:\n") || strings.Contains(text, "\nPorts:\n") {
		t.Errorf("sim has other flags than serve, and one group of them:\n%s", text)
	}
	root.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" {
			t.Errorf("--%s has no help", f.Name)
		}
	})
}

func TestVersionIsAFlagAndACommand(t *testing.T) {
	flag, command := said(t, "--version"), said(t, "version")
	if flag != command || !strings.HasPrefix(flag, "signalbox ") || strings.Count(flag, "\n") != 1 {
		t.Errorf("--version says %q, version says %q", flag, command)
	}
}

func TestShellIsOfferedValuesAndFiles(t *testing.T) {
	for args, c := range map[string]struct {
		has  []string // lines, without their description
		ends string   // what the shell is told
	}{
		"plugins queue-":             {[]string{"queue-scorer"}, ":4"},
		"plugins queue-scorer ":      {nil, ":4"},
		"envoy-config --lane ":       {[]string{"light", "full"}, ":4"},
		"envoy-config --lane=f":      {[]string{"full"}, ":4"},
		"envoy-config --cluster ":    {[]string{"override-host", "original-dst", "xds"}, ":4"},
		"envoy-config --envoy-versi": {[]string{"--envoy-version"}, ":4"},
		"conformance --mode BUFF": {[]string{"BUFFERED", "BUFFERED_PARTIAL",
			"BUFFERED/FULL_DUPLEX_STREAMED"}, ":6"},
		"conformance --mode NONE,GR": {[]string{"NONE,GRPC", "NONE,GRPC/NONE"}, ":6"},
		"--zap-encoder ":             {[]string{"json", "console"}, ":4"},
		"-v ":                        {[]string{"0", "1", "2", "3", "4", "5"}, ":4"},
		"--tls-min-version ":         {[]string{"VersionTLS12", "VersionTLS13"}, ":4"},
		"--tls-cipher-suites TLS_ECDHE_RSA_WITH_CHACHA": {[]string{"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"},
			":6"},
		"sim --profile ":                     {[]string{"vllm-cpu-tiny"}, ":4"},
		"--endpoints ":                       {[]string{"yaml", "yml", "json"}, ":8"},
		"--config-file ":                     {[]string{"yaml", "yml", "json"}, ":8"},
		"config check a.yaml ":               {[]string{"yaml", "yml", "json"}, ":8"},
		"--cert-path ":                       {nil, ":16"},
		"--client-ca-file ":                  {nil, ":0"},
		"--grpc-port ":                       {nil, ":4"},
		"explain --addr http://127.0.0.1:1 ": {nil, ":4"},
		"version ":                           {nil, ":4"},
		"help conf":                          {[]string{"config", "conformance"}, ":4"},
		"help config ":                       {[]string{"check"}, ":4"},
		"conf":                               {[]string{"config", "conformance"}, ":4"},
		"conformance --endpoints ":           {nil, ":4"},
	} {
		words := strings.Split(args, " ")
		lines := strings.Split(strings.TrimRight(said(t, append([]string{"__complete"}, words...)...), "\n"), "\n")
		if last := lines[len(lines)-1]; strings.HasPrefix(last, "Completion ended") {
			lines = lines[:len(lines)-1]
		}
		var got []string
		for _, line := range lines[:len(lines)-1] {
			value, _, _ := strings.Cut(line, "\t")
			got = append(got, value)
		}
		if ends := lines[len(lines)-1]; ends != c.ends {
			t.Errorf("%q: the shell is told %s, want %s", args, ends, c.ends)
		}
		for _, want := range c.has {
			if !strings.Contains("\n"+strings.Join(got, "\n")+"\n", "\n"+want+"\n") {
				t.Errorf("%q: got %q, want %q among them", args, got, want)
			}
		}
		if c.has == nil && len(got) > 0 {
			t.Errorf("%q: got %q, want nothing", args, got)
		}
	}
}
