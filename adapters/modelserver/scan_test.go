package modelserver

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/messages"
)

var (
	loads = []attributes.Attribute{
		attributes.WaitingRequests, attributes.RunningRequests, attributes.KVCacheUsage, attributes.KVBlockTokens,
		attributes.KVBlocks, attributes.Asleep, attributes.StartTime,
	}
	everything = append(slices.Clone(loads), adapterAttributes...)
)

// told is what a page says; a number that it does not have is -1.
type told struct {
	Engine                                                     string
	Waiting, Running, KVUsed, BlockTokens, Blocks, MaxAdapters float64
	Asleep, StartedAt                                          float64
	ActiveLoRAs, WaitingLoRAs                                  []string // nil = it does not have them
	Resident, Host, Pinned, Base                               []string // likewise
}

// nothing is what an empty page says.
func nothing() told {
	return told{Waiting: -1, Running: -1, KVUsed: -1, BlockTokens: -1, Blocks: -1, Asleep: -1, StartedAt: -1,
		MaxAdapters: -1}
}

func toldBy(r messages.Reading) told {
	t := nothing()
	t.Engine = r.Engine
	for _, e := range r.Numbers.All() {
		*map[string]*float64{
			attributes.WaitingRequests.Name: &t.Waiting, attributes.RunningRequests.Name: &t.Running,
			attributes.KVCacheUsage.Name: &t.KVUsed, attributes.KVBlockTokens.Name: &t.BlockTokens,
			attributes.KVBlocks.Name: &t.Blocks, attributes.StartTime.Name: &t.StartedAt,
			attributes.MaxLoRAs.Name: &t.MaxAdapters, attributes.Asleep.Name: &t.Asleep,
		}[e.Attribute] = e.Value
	}
	for _, e := range r.Names.All() {
		*map[string]*[]string{
			attributes.ActiveLoRAs.Name: &t.ActiveLoRAs, attributes.WaitingLoRAs.Name: &t.WaitingLoRAs,
			attributes.ResidentLoRAs.Name: &t.Resident, attributes.HostLoRAs.Name: &t.Host,
			attributes.PinnedLoRAs.Name: &t.Pinned, attributes.BaseModels.Name: &t.Base,
		}[e.Attribute] = e.Names.Append([]string{})
	}
	return t
}

func scanned(page []byte, engine string, want []attributes.Attribute) told {
	return toldBy(Scan(page, engine, want))
}

func page(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func list(names ...string) []string { return append([]string{}, names...) }

func TestPagesOfRealServersReadAsByHand(t *testing.T) {
	vllm := told{Engine: "vllm", BlockTokens: 32, Blocks: 512, StartedAt: 1.79525147147e+09, MaxAdapters: -1}
	withLoRA := told{Engine: "vllm", BlockTokens: 32, Blocks: 512, StartedAt: 1.79525194529e+09, MaxAdapters: 2,
		ActiveLoRAs: list(), WaitingLoRAs: list(), Base: list("tiny")}
	llama := told{Engine: "llamacpp", KVUsed: -1, BlockTokens: -1, Blocks: -1, Asleep: -1, StartedAt: -1,
		MaxAdapters: -1}
	with := func(r told, change func(*told)) told { change(&r); return r }
	for name, want := range map[string]told{
		"vllm-0.32.0/metrics_idle.txt":                vllm,
		"vllm-0.32.0/metrics_idle_after_requests.txt": vllm,
		"vllm-0.32.0/metrics_under_load.txt": with(vllm, func(r *told) {
			r.Waiting, r.Running, r.KVUsed = 38, 42, 1
		}),
		"vllm-0.32.0/metrics_lora_idle.txt": withLoRA,
		"vllm-0.32.0/metrics_lora_under_load.txt": with(withLoRA, func(r *told) {
			r.Running, r.KVUsed, r.ActiveLoRAs = 48, 0.18786692759295498, list("lora-a", "lora-b")
		}),
		"vllm-0.32.0/metrics_lora_after.txt": withLoRA,
		"llama.cpp-11434/metrics_idle.txt":   llama,
		"llama.cpp-11434/metrics_under_load.txt": with(llama, func(r *told) {
			r.Waiting, r.Running = 28, 4
		}),
	} {
		t.Run(name, func(t *testing.T) {
			for _, engine := range []string{"", want.Engine, "no-such-engine"} {
				if got := scanned(page(t, name), engine, everything); !reflect.DeepEqual(got, want) {
					t.Errorf("engine %q:\n got %+v\nwant %+v", engine, got, want)
				}
			}
			if crlf := strings.ReplaceAll(string(page(t, name)), "\n", "\r\n"); !reflect.DeepEqual(
				scanned([]byte(crlf), "", everything), want) {
				t.Errorf("with CRLF: got %+v", scanned([]byte(crlf), "", everything))
			}
		})
	}
}

func TestEveryCapturedPageIsInTheTable(t *testing.T) {
	pages, err := filepath.Glob("testdata/*/metrics_*.txt")
	if err != nil || len(pages) != 8 {
		t.Errorf("%d pages, want the 8 of the table above (%v)", len(pages), err)
	}
}

func TestSeriesOfEachEngine(t *testing.T) {
	for name, c := range map[string]struct {
		page string
		want func(*told)
	}{
		"vllm, two engines behind one page": {
			`vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="1",model_name="m"} 4.0
vllm:num_requests_running{engine="0",model_name="m"} 1
vllm:num_requests_running{engine="1",model_name="m"} 2
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="120"} 1.0
`, func(r *told) {
				r.Engine, r.Waiting, r.Running, r.KVUsed, r.BlockTokens, r.Blocks = "vllm", 7, 3, 0.5, 16, 220
			}},
		"vllm, asleep at level 1": {
			`vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} 0.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="weights_offloaded"} 1.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="discard_all"} 0.0
`, func(r *told) { r.Asleep = 1 }},
		"vllm, asleep at level 0, which keeps its memory": {
			`vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} 0.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="weights_offloaded"} 0.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="discard_all"} 0.0
`, func(r *told) { r.Asleep = 1 }},
		"vllm, the second of two engines is asleep": {
			`vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="1",model_name="m",sleep_state="awake"} 0.0
`, func(r *told) { r.Asleep = 1 }},
		"vllm, a state that is not known": {
			`vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="dozing"} 0.0
`, func(*told) {}},
		"vllm, older name of the KV usage": {
			"vllm:num_requests_waiting 0\nvllm:gpu_cache_usage_perc{model_name=\"m\"} 0.4\n",
			func(r *told) { r.Engine, r.Waiting, r.KVUsed = "vllm", 0, 0.4 }},
		"vllm, both names of the KV usage": {
			"vllm:gpu_cache_usage_perc 0.9\nvllm:kv_cache_usage_perc 0.3\n",
			func(r *told) { r.Engine, r.KVUsed = "vllm", 0.3 }},
		"vllm, cache not sized yet": {
			`vllm:cache_config_info{block_size="16",num_gpu_blocks="None",num_gpu_blocks_override="7"} 1` + "\n",
			func(r *told) { r.Engine, r.BlockTokens = "vllm", 16 }},
		"vllm, adapters waited for": {
			`vllm:num_requests_waiting 2
vllm:lora_requests_info{max_lora="4",running_lora_adapters="old",waiting_lora_adapters="old"} 5
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a,b",waiting_lora_adapters="b, c"} 1.5e9
vllm:lora_requests_info{max_lora="4",running_lora_adapters="x",waiting_lora_adapters="y"} 1.4e9
`, func(r *told) {
				r.Engine, r.Waiting, r.MaxAdapters = "vllm", 2, 4
				r.ActiveLoRAs, r.WaitingLoRAs, r.Base = list("a", "b"), list("c"), list()
			}},
		"vllm, adapters in slots": {
			`vllm:num_requests_running{engine="0",model_name="base"} 1
vllm:num_requests_running{engine="1",model_name="base"} 1
vllm:lora_adapter_loaded{engine="0",adapter_name="a",level="gpu",pinned="false"} 1
vllm:lora_adapter_loaded{engine="1",adapter_name="a",level="gpu",pinned="false"} 1
vllm:lora_adapter_loaded{engine="0",adapter_name="a",level="cpu",pinned="false"} 1
vllm:lora_adapter_loaded{engine="0",adapter_name="b",level="cpu",pinned="false"} 1
vllm:lora_adapter_loaded{engine="0",adapter_name="c",level="gpu",pinned="true"} 1
vllm:lora_adapter_loaded{engine="0",adapter_name="gone",level="gpu",pinned="false"} 0
vllm:num_gpu_loaded_lora_adapters{engine="0"} 2
vllm:max_gpu_lora_adapters{engine="0"} 4
`, func(r *told) {
				r.Engine, r.Running, r.MaxAdapters = "vllm", 2, 4
				r.Resident, r.Host, r.Pinned, r.Base = list("a", "c"), list("a", "b"), list("c"), list("base")
			}},
		"vllm, all slots empty": {
			"vllm:num_gpu_loaded_lora_adapters 0\nvllm:lora_requests_info{max_lora=\"2\"} 1\n", func(r *told) {
				r.Engine, r.MaxAdapters, r.ActiveLoRAs, r.WaitingLoRAs = "vllm", 2, list(), list()
				r.Resident, r.Host, r.Pinned, r.Base = list(), list(), list(), list()
			}},
		"vllm, slots that are not named": {
			"vllm:num_gpu_loaded_lora_adapters 2\n" +
				"vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"a\"} 1\n",
			func(r *told) {
				r.Engine, r.MaxAdapters, r.ActiveLoRAs, r.WaitingLoRAs = "vllm", 2, list("a"), list()
				r.Base = list()
			}},
		"vllm, slots that are counted and not named": {
			"vllm:num_gpu_loaded_lora_adapters 2\nvllm:max_gpu_lora_adapters 2\n",
			func(r *told) { r.Engine, r.MaxAdapters, r.Base = "vllm", 2, list() }},
		"sglang": {
			`sglang:num_queue_reqs{model_name="m",tp_rank="0",pp_rank="0",dp_rank="0",priority=""} 2
sglang:num_queue_reqs{model_name="m",tp_rank="0",pp_rank="0",dp_rank="0",priority="5"} 2
sglang:num_queue_reqs{model_name="m",tp_rank="1",pp_rank="0",dp_rank="0",priority=""} 2
sglang:num_queue_reqs{model_name="m",tp_rank="0",pp_rank="0",dp_rank="1",priority=""} 3
sglang:num_running_reqs{model_name="m"} 9
sglang:num_running_reqs_offline_batch{model_name="m"} 100
sglang:token_usage{model_name="m"} 0.37
sglang:cache_config_info{page_size="64",num_pages="11147"} 1
`, func(r *told) {
				r.Engine, r.Waiting, r.Running, r.KVUsed, r.BlockTokens, r.Blocks = "sglang", 5, 9, 0.37, 64, 11147
			}},
		"sglang, ranks of tensors that count on over those of data": {
			`sglang:num_running_reqs{tp_rank="3",pp_rank="0",dp_rank="1"} 6
sglang:num_running_reqs{tp_rank="0",pp_rank="0",dp_rank="0"} 8
sglang:num_running_reqs{tp_rank="1",pp_rank="0",dp_rank="0"} 8
sglang:num_running_reqs{tp_rank="2",pp_rank="0",dp_rank="1"} 5
sglang:num_running_reqs{tp_rank="2",pp_rank="0",dp_rank="1",priority="5"} 99
sglang:num_running_reqs{tp_rank="x",pp_rank="0",dp_rank="2"} 99
sglang:token_usage{tp_rank="0",pp_rank="0",dp_rank="0"} 0.25
sglang:token_usage{tp_rank="2",pp_rank="0",dp_rank="1"} 0.75
sglang:token_usage{tp_rank="3",pp_rank="0",dp_rank="1"} 0.75
sglang:num_pages{tp_rank="0",pp_rank="0",dp_rank="0"} 100
sglang:num_pages{tp_rank="2",pp_rank="0",dp_rank="1"} 100
sglang:page_size{tp_rank="0",pp_rank="0",dp_rank="0"} 64
sglang:page_size{tp_rank="2",pp_rank="0",dp_rank="1"} 64
`, func(r *told) { r.Engine, r.Running, r.KVUsed, r.BlockTokens, r.Blocks = "sglang", 13, 0.5, 64, 200 }},
		"sglang, the second node": {
			"sglang:num_running_reqs{tp_rank=\"5\"} 3\nsglang:num_running_reqs{tp_rank=\"4\"} 3\n",
			func(r *told) { r.Engine, r.Running = "sglang", 3 }},
		"sglang, the second stage": {
			"sglang:num_queue_reqs{tp_rank=\"0\",pp_rank=\"1\"} 3\n" +
				"sglang:num_queue_reqs{tp_rank=\"0\",pp_rank=\"2\"} 3\n",
			func(r *told) { r.Engine, r.Waiting = "sglang", 3 }},
		"sglang, cache in gauges": {
			"sglang:num_queue_reqs 1\nsglang:page_size 32\nsglang:num_pages 77\n",
			func(r *told) { r.Engine, r.Waiting, r.BlockTokens, r.Blocks = "sglang", 1, 32, 77 }},
		"triton": {
			`nv_inference_pending_request_count{model="m",version="1"} 8
nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 3
nv_trt_llm_request_metrics{model="m",request_type="context",version="1"} 1
nv_trt_llm_request_metrics{model="m",request_type="scheduled",version="1"} 4
nv_trt_llm_request_metrics{model="m",request_type="max",version="1"} 512
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="m",version="1"} 0.6
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="m",version="1"} 64
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="m",version="1"} 60
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="m",version="1"} 100
`, func(r *told) {
				r.Engine, r.Waiting, r.Running, r.KVUsed, r.BlockTokens, r.Blocks = "triton-tensorrt-llm", 3, 4, 0.6,
					64, 100
			}},
		"trtllm-serve": {
			`trtllm_num_requests_waiting{model_name="m"} 3
trtllm_num_requests_running{model_name="m"} 4
trtllm_kv_cache_utilization{model_name="m"} 0.62
trtllm_kv_cache_tokens_per_block 32
trtllm_kv_cache_max_blocks 900
`, func(r *told) {
				r.Engine, r.Waiting, r.Running, r.KVUsed, r.BlockTokens, r.Blocks = "trtllm-serve", 3, 4, 0.62, 32, 900
			}},
		"llamacpp, older": {
			"llamacpp:kv_cache_usage_ratio 0.5\nllamacpp:requests_processing 1\n",
			func(r *told) { r.Engine, r.KVUsed, r.Running = "llamacpp", 0.5, 1 }},
		"the first engine of a page with two": {
			"sglang:num_queue_reqs 1\nvllm:num_requests_waiting 2\n",
			func(r *told) { r.Engine, r.Waiting = "sglang", 1 }},
	} {
		t.Run(name, func(t *testing.T) { reads(t, c.page, everything, c.want) })
	}
}

// Triton with another backend is never found from its page, because that of TensorRT-LLM has its series too.
func TestTritonIsNamed(t *testing.T) {
	const page = `nv_inference_pending_request_count{model="a",version="1"} 8
nv_inference_pending_request_count{model="b",version="1"} 3
nv_inference_exec_count{model="a",version="1"} 1000
`
	for name, c := range map[string]struct {
		label, normal, engine string
		waiting               float64
	}{
		"by label":   {"triton", "", "triton", 11},
		"by default": {"", "triton", "triton", 11},
		"not named":  {"", "", "", -1},
	} {
		t.Run(name, func(t *testing.T) {
			reading := newReading(Pages{Attributes: everything, EngineLabels: []string{"e"}, Engine: c.normal})
			got, _ := reading.metrics([]byte(page), messages.EndpointSpec{
				Labels: messages.MapOf(map[string]string{"e": c.label}),
			})
			r := toldBy(messages.Reading{Engine: got.Engine, Numbers: builtInOf(got)})
			if r.Engine != c.engine || r.Waiting != c.waiting || r.Running != -1 {
				t.Errorf("got %+v, want %+v", r, c)
			}
		})
	}
}

func reads(t *testing.T, page string, wanted []attributes.Attribute, change func(*told)) {
	t.Helper()
	want := nothing()
	change(&want)
	if got := scanned([]byte(page), "", wanted); !reflect.DeepEqual(got, want) {
		t.Errorf("%.300s\n got %+v\nwant %+v", page, got, want)
	}
}

func TestWaysToWriteASample(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		want float64 // waiting
	}{
		"bare":                  {"vllm:num_requests_waiting 3\n", 3},
		"blanks everywhere":     {" \tvllm:num_requests_waiting \t { engine = \"0\" , } \t 3 \n", 3},
		"exponent":              {"vllm:num_requests_waiting 3.5e+01\n", 35},
		"timestamp":             {"vllm:num_requests_waiting 3 1795251471470\n", 3},
		"OpenMetrics timestamp": {"vllm:num_requests_waiting{a=\"b\"} 3 1795251471.470\n# EOF\n", 3},
		"exemplar":              {"vllm:num_requests_waiting 3 # {trace=\"x\"} 1 2\n", 3},
		"escapes":               {`vllm:num_requests_waiting{model_name="a\"} 7 \\",b="{}"} 3` + "\n", 3},
		"name in braces":        {`{"vllm:num_requests_waiting",engine="0"} 3` + "\n", 3},
		"only the name inside":  {`{"vllm:num_requests_waiting"} 3` + "\n", 3},
		"quoted label name":     {`vllm:num_requests_waiting{"some.label"="x"} 3` + "\n", 3},
		"not a number":          {"vllm:num_requests_waiting NaN\n", -1},
		"infinite":              {"vllm:num_requests_waiting +Inf\n", -1},
		"negative":              {"vllm:num_requests_waiting -3\n", -1},
		"no number":             {"vllm:num_requests_waiting three\n", -1},
		"no value":              {"vllm:num_requests_waiting\n", -1},
		"no value after labels": {"vllm:num_requests_waiting{a=\"b\"}\n", -1},
		"braces without an end": {"vllm:num_requests_waiting{a=\"b 3\n", -1},
		"longer name":           {"vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 3\n", -1},
		"comment":               {"# vllm:num_requests_waiting 3\n", -1},
		"line that may be cut":  {"vllm:num_requests_waiting 3", -1},
		"NaN beside a number": {"vllm:num_requests_waiting{engine=\"0\"} NaN\n" +
			"vllm:num_requests_waiting{engine=\"1\"} 2\n", 2},
		"after a line of 1 MiB":  {"x{a=\"" + strings.Repeat("y", 1<<20) + "\"} 1\nvllm:num_requests_waiting 3\n", 3},
		"in a line of 1 MiB":     {"vllm:num_requests_waiting{a=\"" + strings.Repeat("}", 1<<20) + "\"} 3\n", 3},
		"after bytes of no text": {"\x00\xff\xfe{\"\\\n\n\r\nvllm:num_requests_waiting 3\n", 3},
	} {
		t.Run(name, func(t *testing.T) {
			if got := scanned([]byte(c.line), "vllm", everything).Waiting; got != c.want {
				t.Errorf("%.100q: got %v, want %v", c.line, got, c.want)
			}
		})
	}
}

func TestOnlyWhatIsWantedIsRead(t *testing.T) {
	const both = `process_start_time_seconds 5
vllm:num_requests_waiting 2
vllm:num_requests_running 3
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a",waiting_lora_adapters=""} 5
`
	reads(t, both, loads, func(r *told) { r.Engine, r.StartedAt, r.Waiting, r.Running = "vllm", 5, 2, 3 })
	reads(t, both, loads[1:2], func(r *told) { r.Engine, r.Running = "vllm", 3 })
	reads(t, both, adapterAttributes, func(r *told) {
		r.Engine, r.MaxAdapters, r.ActiveLoRAs, r.WaitingLoRAs, r.Base = "vllm", 4, list("a"), list(), list()
	})
	reads(t, both, nil, func(*told) {})
}

func TestListOfAdaptersIsBounded(t *testing.T) {
	line := `vllm:lora_requests_info{running_lora_adapters="` + strings.Repeat("a,", 100_000) + `"} 1` + "\n"
	if got := len(scanned([]byte(line), "", everything).ActiveLoRAs); got != maxAdapters {
		t.Errorf("%d adapters, want %d", got, maxAdapters)
	}
}

func TestEngineByLabel(t *testing.T) {
	for name, c := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"none":    {nil, ""},
		"first":   {map[string]string{"a": "sglang", "b": "vllm"}, "sglang"},
		"second":  {map[string]string{"b": "vllm"}, "vllm"},
		"empty":   {map[string]string{"a": "", "b": "vllm"}, "vllm"},
		"another": {map[string]string{"c": "vllm"}, ""},
	} {
		if got := EngineOf(messages.MapOf(c.labels), []string{"a", "b"}); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// An engine of the configuration is named by the endpoint's label or by default; one with the name of an engine that is
// built in takes its place.
func TestEnginesOfTheConfiguration(t *testing.T) {
	mine := Engine{
		Name: "mine", Waiting: Series{Metric: "waiting"},
		Running:   Series{"requests", []Label{{"state", "running"}, {"kind", "a"}}},
		CacheInfo: Series{Metric: "cache"}, BlockTokensLabel: "tokens", BlocksLabel: "number",
	}
	silent := Engine{Name: "silent", LoRA: Series{Metric: "adapters"}}
	other := Engine{Name: "vllm", Waiting: Series{Metric: "queue"}}
	const text = "waiting 3\nrequests{state=\"running\",kind=\"a\"} 4\nrequests{state=\"running\",kind=\"b\"} 5\n" +
		"cache{tokens=\"16\",number=\"100\"} 1\nsglang:num_queue_reqs 7\nqueue 8\nwatts 200\n"
	extract := []Extraction{
		{Attribute: "a", Engine: "mine", Metric: "watts"}, {Attribute: "b", Engine: "sglang", Metric: "watts"},
		{Attribute: "c", Metric: "watts"},
	}
	for name, c := range map[string]struct {
		label, normal  string
		engines        []Engine
		engine         string
		waiting        float64
		running, block float64
		attributes     string
	}{
		"by label":           {"mine", "", []Engine{mine}, "mine", 3, 4, 16, "ac"},
		"by default":         {"", "mine", []Engine{mine}, "mine", 3, 4, 16, "ac"},
		"by unknown label":   {"who", "mine", []Engine{mine}, "mine", 3, 4, 16, "ac"},
		"label over default": {"sglang", "mine", []Engine{mine}, "sglang", 7, -1, -1, "bc"},
		"not named":          {"", "", []Engine{mine}, "sglang", 7, -1, -1, "bc"},
		"in place of vllm":   {"", "", []Engine{mine, other}, "", 8, -1, -1, ""},
		"without load":       {"silent", "", []Engine{silent}, "", -1, -1, -1, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			reading := newReading(Pages{
				Attributes: everything, EngineLabels: []string{"e"}, Engines: c.engines,
				Engine: c.normal, Extract: extract,
			})
			got, err := reading.metrics([]byte(text), messages.EndpointSpec{
				Labels: messages.MapOf(map[string]string{"e": c.label}),
			})
			extracted := func() (names string) {
				for _, e := range got.Numbers.All() {
					if len(e.Attribute) == 1 {
						names += e.Attribute
					}
				}
				return names
			}
			asleep := -1.0
			if name == "in place of vllm" { // the page has series of sglang first
				got, err = reading.metrics([]byte("queue 8\nvllm:engine_sleep_state{sleep_state=\"awake\"} 0\n"),
					messages.EndpointSpec{})
				c.engine, asleep = "vllm", 1
			}
			r := toldBy(messages.Reading{Engine: got.Engine, Numbers: builtInOf(got)})
			if r.Engine != c.engine || r.Waiting != c.waiting || r.Running != c.running ||
				r.BlockTokens != c.block || r.Asleep != asleep || extracted() != c.attributes || err != nil {
				t.Errorf("got %+v with attributes %q, %v, want %+v", r, extracted(), err, c)
			}
		})
	}
	if k := builtIn.with([]Engine{silent}); k.loads("silent") || !k.loads("vllm") || !k.loads("") {
		t.Error("loads does not tell which engine reports load")
	}
	if a, b := (Pages{Engines: []Engine{mine}}), (Pages{Engines: []Engine{other}}); a.Equal(b) || !a.Equal(a) {
		t.Error("Equal does not compare engines")
	}
}

// builtInOf returns the numbers that are built in: in these tests others have a name of one letter.
func builtInOf(r messages.Reading) messages.List[messages.Extracted] {
	return messages.TakeList(slices.DeleteFunc(r.Numbers.Append(nil), func(e messages.Extracted) bool {
		return len(e.Attribute) == 1
	}))
}

func TestScanAllocatesTheValuesAndAdapters(t *testing.T) {
	for name, want := range map[string]float64{
		"vllm-0.32.0/metrics_under_load.txt":      1,
		"llama.cpp-11434/metrics_under_load.txt":  1,
		"vllm-0.32.0/metrics_lora_idle.txt":       4, // the lists of names, and the base model
		"vllm-0.32.0/metrics_lora_under_load.txt": 6, // the text of the adapters too, and the list
	} {
		p := page(t, name)
		if got := testing.AllocsPerRun(100, func() { Scan(p, "", everything) }); got != want {
			t.Errorf("%s: %v allocations, want %v", name, got, want)
		}
	}
}
