package app

import (
	"crypto/tls"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox-epp/signalbox/adapters/lab/conformance"
	"github.com/signalbox-epp/signalbox/adapters/lab/vllm"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/adapters/xds"
	"github.com/signalbox-epp/signalbox/engine/config"
)

// flagValues returns the values that a shell offers for flags of these names, whatever the command.
func flagValues() map[string][]string {
	return map[string][]string{
		"cluster":         {xds.OverrideHost, xds.OriginalDst, xds.Served},
		"lane":            {xds.Light, xds.Full},
		"envoy-version":   {"1.36", "1.37", "1.38", "1.39", "1.40"},
		"profile":         slices.Sorted(maps.Keys(vllm.Profiles)),
		"mode":            modeNames(),
		"tls-min-version": {"VersionTLS12", "VersionTLS13"},

		"tls-cipher-suites": suiteNames(),

		"v": {"0\twarnings and errors", "1\tstart, stop and changes",
			"2\ta sampled line per request", "3\tevery request", "4\twith scores", "5\twith messages"},
		"zap-encoder":          telemetry.Encoders,
		"zap-log-level":        {"debug", "info", "warn", "error", "panic"},
		"zap-stacktrace-level": {"info", "warn", "error", "panic"},
		"zap-time-encoding":    {"epoch", "millis", "nano", "iso8601", "rfc3339", "rfc3339nano"},
	}
}

// Flags of these names take files and directories. No other flag does.
var (
	yamlFlags = []string{"config-file", "endpoints", "envoy-bootstrap"}
	fileFlags = []string{"client-ca-file", "metrics-client-ca-file", "metrics-token-file", "xds-client-ca",
		"forced-endpoint-token-file", "ca-file", "token-file"}
	directoryFlags = []string{"cert-path", "metrics-cert-dir", "xds-cert-path"}
	yamlNames      = []string{"yaml", "yml", "json"}
)

// useCompletion adds the completion of values to a tree of commands. By default a shell would offer files everywhere.
func useCompletion(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	values := flagValues()
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) { completeFlag(c, f, values[f.Name]) })
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// useCompletionCommand makes the command that writes the shells' scripts refuse arguments that it does not know, as the
// other commands do. Cobra's own would print its help and succeed.
func useCompletionCommand(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Args, c.RunE = noArgs, wantsCommand
		for _, shell := range c.Commands() {
			shell.Args, shell.RunE = noArgs, writeCompletion
		}
	}
}

// writeCompletion writes the script of the shell that the command is named after. Cobra's own would write to the output
// that the root command had when the tree of commands was made.
func writeCompletion(cmd *cobra.Command, _ []string) error {
	root, out := cmd.Root(), cmd.OutOrStdout()
	plain, err := cmd.Flags().GetBool("no-descriptions")
	switch {
	case err != nil:
		return err
	case cmd.Name() == "bash":
		return root.GenBashCompletionV2(out, !plain)
	case cmd.Name() == "fish":
		return root.GenFishCompletion(out, !plain)
	case cmd.Name() == "zsh" && plain:
		return root.GenZshCompletionNoDesc(out)
	case cmd.Name() == "zsh":
		return root.GenZshCompletion(out)
	case plain:
		return root.GenPowerShellCompletion(out)
	}
	return root.GenPowerShellCompletionWithDesc(out)
}

// completeFlag adds the completion of one flag. Errors are dropped: a flag that its command completes already keeps
// that completion.
func completeFlag(c *cobra.Command, f *pflag.Flag, values []string) {
	_, isList := f.Value.(pflag.SliceValue)
	switch {
	case isList && values != nil:
		_ = c.RegisterFlagCompletionFunc(f.Name, commaList(values))
	case values != nil:
		_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	case isList: // endpoints of the conformance check are addresses
	case slices.Contains(yamlFlags, f.Name):
		_ = c.MarkFlagFilename(f.Name, yamlNames...)
	case slices.Contains(fileFlags, f.Name):
		_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault))
	case slices.Contains(directoryFlags, f.Name):
		_ = c.MarkFlagDirname(f.Name)
	}
}

// commaList completes the last of several values with commas between them.
func commaList(values []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := begun[:strings.LastIndexByte(begun, ',')+1]
		all := make([]cobra.Completion, len(values))
		for i, v := range values {
			all[i] = before + v
		}
		return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// suiteNames returns the cipher suites of TLS 1.2, the only ones that can be chosen.
func suiteNames() []string {
	var all []string
	for _, s := range tls.CipherSuites() {
		if slices.Contains(s.SupportedVersions, tls.VersionTLS12) {
			all = append(all, s.Name)
		}
	}
	return all
}

// modeNames returns the modes of the conformance check as its flag takes them: in quotes where a name has a comma.
func modeNames() []string {
	var all []string
	for _, m := range conformance.AllModes() {
		name := m.Name
		if strings.Contains(name, ",") {
			name = strconv.Quote(name)
		}
		all = append(all, name)
	}
	return all
}

// completePlugins offers the types of plugins, each with what it does.
func completePlugins(types *config.Catalogue) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var all []cobra.Completion
		for _, f := range types.Describe() {
			for _, p := range f.Plugins {
				all = append(all, cobra.CompletionWithDesc(p.Type, firstSentence(p.Text)))
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeYAML offers YAML and JSON files.
func completeYAML(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return yamlNames, cobra.ShellCompDirectiveFilterFileExt
}

// completeCommands offers the subcommands of the command that args name.
func completeCommands(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	parent, rest, err := c.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var all []cobra.Completion
	for _, sub := range parent.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, cobra.CompletionWithDesc(sub.Name(), sub.Short))
		}
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}
