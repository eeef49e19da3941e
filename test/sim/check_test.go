package sim_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// answered checks that each request got exactly one answer, or that no client waited for one.
func (w *world) answered(lines []*line) {
	w.Helper()
	for _, l := range lines {
		var fault string
		switch {
		case l.faulty != "":
			fault = l.faulty
		case l.partial && (l.begun > 0 || l.reports > 1):
			fault = "it was refused before it was whole, and yet a cycle began, or it was reported twice"
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
		case l.begun > 1 || l.ends != l.begun || l.reports != l.begun && !l.partial:
			fault = "the cycle did not begin, end and report once"
		case l.told != l.picked:
			fault = "a plugin was not told once of the end of a request that was picked for, or was of another one"
		case !l.refused && !l.excused && l.begun == 0:
			fault = "no cycle began"
		case l.expect != messages.NoReason && l.picked > 0:
			fault = "it was picked for by a plugin that failed"
		case l.expect != messages.NoReason && l.failed > 0 && l.reason != l.expect && l.reason != messages.NoEndpoints:
			fault = "a plugin failed, and its client was told something else"
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
		if l := e.Counters(); l != (endpoints.Counters{}) {
			w.Errorf("endpoint %v: load %d, tokens %d, since %d, want none", id, l.Inflight, l.Tokens, l.Since)
		}
	}
}

func byGeneration(a, b messages.EndpointID) int { return int(a.Generation) - int(b.Generation) }

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

// wired checks that what seldom matters to a request has come at least once where it belongs.
func (w *world) wired() {
	w.Helper()
	partial, reported := 0, 0
	for _, l := range w.ledger.lines {
		partial += one(l.partial)
		reported += one(l.partial && l.reports > 0)
	}
	if partial > 5 && reported == 0 {
		w.Errorf("%d requests left before they were whole, and none was reported", partial)
	}
	if e := w.ledger.entries; e.told > 20 && e.met == 0 {
		w.Errorf("proxies told of %d ends, and no cycle heard of one", e.told)
	}
	if w.announced == 0 {
		w.Errorf("the proxies were never told of endpoints")
	}
	told := w.counted("signalbox_endpoint_failures_total", messages.ScrapeFailed.String())
	if n := w.ledger.drawn[fetchFailed]; n > 20 && told == 0 {
		w.Errorf("%d pages failed, and the outlier actor was told of none", n)
	}
}

// long is how many requests a run has in which all that is seldom has come often.
const long = 3000

// seldom checks, in a long run, that every shard was told all that shards are told, and that what happens now and
// then did.
func (w *world) seldom() {
	w.Helper()
	if len(w.ledger.lines) < long {
		return
	}
	for _, message := range received()["shard"] {
		for shard, heard := range w.ledger.heard {
			if heard[message] == 0 {
				w.Errorf("shard %d was never told %s", shard, message)
			}
		}
	}
	if w.model.splits == 0 {
		w.Errorf("%d requests, and none had a stage", len(w.ledger.lines))
	}
	for metric, of := range map[string]struct{ label, complaint string }{
		"signalbox_endpoint_ejections_total": {"", "no endpoint was ever ejected"},
		"llm_d_epp_prefix_indexer_hit_bytes": {"", "no endpoint was ever known to hold a prompt"},
		"signalbox_fetches_total":            {"models-data-source", "no list of models was ever asked for"},
	} {
		if w.counted(metric, of.label) == 0 {
			w.Errorf("%d requests, and %s", len(w.ledger.lines), of.complaint)
		}
	}
}

// counted is the sum of a counter or a histogram over the series with a label of this value; "" = over all.
func (w *world) counted(name, label string) (sum float64) {
	w.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.Fatal(err)
	}
	has := func(l *dto.LabelPair) bool { return label == "" || l.GetValue() == label }
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && slices.ContainsFunc(m.GetLabel(), has) {
				sum += m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
			}
		}
	}
	return sum
}

// served is how many requests were picked for.
func (w *world) served() (n int) {
	for _, l := range w.ledger.lines {
		n += l.picked
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
		w.ledger.drawn[overtaking] += int(runtimetest.Inspect(w.sys).Overtakes(i))
	}
	restarts, drawn := 0, 0
	for _, actor := range restarting {
		restarts += w.ledger.drawn[restartOf(actor)]
	}
	for _, n := range w.ledger.drawn {
		drawn += n
	}
	return fmt.Sprintf("%d requests: %d picked, %d failed %v, %d refused at the door, %d left unanswered, %d late, "+
		"%d revoked; "+
		"%d faults of %d kinds; panics %v, %d restarts; %d incarnations of endpoints; %d queries; %d messages, %d "+
		"out of turn, in %v",
		len(w.ledger.lines), picked, failed, sorted(reasons), refused, gone, late, revoked, drawn, len(w.ledger.drawn),
		sorted(w.ledger.panics), restarts, len(w.ledger.endpoints), len(w.ledger.queries), steps,
		w.ledger.drawn[overtaking],
		w.sys.Now().Sub(start))
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
