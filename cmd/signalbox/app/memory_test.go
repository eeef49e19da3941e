package app

import (
	"cmp"
	"errors"
	"math"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestMemoryLimitOfTheCgroupIsTheCollectors(t *testing.T) {
	failing := func(err error) memlimit.Provider { return func() (uint64, error) { return 0, err } }
	const unlimited = math.MaxInt64
	for name, c := range map[string]struct {
		env    int64 // $GOMEMLIMIT, which the runtime has read at its start; 0 = not set
		cgroup memlimit.Provider
		held   int64
		want   int64
		logged string
	}{
		"a limit": {0, memlimit.Limit(1000 << 20), 100 << 20, 900 << 20,
			"memory limit of the garbage collector"},
		"less than bodies may take": {0, memlimit.Limit(1000 << 20), 1 << 30, 900 << 20,
			"--max-held-bytes allows for more than the memory limit: large bodies may end the process"},
		"none": {0, failing(memlimit.ErrNoLimit), 1 << 30, unlimited,
			"no memory limit: neither $GOMEMLIMIT nor the cgroup has one"},
		"no cgroup": {0, failing(memlimit.ErrNoCgroup), 1 << 30, unlimited,
			"no memory limit: neither $GOMEMLIMIT nor the cgroup has one"},
		"unreadable": {0, failing(errors.New("odd")), 1 << 30, unlimited,
			"the memory limit of the cgroup cannot be read: the garbage collector keeps to none"},
		"absurd": {0, memlimit.Limit(math.MaxUint64), 1 << 30, 1 << 62 / 100 * 90,
			"memory limit of the garbage collector"},
		"$GOMEMLIMIT wins": {700 << 20, memlimit.Limit(1000 << 20), 100 << 20, 700 << 20,
			"memory limit of the garbage collector"},
		"$GOMEMLIMIT=off": {unlimited, memlimit.Limit(1000 << 20), 100 << 20, unlimited,
			"no memory limit: $GOMEMLIMIT switches it off"},
	} {
		t.Run(name, func(t *testing.T) {
			before := debug.SetMemoryLimit(cmp.Or(c.env, unlimited))
			t.Cleanup(func() { debug.SetMemoryLimit(before) })
			if t.Setenv("GOMEMLIMIT", ""); c.env > 0 {
				t.Setenv("GOMEMLIMIT", strconv.FormatInt(c.env, 10))
			}
			core, logged := observer.New(zapcore.InfoLevel)
			limitMemory(zap.New(core), c.cgroup, c.held)
			if got := debug.SetMemoryLimit(-1); got != c.want {
				t.Errorf("the limit is %d, want %d", got, c.want)
			}
			if all := logged.All(); len(all) == 0 || all[len(all)-1].Message != c.logged {
				t.Errorf("logged %+v, want %q", all, c.logged)
			}
		})
	}
}

// What comes slowly is collected sooner, and under load collections are no more frequent than the room allows.
func TestRoomFollowsHowFastGarbageComes(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		allocated uint64
		took      time.Duration
		want      uint64
	}{
		"nothing": {0, time.Minute, leastRoom}, "a little": {16 * mib, 10 * time.Second, leastRoom},
		"pods that change": {16 * mib, time.Second, leastRoom}, "more": {16 * mib, time.Second / 2, 32 * mib},
		"load": {16 * mib, 100 * time.Millisecond, gcRoom}, "much load": {gcRoom, 100 * time.Millisecond, gcRoom},
		"less": {gcRoom, 2 * time.Second, 32 * mib}, "at once": {mib, 0, gcRoom},
	} {
		if got := roomFor(c.allocated, c.took); got != c.want {
			t.Errorf("%s: %d MiB, want %d", name, got/mib, c.want/mib)
		}
	}
}

func TestPercentageIsTheRoom(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		live, scanned, room uint64
		want                int
	}{
		"the start": {0, 0, leastRoom, 400}, "a small heap": {2 * mib, mib, gcRoom, 400},
		"slowly": {32 * mib, 4 * mib, leastRoom, 50}, "under load": {32 * mib, 4 * mib, gcRoom, 200},
		"much to scan": {64 * mib, 32 * mib, leastRoom, 50}, "bodies": {256 * mib, 8 * mib, gcRoom, 12},
		"bodies, slowly": {256 * mib, 8 * mib, leastRoom, 6}, "many bodies": {1024 * mib, 8 * mib, gcRoom, 5},
	} {
		if got := percentFor(c.live, c.scanned, c.room); got != c.want {
			t.Errorf("%s: %d %%, want %d", name, got, c.want)
		}
	}
}

func TestMemoryIsGivenBackAfterABurst(t *testing.T) {
	const mib = 1 << 20
	start := time.Unix(0, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	type look struct {
		second              int
		allocated, resident uint64 // MiB
		due                 bool
		left                uint64 // MiB that are resident once memory was given back
	}
	for name, looks := range map[string][]look{
		"a small heap": {{5, 10, 40, false, 0}, {10, 50, 120, false, 0}, {600, 60, 120, false, 0}},
		"after a burst": {{5, 10, 40, false, 0}, {10, 900, 700, false, 0}, {15, 901, 700, true, 50},
			{20, 902, 50, false, 0}},
		"while it lasts": {{5, 500, 500, false, 0}, {10, 1000, 700, false, 0}, {15, 1500, 700, false, 0},
			{20, 1501, 700, true, 50}},
		"what is in use": {{5, 900, 700, false, 0}, {10, 901, 700, true, 690}, {15, 902, 690, false, 0},
			{20, 903, 690, false, 0}, {25, 904, 690, false, 0}, {30, 905, 690, true, 60}},
		"what stays in use": {{5, 1, 700, true, 690}, {25, 2, 690, true, 690}, {60, 3, 690, false, 0},
			{65, 4, 690, true, 690}, {140, 5, 690, false, 0}},
		"a burst beside what stays": {{5, 1, 700, true, 690}, {25, 2, 690, true, 690}, {30, 300, 900, false, 0},
			{35, 301, 900, true, 690}},
	} {
		t.Run(name, func(t *testing.T) {
			idle := idleMemory{repeat: firstRepeat, at: at(-100)}
			for _, l := range looks {
				before := heap{l.allocated * mib, l.resident * mib}
				due := idle.due(at(l.second), before)
				if due != l.due {
					t.Fatalf("at %d s: due %t, want %t", l.second, due, l.due)
				}
				if due {
					idle.gaveBack(at(l.second), before, heap{before.allocated, l.left * mib})
				}
			}
		})
	}
}

func TestHeapIsRead(t *testing.T) {
	before := readHeap()
	block := make([]byte, 100<<20)
	after := readHeap()
	if after.allocated-before.allocated < uint64(len(block)) || after.resident < uint64(len(block)) {
		t.Errorf("after 100 MiB: %+v, before: %+v", after, before)
	}
	runtime.KeepAlive(block)
}
