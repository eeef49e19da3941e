package sim_test

import (
	"context"
	"flag"
	"strconv"
	"testing"
	"time"
)

var (
	seedFlag     = flag.Uint64("seed", 1, "of the run")
	requestsFlag = flag.Int("requests", defaultRequests, "how many in the long run")
)

// outcome is what must be equal for equal seeds.
type outcome struct {
	hash    uint64
	summary string
}

func TestLongRunLosesNothing(t *testing.T) {
	run(t, *seedFlag, *requestsFlag)
}

func TestEqualSeedsGiveEqualRuns(t *testing.T) {
	n := max(*requestsFlag/10, 200)
	a, b, other := run(t, *seedFlag, n), run(t, *seedFlag, n), run(t, *seedFlag+1, n)
	if a != b {
		t.Errorf("seed %d twice: %#x and %#x\n%s\n%s", *seedFlag, a.hash, b.hash, a.summary, b.summary)
	}
	if a.hash == other.hash {
		t.Errorf("seeds %d and %d: both %#x", *seedFlag, *seedFlag+1, a.hash)
	}
}

func TestFurtherSeedsLoseNothing(t *testing.T) {
	for i := range uint64(20) {
		seed := *seedFlag + 100 + i
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { run(t, seed, max(*requestsFlag/20, 100)) })
	}
}

// run plays one world from its first message to its last, and checks it on the way.
func run(t *testing.T, seed uint64, requests int) outcome {
	t.Helper()
	w := newWorld(t, seed, requests)
	defer func() {
		if t.Failed() {
			t.Logf("seed %d, %d requests: repeat with -seed %d -requests %d", seed, requests, seed, requests)
		}
	}()
	w.storm()
	w.calm(50)
	w.emptied()
	if requests >= 10_000 {
		w.varied()
	}
	got := outcome{w.sys.Hash(), w.summary()}
	w.close()
	t.Logf("seed %d: %#x: %s", seed, got.hash, got.summary)
	return got
}

// storm lets all clients come and go, among faults.
func (w *world) storm() {
	w.until("the last client has left", time.Hour, func() bool { return w.crowd.left == 0 && w.ledger.present == 0 })
	w.sys.StepUntil(10 * time.Millisecond) // what they said last has arrived
	w.answered(w.ledger.lines)
}

// calm ends the faults: what is up then must be whole.
func (w *world) calm(requests int) {
	w.faults.off = true
	clear(w.other.absent)
	w.other.found(servers)
	w.sys.StepUntil(30 * time.Second)
	w.unloaded()
	w.scraped()
	before := len(w.ledger.lines)
	for range requests {
		w.crowd.send()
		w.sys.StepUntil(10 * time.Millisecond)
	}
	w.until("the last client has left", time.Minute, func() bool { return w.ledger.present == 0 })
	w.sys.StepUntil(10 * time.Millisecond)
	if n, most := w.timers(), w.ledger.live()+w.farm.pending; n > most {
		w.Errorf("%d timers in a tree at rest, want at most %d: one of each scraper, and of each page on its way", n, most)
	}
	w.answered(w.ledger.lines[before:])
	for _, l := range w.ledger.lines[before:] {
		if l.picked != 1 || l.revoked != 0 {
			w.Errorf("request %d came after all faults and was not served: %+v", l.id, *l)
		}
	}
}

// emptied takes every endpoint away: nothing is left to happen.
func (w *world) emptied() {
	w.other.found(0)
	w.sys.StepUntil(10 * time.Second)
	w.unloaded()
	w.scraped()
	if n := w.timers(); n != 0 {
		w.Errorf("%d timers in a tree without endpoints, want none", n)
	}
	if held := w.index.Stats().Held; held != 0 {
		w.Errorf("the prefix index holds %d blocks of no endpoint", held)
	}
	lost := 0
	for _, q := range w.ledger.queries {
		if q.answers > 1 {
			w.Errorf("a query was answered %d times", q.answers)
		}
		lost += one(q.answers == 0)
	}
	if lost > w.ledger.panics["recorder"] {
		w.Errorf("%d queries without an answer, the recorder panicked %d times", lost, w.ledger.panics["recorder"])
	}
}

// close ends the tree. Every actor that began has ended, once.
func (w *world) close() {
	if err := w.sys.Close(context.Background()); err != nil {
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
	}
	if counted != uint64(told) {
		w.Errorf("%d panics, %d of them told: the rest came while actors ended", counted, told)
	}
}

// until steps until something is so, and fails if that takes longer than limit, of virtual time.
func (w *world) until(what string, limit time.Duration, so func() bool) {
	w.Helper()
	end := w.sys.Now().Add(limit)
	for !so() {
		if !w.sys.Step() || w.sys.Now().After(end) {
			w.Fatalf("waited %v for: %s; %d clients are present", limit, what, w.ledger.present)
		}
	}
}
