// Package app is the signalbox command: flags, ports, drain, and the subcommands. It joins the picker and the adapters,
// and never does their work itself.
//
// A main of another module runs it as its own program:
//
//	func main() { app.Main(app.Named("my-picker", "v1.2.3"), app.With(newAudit())) }
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/engine/config"
)

// Option makes the command the program of another module.
type Option func(*program)

// Named calls the command by another name in its help, its errors and its version, which says both names. An empty
// version stands for that of the main module. Metrics and the headers that clients see keep Signalbox's names.
func Named(name, version string) Option {
	return func(p *program) { p.name, p.version = name, version }
}

// With adds commands. None may have the name of a command of Signalbox. The context that they run with is done at the
// first SIGINT or SIGTERM.
func With(commands ...*cobra.Command) Option {
	return func(p *program) { p.commands = append(p.commands, commands...) }
}

// Plugins adds plugin types to those that configuration files may name. They are listed, documented, completed and
// checked like those that are built in.
func Plugins(types ...config.PluginType) Option {
	return func(p *program) { p.types = append(p.types, types...) }
}

const ownName = "signalbox"

// program is the command, with the name and the additions of the main that runs it.
type program struct {
	name, version string           // ownName and no version, unless the main sets them
	commands      []*cobra.Command // commands of the main, beside our own
	types         []config.PluginType
	catalogue     *config.Catalogue // with types; nil = there are none
}

func newProgram(opts []Option) *program {
	p := &program{name: ownName}
	for _, change := range opts {
		change(p)
	}
	if len(p.types) > 0 {
		catalogue, err := config.NewCatalogue(p.types...)
		if err != nil {
			panic(err) // the main is wrong, whatever its user does
		}
		p.catalogue = catalogue
	}
	return p
}

// rename puts the program's name in the place of ours in the examples of a tree of commands. Usage and errors take the
// name from the root command.
func (p *program) rename(c *cobra.Command) {
	if p.name == ownName {
		return
	}
	c.Example = strings.ReplaceAll("\n"+c.Example, "\n  "+ownName+" ", "\n  "+p.name+" ")[1:]
	for _, sub := range c.Commands() {
		p.rename(sub)
	}
}

// Main runs the command that the process's arguments name. If the command fails, Main ends the process with a status
// other than 0. At a second signal it ends the process at once.
func Main(opts ...Option) {
	if status, called := sleepIfCalled(os.Args); called {
		os.Exit(status)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	root := newRoot(opts...)
	signal.Notify(endSignals, os.Interrupt, syscall.SIGTERM)
	go endOnSignals(endSignals, stop, root.Name())
	if err := root.ExecuteContext(ctx); err != nil {
		lastWords(os.Stderr, root.Name()+": "+err.Error()+"\n")
		var quiet exitError
		if errors.As(err, &quiet) {
			os.Exit(int(quiet))
		}
		os.Exit(1)
	}
}

// lastWords writes the last output of the process. A reader that has stopped reading does not hold up the end.
func lastWords(w io.Writer, text string) {
	s := telemetry.NewSink(w, 1<<20, func(uint64) []byte { return nil })
	_, _ = s.Write([]byte(text))
	_ = s.Close()
}

// exitError is an exit status that is no fault of the command: a check that it made did not hold.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// newRoot returns the command tree. Without a command it serves.
func newRoot(opts ...Option) *cobra.Command {
	p := newProgram(opts)
	// of the same flags, which both commands have
	rootOptions, serveOptions := newOptions(p.catalogue), newOptions(p.catalogue)
	root := &cobra.Command{
		Use:   p.name,
		Short: "Endpoint Picker for LLM inference behind Envoy",
		Long: "Endpoint Picker for LLM inference: Envoy asks it, over ext_proc, which model server takes a " +
			"request. Without a command it serves.",
		Example:       "  signalbox up 127.0.0.1:8001 127.0.0.1:8002\n" + servingExamples,
		Version:       p.versionLine(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), rootOptions) },
	}
	rootOptions.register(root.Flags())
	serving := &cobra.Command{
		Use:   "serve",
		Short: "Serve ext_proc to Envoy (the default command)",
		Long: "Serve ext_proc to Envoy until SIGTERM or SIGINT, then drain: requests are taken for --drain-delay " +
			"more, and streams have --drain-timeout in all to end. A second signal ends at once.",
		Example: servingExamples,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), serveOptions) },
	}
	serveOptions.register(serving.Flags())
	root.AddCommand(p.commands...)
	root.AddCommand(
		serving, newUp(p.catalogue), newSim(), newBenchPolicy(), newEndpoints(), newRequests(), newTop(), newExplain(),
		newPlugins(p.catalogue),
		newConfig(p.catalogue),
		newVersion(), newTree(), newDemo(), newConformance(), newEnvoyConfig(p.catalogue),
		newPreflight(p.catalogue),
	)
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate("{{.Version}}\n")
	useHelp(root)
	useCompletionCommand(root)
	useCompletion(root)
	p.rename(root)
	return root
}

const servingExamples = "  signalbox --endpoints endpoints.yaml\n" +
	"  signalbox --config-file config.yaml --bind 10.0.0.5 --cert-path /etc/signalbox/tls\n" +
	"  signalbox --endpoints endpoints.yaml --xds-port 18000 --xds-listen 127.0.0.1:8080"
