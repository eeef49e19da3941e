package page

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
)

// captured is the page of a real vLLM that has served requests with and without adapters, as lines.
func captured(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../../modelserver/testdata/vllm-0.32.0/metrics_lora_after.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// simulated is the page of an engine that has served two requests.
func simulated(t *testing.T) []string {
	t.Helper()
	now := time.Unix(1_795_000_000, 0)
	core, err := batch.New(batch.Config{
		MaxRunning: 4, MaxBatchedTokens: 100, KVBlocks: 512, BlockTokens: 32, MaxLoRAs: 2, PrefillTokensPerSecond: 1000,
		DecodeTokensPerSecond: 100, AnswerTokens: 10,
	}, batch.NewTokens(4))
	if err != nil {
		t.Fatal(err)
	}
	p := New(Layout{Model: "tiny", KVBlocks: 512, BlockTokens: 32, MaxModelLen: 4096, MaxLoRAs: 2, Started: now},
		core.Tally())
	core.Submit(now, batch.Request{Prompt: make([]uint32, 300), MaxTokens: 8, IgnoreEnd: true})
	core.Submit(now, batch.Request{Prompt: make([]uint32, 300), MaxTokens: 8, IgnoreEnd: true, Adapter: "lora-a"})
	core.Advance(now.Add(time.Hour))
	b := p.Render(nil, View{Tally: core.Tally(), Stats: core.Stats(), LoRAs: core.LoRAs()})
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

var quoted = regexp.MustCompile(`"[^"]*"`)

// series is a line without its value. Of what a server says of itself only the names of the labels count: how its cache
// is configured, and which adapters ran.
func series(line string) string {
	if strings.HasPrefix(line, "#") {
		return line
	}
	name, _, labelled := strings.Cut(line, "} ")
	if !labelled {
		name, _, _ = strings.Cut(line, " ")
	}
	if strings.HasPrefix(line, "vllm:cache_config_info") || strings.HasPrefix(line, "vllm:lora_requests_info") {
		return quoted.ReplaceAllString(name, "")
	}
	return name
}

// Every line is one that the real page has, up to its value; and in the same order.
func TestSeriesAreThoseOfVLLM(t *testing.T) {
	place := map[string]int{}
	for i, line := range captured(t) {
		if _, known := place[series(line)]; !known {
			place[series(line)] = i
		}
	}
	last, count := -1, 0
	for _, line := range simulated(t) {
		at, known := place[series(line)]
		if !known {
			t.Errorf("vLLM has no line %s", line)
			continue
		}
		if at < last {
			t.Errorf("out of order: %s", line)
		}
		last = at
		if !strings.HasPrefix(line, "#") {
			count++
		}
	}
	if count < 300 {
		t.Errorf("%d series, want at least 300", count)
	}
}

// onPurpose begins the names of what the real page has and ours does not, with the reason.
var onPurpose = map[string]string{
	"python_":                             "no Python runs here",
	"process_cpu_seconds":                 "of the process only its start tells something about the server",
	"process_max_fds":                     "likewise",
	"process_open_fds":                    "likewise",
	"process_resident_memory":             "likewise",
	"process_virtual_memory":              "likewise",
	"http_":                               "counted by vLLM's web framework, read by no picker",
	"vllm:estimated_":                     "nothing is computed",
	"vllm:external_prefix_cache":          "there is no other cache than the engine's",
	"vllm:mm_cache":                       "there is no cache of media",
	"vllm:prompt_tokens_cached_by_source": "likewise: one cache, one source",
}

// TestNothingOfVLLMIsForgotten goes through the real page: types, help texts and series with their labels.
func TestNothingOfVLLMIsForgotten(t *testing.T) {
	ours, used := map[string]bool{}, map[string]bool{}
	for _, line := range simulated(t) {
		ours[series(line)] = true
	}
	for _, line := range captured(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		excepted := false
		for prefix := range onPurpose {
			if strings.HasPrefix(name, prefix) {
				excepted, used[prefix] = true, true
			}
		}
		if excepted == ours[series(line)] {
			t.Errorf("left out on purpose %v, on our page %v: %s", excepted, ours[series(line)], line)
		}
	}
	for prefix := range onPurpose {
		if !used[prefix] {
			t.Errorf("vLLM has nothing that begins with %s", prefix)
		}
	}
}

func TestValuesAreThoseOfTheEngine(t *testing.T) {
	got := map[string]string{}
	for _, line := range simulated(t) {
		if i := strings.LastIndexByte(line, ' '); !strings.HasPrefix(line, "#") {
			got[line[:i]] = line[i+1:]
		}
	}
	const labels = `{engine="0",model_name="tiny"}`
	want := map[string]string{
		"vllm:num_requests_running" + labels: "0.0",
		"vllm:prompt_tokens_total" + labels:  "600.0",
		// The prompts are equal but for the adapter, which keeps their blocks apart.
		"vllm:prefix_cache_hits_total" + labels:                                                   "0.0",
		"vllm:prefix_cache_queries_total" + labels:                                                "600.0",
		"vllm:generation_tokens_total" + labels:                                                   "16.0",
		`vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"}`:       "2.0",
		`vllm:request_prompt_tokens_bucket{engine="0",le="200.0",model_name="tiny"}`:              "0.0",
		`vllm:request_prompt_tokens_bucket{engine="0",le="500.0",model_name="tiny"}`:              "2.0",
		`vllm:request_prompt_tokens_bucket{engine="0",le="+Inf",model_name="tiny"}`:               "2.0",
		"vllm:request_prompt_tokens_sum" + labels:                                                 "600.0",
		"vllm:inter_token_latency_seconds_count" + labels:                                         "14.0",
		"process_start_time_seconds":                                                              "1.795e+09",
		`vllm:lora_requests_info{max_lora="2",running_lora_adapters="",waiting_lora_adapters=""}`: "1.79500000071e+09",
	}
	for series, value := range want {
		if got[series] != value {
			t.Errorf("%s: got %q, want %q", series, got[series], value)
		}
	}
}

// Numbers look as the real page has them.
func TestNumberFormat(t *testing.T) {
	for _, line := range captured(t) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		text := line[strings.LastIndexByte(line, ' ')+1:]
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if got := string(appendValue(nil, v)); got != text {
			t.Errorf("got %s, want %s", got, text)
		}
	}
	for v, want := range map[float64]string{
		0: "0.0", 1e6: "1e+06", 999999: "999999.0", 1234567: "1.234567e+06", 1e-5: "1e-05", 0.25: "0.25",
		math.Inf(1): "+Inf",
	} {
		if got := string(appendValue(nil, v)); got != want {
			t.Errorf("%g: got %s, want %s", v, got, want)
		}
	}
}

func TestLabelsAreEscaped(t *testing.T) {
	p := New(Layout{Model: "a\"b\\c\nd"}, new(batch.Tally))
	b := p.Render(nil, View{Tally: new(batch.Tally)})
	scan := bufio.NewScanner(bytes.NewReader(b))
	for scan.Scan() {
		if strings.HasPrefix(scan.Text(), "vllm:num_requests_running") {
			if diff := cmp.Diff(`vllm:num_requests_running{engine="0",model_name="a\"b\\c\nd"} 0.0`,
				scan.Text()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			return
		}
	}
	t.Error("the series is not there")
}

func BenchmarkRender(b *testing.B) {
	core, err := batch.New(batch.Config{
		MaxRunning: 4, MaxBatchedTokens: 100, KVBlocks: 512, BlockTokens: 32, PrefillTokensPerSecond: 1000,
		DecodeTokensPerSecond: 100,
		AnswerTokens:          10,
	}, batch.NewTokens(4))
	if err != nil {
		b.Fatal(err)
	}
	p := New(Layout{Model: "tiny"}, core.Tally())
	buf := make([]byte, 0, 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		buf = p.Render(buf[:0], View{Tally: core.Tally()})
	}
	b.ReportMetric(float64(len(buf)), "page-bytes")
}
