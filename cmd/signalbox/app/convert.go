package app

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/adapters/discovery"
	"github.com/signalbox-epp/signalbox/engine/config"
)

func newConfigConvert() *cobra.Command {
	to := "v1"
	c := &cobra.Command{
		Use:   "convert FILE",
		Short: "Print a configuration file in the newest version of its format",
		Long: "Print a configuration file in the newest version of its format, llm-d.ai/v1, with its comments; - " +
			"is standard input. Plugins that are not supported are printed too; config check names them. A file " +
			"of that version is printed as it is.",
		Example:           "  signalbox config convert old.yaml > new.yaml",
		ValidArgsFunction: completeYAML,
		Args:              wantsFiles("the FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to != "v1" {
				return fmt.Errorf("--to: got %q, want v1", to)
			}
			data, err := readConfiguration(cmd.Context(), args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			converted, err := config.Convert(data)
			if err != nil {
				return ofFile(args[0], err)
			}
			_, err = cmd.OutOrStdout().Write(converted)
			return err
		},
	}
	c.Flags().StringVar(&to, "to", to, "the `VERSION` of the format; v1 is the only one")
	return c
}

// wantsFiles accepts as many arguments as there are names, of which one may be - for standard input.
func wantsFiles(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return fmt.Errorf("%s: got %d arguments, want %d: %s; - is standard input", cmd.CommandPath(), len(args),
			len(names), strings.Join(names, " and "))
	}
}

// readConfiguration reads a file, or stdin for the name -, that is no endpoints file.
func readConfiguration(ctx context.Context, name string, stdin io.Reader) ([]byte, error) {
	data, err := readInput(ctx, name, stdin)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if discovery.Recognise(data) {
		return nil, fmt.Errorf("%s: is an endpoints file; want a configuration", name)
	}
	return data, nil
}

// ofFile puts a file's name before each line of an error.
func ofFile(name string, err error) error {
	return fmt.Errorf("%s: %s", name, strings.ReplaceAll(err.Error(), "\n", "\n"+name+": "))
}
