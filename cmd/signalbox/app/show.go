package app

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/engine/config"
)

func newConfigShow(types *config.Catalogue) *cobra.Command {
	return &cobra.Command{
		Use:   "show [FILE]",
		Short: "Print what a configuration comes to, with all defaults",
		Long: "Print what a configuration file comes to: a file of llm-d.ai/v1 to the same effect, with all defaults " +
			"written out and in a stable order. - is standard input. Without a FILE, print the configuration that " +
			"holds without one. What has no effect is left out: plugins that nothing names, and flow control while " +
			"its feature gate is off.",
		Example:           "  signalbox config show\n  signalbox config show config.yaml",
		ValidArgsFunction: completeYAML,
		Args:              cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			shown, err := shown(cmd, types, args)
			if err == nil {
				_, err = cmd.OutOrStdout().Write(shown)
			}
			return err
		},
	}
}

// shown returns what the file that is named comes to; none = the configuration that holds without one.
func shown(cmd *cobra.Command, types *config.Catalogue, args []string) ([]byte, error) {
	if len(args) == 0 {
		return config.ShowDefault(config.Settings{Destinations: mostDestinations, Catalogue: types})
	}
	data, err := readConfiguration(cmd.Context(), args[0], cmd.InOrStdin())
	if err != nil {
		return nil, err
	}
	text, err := shownBy(types, data)
	if err != nil {
		return nil, ofFile(args[0], err)
	}
	return text, nil
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
