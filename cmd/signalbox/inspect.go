package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/engine/config"
)

func newPlugins() *cobra.Command {
	return &cobra.Command{
		Use:   "plugins [TYPE]",
		Short: "List the plugins that a configuration may name, or document one",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				listPlugins(cmd.OutOrStdout())
				return nil
			}
			return showPlugin(cmd.OutOrStdout(), args[0])
		},
	}
}

func listPlugins(w io.Writer) {
	for _, f := range config.Describe() {
		_, _ = fmt.Fprintf(w, "%s\n", f.Name)
		for _, p := range f.Plugins {
			first, _, _ := strings.Cut(p.Text, ". ")
			_, _ = fmt.Fprintf(w, "  %-32s %s.\n", p.Type, strings.TrimSuffix(strings.ReplaceAll(first, "\n", " "), "."))
		}
	}
}

func showPlugin(w io.Writer, name string) error {
	for _, f := range config.Describe() {
		for _, p := range f.Plugins {
			if p.Type != name {
				continue
			}
			_, _ = fmt.Fprintf(w, "%s (%s)\n\n%s\n", p.Type, f.Name, p.Text)
			for _, q := range p.Parameters {
				_, _ = fmt.Fprintf(w, "\n  %s  %s, default %q\n      %s\n", q.Name, q.Kind, q.Default, q.Text)
			}
			return nil
		}
	}
	return fmt.Errorf("no plugin type %q; signalbox plugins lists them", name)
}

func newConfig() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Work with configuration files"}
	c.AddCommand(&cobra.Command{
		Use:   "check FILE",
		Short: "Say everything that is wrong with a configuration file, with its line",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			cfg, err := config.Load(data, config.Settings{Destinations: 3})
			var bad *config.Error
			if errors.As(err, &bad) {
				return fmt.Errorf("%s:\n%w", args[0], err)
			}
			if err != nil {
				return err
			}
			for _, w := range cfg.Warnings {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), describe(cfg))
			return err
		},
	})
	return c
}

// describe is a configuration in force, defaults filled in.
func describe(c *config.Config) string {
	var b strings.Builder
	for _, p := range c.Profiles {
		fmt.Fprintf(&b, "profile %s\n", p.Name)
		for _, f := range p.Filters {
			fmt.Fprintf(&b, "  filter  %s\n", named(f.Name, f.Type))
		}
		for _, s := range p.Scorers {
			fmt.Fprintf(&b, "  scorer  %s, weight %g\n", named(s.Name, s.Type), s.Weight)
		}
		fmt.Fprintf(&b, "  picker  %s\n", named(p.Picker.Name, p.Picker.Type))
	}
	fmt.Fprintf(&b, "handler   %s\n", named(c.Handler.Name, c.Handler.Type))
	if c.Discovery.Path != "" {
		fmt.Fprintf(&b, "endpoints %s\n", c.Discovery.Path)
	}
	return b.String()
}

func named(name, kind string) string {
	if name == kind || name == "" {
		return kind
	}
	return name + " (" + kind + ")"
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version, commit, goVersion := "unknown", "unknown", "unknown"
			if b, ok := debug.ReadBuildInfo(); ok {
				version, goVersion = b.Main.Version, b.GoVersion
				for _, s := range b.Settings {
					if s.Key == "vcs.revision" {
						commit = s.Value
					}
				}
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "signalbox %s, commit %s, %s\n", version, commit, goVersion)
			return err
		},
	}
}

// endpointViews is the pool as /debug/endpoints shows it.
func (t *tree) endpointViews() []admin.EndpointView {
	return admin.Views(t.endpoint.Snapshot(), t.sys.Now(), t.opts.staleness)
}
