// Package preflight looks whether a picker that follows the pods of Kubernetes would serve: at the API server, the
// definitions, the rights, the pool, its pods, their metrics pages and the lease.
//
// It writes nothing: it gets and lists, and asks the API server which rights it has (SelfSubjectAccessReview).
package preflight

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/signalbox-epp/signalbox/adapters/discovery/kube"
	"github.com/signalbox-epp/signalbox/messages"
)

// Config says what the picker would follow. Either Pool is set or Target.
type Config struct {
	Cluster   *rest.Config // how the API server is reached
	Namespace string       // of the pool and its pods
	Pool      kube.Pool
	Target    kube.Target
	Lease     string // of the leader; "" = none is elected
	Reviews   bool   // the metrics port asks Kubernetes about tokens
	Events    bool   // Events are written

	// Metrics reads the metrics page of an endpoint, and returns why it cannot be read; nil = no page is read. It is
	// called at many endpoints at once.
	Metrics func(messages.EndpointSpec) error
}

// Result is what a check found.
type Result string

const (
	// OK is for what is as it should be.
	OK Result = "ok"
	// Warning is for what a picker serves without, but not as it should.
	Warning Result = "warning"
	// Problem is for what keeps a picker from serving.
	Problem Result = "problem"
)

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	Result Result `json:"result"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"` // what to do; "" if Result is OK
}

// answerWithin is how long each question to the API server may take.
const answerWithin = 10 * time.Second

// look is one run.
type look struct {
	cfg    Config
	rights *authorizationv1.AuthorizationV1Client
	leases *coordinationv1.CoordinationV1Client
	reader *kube.Reader
	checks []Check
}

// Run looks at everything, in the order in which a picker needs it. Where the API server does not answer at all there
// is nothing else to look at. An error is a fault of the configuration.
func Run(ctx context.Context, cfg Config) ([]Check, error) {
	l := &look{cfg: cfg}
	c := rest.CopyConfig(cfg.Cluster)
	c.QPS = -1
	c.WarningHandler = rest.NoWarnings{}
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.UserAgent, c.Timeout = cmp.Or(c.UserAgent, "signalbox"), answerWithin
	var err error
	if l.rights, err = authorizationv1.NewForConfig(c); err == nil {
		l.leases, err = coordinationv1.NewForConfig(c)
	}
	if err == nil {
		l.reader, err = kube.NewReader(c, cfg.Namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	defer l.reader.Close()
	if !l.server(ctx) {
		return l.checks, nil
	}
	for _, n := range kube.Needs(cfg.Pool) {
		l.definition(ctx, n)
	}
	l.allRights(ctx)
	if target, ok := l.target(ctx); ok {
		l.metrics(l.pods(ctx, target))
	}
	l.lease(ctx)
	return l.checks, nil
}

func (l *look) ok(name, format string, args ...any) {
	l.checks = append(l.checks, Check{Name: name, Result: OK, Found: fmt.Sprintf(format, args...)})
}

func (l *look) bad(r Result, name, remedy, format string, args ...any) {
	l.checks = append(l.checks, Check{Name: name, Result: r, Found: fmt.Sprintf(format, args...), Remedy: remedy})
}

// get reads a path of the API server.
func (l *look) get(ctx context.Context, path string, into any) error {
	text, err := l.rights.RESTClient().Get().AbsPath(path).MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// server looks whether the API server answers us, and reports it.
func (l *look) server(ctx context.Context) bool {
	const name = "api server"
	var version struct{ GitVersion string }
	err := l.get(ctx, "/version", &version)
	switch {
	case err == nil:
		l.ok(name, "Kubernetes %s at %s", version.GitVersion, l.cfg.Cluster.Host)
	case apierrors.IsForbidden(err): // it answers, and knows us
		l.ok(name, "%s", l.cfg.Cluster.Host)
	case apierrors.IsUnauthorized(err):
		l.bad(Problem, name, "give a token that it takes: that of a service account, or another --kubeconfig",
			"%s takes no token of ours", l.cfg.Cluster.Host)
	default:
		l.bad(Problem, name, "see that it runs, and that --kubeconfig or $KUBECONFIG names its address", "%v", err)
	}
	return err == nil || apierrors.IsForbidden(err)
}

// definition looks whether a resource is served in a version that is read.
func (l *look) definition(ctx context.Context, n kube.Needed) {
	if n.Group == "" {
		return // pods are always there
	}
	name := n.Resource + "." + n.Group
	missing := Problem
	if n.Optional {
		missing = Warning
	}
	versions, served, err := l.served(ctx, n)
	wanted := strings.Join(n.Versions, " or ")
	read := slices.IndexFunc(n.Versions, func(v string) bool { return slices.Contains(versions, v) })
	switch {
	case err != nil:
		l.bad(missing, name, "see that the API server answers for the group", "%v", err)
	case read >= 0:
		l.ok(name, "served as %s", n.Versions[read])
	case served:
		l.bad(missing, name, "install a version of its CRD that serves "+wanted, "served as %s, and not as %s",
			strings.Join(versions, ", "), wanted)
	case n.Optional:
		l.ok(name, "not installed: there are none")
	default:
		l.bad(missing, name, "install the CRD of InferencePool, or name its group with --pool-group",
			"not installed")
	}
}

// served returns the versions that have a resource; served reports whether any has.
func (l *look) served(ctx context.Context, n kube.Needed) (versions []string, served bool, _ error) {
	var group metav1.APIGroup
	err := l.get(ctx, "/apis/"+n.Group, &group)
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	for _, v := range group.Versions {
		var all metav1.APIResourceList
		if err := l.get(ctx, "/apis/"+v.GroupVersion, &all); err != nil {
			return nil, false, err
		}
		if slices.ContainsFunc(all.APIResources, func(r metav1.APIResource) bool { return r.Name == n.Resource }) {
			versions = append(versions, v.Version)
		}
	}
	return versions, len(versions) > 0, nil
}

// target returns what the pool selects, and reports whether that is known.
func (l *look) target(ctx context.Context) (kube.Target, bool) {
	if l.cfg.Pool.Name == "" {
		return l.cfg.Target, true
	}
	name := "pool " + l.cfg.Namespace + "/" + l.cfg.Pool.Name
	target, err := l.reader.Target(ctx, l.cfg.Pool)
	switch {
	case err == nil:
		l.ok(name, "selects %s at port %s", target.Selector, numbers(target.Ports))
	case errors.Is(err, kube.ErrNoPool):
		l.bad(Problem, name, "create it, or name another with --pool-name and --pool-namespace", "not there")
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		// the checks of rights and of definitions have said it
	default:
		l.bad(Problem, name, "mend the InferencePool", "%v", err)
	}
	return target, err == nil
}

func numbers(all []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(all), " ", ", "), "[]")
}

// pods returns the endpoints that the pods of a target make.
func (l *look) pods(ctx context.Context, target kube.Target) []messages.EndpointSpec {
	name := "pods of " + l.cfg.Namespace
	found, err := l.reader.Pods(ctx, target)
	const start = "start model servers with the labels of the selector, or mend the selector"
	switch {
	case apierrors.IsForbidden(err):
		return nil // the check of rights has said it
	case err != nil:
		l.bad(Problem, name, "see that the API server lists pods", "%v", err)
		return nil
	case found.Pods == 0:
		l.bad(Problem, name, start, "none has %s, so every request gets 503", target.Selector)
	case found.Serving == 0:
		l.bad(Problem, name, "wait until some are Ready, or see why they are not",
			"%s, none of them Ready with an address, so every request gets 503", count(found.Pods, "pod"))
	case len(found.Endpoints) == 0:
		l.bad(Problem, name, "have the annotation llm-d.ai/active-ports name ports of the target",
			"%s, none with an active port, so every request gets 503", count(found.Serving, "pod"))
	default:
		l.ok(name, "%s, %d of them Ready: %s", count(found.Pods, "pod"), found.Serving,
			count(len(found.Endpoints), "endpoint"))
	}
	for _, err := range found.Broken {
		l.bad(Warning, name, "mend what writes the status of the pod", "%v", err)
	}
	return found.Endpoints
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
