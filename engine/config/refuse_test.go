package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/strictyaml"
)

// twoPages is a file with two metrics pages, their extractors, and what else stands at the second.
func twoPages(first, second, more string) string {
	const extractor = "{type: prometheus-extractor, name: %s, parameters: {attributes: [{name: example.com/watts, " +
		"metric: w}]}}"
	return newHead + "plugins: [{type: metrics-data-source, name: a}, {type: metrics-data-source, name: b}, " +
		fmt.Sprintf(extractor, "p") + ", " + fmt.Sprintf(extractor, "q") +
		", {type: endpoint-attribute-scorer, parameters: {attributeKey: example.com/watts}}" +
		", {type: core-metrics-extractor}]\ndataLayer:\n  sources: [{pluginRef: a, extractors: [" + first +
		"]}, {pluginRef: b, extractors: [" + second + "]" + more + "}]\n"
}

func TestLoadRefuses(t *testing.T) {
	plugin := func(typ, parameters string) string {
		return head + "plugins:\n- type: " + typ + "\n  parameters: {" + parameters + "}\n"
	}
	for name, c := range map[string]struct{ data, want string }{
		"no metrics": {head + "plugins: [{type: queue-scorer}]\ndataLayer:\n  injectDefaults: false",
			"line 3: plugins[0]: queue-scorer reads queued-requests, which nothing emits; core-metrics-extractor has " +
				"no page"},
		"E24 not YAML":   {"a: b: c", "line 1: not readable as YAML: "},
		"E4 empty":       {"", "empty; without a configuration file the default"},
		"only a comment": {"# nothing\n", "empty; "},
		"null":           {"null", "empty; "},
		"bad UTF-8": {head + "plugins:\n- type: queue-scorer\n  name: \"\xff\"\n",
			"line 5: not readable as YAML: byte 0xff is not UTF-8"},
		"half a rune":       {head + "# \xe2\x82", "line 3: not readable as YAML: byte 0xe2 is not UTF-8"},
		"control character": {head + "\n\n# \x01", "line 5: not readable as YAML: control character U+0001"},
		"list without end": {head + "featureGates: [a,\nplugins: []\n",
			"line 3: not readable as YAML: did not find expected ',' or ']'"},
		"no value": {head + "plugins: }\n",
			"line 3: not readable as YAML: did not find expected node content"},
		"unknown anchor": {head + "plugins: *a\n", "not readable as YAML: unknown anchor 'a' referenced"},
		"UTF-16, cut":    {"\xff\xfea\x00:", "not readable as YAML: incomplete UTF-16 character"},
		"type not supported": {head + "plugins: [{type: latency-scorer}]",
			"line 3: plugins[0].type: latency-scorer is not supported: " + asksPredictor},
		"near unsupported": {head + "plugins: [{type: latency-scorrer}]",
			`line 3: plugins[0].type: unknown plugin type "latency-scorrer", latency-scorer is not supported yet`},
		"near supported": {head + "plugins: [{type: queue-scorrer}]",
			`line 3: plugins[0].type: unknown plugin type "queue-scorrer", did you mean queue-scorer?`},
		"key near unsupported": {head + "dataLayer: {peerDiscover: x}",
			"line 3: dataLayer.peerDiscover: unknown key, peerDiscovery is not supported yet"},
		"key near supported": {head + "dataLayer: {discover: x}",
			"line 3: dataLayer.discover: unknown key, did you mean discovery?"},
		"removed type": {newHead + "plugins: [{type: low-queue-filter}]",
			"line 3: plugins[0].type: low-queue-filter was removed from the format: write queue-scorer"},
		"v1alpha1 key in v1": {newHead + "dataLayer: {peerDiscovery: {pluginRef: x}}",
			"line 3: dataLayer.peerDiscovery: unknown key"},
		"v1alpha1 parser": {newHead + "parser: {pluginRef: x}", "line 3: parser: unknown key"},
		"v1 key in v1alpha1": {head + "dataLayer: {crossReplica: {}}",
			"line 3: dataLayer.crossReplica: unknown key, "},
		"v1 discovery": {newHead + "plugins: [{type: queue-scorer}]\ndataLayer: {discovery: {endpoints: " +
			"{pluginRef: queue-scorer}}}", "line 4: dataLayer.discovery.endpoints.pluginRef: queue-scorer is of type " +
			"queue-scorer, want file-discovery"},
		"v1 discovery as was": {newHead + "dataLayer: {discovery: {pluginRef: x}}",
			"line 3: dataLayer.discovery.pluginRef: unknown key, "},
		"v1 peers": {newHead + "dataLayer: {discovery: {peers: {pluginRef: x}}}",
			"line 3: dataLayer.discovery.peers: has no effect yet"},
		"publish timeout": {newHead + "dataLayer: {crossReplica: {publishTimeout: 1s}}",
			"line 3: dataLayer.crossReplica.publishTimeout: has no effect yet"},
		"not a mapping": {"- a", "line 1: got a list, want a mapping"},
		"a word":        {"hello", `line 1: got "hello", want a mapping`},
		"two documents": {head + "---\n" + head, "line 3: got a second document, want one"},
		"no header":     {"plugins: []", "line 1: apiVersion: missing"},
		"another kind":  {"apiVersion: llm-d.ai/v1alpha1\nkind: Pod", `line 2: kind: got "Pod", want`},
		"key twice":     {head + "kind: x", "line 3: kind: this key stands twice"},
		"key twice, deep": {plugin("load-aware-scorer", "threshold: 1, threshold: 2"),
			"line 5: plugins[0].parameters.threshold: this key stands twice"},
		"key is a list": {head + "[a]: x", "line 3: .: got a key that is a list or a mapping"},
		"E25 unknown gate": {head + "featureGates: [flowControll]",
			`line 3: featureGates[0]: unknown feature gate "flowControll", known are flowControl and`},
		"E26 bad gate": {head + "featureGates: [flowControl=maybe]",
			`line 3: featureGates[0]: got "flowControl=maybe", want flowControl=true or`},
		"strategy of a fairness": {plugin("program-aware-fairness", "strategy: drr"),
			`line 5: plugins[0].parameters.strategy: got "drr", want las`},
		"weight of a flow": {plugin("token-fairness-policy", "weights: {a: 0}"),
			"line 5: plugins[0].parameters.weights.a: got 0, want 0.001 to 1000"},
		"holdback without a floor": {newHead + "plugins:\n- {type: priority-holdback-policy}",
			"line 4: plugins[0].parameters.minCeiling: missing; name the ceiling of the lowest priority"},
		"another kind of usage limit": {newHead + "plugins: [{type: queue-scorer}]\n" +
			"flowControl: {usageLimitPolicyPluginRef: queue-scorer}",
			"line 4: flowControl.usageLimitPolicyPluginRef: queue-scorer is of type queue-scorer, want " +
				"static-usage-limit-policy or priority-holdback-policy or soft-reflective-ceiling-policy"},
		"usage limit of 0": {newHead + "plugins:\n" +
			"- {type: static-usage-limit-policy, parameters: {threshold: .nan}}\n",
			"line 4: plugins[0].parameters.threshold: got NaN, want more than 0, at most 1"},
		"learning without the gate": {head + "plugins: [{type: learning-detector}]",
			"line 3: plugins[0].type: learning-detector needs the feature gate flowControl"},
		"a producer in a profile": {head + "plugins: [{type: inflight-load-producer, name: x}]\n" +
			"schedulingProfiles: [{name: p, plugins: [{pluginRef: x}]}]",
			"line 4: schedulingProfiles[0].plugins[0].pluginRef: x is of type inflight-load-producer, want a filter, " +
				"scorer or picker"},
		"a share above all": {plugin("utilization-filter", "conditions: [{metric: kv-cache-utilization, maxValue: "+
			"1.5}]"), "line 5: plugins[0].parameters.conditions[0].maxValue: got 1.5, want 0 to 1"},
		"two attributes of one reporter": {plugin("request-attribute-reporter", "attributes: [{key: {name: a}, "+
			"expression: usage.total_tokens}, {key: {name: b}, expression: usage.total_tokens}]"),
			"line 5: plugins[0].parameters.attributes: got 2, want 1; write a plugin of this type for each"},
		"type is a list": {head + "plugins: [{type: []}]", "line 3: plugins[0].type: got a list, want a string"},
		"E28 type far from all": {head + "plugins: [{type: zzz}]",
			`line 3: plugins[0].type: unknown plugin type "zzz", known are active-request-scorer, `},
		"no such parameter": {plugin("load-aware-scorer", "x: 1"),
			"line 5: plugins[0].parameters.x: unknown key, the only one is threshold"},
		"E29 parameters a list": {head + "plugins: [{type: queue-scorer, parameters: []}]",
			"line 3: plugins[0].parameters: got a list, want a mapping"},
		"number as text": {plugin("load-aware-scorer", "threshold: '5'"),
			`line 5: plugins[0].parameters.threshold: got "5", want a whole number`},
		"fraction": {plugin("load-aware-scorer", "threshold: 5.5"),
			"line 5: plugins[0].parameters.threshold: got 5.5, want a whole number"},
		"huge number": {plugin("load-aware-scorer", "threshold: 99999999999999999999"),
			"line 5: plugins[0].parameters.threshold: got 99999999999999999999, want a whole"},
		"weight NaN": {plugin("prefix-cache-scorer", "matchLengthWeight: .nan"),
			"line 5: plugins[0].parameters.matchLengthWeight: got NaN, want 0 to 1"},
		"too many endpoints": {plugin("max-score-picker", "maxNumOfEndpoints: 101"),
			"line 5: plugins[0].parameters.maxNumOfEndpoints: got 101, want 0 to 100"},
		"selector operator": {plugin("label-selector-filter", "matchExpressions: [{key: a, operator: Is}]"),
			`line 5: plugins[0].parameters.matchExpressions[0].operator: got "Is", want In`},
		"selector bool": {plugin("label-selector-filter", "matchLabels: {gpu: true}"),
			"line 5: plugins[0].parameters.matchLabels.gpu: got true, want a string"},
		"producer name": {plugin("prefix-cache-scorer", "prefixMatchInfoProducerName: nobody"),
			`line 5: plugins[0].parameters.prefixMatchInfoProducerName: no plugin is named "nobody"`},
		"producer type": {plugin("active-request-scorer", "inFlightLoadProducerName: active-request-scorer"),
			"line 5: plugins[0].parameters.inFlightLoadProducerName: active-request-scorer is of type " +
				"active-request-scorer, want inflight-load-producer"},
		"blocks below none": {plugin("approx-prefix-cache-producer", "lruCapacityPerServer: -1"),
			"line 5: plugins[0].parameters.lruCapacityPerServer: got -1, want 0 or more"},
		"tokenizer": {plugin("tokenizer", "modelName: m"), "line 4: plugins[0].type: tokenizer is not supported: " +
			asksTokenizer},
		"older name of no decider": {plugin("disagg-profile-handler", "deciderPluginName: nobody"),
			`line 5: plugins[0].parameters.deciders.prefill: no plugin is named "nobody"`},
		"notified scorer": {newHead + "plugins: [{type: endpoint-notification-source}, {type: queue-scorer}]\n" +
			"dataLayer: {sources: [{pluginRef: endpoint-notification-source, " +
			"extractors: [{pluginRef: queue-scorer}]}]}",
			"line 4: dataLayer.sources[0].extractors[0].pluginRef: queue-scorer is of type queue-scorer, want " +
				"topology-extractor or inflight-load-producer or mm-embeddings-cache-producer"},
		"threshold": {plugin("utilization-detector", "queueDepthThreshold: 0"),
			"line 5: plugins[0].parameters.queueDepthThreshold: got 0, want 1 or more"},
		"detector without a page": {newHead + "dataLayer: {injectDefaults: false}\nplugins:\n" +
			"- {type: utilization-detector, name: u}\nflowControl: {saturationDetector: {pluginRef: u}}",
			"line 5: plugins[0]: u reads waiting-requests, which nothing emits"},
		"detector of none": {plugin("max-saturation-detector", "detectors: []"),
			"line 5: plugins[0].parameters.detectors: missing; name the detectors that count"},
		"detector of a scorer": {newHead + "plugins:\n- {type: queue-scorer}\n" +
			"- {type: max-saturation-detector, name: m, parameters: {detectors: [queue-scorer]}}\n" +
			"flowControl: {saturationDetector: {pluginRef: m}}",
			"line 5: plugins[1].parameters.detectors[0]: queue-scorer is of type queue-scorer, want a saturation " +
				"detector that is not made of others"},
		"E31 detector of itself": {newHead + "plugins:\n" +
			"- {type: max-saturation-detector, name: m, parameters: {detectors: [m]}}\n" +
			"flowControl: {saturationDetector: {pluginRef: m}}",
			"line 4: plugins[0].parameters.detectors[0]: m is of type max-saturation-detector, want a saturation"},
		"detector of nothing": {newHead + "plugins:\n" +
			"- {type: max-saturation-detector, name: m, parameters: {detectors: [x], stages: {x: [encode]}}}\n" +
			"flowControl: {saturationDetector: {pluginRef: m}}",
			"line 4: plugins[0].parameters.detectors[0]: no plugin is named \"x\""},
		"detector of a stage": {plugin("max-saturation-detector", "detectors: [x], stages: {x: [encode]}"),
			"line 5: plugins[0].parameters.stages.x[0]: got \"encode\", want prefill or decode"},
		"concurrency of what": {plugin("concurrency-detector", "concurrencyMode: bytes"),
			`line 5: plugins[0].parameters.concurrencyMode: got "bytes", want one of [requests tokens hybrid]`},
		"staleness": {plugin("utilization-detector", "metricsStalenessThreshold: 2"),
			"line 5: plugins[0].parameters.metricsStalenessThreshold: got 2, want a duration"},
		"default engine": {plugin("core-metrics-extractor", "defaultEngine: x"),
			`line 5: plugins[0].parameters.defaultEngine: got "x", want one of engineConfigs or of [vllm `},
		"own series, no name": {plugin("core-metrics-extractor", "engineConfigs: [{loraSpec: y}]"),
			"line 5: plugins[0].parameters.engineConfigs[0].name: got none, want what the label"},
		"own series twice": {plugin("core-metrics-extractor", "engineConfigs: [{name: x, loraSpec: y}, {name: x, "+
			"loraSpec: y}]"), "line 5: plugins[0].parameters.engineConfigs[1].name: x stands twice"},
		"own series, none": {plugin("core-metrics-extractor", "engineConfigs: [{name: x}]"),
			"line 5: plugins[0].parameters.engineConfigs[0]: got no series, want at least one"},
		"own series, no brace": {plugin("core-metrics-extractor", `engineConfigs: [{name: x, kvUsageSpec: "y{a=b"}]`),
			`line 5: plugins[0].parameters.engineConfigs[0].kvUsageSpec: got "y{a=b", want a metric as name or name{`},
		"own series, no value": {plugin("core-metrics-extractor", `engineConfigs: [{name: x, loraSpec: "y{a}"}]`),
			`line 5: plugins[0].parameters.engineConfigs[0].loraSpec: got "y{a}", want a metric`},
		"own series, label twice": {plugin("core-metrics-extractor",
			`engineConfigs: [{name: x, loraSpec: "y{a=b,a=c}"}]`),
			`line 5: plugins[0].parameters.engineConfigs[0].loraSpec: got "y{a=b,a=c}", want a metric`},
		"own series, label of nothing": {plugin("core-metrics-extractor",
			"engineConfigs: [{name: x, loraSpec: y, cacheBlockSizeLabelName: z}]"),
			`line 5: plugins[0].parameters.engineConfigs[0].cacheBlockSizeLabelName: got "z" without a cacheInfoSpec`},
		"own series, two sizes": {plugin("core-metrics-extractor",
			"engineConfigs: [{name: x, cacheInfoSpec: y, cacheNumBlocksSpec: z}]"),
			"line 5: plugins[0].parameters.engineConfigs[0].cacheNumBlocksSpec: stands beside cacheInfoSpec"},
		"own attribute": {plugin("core-metrics-extractor",
			"engineConfigs: [{name: x, customMetrics: [{metricSpec: y}]}]"),
			`line 5: plugins[0].parameters.engineConfigs[0].customMetrics[0].attributeKey: got "", want a name of 1`},
		"attribute with a misspelled name": {plugin("core-metrics-extractor",
			"engineConfigs: [{name: x, customMetrics: [{attributeKey: custom.depth, metricSpec: y}]}]") +
			"- {type: endpoint-attribute-scorer, parameters: {attributeKey: custom.dept}}",
			"line 6: plugins[1]: endpoint-attribute-scorer reads custom.dept, which nothing emits, did you mean " +
				"custom.depth?"},
		"own attribute twice": {plugin("core-metrics-extractor", "engineConfigs: [{name: x, customMetrics: "+
			"[{attributeKey: a/b, metricSpec: y}, {attributeKey: a/b, metricSpec: y}]}]"),
			"line 5: plugins[0].parameters.engineConfigs[0].customMetrics[1].attributeKey: a/b stands twice"},
		"own attribute of nothing": {plugin("core-metrics-extractor",
			"engineConfigs: [{name: x, customMetrics: [{attributeKey: a/b}]}]"),
			`line 5: plugins[0].parameters.engineConfigs[0].customMetrics[0].metricSpec: got "", want a metric`},
		"own series, typo": {plugin("core-metrics-extractor", "engineConfigs: [{nam: x}]"),
			"line 5: plugins[0].parameters.engineConfigs[0].nam: unknown key, did you mean name?"},
		"a predictor's name": {plugin("prefix-cache-affinity-filter", "latencyPredictionInfoProducerName: k"),
			"line 5: plugins[0].parameters.latencyPredictionInfoProducerName: has no effect yet, remove it"},
		"scheme": {plugin("metrics-data-source", "scheme: ftp"),
			`line 5: plugins[0].parameters.scheme: got "ftp", want http or https`},
		"interval": {plugin("models-data-source", "interval: -1s"),
			"line 5: plugins[0].parameters.interval: got -1s, want 0s or 10ms or more"},
		"output tokens": {plugin("inflight-load-producer", "maxEstimatedOutputTokens: -5"),
			"line 5: plugins[0].parameters.maxEstimatedOutputTokens: got -5, want 0 or more"},
		"output ratio": {plugin("inflight-load-producer", "outputRatio: -1"),
			"line 5: plugins[0].parameters.outputRatio: got -1, want 0 to 1000"},
		"discovery path": {plugin("file-discovery", "watchFile: true"),
			"line 5: plugins[0].parameters.path: missing"},
		"discovery type": {head + "plugins: [{type: queue-scorer}]\ndataLayer: {discovery: {pluginRef: " +
			"queue-scorer}}", "line 4: dataLayer.discovery.pluginRef: queue-scorer is of type queue-scorer, " +
			"want file-discovery"},
		"peers": {head + "dataLayer: {peerDiscovery: {pluginRef: x}}",
			"line 3: dataLayer.peerDiscovery: has no effect yet"},
		"E40 no source": {head + "plugins: [{type: queue-scorer}]\ndataLayer: {sources: [{pluginRef: " +
			"queue-scorer}]}", "line 4: dataLayer.sources[0].pluginRef: queue-scorer is of type queue-scorer, " +
			"want document-data-source or endpoint-notification-source or k8s-notification-source or " +
			"metrics-data-source or models-data-source"},
		"E41 no extractor": {head + "plugins: [{type: metrics-data-source}]\n" +
			"dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: e}]}]}",
			`line 4: dataLayer.sources[0].extractors[0].pluginRef: no plugin is named "e"`},
		"wrong extractor": {head + "plugins: [{type: metrics-data-source}, {type: models-data-extractor}]\n" +
			"dataLayer: {sources: [{pluginRef: metrics-data-source, " +
			"extractors: [{pluginRef: models-data-extractor}]}]}",
			"line 4: dataLayer.sources[0].extractors[0].pluginRef: models-data-extractor is of type " +
				"models-data-extractor, want core"},
		"extractor twice": {head + "plugins: [{type: metrics-data-source, name: m}, {type: core-metrics-extractor, " +
			"name: e}]\ndataLayer: {sources: [{pluginRef: m, extractors: [{pluginRef: e}, " +
			"{pluginRef: e}]}]}",
			"line 4: dataLayer.sources[0].extractors[1].pluginRef: a second core-metrics-extractor"},
		"document without a place": {newHead + "plugins: [{type: document-data-source}]",
			"line 3: plugins[0].parameters.path: missing; name one of path, url, file and pushed"},
		"document in two places": {plugin("document-data-source", "file: a, url: http://b/c"),
			"line 5: plugins[0].parameters.file: stands beside url, want one of path, url, file and pushed"},
		"document with path and url": {plugin("document-data-source", "path: /a, url: http://b/c"),
			"line 5: plugins[0].parameters.url: stands beside path, want one of path, url, file and pushed"},
		"document of the pool with a port": {plugin("document-data-source", "file: a, port: 80"),
			"line 5: plugins[0].parameters.port: got 80, which only path has"},
		"document at no URL": {plugin("document-data-source", "url: 'hints:9000/a'"),
			`line 5: plugins[0].parameters.url: got "hints:9000/a", want one such as http://127.0.0.1:9000/hints`},
		"document behind a password": {plugin("document-data-source", "url: 'http://me:secret@hints/a'"),
			"line 5: plugins[0].parameters.url: it has a user, want one without"},
		"document with a wrong interval": {plugin("document-data-source", "file: a, interval: -1ms"),
			"line 5: plugins[0].parameters.interval: got -1ms, want 0s or 10ms or more"},
		"document without extractor": {newHead + "plugins: [{type: document-data-source, parameters: {path: /a}}]\n" +
			"dataLayer: {sources: [{pluginRef: document-data-source}]}", "line 4: dataLayer.sources[0]: a further " +
			"document-data-source without an extractor, want a json-extractor"},
		"document with series": {newHead + "plugins: [{type: document-data-source, parameters: {path: /a}}, " +
			"{type: prometheus-extractor, parameters: {attributes: [{name: a/b, metric: c}]}}]\ndataLayer: {sources: " +
			"[{pluginRef: document-data-source, extractors: [{pluginRef: prometheus-extractor}]}]}", "line 4: " +
			"dataLayer.sources[0].extractors[0].pluginRef: prometheus-extractor is of type prometheus-extractor, " +
			"want json-extractor"},
		"objects of no kind": {plugin("k8s-notification-source", "group: apps"),
			"line 5: plugins[0].parameters.version: missing; name the version of the kind, such as v1"},
		"objects of a path": {plugin("k8s-notification-source", "group: a/b, version: v1, kind: K"),
			`line 5: plugins[0].parameters.group: got "a/b", want letters, digits, dots and hyphens`},
		"objects without extractor": {newHead + "plugins: [{type: k8s-notification-source, parameters: {version: v1, " +
			"kind: Pod}}]\ndataLayer: {sources: [{pluginRef: k8s-notification-source}]}", "line 4: " +
			"dataLayer.sources[0]: a further k8s-notification-source without an extractor, want a json-extractor"},
		"objects beside a file of endpoints": {newHead + "plugins: [{type: k8s-notification-source, parameters: " +
			"{version: v1, kind: Pod}}, {type: json-extractor, parameters: {attributes: [{name: a/b, field: c}]}}, " +
			"{type: file-discovery, parameters: {path: e}}]\ndataLayer:\n  discovery: {endpoints: {pluginRef: " +
			"file-discovery}}\n  sources: [{pluginRef: k8s-notification-source, extractors: [{pluginRef: " +
			"json-extractor}]}]", "line 6: dataLayer.sources[0]: the objects are watched where pods of Kubernetes " +
			"are followed, and file-discovery names a file of endpoints"},
		"no field": {plugin("json-extractor", "attributes: [{name: a/b, field: a..b}]"),
			`line 5: plugins[0].parameters.attributes[0].field: got "a..b", want the path of a field`},
		"field twice": {plugin("json-extractor", "attributes: [{name: a/b, field: a}, {name: a/b, field: b}]"),
			"line 5: plugins[0].parameters.attributes[1].name: a/b stands twice"},
		"no fields": {plugin("json-extractor", ""),
			"line 5: plugins[0].parameters.attributes: got none, want at least one"},
		"two main pages": {twoPages("{pluginRef: core-metrics-extractor}", "{pluginRef: core-metrics-extractor}", ""),
			"line 5: dataLayer.sources[1]: a second source with a core-metrics-extractor, beside dataLayer.sources[0]"},
		"further page without extractor": {twoPages("", "", ""),
			"line 5: dataLayer.sources[1]: a further metrics-data-source without an extractor"},
		"extractor on two pages": {twoPages("{pluginRef: p}", "{pluginRef: p}", ""),
			"line 5: dataLayer.sources[1].extractors[0].pluginRef: p stands on a, too, want an extractor for each"},
		"selects by no label": {twoPages("", "{pluginRef: p}", `, select: {"a b": c}`),
			"line 5: dataLayer.sources[1].select.a b: want a label key such as"},
		"selects by no value": {twoPages("", "{pluginRef: p}", `, select: {a: "-"}`),
			`line 5: dataLayer.sources[1].select.a: got "-", want a label value`},
		"attribute of two pages": {twoPages("{pluginRef: q}", "{pluginRef: p}", "") +
			"schedulingProfiles: [{name: d, plugins: [{pluginRef: endpoint-attribute-scorer}]}]\n",
			"line 3: plugins[4]: endpoint-attribute-scorer reads example.com/watts, which q and p emit: name one"},
		"source twice": {head + "plugins: [{type: metrics-data-source, name: m}]\ndataLayer: {sources: " +
			"[{pluginRef: m}, {pluginRef: m}]}", "line 4: dataLayer.sources[1]: a second source"},
		"E45 parser missing": {head + "requestHandler: {parsers: [{pluginRef: mine}]}",
			`line 3: requestHandler.parsers[0].pluginRef: no plugin is named "mine", add it to plugins`},
		"parser of another name": {head + "plugins: [{type: queue-scorer, name: openai-parser}]\n" +
			"requestHandler: {parsers: [{pluginRef: openai-parser}]}",
			"line 4: requestHandler.parsers[0].pluginRef: openai-parser is of type queue-scorer, want openai-parser"},
		"E44 parser type": {head + "plugins: [{type: queue-scorer}]\nparser: {pluginRef: queue-scorer}",
			"line 4: parser.pluginRef: queue-scorer is of type queue-scorer, want " +
				"openai-parser or anthropic-parser or vllmhttp-parser or sglanghttp-parser or vllmgrpc-parser or " +
				"vertexai-parser or passthrough-parser"},
		"E32 profile name": {head + "schedulingProfiles:\n- plugins: []",
			"line 4: schedulingProfiles[0].name: missing"},
		"E35 profile twice": {head + "schedulingProfiles: [{name: a}, {name: a}]",
			"line 3: schedulingProfiles[1].name: a stands twice"},
		"E38 two profiles": {head + "schedulingProfiles: [{name: a}, {name: b}]",
			"line 3: schedulingProfiles: got 2 profiles and no profile handler"},
		"E39 two for a single": {head + "plugins: [{type: single-profile-handler, name: h}]\n" +
			"schedulingProfiles: [{name: a}, {name: b}]", "line 4: schedulingProfiles: got 2 profiles, want one for h"},
		"shadows alone": {head + "schedulingProfiles: [{name: a, shadow: true}]",
			"line 3: schedulingProfiles: got 0 profiles and no profile handler"},
		"E37 two handlers": {head + "plugins:\n- {type: single-profile-handler}\n" +
			"- {type: single-profile-handler, name: h}", "line 5: plugins[1]: h is a second profile handler"},
		"E36 two pickers": {head + "plugins:\n- {type: random-picker}\n- {type: max-score-picker}",
			"line 5: plugins[1]: max-score-picker is a second picker"},
		"objective without a name": {newHead + "objectives:\n- priority: 3",
			"line 4: objectives[0].name: missing"},
		"objective twice": {newHead + "objectives:\n- {name: a}\n- {name: b}\n- {name: a, priority: 1}",
			"line 6: objectives[2].name: a stands twice, first as objectives[0]"},
		"long objective": {head + "objectives: [{name: " + strings.Repeat("x", 129) + "}]",
			"line 3: objectives[0].name: got 129 bytes, want at most 128"},
		"high priority": {newHead + "objectives: [{name: a, priority: 2147483648}]",
			"line 3: objectives[0].priority: got 2147483648, want -2147483648 to 2147483647"},
		"low priority": {newHead + "objectives: [{name: a, priority: -2147483649}]",
			"line 3: objectives[0].priority: got -2147483649, want -2147483648 to 2147483647"},
		"priority's kind": {newHead + "objectives: [{name: a, priority: high}]",
			`line 3: objectives[0].priority: got "high", want a whole number`},
		"rewrite without a name": {newHead + "modelRewrites:\n- rules: [{targets: [{modelRewrite: b}]}]",
			"line 4: modelRewrites[0].name: missing"},
		"rewrite twice": {newHead + "modelRewrites:\n- {name: a, rules: [{targets: [{modelRewrite: b}]}]}\n" +
			"- {name: a, rules: [{matches: [{model: {value: m}}], targets: [{modelRewrite: b}]}]}",
			"line 5: modelRewrites[1].name: a stands twice, first as modelRewrites[0]"},
		"rewrite without rules": {newHead + "modelRewrites:\n- name: a", "line 4: modelRewrites[0].rules: missing"},
		"rule without targets": {newHead + "modelRewrites:\n- name: a\n  rules:\n  - matches: [{model: {value: m}}]",
			"line 6: modelRewrites[0].rules[0].targets: missing"},
		"target without a model": {newHead + "modelRewrites: [{name: a, rules: [{targets: [{weight: 1}]}]}]",
			"line 3: modelRewrites[0].rules[0].targets[0].modelRewrite: missing"},
		"control character in a target": {
			newHead + "modelRewrites: [{name: a, rules: [{targets: [{modelRewrite: \"x\\ny\"}]}]}]",
			"line 3: modelRewrites[0].rules[0].targets[0].modelRewrite: "},
		"weight below 0": {newHead + "modelRewrites: [{name: a, rules: [{targets: [{modelRewrite: b, weight: -1}]}]}]",
			"line 3: modelRewrites[0].rules[0].targets[0].weight: got -1, want 1 to 1000000"},
		"high weight": {newHead +
			"modelRewrites: [{name: a, rules: [{targets: [{modelRewrite: b, weight: 1000001}]}]}]",
			"line 3: modelRewrites[0].rules[0].targets[0].weight: got 1000001, want 1 to 1000000"},
		"weights of 0": {newHead + "modelRewrites: [{name: a, rules: [{targets: [{modelRewrite: b, weight: 0}]}]}]",
			"line 3: modelRewrites[0].rules[0].targets[0].weight: got 0, want 1 to 1000000"},
		"match without a model": {newHead + "modelRewrites:\n- name: a\n  rules:\n  - matches: [{}]\n" +
			"    targets: [{modelRewrite: b}]", "line 6: modelRewrites[0].rules[0].matches[0].model.value: missing"},
		"match of another type": {newHead + "modelRewrites: [{name: a, rules: [{matches: [{model: {type: Prefix, " +
			"value: m}}], targets: [{modelRewrite: b}]}]}]",
			"line 3: modelRewrites[0].rules[0].matches[0].model.type: got Prefix, want Exact"},
		"pool of a rewrite": {newHead + "modelRewrites: [{name: a, poolRef: {name: p}}]",
			"line 3: modelRewrites[0].poolRef: unknown key, known are name, rules"},
		"pool of an objective": {newHead + "objectives: [{name: a, poolRef: {name: p}}]",
			"line 3: objectives[0].poolRef: unknown key, known are name, priority"},
		"detector undefined": {head + "flowControl: {saturationDetector: {pluginRef: x}}",
			`line 3: flowControl.saturationDetector.pluginRef: no plugin is named "x"`},
		"detector type": {head + "plugins: [{type: queue-scorer}]\nsaturationDetector: {pluginRef: queue-scorer}",
			"line 4: saturationDetector.pluginRef: queue-scorer is of type queue-scorer, want a saturation detector, " +
				"such " +
				"as utilization-detector"},
		"no quantity": {head + "flowControl: {maxBytes: lots}",
			`line 3: flowControl.maxBytes: got "lots", want a quantity`},
		"E52 less than none": {head + "flowControl: {maxRequests: -1}",
			"line 3: flowControl.maxRequests: got -1, want 0 or more"},
		"E51 negative bytes": {head + "flowControl: {maxBytes: -1k}",
			"line 3: flowControl.maxBytes: got -1000, want 0 or more"},
		"E53 band negative": {head + "flowControl: {priorityBands: [{priority: 0, maxBytes: -1}]}",
			"line 3: flowControl.priorityBands[0].maxBytes: got -1, want 0 or more"},
		"E54 band requests": {head + "flowControl: {priorityBands: [{priority: 0, maxRequests: -1}]}",
			"line 3: flowControl.priorityBands[0].maxRequests: got -1, want 0 or more"},
		"band shares": {head + "flowControl:\n  priorityBands:\n  - {priority: 1, minShare: 0.6}\n  - {minShare: 0.4}",
			"line 6: flowControl.priorityBands[1].minShare: the shares up to this one are 1 together, " +
				"want less than 1"},
		"band share": {head + "flowControl: {priorityBands: [{priority: 0, minShare: -0.1}]}",
			"line 3: flowControl.priorityBands[0].minShare: got -0.1, want 0 or more, and less than 1"},
		"template share": {head + "flowControl: {defaultPriorityBand: {minShare: 0.1}}",
			"line 3: flowControl.defaultPriorityBand.minShare: this may be many bands, " +
				"want it at one of priorityBands"},
		"E55 template's bytes": {head + "flowControl: {defaultPriorityBand: {maxBytes: -1}}",
			"line 3: flowControl.defaultPriorityBand.maxBytes: got -1, want 0 or more"},
		"E56 template": {head + "flowControl: {defaultPriorityBand: {maxRequests: -1}}",
			"line 3: flowControl.defaultPriorityBand.maxRequests: got -1, want 0 or more"},
		"high band": {head + "flowControl: {priorityBands: [{priority: 2147483648}]}",
			"line 3: flowControl.priorityBands[0].priority: got 2147483648, want -2147483648 to 2147483647"},
		"band twice": {head + "flowControl:\n  priorityBands:\n  - priority: 3\n  - {}\n  - priority: 3",
			"line 7: flowControl.priorityBands[2].priority: a second band of priority 3, want one"},
		"TTL": {head + "flowControl: {defaultRequestTTL: -5s}",
			"line 3: flowControl.defaultRequestTTL: got -5s, want 0s or more"},
		"no-endpoint TTL": {head + "flowControl: {noEndpointRequestTTL: -5s}",
			"line 3: flowControl.noEndpointRequestTTL: got -5s, want 0s or more"},
		"TTL of a band": {newHead + "flowControl: {priorityBands: [{defaultRequestTTL: -5s}]}",
			"line 3: flowControl.priorityBands[0].defaultRequestTTL: got -5s, want 0s or more"},
		"TTL of a template": {newHead + "flowControl: {defaultNegativePriorityBand: {defaultRequestTTL: -5s}}",
			"line 3: flowControl.defaultNegativePriorityBand.defaultRequestTTL: got -5s, want 0s or more"},
		"eviction": {newHead + "flowControl: {enableEviction: 1}",
			"line 3: flowControl.enableEviction: got 1, want true or false"},
		"unlisted policy": {newHead +
			"flowControl: {priorityBands: [{fairnessPolicyRef: round-robin-fairness-policy}]}",
			`line 3: flowControl.priorityBands[0].fairnessPolicyRef: no plugin is named "round-robin-fairness-policy"`},
		"E42 unknown policy": {newHead + "flowControl: {usageLimitPolicyPluginRef: no-such-policy}",
			`line 3: flowControl.usageLimitPolicyPluginRef: no plugin is named "no-such-policy"`},
		"E43 policy of another kind": {newHead + "plugins: [{type: edf-ordering-policy, name: edf}]\n" +
			"flowControl: {defaultPriorityBand: {fairnessPolicyRef: edf}}",
			"line 4: flowControl.defaultPriorityBand.fairnessPolicyRef: edf is of type edf-ordering-policy, want " +
				"global-strict-fairness-policy or round-robin-fairness-policy or token-fairness-policy or " +
				"program-aware-fairness"},
		"scorer as a policy": {newHead + "plugins: [{type: queue-scorer}]\n" +
			"flowControl: {defaultPriorityBand: {orderingPolicyRef: queue-scorer}}",
			"line 4: flowControl.defaultPriorityBand.orderingPolicyRef: queue-scorer is of type queue-scorer, " +
				"want fcfs-ordering-policy or "},
		"policy that a source names": {newHead + "plugins:\n- {type: program-aware-fairness, name: h}\n" +
			"dataLayer: {sources: [{pluginRef: h}]}",
			"line 5: dataLayer.sources[0].pluginRef: h is of type program-aware-fairness, want document-data-source"},
		"control characters": {head + "\"a\\nb\": x", "line 3: a?b: unknown key"},
		"itself":             {head + "plugins: &a [*a]", "line 3: plugins[0]: got a list, want a mapping"},
		"merges itself":      {head + "plugins: [&a {<<: *a}]", "line 3: plugins[0]: merge keys are nested deeper"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load([]byte(c.data), three)
			found := false
			for _, line := range strings.Split(fmt.Sprint(err), "\n") {
				found = found || strings.HasPrefix(line, c.want)
			}
			if !found {
				t.Errorf("Load(%q): got\n%v\nwant a line %q", c.data, err, c.want)
			}
		})
	}
}

func TestLoadBounds(t *testing.T) {
	aliases := head + "x: &a [" + strings.Repeat("r, ", 1000) +
		"]\nplugins: [{type: label-selector-filter, parameters: {matchExpressions: ["
	for name, c := range map[string]struct{ data, want string }{
		"size": {strings.Repeat("#", strictyaml.MaxBytes+1), "more than 1048576 bytes, the limit"},
		"aliases": {aliases + strings.Repeat("{key: k, operator: In, values: *a}, ", 1000) + "]}}]",
			"line 1: got more than 100000 values"},
		"names": {head + "plugins: [" + strings.Repeat("{type: zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz}, ", 20_000) +
			"]", "more"},
		"profiles": {head + "plugins: [" + strings.Repeat("{type: queue-scorer}, ", 10_000) +
			"]\nschedulingProfiles: [" + strings.Repeat("{name: a, plugins: [{pluginRef: x}]}, ", 10_000) + "]",
			"more"},
		"problems": {head + "featureGates: [" + strings.Repeat("x, ", 1000) + "]", "and 900 more"},
		"depth":    {strings.Repeat("[", 100_000), "not readable as YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Load([]byte(c.data), three); !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("got %.300v, want %q", err, c.want)
			}
		})
	}
}

// FuzzLoad wants a configuration or problems of any bytes, each problem on a line of its own.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		"", builtIn, head, head + "plugins: [&a {type: queue-scorer}, {<<: *a, name: b}]",
		head + "flowControl: {maxBytes: 1Gi}",
		head + "plugins: [{type: label-selector-filter, parameters: {matchLabels: {a: b}, " +
			"matchExpressions: [{key: a, operator: In, values: [b]}]}}]",
		`{"apiVersion":"llm-d.ai/v1alpha1","kind":"EndpointPickerConfig","featureGates":["flowControl=false"]}`,
		"a: b: c", "- &a [*a]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Load(data, three)
		if (c == nil) == (err == nil) {
			t.Fatalf("Load(%q) = %v, %v; want one of both", data, c, err)
		}
		if err == nil {
			if len(c.Plan.Profiles()) == 0 || c.Plan.Handler() == nil || c.Plan.Profiles()[0].Picker.Picker == nil {
				t.Fatalf("Load(%q) = %+v, want a complete configuration", data, c)
			}
			return
		}
		var list *strictyaml.Error
		if !errors.As(err, &list) {
			t.Fatalf("Load(%q): %T, want *Error", data, err)
		}
		if lines := len(strings.Split(err.Error(), "\n")); len(list.Problems) == 0 || lines > len(list.Problems)+1 {
			t.Fatalf("Load(%q): %d problems on %d lines", data, len(list.Problems), lines)
		}
	})
}
