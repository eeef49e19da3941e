package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/adapters/discovery"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/rewrites"
)

func newConfig(types *config.Catalogue) *cobra.Command {
	c := &cobra.Command{
		Use: "config", Short: "Work with configuration files", Args: noArgs, RunE: wantsCommand,
	}
	c.AddCommand(newConfigCheck(types), newConfigConvert(), newConfigDiff(types), newConfigSchema(types),
		newConfigShow(types))
	return c
}

func newConfigCheck(types *config.Catalogue) *cobra.Command {
	k := &checker{types: types}
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Say everything that is wrong with configuration and endpoints files, with its line",
		Long: "Say everything that is wrong with configuration files and endpoints files: one problem a line, with " +
			"file, line and path. The content tells which kind a file is; - is standard input. For a good file, " +
			"print what it comes to, and what its plugins cannot do, or do otherwise, in the light lane, where " +
			"response bodies bypass Signalbox.\n\n" +
			"The exit status is 0 if all files are good, else 1. Warnings and what concerns the light lane do not " +
			"count.",
		Example: "  signalbox config check config.yaml endpoints.yaml\n" +
			"  helm template . | signalbox config check -",
		ValidArgsFunction: completeYAML,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return nil
			}
			return fmt.Errorf("%s: got no arguments, want one or more: the FILEs, or - for standard input",
				cmd.CommandPath())
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			k.in, k.out, k.problems = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			return k.run(cmd.Context(), args)
		},
	}
	c.Flags().BoolVar(&k.follow, "files", true, "check the endpoints file that a configuration names too")
	return c
}

// checker checks files, one after the other.
type checker struct {
	types         *config.Catalogue
	follow        bool // check the endpoints file that a configuration names too
	in            io.Reader
	out, problems io.Writer
	found         int // problems so far
}

func (k *checker) run(ctx context.Context, names []string) error {
	bad := 0
	for i, name := range names {
		before := k.found
		text := k.check(ctx, name)
		switch {
		case ctx.Err() != nil:
			return errors.New("interrupted")
		case k.found > before:
			bad++
			continue
		case len(names) > 1 && i > 0:
			text = "\n" + name + ":\n" + text
		case len(names) > 1:
			text = name + ":\n" + text
		}
		if _, err := io.WriteString(k.out, text); err != nil {
			return err
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("problems: %d, in %d of %d files", k.found, bad, len(names))
}

// check reports the problems of a file. If there are none, it returns a description of what the file says.
func (k *checker) check(ctx context.Context, name string) string {
	data, err := readInput(ctx, name, k.in)
	if err != nil {
		k.problem(name, err)
		return ""
	}
	if discovery.Recognise(data) {
		return k.checkEndpoints(name, data)
	}
	cfg, err := config.Load(data, config.Settings{Destinations: mostDestinations, Catalogue: k.types})
	if err != nil {
		k.problem(name, err)
		return ""
	}
	for _, w := range cfg.Warnings {
		k.warn(name, w)
	}
	for _, note := range cfg.LightLane {
		_, _ = fmt.Fprintf(k.problems, "%s: light lane: %s\n", name, note)
	}
	if path := cfg.Discovery.Path; path != "" && k.follow {
		k.followDiscovery(ctx, name, cfg.Discovery)
	}
	return describe(cfg)
}

// followDiscovery checks the endpoints file that a configuration names.
func (k *checker) followDiscovery(ctx context.Context, name string, d config.Discovery) {
	data, err := readFile(ctx, d.Path)
	if err != nil {
		at := d.At
		at.Text = err.Error()
		if !filepath.IsAbs(d.Path) {
			at.Text += "; a relative path begins at the working directory"
		}
		k.problem(name, errors.New(at.String()))
		return
	}
	k.checkEndpoints(d.Path, data)
}

func (k *checker) checkEndpoints(name string, data []byte) string {
	entries, warnings, err := discovery.Parse(data)
	if err != nil {
		k.problem(name, err)
		return ""
	}
	for _, d := range warnings {
		k.warn(name, d)
	}
	return fmt.Sprintf("endpoints %d\n", len(entries))
}

// problem writes each line of an error with the file's name before it.
func (k *checker) problem(name string, err error) {
	if errors.Is(err, context.Canceled) {
		return // run says so
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		k.found++
		_, _ = fmt.Fprintf(k.problems, "%s: %s\n", name, line)
	}
}

func (k *checker) warn(name string, w fmt.Stringer) {
	_, _ = fmt.Fprintf(k.problems, "%s: warning: %s\n", name, w)
}

// inputBytes is how much of a file is read. It is more than any format takes, so that the reader of the format can
// report a file that is too long.
const inputBytes = 2 << 20

// readInput reads a file, or stdin for the name -.
func readInput(ctx context.Context, name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return readAll(ctx, name, func() (io.ReadCloser, error) { return io.NopCloser(stdin), nil })
	}
	return readFile(ctx, name)
}

// readFile reads a file of any name, even one that is called -.
func readFile(ctx context.Context, name string) ([]byte, error) {
	return readAll(ctx, name, func() (io.ReadCloser, error) { return os.Open(filepath.Clean(name)) })
}

// readAll reads what open returns. It gives up when ctx is done, for a pipe may never end.
func readAll(ctx context.Context, name string, open func() (io.ReadCloser, error)) ([]byte, error) {
	var data []byte
	var err error
	read := inBackground(func() {
		var from io.ReadCloser
		if from, err = open(); err != nil {
			return
		}
		defer from.Close()
		data, err = io.ReadAll(io.LimitReader(from, inputBytes))
	})
	select {
	case <-read:
		return data, err
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: interrupted: %w", name, ctx.Err())
	}
}

// describe returns a configuration as text, with the defaults filled in.
func describe(c *config.Config) string {
	var b strings.Builder
	for _, p := range c.Plan.Profiles() {
		fmt.Fprintf(&b, "%s %s\n", map[bool]string{false: "profile", true: "shadow profile"}[p.Shadow], p.Name)
		for _, f := range p.Filters {
			fmt.Fprintf(&b, "  filter  %s\n", pluginName(f.Name, f.Type))
		}
		for _, s := range p.Scorers {
			fmt.Fprintf(&b, "  scorer  %s, weight %g\n", pluginName(s.Name, s.Type), s.Weight)
		}
		fmt.Fprintf(&b, "  picker  %s\n", pluginName(p.Picker.Name, p.Picker.Type))
	}
	handler := c.Plan.HandlerLabels()
	fmt.Fprintf(&b, "handler   %s\n", pluginName(handler.Name, handler.Type))
	if d := c.Plan.Detector(); d.Type != "" {
		fmt.Fprintf(&b, "detector  %s\n", pluginName(d.Name, d.Type))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Priorities)) {
		fmt.Fprintf(&b, "objective %s, priority %d\n", strconv.QuoteToGraphic(name), c.Priorities[name])
	}
	for _, rewrite := range c.Rewrites {
		fmt.Fprintf(&b, "rewrite   %s\n", strconv.QuoteToGraphic(rewrite.Name))
		for _, rule := range rewrite.Rules {
			b.WriteString("  " + describeRule(&rule) + "\n")
		}
	}
	if t := c.Trust; t.By != config.TrustHeader {
		fmt.Fprintf(&b, "trust     %s\n", strings.Join(append([]string{t.By}, t.Proxies...), " "))
	}
	if c.Discovery.Path != "" {
		fmt.Fprintf(&b, "endpoints %s\n", c.Discovery.Path)
	}
	return b.String()
}

// describeRule returns a rule as one line: the models that it is for, and those that serve them.
func describeRule(rule *rewrites.Rule) string {
	models := "every other model"
	if len(rule.Models) > 0 {
		quoted := make([]string, len(rule.Models))
		for i, m := range rule.Models {
			quoted[i] = strconv.QuoteToGraphic(m)
		}
		models = strings.Join(quoted, ", ")
	}
	targets := make([]string, len(rule.Targets))
	for i, t := range rule.Targets {
		targets[i] = fmt.Sprintf("%s, weight %d", strconv.QuoteToGraphic(t.Model), t.Weight)
	}
	return models + " to " + strings.Join(targets, "; ")
}

// pluginName returns a plugin's name, followed by its type if that is another word.
func pluginName(name, kind string) string {
	if name == kind || name == "" {
		return kind
	}
	return name + " (" + kind + ")"
}
