package kube

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/signalbox-epp/signalbox/messages"
)

// pod is what is kept of a pod.
type pod struct {
	name, namespace string
	uid             types.UID
	created         time.Time
	restarts        int                          // of its containers; another process serves after each
	serves          bool                         // it is Ready, is not terminating, and has an address
	ip              netip.Addr                   // valid if it has one and is not terminating
	labelled        map[string]string            // its labels, with its host
	labels          messages.Map[string, string] // the same, as messages carry them
	active          []int                        // the ports that it serves of those of the pool, if restricted
	restricted      bool
}

// podSpec is the part of a pod's spec that says where it runs.
type podSpec struct {
	Hostname string `json:"hostname"`
	NodeName string `json:"nodeName"`
}

// hostLabel is the label that says on which host an endpoint stands.
const hostLabel = "kubernetes.io/hostname"

// placed returns the labels of a pod, and its host among them if they do not name it: spec.hostname, or else the node
// that the pod is bound to. The node itself is not read.
func placed(o *object) (map[string]string, error) {
	if _, named := o.Labels[hostLabel]; named {
		return o.Labels, nil
	}
	var spec podSpec
	if err := decode("spec", o.Spec, &spec); err != nil {
		return o.Labels, err
	}
	host := cmp.Or(spec.Hostname, spec.NodeName)
	if host == "" {
		return o.Labels, nil
	}
	all := maps.Clone(o.Labels)
	if all == nil {
		all = map[string]string{}
	}
	all[hostLabel] = host
	return all, nil
}

// podStatus is the part of a pod's status that says whether it serves.
type podStatus struct {
	PodIP      string `json:"podIP"`
	Conditions []struct {
		Type   string `json:"type"`
		Status string `json:"status"`
	} `json:"conditions"`
	Containers []struct {
		Restarts int `json:"restartCount"`
	} `json:"containerStatuses"`
}

// process is what a pod has others of after its model server was started anew: a pod that was made again under its
// name, or a container that was restarted.
type process struct {
	uid      types.UID
	restarts int
}

func (p *pod) process() process { return process{p.uid, p.restarts} }

// The annotation that restricts the ports of a pod, and its older name, which counts where the other one is absent.
const (
	activePorts       = "llm-d.ai/active-ports"
	legacyActivePorts = "inference.networking.k8s.io/active-ports"
)

// podOf reads a pod. One whose status cannot be read does not serve; one whose spec cannot be read stands nowhere.
func podOf(o *object) (*pod, error) {
	labels, err := placed(o)
	p := &pod{
		name: o.Name, namespace: o.Namespace, uid: o.UID, created: o.CreationTimestamp.Time,
		labelled: labels, labels: messages.MapOf(labels),
	}
	if text, ok := annotation(o.Annotations, activePorts, legacyActivePorts); ok {
		p.active, p.restricted = portsIn(text), true
	}
	var status podStatus
	if err := decode("status", o.Status, &status); err != nil {
		return p, err
	}
	ready := false
	for _, c := range status.Conditions {
		if c.Type == "Ready" {
			ready = c.Status == "True"
		}
	}
	for _, c := range status.Containers {
		p.restarts += c.Restarts
	}
	if o.DeletionTimestamp != nil || status.PodIP == "" {
		return p, err
	}
	ip, wrong := netip.ParseAddr(status.PodIP)
	if wrong != nil {
		return p, fmt.Errorf("status.podIP: %w", wrong)
	}
	p.ip, p.serves = ip.Unmap(), ready
	return p, err
}

// portsIn reads the value of the annotation. What is no port adds nothing.
func portsIn(text string) (ports []int) {
	for field := range strings.SplitSeq(text, ",") {
		if p, err := strconv.Atoi(strings.TrimSpace(field)); err == nil {
			ports = append(ports, p)
		}
	}
	return ports
}

// endpoints appends an endpoint for each of the target's ports at which the pod serves, or would if it were Ready.
func (p *pod) endpoints(set []messages.EndpointSpec, ports []int) []messages.EndpointSpec {
	if !p.ip.IsValid() {
		return set
	}
	for rank, port := range ports {
		if p.restricted && !slices.Contains(p.active, port) {
			continue
		}
		set = append(set, messages.EndpointSpec{
			Name: p.name + "-rank-" + strconv.Itoa(rank), Namespace: p.namespace, Labels: p.labels,
			Address: messages.Address(netip.AddrPortFrom(p.ip, uint16(port)).String()),
		})
	}
	return set
}

// same reports whether nothing about a pod differs that the pool hears of. Of one that does not serve it hears no more
// than that.
func (p *pod) same(b *pod) bool {
	return b != nil && p.uid == b.uid && p.serves == b.serves && p.created.Equal(b.created) &&
		(!p.serves || p.ip == b.ip && p.restarts == b.restarts) &&
		p.restricted == b.restricted && slices.Equal(p.active, b.active) && maps.Equal(p.labelled, b.labelled)
}

// byAge orders pods: where two have one address the younger one counts, which the pool takes to be the last.
func byAge(a, b *pod) int {
	return cmp.Or(a.created.Compare(b.created), strings.Compare(a.name, b.name))
}
