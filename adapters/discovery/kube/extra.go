package kube

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/signalbox-epp/signalbox/engine/rewrites"
)

// extra is what one object says: an objective has a priority, a rewrite has rules.
type extra struct {
	named    bool            // it names our pool, and is for it whatever labels that has
	selector labels.Selector // of pools; nil = none
	created  time.Time
	priority int
	rules    []rewrites.Rule
	wrong    error // what of it is invalid; nil = nothing
}

// poolFields are the fields of an InferenceObjective or an InferenceModelRewrite that say for which pools it is: for
// each that one of them names. v1alpha2 has poolRef, the version to come the two others.
type poolFields struct {
	PoolRef      poolRef               `json:"poolRef"`
	PoolRefs     []poolRef             `json:"poolRefs"`
	PoolSelector *metav1.LabelSelector `json:"poolSelector"`
}

// objectiveSpec is what else an InferenceObjective says.
type objectiveSpec struct {
	Priority int `json:"priority"`
}

// rewriteSpec is what else an InferenceModelRewrite says.
type rewriteSpec struct {
	Rules []ruleSpec `json:"rules"`
}

// poolRef names a pool of the namespace.
type poolRef struct {
	Group *string `json:"group"`
	Kind  *string `json:"kind"`
	Name  string  `json:"name"`
}

func (r *poolRef) names(pool Pool) bool {
	group, kind := DefaultGroup, "InferencePool"
	if r.Group != nil {
		group = *r.Group
	}
	if r.Kind != nil {
		kind = *r.Kind
	}
	return r.Name == pool.Name && group == pool.Group && kind == "InferencePool"
}

type ruleSpec struct {
	Matches []struct {
		Model struct {
			Type  string `json:"type"`
			Value string `json:"value"`
		} `json:"model"`
	} `json:"matches"`
	Targets []struct {
		Weight       *int   `json:"weight"`
		ModelRewrite string `json:"modelRewrite"`
	} `json:"targets"`
}

// names reports whether the fields name a pool, and others whether they name another one.
func (f *poolFields) names(pool Pool) (ours, others bool) {
	for _, r := range append(f.PoolRefs, f.PoolRef) {
		is := r.names(pool)
		ours, others = ours || is, others || !is && r.Name != ""
	}
	return ours, others
}

// extraOf reads an object, and returns what is invalid of it. Without an extra it is for other pools alone.
func extraOf(kind int, o *object, pool Pool) (*extra, error) {
	var pools poolFields
	err := decode("spec", o.Spec, &pools) // which decodes what it can
	ours, others := pools.names(pool)
	e := &extra{named: ours, created: o.CreationTimestamp.Time}
	if err == nil && pools.PoolSelector != nil {
		if e.selector, err = metav1.LabelSelectorAsSelector(pools.PoolSelector); err != nil {
			err = fmt.Errorf("spec.poolSelector: %w", err)
		}
	}
	if err != nil {
		if others && !ours {
			return nil, err // of which nobody need hear
		}
		e.named = true // what names its pools cannot be read, so it may be for ours
		return e, err
	}
	switch {
	case !ours && e.selector == nil:
		return nil, nil
	case kind == objectives:
		return e, e.readObjective(o)
	}
	return e, e.readRewrite(o)
}

func (e *extra) readObjective(o *object) error {
	var spec objectiveSpec
	if err := decode("spec", o.Spec, &spec); err != nil {
		return err
	}
	e.priority = spec.Priority
	if e.priority < math.MinInt32 || e.priority > math.MaxInt32 {
		return fmt.Errorf("spec.priority: got %d, want %d to %d", e.priority, math.MinInt32, math.MaxInt32)
	}
	return nil
}

func (e *extra) readRewrite(o *object) error {
	var spec rewriteSpec
	if err := decode("spec", o.Spec, &spec); err != nil {
		return err
	}
	for i := range spec.Rules {
		rule, err := ruleOf(&spec.Rules[i])
		if err != nil {
			return fmt.Errorf("spec.rules[%d].%w", i, err)
		}
		e.rules = append(e.rules, rule)
	}
	return nil
}

// ruleOf reads a rule.
func ruleOf(spec *ruleSpec) (rule rewrites.Rule, _ error) {
	for i, m := range spec.Matches {
		if m.Model.Type != "" && m.Model.Type != "Exact" {
			return rule, fmt.Errorf("matches[%d].model.type: got %q, want Exact", i, m.Model.Type)
		}
		if m.Model.Value == "" {
			return rule, fmt.Errorf("matches[%d].model.value: missing", i)
		}
		rule.Models = append(rule.Models, m.Model.Value)
	}
	if len(spec.Targets) == 0 {
		return rule, errors.New("targets: missing")
	}
	var weights []*int
	for i, t := range spec.Targets {
		if t.Weight != nil {
			if err := rewrites.CheckWeight(*t.Weight); err != nil {
				return rule, fmt.Errorf("targets[%d].weight: %w", i, err)
			}
		}
		if t.ModelRewrite == "" || strings.ContainsFunc(t.ModelRewrite, unicode.IsControl) {
			return rule, fmt.Errorf("targets[%d].modelRewrite: want the name of a model", i)
		}
		rule.Targets, weights = append(rule.Targets, rewrites.Target{Model: t.ModelRewrite}), append(weights, t.Weight)
	}
	rewrites.Weigh(rule.Targets, weights)
	return rule, nil
}
