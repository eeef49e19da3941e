package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// comparison is two benchmarks beside the code whose ratio says something.
type comparison struct {
	title     string
	pkg       string
	benchmark string // a regular expression that takes in both
	got       string
	over      string
	bar       float64 // of the ratio of time; 0 = none
	atLeast   float64 // how many times cheaper got must be; 0 = no matter
}

// comparisons are those of the whole tree; add yours.
var comparisons = []comparison{
	{title: "a pick, 10 endpoints ÷ 1", pkg: "engine/schedule", benchmark: "^BenchmarkPick$", got: "BenchmarkPick/10", over: "BenchmarkPick/1"},
	{title: "a pick, 100 endpoints ÷ 1", pkg: "engine/schedule", benchmark: "^BenchmarkPick$", got: "BenchmarkPick/100", over: "BenchmarkPick/1"},
	{title: "a pick, 1000 endpoints ÷ 1", pkg: "engine/schedule", benchmark: "^BenchmarkPick$", got: "BenchmarkPick/1000", over: "BenchmarkPick/1"},
	{title: "a metrics page of 61 KB, scanned ÷ parsed", pkg: "adapters/modelserver", benchmark: "^Benchmark(Scan|Parse)$", got: "BenchmarkScan/engine-from-page", over: "BenchmarkParse"},
	{title: "a life of six messages, combining ÷ protoactor alone", pkg: "engine/runtime", benchmark: "^BenchmarkLife$", got: "BenchmarkLife/combining", over: "BenchmarkLife/protoactor_alone", atLeast: 4},
	{title: "a life, ring on ÷ off", pkg: "engine/runtime", benchmark: "^BenchmarkLife$", got: "BenchmarkLife/combining", over: "BenchmarkLife/combining_without_ring"},
	{title: "a life, combining ÷ loop goroutine", pkg: "engine/runtime", benchmark: "^BenchmarkLife$", got: "BenchmarkLife/combining", over: "BenchmarkLife/goroutine"},
}

// measured is one benchmark's medians.
type measured struct {
	nanos, allocs float64
}

// functions holds parts of the code against each other, by the benchmarks beside them.
func (b *bench) functions(ctx context.Context) error {
	b.head("Parts, by the benchmarks beside the code", "what", "µs", "÷", "bar", "allocations", "allocations of the other")
	known := map[string]map[string]measured{}
	for _, c := range comparisons {
		key := c.pkg + " " + c.benchmark
		if known[key] == nil {
			m, err := b.run(ctx, c)
			if err != nil {
				return err
			}
			known[key] = m
		}
		got, over := known[key][c.got], known[key][c.over]
		if got.nanos == 0 || over.nanos == 0 {
			return fmt.Errorf("%s has no benchmarks %s and %s", c.pkg, c.got, c.over)
		}
		b.row(c.title, figure(got.nanos/1000), figure(got.nanos/over.nanos), c.verdict(b, got.nanos/over.nanos),
			strconv.FormatFloat(got.allocs, 'f', -1, 64), strconv.FormatFloat(over.allocs, 'f', -1, 64))
	}
	return nil
}

func (c comparison) verdict(b *bench, ratio float64) string {
	switch {
	case c.atLeast > 0:
		return b.bar(ratio, 1/c.atLeast)
	case c.bar > 0:
		return b.bar(ratio, c.bar)
	}
	return ""
}

var benchLine = regexp.MustCompile(`^(Benchmark\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

// run runs the benchmarks of one package, each three times, and gives the medians by name.
func (b *bench) run(ctx context.Context, c comparison) (map[string]measured, error) {
	each := min(b.round, 500*time.Millisecond)
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", c.benchmark, "-benchmem", "-count", "3", "-benchtime", each.String(), "./"+c.pkg)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	nanos, allocs := map[string][]float64{}, map[string][]float64{}
	for line := range strings.Lines(string(out)) {
		m := benchLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		words := strings.Fields(m[2])
		for i := 0; i+1 < len(words); i += 2 {
			v, err := strconv.ParseFloat(words[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			switch words[i+1] {
			case "ns/op":
				nanos[m[1]] = append(nanos[m[1]], v)
			case "allocs/op":
				allocs[m[1]] = append(allocs[m[1]], v)
			}
		}
	}
	all := map[string]measured{}
	for name := range nanos {
		all[name] = measured{median(nanos[name]), median(append([]float64{}, allocs[name]...))}
	}
	return all, nil
}
