// Command bench measures what a request costs Signalbox, beside the thinnest ext_proc server that can be written with
// grpc-go (the floor), in one run on one machine: figures of two machines, or of two hours, say little,
// and ratios of one run say much.
//
// It owns the floor, the load generator and the table. It starts the real binary, as a user would, and never reaches
// into it: CPU and memory are read from /proc, allocations from the metrics page. It runs on Linux with taskset.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

type settings struct {
	floor, floorMetrics string
	tuned               bool
	rounds              int
	round               time.Duration
	short, update       bool
	only                string
	profile             string
	profileBytes        int
	mode                string
	signalbox, against  string
}

func main() {
	var s settings
	flag.StringVar(&s.floor, "floor", "", "be the floor, on this address")
	flag.StringVar(&s.floorMetrics, "floor-metrics", "", "address of the floor's metrics page")
	flag.BoolVar(&s.tuned, "tuned", false, "of the floor: with Signalbox's pool, GC and worker settings")
	flag.IntVar(&s.rounds, "rounds", 7, "rounds of each server and size; figures are medians")
	flag.DurationVar(&s.round, "duration", time.Second, "of a round")
	flag.BoolVar(&s.short, "short", false, "three rounds of 0.3 s: to see that it works")
	flag.BoolVar(&s.update, "update", false, "write the tables into test/bench/README.md too")
	flag.StringVar(&s.only, "only", "", "tables to make, a regular expression over: "+strings.Join(tableNames(), " "))
	flag.StringVar(&s.profile, "profile", "",
		"folder: write CPU and allocation profiles of Signalbox, and nothing else")
	flag.IntVar(&s.profileBytes, "profile-bytes", 8<<10, "of a request body while it is profiled")
	flag.StringVar(&s.mode, "mode", "full", "of -profile and -against: full, light, streamed or buffered")
	flag.StringVar(&s.signalbox, "signalbox", "", "binary to measure; empty builds this tree's")
	flag.StringVar(&s.against, "against", "", "another binary: hold the two against each other, and nothing else")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	err := s.run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (s *settings) run(ctx context.Context) error {
	if s.floor != "" {
		return serveFloor(ctx, s.floor, s.floorMetrics, s.tuned)
	}
	if s.update && (s.short || s.only != "") {
		return errors.New("-update keeps all tables of a whole run: not with -short or -only")
	}
	if s.short {
		s.rounds, s.round = 3, 300*time.Millisecond
	}
	if n := runtime.NumCPU(); n < 2 {
		return fmt.Errorf("%d core: server and generator need one each", n)
	}
	folder, err := os.MkdirTemp("", "signalbox-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	l := &lab{folder: folder, signalbox: s.signalbox}
	if err := l.prepare(ctx, s.profile != ""); err != nil {
		return err
	}
	defer func() { _ = l.endpoints.close() }() // the process ends with it
	var text bytes.Buffer
	b := &bench{lab: l, out: io.MultiWriter(os.Stdout, &text), rounds: s.rounds, round: s.round,
		sizes: []int{1 << 10, 8 << 10, 64 << 10}, streams: 32, perSec: 1000}
	var known bool
	if b.mode, known = modes[s.mode]; !known {
		return fmt.Errorf("-mode %s: no such mode", s.mode)
	}
	if b.large, b.small, err = pages(); err != nil {
		return err
	}
	l.endpoints.page.Store(&b.small)
	switch {
	case s.profile != "":
		return errors.Join(b.profiles(ctx, s.profile, s.profileBytes), l.clear())
	case s.against != "":
		return errors.Join(b.versus(ctx, s.against), l.clear())
	}
	if err := s.tables(ctx, b); err != nil {
		return err
	}
	if s.update {
		return update(text.String())
	}
	return nil
}

// prepare builds the binary, if none is given, and starts the pages.
func (l *lab) prepare(ctx context.Context, profiled bool) (err error) {
	if l.self, err = os.Executable(); err != nil {
		return err
	}
	if profiled && l.signalbox != "" {
		return errors.New("-profile builds a binary of its own: that of -signalbox cannot be profiled")
	}
	if l.signalbox == "" {
		l.signalbox = filepath.Join(l.folder, "signalbox")
		if err := l.build(ctx, profiled); err != nil {
			return err
		}
	}
	l.endpoints, err = serveEndpoints(100, nil)
	return err
}

func (l *lab) build(ctx context.Context, profiled bool) error {
	args := []string{"build", "-o", l.signalbox}
	if profiled {
		overlay, err := l.overlay()
		if err != nil {
			return err
		}
		args = append(args, "-overlay", overlay)
	} else {
		args = append(args, "-trimpath")
	}
	out, err := exec.CommandContext(ctx, cmp.Or(os.Getenv("GO"), "go"),
		append(args, "./cmd/signalbox")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// table is one part of the output.
type table struct {
	name  string
	cores string // of this process
	make  func(*bench, context.Context) error
}

func plain(f func(*bench) error) func(*bench, context.Context) error {
	return func(b *bench, _ context.Context) error { return f(b) }
}

var tables = []table{
	{"pinned", generatorCore, plain((*bench).pinned)},
	{"fixed", generatorCore, plain((*bench).fixed)},
	{"modes", generatorCore, plain((*bench).modes)},
	{"lanes", generatorCore, plain((*bench).lanes)},
	{"chunks", generatorCore, plain((*bench).chunks)},
	{"loops", bothCores, plain((*bench).unpinned)},
	{"idle", generatorCore, plain((*bench).idle)},
	{"memory", generatorCore, plain((*bench).memory)},
	{"waiting", bothCores, plain((*bench).waiting)},
	{"functions", bothCores, (*bench).functions},
}

func tableNames() []string {
	var out []string
	for _, t := range tables {
		out = append(out, t.name)
	}
	return out
}

func (s *settings) tables(ctx context.Context, b *bench) error {
	only, err := regexp.Compile(s.only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if !slices.ContainsFunc(tableNames(), only.MatchString) {
		return fmt.Errorf("-only %s: no such table; there are %s", s.only, strings.Join(tableNames(), ", "))
	}
	b.printf("%s, %s, %d rounds of %v for each figure. Load average before: %s.\n", time.Now().Format("2006-01-02"),
		machine(), b.rounds, b.round, loadAverage())
	for _, t := range tables {
		if !only.MatchString(t.name) {
			continue
		}
		if err := pin(ctx, t.cores); err != nil {
			return err
		}
		runtime.GOMAXPROCS(1 + strings.Count(t.cores, ","))
		if err := errors.Join(t.make(b, ctx), b.clear()); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	b.printf("\n%d bars missed. Load average after: %s, of which the bench itself makes about 2.\n", b.missed,
		loadAverage())
	return nil
}

// machine is its kind: processor, cores, Go.
func machine() string {
	cpu := "unknown processor"
	info, _ := os.ReadFile("/proc/cpuinfo") // without it the processor is unknown
	for line := range strings.Lines(string(info)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			cpu = strings.Trim(name, "\t :\n")
			break
		}
	}
	return fmt.Sprintf("%s, %d cores, %s %s", cpu, runtime.NumCPU(), runtime.GOOS, runtime.Version())
}

// loadAverage is that of the last minute: what else the machine had to do.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

const (
	readme     = "test/bench/README.md"
	resultFrom = "<!-- results:begin -->\n"
	resultTo   = "<!-- results:end -->"
)

// update puts the tables between the marks of the README.
func update(text string) error {
	b, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(b), resultFrom)
	_, after, found := strings.Cut(rest, resultTo)
	if !ok || !found {
		return fmt.Errorf("%s has no marks %q and %q", readme, resultFrom, resultTo)
	}
	return os.WriteFile(readme, []byte(before+resultFrom+"\n"+text+"\n"+resultTo+after), 0o644)
}
