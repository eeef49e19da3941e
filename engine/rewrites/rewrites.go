// Package rewrites says which model serves a request in place of the one that its client named. It owns the precedence
// of rules and the drawing by weight; it never reads files and never touches a body.
package rewrites

import (
	"fmt"
	"slices"
)

// Rewrite is a named list of rules.
type Rewrite struct {
	Name  string
	Rules []Rule
}

// Rule sends requests of some models to others.
type Rule struct {
	Models  []string // that it is for, compared byte by byte; empty = all that no rule names
	Targets []Target // at least one, with a sum of weights above 0
}

// Target is a model that takes its part of the requests of a rule.
type Target struct {
	Model  string
	Weight int // its part is Weight of the sum of the rule's weights; 0 = none
}

// mostWeight is the largest weight of a target, as of Kubernetes resources.
const mostWeight = 1_000_000

// CheckWeight returns what is wrong with a weight that a target is given.
func CheckWeight(weight int) error {
	if weight < 1 || weight > mostWeight {
		return fmt.Errorf("got %d, want 1 to %d", weight, mostWeight)
	}
	return nil
}

// Weigh sets the weights of the targets of one rule to those that they are given, by index; nil = none. Where none is
// given one all count the same; else those without one get nothing.
func Weigh(targets []Target, given []*int) {
	weighted := slices.ContainsFunc(given, func(w *int) bool { return w != nil })
	for i := range targets {
		switch {
		case !weighted:
			targets[i].Weight = 1
		case given[i] != nil:
			targets[i].Weight = *given[i]
		}
	}
}

// Table finds the target of a request. It never changes. A nil Table has no rules.
type Table struct {
	exact map[string]*chosen
	rest  *chosen // of the models that exact does not have; nil = they stay as they are
}

// chosen are the targets that a rule of a rewrite has.
type chosen struct {
	rewrite string
	targets []Target
}

// NewTable returns the table of a list, or nil if the list has no rules. A rule that names the model goes before one
// that is for all, and of two such rules the first in the list.
func NewTable(list []Rewrite) *Table {
	t := &Table{exact: map[string]*chosen{}}
	for _, rewrite := range list {
		for _, rule := range rewrite.Rules {
			t.add(rule, rewrite.Name)
		}
	}
	if t.rest == nil && len(t.exact) == 0 {
		return nil
	}
	return t
}

// add adds a rule that comes after all those before.
func (t *Table) add(rule Rule, rewrite string) {
	c := &chosen{rewrite, rule.Targets}
	if len(rule.Models) == 0 && t.rest == nil {
		t.rest = c
	}
	for _, model := range rule.Models {
		if t.exact[model] == nil {
			t.exact[model] = c
		}
	}
}

// Decision is what a rule decided.
type Decision struct {
	Rewrite string // the name of the rule's rewrite
	Model   string // that serves
}

// Decide returns which model serves a request for a model, and by which rewrite. The draw decides between targets: the
// same draw gives the same target, and draws that follow each other spread by weight. It returns false if no rule is
// for the model.
func (t *Table) Decide(model string, draw uint64) (Decision, bool) {
	if t == nil {
		return Decision{}, false
	}
	c := t.exact[model]
	if c == nil {
		c = t.rest
	}
	if c == nil {
		return Decision{}, false
	}
	var sum uint64
	for _, target := range c.targets {
		sum += uint64(target.Weight)
	}
	if sum == 0 {
		return Decision{}, false
	}
	at := mix(draw) % sum
	for _, target := range c.targets {
		if at < uint64(target.Weight) {
			return Decision{c.rewrite, target.Model}, true
		}
		at -= uint64(target.Weight)
	}
	return Decision{}, false
}

// mix spreads a number over all 64 bits, as SplitMix64 does.
func mix(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}
