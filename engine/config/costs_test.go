package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
	"github.com/signalbox-epp/signalbox/messages"
)

// A plugin is measured with so many endpoints.
const (
	costCandidates = 100
	costBatch      = 50 // calls that are measured together
)

// costParameters are those of plugins that do nothing, or do not run, without.
var costParameters = map[string]string{
	"endpoint-attribute-filter": `{"attributeKey": "waiting-requests", "algorithm": {"threshold": ` +
		`{"operator": "LessThan", "value": 5}}}`,
	"by-label":                         `{"label": "region", "validValues": ["a", "b"]}`,
	"endpoint-attribute-scorer":        `{"attributeKey": "waiting-requests"}`,
	"endpoint-attribute-weight-scorer": `{"attributeKey": "region", "weights": {"a": 1, "b": 2}}`,
	"header-label-affinity-scorer":     `{"headerName": "x-region", "labelKey": "region"}`,
	"label-producer":                   `{"labels": [{"label": "region", "attributeKey": "region"}]}`,
	"label-selector-filter":            `{"matchLabels": {"region": "a"}}`,
	"max-saturation-detector": `{"detectors": ["concurrency-detector", "utilization-detector"], ` +
		`"stages": {"utilization-detector": ["prefill", "decode"]}}`,
	"utilization-filter": `{"conditions": [{"metric": "waiting-queue", "maxValue": 5}]}`,
}

// overCandidates lists the types of which a cost for each candidate is measured.
func overCandidates() (types []string) {
	for _, typ := range knownTypes() {
		switch construct(typ).(type) {
		case schedule.Filter, schedule.Scorer, schedule.Picker, schedule.Detector, schedule.Admitter:
			types = append(types, typ)
		}
	}
	return types
}

// costEndpoints are busy endpoints of all kinds.
func costEndpoints() []scheduletest.Endpoint {
	r := rand.New(rand.NewPCG(7, 8))
	all := make([]scheduletest.Endpoint, costCandidates)
	for i := range all {
		all[i] = scheduletest.Endpoint{
			Labels: map[string]string{
				"region": []string{"a", "b"}[i%2], "llm-d.ai/role": []string{"prefill", "decode", "both"}[i%3],
				"llm-d.ai/context-length-range": "0-8192", "kubernetes.io/hostname": fmt.Sprint("node-", i/4),
			},
			Sample: endpoints.Sample{Interval: time.Second, Values: endpointstest.Told{
				attributes.WaitingRequests: r.IntN(9), attributes.RunningRequests: r.IntN(99),
				attributes.KVCacheUsage: r.Float64(), attributes.MaxLoRAs: 4,
				attributes.ActiveLoRAs: []string{"a", "b"}, attributes.ResidentLoRAs: []string{"a", "b", "c"},
			}.Values()},
			Inflight: r.IntN(9), InflightTokens: r.IntN(9) * 1000, PrefixBlocks: r.IntN(5),
			Produced: map[string]float64{
				attributes.FirstTokenFloor.Name: .1, attributes.FirstTokenLow.Name: .2,
				attributes.FirstTokenTypical.Name: .6,
				attributes.FirstTokenLowLoad.Name: 2, attributes.FirstTokenTypicalLoad.Name: 8,
				attributes.MediaCached.Name: r.Float64(),
			},
		}
	}
	return all
}

// costScene returns the endpoints such that a plugin of a type does all that it can do.
func costScene(typ string, all []scheduletest.Endpoint) []scheduletest.Endpoint {
	all = slices.Clone(all)
	for i := range all {
		if typ == "no-hit-lru-scorer" { // it orders them for prompts that none holds
			all[i].PrefixBlocks = 0
		}
	}
	return all
}

// costPlugin returns a plugin of a type, ready to run.
func costPlugin(t testing.TB, typ string) any {
	t.Helper()
	plugin := construct(typ)
	if text := costParameters[typ]; text != "" {
		if err := json.Unmarshal([]byte(text), plugin); err != nil {
			t.Fatal(err)
		}
	}
	if v, ok := plugin.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			t.Fatal(err)
		}
	}
	// Whatever a plugin names has the name of its type.
	if of, ok := plugin.(schedule.Referrer); ok {
		if err := of.Refer(func(_, name string) any { return costPlugin(t, name) }); err != nil {
			t.Fatal(err)
		}
	}
	if of, ok := plugin.(schedule.Combined); ok {
		of.Combine(func(_, name string) schedule.Detector { return costPlugin(t, name).(schedule.Detector) })
	}
	return plugin
}

// costRequest is one that admitters look at.
func costRequest() *messages.Request {
	req := scheduletest.Request()
	req.Priority = -1
	req.Headers = messages.ListOf(messages.HeaderValue{Text: "10.0.0.3:80", Given: true})
	return req
}

// costOnce returns what is measured: the plugin, once over all n candidates.
func costOnce(plugin any, in *schedule.Input, n int) func() {
	switch p := plugin.(type) {
	case schedule.Scorer:
		scores := make([]float32, n)
		return func() { p.Score(in, scores) }
	case schedule.Gate: // a detector is asked for its room more often than how full the pool is
		keep := make([]bool, n)
		return func() { p.Room(in, keep) }
	case schedule.Filter:
		keep := make([]bool, n)
		return func() {
			for i := range keep {
				keep[i] = true
			}
			p.Filter(in, keep)
		}
	case schedule.Picker:
		totals, ranked := make([]float32, n), make([]int, 0, n)
		r := rand.New(rand.NewPCG(9, 10))
		for i := range totals {
			totals[i] = r.Float32()
		}
		return func() { p.Pick(in, totals, ranked) }
	case schedule.Detector:
		return func() { p.Saturation(in) }
	case schedule.Admitter:
		return func() { p.Admit(in) }
	}
	return nil
}

// What a plugin allocates does not grow with the candidates, neither in number nor in size.
func TestCandidatesCostNoAllocation(t *testing.T) {
	const few = 2
	all := costEndpoints()
	for _, typ := range overCandidates() {
		t.Run(typ, func(t *testing.T) {
			of := map[int]allocated{}
			for _, n := range []int{few, costCandidates} {
				plugin := costPlugin(t, typ)
				scheduletest.Show(t, plugin, costRequest(), func(in *schedule.Input) {
					of[n] = allocatedBy(costOnce(plugin, in, n))
				}, costScene(typ, all[:n])...)
			}
			if a, b := of[few], of[costCandidates]; a != b || len(of) != 2 {
				t.Errorf("it allocates %+v with %d candidates, %+v with %d", a, few, b, costCandidates)
			}
		})
	}
}

// allocated is what a call allocates.
type allocated struct{ times, bytes uint64 }

// allocatedBy returns what a call allocates at least, once it was done before: what runs beside it allocates, too.
func allocatedBy(call func()) allocated {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	least := allocated{math.MaxUint64, math.MaxUint64}
	for range 20 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		call()
		runtime.ReadMemStats(&after)
		least.times = min(least.times, after.Mallocs-before.Mallocs)
		least.bytes = min(least.bytes, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

// BenchmarkCosts measures what each plugin over candidates takes for one of them. With -update it writes the figures of
// the types that it ran to testdata/costs.txt, from where the documentation has them.
func BenchmarkCosts(b *testing.B) {
	how, figures := costs(b)
	all, ran := costEndpoints(), 0
	for _, typ := range overCandidates() {
		b.Run(typ, func(b *testing.B) {
			plugin := costPlugin(b, typ)
			least := time.Hour // of each batch, which nothing else disturbed
			scheduletest.Show(new(testing.T), plugin, costRequest(), func(in *schedule.Input) {
				once := costOnce(plugin, in, costCandidates)
				for b.Loop() {
					began := time.Now()
					for range costBatch {
						once()
					}
					least = min(least, time.Since(began))
				}
			}, costScene(typ, all)...)
			each := float64(least.Nanoseconds()) / costBatch / costCandidates
			b.ReportMetric(each, "ns/candidate")
			ran++
			figures[typ] = strconv.FormatFloat(each, 'f', 1, 64)
		})
	}
	if !*update {
		return
	}
	if ran == len(overCandidates()) { // what is said of the measurement is of most figures
		how = fmt.Sprintf("%s, %s, %s/%s, %d CPUs, %d candidates", time.Now().Format("2 January 2006"),
			runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), costCandidates)
	}
	text := "# " + how + "\n"
	for _, typ := range slices.Sorted(maps.Keys(figures)) {
		text += typ + " " + figures[typ] + "\n"
	}
	if err := os.WriteFile(costsFile, []byte(strings.TrimLeft(text, "\n")), 0o644); err != nil {
		b.Fatal(err)
	}
}
