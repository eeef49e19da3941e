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

// comparison is two benchmarks beside the code whose ratio says something,
// or a ratio that one benchmark reports by itself.
type comparison struct {
	title     string
	pkg       string
	benchmark string // a regular expression that takes in both
	got, over string // their names
	metric    string // or the unit under which one reports the ratio, or the figure
	procs     string // GOMAXPROCS; with 1, time is CPU; "" = all cores
	atMost    float64
	atLeast   float64 // bars; 0 = none
}

// comparisons are those of the whole tree; add yours.
var comparisons = []comparison{
	pick("10"), pick("100"), pick("1000"),
	{title: "a pick, with the whole catalogue and 300 types more ÷ with the default's types alone",
		pkg: "engine/schedule", benchmark: "^BenchmarkUnusedTypes$", metric: "with/without", atMost: 1.03},
	format("completions"), format("responses"), format("messages"), format("counted"), format("embeddings"),
	format("images"), format("vLLM-tokens"), format("SGLang-tokens"), format("SGLang-text"), format("form"),
	format("gRPC-text"), format("gRPC-tokens"), format("Vertex-chat"), format("passthrough"),
	{
		title: "a metrics page of 61 KB, scanned ÷ parsed by Prometheus", pkg: "adapters/modelserver",
		benchmark: "^Benchmark(Scan|Parse)$",
		got:       "BenchmarkScan/engine-from-page", over: "BenchmarkParse",
	},
	life("protoactor's defaults ÷ ours, one loop on one core", "protoactor/one-loop", "1", 4),
	life("protoactor's defaults ÷ ours, one loop, two cores", "protoactor/one-loop", "2", 0),
	life("protoactor's defaults ÷ ours, two loops and crossing messages", "protoactor/two-loops", "2", 0),
	life("ring on ÷ off", "ring/none", "1", 0),
	life("ring on ÷ off, two loops", "ring/none-two-loops", "2", 0),
	{title: "a request's life: allocations", pkg: "engine/runtime", benchmark: lifecycle, metric: "allocs/request",
		procs: "1", atMost: 18},
}

const lifecycle = "^BenchmarkLifecycle$"

func life(what, metric, procs string, atLeast float64) comparison {
	return comparison{title: "a request's life: " + what, pkg: "engine/runtime", benchmark: lifecycle, metric: metric,
		procs: procs, atLeast: atLeast}
}

func format(name string) comparison {
	return comparison{title: "64 KB read: " + name + " ÷ chat", pkg: "adapters/parsers",
		benchmark: "^BenchmarkFormats$", metric: name + "/chat"}
}

func pick(endpoints string) comparison {
	return comparison{
		title: "a pick, " + endpoints + " endpoints ÷ 1", pkg: "engine/schedule", benchmark: "^BenchmarkPick$",
		got: "BenchmarkPick/" + endpoints, over: "BenchmarkPick/1",
	}
}

// measured is one benchmark's medians.
type measured struct {
	nanos, allocs float64
}

// functions holds parts of the code against each other, by the benchmarks beside them.
func (b *bench) functions(ctx context.Context) error {
	b.head("Parts, by the benchmarks beside the code", "what", "µs", "÷", "bar", "allocations",
		"allocations of the other")
	outputs := map[string]string{}
	for _, c := range comparisons {
		key := c.pkg + " " + c.benchmark + " " + c.procs
		if outputs[key] == "" {
			out, err := b.run(ctx, c)
			if err != nil {
				return err
			}
			outputs[key] = out
		}
		if err := b.show(c, outputs[key]); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) show(c comparison, output string) error {
	if c.metric != "" {
		v := reported(output, c.metric)
		if v == 0 {
			b.row(c.title, "", "no such benchmark")
			return nil
		}
		b.row(c.title, "", figure(v), b.verdict(c, v))
		return nil
	}
	all, err := readBenchmarks(output)
	if err != nil {
		return err
	}
	got, over := all[c.got], all[c.over]
	if got.nanos == 0 || over.nanos == 0 {
		b.row(c.title, "", "no such benchmark")
		return nil
	}
	b.row(c.title, figure(got.nanos/1000), figure(got.nanos/over.nanos), b.verdict(c, got.nanos/over.nanos),
		strconv.FormatFloat(got.allocs, 'f', -1, 64), strconv.FormatFloat(over.allocs, 'f', -1, 64))
	return nil
}

func (b *bench) verdict(c comparison, v float64) string {
	switch {
	case c.atMost > 0:
		return b.bar(v, c.atMost)
	case c.atLeast > 0 && v < c.atLeast:
		b.missed++
		return fmt.Sprintf("**< %s**", figure(c.atLeast))
	case c.atLeast > 0:
		return "≥ " + figure(c.atLeast)
	}
	return ""
}

// reported is the median of what a benchmark reports under a unit; 0 = nothing.
func reported(output, unit string) float64 {
	var all []float64
	for _, m := range regexp.MustCompile(`([0-9.]+) `+regexp.QuoteMeta(unit)+`\s`).FindAllStringSubmatch(output, -1) {
		if v, err := strconv.ParseFloat(m[1], 64); err == nil {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return 0
	}
	return median(all)
}

var benchLine = regexp.MustCompile(`^(Benchmark\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

// run runs the benchmarks of one package, each three times, and gives what they print.
func (b *bench) run(ctx context.Context, c comparison) (string, error) {
	each := min(b.round, 500*time.Millisecond)
	args := []string{"test", "-run", "^$", "-bench", c.benchmark, "-benchmem", "-count", "3", "-benchtime",
		each.String()}
	if c.procs != "" {
		args = append(args, "-cpu", c.procs)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+c.pkg)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out) + "\n", nil
}

// readBenchmarks gives the medians by name.
func readBenchmarks(output string) (map[string]measured, error) {
	nanos, allocs := map[string][]float64{}, map[string][]float64{}
	for line := range strings.Lines(output) {
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
		all[name] = measured{median(nanos[name]), median(allocs[name])}
	}
	return all, nil
}
