package app

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/spelling"
)

func newPlugins(types *config.Catalogue) *cobra.Command {
	family := ""
	c := &cobra.Command{
		Use:   "plugins [TYPE]",
		Short: "List the plugins that a configuration may name, document one, or begin a new one",
		Example: "  signalbox plugins\n  signalbox plugins prefix-cache-scorer\n" +
			"  signalbox plugins --new scorer example.com/cheapest",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completePlugins(types),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case family != "" && len(args) == 0:
				return errors.New("--new needs the name of the type, such as example.com/cheapest")
			case family != "":
				return writeModule(cmd.OutOrStdout(), family, args[0])
			case len(args) == 0:
				listPlugins(cmd.OutOrStdout(), types)
				return nil
			}
			return showPlugin(cmd.OutOrStdout(), types, args[0])
		},
	}
	families := pluginFamilies()
	c.Flags().StringVar(&family, "new", "", "write a module with a plugin of this family, of the name TYPE, to a "+
		"folder: "+strings.Join(families, ", "))
	_ = c.RegisterFlagCompletionFunc("new", cobra.FixedCompletions(families, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func listPlugins(w io.Writer, types *config.Catalogue) {
	for _, f := range types.Describe() {
		_, _ = fmt.Fprintf(w, "%s\n", f.Name)
		for _, p := range f.Plugins {
			name := p.Type
			if len(name) > 32 { // its text begins on the next line
				name += "\n" + strings.Repeat(" ", 34)
			}
			_, _ = fmt.Fprintf(w, "  %-32s %s", name, hanging(firstSentence(p.Text), 35))
		}
	}
}

func firstSentence(text string) string {
	first, _, _ := strings.Cut(strings.ReplaceAll(text, "\n", " "), ". ")
	return strings.TrimSuffix(first, ".") + "."
}

func showPlugin(w io.Writer, catalogue *config.Catalogue, name string) error {
	var types []string
	for _, f := range catalogue.Describe() {
		for _, p := range f.Plugins {
			types = append(types, p.Type)
			if p.Type != name {
				continue
			}
			_, _ = fmt.Fprintf(w, "%s (%s)\n\n%s", p.Type, f.Name, paragraphs(p.Text))
			showFacts(w, &p)
			return nil
		}
	}
	hint := ""
	if nearest := spelling.Nearest(name, types); nearest != "" {
		hint = didYouMean([]string{nearest})
	}
	return fmt.Errorf("no plugin type %q%s; signalbox plugins lists them", name, hint)
}

// showFacts writes what is known of a plugin beside its text.
func showFacts(w io.Writer, p *config.Plugin) {
	for _, line := range p.Facts() {
		_, _ = fmt.Fprintf(w, "\n%s", paragraphs(strings.ReplaceAll(line, "`", "")))
	}
	if p.Cost != "" {
		_, _ = fmt.Fprintf(w, "\n%s", paragraphs("Measured: "+config.CostsMeasured+"."))
	}
	for _, q := range p.Parameters {
		text := q.Text
		if allowed := q.Allowed(); allowed != "" {
			text = strings.TrimSpace(text + " Values: " + allowed + ".")
		}
		_, _ = fmt.Fprintf(w, "\n  %s  %s, default %q\n%s", q.Name, q.Kind, q.Default, filled(text, "      "))
	}
}
