package app

import (
	"fmt"
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
		Long: "Print a configuration file in the newest version of its format, llm-d.ai/v1, with its comments; - is " +
			"standard input. " +
			"Plugins that are not supported are printed too; config check names them. A file of that version is " +
			"printed as it is.",
		Example:           "  signalbox config convert old.yaml > new.yaml",
		ValidArgsFunction: completeYAML,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return fmt.Errorf("%s: got %d arguments, want one: the FILE, or - for standard input", cmd.CommandPath(),
				len(args))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if to != "v1" {
				return fmt.Errorf("--to: got %q, want v1", to)
			}
			data, err := readInput(cmd.Context(), args[0], cmd.InOrStdin())
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if discovery.Recognise(data) {
				return fmt.Errorf("%s: is an endpoints file, which has one version; want a configuration", args[0])
			}
			converted, err := config.Convert(data)
			if err != nil {
				return fmt.Errorf("%s: %s", args[0], strings.ReplaceAll(err.Error(), "\n", "\n"+args[0]+": "))
			}
			_, err = cmd.OutOrStdout().Write(converted)
			return err
		},
	}
	c.Flags().StringVar(&to, "to", to, "the `VERSION` of the format; v1 is the only one")
	return c
}
