package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const differences = "../../deploy/docs/differences.md"

// deploy/docs/differences.md names every plugin type of the reference that Load refuses, with the reason, and how the
// types and parameters that are there differ.
func TestDifferencesNameEveryRefusedPlugin(t *testing.T) {
	text, err := os.ReadFile(differences)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), "- Plugin types that are refused by name:\n")
	got, after, end := strings.Cut(rest, "\n\n")
	if !ok || !end {
		t.Fatal("differences.md has no list of refused plugin types")
	}
	want := strings.Join(append([]string{refusedTypes(t), ownTypesItem()}, differingParameters(t)...), "\n")
	if *update {
		text := before + "- Plugin types that are refused by name:\n" + want + "\n\n" + after
		if err := os.WriteFile(differences, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		got = want
	}
	if got != want {
		t.Errorf("differences.md is out of date; run: go generate ./engine/config\ngot\n%s\nwant\n%s", got, want)
	}
}

// knownErrors are those of the reference that Signalbox does not have, in the order in which its weaknesses are known:
// what the list of differences says of each, and the test that would fail with such an error, with a row of it where it
// has many. What Signalbox shares with the reference is no difference, and stands nowhere: tokens are estimated at 4
// bytes, limits hold for each replica, a picker has one pool, and the status of objects is not written. Of KV events,
// which Signalbox does not read, there are no errors here either.
var knownErrors = []struct{ what, says, shown string }{
	{"bodies are copied as they grow", "in one buffer, of the length that the proxy tells",
		"adapters/extproc/held_test.go TestToldLengthIsHeldAtOnce"},
	{"bodies are decoded and written anew", "Signalbox replaces the model in place.",
		"adapters/extproc/rewrite_test.go TestRewrittenBodies"},
	{"order, spaces and HTML of bodies change", "which changes the order of keys and escapes",
		"adapters/parsers/rename_test.go TestRename/spaces, order and numbers stay"},
	{"numbers above 2^53, which is outdated", "numbers above 2^53 survive that by now",
		"adapters/parsers/rename_test.go TestRename/spaces, order and numbers stay"},
	{"answers are held", "holds a response that is not streamed until its end",
		"test/reference/http_test.go TestHTTPResponses/A16 JSON in two"},
	{"each chunk of an answer passes", "If the response body mode is NONE, Signalbox ends the stream",
		"actors/cycle/detached_test.go TestResponseOutlivesItsStream"},
	{"usage of events that are cut", "also of events that are cut between frames",
		"test/reference/units_test.go TestUsageOfStreams/an event in pieces"},
	{"usage of lines without a space", "and of lines `data:` without a space",
		"test/reference/units_test.go TestUsageOfStreams/no space"},
	{"names in answers are replaced anywhere", "The reference replaces `\"model\":\"…\"` wherever it stands",
		"adapters/parsers/modelname/modelname_test.go TestRestorer/nothing deeper"},
	{"the header status", "The status of a response is taken from `:status`.",
		"adapters/extproc/scan_test.go TestStatusIsTheProxys/an error"},
	{"refusals are plain text", "The reference's refusals are plain text",
		"adapters/extproc/refuse_test.go TestRefusals"},
	{"clients of gRPC get errors of HTTP", "A client of gRPC gets headers alone",
		"adapters/extproc/refuse_test.go TestRefusalsOfCalls"},
	{"admitters answer 500", "`probabilistic-admitter` answers 429 with `retry-after`",
		"engine/schedule/points_test.go TestPluginsRefuseRequests/D87 not admitted"},
	{"filters answer 429", "The reference answers 429 if filters removed them.",
		"test/reference/units_test.go TestFiltersThatLeaveNone/D93 filtered away"},
	{"requests without a body", "The reference picks at random from the whole pool",
		"test/reference/units_test.go TestRequestsWithoutABody"},
	{"all headers are sent again", "does not write back headers of the client or the model server",
		"adapters/extproc/headers_test.go TestForeignHeaders"},
	{"a constant header", "adds no `x-went-into-resp-headers` to responses",
		"adapters/extproc/headers_test.go TestForeignHeaders"},
	{"allocations of a pick", "allocates nothing for any of them",
		"engine/schedule/pick_bench_test.go TestAllocationsOfThirtyPluginsDoNotGrowWithEndpoints"},
	{"goroutines of a request", "starts no goroutine", "adapters/extproc/race_test.go TestStreamHasOneGoroutine"},
	{"locks of a pick", "takes no lock that all requests share", "test/lint/lint_test.go TestPlanted"},
	{"all flows are looked at", "Which flow is next is known without a look at all of them",
		"engine/flow/next_test.go TestDecisionsAskAboutFewFlows"},
	{"computing while idle", "once a millisecond, also while it is idle",
		"actors/capacity/capacity_test.go TestEmptyLineIsIdle"},
	{"one dispatch a turn", "Room is given away when it is made",
		"actors/capacity/room_test.go TestNoRequestWaitsWhileThereIsRoomForIt"},
	{"the mean of the pool blocks", "a full server of a subset does not block the pool",
		"engine/flow/class_test.go TestClassWithoutRoomIsPassedOver"},
	{"bursts between two pages", "it bounds the queue of each server also between two pages",
		"engine/detectors/detectors_test.go TestUtilizationCountsPicksForRoom"},
	{"nothing makes way", "a request of higher priority takes the place of one of the lowest",
		"engine/flow/queues_test.go TestWhatMakesWay"},
	{"flows without bound", "A band tells 1 000 fairness ids apart, the reference any number.",
		"engine/flow/queues_test.go TestManyFlowsShareOne"},
	{"flows as labels without bound", "`inflight_requests` and `inflight_tokens` are not split by flow",
		"actors/cycle/labels_test.go TestManyFlowsAreFewSeries"},
	{"programs as labels", "does not have `program_aware_*`",
		"cmd/signalbox/app/reference_metrics_test.go TestEachMetricOfTheReferenceIsThereOrNamed"},
	{"bodies without bound", "`--max-body-bytes` (32 MiB) limits the body of a request.",
		"adapters/extproc/held_test.go TestHeldBodiesAreBounded"},
	{"an index without bound", "the index holds 31 250 of them per endpoint",
		"engine/blockindex/index_test.go TestMemoryOfFullEndpoints"},
	{"state by the client's id", "so that requests with the same id mix",
		"adapters/extproc/ids_test.go TestRequestsWithOneIDAreTwo"},
	{"informers' objects are changed", "Objects of Kubernetes are never changed.",
		"adapters/discovery/kube/extras_test.go TestExtrasThatMakeNoSense"},
	{"plugins write where others read", "plugins cannot reach undeclared data",
		"engine/schedule/points_test.go TestPluginsCannotChangeWhatTheyAreShown"},
	{"scraping 20 times a second", "The reference scrapes every 50 ms.",
		"actors/scraper/schedule_test.go TestIntervalIsWhatThePageCosts"},
	{"scraping for nobody", "A page that no plugin reads is not asked for.",
		"cmd/signalbox/app/modelservers_test.go TestPagesThatNoPluginReadsAreNotAskedFor"},
	{"each metric under two names", "does not have the deprecated families",
		"cmd/signalbox/app/metrics_test.go TestMetricsHaveTheReferencesNames"},
	{"profiling by default", "does not change the sampling rates of the mutex and block profiles",
		"cmd/signalbox/app/metricsport_test.go TestProfilesTakeNoSamples"},
	{"the order of plugins changes", "may differ from start to start",
		"engine/config/load_test.go TestLoad/profile in order of file"},
	{"a source by name, which is outdated", "goes by the type now",
		"test/reference/config_test.go TestConfigurations/a source of another name"},
	{"a capacity that is fixed at first", "the largest of a file holds",
		"engine/blockindex/index_test.go TestResize"},
	{"the index after a restart", "A prefix index that follows caches is audited",
		"actors/prefix/audit_test.go TestLostCacheIsNoticedWithin20Answers"},
	{"a limit of time for each request", "`x-llm-d-inference-ttl`",
		"adapters/extproc/limits_test.go TestClientLimits"},
	{"one destination", "A picker returns up to three endpoints", "engine/pickers/pickers_test.go TestDestinations"},
	{"compressed messages", "so are compressed messages, which the reference refuses",
		"adapters/parsers/grpc_test.go TestFormatsOfCalls/compressed"},
	{"sessions by cookie", "A cookie is found by name in every line.",
		"engine/points/points_test.go TestSessionsAreFound/cookie"},
	{"IPv6 in files", "`file-discovery` also accepts IPv6 addresses",
		"adapters/discovery/parse_test.go TestFilesThatAreGood/IPv6"},
}

func TestDifferencesNameKnownErrors(t *testing.T) {
	text, err := os.ReadFile(differences)
	if err != nil {
		t.Fatal(err)
	}
	flat := strings.Join(strings.Fields(string(text)), " ")
	for _, e := range knownErrors {
		if !strings.Contains(flat, e.says) {
			t.Errorf("%s: differences.md does not say %q", e.what, e.says)
		}
		file, test, _ := strings.Cut(e.shown, " ")
		if test, row, _ := strings.Cut(test, "/"); !hasTest(t, file, test, row) {
			t.Errorf("%s: there is no %s", e.what, e.shown)
		}
	}
}

// hasTest reports whether a file has a test, with that row in it unless row is empty.
func hasTest(t *testing.T, file, test, row string) bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "../../"+file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return false
	}
	found := false
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == test {
			found = row == ""
			ast.Inspect(f, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				found = found || ok && lit.Value == strconv.Quote(row)
				return true
			})
		}
	}
	return found
}

// refusedTypes returns the list of the types of the reference that Load refuses, by the reason.
func refusedTypes(t *testing.T) string {
	t.Helper()
	byReason := map[string][]string{}
	var gone []string
	for _, r := range slices.SortedFunc(slices.Values(referenceTypes(t)), func(a, b referenceType) int {
		return strings.Compare(a.name, b.name)
	}) {
		if reason := unsupported[r.name]; reason != "" {
			byReason[reason] = append(byReason[reason], "`"+r.name+"`")
		} else if instead := removed[r.name]; instead != "" {
			gone = append(gone, "`"+r.name+"`: "+instead)
		}
	}
	var items []string
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		items = append(items, wrap("  - ", strings.ToUpper(reason[:1])+reason[1:]+": "+
			strings.Join(byReason[reason], ", ")+"."))
	}
	return strings.Join(append(items, wrap("  - ", "The format no longer has "+strings.Join(gone, "; ")+".")), "\n")
}

// wrap breaks an item of a list before column 140.
func wrap(begin, text string) string {
	line, out := begin, ""
	for _, word := range strings.Fields(text) {
		if len(line)+len(word) >= 139 {
			out, line = out+strings.TrimRight(line, " ")+"\n", strings.Repeat(" ", len(begin))
		}
		line += word + " "
	}
	return out + strings.TrimRight(line, " ")
}

// README's files are good, and nothing of them is without effect.
func TestReadmesFilesLoad(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	loaded := 0
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		file, _, _ := strings.Cut(block, "```")
		if !strings.Contains(file, "kind: EndpointPickerConfig") {
			continue
		}
		loaded++
		if c, err := Load([]byte(file), three); err != nil || len(c.Warnings) > 0 {
			t.Errorf("%v, %v in\n%s", err, c, file)
		}
	}
	if loaded < 2 {
		t.Errorf("README has %d configuration files, want at least 2", loaded)
	}
}
