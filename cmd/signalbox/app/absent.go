package app

import "github.com/spf13/pflag"

// absentFlags are the reference's flags that serve has not, with what to do instead.
var absentFlags = map[string]string{
	"grpc-max-recv-msg-size":              "--max-body-bytes bounds request bodies, and the messages that carry them",
	"grpc-max-send-msg-size":              "leave it out: what is sent is never longer than what came",
	"pool-group":                          "leave it out: no InferencePool is read",
	"endpoint-selector":                   "name the endpoints in a file, with --endpoints FILE",
	"endpoint-target-ports":               "name the endpoints with their ports in a file, with --endpoints FILE",
	"disable-endpoint-subset-filter":      "leave it out, and send no subset hint where all endpoints may serve",
	"emit-endpoint-scores":                "signalbox explain, /debug/requests and the log at -v 4 have the scores",
	"refresh-prometheus-metrics-interval": "leave it out: the gauges of the pool are computed at each scrape",
	"allow-experimental-plugins":          "leave it out: every plugin type that is there may be named",
	"ha-enable-leader-election":           "leave it out: several Signalboxes serve at the same time, see envoy-config --other-picker",
	"enable-grpc-stream-metrics":          "leave it out: the metrics of streams are always there",
	"tracing":                             "leave it out: signalbox explain and /debug/requests say what became of a request",
	"fairness-id-metric-label-limit":      "leave it out: names of flows are bounded by the size of the metrics page",

	"total-queued-requests-metric":     engineMetrics,
	"total-running-requests-metric":    engineMetrics,
	"kv-cache-usage-percentage-metric": engineMetrics,
	"lora-info-metric":                 engineMetrics,
	"cache-info-metric":                engineMetrics,
}

const engineMetrics = "leave it out: the engine is found from its metrics page, which metrics-data-source configures"

// absent says what to do instead of a flag of the reference; "" = it is none, or the command has none of serve's flags.
func absent(flags *pflag.FlagSet, name string) string {
	if flags.Lookup("grpc-port") == nil {
		return ""
	}
	return absentFlags[name]
}
