package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/signalbox-epp/signalbox/messages"
)

// Reader reads once what Discovery follows. It is for a look before anything serves.
type Reader struct{ client *client }

// NewReader returns a reader of a namespace. It asks the API server nothing yet.
func NewReader(cluster *rest.Config, namespace string) (*Reader, error) {
	c, err := newClient(cluster, namespace)
	if err != nil {
		return nil, err
	}
	return &Reader{c}, nil
}

// Close closes idle connections.
func (r *Reader) Close() { r.client.closeIdle() }

// ErrNoPool says that there is no InferencePool of the name. Other errors of Target are those of the API server, or of
// a pool that is invalid.
var ErrNoPool = errors.New("there is no such InferencePool")

// Target returns what an InferencePool selects.
func (r *Reader) Target(ctx context.Context, p Pool) (Target, error) {
	all, err := r.list(ctx, inferencePools(p.Group), selection{name: p.Name})
	if err != nil {
		return Target{}, err
	}
	if len(all) == 0 {
		return Target{}, ErrNoPool
	}
	return targetOf(&all[0])
}

// Found is what the pods of a target come to.
type Found struct {
	Pods      int // that the target selects
	Serving   int // of those; the others are not Ready, terminate, or have no address
	Endpoints []messages.EndpointSpec
	Broken    []error // of each pod that cannot be read
}

// Pods returns what the pods of a target come to.
func (r *Reader) Pods(ctx context.Context, t Target) (found Found, _ error) {
	all, err := r.list(ctx, pods, selection{labels: t.Selector})
	if err != nil {
		return found, err
	}
	read := make([]*pod, 0, len(all))
	for i := range all {
		p, err := podOf(&all[i])
		if err != nil {
			found.Broken = append(found.Broken, fmt.Errorf("pod %s: %w", all[i].Name, err))
		}
		if p.serves {
			found.Serving++
		}
		read = append(read, p)
	}
	slices.SortFunc(read, byAge)
	for _, p := range read {
		if p.serves {
			found.Endpoints = p.endpoints(found.Endpoints, t.Ports)
		}
	}
	found.Pods = len(all)
	return found, nil
}

func (r *Reader) list(ctx context.Context, of resource, s selection) ([]object, error) {
	all, err := r.client.source(of, s).list(ctx, metav1.ListOptions{}, func(error) {})
	if err != nil {
		return nil, err
	}
	return all.(*objects).Items, nil
}

// Needed is a resource of which Discovery reads objects.
type Needed struct {
	Group, Resource string
	Versions        []string // that can be read: one that is served is enough
	Optional        bool     // picks need it not: it may never be installed
}

// Needs returns the resources that Discovery follows, in a fixed order.
func Needs(p Pool) (all []Needed) {
	add := func(r resource) {
		all = append(all, Needed{Group: r.Group, Versions: r.versions(), Resource: r.name, Optional: r.optional})
	}
	add(pods)
	if p.Name == "" {
		return all
	}
	add(inferencePools(p.Group))
	for _, group := range extraGroups {
		for _, k := range extraKinds {
			add(extraResource(group, k.name, k.kind))
		}
	}
	return all
}
