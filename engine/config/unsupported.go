package config

import "slices"

// unsupported lists the plugin types of the reference that have no counterpart here.
var unsupported = []string{
	// Scorers.
	"token-load-scorer", "no-hit-lru-scorer", "context-length-aware", "latency-scorer",
	"mm-embeddings-cache-scorer", "session-affinity-scorer", "topology-affinity-scorer", "header-label-affinity-scorer",
	"multicluster-queue-scorer", "multicluster-kv-cache-utilization-scorer",
	"multicluster-prefix-cache-scorer",

	// Filters.
	"prefix-cache-affinity-filter", "slo-headroom-tier-filter",
	"utilization-filter", "topology-affinity-filter", "session-affinity-filter",
	"multicluster-session-affinity-filter", "header-based-testing-filter",

	// Request control.
	"token-producer", "multicluster-approx-prefix-cache-producer", "precise-prefix-cache-producer",
	"burst-prefix-cache-producer", "mm-embeddings-cache-producer", "predicted-latency-producer", "session-id-producer",
	"p2p-source-producer", "agent-identity", "disaggregatedset-rollout-screener", "latency-slo-admitter",
	"probabilistic-admitter", "request-attribute-reporter", "destination-endpoint-served-verifier",

	// Parsers.
	"anthropic-parser", "vllmhttp-parser", "sglanghttp-parser", "vllmgrpc-parser", "vertexai-parser",

	// Data layer.
	"dcgm-data-source", "dcgm-extractor", "topology-extractor", "k8s-notification-source",
	"endpoint-notification-source",
	"multicluster-file-discovery", "multicluster-metrics-data-source", "multicluster-metrics-extractor",

	// Flow control.
	"concurrency-detector", "global-strict-fairness-policy", "round-robin-fairness-policy", "program-aware-fairness",
	"fcfs-ordering-policy", "edf-ordering-policy", "slo-deadline-ordering-policy", "static-usage-limit-policy",
	"priority-holdback-policy", "soft-reflective-ceiling-policy", "sheddable-eviction-filter",
	"priority-then-time-eviction-order-policy",
}

// Types of plugins that the section flowControl names. The first of each holds if the section names none, and need not
// be listed to be named.
var (
	fairnessTypes   = []string{"global-strict-fairness-policy", "round-robin-fairness-policy", "program-aware-fairness"}
	orderingTypes   = []string{"fcfs-ordering-policy", "edf-ordering-policy", "slo-deadline-ordering-policy"}
	usageLimitTypes = []string{"static-usage-limit-policy", "priority-holdback-policy",
		"soft-reflective-ceiling-policy"}
	detectorTypes = []string{"utilization-detector", "concurrency-detector"}
)

// idle stands for a plugin of a type that is not supported yet and that flowControl may name. The section has no
// effect, so it does no harm there. An entry of plugins that nothing names is refused like any other that is not
// supported, for its author expects it to act, and so is one that a profile names. Its parameters are not read.
type idle struct{}

// idleTypes lists the types that idle stands for.
func idleTypes() []string {
	return slices.DeleteFunc(slices.Concat(fairnessTypes, orderingTypes, usageLimitTypes, detectorTypes),
		func(typ string) bool { return !slices.Contains(unsupported, typ) })
}

// renamed maps former names of plugin types to the present ones. Their parameters mean the same.
var renamed = map[string]string{
	"by-label-selector": "label-selector-filter",
}

// removed maps plugin types that the format no longer has to what to write instead.
var removed = map[string]string{
	"by-label":                    "write label-selector-filter with matchExpressions",
	"disagg-headers-handler":      "leave it out, the profile handler sets these headers",
	"pd-profile-handler":          "write disagg-profile-handler",
	"precise-prefix-cache-scorer": "write prefix-cache-scorer",
	"prefill-header-handler":      "leave it out, the profile handler sets this header",
	"tokenizer":                   "token-producer took its place, which is not supported yet",
}
