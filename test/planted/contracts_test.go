package planted

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// contract is a fault in what plugins and configurations rely on, and the package whose tests must find it.
type contract struct {
	fault
	tests string // below the root
	fails string // a test that must fail, or how its name begins
}

// contracts stand where the faults could have been made.
var contracts = map[string]contract{
	"a column keeps the values of candidates that were dropped": {fault{
		file: "engine/schedule/run.go", was: "\tr.own.outdate()\n", is: "",
	}, "engine/schedule", "Test"},
	"the failed fetch of one source is that of all": {fault{
		file: "engine/schedule/view.go", was: "return v.fresh[at]&^v.failing[at]&source != 0",
		is: "return v.failing[at] == 0 && v.fresh[at]&source != 0",
	}, "engine/schedule", "Test"},
	"all sources are as old as the oldest": {fault{
		file: "engine/schedule/view.go", was: "!page.At.IsZero() && p.shown&(2<<i) != 0",
		is: "!page.At.IsZero() && i >= 0",
	}, "engine/schedule", "Test"},
	"a further page never gets old": {fault{
		file: "engine/schedule/view.go", was: "if !now.After(k.more.until[i]) {",
		is: "if !k.more.until[i].IsZero() {",
	}, "engine/schedule", "Test"},
	"an endpoint that takes the place of another keeps its values": {fault{
		file: "engine/schedule/view.go", was: "	v.known[at].more = nil\n	v.resample(at, nil)",
		is: "	v.known[at].more = nil",
	}, "engine/schedule", "TestAUsed"},
	"the next request keeps the endpoints of a subset": {fault{
		file: "engine/schedule/view.go", was: "if !subset.Given {\n\t\tv.snapshot = snap",
		is: "if true {\n\t\tv.snapshot = snap",
	}, "engine/schedule", "TestASubset"},
	"another snapshot is not noticed": {fault{
		file: "engine/schedule/view.go", was: "req.Subset.Given || v.snapshot != snap",
		is: "req.Subset.Given || v.snapshot == nil",
	}, "engine/schedule", "TestAUsed"},
	"unknown is 0": {fault{
		file: "engine/endpoints/values.go", was: "return math.NaN()", is: "return 0 * math.Pi",
	}, "engine/schedule", "Test"},
	"what was screened out comes back in the profiles": {fault{
		file: "engine/schedule/run.go", was: "r.place, r.shared = r.screened, false", is: "r.own.outdate()",
	}, "engine/schedule", "TestScreeners"},
	"plugins share their private slots": {fault{
		file: "engine/schedule/schedule.go", was: "values[p.after-1] = value", is: "values[0] = value",
	}, "engine/schedule", "TestPlugins"},
	"the values of a producer outlive the request": {fault{
		file: "engine/schedule/points.go", was: "[slot][i] = math.NaN()", is: "[slot][i] += math.Trunc(0)",
	}, "engine/schedule", "TestProducers"},
	"sessions do not expire": {fault{
		file: "engine/memory/memory.go", was: "e == nil || e.expired(v.now)", is: "e == nil",
	}, "engine/memory", "TestSessions"},
	"plugins share a table": {fault{
		file: "engine/memory/owned.go", was: "bits.RotateLeft64(xxhash.Sum64String(r.Name()), 29)",
		is: "bits.RotateLeft64(uint64(len(r.Name())), 29)",
	}, "engine/memory", "TestPluginsReachTheirOwnAlone"},
	"a full table forgets what was used last": {fault{
		file: "engine/memory/table.go", was: "at, least := 0, ^uint64(0)", is: "at, least := ways-1, uint64(0)",
	}, "engine/memory", "TestTablesAreBounded"},
	"a reader takes the entry of another key": {fault{
		file: "engine/memory/table.go", was: "e != nil && e.key == key {", is: "e != nil {",
	}, "engine/memory", "TestFindBetweenTwoWrites"},
	"what plugins keep outlives a crash of its owner": {fault{
		file: "actors/memory/memory.go", was: "Context[messages.MemoryMsg]) {\n\ta.tables.Reset()\n",
		is: "Context[messages.MemoryMsg]) {\n",
	}, "actors/memory", "TestCrash"},
	"a check leaves a session": {fault{
		file: "actors/cycle/cycle.go", was: "kept.Len() > 0 && !c.check", is: "kept.Len() > 0",
	}, "actors/cycle", "TestMemoryIsTold"},
	"a session does not follow its request": {fault{
		file: "actors/cycle/cycle.go", was: "\t\tc.keepServed(ctx, where)\n", is: "",
	}, "actors/cycle", "TestMemoryIsTold"},
	"a session stays at an address": {fault{
		file: "engine/sessions/affinity.go", was: "if c.ID() == endpoint &&", is: "if c.ID().Slot == endpoint.Slot &&",
	}, "engine/sessions", "TestASessionLeaves"},
	"a session stays at a server that is ejected": {fault{
		file: "engine/sessions/affinity.go", was: "c.ID() == endpoint && !in.Ejected(i)", is: "c.ID() == endpoint",
	}, "engine/sessions", "TestASessionLeaves"},
	"a session of a header stays at a server that is ejected": {fault{
		file: "engine/sessions/affinity.go", was: "== string(named) && !in.Ejected(i)", is: "== string(named)",
	}, "engine/sessions", "TestASessionOfAHeader"},
	"a probe moves a session": {fault{
		file: "engine/sessions/affinity.go", was: " || p.Probe() {", is: " {",
	}, "engine/sessions", "TestAProbe"},
	"a hit in one profile does not count in another": {fault{
		file: "engine/scorers/no_hit_lru.go", was: "(before || !known)", is: "(before || known || !known)",
	}, "engine/scorers", "TestNoHitLRU"},
	"headers that a plugin set stay for the next request": {fault{
		file: "engine/schedule/points.go", was: "r.screened[:0], nil, Headers{}", is: "r.screened[:0], nil, s.headers",
	}, "engine/schedule", "TestPluginsSetHeaders"},
	"shadow profiles draw from the numbers of picks": {fault{
		file: "engine/schedule/scheduler.go", was: "\ts.shadows.Rand = newShadowRand()\n", is: "",
	}, "engine/schedule", "TestShadowsChangeNothing"},
	"the pick is the last run's": {fault{
		file: "engine/schedule/scheduler.go", was: "primary := p.handler.Primary(&s.course)",
		is: "primary := len(runs) - 1",
	}, "engine/schedule", "Test"},
	"runs and endpoints of stages change places in packed records": {fault{
		file: "engine/records/decision.go", was: "Run: int(u.unsigned()), At: int(u.unsigned())",
		is: "At: int(u.unsigned()), Run: int(u.unsigned())",
	}, "engine/records", "Test"},
	"the runner-up's scores are rounded": {fault{
		file: "engine/records/scores.go", was: "exactRanks = 3", is: "exactRanks = 1",
	}, "engine/records", "Test"},
	"the last rule for a model wins": {fault{
		file: "engine/rewrites/rewrites.go", was: "if t.exact[model] == nil {", is: "if true {",
	}, "engine/rewrites", "Test"},
	"weights of targets do not count": {fault{
		file: "engine/rewrites/rewrites.go", was: "sum += uint64(target.Weight)", is: "_ = target\n\t\tsum++",
	}, "engine/rewrites", "Test"},
	"the length of a rewritten body is not told": {fault{
		file: "adapters/extproc/pick.go", was: `if st.request.spliced && st.request.facts.contentLength > 0 {`,
		is: `if st.request.spliced && st.request.facts.contentLength < 0 {`,
	}, "adapters/extproc", "TestRewrittenBodies"},
	"an unknown objective has the priority of another one": {fault{
		file: "adapters/extproc/headers.go", was: "key.Priority = under.Priorities[records.Label(f.objective.text)]",
		is: "for _, key.Priority = range under.Priorities {\n\t\t}",
	}, "adapters/extproc", "Test"},
	"a client may say which server is to read the prompt": {fault{
		file: "adapters/extproc/headers.go", was: "\t\t\tlist = append(list, name)\n", is: "\t\t\t_ = name\n",
	}, "adapters/extproc", "Test"},
	"responses get the headers of the first destination": {fault{
		file: "adapters/extproc/response.go", was: "a.destinations.At(i) == served {", is: "i == 0 {",
	}, "adapters/extproc", "TestResponseHeaders"},
	"a fetch that an extractor fails is as good as others": {fault{
		file: "adapters/modelserver/extract.go", was: "byThem, err = extractBy(c.page, others); err != nil {",
		is: "byThem, err = extractBy(c.page, others); false {",
	}, "adapters/modelserver", "TestExtractors"},
	"each endpoint reads a document of the whole pool": {fault{
		file: "adapters/modelserver/shared.go", was: "again := of.at.IsZero()", is: "again := true || of.at.IsZero()",
	}, "adapters/modelserver", "TestDocumentOfThePool"},
	"what was read of another configuration's document is shared": {fault{
		file: "adapters/modelserver/shared.go", was: " || !of.by.equal(*p)", is: "",
	}, "adapters/modelserver", "TestDocumentOfThePool"},
	"what was pushed outlives its time": {fault{
		file: "actors/scraper/further.go", was: "if m.Expires > 0 {", is: "if m.Expires < 0 {",
	}, "actors/scraper", "TestPagesAreAsOldAsTheirReading"},
	"what was pushed is stale after three intervals": {fault{
		file: "engine/endpoints/endpoints.go", was: "case !p.Expires.IsZero():\n\t\treturn p.Expires\n", is: "",
	}, "engine/endpoints", "TestFresh"},
	"a document with a mistake is in force": {fault{
		file: "adapters/modelserver/pushed.go", was: "if len(unfit) > 0 {", is: "if len(unfit) > mostProblems {",
	}, "adapters/modelserver", "TestPush"},
	"anybody may push values": {fault{
		file: "adapters/admin/sources.go", was: "return notOurs(r)", is: "return \"\"",
	}, "adapters/admin", "TestPush"},
	"a document of the whole pool is as young as the scrape": {fault{
		file: "actors/scraper/further.go", was: "read := f.began.Add(-m.Age)", is: "read := f.began",
	}, "actors/scraper", "TestPagesAreAsOldAsTheirReading"},
	"config show leaves objectives out": {fault{
		file: "engine/config/show.go", was: "pairOf(\"objectives\", s.objectives()), ", is: "",
	}, "engine/config", "TestShow"},
	"a reader without an emitter is taken": {fault{
		file: "engine/attributes/layout.go", was: "case len(by) == 0 && a.producer != \"\":",
		is: "case len(by) == 0:\n\tcase len(by) == 0 && a.producer != \"\":",
	}, "engine/attributes", "Test"},
}

// contractTables are all tables of such faults.
var contractTables = []map[string]contract{contracts, detectors, door, gate, policies, shown, usageLimits}

func TestContractsFindFaultsInTheSource(t *testing.T) { findAll(t, contracts) }

// findAll has the tests of the product find each fault.
func findAll(t *testing.T, all map[string]contract) {
	t.Helper()
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.found(t)
		})
	}
}

// found runs the tests that must find the fault, until one has.
func (c *contract) found(t *testing.T) {
	t.Helper()
	args := slices.Concat([]string{"-test.failfast", "-test.run=^" + c.fails}, drawn(t, c.tests))
	out, err := c.play(t, c.tests, args...)
	if err == nil {
		t.Fatalf("nobody noticed: -run '^%s' ./%s", c.fails, c.tests)
	}
	if !strings.Contains(out, "--- FAIL: "+c.fails) {
		t.Errorf("-run '^%s' ./%s did not fail at a test: %v\n%s", c.fails, c.tests, err, out)
	}
}

// drawn gives the flags of tests that draw what they do: they draw the same every time, for whether a fault is found is
// not left to chance, and do not look for less that fails too.
func drawn(t *testing.T, folder string) []string {
	t.Helper()
	if !draws(t, folder) {
		return nil
	}
	return []string{"-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=0s"}
}

// draws reports whether tests of a folder draw what they do.
func draws(t *testing.T, folder string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(source), `"pgregory.net/rapid"`)
	})
}
