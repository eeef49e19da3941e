package modelserver

import (
	"bytes"
	"cmp"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// byParser reads the numbers of a page the long way: a whole parse, then a look at each family. ok is false if the
// parser refuses the page, or it has a wanted name as a histogram or summary, which have no single value.
func byParser(page []byte, of *engine) (got [quantities]float64, ok bool) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return got, false
	}
	var sums [quantities]tally
	for _, se := range slices.Concat(common, of.series) {
		if se.tells == lora {
			continue
		}
		family := families[se.name]
		if t := family.GetType(); family != nil && (t == dto.MetricType_HISTOGRAM || t == dto.MetricType_SUMMARY) {
			return got, false
		}
		samples := family.GetMetric()
		if se.only == firstRank {
			samples = firstRanks(samples, func(m *dto.Metric) bool { _, counts := valueOf(se, m); return counts })
		}
		for _, m := range samples {
			if value, counts := valueOf(se, m); counts {
				t := &sums[se.tells]
				t.sum, t.highest, t.samples = t.sum+value, max(t.highest, value), t.samples+1
			}
		}
	}
	for q, t := range sums {
		value, ok := t.total()
		switch quantity(q) {
		case kvUsed, kvUsedOlder:
			value, ok = t.share()
		case blockTokens, startedAt:
			value, ok = t.top()
		}
		if got[q] = value; !ok {
			got[q] = -1
		}
	}
	if got[kvUsed] < 0 {
		got[kvUsed] = got[kvUsedOlder]
	}
	got[kvUsed] = min(got[kvUsed], 1)
	return got, true
}

// firstRanks returns the samples of the first rank of each data parallel rank.
func firstRanks(all []*dto.Metric, counts func(*dto.Metric) bool) (first []*dto.Metric) {
	type place struct{ pp, tp uint64 }
	lowest := map[string]place{}
	at := func(m *dto.Metric) (data string, of place, ok bool) {
		by := labelsOf(m)
		var wrong [2]error
		of.pp, wrong[0] = strconv.ParseUint(cmp.Or(by["pp_rank"], "0"), 10, 32)
		of.tp, wrong[1] = strconv.ParseUint(cmp.Or(by["tp_rank"], "0"), 10, 32)
		return by["dp_rank"], of, wrong == [2]error{} && counts(m)
	}
	for _, m := range all {
		data, of, ok := at(m)
		least, known := lowest[data]
		if ok && (!known || of.pp < least.pp || of.pp == least.pp && of.tp < least.tp) {
			lowest[data] = of
		}
	}
	for _, m := range all {
		if data, of, ok := at(m); ok && of == lowest[data] {
			first = append(first, m)
		}
	}
	return first
}

func labelsOf(m *dto.Metric) map[string]string {
	by := map[string]string{}
	for _, l := range m.GetLabel() {
		by[l.GetName()] = l.GetValue()
	}
	return by
}

func valueOf(se series, m *dto.Metric) (value float64, counts bool) {
	by := labelsOf(m)
	switch se.only {
	case firstRank:
		counts = by["priority"] == ""
	case typeWaiting:
		counts = by["request_type"] == "waiting"
	case typeScheduled:
		counts = by["request_type"] == "scheduled"
	case blockFraction:
		counts = by["kv_cache_block_type"] == "fraction"
	case blockTokensPer:
		counts = by["kv_cache_block_type"] == "tokens_per"
	case blockMax:
		counts = by["kv_cache_block_type"] == "max"
	default:
		counts = true
	}
	value = m.GetGauge().GetValue() + m.GetUntyped().GetValue() + m.GetCounter().GetValue()
	if se.from != "" {
		var err error
		if value, err = strconv.ParseFloat(by[se.from], 64); err != nil {
			return 0, false
		}
	}
	return value, counts && value >= 0 && !math.IsInf(value, 0)
}

// differ says how the scanner and the parser disagree about a page.
func differ(t *testing.T, page []byte, of *engine) {
	t.Helper()
	want, ok := byParser(page, of)
	if !ok {
		return
	}
	r := scanned(page, of.name, everything)
	for q, got := range map[quantity]float64{
		waiting: r.Waiting, running: r.Running, kvUsed: r.KVUsed, blockTokens: r.BlockTokens, blocks: r.Blocks,
		startedAt: r.StartedAt,
	} {
		if got != want[q] && math.Abs(got-want[q]) > 1e-12*math.Abs(want[q]) {
			t.Errorf("%s, quantity %d of %.400q: scanned %v, parsed %v", of.name, q, page, got, want[q])
		}
	}
}

func TestScannerAgreesWithTheParser(t *testing.T) {
	pages, err := filepath.Glob("testdata/*/metrics_*.txt")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, p := range pages {
		text := page(t, p[len("testdata/"):])
		of := builtIn.named(Scan(text, "", everything).Engine)
		if _, ok := byParser(text, of); !ok {
			t.Errorf("%s: the parser refuses it", p)
		}
		differ(t, text, of)
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte("vllm:num_requests_waiting{a=\"b\\\"}\"} 3 17\n# EOF\n"), uint8(0))
	f.Add([]byte("# TYPE sglang:num_queue_reqs gauge\nsglang:num_queue_reqs{tp_rank=\"1\",priority=\"\"} 1e3\n"),
		uint8(1))
	f.Add([]byte("nv_trt_llm_request_metrics{request_type=\"waiting\"} +Inf\n"), uint8(2))
	f.Add([]byte("{\"trtllm_num_requests_waiting\",x=\"y\"} 4\r\n"), uint8(3))
	f.Add([]byte("process_start_time_seconds\t1.79e+09\nllamacpp:requests_deferred 2\n"), uint8(4))
	f.Add([]byte("vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"a,,b\","+
		"waiting_lora_adapters=\"\\\\\"} 9\n"), uint8(0))
	for i, name := range []string{"vllm-0.32.0/metrics_under_load.txt", "llama.cpp-11434/metrics_idle.txt"} {
		for part := range bytes.SplitSeq(page(f, name), []byte("# HELP")) {
			f.Add(append([]byte("# HELP"), part[:min(len(part), 1000)]...), uint8(4*i))
		}
	}
	f.Fuzz(func(t *testing.T, page []byte, which uint8) {
		of := &engines[int(which)%len(engines)]
		before := bytes.Clone(page)
		differ(t, page, of)
		r := scanned(page, "", everything)
		if !bytes.Equal(before, page) {
			t.Error("the page was written to")
		}
		for _, x := range []float64{r.Waiting, r.Running, r.KVUsed, r.BlockTokens, r.Blocks, r.StartedAt,
			r.MaxAdapters} {
			if math.IsNaN(x) || x < 0 && x != -1 {
				t.Errorf("%.400q: %v is no number that a page can say", page, x)
			}
		}
	})
}

// The two benchmarks run over the same page of 61 KB, so that one run compares them.
func BenchmarkScan(b *testing.B) {
	p := page(b, "vllm-0.32.0/metrics_under_load.txt")
	for name, engine := range map[string]string{"engine-by-label": "vllm", "engine-from-page": ""} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			for b.Loop() {
				Scan(p, engine, everything)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	p := page(b, "vllm-0.32.0/metrics_under_load.txt")
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := byParser(p, &engines[0]); !ok {
			b.Fatal("refused")
		}
	}
}
