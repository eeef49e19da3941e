package kube

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster returns how the API server is reached: by a kubeconfig file, else by those that $KUBECONFIG names, else by
// the service account of the pod in which the process runs.
func Cluster(kubeconfig string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	if kubeconfig == "" {
		env := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
		if env == "" {
			return inCluster()
		}
		rules.Precedence = strings.Split(env, string(os.PathListSeparator))
	}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).
		ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmp.Or(kubeconfig, "$KUBECONFIG"), err)
	}
	return cfg, nil
}

func inCluster() (*rest.Config, error) {
	cfg, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("there is no cluster: want --kubeconfig, $KUBECONFIG, or a pod with a service account")
	}
	if err != nil {
		return nil, fmt.Errorf("the pod's service account: %w", err)
	}
	return cfg, nil
}

// serviceAccountNamespace has the namespace of the pod in which the process runs.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Namespace returns the namespace of the pod in which the process runs, or "" outside of a cluster.
func Namespace() string {
	text, err := os.ReadFile(serviceAccountNamespace)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
