package demo

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

func TestDescribeTTFT(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, ms(100-i))
	}
	for name, c := range map[string]struct {
		all            []time.Duration
		mean, p50, p95 time.Duration
	}{
		"none":    {nil, 0, 0, 0},
		"one":     {[]time.Duration{ms(3)}, ms(3), ms(3), ms(3)},
		"two":     {[]time.Duration{ms(3), ms(1)}, ms(2), ms(1), ms(3)},
		"hundred": {hundred, 50500 * time.Microsecond, ms(50), ms(95)},
	} {
		var s state
		s.describeTTFT(c.all)
		if s.TTFTMean != c.mean || s.TTFTP50 != c.p50 || s.TTFTP95 != c.p95 {
			t.Errorf("%s: got %s, %s, %s, want %s, %s, %s", name, s.TTFTMean, s.TTFTP50, s.TTFTP95, c.mean, c.p50,
				c.p95)
		}
	}
}

func TestVerdict(t *testing.T) {
	of := func(mean time.Duration, failed int) *state {
		return &state{Title: "x", TTFTMean: mean, tally: tally{Failed: failed}}
	}
	for name, c := range map[string]struct {
		standard, random *state
		want             bool
	}{
		"half":                     {of(50, 0), of(100, 0), true},
		"just enough":              {of(80, 0), of(100, 0), true},
		"not enough":               {of(81, 0), of(100, 0), false},
		"worse":                    {of(120, 0), of(100, 0), false},
		"nothing was measured":     {of(0, 0), of(0, 0), false},
		"better, but one failed":   {of(50, 1), of(100, 0), false},
		"better, and random fails": {of(50, 0), of(100, 3), true},
	} {
		if got := verdict(io.Discard, c.standard, c.random); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestDisplayDrawsOverItself(t *testing.T) {
	s := &state{Title: "default", Planned: 9, tally: tally{Sent: 8, Done: 5, Failed: 1}, Endpoints: []endpointState{
		{Name: "one", Address: "127.0.0.1:1", Kind: "1 tok/s", Picks: 4, Waiting: 2, KVUsedRatio: 0.5, Queried: 10,
			Hit: 3},
	}}
	var b bytes.Buffer
	d := &display{out: &b, live: true, width: func() int { return 70 }}
	d.show(s)
	first := b.String()
	for _, want := range []string{"5 of 9 requests done, 2 open, 1 failed, 0 cut", "127.0.0.1:1", "50 %"} {
		if !strings.Contains(first, want) {
			t.Errorf("table: got\n%s\nwant %q in it", first, want)
		}
	}
	for row := range strings.Lines(first) {
		if n := len([]rune(row)) - 1; n > 70 {
			t.Errorf("%q has %d columns, the terminal 70", row, n)
		}
	}
	b.Reset()
	d.show(s)
	if want := "\x1b[4A\r\x1b[J" + first; b.String() != want {
		t.Errorf("second table: got %q, want %q", b.String(), want)
	}
	b.Reset()
	plain := newDisplay(&b, false) // a buffer is no terminal
	plain.show(s)
	plain.show(s)
	if got := b.String(); strings.Count(got, "\n") != 1 || strings.Contains(got, "\x1b") {
		t.Errorf("plain: got %q, want one line without escapes", got)
	}
}

func TestWhatIsNotMeasuredIsADash(t *testing.T) {
	if got := (&state{Title: "x"}).line(); !strings.Contains(got, "TTFT mean - p95 -  hits -  pick -") {
		t.Errorf("got %q", got)
	}
}
