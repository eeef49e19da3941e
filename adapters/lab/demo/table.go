package demo

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
)

// endpointState is one line of the live table.
type endpointState struct {
	Name, Address, Kind string
	Picks               int
	Running, Waiting    int
	KVUsedRatio         float64
	Queried, Hit        uint64 // prompt tokens
}

// state is a run at one moment.
type state struct {
	Title   string
	Elapsed time.Duration
	Planned int // requests
	tally
	Endpoints                  []endpointState
	Picks                      int
	PickMean, PickP95          time.Duration // P95 is an upper bound, a bucket's; 0 = no pick yet
	TTFTMean, TTFTP50, TTFTP95 time.Duration
}

// tally counts requests: Done, Failed and Cut together are Sent at the end, and never more.
type tally struct {
	Sent, Done, Failed int
	Cut                int // open when time was up
}

// describeTTFT fills in mean and percentiles (nearest rank).
func (s *state) describeTTFT(all []time.Duration) {
	if len(all) == 0 {
		return
	}
	sorted := slices.Sorted(slices.Values(all))
	sum := time.Duration(0)
	for _, d := range sorted {
		sum += d
	}
	s.TTFTMean = sum / time.Duration(len(sorted))
	s.TTFTP50, s.TTFTP95 = percentile(sorted, 0.5), percentile(sorted, 0.95)
}

// percentile is the nearest rank of what is in order; 0 = there is nothing.
func percentile(sorted []time.Duration, part float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(math.Ceil(part*float64(len(sorted))))-1]
}

// hitRatio is the part of prompt tokens that the servers found in their prefix caches, 0 to 1;
// NaN before the first prompt.
func (s *state) hitRatio() float64 {
	var queried, hit uint64
	for _, e := range s.Endpoints {
		queried, hit = queried+e.Queried, hit+e.Hit
	}
	return ratio(hit, queried)
}

func ratio(part, whole uint64) float64 { return float64(part) / float64(whole) }

// view is what a display shows.
type view interface {
	line() string  // without an end of line
	table() string // of whole lines
}

// display shows a run: a table that is drawn over itself on a terminal, else a line now and then.
type display struct {
	out    io.Writer
	live   bool
	width  func() int // of the terminal, columns
	height int        // lines of the table that is on the screen
	every  time.Duration
	last   time.Time
}

const drawEvery = 250 * time.Millisecond

func newDisplay(out io.Writer, plain bool) *display {
	f, isFile := out.(*os.File)
	d := &display{out: out, live: !plain && isFile && term.IsTerminal(int(f.Fd())), every: 2 * time.Second}
	if d.live {
		d.every = drawEvery
		d.width = func() int {
			if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
				return width
			}
			return 80
		}
	}
	return d
}

// show draws what has come to be, if the last time is long enough ago.
func (d *display) show(v view) {
	if time.Since(d.last) < d.every {
		return
	}
	d.last = time.Now()
	if !d.live {
		fmt.Fprintln(d.out, v.line())
		return
	}
	d.draw(v)
}

// end draws the whole table for the last time.
func (d *display) end(v view) {
	d.draw(v)
	fmt.Fprintln(d.out)
	d.height, d.last = 0, time.Time{}
}

func (d *display) draw(v view) {
	text := v.table()
	if d.live {
		text = narrow(text, d.width())
	}
	var b strings.Builder
	if d.live && d.height > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", d.height)
	}
	b.WriteString(text)
	d.height = strings.Count(text, "\n")
	fmt.Fprint(d.out, b.String())
}

// narrow cuts lines that the terminal would wrap, or the next table would not be drawn over all of this one.
func narrow(text string, columns int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		letters := []rune(strings.TrimSuffix(line, "\n"))
		b.WriteString(string(letters[:min(len(letters), columns)]) + "\n")
	}
	return b.String()
}

// line is a run in one line.
func (s *state) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %4.0fs  %d/%d done", s.Title, s.Elapsed.Seconds(), s.Done, s.Planned)
	if s.Failed+s.Cut > 0 {
		fmt.Fprintf(&b, ", %d failed, %d cut", s.Failed, s.Cut)
	}
	fmt.Fprintf(&b, "  TTFT mean %s p95 %s  hits %s  pick %s  queues", short(s.TTFTMean), short(s.TTFTP95),
		percent(s.hitRatio()), short(s.PickMean))
	for _, e := range s.Endpoints {
		fmt.Fprintf(&b, " %s:%d", e.Name, e.Waiting)
	}
	return b.String()
}

// table is a run in full.
func (s *state) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s   %.0f s   %d of %d requests done, %d open, %d failed, %d cut\n", s.Title, s.Elapsed.Seconds(),
		s.Done, s.Planned, s.Sent-s.Done-s.Failed-s.Cut, s.Failed, s.Cut)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  endpoint\taddress\tkind\tpicks\trunning\tqueue\tKV\tprefix hits")
	for _, e := range s.Endpoints {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\n", e.Name, e.Address, e.Kind, e.Picks, e.Running, e.Waiting,
			percent(e.KVUsedRatio), percent(ratio(e.Hit, e.Queried)))
	}
	_ = w.Flush() // into a strings.Builder, which does not fail
	fmt.Fprintf(&b, "  pick mean %s, 95 %% within %s   TTFT mean %s, p50 %s, p95 %s\n",
		short(s.PickMean), short(s.PickP95), short(s.TTFTMean), short(s.TTFTP50), short(s.TTFTP95))
	return b.String()
}

// wantedGain is by which part the default's mean TTFT has to be shorter than that of random picking.
const wantedGain = 0.20

// gain is by which part a's mean TTFT is shorter than b's; negative = longer.
func gain(a, b *state) float64 {
	if b.TTFTMean <= 0 {
		return 0
	}
	return float64(b.TTFTMean-a.TTFTMean) / float64(b.TTFTMean)
}

// compare is two runs side by side.
func compare(a, b *state) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(what, left, right string) { fmt.Fprintf(w, "%s\t%s\t%s\t\n", what, left, right) }
	times := func(what string, left, right time.Duration) { row(what, short(left), short(right)) }
	counts := func(what string, left, right int) { row(what, fmt.Sprint(left), fmt.Sprint(right)) }
	row("", a.Title, b.Title)
	times("TTFT mean", a.TTFTMean, b.TTFTMean)
	times("TTFT p50", a.TTFTP50, b.TTFTP50)
	times("TTFT p95", a.TTFTP95, b.TTFTP95)
	row("prefix hits", percent(a.hitRatio()), percent(b.hitRatio()))
	times("pick mean", a.PickMean, b.PickMean)
	for i, e := range a.Endpoints {
		counts("picks "+e.Name, e.Picks, b.Endpoints[i].Picks)
	}
	counts("requests done", a.Done, b.Done)
	counts("requests failed", a.Failed, b.Failed)
	counts("requests cut", a.Cut, b.Cut)
	times("time", a.Elapsed, b.Elapsed)
	_ = w.Flush() // into a strings.Builder, which does not fail
	return text.String()
}

// percent is a dash for what is no number yet.
func percent(part float64) string {
	if math.IsNaN(part) {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*part)
}

// short has three digits; what was not measured yet is a dash.
func short(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d >= 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 100*time.Millisecond:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	case d >= time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.0f µs", float64(d)/1e3)
}
