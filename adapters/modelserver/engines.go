package modelserver

import (
	"slices"

	"github.com/signalbox-epp/signalbox/messages"
)

// series is one name to look for on a page.
type series struct {
	name  string
	tells quantity
	from  string    // label that holds the number; "" = it is the value of the sample
	only  condition // which samples of the name count
	has   []Label   // what a sample must have to count, beside only
}

// condition is what the labels of a sample must say for the sample to count. A label that is absent reads as "".
type condition uint8

const (
	always condition = iota
	// firstRank holds for totals; of those only the ones of the first rank count, as scan.ofRank has it. SGLang can
	// report the same scheduler once for each tensor and pipeline rank and, beside the total, once for each request
	// priority.
	firstRank
	stateAwake     // sleep_state="awake"
	typeWaiting    // request_type="waiting"
	typeScheduled  // request_type="scheduled"
	blockFraction  // kv_cache_block_type="fraction"
	blockTokensPer // kv_cache_block_type="tokens_per"
	blockMax       // kv_cache_block_type="max"
)

// engine is one kind of model server.
type engine struct {
	name   string // as the engine label spells it
	prefix string // of the names of all its series
	series []series
}

// engines holds every engine that is known. vllm and llamacpp were checked against pages of real servers (vLLM 0.32.0,
// llama.cpp); the others are written from their documented series and are unverified.
var engines = [...]engine{
	{"vllm", "vllm:", []series{
		{name: "vllm:num_requests_waiting", tells: waiting},
		{name: "vllm:num_requests_running", tells: running},
		{name: "vllm:kv_cache_usage_perc", tells: kvUsed},
		{name: "vllm:gpu_cache_usage_perc", tells: kvUsedOlder},
		{name: "vllm:cache_config_info", tells: blockTokens, from: "block_size"},
		{name: "vllm:cache_config_info", tells: blocks, from: "num_gpu_blocks"},
		{name: "vllm:lora_requests_info", tells: lora},
		{name: "vllm:lora_adapter_loaded", tells: loraLoaded},
		{name: "vllm:num_gpu_loaded_lora_adapters", tells: loraCount},
		{name: "vllm:max_gpu_lora_adapters", tells: loraSlots},
	}},
	// Unverified. Up to 0.5.10 the cache's size stands in labels, from 0.5.11 on in gauges.
	{"sglang", "sglang:", []series{
		{name: "sglang:num_queue_reqs", tells: waiting, only: firstRank},
		{name: "sglang:num_running_reqs", tells: running, only: firstRank},
		{name: "sglang:token_usage", tells: kvUsed, only: firstRank},
		{name: "sglang:cache_config_info", tells: blockTokens, from: "page_size", only: firstRank},
		{name: "sglang:cache_config_info", tells: blocks, from: "num_pages", only: firstRank},
		{name: "sglang:page_size", tells: blockTokens, only: firstRank},
		{name: "sglang:num_pages", tells: blocks, only: firstRank},
	}},
	// Unverified.
	{"triton-tensorrt-llm", "nv_trt_llm_", []series{
		{name: "nv_trt_llm_request_metrics", tells: waiting, only: typeWaiting},
		{name: "nv_trt_llm_request_metrics", tells: running, only: typeScheduled},
		{name: "nv_trt_llm_kv_cache_block_metrics", tells: kvUsed, only: blockFraction},
		{name: "nv_trt_llm_kv_cache_block_metrics", tells: blockTokens, only: blockTokensPer},
		{name: "nv_trt_llm_kv_cache_block_metrics", tells: blocks, only: blockMax},
	}},
	// Unverified.
	{"trtllm-serve", "trtllm_", []series{
		{name: "trtllm_num_requests_waiting", tells: waiting},
		{name: "trtllm_num_requests_running", tells: running},
		{name: "trtllm_kv_cache_utilization", tells: kvUsed},
		{name: "trtllm_kv_cache_tokens_per_block", tells: blockTokens},
		{name: "trtllm_kv_cache_max_blocks", tells: blocks},
	}},
	// Newer versions do not report their KV usage.
	{"llamacpp", "llamacpp:", []series{
		{name: "llamacpp:requests_deferred", tells: waiting},
		{name: "llamacpp:requests_processing", tells: running},
		{name: "llamacpp:kv_cache_usage_ratio", tells: kvUsedOlder},
	}},
	// Unverified. Triton with other backends reports no more of its load: nv_inference_exec_count counts all requests
	// since the start.
	{"triton", "nv_inference_", []series{{name: "nv_inference_pending_request_count", tells: waiting}}},
}

// common holds the series that count whatever the engine of a page is: what the client library of any engine may add,
// and whether vLLM sleeps, for which an engine of the configuration that takes vLLM's place has no field.
var common = []series{
	{name: "process_start_time_seconds", tells: startedAt},
	{name: "vllm:engine_sleep_state", tells: awake, only: stateAwake},
}

// Engine has the series of a kind of model server that is not built in, or that replaces one of the same name. A Series
// without a metric is one that it does not report.
type Engine struct {
	Name                          string
	Waiting, Running              Series
	KVUsed                        Series
	LoRA                          Series // with the labels of vllm:lora_requests_info
	CacheInfo                     Series
	BlockTokensLabel, BlocksLabel string // of CacheInfo
	BlockTokens, Blocks           Series
}

// Series names the samples of a metric that count.
type Series struct {
	Metric string
	Labels []Label // that a sample must have
}

func (e *Engine) equal(other *Engine) bool {
	a, b := e.compiled(), other.compiled()
	return a.name == b.name && slices.EqualFunc(a.series, b.series, func(x, y series) bool {
		return x.name == y.name && x.tells == y.tells && x.from == y.from && slices.Equal(x.has, y.has)
	})
}

// loads reports whether pages of an engine have its load; "" = not recognised, which counts as if they had.
func (k known) loads(name string) bool {
	e := k.named(name)
	return e == nil || slices.ContainsFunc(e.series, func(s series) bool { return s.tells <= kvUsedOlder })
}

// compiled returns the engine as pages are scanned for it.
func (e *Engine) compiled() engine {
	c := engine{name: e.Name}
	for _, x := range []struct {
		of    Series
		tells quantity
		from  string
	}{
		{e.Waiting, waiting, ""}, {e.Running, running, ""}, {e.KVUsed, kvUsed, ""}, {e.LoRA, lora, ""},
		{e.CacheInfo, blockTokens, e.BlockTokensLabel}, {e.CacheInfo, blocks, e.BlocksLabel},
		{e.BlockTokens, blockTokens, ""}, {e.Blocks, blocks, ""},
	} {
		if x.of.Metric != "" {
			c.series = append(c.series, series{name: x.of.Metric, tells: x.tells, from: x.from, has: x.of.Labels})
		}
	}
	return c
}

// known are the engines that pages are scanned for.
type known struct {
	engines []engine
	found   int // how many of the first are found from the page; the others must be named
}

// builtIn has the engines that are known without a configuration. The last one must be named, because pages of
// triton-tensorrt-llm have its series too.
var builtIn = known{engines[:], len(engines) - 1}

// with returns the engines that are built in, but for those that others replace, and then the others.
func (k known) with(others []Engine) known {
	all := known{slices.Clone(k.engines), k.found}
	for i := range others {
		c := others[i].compiled()
		at := slices.IndexFunc(all.engines, func(e engine) bool { return e.name == c.name })
		if at >= 0 {
			all.engines[at] = c
		} else {
			all.engines = append(all.engines, c)
		}
	}
	return all
}

// named returns an engine by its name; nil = there is none.
func (k known) named(name string) *engine {
	for i := range k.engines {
		if k.engines[i].name == name {
			return &k.engines[i]
		}
	}
	return nil
}

// EngineOf returns the engine that the labels of an endpoint name: the value of the first of keys that is set, or "".
func EngineOf(labels messages.Map[string, string], keys []string) string {
	for _, key := range keys {
		if name, _ := labels.Get(key); name != "" {
			return name
		}
	}
	return ""
}

// holds reports whether a sample with these labels counts.
func (c condition) holds(l labels) bool {
	switch c {
	case always:
		return true
	case firstRank:
		return l.is("priority", "")
	case stateAwake:
		return l.is("sleep_state", "awake")
	case typeWaiting:
		return l.is("request_type", "waiting")
	case typeScheduled:
		return l.is("request_type", "scheduled")
	case blockFraction:
		return l.is("kv_cache_block_type", "fraction")
	case blockTokensPer:
		return l.is("kv_cache_block_type", "tokens_per")
	case blockMax:
		return l.is("kv_cache_block_type", "max")
	}
	return false
}
