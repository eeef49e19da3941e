package app

import (
	"cmp"
	"fmt"
	"go/doc/comment"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const helpColumns = 100

// group is a heading of help, and what stands below it.
type group struct {
	title string
	names []string
}

// commandGroups holds the subcommands in the order of help. Those of no group come last.
var commandGroups = []group{
	{"Serving", []string{"up", "serve", "envoy-config", "preflight"}},
	{"Configuration", []string{"config", "plugins"}},
	{"A running picker", []string{"endpoints", "requests", "top", "explain", "conformance"}},
	{"Without model servers", []string{"demo", "sim", "bench-policy"}},
	{"This program", []string{"tree", "version", "completion", "help"}},
}

// flagGroups holds the flags of serve in the order of help. Flags of no group, such as those that a command has beside
// serve's, come first.
var flagGroups = []group{
	{"Endpoints and configuration", []string{"endpoints", "config-file", "config-text",
		"feature-gates"}},
	{"Kubernetes", []string{"pool-name", "pool-namespace", "pool-group", "endpoint-selector", "endpoint-target-ports",
		"kubeconfig", "discovery-cache", "ha-enable-leader-election", "events"}},
	{"Ports", []string{"bind", "grpc-port", "grpc-health-port", "metrics-port", "health-checking", "open-debug",
		"enable-pprof", "fairness-id-metric-label-limit"}},
	{"TLS and tokens", []string{"secure-serving", "cert-path", "client-ca-file", "metrics-cert-dir",
		"metrics-client-ca-file", "metrics-token-file", "metrics-endpoint-auth", "forced-endpoint-token-file",
		"enable-cert-reload",
		"tls-min-version", "tls-cipher-suites"}},
	{"Picks", []string{"single-destination", "emit-endpoint-scores", "disable-endpoint-subset-filter",
		"first-token-timeout", "max-ejection-percent", "refresh-metrics-interval", "metrics-staleness-threshold"}},
	{"Limits of a request", []string{"max-body-bytes", "max-held-bytes", "body-timeout", "queue-timeout",
		"queue-timeout-other-modes",
		"pick-timeout", "request-timeout", "response-idle-timeout", "access-log-timeout"}},
	{"xDS and Envoy's files", []string{"xds-port", "xds-listen", "xds-cert-path", "xds-client-ca", "advertise",
		"envoy-ca", "envoy-cert-path"}},
	{"Log", []string{"v", "zap-encoder", "zap-log-level", "zap-time-encoding", "zap-stacktrace-level", "zap-devel"}},
	{"Process", []string{"drain-timeout", "drain-delay", "shards"}},
	{"Flags of the reference that have no effect", []string{"tracing", "allow-experimental-plugins",
		"plugin-state-staleness-threshold"}},
	{"Help", []string{"help", "version"}},
}

// useHelp makes a tree of commands write its help by writeHelp.
func useHelp(root *cobra.Command) {
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { _ = writeHelp(c.OutOrStdout(), c) })
	root.SetUsageFunc(func(c *cobra.Command) error { return writeHelp(c.OutOrStderr(), c) })
	root.SetHelpCommand(newHelp())
}

// writeHelp writes the help of a command: what it does, how it is called, then examples, subcommands and flags by
// group.
func writeHelp(w io.Writer, c *cobra.Command) error {
	var b strings.Builder
	b.WriteString(paragraphs(cmp.Or(c.Long, c.Short)))
	fmt.Fprintf(&b, "\nUsage:\n  %s\n", c.UseLine())
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND\n", c.CommandPath())
	}
	if c.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
	}
	writeCommands(&b, c)
	writeFlags(&b, c.Flags())
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n%s COMMAND --help says more about a command.\n", c.CommandPath())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// paragraphs returns text with lines filled up to the width of help. Indented lines stay as they are.
func paragraphs(text string) string { return filled(text, "") }

// filled returns paragraphs whose lines begin with a prefix.
func filled(text, prefix string) string {
	var p comment.Parser
	printer := comment.Printer{TextWidth: helpColumns - len(prefix), TextPrefix: prefix, TextCodePrefix: prefix + "  "}
	return string(printer.Text(p.Parse(text)))
}

// hanging returns a paragraph to write behind a heading of so many columns, which its other lines leave free.
func hanging(text string, columns int) string {
	indent := strings.Repeat(" ", columns)
	return strings.TrimPrefix(filled(text, indent), indent)
}

func writeCommands(b *strings.Builder, c *cobra.Command) {
	unwritten, widest := map[string]*cobra.Command{}, 0
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			unwritten[sub.Name()] = sub
			names = append(names, sub.Name())
			widest = max(widest, len(sub.Name()))
		}
	}
	write := func(title string, names []string) {
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return unwritten[name] == nil })
		if len(names) == 0 {
			return
		}
		fmt.Fprintf(b, "\n%s:\n", title)
		for _, name := range names {
			fmt.Fprintf(b, "  %-*s  %s", widest, name, hanging(unwritten[name].Short, widest+4))
			delete(unwritten, name)
		}
	}
	if c == c.Root() {
		for _, g := range commandGroups {
			write(g.title, g.names)
		}
	}
	write("Commands", names)
}

func writeFlags(b *strings.Builder, all *pflag.FlagSet) {
	groups := flagGroups
	if all.Lookup("grpc-port") == nil { // without the flags of serve, some of whose names others have too
		groups = flagGroups[len(flagGroups)-1:] // Help alone
	}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.VisitAll(func(f *pflag.Flag) {
		if !slices.ContainsFunc(groups, func(g group) bool { return slices.Contains(g.names, f.Name) }) {
			own.AddFlag(f)
		}
	})
	writeFlagGroup(b, "Flags", own)
	for _, g := range groups {
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		set.SortFlags = false
		for _, name := range g.names {
			if f := all.Lookup(name); f != nil {
				set.AddFlag(f)
			}
		}
		writeFlagGroup(b, g.title, set)
	}
}

func writeFlagGroup(b *strings.Builder, title string, set *pflag.FlagSet) {
	if text := set.FlagUsagesWrapped(helpColumns); text != "" {
		fmt.Fprintf(b, "\n%s:\n%s", title, text)
	}
}

func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:               "help [COMMAND]",
		Short:             "Help about any command",
		ValidArgsFunction: completeCommands,
		RunE: func(cmd *cobra.Command, args []string) error {
			sub, rest, err := cmd.Root().Find(args)
			if err == nil {
				err = noArgs(sub, rest)
			}
			if err != nil {
				return err
			}
			return sub.Help()
		},
	}
}
