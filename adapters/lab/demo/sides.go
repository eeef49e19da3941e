package demo

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// flowState is a flow on one side at one moment.
type flowState struct {
	outcome
	P50, P99 time.Duration // of the first tokens
}

// sideState is one side at one moment.
type sideState struct {
	Title                 string
	Line                  int // requests that wait in Signalbox
	Waiting, Running      int // requests in the servers
	MostLine, MostWaiting int // so far
	Flows                 []flowState
	PerSecond             float64 // tokens of the servers' answers while the load lasted
}

// overloadState is both sides at one moment: with flow control, and without.
type overloadState struct {
	Elapsed, Length time.Duration
	Sides           [2]*sideState
}

// share is the flow's part of the tokens of served answers, 0 to 1; NaN = there are none.
func (s *sideState) share(flow int) float64 {
	all := 0
	for _, f := range s.Flows {
		all += f.Tokens
	}
	return ratio(uint64(s.Flows[flow].Tokens), uint64(all))
}

// line has the depths, and how soon the answers of the modest tenant begin.
func (o *overloadState) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%3.0fs", o.Elapsed.Seconds())
	for i, s := range o.Sides {
		if i > 0 {
			b.WriteString("  |")
		}
		fmt.Fprintf(&b, "  %s: %d wait in Signalbox, %d in servers, p99", s.Title, s.Line, s.Waiting)
		for _, at := range []int{0, modestBatch} {
			fmt.Fprintf(&b, " %s %s", flows[at].objective, short(s.Flows[at].P99))
		}
		refused := 0
		for _, f := range s.Flows {
			refused += f.refused()
		}
		fmt.Fprintf(&b, ", %d refused", refused)
	}
	return b.String()
}

// table has both sides beside each other.
func (o *overloadState) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "after %.0f s, of which the load has %.0f s\n", o.Elapsed.Seconds(),
		min(o.Elapsed, o.Length).Seconds())
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\t\t")
	for _, s := range o.Sides {
		fmt.Fprintf(w, "|\t%s\t\t\t\t\t", s.Title)
	}
	fmt.Fprint(w, "\nflow\tsent\t")
	for range o.Sides {
		fmt.Fprint(w, "|\tserved\trefused\tTTFT p50\tp99\ttokens\t")
	}
	fmt.Fprintln(w)
	for i := range flows {
		fmt.Fprintf(w, "%s\t%d\t", flows[i].name(), o.Sides[0].Flows[i].Sent)
		for _, s := range o.Sides {
			f := s.Flows[i]
			fmt.Fprintf(w, "|\t%d\t%d\t%s\t%s\t%s\t", f.Served, f.refused(), short(f.P50), short(f.P99),
				percent(s.share(i)))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // into a strings.Builder, which does not fail
	for _, s := range o.Sides {
		fmt.Fprintf(&b, "%s: %d wait in Signalbox, %d in servers, %d run%s\n", s.Title, s.Line, s.Waiting,
			s.Running, s.reasons())
	}
	return b.String()
}

// reasons says why how many were refused.
func (s *sideState) reasons() string {
	all := map[string]int{}
	for _, f := range s.Flows {
		for reason, n := range f.Refused {
			all[reason] += n
		}
	}
	var b strings.Builder
	for _, reason := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, ", %d %s", all[reason], reason)
	}
	return b.String()
}

// What flow control has to come to.
const (
	wantedChat   = 0.5 // chat's TTFT p99, of that without it, at most
	wantedTokens = 0.9 // tokens a second, of those without it, at least
)

// verdict prints the comparison, and reports whether flow control came to what is wanted.
func (o *overloadState) verdict(out io.Writer) bool {
	fmt.Fprintln(out, o.compare())
	with, without := o.Sides[0], o.Sides[1]
	tokens := with.PerSecond / without.PerSecond
	worst, lost := 0.0, 0
	for i := range chats {
		f := with.Flows[i]
		worst = max(worst, float64(f.P99)/float64(without.Flows[i].P99))
		lost += f.Sent - f.Served
	}
	fmt.Fprintf(out, "With flow control the p99 of chat's first tokens is %.2f of that without, at most %.2f are "+
		"asked for; %d of its requests were not served.\n"+
		"The servers gave %.2f of the tokens, at least %.2f are asked for.\n", worst, wantedChat, lost, tokens,
		wantedTokens)
	return lost == 0 && worst <= wantedChat && tokens >= wantedTokens
}

// compare is both sides with the ratio of one to the other.
func (o *overloadState) compare() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(what, left, right string, ratio float64) {
		fmt.Fprintf(w, "%s\t%s\t%s\t", what, left, right)
		if ratio != 0 {
			fmt.Fprintf(w, "%.2f", ratio)
		}
		fmt.Fprintln(w, "\t")
	}
	with, without := o.Sides[0], o.Sides[1]
	fmt.Fprintf(w, "\t%s\t%s\tratio\t\n", with.Title, without.Title)
	for i := range flows {
		a, b, name := with.Flows[i], without.Flows[i], flows[i].name()
		row(name+" served", fmt.Sprintf("%d of %d", a.Served, a.Sent), fmt.Sprintf("%d of %d", b.Served, b.Sent), 0)
		times := func(what string, a, b time.Duration) {
			ratio := 0.0
			if b > 0 {
				ratio = float64(a) / float64(b)
			}
			row(name+" "+what, short(a), short(b), ratio)
		}
		times("TTFT p50", a.P50, b.P50)
		times("TTFT p99", a.P99, b.P99)
		row(name+" tokens", percent(with.share(i)), percent(without.share(i)), 0)
	}
	counts := func(what string, left, right int) { row(what, fmt.Sprint(left), fmt.Sprint(right), 0) }
	counts("most waiting in Signalbox", with.MostLine, without.MostLine)
	counts("most waiting in servers", with.MostWaiting, without.MostWaiting)
	cut := func(f *flowState) int { return f.Cut }
	failed := func(f *flowState) int { return f.Failed }
	counts("cut", with.sum(cut), without.sum(cut))
	counts("failed", with.sum(failed), without.sum(failed))
	row("tokens a second", fmt.Sprintf("%.0f", with.PerSecond), fmt.Sprintf("%.0f", without.PerSecond),
		with.PerSecond/without.PerSecond)
	_ = w.Flush() // into a strings.Builder, which does not fail
	return text.String()
}

func (s *sideState) sum(of func(*flowState) int) int {
	n := 0
	for i := range s.Flows {
		n += of(&s.Flows[i])
	}
	return n
}
