package policybench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// groups are those that are there, in order.
func (r *Results) groups() (some []string) {
	for _, g := range []string{groupLight, groupLoads, groupOverload, groupOthers} {
		if len(r.of(g)) > 0 {
			some = append(some, g)
		}
	}
	return some
}

// Write writes all as text.
func (r *Results) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(
		t,
		"Mean time to the first token / that of %s: geometric means over scenarios, 95%% intervals over %d seeds, "+
			"timing %s\n\n",
		denominator,
		r.Options.Seeds,
		r.Options.Timing.Name,
	)
	fmt.Fprint(t, "policy")
	for _, g := range r.groups() {
		fmt.Fprintf(t, "\t%s", g)
	}
	fmt.Fprint(t, "\tall\tp99, all\twins/ties/losses\thits/oracle's\tgoodput %\tlost\tspread\n")
	for k, c := range r.Policies {
		fmt.Fprint(t, c.Name)
		for _, g := range append(r.groups(), "") {
			fmt.Fprintf(t, "\t%s", r.cell(meanTTFT, k, r.of(g)))
		}
		won, tied, lost := r.score(k)
		fmt.Fprintf(t, "\t%s\t%d/%d/%d\t%.3f\t%.1f\t%.0f\t%.2f\n", r.cell(p99TTFT, k, r.of("")), won, tied, lost,
			r.hits(k), 100*r.over(k, func(o Outcome) float64 { return o.Good }),
			r.over(k, func(o Outcome) float64 { return float64(o.Lost) })*float64(len(r.Scenarios)),
			r.over(k, func(o Outcome) float64 { return o.Spread }))
	}
	fmt.Fprintf(
		t,
		"hits are divided by those of %s, goodput is the share of first tokens within %v, lost are requests of all "+
			"scenarios\n",
		r.Policies[r.oracle()].Name,
		goodTTFT,
	)
	r.writeLosses(t)
	r.writeCapacity(t)
	r.writeFlowControl(t)
	r.writeScenarios(t)
	return t.Flush()
}

func (r *Results) cell(m Measure, policy int, scenarios []int) string {
	if len(scenarios) == 0 {
		return "-"
	}
	x := interval(r.ratios(m, policy, 0, scenarios))
	if policy == 0 || r.Options.Seeds == 1 {
		return fmt.Sprintf("%.3f", x.Mean)
	}
	return fmt.Sprintf("%.3f ±%.3f", x.Mean, x.Half())
}

// hits returns the mean over scenarios of the share of tokens that were cached, divided by the oracle's.
func (r *Results) hits(policy int) (sum float64) {
	for i := range r.Scenarios {
		sum += (r.mean(i, policy, hitShare) + floor) / (r.mean(i, r.oracle(), hitShare) + floor)
	}
	return sum / float64(len(r.Scenarios))
}

// over returns the mean over scenarios and seeds.
func (r *Results) over(policy int, of func(Outcome) float64) (sum float64) {
	for i := range r.Scenarios {
		sum += r.mean(i, policy, of)
	}
	return sum / float64(len(r.Scenarios))
}

// writeLosses names the scenarios in which Signalbox is worse than ideal sticky.
func (r *Results) writeLosses(w io.Writer) {
	fmt.Fprintf(w, "\nWhere Signalbox loses, by more than %.0f %%\n", 100*margin)
	for k, c := range r.Policies {
		var where []string
		for i, s := range r.Scenarios {
			if ratio, is := r.verdict(i, k); is == losses {
				where = append(where, fmt.Sprintf("%s (%.2f)", s.Name, ratio))
			}
		}
		if c.rule == nil {
			fmt.Fprintf(w, "%s: %s\n", c.Name, cmp.Or(strings.Join(where, ", "), "nowhere"))
		}
	}
}

// writeCapacity writes what each policy can serve under cache pressure.
func (r *Results) writeCapacity(w io.Writer) {
	if r.Capacity == nil {
		return
	}
	fmt.Fprintf(
		w,
		"\nCapacity under cache pressure: most requests a second with 90 %% of first tokens within %v s\n",
		capacityTTFT,
	)
	fmt.Fprintf(w, "policy\trequests/s\t/ %s\n", denominator)
	for k, c := range r.Policies {
		fmt.Fprintf(w, "%s\t%.1f\t%.3f\n", c.Name, r.Capacity[k], r.Capacity[k]/r.Capacity[0])
	}
}

// writeFlowControl compares each configuration with flow control with the same one without.
func (r *Results) writeFlowControl(w io.Writer) {
	head := false
	for k, c := range r.Policies {
		by := slices.IndexFunc(r.Policies, func(x Contender) bool { return c.Baseline != "" && x.Name == c.Baseline })
		if by < 0 {
			continue
		}
		if !head {
			head = true
			fmt.Fprint(w, "\nFlow control on / off: mean time to the first token\npolicy")
			for _, g := range r.groups() {
				fmt.Fprintf(w, "\t%s", g)
			}
			fmt.Fprint(w, "\tall\tp99, all\tworst scenario\thits, points at worst\n")
		}
		fmt.Fprint(w, c.Baseline)
		for _, g := range append(r.groups(), "") {
			fmt.Fprintf(w, "\t%.3f", interval(r.ratios(meanTTFT, k, by, r.of(g))).Mean)
		}
		worst, at, hits := 0.0, "", 0.0
		for i, s := range r.Scenarios {
			if x := interval(r.ratios(meanTTFT, k, by, []int{i})).Mean; x > worst {
				worst, at = x, s.Name
			}
			hit := func(o Outcome) float64 { return o.Hits * 100 }
			hits = min(hits, r.mean(i, k, hit)-r.mean(i, by, hit))
		}
		fmt.Fprintf(w, "\t%.3f\t%.3f, %s\t%.1f\n", interval(r.ratios(p99TTFT, k, by, r.of(""))).Mean, worst, at, hits)
	}
}

// writeScenarios writes each scenario with all that was measured.
func (r *Results) writeScenarios(w io.Writer) {
	for i, s := range r.Scenarios {
		fmt.Fprintf(
			w,
			"\n%s\nwhich is %s, %.0f requests measured\n",
			s.Name,
			s.says(),
			r.mean(i, 0, func(o Outcome) float64 { return float64(o.Requests) }),
		)
		fmt.Fprint(
			w,
			"policy\tratio\tmean s\tp50\tp90\tp99\ttoken ms\tend s\thits %\tgoodput %\tlost\tretried\tspread\tbusy "+
				"%\trequests/s\n",
		)
		for k, c := range r.Policies {
			m := func(of func(Outcome) float64) float64 { return r.mean(i, k, of) }
			fmt.Fprintf(
				w,
				"%s\t%s\t%.3f\t%.3f\t%.3f\t%.2f\t%.1f\t%.2f\t%.1f\t%.1f\t%.1f\t%.1f\t%.2f\t%.0f\t%.1f\n",
				c.Name,
				r.cell(meanTTFT, k, []int{i}),
				m(meanTTFT),
				m(func(o Outcome) float64 { return o.P50 }),
				m(
					func(o Outcome) float64 { return o.P90 },
				),
				m(p99TTFT),
				1000*m(func(o Outcome) float64 { return o.PerToken }),
				m(func(o Outcome) float64 { return o.End }),
				100*m(func(o Outcome) float64 { return o.Hits }),
				100*m(func(o Outcome) float64 { return o.Good }),
				m(func(o Outcome) float64 { return float64(o.Lost) }),
				m(
					func(o Outcome) float64 { return float64(o.Retried) },
				),
				m(func(o Outcome) float64 { return o.Spread }),
				100*m(func(o Outcome) float64 { return o.Busy }),
				m(func(o Outcome) float64 { return o.Throughput }),
			)
		}
	}
}

// says says what the load of a scenario is.
func (s Scenario) says() string {
	p := s.at(s.Load, 1)
	e := p.Servers[0]
	what := fmt.Sprintf("%d servers of %d blocks, steps of %d tokens", len(p.Servers), e.KVBlocks, e.StepTokens)
	if p.Load.Clients > 0 {
		return fmt.Sprintf("%d clients of %s, %s", p.Load.Clients, p.Load.Trace.Name, what)
	}
	return fmt.Sprintf("%s at %.2f times its speed, %s", p.Load.Trace.Name, p.Load.Rate, what)
}
