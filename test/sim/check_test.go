package sim_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/signalbox-epp/signalbox/messages"
)

// answered checks that each request got exactly one answer, or nobody waited for one.
func (w *world) answered(lines []*line) {
	w.Helper()
	for _, l := range lines {
		var fault string
		switch {
		case l.faulty != "":
			fault = l.faulty
		case l.answers() > 1:
			fault = "more than one answer"
		case l.revoked > 1:
			fault = "revoked twice"
		case l.refused && l.answers()+l.begun > 0:
			fault = "refused at the door, and yet a cycle began"
		case !l.refused && !l.gone:
			fault = "the stream never ended"
		case l.late && !l.excused:
			fault = "the stream's own deadline passed"
		case l.begun > 1 || l.ends != l.begun || l.reports != l.begun:
			fault = "the cycle did not begin, end and report once"
		case !l.refused && !l.excused && l.begun == 0:
			fault = "no cycle began"
		}
		if fault != "" {
			w.Errorf("request %d: %s: %+v", l.id, fault, *l)
		}
	}
}

// unloaded checks that nothing holds anything of a request.
func (w *world) unloaded() {
	w.Helper()
	for _, id := range slices.SortedFunc(maps.Keys(w.ledger.endpoints), byGeneration) {
		e := w.ledger.endpoints[id]
		if l := e.Load(); l.Inflight() != 0 || l.Tokens() != 0 || l.Since() != 0 {
			w.Errorf("endpoint %v: load %d, tokens %d, since %d, want none", id, l.Inflight(), l.Tokens(), l.Since())
		}
	}
	for i, b := range w.books {
		if b.Live() != 0 {
			w.Errorf("book %d: %d cycles live, want none", i, b.Live())
		}
	}
	for _, name := range []string{
		"signalbox_flow_places", "llm_d_epp_request_running", "signalbox_prefix_placed_prompts",
	} {
		w.zero(name)
	}
}

func byGeneration(a, b messages.EndpointID) int { return int(a.Generation) - int(b.Generation) }

// zero checks a gauge with all its labels.
func (w *world) zero(name string) {
	w.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.Fatal(err)
	}
	found := false
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			found = true
			if v := m.GetGauge().GetValue(); v != 0 {
				w.Errorf("%s%v = %v, want 0", name, m.GetLabel(), v)
			}
		}
	}
	if !found && slices.ContainsFunc(w.ledger.lines, func(l *line) bool { return l.picked > 0 }) {
		w.Errorf("there is no metric %s", name)
	}
}

// scraped checks that each endpoint of the pool has one scraper, and nothing else has.
func (w *world) scraped() {
	w.Helper()
	set := w.pool.Snapshot().Endpoints
	for _, e := range set {
		if n := w.ledger.scrapers[e.ID]; n != 1 {
			w.Errorf("endpoint %v has %d scrapers, want 1", e.ID, n)
		}
	}
	if n := w.ledger.live(); n != len(set) {
		w.Errorf("%d scrapers live, want %d", n, len(set))
	}
	if w.ledger.most > 1 {
		w.Errorf("%d scrapers of one endpoint at once", w.ledger.most)
	}
	if len(w.ledger.reused) > 0 {
		w.Errorf("endpoint ids given out twice: %v", w.ledger.reused)
	}
}

// varied checks that the run met what it is about: a run without faults proves nothing.
func (w *world) varied() {
	w.Helper()
	met := map[string]int{"plugin fault": w.ledger.plugins, "server restart": w.farm.reborn, "change of the set": w.other.changes}
	met["score that is no number"], met["score out of range"], met["plan on stale samples"] = w.observed.nan, w.observed.clamped, w.observed.stale
	for name := range rates {
		met["panic of "+name] = w.ledger.panics[name]
	}
	served := 0
	for _, l := range w.ledger.lines {
		met["refusal at the door"] += one(l.refused)
		met["client that left unanswered"] += one(l.gone && l.answers() == 0 && !l.late)
		met["answer of the stream itself"] += one(l.late)
		met["revocation"] += l.revoked
		met["refusal"] += l.failed
		served += l.picked
	}
	for what, n := range met {
		if n == 0 {
			w.Errorf("the run met no %s", what)
		}
	}
	if 2*served < len(w.ledger.lines) {
		w.Errorf("%d of %d requests were picked for, want half at least", served, len(w.ledger.lines))
	}
}

func (w *world) timers() int {
	n := 0
	for i := range loops {
		n += w.sys.Timers(i)
	}
	return n
}

// summary is all that is counted of a run, in a fixed order.
func (w *world) summary() string {
	var picked, failed, refused, gone, late, revoked, unanswered int
	reasons := map[string]int{}
	for _, l := range w.ledger.lines {
		picked += l.picked
		failed += l.failed
		revoked += l.revoked
		refused += one(l.refused)
		gone += one(l.gone && l.answers() == 0)
		late += one(l.late)
		unanswered += one(!l.refused && l.answers() == 0)
		if l.failed > 0 {
			reasons[l.reason.String()]++
		}
	}
	var steps uint64
	for i := range loops {
		steps += w.sys.Stats(i).Messages
	}
	return fmt.Sprintf("%d requests: %d picked, %d failed %v, %d refused at the door, %d left unanswered, %d late, %d revoked; "+
		"panics %v, %d plugin faults, %d scores NaN, %d out of range, %d plans on stale samples; %d endpoints in %d changes, %d server restarts; "+
		"%d queries; %d messages in %v",
		len(w.ledger.lines), picked, failed, sorted(reasons), refused, gone, late, revoked, sorted(w.ledger.panics), w.ledger.plugins,
		w.observed.nan, w.observed.clamped, w.observed.stale, len(w.ledger.endpoints), w.other.changes, w.farm.reborn,
		len(w.ledger.queries), steps, w.sys.Now().Sub(start))
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

func sorted(m map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s:%d", k, m[k]))
	}
	return "[" + strings.Join(parts, " ") + "]"
}
