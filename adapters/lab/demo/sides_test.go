package demo

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

// bothSides has one request in each flow, chat's first token after these times, and servers of these speeds.
func bothSides(with, without time.Duration, fast, slow float64) *overloadState {
	o := &overloadState{Elapsed: 9 * time.Second, Length: 5 * time.Second}
	for i, p99 := range []time.Duration{with, without} {
		s := &sideState{Title: []string{"with", "without"}[i], PerSecond: []float64{fast, slow}[i]}
		for range flows {
			s.Flows = append(s.Flows, flowState{outcome: outcome{Sent: 1, Served: 1, Tokens: 10}, P50: p99, P99: p99})
		}
		o.Sides[i] = s
	}
	return o
}

func TestOverloadVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		state  *overloadState
		change func(with, without *sideState)
		want   bool
	}{
		"sooner":          {state: bothSides(10, 100, 100, 100), want: true},
		"just enough":     {state: bothSides(50, 100, 90, 100), want: true},
		"not so soon":     {state: bothSides(51, 100, 100, 100)},
		"fewer tokens":    {state: bothSides(10, 100, 89, 100)},
		"nothing without": {state: bothSides(10, 0, 0, 0)},
		"chat refused":    {bothSides(10, 100, 100, 100), func(with, _ *sideState) { with.Flows[1].Served = 0 }, false},
		"chat refused without": {
			bothSides(10, 100, 100, 100), func(_, without *sideState) { without.Flows[1].Served = 0 }, true,
		},
		"a batch refused": {bothSides(10, 100, 100, 100), func(with, _ *sideState) { with.Flows[3].Served = 0 }, true},
		"the greedy chat waits": {
			bothSides(10, 100, 100, 100), func(with, _ *sideState) { with.Flows[1].P99 = 90 }, false,
		},
		"the greedy batch waits": {
			bothSides(10, 100, 100, 100), func(with, _ *sideState) { with.Flows[3].P99 = 900 }, true,
		},
	} {
		if c.change != nil {
			c.change(c.state.Sides[0], c.state.Sides[1])
		}
		if got := c.state.verdict(io.Discard); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestSidesStandBesideEachOther(t *testing.T) {
	o := bothSides(20*time.Millisecond, 3*time.Second, 0, 0)
	o.Sides[0].Line, o.Sides[0].Waiting, o.Sides[1].Waiting, o.Sides[1].Running = 30, 2, 40, 8
	greedy := &o.Sides[0].Flows[3]
	greedy.Sent, greedy.Refused = 8, map[string]int{"rejected-saturated": 5, "evicted-queue-pressure": 2}
	greedy.Tokens = 0
	var b bytes.Buffer
	d := newDisplay(&b, false) // a buffer is no terminal
	d.show(o)
	for _, want := range []string{"  9s", "with: 30 wait in Signalbox, 2 in servers, p99 chat 20.0 ms", "7 refused  |",
		"without: 0 wait in Signalbox, 40 in servers, p99 chat 3.00 s"} {
		if !strings.Contains(b.String(), want) || strings.Count(b.String(), "\n") != 1 {
			t.Errorf("plain: got %q, want one line with %q", b.String(), want)
		}
	}
	b.Reset()
	d.end(o)
	fields := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"after 9 s, of which the load has 5 s", "greedy batch 8 | 1 7 20.0 ms 20.0 ms 0 % | 1 0 3.00 s 3.00 s 25 %",
		"modest chat 1 | 1 0 20.0 ms 20.0 ms 33 % |", "without: 0 wait in Signalbox, 40 in servers, 8 run",
		"2 in servers, 0 run, 2 evicted-queue-pressure, 5 rejected-saturated",
	} {
		if !strings.Contains(fields, want) {
			t.Errorf("table: got\n%s\nwant %q in it", b.String(), want)
		}
	}
	if got := strings.Join(strings.Fields(o.compare()), " "); !strings.Contains(got,
		"modest chat TTFT p99 20.0 ms 3.00 s 0.01") || !strings.Contains(got, "greedy batch served 1 of 8 1 of 1") {
		t.Errorf("comparison:\n%s", o.compare())
	}
}
