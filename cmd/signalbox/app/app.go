// Package app is the signalbox command: flags, ports, drain, and the subcommands. A main of another module may call it. It
// joins the picker and the adapters, and never does their work itself.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox-epp/signalbox/adapters/envoy"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
)

// Main runs the command that the process's arguments name, and ends the process where that failed.
func Main() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	signal.Notify(orders, os.Interrupt, syscall.SIGTERM)
	go endOnSignals(orders, stop)
	if err := newRoot().ExecuteContext(ctx); err != nil {
		lastWords(os.Stderr, "signalbox: "+err.Error()+"\n")
		var quiet exitError
		if errors.As(err, &quiet) {
			os.Exit(int(quiet))
		}
		os.Exit(1)
	}
}

// lastWords writes to a reader that may have stopped reading, which must not hold up the end.
func lastWords(w io.Writer, text string) {
	s := telemetry.NewSink(w, 1<<20, func(uint64) []byte { return nil })
	_, _ = s.Write([]byte(text))
	_ = s.Close()
}

// orders are the signals that end the command. A command may have more signals come here than SIGINT and SIGTERM.
var orders = make(chan os.Signal, 2)

// leftovers are paths of folders to remove at the end, whichever it is: a process that ends at once runs nothing else.
var leftovers sync.Map

func removeLeftovers() {
	leftovers.Range(func(folder, _ any) bool {
		_ = os.RemoveAll(folder.(string)) // nothing can be done about it any more
		return true
	})
}

// oneOrder is how long after the first signal others count as the same one: a terminal sends Ctrl-C to all processes in the foreground,
// and a parent such as make or go run may pass on what it got itself.
const oneOrder = 500 * time.Millisecond

// endOnSignals ends the command in good order at the first signal, and the process at once at the second.
func endOnSignals(signals <-chan os.Signal, stop context.CancelFunc) {
	second := secondSignal(signals, stop)
	envoy.KillAll()
	removeLeftovers()
	lastWords(os.Stderr, "signalbox: ended at once by a second signal: "+second.String()+"\n")
	code := 1
	if number, ok := second.(syscall.Signal); ok {
		code = 128 + int(number) // as a shell has it
	}
	os.Exit(code)
}

// secondSignal calls stop at the first signal, and returns the next one that comes oneOrder or more after it.
func secondSignal(signals <-chan os.Signal, stop context.CancelFunc) os.Signal {
	<-signals
	stop()
	for first := time.Now(); ; {
		if next := <-signals; time.Since(first) >= oneOrder {
			return next
		}
	}
}

// exitError is an exit status without a fault: a check that did not hold.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// newRoot is the command tree. Without a command it serves.
func newRoot() *cobra.Command {
	o := newOptions()
	root := &cobra.Command{
		Use:   "signalbox",
		Short: "Endpoint Picker for LLM inference behind Envoy",
		Long: "Endpoint Picker for LLM inference: Envoy asks it, over ext_proc, which model server takes a request. Without a command it " +
			"serves.",
		Example:       "  signalbox up 127.0.0.1:8001 127.0.0.1:8002\n" + servingExamples,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), o) },
	}
	o.register(root.Flags())
	so := newOptions()
	serving := &cobra.Command{
		Use:   "serve",
		Short: "Serve ext_proc to Envoy (the default command)",
		Long: "Serve ext_proc to Envoy until SIGTERM or SIGINT, then drain: requests are taken for --drain-delay more, and streams have " +
			"--drain-timeout in all to end. A second signal ends at once.",
		Example: servingExamples,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), so) },
	}
	so.register(serving.Flags())
	root.AddCommand(serving, newUp(), newSim(), newEndpoints(), newRequests(), newTop(), newExplain(), newPlugins(), newConfig(), newVersion(),
		newTree(), newDemo(), newConformance(), newEnvoyConfig())
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate("{{.Version}}\n")
	useHelp(root)
	useCompletionCommand(root)
	useCompletion(root)
	return root
}

const servingExamples = "  signalbox --endpoints endpoints.yaml\n" +
	"  signalbox --config-file config.yaml --bind 10.0.0.5 --cert-path /etc/signalbox/tls\n" +
	"  signalbox --endpoints endpoints.yaml --xds-port 18000 --xds-listen 127.0.0.1:8080"

func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:               "help [COMMAND]",
		Short:             "Help about any command",
		ValidArgsFunction: completeCommands,
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err == nil {
				err = noArgs(of, rest)
			}
			if err != nil {
				return err
			}
			return of.Help()
		},
	}
}

// noArgs refuses arguments. Where a command was meant, it says which ones are near.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	path := cmd.CommandPath()
	switch ext := filepath.Ext(args[0]); {
	case !cmd.HasSubCommands():
		return fmt.Errorf("%s takes no arguments: got %q; see %s --help", path, args[0], path)
	case ext == ".yaml" || ext == ".yml" || ext == ".json":
		return fmt.Errorf("unknown command %q; endpoints are named with --endpoints %s, a configuration with --config-file", args[0], args[0])
	}
	cmd.SuggestionsMinimumDistance = 2
	return fmt.Errorf("unknown command %q%s; see %s --help", path+" "+args[0], near(cmd.SuggestionsFor(args[0])), path)
}

// wantsCommand is the run of a command that does nothing by itself.
func wantsCommand(cmd *cobra.Command, _ []string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	path := cmd.CommandPath()
	return fmt.Errorf("%s: got no command, want one of: %s; see %s --help", path, strings.Join(names, " "), path)
}

// oneArg wants one argument and says what it is.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return fmt.Errorf("%s: got %d arguments, want one: %s", cmd.CommandPath(), len(args), what)
	}
}

func near(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ", did you mean " + strings.Join(names, " or ") + "?"
}

// flagError says what is wrong with a flag in the words of the other problems.
func flagError(cmd *cobra.Command, err error) error {
	see := "; see " + cmd.CommandPath() + " --help"
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		return unknownFlag(cmd, unknown)
	}
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return errors.New(err.Error() + see)
	}
	want, known := map[string]string{
		"int": "a whole number", "int64": "a whole number", "uint64": "a whole number, 0 or more", "float64": "a number", "bool": "true or false",
		"duration": "a duration such as 1.5s or 30m",
	}[bad.GetFlag().Value.Type()]
	if !known {
		return errors.New(err.Error() + see)
	}
	return fmt.Errorf("--%s: got %q, want %s", bad.GetFlag().Name, bad.GetValue(), want)
}

// unknownFlag names what is near, or what to do instead of a flag of the reference.
func unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError) error {
	name, see := unknown.GetSpecifiedName(), "; see "+cmd.CommandPath()+" --help"
	if instead := absent(cmd.Flags(), name); instead != "" {
		return fmt.Errorf("--%s: a flag of the reference EPP that is not supported yet; %s", name, instead)
	}
	var known, without []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	for _, other := range slices.Sorted(maps.Keys(absentFlags)) {
		if absent(cmd.Flags(), other) != "" {
			without = append(without, other)
		}
	}
	if names := nearFlags(name, known); len(names) > 0 {
		return errors.New(unknown.Error() + near(names) + see)
	}
	if names := nearFlags(name, without); len(names) > 0 {
		return fmt.Errorf("%w; %s of the reference EPP is not supported yet", unknown, strings.Join(names, " or "))
	}
	return errors.New(unknown.Error() + see)
}

// nearFlags are those of the known names that differ little from name, as flags.
func nearFlags(name string, known []string) []string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2} // it knows how to find what is near
	for _, k := range known {
		all.AddCommand(&cobra.Command{Use: k, Run: func(*cobra.Command, []string) {}})
	}
	names := all.SuggestionsFor(name)
	for i := range names {
		names[i] = "--" + names[i]
	}
	return names
}
