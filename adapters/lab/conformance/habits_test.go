package conformance

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// habitual is a fault that shows in no answer.
type habitual struct {
	check  int
	mode   string
	habits habits
	reason string // what the verdict must hold
}

var habitFaults = map[string]habitual{
	"load stays after half a body": {10, stream, habits{keepsLoad: true}, "load is given back"},
	"half a body counts as served": {10, fds, habits{countsAll: true}, "counted as served"},
	"load stays after a reset":     {11, stream, habits{keepsLoad: true}, "load is given back"},
	"a reset counts as served":     {11, fds, habits{countsAll: true}, "counted as served"},
	"place in queue stays":         {12, fds, habits{keepsPlace: true}, "place is given up"},
	"a late reset is an abort":     {13, fds, habits{countsNone: true}, "want served"},
	"no response, but served":      {15, fds, habits{countsAll: true}, "counted as served"},
	"no response: load stays":      {15, buffers, habits{keepsLoad: true}, "load is given back"},
	"counted twice":                {19, fds, habits{countsTwice: true}, "counted 2 times"},
	"who served is not read":       {54, fds, habits{deaf: true}, "carries the load"},
	"stranger: the pick's load":    {55, fds, habits{keepsLoad: true}, "load is given back"},
	"bodies stay held":             {34, fds, habits{holdsOn: true}, "no body is held"},
	"bodies are held three times":  {34, fds, habits{holdsMore: true}, "were held for a body"},
	"one lock for all streams":     {61, fds, habits{oneLock: true}, "beside slow readers"},
	"takes what nobody reads":      {61, fds, habits{hoards: true}, "that nobody reads"},
	"takes all, STREAMED":          {61, stream, habits{hoards: true}, "that nobody reads"},
	"takes all, GRPC":              {61, "GRPC", habits{hoards: true}, "that nobody reads"},
	"the end is not told":          {62, fds, habits{mute: true}, "before it heard NOT_SERVING"},
	"the end cuts streams":         {62, fds, habits{cuts: true}, ""},
	"a service is not known":       {64, fds, habits{unnamed: "liveness"}, "liveness"},
	"health stays SERVING":         {64, fds, habits{mute: true}, "before it heard NOT_SERVING"},
	"a stream outlives its time":   {63, fds, habits{keepsStream: true}, "closes its stream"},
	"a deadline leaves load":       {63, stream, habits{keepsLoad: true}, "load is given back"},
}

var allFaults = []map[string]planted{requestFaults, responseFaults, modeFaults, contentFaults, headerFaults, pickFaults}

// TestPlantedFaultsAreCaught plays, for each fault, the check that is meant for it.
func TestPlantedFaultsAreCaught(t *testing.T) {
	for _, part := range allFaults {
		for name, p := range part {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p.caught(t, habits{})
			})
		}
	}
}

func (p planted) caught(t *testing.T, h habits) {
	t.Helper()
	const late = "no answer within"
	r := p.plays(t, h, 700*time.Millisecond)
	if strings.Contains(r.Reason, late) && !strings.Contains(p.reason, late) {
		r = p.plays(t, h, 20*time.Second) // it is the EPP that must be slow, not the machine
	}
	if r.Outcome != Failed || !strings.Contains(r.Reason, p.reason) {
		t.Errorf("got %s; want it to fail with %q", r.Line(), p.reason)
	}
}

func (p planted) plays(t *testing.T, h habits, patience time.Duration) Result {
	t.Helper()
	o := scripted(t, p.fault, h)
	o.Modes, o.Checks, o.Patience = []string{p.mode}, []int{p.check}, patience
	switch p.check { // which need more than an answer at a time
	case 36:
		o.BodyWait = 3 * hasty
	case 38, 61:
		o.Patience = 20 * time.Second
	}
	results, err := Run(context.Background(), o)
	if err != nil || len(results) != 1 {
		t.Fatalf("%d results, %v; want one", len(results), err)
	}
	return results[0]
}

// TestPlantedHabitsAreCaught plays, for each fault that no answer shows, the check that is meant for it.
func TestPlantedHabitsAreCaught(t *testing.T) {
	for name, p := range habitFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planted{p.check, p.mode, nil, p.reason}.caught(t, p.habits)
		})
	}
}

// What stays in memory shows only while nothing else runs in this process.
func TestKeptBodiesAreCaught(t *testing.T) {
	o := scripted(t, nil, habits{keepsCopies: true})
	o.Modes, o.Checks, o.Patience, o.Inside.Heap = []string{fds}, []int{34}, time.Minute, heapInUse
	results, err := Run(t.Context(), o)
	if err != nil || len(results) != 1 || !strings.Contains(results[0].Reason, "memory is given back") {
		t.Errorf("got %v, %v; want row 34 to fail", results, err)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // pools let go of what they keep only at the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestEveryRowHasAPlantedFault keeps the table honest: a check that was never seen to fail is none.
func TestEveryRowHasAPlantedFault(t *testing.T) {
	var checks []int
	for _, part := range allFaults {
		for _, p := range part {
			checks = append(checks, p.check)
		}
	}
	for _, p := range habitFaults {
		checks = append(checks, p.check)
	}
	for _, c := range Table() {
		if !slices.Contains(checks, c.Number) {
			t.Errorf("row %d (%s) has no planted fault", c.Number, c.Name)
		}
	}
}

// A row is not played where the EPP cannot be looked at, or is not of the kind that it needs; it says so,
// and never passes.
func TestWithoutALookInsideRowsAreNotRun(t *testing.T) {
	o := scripted(t, nil, habits{})
	o.Inside, o.Health, o.Narrow, o.Modes = Inside{}, nil, nil, []string{fds}
	o.Checks = []int{11, 12, 13, 15, 52, 53, 54, 61, 62, 63, 64}
	results, err := Run(t.Context(), o)
	if err != nil || len(results) != len(o.Checks) {
		t.Fatalf("%d results, %v; want %d", len(results), err, len(o.Checks))
	}
	for _, r := range results {
		if r.Outcome != NotRun {
			t.Errorf("got %s; want it not run", r.Line())
		}
	}
}
