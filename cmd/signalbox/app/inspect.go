package app

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/engine/spelling"
)

func newPlugins() *cobra.Command {
	return &cobra.Command{
		Use:               "plugins [TYPE]",
		Short:             "List the plugins that a configuration may name, or document one",
		Example:           "  signalbox plugins\n  signalbox plugins prefix-cache-scorer",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completePlugins,
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
			const indent = "                                   "
			_, _ = fmt.Fprintf(w, "  %-32s %s", p.Type, strings.TrimPrefix(filled(firstSentence(p.Text), indent), indent))
		}
	}
}

func firstSentence(text string) string {
	first, _, _ := strings.Cut(strings.ReplaceAll(text, "\n", " "), ". ")
	return strings.TrimSuffix(first, ".") + "."
}

func showPlugin(w io.Writer, name string) error {
	var types []string
	for _, f := range config.Describe() {
		for _, p := range f.Plugins {
			types = append(types, p.Type)
			if p.Type != name {
				continue
			}
			_, _ = fmt.Fprintf(w, "%s (%s)\n\n%s", p.Type, f.Name, paragraphs(p.Text))
			for _, q := range p.Parameters {
				_, _ = fmt.Fprintf(w, "\n  %s  %s, default %q\n%s", q.Name, q.Kind, q.Default, filled(q.Text, "      "))
			}
			return nil
		}
	}
	meant := near(slices.DeleteFunc([]string{spelling.Nearest(name, types)}, func(s string) bool { return s == "" }))
	return fmt.Errorf("no plugin type %q%s; signalbox plugins lists them", name, meant)
}

// describe is a configuration in force, defaults filled in.
func describe(c *config.Config) string {
	var b strings.Builder
	for _, p := range c.Plan.Profiles() {
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

// endpointViews is the pool as /debug/endpoints shows it.
func (t *tree) endpointViews() []admin.EndpointView {
	return admin.Views(t.picker.Pool().Snapshot(), t.picker.System().Now(), t.opts.staleness)
}

// role is one kind of actor in the supervision tree.
type role struct {
	name     string // as runtime.Role has it
	on       string // for what there is one, as the tree shows it: a place, or a thing on the loop of its parent
	policy   runtime.Policy
	lost     string // when it restarts
	notices  string
	children []role
}

// Where actors live: the loops that carry them, as the tree shows it.
const (
	eachLoop  = "/0..n"
	firstLoop = " (loop 0)"
	lastLoop  = " (last loop)"
)

// supervision is the tree as buildTree and its actors spawn it: TestSupervisionIsWhatIsSpawned compares both.
var supervision = role{
	"loop", eachLoop, runtime.RestartOnPanic, "its actors", "nobody: it runs no code that can fail", []role{
		{"pool", firstLoop, runtime.RestartOnPanic, "nothing: the snapshot stays in force", "nobody", []role{
			{"scraper", "/<endpoint>", runtime.RestartOnPanic, "the interval learnt; the sample stays and ages", "readers, by the sample's age", nil},
		}},
		{"prefix", lastLoop, runtime.RestartOnPanic, "the prefix index", "pool, by its watch", nil},
		{"outlier", firstLoop, runtime.RestartOnPanic, "what is known of failures: all endpoints are healthy", "nobody", nil},
		{"recorder", firstLoop, runtime.RestartOnPanic, "open queries, which are answered first", "the asker, by a partial answer", nil},
		{"flow", eachLoop, runtime.RestartOnPanic, "the places of requests that run, which run on", "nobody", nil},
		{"shard", eachLoop, runtime.RestartOnPanic, "its cycles", "streams, each by its answer", []role{
			{"cycle", "/<request>", runtime.StopOnPanic, "its request, which is answered 500", "stream, by its answer", nil},
		}},
	},
}

func newTree() *cobra.Command {
	return &cobra.Command{
		Use: "tree", Short: "Print the supervision tree", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), supervision.print("", ""))
			return err
		},
	}
}

func (r role) print(head, tail string) string {
	restart := "always"
	if r.policy == runtime.StopOnPanic {
		restart = "never"
	}
	s := fmt.Sprintf("%-32s restart %s; loses %s; noticed by %s\n", head+r.name+r.on, restart, r.lost, r.notices)
	for i, c := range r.children {
		if i == len(r.children)-1 {
			s += c.print(tail+"└─ ", tail+"   ")
			continue
		}
		s += c.print(tail+"├─ ", tail+"│  ")
	}
	return s
}
