package app

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

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
		return fmt.Errorf("unknown command %q; endpoints are named with --endpoints %s, a configuration with "+
			"--config-file", args[0], args[0])
	}
	cmd.SuggestionsMinimumDistance = 2
	return fmt.Errorf("unknown command %q%s; see %s --help", path+" "+args[0], didYouMean(cmd.SuggestionsFor(args[0])),
		path)
}

// wantsCommand is the RunE of a command that does nothing by itself. It lists the subcommands.
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

func didYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ", did you mean " + strings.Join(names, " or ") + "?"
}

// flagError returns the error of a flag in the form of all other problems.
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
		"int": "a whole number", "int64": "a whole number", "uint64": "a whole number, 0 or more",
		"float64": "a number", "bool": "true or false",
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
	var known, absentHere []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	for _, other := range slices.Sorted(maps.Keys(absentFlags)) {
		if absent(cmd.Flags(), other) != "" {
			absentHere = append(absentHere, other)
		}
	}
	if names := nearFlags(name, known); len(names) > 0 {
		return errors.New(unknown.Error() + didYouMean(names) + see)
	}
	if names := nearFlags(name, absentHere); len(names) > 0 {
		return fmt.Errorf("%w; %s of the reference EPP is not supported yet", unknown, strings.Join(names, " or "))
	}
	return errors.New(unknown.Error() + see)
}

// nearFlags returns those of the known names that differ little from name, as flags.
func nearFlags(name string, known []string) []string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2} // cobra finds similar names of commands
	for _, k := range known {
		all.AddCommand(&cobra.Command{Use: k, Run: func(*cobra.Command, []string) {}})
	}
	names := all.SuggestionsFor(name)
	for i := range names {
		names[i] = "--" + names[i]
	}
	return names
}

const engineIsFound = "leave it out: the engine is found from its metrics page, which metrics-data-source configures"

// absentFlags holds the flags of the reference that serve does not have, with what to do instead.
var absentFlags = map[string]string{
	"grpc-max-recv-msg-size":              "--max-body-bytes bounds request bodies, and the messages that carry them",
	"grpc-max-send-msg-size":              "leave it out: what is sent is never longer than what came",
	"refresh-prometheus-metrics-interval": "leave it out: the gauges of the pool are computed at each scrape",
	"enable-grpc-stream-metrics":          "leave it out: the metrics of streams are always there",

	"total-queued-requests-metric":     engineIsFound,
	"total-running-requests-metric":    engineIsFound,
	"kv-cache-usage-percentage-metric": engineIsFound,
	"lora-info-metric":                 engineIsFound,
	"cache-info-metric":                engineIsFound,
}

// absent returns what to do instead of a flag of the reference. It returns "" for other flags, and for commands
// without serve's flags.
func absent(flags *pflag.FlagSet, name string) string {
	if flags.Lookup("grpc-port") == nil {
		return ""
	}
	return absentFlags[name]
}
