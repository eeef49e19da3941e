package app

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/engine/config"
)

func newConfigShow(types *config.Catalogue) *cobra.Command {
	return &cobra.Command{
		Use:   "show FILE",
		Short: "Print what a configuration comes to, with all defaults",
		Long: "Print what a configuration file comes to: a file of llm-d.ai/v1 to the same effect, with all defaults " +
			"written out and in a stable order. - is standard input. What has no effect is left out: plugins that " +
			"nothing names, and flow control, whose feature gate is off.",
		Example:           "  signalbox config show config.yaml",
		ValidArgsFunction: completeYAML,
		Args:              wantsFiles("the FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readConfiguration(cmd.Context(), args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			shown, err := shownBy(types, data)
			if err != nil {
				return ofFile(args[0], err)
			}
			_, err = cmd.OutOrStdout().Write(shown)
			return err
		},
	}
}

// shownBy returns what a configuration file comes to.
func shownBy(types *config.Catalogue, data []byte) ([]byte, error) {
	return config.Show(data, config.Settings{Destinations: mostDestinations, Catalogue: types})
}

func newConfigDiff(types *config.Catalogue) *cobra.Command {
	return &cobra.Command{
		Use:   "diff A B",
		Short: "Print what changes from one configuration to another",
		Long: "Print what changes if configuration file B takes the place of A: one value a line, defaults included, " +
			"named by plugin and profile. What is only written in another way is no change.\n\n" +
			"The exit status is 0 if nothing changes, else 1.",
		Example:           "  signalbox config diff old.yaml new.yaml",
		ValidArgsFunction: completeYAML,
		Args:              wantsFiles("the FILES A", "B"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var sides [2][]byte
			for i, name := range args {
				data, err := readConfiguration(cmd.Context(), name, cmd.InOrStdin())
				if err != nil {
					return err
				}
				if sides[i], err = shownBy(types, data); err != nil {
					return ofFile(name, err)
				}
			}
			changes := config.Diff(sides[0], sides[1])
			for _, line := range changes {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), line); err != nil {
					return err
				}
			}
			if len(changes) > 0 {
				return fmt.Errorf("differences: %d", len(changes))
			}
			return nil
		},
	}
}

func newConfigSchema(types *config.Catalogue) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of configuration files, for editors",
		Long: "Print the JSON schema (draft 7) of configuration files of llm-d.ai/v1 and of v1alpha1. By it, editors " +
			"complete and check a file that begins with a line such as\n\n" +
			"  # yaml-language-server: $schema=signalbox.schema.json\n\n" +
			"The schema has the keys, the kinds of their values and the types of plugins. It does not check ranges, " +
			"and plugins that name each other; config check does.",
		Example: "  signalbox config schema > signalbox.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			schema, err := config.Schema(types)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(schema)
			return err
		},
	}
}
