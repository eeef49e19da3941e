package chaos

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	seedFlag     = flag.Uint64("seed", 0, "play this seed and nothing else; 0 = all tests of the package")
	requestsFlag = flag.Int("requests", fixedRequests, "how many requests come")
)

const (
	lines   = 6  // connections
	workers = 72 // clients at a time
	worst   = 20 // complaints that are told

	allKinds  = 20_000 // requests among which every kind of fault comes
	manyKinds = 4_000  // among which clients leave at every point, however slow the machine is
)

// TestMain plays one seed alone if one is named.
func TestMain(m *testing.M) {
	flag.Parse()
	if *seedFlag != 0 {
		if err := flag.Set("test.run", "^TestChaos"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// TestChaosLeavesNothing: deadlines are short, and clients stall.
func TestChaosLeavesNothing(t *testing.T) {
	run(t, *requestsFlag, impatient, kinds(*requestsFlag))
}

// TestChaosLeavesNoTimer: bodies may take an hour, and no test waits for that;
// so whatever timer is left keeps its stream.
func TestChaosLeavesNoTimer(t *testing.T) {
	run(t, max(*requestsFlag/10, min(*requestsFlag, 1000)), time.Hour, nil)
}

// run plays requests among faults, and checks what is left. Each of these kinds of faults must come.
func run(t *testing.T, requests int, bodyWait time.Duration, kinds []string) {
	t.Helper()
	seed := max(*seedFlag, 1)
	defer func() {
		if t.Failed() {
			t.Logf("seed %d failed; repeat it with: go test ./test/chaos -seed %d -requests %d", seed, seed,
				*requestsFlag)
		}
	}()
	s := begin(t, seed, requests, bodyWait)
	began := time.Now()
	s.storm()
	s.leave()
	s.calm()
	s.emptied()
	s.end(s.asked())
	met := s.faults.all()
	for _, kind := range kinds {
		if met[kind] == 0 {
			t.Errorf("it never came: %s", kind)
		}
	}
	t.Logf("seed %d: %d requests, %d streams in %v; repeat with: make chaos SEED=%d REQUESTS=%d\n%s", seed, requests,
		s.ledger.began.Load(),
		time.Since(began).Round(time.Millisecond), seed, *requestsFlag, tell(met))
}

func tell(met map[string]int) string {
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(met)) {
		fmt.Fprintf(&b, "%6d %s\n", met[kind], kind)
	}
	return b.String()
}

// kinds are the faults that so many requests are sure to meet.
func kinds(requests int) []string {
	if requests < manyKinds {
		return nil
	}
	var all []string
	for _, fate := range leavers {
		for _, at := range points {
			all = append(all, left(fate, at))
		}
	}
	if requests < allKinds {
		return all
	}
	all = append(all, "client "+deaf, entryComes, entryEarly, entryLate, entryTwice, entryNever)
	all = append(all,
		"inbox full", "panic of a stream", "fetch failed", "fetch refused", "fetch never answered",
		"fetch answered too late",
		"model server restarted", "endpoints changed", "no endpoints", "old endpoints", "filter panics",
		"filter keeps nothing",
		"configuration replaced", "bad configuration", "request split", "prompt read by another server",
		"scorer panics", "scorer scores NaN", "scorer dawdles", "picker panics", "picker picks nothing",
		"picker picks out of range", "handler panics",
		"question answered", "question answered in part",
		"configuration with a gate", "panic of the policy of ordering", "panic of the policy of fairness",
	)
	for _, actor := range []string{
		"capacity", "cycle", "memory", "outlier", "pool", "prefix", "recorder", "scraper", "shard",
	} {
		all = append(all, "panic of "+actor+" before a message", "panic of "+actor+" after a message")
	}
	return all
}

// session is one run.
type session struct {
	*rig
	seed     uint64
	requests int
	last     int // number of the last request that came
	patient  bool
	version  atomic.Uint64 // of the endpoints
	lines    []*wireline
	start    state // before the first request
	outset   int   // goroutines, before the rig was there
	wrongs   atomic.Int64
}

func begin(t *testing.T, seed uint64, requests int, bodyWait time.Duration) *session {
	t.Helper()
	outset := settle()
	total := requests + lateRequests + calmLeavers + calmRounds*calmRequests
	s := &session{rig: startRig(t, seed, total, bodyWait), seed: seed,
		requests: requests, last: requests + lateRequests - 1, patient: bodyWait > time.Minute, outset: outset}
	s.start = look()
	for range lines {
		s.lines = append(s.lines, dial(s.rig))
	}
	s.discover(all()...)
	s.until("the endpoints are known", func() bool { return len(s.picker.Pool().Snapshot().Endpoints) == servers })
	s.faults.off.Store(false)
	return s
}

// storm lets all requests come, among faults.
func (s *session) storm() {
	over := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() { s.churn(over) })
	beside.Go(func() { s.replace(over) })
	for range curious {
		beside.Go(func() { s.inquire(over) })
	}
	s.crowd(workers, 0, s.requests, func(n int) *script { return write(s.seed, n, s.patient) })
	if !s.patient && s.requests >= manyKinds {
		s.latecomers()
	}
	close(over)
	beside.Wait()
	s.faults.off.Store(true)
}

// latecomers leave where no client has left so far: in a crowd on a busy machine,
// clients are refused before they come to their point.
func (s *session) latecomers() {
	n := s.requests
	for _, fate := range leavers {
		for _, at := range points {
			for end := n + tries; n < end && s.faults.all()[left(fate, at)] == 0; n++ {
				s.crowd(1, n, n+1, func(n int) *script { return writeTo(s.seed, n, fate, at) })
			}
		}
	}
}

// crowd plays the requests from one number to another, so many at a time.
func (s *session) crowd(workers, from, to int, script func(int) *script) {
	next := atomic.Int64{}
	next.Store(int64(from))
	var rest sync.WaitGroup
	for range workers {
		rest.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= to || s.wrongs.Load() > worst {
					return
				}
				one := script(n)
				for _, wrong := range play(s.rig, s.lines[n%lines], one) {
					if s.wrongs.Add(1) <= worst {
						s.Errorf("request %d: %s; %s", n, wrong, one)
					}
				}
			}
		})
	}
	rest.Wait()
}
