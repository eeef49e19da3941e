package kube

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
)

// Target says which pods are endpoints, and at which of their ports.
type Target struct {
	Selector string // a label selector, sets included; never empty, which would be all pods
	Ports    []int  // 1 to 8, none twice; the place of a port is the rank of its endpoints
}

const mostPorts = 8

// Check returns every problem of a target.
func (t Target) Check() error {
	return errors.Join(CheckSelector(t.Selector), CheckPorts(t.Ports))
}

// CheckSelector returns what is wrong with a label selector.
func CheckSelector(text string) error {
	s, err := labels.Parse(text)
	if err != nil {
		return fmt.Errorf("got %q: %w", text, err)
	}
	if s.Empty() {
		return errors.New("got an empty selector, want one that names a label: it would be all pods")
	}
	return nil
}

// CheckPorts returns what is wrong with the ports of a target.
func CheckPorts(ports []int) error {
	if len(ports) < 1 || len(ports) > mostPorts {
		return fmt.Errorf("got %d ports, want 1 to %d", len(ports), mostPorts)
	}
	seen := map[int]bool{}
	for _, p := range ports {
		if p < 1 || p > 65535 {
			return fmt.Errorf("got port %d, want 1 to 65535", p)
		}
		if seen[p] {
			return fmt.Errorf("got port %d twice", p)
		}
		seen[p] = true
	}
	return nil
}

// poolSpec is the part of an InferencePool's spec that says which endpoints there are.
type poolSpec struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	TargetPorts []struct {
		Number int `json:"number"`
	} `json:"targetPorts"`
}

// targetOf returns what an InferencePool selects, or which of its fields is invalid.
func targetOf(pool *object) (Target, error) {
	var spec poolSpec
	if err := decode("spec", pool.Spec, &spec); err != nil {
		return Target{}, err
	}
	selector, err := labels.ValidatedSelectorFromSet(spec.Selector.MatchLabels)
	if err != nil {
		return Target{}, fmt.Errorf("spec.selector.matchLabels: %w", err)
	}
	t := Target{Selector: selector.String()}
	for _, p := range spec.TargetPorts {
		t.Ports = append(t.Ports, p.Number)
	}
	if err := CheckSelector(t.Selector); err != nil {
		return Target{}, fmt.Errorf("spec.selector.matchLabels: %w", err)
	}
	if err := CheckPorts(t.Ports); err != nil {
		return Target{}, fmt.Errorf("spec.targetPorts: %w", err)
	}
	return t, nil
}
