package policybench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
)

// Options says what is benched.
type Options struct {
	Traces    Traces
	Timing    Timing
	Loads     []float64
	Scenarios []string // names, or their beginnings; nil = all
	Policies  []string // likewise
	Files     []NamedFile
	Seeds     int
	Workers   int
	Progress  func(done, of int) // nil = not called
}

// NamedFile is a configuration file of the product, which is played with the gate flowControl as it has it and over it.
type NamedFile struct{ Name, Text string }

// Results are the outcomes of all plays.
type Results struct {
	Options   Options
	Scenarios []Scenario
	Policies  []Contender
	Outcomes  [][][]Outcome // by scenario, policy and seed
	Capacity  []float64     // requests a second under cache pressure, by policy; nil = that is not played
}

// Bench plays all scenarios to all policies.
func Bench(ctx context.Context, o Options) (*Results, error) {
	r := &Results{Options: o}
	var err error
	if r.Scenarios, err = chosen("scenario", Scenarios(o.Traces, o.Timing, o.Loads), o.Scenarios,
		func(s Scenario) string { return s.Name }); err != nil {
		return nil, err
	}
	engine := Engine{StepTokens: 2048, Timing: o.Timing}
	all := Contenders(engine.rate(usualPrompt))
	for _, f := range o.Files {
		all = append(all, both(f.Name, f.Text)...)
	}
	if r.Policies, err = chosen("policy", all, o.Policies, func(c Contender) string { return c.Name }); err != nil {
		return nil, err
	}
	if r.Policies[0].Name != denominator {
		r.Policies = append(
			[]Contender{all[0]},
			slices.DeleteFunc(r.Policies, func(c Contender) bool { return c.Name == denominator })...)
	}
	for _, c := range r.Policies {
		if c.rule == nil {
			if _, err := c.File.load(); err != nil {
				return nil, fmt.Errorf("%s: %w", c.Name, err)
			}
		}
	}
	return r, r.run(ctx)
}

// usualPrompt is for how long a prompt the rate of a server is told to policies that have a constant.
const usualPrompt = 8192

// chosen returns those whose names are wanted.
func chosen[T any](kind string, all []T, wanted []string, name func(T) string) (some []T, err error) {
	if wanted == nil {
		return all, nil
	}
	known := make([]string, len(all))
	for i, one := range all {
		known[i] = name(one)
	}
	for _, w := range wanted {
		if !slices.ContainsFunc(known, func(k string) bool { return wants(w, k) }) {
			return nil, fmt.Errorf("no %s %q; there are %s", kind, w, strings.Join(known, ", "))
		}
	}
	for _, one := range all {
		if slices.ContainsFunc(wanted, func(w string) bool { return wants(w, name(one)) }) {
			some = append(some, one)
		}
	}
	return some, nil
}

// wants reports whether a name is wanted: by itself, or by the word that it begins with.
func wants(wanted, name string) bool {
	return name == wanted || strings.HasPrefix(name, wanted+" ")
}

// run calibrates, finds capacities, and then plays all. An interrupted run has no results.
func (r *Results) run(ctx context.Context) error {
	var settings []*setting
	var pressed *setting
	for _, s := range r.Scenarios {
		if !slices.Contains(settings, s.setting) {
			settings = append(settings, s.setting)
		}
		if s.name == pressureName {
			pressed = s.setting
			r.Capacity = make([]float64, len(r.Policies))
		}
	}
	plays, done := len(r.Scenarios)*len(r.Policies)*r.Options.Seeds, 0
	all := len(settings) + len(r.Capacity) + plays
	each := func(n int, do func(i int) error) error {
		err := parallel(ctx, r.Options.Workers, n, do, func(now int) {
			if r.Options.Progress != nil {
				r.Options.Progress(done+now, all)
			}
		})
		done += n
		return err
	}
	if err := each(len(settings), func(i int) error { return settings[i].calibrate() }); err != nil {
		return err
	}
	err := each(len(r.Capacity), func(k int) (err error) {
		r.Capacity[k], err = pressed.capacity(r.Policies[k])
		return err
	})
	if err != nil {
		return err
	}
	r.Outcomes = make([][][]Outcome, len(r.Scenarios))
	for i := range r.Outcomes {
		r.Outcomes[i] = make([][]Outcome, len(r.Policies))
		for k := range r.Outcomes[i] {
			r.Outcomes[i][k] = make([]Outcome, r.Options.Seeds)
		}
	}
	return each(plays, func(n int) (err error) {
		seed, k := n%r.Options.Seeds, n/r.Options.Seeds%len(r.Policies)
		i := n / r.Options.Seeds / len(r.Policies)
		s := r.Scenarios[i]
		if r.Outcomes[i][k][seed], err = Run(s.at(s.Load, uint64(seed)+1), r.Policies[k]); err != nil {
			return fmt.Errorf("%s, %s, seed %d: %w", s.Name, r.Policies[k].Name, seed+1, err)
		}
		return nil
	})
}

// parallel does n things, some at once, and tells after each how many are done.
func parallel(ctx context.Context, workers, n int, do func(int) error, told func(int)) error {
	var (
		mu    sync.Mutex
		next  int
		done  int
		errs  []error
		group sync.WaitGroup
	)
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next <= n && len(errs) == 0 && ctx.Err() == nil
	}
	for range workers {
		group.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				err := do(i)
				mu.Lock()
				if done++; err != nil {
					errs = append(errs, err)
				} else {
					told(done)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// Measure is something that is compared: the value of an outcome, of which less is better.
type Measure func(Outcome) float64

// floor keeps ratios finite.
const floor = 1e-4

// ratios returns, for each seed, the geometric mean over scenarios of a policy's measure divided by another's.
func (r *Results) ratios(m Measure, policy, by int, scenarios []int) []float64 {
	out := make([]float64, r.Options.Seeds)
	for seed := range out {
		for _, i := range scenarios {
			out[seed] += math.Log((m(r.Outcomes[i][policy][seed]) + floor) / (m(r.Outcomes[i][by][seed]) + floor))
		}
		out[seed] = math.Exp(out[seed] / float64(len(scenarios)))
	}
	return out
}

// Interval is a geometric mean over seeds, and the bounds within which it is with a probability of 95 %.
type Interval struct{ Low, Mean, High float64 }

// Half is half of the interval.
func (i Interval) Half() float64 { return (i.High - i.Low) / 2 }

// interval returns the mean of positive values, and how sure it is. With one value it is not.
func interval(values []float64) Interval {
	n := float64(len(values))
	var sum, square float64
	for _, v := range values {
		sum += math.Log(v)
	}
	mean := sum / n
	for _, v := range values {
		square += (math.Log(v) - mean) * (math.Log(v) - mean)
	}
	half := 0.0
	if len(values) > 1 {
		half = student(len(values)-1) * math.Sqrt(square/(n-1)/n)
	}
	return Interval{math.Exp(mean - half), math.Exp(mean), math.Exp(mean + half)}
}

// student returns the 97.5 % quantile of Student's distribution.
func student(freedom int) float64 {
	table := []float64{12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13}
	if freedom <= len(table) {
		return table[freedom-1]
	}
	return 2
}

// of returns the scenarios of a group; "" = all but those below load 1.0.
func (r *Results) of(group string) (some []int) {
	for i, s := range r.Scenarios {
		if s.Group == group || group == "" && s.Group != groupLight {
			some = append(some, i)
		}
	}
	return some
}

// mean returns a value's mean over seeds.
func (r *Results) mean(scenario, policy int, of func(Outcome) float64) (sum float64) {
	for _, o := range r.Outcomes[scenario][policy] {
		sum += of(o)
	}
	return sum / float64(r.Options.Seeds)
}

// score counts in how many scenarios a policy is better than ideal sticky, as good, and worse.
func (r *Results) score(policy int) (won, tied, lost int) {
	for i := range r.Scenarios {
		switch _, is := r.verdict(i, policy); is {
		case wins:
			won++
		case losses:
			lost++
		case ties:
			tied++
		}
	}
	return won, tied, lost
}

// verdict is how a policy does beside ideal sticky.
type verdict string

const (
	wins   verdict = "wins"
	ties   verdict = "ties"
	losses verdict = "losses"
)

// verdict returns how a policy does in a scenario, and its ratio.
func (r *Results) verdict(scenario, policy int) (float64, verdict) {
	switch ratio := interval(r.ratios(meanTTFT, policy, 0, []int{scenario})).Mean; {
	case ratio < 1-margin:
		return ratio, wins
	case ratio > 1+margin:
		return ratio, losses
	default:
		return ratio, ties
	}
}

// margin is within which two policies are as good.
const margin = .05

// oracle returns the policy whose hits those of others are divided by: one that knows caches and queues.
func (r *Results) oracle() int {
	return max(0, slices.IndexFunc(r.Policies, func(c Contender) bool { return c.Name == oracleName }))
}

func meanTTFT(o Outcome) float64 { return o.Mean }
func p99TTFT(o Outcome) float64  { return o.P99 }
func hitShare(o Outcome) float64 { return o.Hits }
