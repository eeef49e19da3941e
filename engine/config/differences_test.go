package config

import (
	"maps"
	"os"
	"slices"
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

// knownErrors are those of the reference that Signalbox does not have, by what the list of differences says of each.
var knownErrors = map[string]string{
	"bodies are decoded and written anew":    "Signalbox replaces the model in place.",
	"numbers above 2^53, which is outdated":  "numbers above 2^53 survive that by now",
	"answers are held":                       "holds a response that is not streamed until its end",
	"usage of events that are cut":           "also of events that are cut between frames",
	"names in answers are replaced anywhere": "The reference replaces `\"model\":\"…\"` wherever it stands",
	"the header status":                      "The status of a response is taken from `:status`.",
	"refusals are plain text":                "The reference's refusals are plain text",
	"admitters answer 500":                   "`probabilistic-admitter` answers 429 with `retry-after`",
	"filters answer 429":                     "The reference answers 429 if filters removed them.",
	"requests without a body":                "The reference picks at random from the whole pool",
	"all headers are sent again":             "does not write back headers of the client or the model server",
	"a constant header":                      "adds no `x-went-into-resp-headers` to responses",
	"allocations and locks of a pick":        "A pick copies no endpoint",
	"dispatching on a ticker":                "computes both once a millisecond",
	"the mean of the pool blocks":            "a full server of a subset does not block the pool",
	"flows without bound":                    "A band tells 1 000 fairness ids apart, the reference any number.",
	"flows as labels without bound":          "`inflight_requests` and `inflight_tokens` are not split by flow",
	"programs as labels":                     "does not have `program_aware_*`",
	"bodies without bound":                   "`--max-body-bytes` (32 MiB) limits the body of a request.",
	"state by the client's id":               "so that requests with the same id mix",
	"informers' objects are changed":         "Objects of Kubernetes are never changed.",
	"scraping 20 times a second":             "The reference scrapes every 50 ms.",
	"each metric under two names":            "does not have the deprecated families",
	"profiling by default":                   "does not change the sampling rates of the mutex and block profiles",
	"the order of plugins changes":           "may differ from start to start",
	"a source by name, which is outdated":    "goes by the type now",
	"the index after a restart":              "The prefix index is audited",
	"a limit of time for each request":       "`x-llm-d-inference-ttl`",
	"one destination":                        "A picker returns up to three endpoints",
	"compressed messages":                    "so are compressed messages, which the reference refuses",
	"IPv6 in files":                          "`file-discovery` also accepts IPv6 addresses",
}

func TestDifferencesNameKnownErrors(t *testing.T) {
	text, err := os.ReadFile(differences)
	if err != nil {
		t.Fatal(err)
	}
	flat := strings.Join(strings.Fields(string(text)), " ")
	for what, says := range knownErrors {
		if !strings.Contains(flat, says) {
			t.Errorf("%s: differences.md does not say %q", what, says)
		}
	}
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
