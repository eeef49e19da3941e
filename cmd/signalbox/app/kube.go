package app

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
)

// poolOptions names the pool, and says which pods of Kubernetes are its endpoints, unless a file says it. The name and
// the namespace are labels of metrics too, which are UTF-8.
type poolOptions struct {
	poolName, poolNamespace, poolGroup string
	selector                           string
	targetPorts                        []int
	kubeconfig, cache                  string
	elects                             bool          // one of several pickers leads
	events                             bool          // Events are written on the InferencePool
	tracing, experimental              bool          // flags of the reference's chart that have no effect
	stateStaleness                     time.Duration // likewise
}

// inferenceGroup is the API group of InferencePools: kube.DefaultGroup, which is not linked without Kubernetes.
const inferenceGroup = "inference.networking.k8s.io"

func (o *poolOptions) register(f *pflag.FlagSet) {
	f.StringVar(&o.poolName, "pool-name", "", "name of the InferencePool whose pods are the endpoints; beside a file "+
		"of endpoints only a label of metrics")
	f.StringVar(&o.poolNamespace, "pool-namespace", "", "namespace of the pool and its pods; empty is $NAMESPACE, "+
		"else that of the service account, else default")
	f.StringVar(&o.poolGroup, "pool-group", inferenceGroup, "API group of the InferencePool")
	f.StringVar(&o.selector, "endpoint-selector", "", "label selector of the pods that are the endpoints, without an "+
		"InferencePool, such as app=vllm or 'app in (a, b)'")
	f.IntSliceVar(&o.targetPorts, "endpoint-target-ports", nil, "ports of the pods of --endpoint-selector, 1 to 8")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "file that says how to reach Kubernetes; empty is $KUBECONFIG, else "+
		"the pod's service account")
	f.StringVar(&o.cache, "discovery-cache", "", "file that keeps the last known endpoints of Kubernetes, for a start "+
		"while its API server is away")
	f.BoolVar(&o.elects, "ha-enable-leader-election", false, "of several pickers of the pool one is ready, the others "+
		"stand by; without it all serve at once")
	f.BoolVar(&o.events, "events", false, "write Events on the InferencePool: no endpoint is ready, an object cannot "+
		"be read; needs the right to create events")
	f.BoolVar(&o.tracing, "tracing", false, "without effect: no spans are sent; explain says what became of a request")
	f.DurationVar(&o.stateStaleness, "plugin-state-staleness-threshold", 5*time.Minute,
		"without effect: what plugins keep of a request ends with it")
	f.BoolVar(&o.experimental, "allow-experimental-plugins", false,
		"without effect: every plugin type that is there may be named")
}

// warnings returns what is legal and has no effect.
func (o *poolOptions) warnings() (all []string) {
	if o.tracing {
		all = append(all, "--tracing: no spans are sent")
	}
	return all
}

// check returns every problem of the flags beside a file of endpoints; "" = none is given.
func (o *poolOptions) check(file string) error {
	var all []error
	bad := func(problem string) { all = append(all, errors.New(problem)) }
	if !utf8.ValidString(o.poolName) || !utf8.ValidString(o.namespace()) {
		bad("--pool-name, --pool-namespace: want UTF-8, for they are labels of metrics")
	}
	if o.poolGroup == "" {
		bad("--pool-group: want the API group of the InferencePool")
	}
	switch {
	case o.selector != "" && o.poolName != "":
		bad("--pool-name and --endpoint-selector: want one of them")
	case o.selector != "" && file != "":
		bad("--endpoints and --endpoint-selector: want one of them")
	}
	if o.selector == "" {
		if len(o.targetPorts) > 0 {
			bad("--endpoint-target-ports: want --endpoint-selector too; an InferencePool has ports of its own")
		}
		return errors.Join(all...)
	}
	return errors.Join(append(all, o.checkTarget())...)
}

// inCluster reports whether this is a pod that follows pods: proxies and probes come from other machines.
func (o *options) inCluster() bool {
	return o.followsPods() && os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// followsPods reports whether the flags have pods followed, unless the configuration names a file.
func (o *options) followsPods() bool {
	return o.selector != "" || o.poolName != "" && o.endpointsFile == ""
}

// anyAddress returns the address that stands for all of this machine: for those of IPv4 alone where there is no IPv6.
func anyAddress() string {
	l, err := net.Listen("tcp6", "[::]:0")
	if err != nil {
		return "0.0.0.0"
	}
	_ = l.Close() // it was opened only to see whether that works
	return "::"
}

// checkDiscovery checks that there is exactly one source of endpoints. path is the file of endpoints; "" = there is
// none.
func (o *poolOptions) checkDiscovery(path string) error {
	switch {
	case path != "" && o.cache != "":
		return fmt.Errorf("--discovery-cache: the endpoints file %s is given too, want --pool-name or "+
			"--endpoint-selector alone", path)
	case path != "" && o.selector != "":
		return fmt.Errorf("--endpoint-selector: the endpoints file %s is given too, want one of them", path)
	case path == "" && o.selector == "" && o.poolName == "":
		return errors.New("no endpoints: name a file with --endpoints, configure file-discovery, or name pods of " +
			"Kubernetes with --pool-name or --endpoint-selector")
	}
	if o.events && (path != "" || o.poolName == "") {
		return errors.New("--events: want --pool-name without a file of endpoints, for they are on the InferencePool")
	}
	return o.checkElection(path)
}

// namespace returns the pool's namespace.
func (o *poolOptions) namespace() string {
	return cmp.Or(o.poolNamespace, os.Getenv("NAMESPACE"), accountNamespace(), "default")
}

// accountNamespace returns the namespace of the service account of this pod; "" = this is none.
func accountNamespace() string {
	text, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// checkElection checks that a leader can be elected. path is the file of endpoints; "" = there is none.
func (o *poolOptions) checkElection(path string) error {
	if o.elects && path != "" {
		return errors.New("--ha-enable-leader-election: want --pool-name or --endpoint-selector without a file of " +
			"endpoints, for the leader is elected in Kubernetes")
	}
	return nil
}

// reviewsTokens reports whether the metrics port asks Kubernetes about tokens, if pods are followed.
func (o *options) reviewsTokens() bool { return o.tls.metricsAuth && o.tls.metricsToken == "" }

// origin returns where the endpoints come from, as fields of the log.
func (o *poolOptions) origin(path string) []zap.Field {
	switch {
	case path != "":
		return []zap.Field{zap.String("endpoints_file", path)}
	case o.selector != "":
		return []zap.Field{zap.String("namespace", o.namespace()), zap.String("endpoint_selector", o.selector)}
	}
	return []zap.Field{zap.String("namespace", o.namespace()), zap.String("inference_pool", o.poolName)}
}
