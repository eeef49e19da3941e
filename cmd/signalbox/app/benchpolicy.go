package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox-epp/signalbox/cmd/signalbox/policybench"
)

type benchPolicyOptions struct {
	traces, configs     []string
	scenarios, policies []string
	loads               []string
	seeds, workers      int
	timing, html        string
	quiet               bool
}

func newBenchPolicy() *cobra.Command {
	o := &benchPolicyOptions{}
	c := &cobra.Command{
		Use:   "bench-policy",
		Short: "Compare policies on traces, before modelled servers, in virtual time",
		Long: "Play traces to policies before modelled vLLM servers, in virtual time, and compare their times to the " +
			"first token with those of a sticky policy that knows the servers' true state. Load 1.0 is where that " +
			"policy " +
			"has 90 % of first tokens within a second. Policies of Signalbox run in its real picker; \"+fc\" is " +
			"with flow " +
			"control.\n\n" +
			"--trace takes a trace of sessions (one JSON object a line, with tools, system and r), and one of " +
			"requests " +
			"(Mooncake's JSON lines or Azure's CSV). Without them both are generated. Lengths, and times to think, " +
			"are " +
			"divided by 8.",
		Example: "  signalbox bench-policy --scenarios agentic --policies without-file,3:2:2 --loads 1.4 --seeds 2\n" +
			"  signalbox bench-policy --trace sessions.jsonl --config mine.yaml",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd) },
	}
	o.register(c.Flags())
	return c
}

func (o *benchPolicyOptions) register(f *pflag.FlagSet) {
	f.StringSliceVar(&o.traces, "trace", nil, "files of traces, one of sessions and one of requests")
	f.StringSliceVar(&o.configs, "config", nil, "configuration files to compare, too")
	f.StringSliceVar(&o.scenarios, "scenarios", nil, "scenarios by name, or by its first word; none is all")
	f.StringSliceVar(&o.policies, "policies", nil, "policies by name; none is all")
	f.StringSliceVar(
		&o.loads,
		"loads",
		nil,
		"loads of the scenarios agentic and open, above 0; none is 0.7,1,1.4,1.8,2.5",
	)
	f.IntVar(&o.seeds, "seeds", 8, "how often each is played, 1 to 64")
	f.IntVar(&o.workers, "workers", goruntime.GOMAXPROCS(0), "plays at once")
	f.StringVar(&o.timing, "timing", policybench.GPU().Name, "what steps of servers take: gpu, about a model of 8 "+
		"thousand million parameters on a GPU, or cpu, fitted to vLLM with a tiny model on one core")
	f.StringVar(&o.html, "html", "", "file that gets a page with charts")
	f.BoolVar(&o.quiet, "quiet", false, "say nothing of how far it is")
}

func (o *benchPolicyOptions) run(ctx context.Context, cmd *cobra.Command) error {
	b, err := o.options()
	if err != nil {
		return err
	}
	var page *os.File // made at once, because an error after minutes would lose all
	if o.html != "" {
		if page, err = os.Create(o.html); err != nil {
			return err
		}
		defer page.Close()
	}
	if !o.quiet {
		b.Progress = func(done, of int) {
			if done*20/of != (done-1)*20/of {
				fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d plays\n", done, of)
			}
		}
	}
	r, err := policybench.Bench(ctx, b)
	if err != nil {
		return err
	}
	if page != nil {
		if err := errors.Join(r.WriteHTML(page), page.Close()); err != nil {
			return err
		}
	}
	return r.Write(cmd.OutOrStdout())
}

// options reads the files, and returns what is wrong with any of the flags.
func (o *benchPolicyOptions) options() (policybench.Options, error) {
	b := policybench.Options{
		Scenarios: o.scenarios, Policies: o.policies, Seeds: o.seeds, Workers: o.workers, Loads: policybench.Loads(),
	}
	var errs []error
	switch gpu, cpu := policybench.GPU(), policybench.CPU(); o.timing {
	case gpu.Name:
		b.Timing = gpu
	case cpu.Name:
		b.Timing = cpu
	default:
		errs = append(errs, fmt.Errorf("--timing: got %q, want %s or %s", o.timing, gpu.Name, cpu.Name))
	}
	if o.seeds < 1 || o.seeds > 64 {
		errs = append(errs, fmt.Errorf("--seeds: got %d, want 1 to 64", o.seeds))
	}
	if o.workers < 1 || o.workers > 1024 {
		errs = append(errs, fmt.Errorf("--workers: got %d, want 1 to 1024", o.workers))
	}
	if o.loads != nil {
		b.Loads = nil
	}
	for _, l := range o.loads {
		load, err := strconv.ParseFloat(l, 64)
		if err != nil || !(load > 0 && load <= 10) {
			errs = append(errs, fmt.Errorf("--loads: got %q, want numbers above 0, to 10", l))
		}
		b.Loads = append(b.Loads, load)
	}
	for _, name := range o.traces {
		errs = append(errs, addTrace(&b.Traces, name))
	}
	for _, name := range o.configs {
		text, err := os.ReadFile(name)
		b.Files = append(b.Files, policybench.NamedFile{Name: filepath.Base(name), Text: string(text)})
		errs = append(errs, err)
	}
	return b, errors.Join(errs...)
}

func addTrace(to *policybench.Traces, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	t, err := policybench.ReadTrace(filepath.Base(name), f)
	if err != nil {
		return err
	}
	return to.Add(t)
}
