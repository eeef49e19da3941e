package scraper

import (
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// The rate of a counter is its increase from page to page; it is unknown at first, and after a reset.
func TestTotalsBecomeRates(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	total := func(name string, n float64) messages.Extracted {
		return messages.Extracted{Attribute: name, Producer: "mine", Value: n, Total: true}
	}
	rate := func(name string, n float64) messages.Extracted {
		return messages.Extracted{Attribute: name, Producer: "mine", Value: n}
	}
	var totals totals
	for i, page := range []struct {
		after time.Duration
		has   []messages.Extracted
		want  []messages.Extracted
	}{
		{0, []messages.Extracted{total("a", 10), rate("watts", 7)}, []messages.Extracted{rate("watts", 7)}},
		{2 * time.Second, []messages.Extracted{total("a", 30), total("b", 1)}, []messages.Extracted{rate("a", 10)}},
		{3 * time.Second, []messages.Extracted{total("a", 30), total("b", 4)},
			[]messages.Extracted{rate("a", 0), rate("b", 3)}},
		{4 * time.Second, []messages.Extracted{total("a", 2), total("b", 5)}, []messages.Extracted{rate("b", 1)}},
		{5 * time.Second, []messages.Extracted{total("a", 3)}, []messages.Extracted{rate("a", 1)}},
		{6 * time.Second, []messages.Extracted{total("b", 9)}, nil}, // it was not on the page before
		{6 * time.Second, []messages.Extracted{total("b", 9)}, nil}, // no time has passed
	} {
		if got := totals.rates(messages.ListOf(page.has...), begin.Add(page.after)); !slices.Equal(got, page.want) {
			t.Errorf("page %d: %+v, want %+v", i, got, page.want)
		}
	}
}
