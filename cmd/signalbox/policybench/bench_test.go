package policybench

import (
	"context"
	"errors"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func contender(t *testing.T, name string) Contender {
	t.Helper()
	all := Contenders(10_000)
	i := slices.IndexFunc(all, func(c Contender) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no policy %s", name)
	}
	return all[i]
}

func outcome(t *testing.T, p Play, c Contender, seed uint64) Outcome {
	t.Helper()
	p.Seed = seed
	p.scale(3)
	o, err := Run(p, c)
	if err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	return o
}

// Equal seeds give equal plays to each policy, and others give others.
func TestRunIsDeterministic(t *testing.T) {
	traces := Traces{}.filled()
	for _, trace := range []*Trace{traces.Sessions, traces.Requests} {
		p := tiny(trace)
		p.Load.Scale = 16
		for _, c := range Contenders(10_000) {
			one, again, other := outcome(t, p, c, 1), outcome(t, p, c, 1), outcome(t, p, c, 2)
			if diff := cmp.Diff(one, again); diff != "" {
				t.Errorf("%s before %s: equal seeds differ:\n%s", c.Name, trace.Name, diff)
			}
			if one == other || one.Requests == 0 {
				t.Errorf("%s before %s: seeds 1 and 2 both give %+v", c.Name, trace.Name, one)
			}
		}
	}
	for name, generate := range map[string]func(uint64) *Trace{
		"sessions": func(seed uint64) *Trace { return coding.Generate("a", seed) },
		"requests": func(seed uint64) *Trace { return chats.Generate("a", seed) },
	} {
		if !reflect.DeepEqual(generate(3), generate(3)) {
			t.Errorf("%s: two traces of seed 3 differ", name)
		}
		if reflect.DeepEqual(generate(3), generate(4)) {
			t.Errorf("%s: those of seeds 3 and 4 do not differ", name)
		}
	}
}

// Servers that restart and that come later lose no request: each ends, or is lost, once, and no policy counts one as in
// flight when all are over.
func TestEachRequestEndsOnce(t *testing.T) {
	for _, name := range []string{"lmetric", denominator, "without-file", "3:2:2+fc"} {
		p := tiny(Traces{}.filled().Sessions)
		p.Load.Scale, p.Load.Clients, p.Length, p.Away = 16, 12, 20*time.Second, 1
		p.Events = []Event{
			{At: time.Second, Do: func(w *world) { w.bring(1, true) }},
			{At: 5 * time.Second, Do: func(w *world) { w.restart(0, 3*time.Second) }},
			{At: 10 * time.Second, Do: func(w *world) { w.restart(1, 500*time.Millisecond) }},
		}
		w := &world{Play: p, now: start, rand: newRand(p.Seed)}
		if c := contender(t, name); c.rule != nil {
			w.policy = c.rule()
			w.play()
		} else if err := w.playProduct(c.File); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		retried := 0
		for _, x := range w.all {
			if x.ended.IsZero() == !x.lost {
				t.Errorf("%s: request %d: ended %v, lost %v", name, x.number, x.ended, x.lost)
			}
			if x.lost {
				continue
			}
			if x.tries > 0 {
				retried++
			}
			if x.at.Before(x.came) || x.picked.Before(x.at) || x.first.Before(x.picked) || x.ended.Before(x.first) ||
				x.cached > x.prompt {
				t.Errorf("%s: request %d: %+v", name, x.number, x)
			}
		}
		if w.open != 0 || retried == 0 {
			t.Errorf("%s: %d requests are open and %d were tried again, want 0 and some", name, w.open, retried)
		}
		if e, ok := w.policy.(*estimator); ok &&
			slices.Max(e.requests)+slices.Max(e.tokens)+slices.Min(e.requests)+slices.Min(e.tokens) != 0 {
			t.Errorf("%s: %v requests and %v tokens are in flight at the end", name, e.requests, e.tokens)
		}
	}
}

// Policies pick as they say, of the servers in the pool.
func TestPicks(t *testing.T) {
	e := Engine{KVBlocks: 400, StepTokens: 512, MaxSequences: 8, Timing: GPU()}
	prompt := func(group uint64) *exchange {
		x := &exchange{demand: demand{prompt: 40 * blockTokens, output: 10}}
		for i := range uint64(40) {
			x.blocks = append(x.blocks, mix(group, i))
		}
		return x
	}
	for name, want := range map[string][]int{
		"round-robin":    {1, 2, 1, 2}, // server 0 is not in the pool
		"least-request":  {-1, -1, -1, -1},
		"greedy":         {-1, -2, 0, 0}, // the second prompt goes to the other server, and equal ones to theirs
		"oracle-greedy":  {-1, -2, 0, 0},
		denominator:      {-1, -2, 0, 0},
		"oracle-lmetric": {-1, -2, 0, 0},
		"lmetric":        {-1, -2, 0, 0},
	} {
		w := &world{Play: Play{Servers: []Engine{e, e, e}}, now: start, rand: newRand(5)}
		w.policy = contender(t, name).rule()
		for i := range 3 {
			w.servers = append(
				w.servers,
				&node{server: newServer(e, w.watched()), open: map[*exchange]bool{}, in: i > 0},
			)
		}
		var got []int
		for i, group := range []uint64{1, 2, 1, 2} {
			x := prompt(group)
			w.ask(x)
			got = append(got, x.server)
			switch {
			case x.server == 0:
				t.Errorf("%s: request %d went to a server that is not in the pool", name, i)
			case want[i] > 0 && x.server != want[i]:
				t.Errorf("%s: request %d went to server %d, want %d", name, i, x.server, want[i])
			case want[i] == -2 && x.server == got[0]:
				t.Errorf("%s: request %d went to server %d, too", name, i, got[0])
			case want[i] == 0 && x.server != got[i-2]:
				t.Errorf("%s: request %d went to server %d, and its equal to %d", name, i, x.server, got[i-2])
			}
		}
	}
}

// results are those of three policies in two scenarios, with the means that are given by scenario and policy.
func results(means [2][3]float64) *Results {
	r := &Results{Options: Options{Seeds: 2}, Policies: []Contender{
		{Name: denominator, rule: newIdealSticky}, {Name: "3:2:2"}, {Name: "3:2:2+fc", Baseline: "3:2:2"},
	}, Capacity: []float64{40, 30, 20}}
	for i, of := range means {
		s := &setting{name: "agentic", play: tiny(Traces{}.filled().Sessions), unit: 3}
		load := []float64{1, 2.5}[i]
		r.Scenarios = append(
			r.Scenarios,
			Scenario{Name: []string{"agentic 1.0", "agentic 2.5"}[i], Group: groupOf(load), Load: load, setting: s},
		)
		var all [][]Outcome
		for _, mean := range of {
			all = append(all, []Outcome{{Mean: mean, Hits: .5, Good: 1}, {Mean: mean, Hits: .5, Good: 1}})
		}
		r.Outcomes = append(r.Outcomes, all)
	}
	return r
}

func TestResultsWrite(t *testing.T) {
	var text strings.Builder
	if err := results([2][3]float64{{1, 2, 1.04}, {1, .5, 4}}).Write(&text); err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(` {2,}`).ReplaceAllString(text.String(), " ")
	for _, want := range []string{
		"3:2:2 2.000 ±0.000 0.500 ±0.000 1.000 ±0.000 1.000 ±0.000 1/0/1 1.000 100.0 0 0.00\n",
		"3:2:2+fc 1.040 ±0.000 4.000 ±0.000 2.040 ±0.000 1.000 ±0.000 0/1/1 ",
		"Where Signalbox loses, by more than 5 %\n3:2:2: agentic 1.0 (2.00)\n3:2:2+fc: agentic 2.5 (4.00)\n",
		"ideal-sticky 40.0 1.000\n3:2:2 30.0 0.750\n3:2:2+fc 20.0 0.500\n",
		"3:2:2 0.520 7.999 2.039 1.000 7.999, agentic 2.5 0.0\n", // flow control on / off
		"agentic 2.5\nwhich is 8 clients of generated sessions, 2 servers of 200 blocks",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant in it\n%s", got, want)
		}
	}
}

// The page has charts, needs nothing from elsewhere, and shows names as text.
func TestResultsWriteHTML(t *testing.T) {
	r := results([2][3]float64{{1, 2, 1.04}, {1, .5, 4}})
	r.Policies[1].Name, r.Policies[2].Baseline = "<script>a</script>", "<script>a</script>"
	var text strings.Builder
	if err := r.WriteHTML(&text); err != nil {
		t.Fatal(err)
	}
	got := text.String()
	for _, want := range []string{
		"<svg", "&lt;script&gt;", `<td class="losses">2.00`, `<td class="wins">0.50`, `<td class="ties">1.04`,
		"prefers-color-scheme: dark", `stroke-dasharray`, `points="60,`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %s:\n%s", want, got)
		}
	}
	for _, not := range []string{"<script", "http:", "https:", "@import", "url(", "<link", "<img", "NaN", "ZgotmplZ"} {
		if strings.Contains(got, not) {
			t.Errorf("the page has %s", not)
		}
	}
	if n := strings.Count(got, "<svg"); n != 4 { // two groups, both of them, and one setting over loads
		t.Errorf("got %d charts, want 4", n)
	}
}

func TestInterval(t *testing.T) {
	for name, c := range map[string]struct {
		values []float64
		want   Interval
	}{
		"one value":    {[]float64{2}, Interval{2, 2, 2}},
		"equal values": {[]float64{2, 2, 2}, Interval{2, 2, 2}},
		// The logarithms are -1 and 1: a standard error of 1, times 12.71.
		"two values": {[]float64{1 / math.E, math.E}, Interval{math.Exp(-12.71), 1, math.Exp(12.71)}},
	} {
		got := interval(c.values)
		for i, pair := range [][2]float64{{got.Low, c.want.Low}, {got.Mean, c.want.Mean}, {got.High, c.want.High}} {
			if math.Abs(math.Log(pair[0]/pair[1])) > 1e-9 {
				t.Errorf("%s: bound %d: got %v, want %v", name, i, pair[0], pair[1])
			}
		}
	}
	if got := quantile([]float64{1, 2, 3, 4}, .5); got != 3 {
		t.Errorf("the median of 1 to 4: got %v, want the upper one of the two in the middle", got)
	}
	if got := quantile([]float64{1, 2}, 1); got != 2 {
		t.Errorf("the largest of 1 and 2: got %v", got)
	}
}

func TestBenchRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		o   Options
		err string
	}{
		"a scenario":    {Options{Scenarios: []string{"rain"}}, `no scenario "rain"; there are agentic 1.0`},
		"a policy":      {Options{Policies: []string{"luck"}}, `no policy "luck"; there are ideal-sticky, random`},
		"a file":        {Options{Files: []NamedFile{{"mine", "a: b: c"}}}, "mine: line 1: not readable as YAML"},
		"part of words": {Options{Policies: []string{"round"}}, `no policy "round"`},
	} {
		c.o.Loads, c.o.Timing, c.o.Seeds, c.o.Workers = []float64{1}, GPU(), 1, 1
		_, err := Bench(t.Context(), c.o)
		if err == nil || !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: got %v, want %s", name, err, c.err)
		}
	}
}

// Work ends with the first error and with the context, and all of it is done otherwise.
func TestParallel(t *testing.T) {
	broken := errors.New("broken")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, c := range map[string]struct {
		ctx  context.Context
		fail int
		done int
		want error
	}{
		"all": {t.Context(), -1, 50, nil}, "one fails": {t.Context(), 10, 10, broken}, "stopped": {stopped, -1, 0,
			context.Canceled},
	} {
		last := 0
		err := parallel(c.ctx, 1, 50, func(i int) error {
			if i == c.fail {
				return broken
			}
			return nil
		}, func(n int) { last = n })
		if !errors.Is(err, c.want) || last != c.done {
			t.Errorf("%s: got %d done and %v, want %d and %v", name, last, err, c.done, c.want)
		}
	}
	seen := make([]bool, 50)
	err := parallel(t.Context(), 8, 50, func(i int) error { seen[i] = true; return nil }, func(int) {})
	if err != nil || slices.Contains(seen, false) {
		t.Errorf("eight workers: got %v and %v, want all done", seen, err)
	}
}
