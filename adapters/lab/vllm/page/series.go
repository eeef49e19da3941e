package page

import (
	"fmt"
	"strconv"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
)

// Layout is what a page says of its server for as long as that runs.
type Layout struct {
	Model                 string
	KVBlocks, BlockTokens int
	MaxModelLen           int // tokens; 0 = no limit
	MaxLoRAs              int // 0 = LoRA is off
	Started               time.Time
}

// New lays out the metrics of vLLM 0.32 that an engine like ours has, in its order. Of the process only the start time
// is told.
func New(cfg Layout, tally *batch.Tally) *Page {
	p := &Page{
		slots:   strconv.Itoa(cfg.MaxLoRAs),
		labels:  `engine="0",model_name="` + escape(cfg.Model) + `"`,
		model:   `model_name="` + escape(cfg.Model) + `"`,
		created: string(appendValue(nil, unix(cfg.Started))),
	}
	const start = "process_start_time_seconds"
	p.comment(start, "gauge", "Start time of the process since unix epoch in seconds.")
	p.lines = append(p.lines, line{text: start + " " + p.created + "\n"})
	p.queues()
	p.tokenCounters()
	p.endCounters()
	p.histograms(tally)
	if cfg.MaxLoRAs > 0 {
		p.comment("vllm:lora_requests_info", "gauge", "Running stats on lora requests.")
		p.lines = append(p.lines, line{loras: true})
	}
	p.comment("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
	p.lines = append(p.lines, line{text: cacheConfig(cfg)})
	return p
}

// with adds a label of its own to those of every series; the order of labels is the alphabet's.
func (p *Page) with(name, value string) string {
	label := name + `="` + value + `"`
	if name < "model_name" {
		return `engine="0",` + label + "," + p.model
	}
	return p.labels + "," + label
}

func zero(*View) float64 { return 0 }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (p *Page) queues() {
	p.gauge("vllm:num_requests_running", "Number of requests in model execution batches.",
		labelled{p.labels, func(v *View) float64 { return float64(v.Running) }})
	p.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.",
		labelled{p.labels, func(v *View) float64 { return float64(v.Waiting) }})
	p.gauge("vllm:num_requests_waiting_by_reason",
		"Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; "+
			"'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all "+
			"reasons equals vllm:num_requests_waiting.",
		labelled{p.with("reason", "capacity"), func(v *View) float64 { return float64(v.Waiting - v.Deferred) }},
		labelled{p.with("reason", "deferred"), func(v *View) float64 { return float64(v.Deferred) }})
	p.gauge("vllm:engine_sleep_state",
		"Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded "+
			"= 1 means sleep level 1; discard_all = 1 means sleep level 2.",
		labelled{p.with("sleep_state", "awake"), func(v *View) float64 { return truth(!v.Asleep) }},
		labelled{p.with("sleep_state", "weights_offloaded"),
			func(v *View) float64 { return truth(v.Asleep && v.Level == 1) }},
		labelled{p.with("sleep_state", "discard_all"),
			func(v *View) float64 { return truth(v.Asleep && v.Level == 2) }})
	p.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.",
		labelled{p.labels, func(v *View) float64 { return v.KVUsedRatio }})
}

func (p *Page) tokenCounters() {
	p.counter("vllm:prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.",
		labelled{p.labels, func(v *View) float64 { return float64(v.QueriedTokens) }})
	p.counter("vllm:prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.",
		labelled{p.labels, func(v *View) float64 { return float64(v.HitTokens) }})
	p.counter("vllm:num_preemptions", "Cumulative number of preemption from the engine.",
		labelled{p.labels, func(v *View) float64 { return float64(v.Preemptions) }})
	p.counter("vllm:prompt_tokens", "Number of prefill tokens processed.",
		labelled{p.labels, func(v *View) float64 { return float64(v.PromptTokens) }})
	p.counter("vllm:prompt_tokens_by_source", "Number of prompt tokens by source.",
		labelled{p.with("source", "local_compute"),
			func(v *View) float64 { return float64(v.PromptTokens - v.CachedTokens) }},
		labelled{p.with("source", "local_cache_hit"), func(v *View) float64 { return float64(v.CachedTokens) }},
		labelled{p.with("source", "external_kv_transfer"), zero})
	p.counter("vllm:prompt_tokens_cached", "Number of cached prompt tokens (local + external).",
		labelled{p.labels, func(v *View) float64 { return float64(v.CachedTokens) }})
	p.counter("vllm:generation_tokens", "Number of generation tokens processed.",
		labelled{p.labels, func(v *View) float64 { return float64(v.GenerationTokens) }})
}

func (p *Page) endCounters() {
	ended := func(why batch.Reason) labelled {
		return labelled{p.with("finished_reason", why.String()),
			func(v *View) float64 { return float64(v.Finished[why]) }}
	}
	p.counter("vllm:request_success", "Count of successfully processed requests.",
		ended(batch.Stop), ended(batch.Length), ended(batch.Abort),
		labelled{p.with("finished_reason", "error"), zero}, labelled{p.with("finished_reason", "repetition"), zero})
	p.counter("vllm:admission_rejections", "Number of admission attempts rejected by a queue limit, by reason.",
		labelled{p.model + `,reason="max_num_queued_reqs"`, func(v *View) float64 { return float64(v.Rejected) }},
		labelled{p.model + `,reason="max_num_queued_tokens"`, zero})
}

func (p *Page) histograms(y *batch.Tally) {
	const phase = "Histogram of time spent in %s phase for request."
	p.histogram("vllm:request_prompt_tokens", "Number of prefill tokens processed.", &y.PromptLength)
	p.histogram("vllm:request_generation_tokens", "Number of generation tokens processed.", &y.AnswerLength)
	p.histogram("vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.", &y.StepTokens)
	p.histogram("vllm:request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens.",
		&y.LongestAnswer)
	p.histogram("vllm:request_params_n", "Histogram of the n request parameter.", &y.Choices)
	p.histogram("vllm:request_params_max_tokens", "Histogram of the max_tokens request parameter.", &y.MaxTokens)
	p.histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", &y.FirstToken)
	p.histogram("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", &y.InterToken)
	p.histogram("vllm:request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.",
		&y.PerOutputToken)
	p.histogram("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", &y.EndToEnd)
	p.histogram("vllm:request_queue_time_seconds", fmt.Sprintf(phase, "WAITING"), &y.Queue)
	p.histogram("vllm:request_inference_time_seconds", fmt.Sprintf(phase, "RUNNING"), &y.Inference)
	p.histogram("vllm:request_prefill_time_seconds", fmt.Sprintf(phase, "PREFILL"), &y.Prefill)
	p.histogram("vllm:request_decode_time_seconds", fmt.Sprintf(phase, "DECODE"), &y.Decode)
	p.histogram("vllm:request_num_preemptions", "Histogram of the number of times a request was preempted.",
		&y.RequestPreemptions)
	p.histogram("vllm:request_prefill_kv_computed_tokens",
		"Histogram of new KV tokens computed during prefill (excluding cached tokens).", &y.ComputedTokens)
}

// cacheConfig is the one series of vllm:cache_config_info. What our engine has no equivalent of stands as vLLM has it
// by default.
func cacheConfig(cfg Layout) string {
	size := cfg.KVBlocks * cfg.BlockTokens
	concurrency := 1.0
	if cfg.MaxModelLen > 0 {
		concurrency = float64(size) / float64(cfg.MaxModelLen)
	}
	return fmt.Sprintf(`vllm:cache_config_info{_block_size_resolved="True",block_size="%[1]d",cache_dtype="auto",`+
		`cache_hit_alignment_tokens="None",effective_attention_block_size="%[1]d",enable_mamba_shared_prefix_checkpoint="False",`+
		`enable_prefix_caching="True",engine="0",gpu_memory_utilization="0.92",hash_block_size="None",is_attention_free="False",`+
		`kv_cache_dtype_skip_layers="[]",kv_cache_layout="None",kv_cache_max_concurrency="%[4]s",kv_cache_memory_bytes="None",`+
		`kv_cache_size_tokens="%[3]d",kv_offloading_backend="native",kv_offloading_size="None",kv_sharing_fast_prefill="False",`+
		`mamba_block_size="None",mamba_cache_dtype="auto",mamba_cache_mode="none",mamba_page_size_padded="None",`+
		`mamba_ssm_cache_dtype="auto",num_cpu_blocks="None",num_gpu_blocks="%[2]d",num_gpu_blocks_override="None",`+
		`prefix_cache_retention_interval="0",prefix_caching_hash_algo="sha256",prefix_match_unit="None",replayssm_buffer_len="16",`+
		`skip_page_size_padded="None",sliding_window="None",swa_bounded_replay="True",use_kda_recoverssm="False",`+
		`use_replayssm="False",user_specified_block_size="False"} 1.0`+"\n",
		cfg.BlockTokens, cfg.KVBlocks, size, appendValue(nil, concurrency))
}
