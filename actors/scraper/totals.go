package scraper

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// totals has the counters of the newest page, of which the next page gives the rates. Rates are per second, and need
// two pages.
type totals struct {
	at     time.Time // when the fetch of that page began
	counts map[counter]float64
}

type counter struct{ attribute, producer string }

// values returns the attributes of a page whose fetch began at that time.
func (t *totals) values(page messages.Reading, began time.Time) endpoints.Values {
	v := endpoints.Values{Numbers: t.rates(page.Numbers, began)}
	for _, e := range page.Names.All() {
		names := e.Names.Append(make([]string, 0, e.Names.Len()))
		v.Lists = append(v.Lists, endpoints.NameList{Attribute: e.Attribute, Producer: e.Producer, Values: names})
	}
	return v
}

// rates returns the numbers of a page whose fetch began at that time, with totals turned into rates. A counter that is
// new, or has been reset, has no rate yet.
func (t *totals) rates(page messages.List[messages.Extracted], began time.Time) []messages.Extracted {
	var all []messages.Extracted
	before, passed := t.counts, began.Sub(t.at).Seconds()
	t.at, t.counts = began, nil
	for _, e := range page.All() {
		if !e.Total {
			all = append(all, e)
			continue
		}
		of := counter{e.Attribute, e.Producer}
		if t.counts == nil {
			t.counts = map[counter]float64{}
		}
		t.counts[of] = e.Value
		if was, known := before[of]; known && e.Value >= was && passed > 0 {
			e.Value, e.Total = (e.Value-was)/passed, false
			all = append(all, e)
		}
	}
	return all
}
