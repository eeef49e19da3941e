package sim_test

import (
	"context"
	"flag"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
)

var (
	seedFlag     = flag.Uint64("seed", 0, "play this seed and nothing else; 0 = all tests of the package")
	requestsFlag = flag.Int("requests", seedRequests, "how many requests a seed plays with")
)

const (
	fixedSeeds   = 60
	seedRequests = 700 // with which a seed plays
	longRequests = 10_000
)

// TestMain plays one seed alone if one is named.
func TestMain(m *testing.M) {
	flag.Parse()
	if *seedFlag != 0 {
		if err := flag.Set("test.run", "^TestNamedSeed$"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// TestNamedSeed repeats what another run printed. Without a seed of its own it plays the first fixed one.
func TestNamedSeed(t *testing.T) {
	if got := run(t, max(*seedFlag, 1), *requestsFlag); *seedFlag != 0 {
		announce(t, got, *requestsFlag)
	}
}

func TestFixedSeedsLoseNothingAndMeetEveryFault(t *testing.T) {
	drawn := map[string]int{}
	for seed := range uint64(fixedSeeds) {
		t.Run(strconv.FormatUint(seed+1, 10), func(t *testing.T) {
			for kind, n := range run(t, seed+1, *requestsFlag).drawn {
				drawn[kind] += n
			}
		})
	}
	complete(t, drawn)
}

// TestSeedOfTheDay plays a seed that is new: the date, in UTC.
func TestSeedOfTheDay(t *testing.T) {
	day, err := strconv.ParseUint(time.Now().UTC().Format("20060102"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	run(t, day, 2**requestsFlag)
}

func TestLongRunLosesNothing(t *testing.T) {
	got := run(t, 1, longRequests)
	if got.served < longRequests/4 { // of many, the pool is empty for long, or requests that wait make way
		t.Errorf("%d of %d requests were served, want a quarter at least", got.served, longRequests)
	}
}

func TestEqualSeedsGiveEqualRuns(t *testing.T) {
	a, b, other := run(t, 7, *requestsFlag), run(t, 7, *requestsFlag), run(t, 8, *requestsFlag)
	if a.hash != b.hash || a.summary != b.summary {
		t.Errorf("seed 7 twice:\n%s\n%s", a, b)
	}
	if a.hash == other.hash {
		t.Errorf("seeds 7 and 8: both %#x", a.hash)
	}
}

// run plays one world from its first message to its last, and checks it on the way.
func run(t *testing.T, seed uint64, requests int) outcome {
	t.Helper()
	w := newWorld(t, seed, requests)
	defer func() {
		if w.errors > 0 {
			t.Logf("seed %d failed; repeat it with: %s", seed, repeat(seed, requests))
		}
	}()
	w.storm()
	w.calm(50)
	w.emptied()
	got := outcome{seed: seed, hash: runtimetest.Inspect(w.sys).Hash(), summary: w.summary(), drawn: w.ledger.drawn,
		served: w.served()}
	w.close()
	for _, b := range w.ledger.breaches {
		w.Errorf("%s", b)
	}
	t.Log(got.String())
	return got
}

// storm lets all clients come and go, among faults.
func (w *world) storm() {
	w.until("the last client has left", time.Hour, func() bool { return w.crowd.left == 0 && w.ledger.present == 0 })
	w.faults.off = true
	runtimetest.Inspect(w.sys).StepUntil(10 * time.Millisecond) // what they said last has arrived
	w.answered(w.ledger.lines)
	w.exact()
}

// calm comes when the faults have ended: what is up then must be whole.
func (w *world) calm(requests int) {
	clear(w.other.absent)
	w.other.found(servers)
	runtimetest.Inspect(w.sys).StepUntil(30 * time.Second)
	w.exact()
	w.unloaded()
	w.scraped()
	before := len(w.ledger.lines)
	for range requests {
		w.crowd.send()
		runtimetest.Inspect(w.sys).StepUntil(10 * time.Millisecond)
	}
	w.until("the last client has left", time.Minute, func() bool { return w.ledger.present == 0 })
	runtimetest.Inspect(w.sys).StepUntil(10 * time.Millisecond)
	w.rest(
		w.ledger.live() + w.farm.pending + 2,
	) // timers: of each scraper, each page on its way, window, and who is away
	w.answered(w.ledger.lines[before:])
	for _, l := range w.ledger.lines[before:] {
		if l.picked != 1 || l.revoked != 0 {
			w.Errorf("request %d came after all faults and was not served: %+v", l.id, *l)
		}
	}
	w.exact()
}

// emptied takes every endpoint away, until none may come back: nothing is left to happen.
func (w *world) emptied() {
	w.other.found(0)
	runtimetest.Inspect(w.sys).StepUntil(6 * time.Minute)
	w.exact()
	w.unloaded()
	w.scraped()
	w.rest(0)
	w.wired()
	w.seldom()
	w.gauge("signalbox_prefix_placed_prompts", 0)
	if held := w.index.Stats().Held; held != 0 {
		w.Errorf("the prefix index holds %d blocks of no endpoint", held)
	}
	for kind, got := range map[string]int{"scores NaN": w.observed.nan, "scores out of range": w.observed.clamped} {
		if want := w.ledger.drawn[pluginFault("scorer", kind)]; got != want {
			w.Errorf("%d %s were counted, want %d", got, kind, want)
		}
	}
	lost := map[string]int{}
	for _, q := range w.ledger.queries {
		if q.answers > 1 {
			w.Errorf("a query was answered %d times", q.answers)
		}
		lost[q.of] += one(q.answers == 0)
	}
	for of, n := range lost {
		if n > w.ledger.panics[of] {
			w.Errorf("%d queries without an answer, %s panicked %d times", n, of, w.ledger.panics[of])
		}
	}
}

// rest checks what a tree at rest may still have: so many timers at most, and the pool's watch of prefix.
func (w *world) rest(most int) {
	w.Helper()
	timers, watches := 0, 0
	for i := range loops {
		timers += runtimetest.Inspect(w.sys).Timers(i)
		watches += runtimetest.Inspect(w.sys).Watches(i)
	}
	if timers > most {
		w.Errorf("%d timers in a tree at rest, want %d at most", timers, most)
	}
	if watches != 1 {
		w.Errorf("%d watches in a tree at rest, want 1: prefix, by pool", watches)
	}
}

// close ends the tree. Every actor that began has ended, once.
func (w *world) close() {
	if err := w.picker.Close(context.Background()); err != nil {
		w.Error(err)
	}
	for name, n := range w.ledger.born {
		if w.ledger.died[name] != n {
			w.Errorf("%s: %d began, %d ended", name, n, w.ledger.died[name])
		}
	}
	told, counted := 0, uint64(0)
	for _, n := range w.ledger.panics {
		told += n
	}
	for i := range loops {
		counted += w.sys.Stats(i).Panics
		if n := runtimetest.Inspect(w.sys).Timers(i) + runtimetest.Inspect(w.sys).Watches(i); n != 0 {
			w.Errorf("loop %d: %d timers and watches after the end, want none", i, n)
		}
	}
	if counted != uint64(told) {
		w.Errorf("%d panics counted, %d told", counted, told)
	}
}

// until steps until something is so, and fails if that takes longer than limit, of virtual time.
func (w *world) until(what string, limit time.Duration, so func() bool) {
	w.Helper()
	end := w.sys.Now().Add(limit)
	for !so() {
		w.lapse()
		if !w.sys.Step() || w.sys.Now().After(end) {
			w.Fatalf("waited %v for: %s; %d clients are present", limit, what, w.ledger.present)
		}
		if w.steps++; w.steps%97 == 0 {
			w.exact()
		}
	}
}

// lapse lets time pass now and then while messages wait. It is far less than what streams wait longer than cycles.
func (w *world) lapse() {
	if w.faults.off || w.steps-w.lapsed < 300 || !w.chance(.01) || runtimetest.Inspect(w.sys).Waiting() == 0 {
		return
	}
	w.lapsed = w.steps
	w.ledger.drawn[timerLate] += runtimetest.Inspect(w.sys).Lapse(w.upTo(400 * time.Millisecond))
}
