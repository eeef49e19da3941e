package vllm

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
)

var (
	endpoint    = flag.String("endpoint", "", "HOST:PORT of a real server to measure beside the simulated one")
	repetitions = flag.Int("repetitions", 5, "how often both are measured; the medians count")
)

// tolerance is how far the simulated server may be from the real one, as a part of it.
const tolerance = 0.25

// loads are what both servers are measured under.
var loads = []workload{{1, 20, 128, 32}, {8, 48, 128, 32}, {32, 144, 128, 32}}

// recorded is what the real server showed, by streams: the table of README.md.
var recorded = map[int]speed{
	1:  {9700 * time.Microsecond, 349},
	8:  {28200 * time.Microsecond, 2142},
	32: {84100 * time.Microsecond, 3597},
}

func profile(t *testing.T) Config {
	t.Helper()
	c := Config{Model: "tiny"}
	Profiles["vllm-cpu-tiny"](&c)
	return c.withDefaults()
}

// near compares a simulated speed with a real one.
func near(t *testing.T, streams int, simulated, actual speed) {
	t.Helper()
	first := float64(simulated.firstToken)/float64(actual.firstToken) - 1
	rate := simulated.tokensPerSecond/actual.tokensPerSecond - 1
	if math.Abs(first) > tolerance || math.Abs(rate) > tolerance {
		t.Errorf("%d streams: first token %v, real %v (%+.0f %%); %.0f tokens/s, real %.0f (%+.0f %%); want both "+
			"within %.0f %%",
			streams, simulated.firstToken, actual.firstToken, 100*first, simulated.tokensPerSecond,
			actual.tokensPerSecond, 100*rate, 100*tolerance)
	}
}

// virtually is the speed of an engine under a workload in virtual time, with no HTTP around it.
func virtually(t *testing.T, c Config, w workload) speed {
	t.Helper()
	core, err := batch.New(c.engine(), batch.NewTokens(c.BytesPerToken))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Unix(1_800_000_000, 0)
	now, door, asked, due := began, frontEnd{}, map[uint64]time.Time{}, make([][2]time.Time, 0, w.streams)
	left, firsts, ended := w.requests, []time.Duration{}, 0
	ask := func() {
		if left--; left >= 0 {
			due = append(due, [2]time.Time{door.enter(now, &c), now})
		}
	}
	for range w.streams {
		ask()
	}
	for ended < w.requests {
		at, busy := core.NextEvent()
		// the door lets in one after the other, so the first is the next
		if len(due) > 0 && (!busy || due[0][0].Before(at)) {
			now = due[0][0]
			prompt := make([]uint32, w.promptTokens)
			for i := range prompt {
				prompt[i] = uint32(left*10_000 + len(due)*1_000_000 + i)
			}
			id, _ := core.Submit(now, batch.Request{Prompt: prompt, MaxTokens: w.answerTokens, IgnoreEnd: true})
			asked[id], due = due[0][1], due[1:]
			continue
		}
		now = at
		for _, p := range core.Advance(now) {
			if p.Generated == 1 {
				firsts = append(firsts, now.Sub(asked[p.ID]))
			}
			if p.Ended != batch.Running {
				ended++
				ask()
			}
		}
	}
	slices.Sort(firsts)
	return speed{firsts[len(firsts)/2], float64(w.requests*w.answerTokens) / now.Sub(began).Seconds()}
}

func TestProfileHasTheSpeedOfTheRealServer(t *testing.T) {
	c := profile(t)
	for _, w := range loads {
		got := virtually(t, c, w)
		t.Logf("%d streams: first token %v, %.0f tokens/s", w.streams, got.firstToken, got.tokensPerSecond)
		near(t, w.streams, got, recorded[w.streams])
	}
}

// TestCalibration measures, with -endpoint, a real server and a simulated one in turns with one client, and prints
// both. Without, it sees that the client gets all tokens of the simulated one.
func TestCalibration(t *testing.T) {
	s, err := Start(profile(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	if *endpoint == "" {
		if got := measure(t, s.URL(), "tiny", workload{4, 8, 128, 32}); got.tokensPerSecond <= 0 ||
			got.firstToken <= 0 {
			t.Errorf("got %+v", got)
		}
		return
	}
	var table strings.Builder
	table.WriteString("| streams | first token, real | simulated | tokens/s, real | simulated |\n" +
		"|---|---|---|---|---|\n")
	for _, w := range loads {
		var actual, simulated []speed
		for range *repetitions {
			actual = append(actual, measure(t, "http://"+*endpoint, "tiny", w))
			simulated = append(simulated, measure(t, s.URL(), "tiny", w))
		}
		r, m := median(actual), median(simulated)
		fmt.Fprintf(&table, "| %d | %.1f ms (%s) | %.1f ms | %.0f (%s) | %.0f |\n", w.streams,
			milliseconds(r), span(actual, milliseconds), milliseconds(m), r.tokensPerSecond, span(actual, rate),
			m.tokensPerSecond)
		near(t, w.streams, m, r)
	}
	t.Logf("medians of %d, range in brackets\n%s", *repetitions, table.String())
}

func milliseconds(s speed) float64 { return float64(s.firstToken) / float64(time.Millisecond) }

func rate(s speed) float64 { return s.tokensPerSecond }

// span is the lowest and the highest of a figure.
func span(all []speed, of func(speed) float64) string {
	by := func(a, b speed) int { return cmp.Compare(of(a), of(b)) }
	return fmt.Sprintf("%.0f–%.0f", of(slices.MinFunc(all, by)), of(slices.MaxFunc(all, by)))
}

// median takes each figure's own.
func median(all []speed) speed {
	slices.SortFunc(all, func(a, b speed) int { return cmp.Compare(a.tokensPerSecond, b.tokensPerSecond) })
	rate := all[len(all)/2].tokensPerSecond
	slices.SortFunc(all, func(a, b speed) int { return cmp.Compare(a.firstToken, b.firstToken) })
	return speed{all[len(all)/2].firstToken, rate}
}
