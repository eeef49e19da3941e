package planted

import (
	"os/exec"
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
		file: "engine/schedule/run.go", was: "\t\tr.own.outdate()\n", is: "",
	}, "engine/schedule", "Test"},
	"the failed fetch of one source is that of all": {fault{
		file: "engine/schedule/freshness.go", was: "return r.view.fresh[at]&^r.view.failing[at]&source != 0",
		is: "return r.view.failing[at] == 0 && r.view.fresh[at]&source != 0",
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
		file: "engine/schedule/points.go", was: "values[p.after-1] = value", is: "values[0] = value",
	}, "engine/schedule", "TestPlugins"},
	"the values of a producer outlive the request": {fault{
		file: "engine/schedule/points.go", was: "[slot][i] = math.NaN()", is: "[slot][i] += math.Trunc(0)",
	}, "engine/schedule", "TestProducers"},
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
		file: "adapters/extproc/pick.go", was: "if st.request.rewritten && st.request.facts.contentLength > 0 {",
		is: "if st.request.rewritten && st.request.facts.contentLength < 0 {",
	}, "adapters/extproc", "TestRewrittenBodies"},
	"an unknown objective has the priority of another one": {fault{
		file: "adapters/extproc/headers.go", was: "key.Priority = priorities[records.Label(f.objective.text)]",
		is: "for _, key.Priority = range priorities {\n\t\t}",
	}, "adapters/extproc", "Test"},
	"a client may say which server is to read the prompt": {fault{
		file: "adapters/extproc/headers.go", was: "\t\t\tlist = append(list, name)\n", is: "\t\t\t_ = name\n",
	}, "adapters/extproc", "Test"},
	"responses get the headers of the first destination": {fault{
		file: "adapters/extproc/response.go", was: "a.destinations.At(i) == served {", is: "i == 0 {",
	}, "adapters/extproc", "TestResponseHeaders"},
	"a fetch that an extractor fails is as good as others": {fault{
		file: "adapters/modelserver/extract.go", was: "byThem, err = extractBy(page, others); err != nil {",
		is: "byThem, err = extractBy(page, others); false {",
	}, "adapters/modelserver", "TestExtractors"},
	"config show leaves objectives out": {fault{
		file: "engine/config/show.go", was: "pairOf(\"objectives\", s.objectives()), ", is: "",
	}, "engine/config", "TestShow"},
	"a reader without an emitter is taken": {fault{
		file: "engine/attributes/attributes.go", was: "case len(by) == 0 && a.producer != \"\":",
		is: "case len(by) == 0:\n\tcase len(by) == 0 && a.producer != \"\":",
	}, "engine/attributes", "Test"},
}

func TestContractsFindFaultsInTheSource(t *testing.T) {
	for name, c := range contracts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overlay, err := c.overlay(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("go", "test", "-vet=off", "-overlay", overlay, "-run", "^"+c.fails, "./"+c.tests)
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("%v: nobody noticed", cmd.Args)
			}
			if !strings.Contains(string(out), "--- FAIL: "+c.fails) {
				t.Errorf("%v did not fail at a test: %v\n%s", cmd.Args, err, out)
			}
		})
	}
}
