package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/adapters/extproc"
	"github.com/signalbox-epp/signalbox/adapters/lab/conformance"
)

type conformanceOptions struct {
	conformance.Options
	addr          string
	tls, insecure bool
	list          bool
}

func newConformance() *cobra.Command {
	o := &conformanceOptions{}
	c := &cobra.Command{
		Use:   "conformance",
		Short: "Check an endpoint picker against the rules of ext_proc, in every body mode",
		Long: "Play a table of checks against a running endpoint picker, this one or another, as a proxy that is as " +
			"strict as Envoy. Prints a line for each check and mode, then passed / applicable for each mode. What " +
			"needs a look inside the picker, or a special configuration of it, is listed as not run. The exit " +
			"status is 0 if all that is applicable passed, else 1.\n\n" +
			"A picker that serves can be checked: each stream carries the gRPC metadata " + extproc.CheckMark + ", " +
			"and Signalbox keeps no load, failure, prompt, record or count of such a request once its stream " +
			"ends. While the checks run they count as load. Another picker may not know that metadata; it then " +
			"takes what is played for answers of its servers.",
		Example: "  signalbox conformance --endpoints 127.0.0.1:8001,127.0.0.1:8002 --model my-model\n" +
			"  signalbox conformance --list",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f := c.Flags()
	f.StringVar(&o.addr, "addr", "127.0.0.1:9002", "ext_proc port of the picker, host:port")
	f.StringSliceVar(&o.Endpoints, "endpoints", nil, "all endpoints of its pool, each ip:port")
	f.StringVar(&o.Model, "model", "sim-model", "model that its endpoints serve")
	f.BoolVar(&o.tls, "tls", true, "TLS, any certificate")
	f.BoolVar(&o.insecure, "insecure", false, "plaintext in place of TLS")
	f.StringSliceVar(&o.Modes, "mode", nil, "only these modes, by the names that --list prints")
	f.IntSliceVar(&o.Checks, "check", nil, "only these checks, by number")
	f.Int64Var(&o.BodyLimit, "body-limit", 0, "bytes of a request body that the picker takes; 0 is unknown")
	f.IntVar(&o.Destinations, "destinations", 0, "most destinations in a pick; 0 is unknown")
	f.DurationVar(&o.BodyWait, "body-wait", 35*time.Second,
		"time after which the picker has refused a request whose body does not come")
	f.DurationVar(&o.Patience, "patience", 5*time.Second, "time for every other answer")
	f.DurationVar(&o.AtOnce, "at-once", 50*time.Millisecond, "what counts as at once")
	f.BoolVar(&o.RoutesAll, "routes-all", false, "requests for an unknown model must be routed, not refused")
	f.BoolVar(&o.list, "list", false, "print the table, and run nothing")
	c.MarkFlagsMutuallyExclusive("tls", "insecure")
	return c
}

func (o *conformanceOptions) run(ctx context.Context, out io.Writer) error {
	if o.list {
		listChecks(out)
		return nil
	}
	if len(o.Endpoints) == 0 {
		return errors.New("--endpoints: name all endpoints of the pool")
	}
	o.Mark = extproc.CheckMark
	disconnect, err := o.Connect(ctx, o.addr, o.insecure || !o.tls)
	if err != nil {
		return fmt.Errorf("--addr: %w", err)
	}
	defer disconnect()
	results, err := conformance.Run(ctx, o.Options)
	if err != nil {
		return err
	}
	return sumUp(out, results)
}

// listChecks prints the table and the modes.
func listChecks(out io.Writer) {
	for _, c := range conformance.Table() {
		fmt.Fprintf(out, "%2d %s\n   sends: %s\n   wants: %s\n   in %d modes\n", c.Number, c.Name, c.Sends, c.Wants,
			len(c.Modes()))
	}
	fmt.Fprintln(out, "\nmodes, of both lanes, or request/response:")
	for _, m := range conformance.AllModes() {
		fmt.Fprintln(out, "  "+m.Name)
	}
}

// sumUp prints what was played, what was not, and the score. It returns exit status 1 if anything failed or nothing
// passed.
func sumUp(out io.Writer, results []conformance.Result) error {
	for _, r := range results {
		if r.Outcome != conformance.NotRun {
			fmt.Fprintln(out, r.Line())
		}
	}
	listLeftOut(out, results)
	fmt.Fprintf(out, "\n%-46s passed / applicable, not run\n", "modes")
	names, scores := conformance.Scores(results)
	for _, name := range names {
		s := scores[name]
		fmt.Fprintf(out, "%-46s %6d / %-10d %7d\n", name, s.Passed, s.Applicable, s.NotRun)
	}
	if all := scores["all"]; all.Passed == 0 || all.Passed < all.Applicable {
		return exitError(1)
	}
	return nil
}

// listLeftOut prints a line for each check and reason of what was not run.
func listLeftOut(out io.Writer, results []conformance.Result) {
	modes := map[conformance.Result]int{}
	for _, r := range results {
		if r.Outcome == conformance.NotRun {
			modes[conformance.Result{Check: r.Check, Outcome: r.Outcome, Reason: r.Reason}]++
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(modes), func(a, b conformance.Result) int {
		return cmp.Or(a.Check.Number-b.Check.Number, cmp.Compare(a.Reason, b.Reason))
	}) {
		line := r
		line.Mode = fmt.Sprintf("%d modes", modes[r])
		fmt.Fprintln(out, line.Line())
	}
}
