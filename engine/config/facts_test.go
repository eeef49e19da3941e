package config

import (
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// setAt sets a parameter by its path. Objects that are absent are made. It reports whether the plugin has the
// parameter, and a value of that kind fits.
func setAt(v reflect.Value, path string, value any) bool {
	name, rest, deeper := strings.Cut(path, ".")
	for _, f := range strictyaml.FieldsOf(v.Type()) {
		if f.Name != name {
			continue
		}
		at := v.FieldByIndex(f.Index)
		if at.Kind() == reflect.Pointer {
			at.Set(reflect.New(at.Type().Elem()))
			at = at.Elem()
		}
		if deeper {
			return at.Kind() == reflect.Struct && setAt(at, rest, value)
		}
		given := reflect.ValueOf(value)
		isText := given.Kind() == reflect.String
		if isText != (at.Kind() == reflect.String) || !given.CanConvert(at.Type()) || at.Kind() == reflect.Bool {
			return false
		}
		if at.CanInt() && given.CanFloat() && math.Trunc(given.Float()) != given.Float() {
			return false
		}
		at.Set(given.Convert(at.Type()))
		return true
	}
	return false
}

// complaint returns what the plugin wants of a parameter that has a value; "" = it is content, or the value does not
// fit.
func complaint(typ, path string, value any) string {
	plugin := construct(typ)
	v, checks := plugin.(interface{ Validate() error })
	if !checks || strings.Contains(path, "[]") || !setAt(reflect.ValueOf(plugin).Elem(), path, value) {
		return ""
	}
	for line := range strings.SplitSeq(fmt.Sprint(v.Validate()), "\n") {
		if rest, ok := strings.CutPrefix(line, path+": got "); ok {
			if _, wants, has := strings.Cut(rest, ", want "); has {
				return wants
			}
		}
	}
	return ""
}

// rangeOf returns which values a parameter may have, as Validate says of values that it may not have; "" = any.
func rangeOf(typ, path string) string {
	for _, odd := range []any{-1e9, -1.0, -0.5, 0.0, 1.5, 70000.0, 1e12, math.NaN(), "no such value"} {
		wants := complaint(typ, path, odd)
		if list, ok := strings.CutPrefix(wants, "one of ["); ok {
			wants = "one of " + strings.ReplaceAll(strings.TrimSuffix(list, "]"), " ", ", ")
		}
		if wants != "" && wants != "a number" {
			return wants
		}
	}
	return ""
}

// TestRangesHold has the ends of each range pass, and what is just outside fail.
func TestRangesHold(t *testing.T) {
	numbers, texts := 0, 0
	for _, typ := range knownTypes() {
		for name, q := range parametersOf(typ) {
			if q.Range != rangeOf(typ, name) {
				t.Errorf("%s.%s has the range %q, documented is %q", typ, name, rangeOf(typ, name), q.Range)
			}
			switch {
			case q.Range == "":
			case q.Kind == "string":
				texts++
				checkTexts(t, typ, name, q.Range)
			default:
				numbers++
				checkNumbers(t, typ, name, q)
			}
		}
	}
	if numbers < 35 || texts < 10 {
		t.Errorf("%d ranges of numbers and %d of texts are checked, want more", numbers, texts)
	}
}

// checkTexts has each of the listed values pass.
func checkTexts(t *testing.T, typ, name, list string) {
	t.Helper()
	list = strings.TrimPrefix(list, "one of ")
	if _, rest, ok := strings.Cut(list, "["); ok {
		list = strings.TrimSuffix(rest, "]")
	}
	values := regexp.MustCompile(`,? or |, | `).Split(list, -1)
	if strings.HasPrefix(list, "a ") || strings.HasPrefix(list, "the ") || strings.HasPrefix(list, "one such as ") {
		return // it tells of a form, not of values
	}
	for _, value := range values {
		if got := complaint(typ, name, value); got != "" {
			t.Errorf("%s.%s: %q is refused, and the range is %q", typ, name, value, list)
		}
	}
}

var (
	leastValue = regexp.MustCompile(`^(above |more than )?(-?[0-9.]+(?:[a-z]+)?)(?: or more| to |,|$)`)
	mostValue  = regexp.MustCompile(`(?: to |at most |(below ))(-?[0-9.e+]+)$`)
)

// checkNumbers has the ends of a range pass, and their neighbours outside, and what is no number, fail.
func checkNumbers(t *testing.T, typ, name string, q Parameter) {
	t.Helper()
	_, besides, _ := strings.Cut(q.Range, ", or ") // a value apart from the others
	q.Range = strings.TrimSuffix(q.Range, ", or "+besides)
	if rest, ok := strings.CutPrefix(q.Range, "0s or "); ok {
		q.Range, besides = rest, "0s"
	}
	least, most := leastValue.FindStringSubmatch(q.Range), mostValue.FindStringSubmatch(q.Range)
	if least == nil && most == nil {
		t.Errorf("%s.%s: the range %q cannot be read", typ, name, q.Range)
		return
	}
	check := func(value float64, passes bool) {
		t.Helper()
		if got := complaint(typ, name, value); (got == "") != passes {
			t.Errorf("%s.%s (%s): %v passes %v, want %v", typ, name, q.Range, value, got == "", passes)
		}
	}
	if least != nil {
		end := number(t, least[2])
		check(end, least[1] == "")
		check(next(q, end, -1), strings.HasPrefix(besides, "0") && next(q, end, -1) == 0)
		check(next(q, end, 1), true)
	}
	if most != nil {
		end := number(t, most[2])
		check(end, most[1] == "")
		check(next(q, end, 1), false)
	}
	if q.Kind == "number" {
		check(math.NaN(), false)
	}
}

// number reads the end of a range: a number, or a duration in nanoseconds.
func number(t *testing.T, text string) float64 {
	t.Helper()
	if d, err := time.ParseDuration(text); err == nil {
		return float64(d)
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// next returns the nearest value in a direction that a parameter can have.
func next(q Parameter, of, direction float64) float64 {
	if q.Kind == "number" {
		return math.Nextafter(of, math.Inf(int(direction)))
	}
	return of + direction
}

// writesOf has the attributes that plugins write for others, by type, and what else they add to a request or response.
var writesOf = map[string][]string{
	"agent-identity":               {"`agent-identity`, of requests"},
	"approx-prefix-cache-producer": {"`prefix-blocks`"},
	"core-metrics-extractor": {
		"`queued-requests`", "`waiting-requests`", "`running-requests`", "`kv-cache-usage`", "`active-loras`",
		"`waiting-loras`", "`max-loras`", "`resident-loras`", "`host-loras`", "`pinned-loras`", "`base-models`",
		"`kv-block-tokens`", "`kv-blocks`", "`asleep`", "`start-time`", "the attributes of its `customMetrics`",
	},
	"data-parallel-profile-handler":        {"the header `x-data-parallel-host-port`, of requests"},
	"destination-endpoint-served-verifier": {"the header `x-conformance-test-served-endpoint`, of responses"},
	"disagg-profile-handler": {
		"the headers `x-prefiller-host-port` and `x-encoder-hosts-ports`, of requests",
	},
	"inflight-load-producer": {"`inflight-requests`", "`inflight-tokens`", "`sent-requests`", "`sent-tokens`",
		"`prompt-wait`", "`prompt-rate`", "`request-rate`"},
	"json-extractor":    {"the attributes that it names"},
	"label-producer":    {"the attributes that it names"},
	"learning-detector": {"`window-requests`", "`window-tokens`"},
	"latency-observer-producer-hub": {
		"`llm-d.ai/ttft-floor-seconds`", "`llm-d.ai/ttft-low-seconds`", "`llm-d.ai/ttft-typical-seconds`",
		"`llm-d.ai/ttft-low-inflight-requests`", "`llm-d.ai/ttft-typical-inflight-requests`",
	},
	"lora-affinity-scorer":         {"which adapters it has placed at which server, for itself"},
	"mm-embeddings-cache-producer": {"`llm-d.ai/mm-embeddings-cached-ratio`"},
	"models-data-extractor":        {"`models`"},
	"no-hit-lru-scorer":            {"which servers were used, for itself"},
	"pd-profile-handler": {
		"the header `x-prefiller-host-port`, with `primaryPort` `x-data-parallel-host-port`, of requests",
	},
	"p2p-source-producer":        {"the header `x-kv-cache-source-host-port`, of requests"},
	"prometheus-extractor":       {"the attributes that it names"},
	"request-attribute-reporter": {"dynamic metadata of the answer to the end of the response's body"},
	"session-affinity-filter":    {"the header that names the server, of responses"},
	"session-affinity-scorer":    {"the header that names the server, of responses"},
	"session-id-producer":        {"`SessionIDDataKey`, of requests"},
	"session-state-producer": {
		"`llm-d.ai/session-turns`", "`llm-d.ai/session-duration-seconds`", "`llm-d.ai/session-idle-seconds`",
		"`llm-d.ai/session-inflight-requests`", "`llm-d.ai/session-completed-requests`",
		"`llm-d.ai/session-input-tokens`", "`llm-d.ai/session-output-tokens`",
	},
}

// Each attribute that is built in has one plugin that writes it, and each plugin that can write says what.
func TestAttributesHaveWriters(t *testing.T) {
	writers := map[string][]string{}
	for typ, all := range writesOf {
		if construct(typ) == nil {
			t.Errorf("%s writes and is not there", typ)
		}
		for _, name := range all {
			writers[strings.Trim(name, "`")] = append(writers[strings.Trim(name, "`")], typ)
		}
	}
	for _, a := range attributes.BuiltIn() {
		if len(writers[a.Name]) != 1 {
			t.Errorf("%s is written by %v, want one plugin", a.Name, writers[a.Name])
		}
	}
	for _, typ := range knownTypes() {
		plugin := construct(typ)
		_, produces := plugin.(schedule.Producer)
		_, extracts := plugin.(attributes.Extractor)
		_, asks := plugin.(schedule.PreRequest)
		_, answers := plugin.(schedule.ResponseHeaders)
		_, finishes := plugin.(schedule.Finisher)
		if (produces || extracts || asks || answers || finishes) && len(writesOf[typ]) == 0 {
			t.Errorf("%s can write, and writesOf does not say what", typ)
		}
	}
}

// costsFile has what BenchmarkCosts measured.
const costsFile = "testdata/costs.txt"

// costs reads the measured costs for each candidate, by type, in nanoseconds, and how they were measured.
func costs(t testing.TB) (how string, of map[string]string) {
	t.Helper()
	text, err := os.ReadFile(costsFile)
	if err != nil {
		t.Fatal(err)
	}
	how, list, _ := strings.Cut(string(text), "\n")
	of = map[string]string{}
	for line := range strings.Lines(list) {
		if words := strings.Fields(line); len(words) == 2 {
			of[words[0]] = words[1]
		}
	}
	return strings.TrimPrefix(how, "# "), of
}

// sourceFiles has the file that declares a type, by package and name.
func sourceFile(t *testing.T, typ reflect.Type) string {
	t.Helper()
	dir := "../" + typ.PkgPath()[strings.LastIndexByte(typ.PkgPath(), '/')+1:]
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	begins := regexp.MustCompile(`(?m)^(type |\t)` + typ.Name() + `( struct|\s+struct| [A-Za-z.]+$|\()`)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile(dir + "/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if begins.Match(text) {
			return "engine" + strings.TrimPrefix(dir, "..") + "/" + f.Name()
		}
	}
	t.Errorf("no file declares %v", typ)
	return ""
}

// Each plugin that runs over candidates has a measured cost, and no other has one.
func TestCostsAreMeasured(t *testing.T) {
	how, all := costs(t)
	if !regexp.MustCompile(`^[0-9]+ [A-Z][a-z]+ 20[0-9]{2}, `).MatchString(how) {
		t.Errorf("%s does not begin with the date of the measurement: %q", costsFile, how)
	}
	measured := overCandidates()
	for _, typ := range measured {
		if all[typ] == "" {
			t.Errorf("%s has no cost; run: go test ./engine/config -run '^$' -bench Costs/%s -benchtime 100ms -update",
				typ, typ)
		}
	}
	for typ := range all {
		if !slices.Contains(measured, typ) {
			t.Errorf("%s has a cost in %s and does not run over candidates", typ, costsFile)
		}
	}
}
