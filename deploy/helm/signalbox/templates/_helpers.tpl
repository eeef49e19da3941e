{{/* The name of all but the InferencePool. It is the reference's, so that its chart can be replaced in place. */}}
{{- define "signalbox.name" -}}
{{ .Release.Name | lower | trim | trunc 40 }}-epp
{{- end }}

{{/* The name of what no namespace has. */}}
{{- define "signalbox.clusterName" -}}
{{ printf "%s-%s-epp" (.Release.Name | lower | trim | trunc 40) (.Release.Namespace | trunc 40) }}
{{- end }}

{{- define "signalbox.labels" -}}
app.kubernetes.io/name: {{ include "signalbox.name" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The labels of the pods. A Deployment never changes its selector, so this is the reference's too. */}}
{{- define "signalbox.selector" -}}
{{ if .Values.router.inferencePool.create }}llm-d-router-gateway{{ else }}llm-d-router-standalone{{ end }}: {{ include "signalbox.name" . }}
{{- end }}

{{/* A number, text or bool as it is written. Numbers of a file of values are floats, and large ones would get exponents. */}}
{{- define "signalbox.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{/* Each flag of the user as it counts, by name: "signalbox.flag" (list $ "v" "2") is the value of v, or else 2. */}}
{{- define "signalbox.flag" -}}
{{- $flags := (index . 0).Values.router.epp.flags -}}
{{- if hasKey $flags (index . 1) }}{{ include "signalbox.text" (index $flags (index . 1)) }}{{ else }}{{ index . 2 }}{{ end -}}
{{- end }}

{{/* "yes" if one of several pickers leads. */}}
{{- define "signalbox.elects" -}}
{{- $several := and (gt (int .Values.router.epp.replicas) 1) (not .Values.router.epp.autoscaling.enabled) -}}
{{- if eq (include "signalbox.flag" (list . "ha-enable-leader-election" (toString $several))) "true" }}yes{{ end -}}
{{- end }}

{{/* "yes" if several pickers may serve at once. */}}
{{- define "signalbox.shares" -}}
{{- $most := ternary .Values.router.epp.autoscaling.maxReplicas .Values.router.epp.replicas .Values.router.epp.autoscaling.enabled -}}
{{- if and (gt (int $most) 1) (not (include "signalbox.elects" .)) }}yes{{ end -}}
{{- end }}

{{/* "yes" if the metrics port asks Kubernetes who may read it. */}}
{{- define "signalbox.guards" -}}
{{- $auth := toString .Values.router.monitoring.prometheus.auth.enabled -}}
{{- if and (eq (include "signalbox.flag" (list . "metrics-endpoint-auth" $auth)) "true") (not (hasKey .Values.router.epp.flags "metrics-token-file")) }}yes{{ end -}}
{{- end }}

{{/* The seconds of a duration as Go writes it, such as 1m30s. */}}
{{- define "signalbox.seconds" -}}
{{- $units := dict "h" 3600.0 "m" 60.0 "s" 1.0 "ms" 0.001 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|h|m|s)" . -1 -}}
{{- $sum = addf $sum (mulf (regexFind "[0-9.]+" .) (get $units (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{ $sum }}
{{- end }}

{{/* The seconds that a leader goes on before it is asked to end, for the pods of an update to start meanwhile. */}}
{{- define "signalbox.pause" -}}
{{ if include "signalbox.elects" . }}5{{ else }}0{{ end }}
{{- end }}

{{/* The seconds that the end of a pod takes at most, without what Kubernetes adds. */}}
{{- define "signalbox.end" -}}
{{ add (include "signalbox.pause" . | int) (include "signalbox.seconds" (include "signalbox.flag" (list . "drain-timeout" "30s")) | float64 | ceil | int) }}
{{- end }}

{{/* The arguments of the picker. */}}
{{- define "signalbox.args" -}}
{{- $epp := .Values.router.epp -}}
{{- $servers := .Values.router.modelServers -}}
- serve
{{- if .Values.router.inferencePool.create }}
- --pool-name={{ .Release.Name }}
- --pool-namespace={{ .Release.Namespace }}
{{- else }}
{{- $labels := list }}
{{- range $key, $value := $servers.matchLabels }}{{ $labels = append $labels (printf "%s=%s" $key $value) }}{{ end }}
{{- $ports := list }}
{{- range $servers.targetPorts }}{{ $ports = append $ports (toString .number) }}{{ end }}
- {{ printf "--endpoint-selector=%s" (join "," $labels) | quote }}
- {{ printf "--endpoint-target-ports=%s" (join "," $ports) | quote }}
{{- end }}
- --config-file=/config/{{ $epp.pluginsConfigFile }}
- --grpc-port={{ $epp.extProcPort }}
- --grpc-health-port={{ $epp.grpcHealthPort }}
- --metrics-port=9090
{{- if include "signalbox.elects" . }}
- --ha-enable-leader-election
{{- end }}
{{- if not .Values.router.monitoring.prometheus.auth.enabled }}
- --metrics-endpoint-auth=false
{{- end }}
{{- range $flag, $value := omit $epp.flags "ha-enable-leader-election" }}
- {{ printf "--%s=%s" $flag (include "signalbox.text" $value) | quote }}
{{- end }}
{{- end }}

{{/* What a release of the reference's chart runs beside the picker by its defaults, which no value shows: the proxy, in the pod
or in a Deployment of its own. */}}
{{- define "signalbox.proxies" -}}
{{- $names := list -}}
{{- range dig "spec" "template" "spec" "containers" list (lookup "apps/v1" "Deployment" .Release.Namespace (include "signalbox.name" .)) -}}
{{- if ne .name "epp" }}{{ $names = append $names .name }}{{ end -}}
{{- end -}}
{{- $proxy := printf "%s-proxy" (.Release.Name | lower | trim | trunc 40) -}}
{{- if eq .Release.Name (dig "metadata" "annotations" "meta.helm.sh/release-name" "" (lookup "apps/v1" "Deployment" .Release.Namespace $proxy)) -}}
{{- $names = append $names $proxy -}}
{{- end -}}
{{- join " " $names -}}
{{- end }}

{{/* What a value of the reference's charts comes to here, or of a legacy one: a line each, by its path. */}}
{{- define "signalbox.refused" -}}
{{- $r := .Values.router -}}
{{- $v := .Values -}}
{{- $lines := list -}}
{{- range $old, $new := dict "inferenceExtension" "router.epp, router.monitoring" "inferencePool" "router.modelServers and router.inferencePool" "inferenceObjectives" "router.inferenceObjectives" "experimentalHttpRoute" "an HTTPRoute of your own" -}}
{{- if hasKey $v $old }}{{ $lines = append $lines (printf "%s: a value of charts before llm-d-router; use %s" $old $new) }}{{ end -}}
{{- end -}}
{{- if dig "create" false (default dict $v.httpRoute) -}}
{{- $lines = append $lines "httpRoute.create: the chart has no HTTPRoute; write one whose backendRef names the InferencePool" -}}
{{- end -}}
{{- $provider := dig "name" "" (default dict $v.provider) -}}
{{- if not (has $provider (list "" "none")) -}}
{{- $lines = append $lines (printf "provider.name: the chart has no resources of the gateway %s; see deploy/docs/kubernetes.md" $provider) -}}
{{- end -}}
{{- if dig "enabled" false (default dict $r.proxy) -}}
{{- $lines = append $lines "router.proxy.enabled: the chart runs no proxy; `signalbox envoy-config` prints the configuration of an Envoy" -}}
{{- end -}}
{{- range $name := ternary list (include "signalbox.proxies" . | splitList " ") (hasKey (default dict $r.proxy) "enabled") | compact -}}
{{- $lines = append $lines (printf "router.proxy.enabled: the release runs %s, which this chart would remove; have a proxy of your own take the traffic, then set it to false" $name) -}}
{{- end -}}
{{- if dig "enabled" false (default dict $r.tokenizer) -}}
{{- $lines = append $lines "router.tokenizer.enabled: no sidecar is needed, tokens are estimated; see token-producer in deploy/docs/plugins.md" -}}
{{- end -}}
{{- if dig "enabled" false (default dict $r.latencyPredictor) -}}
{{- $lines = append $lines "router.latencyPredictor.enabled: the plugins that predict latency are not supported yet" -}}
{{- end -}}
{{- if dig "enabled" false (default dict $r.priorityRouting) -}}
{{- $lines = append $lines "router.priorityRouting.enabled: not supported; priorities are those of flow control, whichever picker serves" -}}
{{- end -}}
{{- if eq (lower $r.monitoring.provider.name) "gmp" -}}
{{- $lines = append $lines "router.monitoring.provider.name: the chart has a ServiceMonitor of the Prometheus Operator, and no PodMonitoring of gmp" -}}
{{- end -}}
{{- if empty $r.modelServers.matchLabels -}}
{{- $lines = append $lines "router.modelServers.matchLabels: needed: the labels of the model servers' pods" -}}
{{- end -}}
{{- if and $r.inferenceObjectives (not $r.inferencePool.create) -}}
{{- $lines = append $lines "router.inferenceObjectives: an objective names an InferencePool, which router.inferencePool.create: false does without" -}}
{{- end -}}
{{- if and (eq (include "signalbox.flag" (list . "events" "false")) "true") (not $r.inferencePool.create) -}}
{{- $lines = append $lines "router.epp.flags.events: Events are on the InferencePool, which router.inferencePool.create: false does without" -}}
{{- end -}}
{{- $drain := include "signalbox.flag" (list . "drain-timeout" "30s") -}}
{{- $delay := include "signalbox.flag" (list . "drain-delay" "0s") -}}
{{- if gt (include "signalbox.seconds" $delay | float64) (include "signalbox.seconds" $drain | float64) -}}
{{- $lines = append $lines (printf "router.epp.flags.drain-delay: %s is more than flags.drain-timeout, %s, of which it is a part" $delay $drain) -}}
{{- end -}}
{{- range $flag, $value := dict "grpc-port" "router.epp.extProcPort" "grpc-health-port" "router.epp.grpcHealthPort" "config-file" "router.epp.pluginsConfigFile" "config-text" "router.epp.pluginsConfig" -}}
{{- if hasKey $r.epp.flags $flag }}{{ $lines = append $lines (printf "router.epp.flags.%s: use %s" $flag $value) }}{{ end -}}
{{- end -}}
{{- range $flag, $instead := dict "pool-name" "it is the name of the release" "pool-namespace" "it is the namespace of the release" "pool-group" "the InferencePool is one of inference.networking.k8s.io" "endpoint-selector" "use router.modelServers.matchLabels" "endpoint-target-ports" "use router.modelServers.targetPorts" "endpoints" "the endpoints are pods" "metrics-port" "it is 9090" "bind" "the ports listen on all addresses" "kubeconfig" "the account of the pod counts" "grpc-max-recv-msg-size" "use max-body-bytes" "grpc-max-send-msg-size" "leave it out" "refresh-prometheus-metrics-interval" "leave it out" "enable-grpc-stream-metrics" "leave it out: these metrics are always there" -}}
{{- if hasKey $r.epp.flags $flag }}{{ $lines = append $lines (printf "router.epp.flags.%s: %s" $flag $instead) }}{{ end -}}
{{- end -}}
{{- if and $r.epp.autoscaling.enabled (eq (include "signalbox.flag" (list . "ha-enable-leader-election" "false")) "true") -}}
{{- $lines = append $lines "router.epp.autoscaling.enabled: of several pickers with a leader one serves, so more do not help" -}}
{{- end -}}
{{- if and $r.epp.pluginsConfig (hasKey $r.epp.pluginsCustomConfig $r.epp.pluginsConfigFile) -}}
{{- $lines = append $lines (printf "router.epp.pluginsCustomConfig: %s is written by router.epp.pluginsConfig too" $r.epp.pluginsConfigFile) -}}
{{- end -}}
{{- if not (or $r.epp.pluginsConfig (hasKey $r.epp.pluginsCustomConfig $r.epp.pluginsConfigFile) (has $r.epp.pluginsConfigFile (list "default-plugins.yaml" "payload-agnostic.yaml"))) -}}
{{- $lines = append $lines (printf "router.epp.pluginsConfigFile: no value has the text of %s; write it in router.epp.pluginsConfig or pluginsCustomConfig" $r.epp.pluginsConfigFile) -}}
{{- end -}}
{{- if and $r.epp.terminationGracePeriodSeconds (le (int $r.epp.terminationGracePeriodSeconds) (include "signalbox.end" . | int)) -}}
{{- $lines = append $lines (printf "router.epp.terminationGracePeriodSeconds: %v is no more than the end of a pod takes, which is %s s: flags.drain-timeout%s" $r.epp.terminationGracePeriodSeconds (include "signalbox.end" .) (ternary ", and 5 s before it" "" (eq (include "signalbox.elects" .) "yes"))) -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end }}

{{/* Values that are taken and have no effect, a line each. */}}
{{- define "signalbox.ignored" -}}
{{- $lines := list -}}
{{- if .Values.router.tracing.enabled -}}
{{- $lines = append $lines "router.tracing: no spans are sent" -}}
{{- end -}}
{{- if .Values.router.clusterDomain -}}
{{- $lines = append $lines "router.clusterDomain: no name of a Service is built" -}}
{{- end -}}
{{- if .Values.router.modelServers.targetPortNumber -}}
{{- $lines = append $lines "router.modelServers.targetPortNumber: targetPorts count" -}}
{{- end -}}
{{- range list "tracing" "allow-experimental-plugins" "plugin-state-staleness-threshold" -}}
{{- if hasKey $.Values.router.epp.flags . }}{{ $lines = append $lines (printf "router.epp.flags.%s: taken, without effect" .) }}{{ end -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end }}
