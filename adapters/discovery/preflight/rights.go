package preflight

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/signalbox-epp/signalbox/adapters/discovery/kube"
	"github.com/signalbox-epp/signalbox/messages"
)

// right is what a picker must be able to do with a resource.
type right struct {
	group, resource string
	verbs           []string
	inCluster       bool   // it is no right in the namespace
	without         Result // if it is missing
	means           string // what a picker without it does not do
}

// rightsOf returns the rights that a picker uses, in the order in which it needs them.
func (c *Config) rightsOf() (all []right) {
	for _, n := range kube.Needs(c.Pool) {
		r := right{group: n.Group, resource: n.Resource, verbs: []string{"get", "list", "watch"}, without: Problem,
			means: "no endpoint is found"}
		if n.Optional {
			r.without, r.means = Warning, "none counts"
		}
		all = append(all, r)
	}
	if c.Lease != "" {
		all = append(all, right{group: "coordination.k8s.io", resource: "leases",
			verbs: []string{"get", "create", "update"}, without: Problem, means: "it never leads, and is never ready"})
	}
	if c.Events {
		all = append(all, right{resource: "events", verbs: []string{"create"}, without: Warning,
			means: "none is written"})
	}
	if c.Reviews {
		for _, r := range []right{
			{group: "authentication.k8s.io", resource: "tokenreviews"},
			{group: "authorization.k8s.io", resource: "subjectaccessreviews"},
		} {
			r.verbs, r.inCluster, r.without = []string{"create"}, true, Warning
			r.means = "the metrics port answers 503"
			all = append(all, r)
		}
	}
	return all
}

// allRights looks at every right, all at once, and reports them in order.
func (l *look) allRights(ctx context.Context) {
	rights := l.cfg.rightsOf()
	missing, failed := make([][]string, len(rights)), make([]error, len(rights))
	var all sync.WaitGroup
	for i := range rights {
		all.Go(func() { missing[i], failed[i] = l.missing(ctx, &rights[i]) })
	}
	all.Wait()
	for i, r := range rights {
		name := "right to " + strings.TrimSuffix(r.resource+"."+r.group, ".")
		switch {
		case failed[i] != nil:
			l.bad(r.without, name, "see that the API server answers a SelfSubjectAccessReview", "%v", failed[i])
		case len(missing[i]) == 0:
			l.ok(name, "%s", strings.Join(r.verbs, ", "))
		default:
			l.bad(r.without, name, r.remedy(l.cfg.Namespace), "may not %s: %s", strings.Join(missing[i], ", "), r.means)
		}
	}
}

func (r *right) remedy(namespace string) string {
	kind, where := "Role", " of "+namespace
	if r.inCluster {
		kind, where = "ClusterRole", ""
	}
	return fmt.Sprintf("add to a %s%s that is bound to the account: {apiGroups: [%q], resources: [%s], verbs: [%s]}",
		kind, where, r.group, r.resource, strings.Join(r.verbs, ", "))
}

// missing returns the verbs that are not allowed.
func (l *look) missing(ctx context.Context, r *right) (all []string, _ error) {
	for _, verb := range r.verbs {
		review := &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorization.ResourceAttributes{
				Namespace: l.cfg.Namespace, Verb: verb, Group: r.group, Resource: r.resource,
			},
		}}
		if r.inCluster {
			review.Spec.ResourceAttributes.Namespace = ""
		}
		answer, err := l.rights.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		if !answer.Status.Allowed {
			all = append(all, verb)
		}
	}
	return all, nil
}

// mostNamed is how many endpoints a check names.
const mostNamed = 5

// metrics reads the page of each endpoint.
func (l *look) metrics(endpoints []messages.EndpointSpec) {
	if l.cfg.Metrics == nil || len(endpoints) == 0 {
		return
	}
	problems := make([]error, len(endpoints))
	var all sync.WaitGroup
	for i, e := range endpoints {
		all.Go(func() { problems[i] = l.cfg.Metrics(e) })
	}
	all.Wait()
	var bad []string
	for i, err := range problems {
		if err != nil {
			bad = append(bad, fmt.Sprintf("%s (%s): %v", endpoints[i].Name, endpoints[i].Address, err))
		}
	}
	const name = "metrics pages"
	if len(bad) == 0 {
		l.ok(name, "%s can be read", count(len(endpoints), "page"))
		return
	}
	failed := len(bad)
	if failed > mostNamed {
		bad = append(bad[:mostNamed], fmt.Sprintf("and %d more", failed-mostNamed))
	}
	l.bad(Warning, name, "see that the servers answer there, that a NetworkPolicy lets the picker through, and that "+
		"dataLayer.sources names their page; until then they are picked without their load",
		"%d of %d cannot be read: %s", failed, len(endpoints), strings.Join(bad, "; "))
}

// lease looks who leads.
func (l *look) lease(ctx context.Context) {
	if l.cfg.Lease == "" {
		return
	}
	name := "lease " + l.cfg.Lease
	lease, err := l.leases.Leases(l.cfg.Namespace).Get(ctx, l.cfg.Lease, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		l.ok(name, "not there: the first picker creates it, and leads")
		return
	case apierrors.IsForbidden(err):
		return // the check of rights has said it
	case err != nil:
		l.bad(Problem, name, "see that the API server answers for leases", "%v", err)
		return
	}
	s := lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" {
		l.ok(name, "held by none: the next picker leads")
		return
	}
	if s.RenewTime == nil || s.LeaseDurationSeconds == nil ||
		time.Since(s.RenewTime.Time) > time.Duration(*s.LeaseDurationSeconds)*time.Second {
		l.ok(name, "held by %s, which does not renew it: the next picker leads", *s.HolderIdentity)
		return
	}
	l.ok(name, "held by %s, which leads: another picker stands by until that ends", *s.HolderIdentity)
}
