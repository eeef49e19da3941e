package config

import (
	"encoding/base64"
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
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/endpoints/endpointstest"
	"github.com/signalbox-epp/signalbox/engine/points"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
	"github.com/signalbox-epp/signalbox/messages"
)

// A plugin is measured with so many endpoints.
const (
	costCandidates = 100
	costBatch      = 50  // calls that are measured together
	costBatches    = 100 // of one request
	costBlocks     = 64  // of the prompt that is looked up in the prefix index
)

// costParameters are those of plugins that do nothing, or tell no candidates apart, without.
var costParameters = map[string]string{
	"endpoint-attribute-filter": `{"attributeKey": "waiting-requests", "algorithm": {"threshold": ` +
		`{"operator": "LessThan", "value": 5}}}`,
	"by-label":                         `{"label": "region", "validValues": ["b", "c"]}`,
	"concurrency-detector":             `{"maxConcurrency": 5}`,
	"endpoint-attribute-scorer":        `{"attributeKey": "waiting-requests"}`,
	"endpoint-attribute-weight-scorer": `{"attributeKey": "region", "weights": {"a": 1, "b": 2}}`,
	"header-label-affinity-scorer":     `{"headerName": "x-region", "labelKey": "region"}`,
	"label-producer":                   `{"labels": [{"label": "region", "attributeKey": "region"}]}`,
	"label-selector-filter":            `{"matchLabels": {"region": "a"}}`,
	"latency-observer-producer-hub":    `{"minRequests": 2}`,
	"max-saturation-detector": `{"detectors": ["concurrency-detector", "utilization-detector"], ` +
		`"stages": {"utilization-detector": ["prefill", "decode"]}}`,
	"probabilistic-admitter":   `{"power": 1, "k": 0.5}`,
	"session-id-producer":      `{"headerName": "x-session"}`,
	"session-state-producer":   `{"producer": "session-id-producer"}`,
	"topology-affinity-filter": `{"peerTopologyHeader": "x-peer"}`,
	"topology-affinity-scorer": `{"peerTopologyHeader": "x-peer"}`,
	"utilization-filter":       `{"conditions": [{"metric": "waiting-queue", "maxValue": 5}]}`,
}

// costHeaders has what the header says that a plugin of a type reads, with n endpoints; of other types it is an
// address.
var costHeaders = map[string]func(n int) string{
	"header-label-affinity-scorer": func(int) string { return "b" },
	"session-affinity-filter":      costSession,
	"session-affinity-scorer":      costSession,
	"topology-affinity-filter":     costPeer,
	"topology-affinity-scorer":     costPeer,
}

// costAddress is in the middle: a search for it looks at every second endpoint on average.
func costAddress(n int) string { return fmt.Sprintf("10.0.0.%d:80", n/2) }
func costSession(n int) string { return base64.StdEncoding.EncodeToString([]byte(costAddress(n))) }
func costPeer(n int) string    { return fmt.Sprint("host=node-", n/2/4) }

// overCandidates lists the types of which a cost for each candidate is measured.
func overCandidates() (types []string) {
	for _, typ := range knownTypes() {
		switch construct(typ).(type) {
		case schedule.Filter, schedule.Scorer, schedule.Picker, schedule.Detector, schedule.Admitter, schedule.Producer:
			types = append(types, typ)
		default:
			if typ == matcher || typ == "p2p-source-producer" { // it looks for one among all endpoints
				types = append(types, typ)
			}
		}
	}
	return types
}

// matcher is the type of the plugin that stands for the prefix index.
const matcher = "approx-prefix-cache-producer"

// costEndpoints are busy endpoints of all kinds.
func costEndpoints(typ string, n int) []scheduletest.Endpoint {
	r := rand.New(rand.NewPCG(7, 8))
	all := make([]scheduletest.Endpoint, n)
	for i := range all {
		told := endpointstest.Told{
			attributes.WaitingRequests: r.IntN(9), attributes.RunningRequests: r.IntN(99),
			attributes.KVCacheUsage: r.Float64(), attributes.MaxLoRAs: 4, attributes.ActiveLoRAs: []string{"a", "b"},
		}
		if resident := []string{"a", "b", "d", "e", "c"}; i%5 > 0 { // has it, has room, or one makes way
			told[attributes.ResidentLoRAs] = resident[i%5-1 : min(i%5+3, 5)]
		}
		all[i] = scheduletest.Endpoint{
			Labels: map[string]string{
				"region": []string{"a", "b"}[i%2], "kubernetes.io/hostname": fmt.Sprint("node-", i/4),
				"llm-d.ai/role":                 []string{"prefill", "decode", "both", "encode"}[i%4],
				"llm-d.ai/context-length-range": []string{"0-8192", "0-100", "200-400"}[i%3],
			},
			Sample:   endpoints.Sample{Interval: time.Second, Values: told.Values()},
			Inflight: r.IntN(9), InflightTokens: r.IntN(9) * 1000, PrefixBlocks: []int{0, 4, 1, 3, 2}[i%5],
			Window: endpoints.Room{Requests: 4, Tokens: 1e6},
			Produced: map[string]float64{
				attributes.FirstTokenFloor.Name: .1, attributes.FirstTokenLow.Name: .2,
				attributes.FirstTokenTypical.Name: .6,
				attributes.FirstTokenLowLoad.Name: 2, attributes.FirstTokenTypicalLoad.Name: 8,
				attributes.MediaCached.Name: r.Float64(),
			},
		}
		if typ == "no-hit-lru-scorer" { // it orders endpoints for prompts that none holds
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

// costRequest is one of low priority, with media and an adapter, whose headers say what a plugin looks for.
func costRequest(typ string, n int) *messages.Request {
	req, header := scheduletest.Request(), costHeaders[typ]
	if header == nil {
		header = costAddress
	}
	req.Priority, req.Model = -1, "c"
	req.Headers = messages.ListOf(messages.HeaderValue{Text: header(n), Given: true})
	req.Items = messages.ListOf(messages.Medium{Hash: 1}, messages.Medium{Hash: 2}, messages.Medium{Hash: 3})
	return req
}

// costOver has look called with what is measured of a type: the plugin, once over all of n candidates. Plugins that
// remember were told of each candidate before. It reports whether the plugin told candidates apart.
func costOver(t *testing.T, typ string, n int, look func(once func())) (told bool) {
	t.Helper()
	all, plugin, req := costEndpoints(typ, n), costPlugin(t, typ), costRequest(typ, n)
	show := func(in *schedule.Input) {
		once, tells := costOf(plugin, in, n)
		look(once)
		told = tells()
	}
	switch p := plugin.(type) {
	case remembering:
		timed := &timedProducer{remembering: p}
		s := costSeries(t, timed, req, all)
		timed.look = look
		s.Pick(req, all...)
		timed.look = nil
		values := s.Produced(req, p.Emits()[0], all...)
		_, alike := p.(*points.SessionState) // it says the same of each endpoint
		return slices.Max(values) > 0 && (alike || slices.Min(values) < slices.Max(values))
	case *points.CacheSource:
		timed := &timedSource{CacheSource: p}
		s := costSeries(t, timed, req, all)
		timed.look = look
		out := s.Pick(req, all...)
		return out.Decision.Headers.Len() > 0
	case schedule.PreRequest:
		costSeries(t, p, req, all).Look(req, show, all...)
	default:
		if typ == matcher {
			return costMatch(n, look)
		}
		scheduletest.Show(t, plugin, req, show, all...)
	}
	return told
}

// remembering is a producer that keeps something of requests.
type remembering interface {
	schedule.Producer
	schedule.Reader
	schedule.PreRequest
}

// timedProducer has look, if there is one, call Produce as often as it likes.
type timedProducer struct {
	remembering
	look func(once func())
}

func (p *timedProducer) Produce(in *schedule.Input, out *schedule.Produced) {
	if p.look != nil {
		p.look(func() { p.remembering.Produce(in, out) })
		return
	}
	p.remembering.Produce(in, out)
}

func (p *timedProducer) FirstToken(b *schedule.Begun) {
	if of, ok := p.remembering.(schedule.FirstToken); ok {
		of.FirstToken(b)
	}
}

// timedSource is as timedProducer, of PreRequest.
type timedSource struct {
	*points.CacheSource
	look func(once func())
}

func (s *timedSource) PreRequest(p *schedule.Picked, set *schedule.Headers) schedule.Refusal {
	if s.look != nil {
		s.look(func() { s.CacheSource.PreRequest(p, new(schedule.Headers)) })
	}
	return s.CacheSource.PreRequest(p, set)
}

// costSeries returns a series in which each endpoint has had two requests, some with the adapter of the request, and
// has answered.
func costSeries(
	t *testing.T, plugin any, req *messages.Request, all []scheduletest.Endpoint,
) *scheduletest.Series {
	t.Helper()
	s := scheduletest.NewSeries(t, plugin, scheduletest.Profile{Name: "default"})
	for i := range 2 * len(all) {
		at, of := i*37%len(all), *req // in no order
		of.Model = string(rune('a' + at%7))
		of.Items = messages.ListOf(req.Items.Append(nil)[:at%(req.Items.Len()+1)]...)
		s.Profiles[0].Ranks = []int{at}
		out := s.Pick(&of, all...)
		s.First(&out, time.Duration(100+at)*time.Millisecond)
	}
	s.Profiles[0].Ranks = nil
	for at := range all {
		s.Profiles[0].Ranks = append(s.Profiles[0].Ranks, at)
	}
	return s
}

// costMatch looks a prompt up of which endpoints hold parts.
func costMatch(n int, look func(once func())) (told bool) {
	blocks := make([]uint64, costBlocks)
	for i := range blocks {
		blocks[i] = uint64(i) + 1
	}
	index := blockindex.NewIndex(0)
	for slot := range n {
		held := blocks[:[]int{0, 64, 16, 48, 32}[slot%5]]
		index.Enter(uint32(slot), blockindex.Prompt{Blocks: messages.ListOf(held...)})
	}
	prompt, out := blockindex.Prompt{Blocks: messages.ListOf(blocks...)}, make([]int, n)
	look(func() { index.Match(prompt, out) })
	return slices.Min(out) < slices.Max(out)
}

// costOf returns what is measured of a plugin in a profile or at admission, and whether it then told candidates apart.
func costOf(plugin any, in *schedule.Input, n int) (once func(), tells func() bool) {
	keep := make([]bool, n)
	all := func() []bool {
		for i := range keep {
			keep[i] = true
		}
		return keep
	}
	tells = func() bool { return slices.Contains(keep, true) && slices.Contains(keep, false) }
	switch p := plugin.(type) {
	case schedule.Scorer:
		scores := make([]float32, n)
		return func() { p.Score(in, scores) }, func() bool { return slices.Min(scores) < slices.Max(scores) }
	case schedule.Gate: // a detector is asked for its room more often than how full the pool is
		return func() { p.Room(in, all()) }, tells
	case schedule.Filter:
		return func() { p.Filter(in, all()) }, tells
	case schedule.Picker:
		totals, ranked, picked := make([]float32, n), make([]int, 0, n), map[int]bool{}
		r := rand.New(rand.NewPCG(9, 10))
		for i := range totals {
			totals[i] = r.Float32()
		}
		return func() { p.Pick(in, totals, ranked) }, func() bool {
			for range 20 {
				r.Shuffle(n, func(i, j int) { totals[i], totals[j] = totals[j], totals[i] })
				picked[p.Pick(in, totals, ranked)[0]] = true
			}
			return len(picked) > 1
		}
	case schedule.Admitter:
		return func() { p.Admit(in) }, func() bool {
			refused := map[bool]bool{}
			for range 200 {
				refused[p.Admit(in).Reason != messages.NoReason] = true
			}
			return len(refused) == 2
		}
	}
	return nil, nil
}

// What a plugin allocates does not grow with the candidates, neither in number nor in size, while it tells them apart.
func TestCandidatesCostNoAllocation(t *testing.T) {
	const few = 2
	for _, typ := range overCandidates() {
		t.Run(typ, func(t *testing.T) {
			of, told := map[int]allocated{}, false
			for _, n := range []int{few, costCandidates} {
				told = costOver(t, typ, n, func(once func()) { of[n] = allocatedBy(once) })
			}
			if a, b := of[few], of[costCandidates]; a != b || len(of) != 2 {
				t.Errorf("it allocates %+v with %d candidates, %+v with %d", a, few, b, costCandidates)
			}
			if !told {
				t.Errorf("all of %d candidates are alike to it, so the measure is of no use", costCandidates)
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
	ran := 0
	for _, typ := range overCandidates() {
		b.Run(typ, func(b *testing.B) {
			least := time.Hour // of each batch, which nothing else disturbed
			for b.Loop() {
				costOver(new(testing.T), typ, costCandidates, func(once func()) {
					for range costBatches {
						began := time.Now()
						for range costBatch {
							once()
						}
						least = min(least, time.Since(began))
					}
				})
			}
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
