package runtime

import (
	"context"
	"fmt"
	"slices"
)

// Lineage is a kind of actor that a loop has carried: its role, and the role of its parent.
type Lineage struct {
	Loop   int    // from 0
	Name   string // of the role; "loop" is the root of the loop's actors
	Parent string // "" = it has none
	Policy Policy
}

// bond is a lineage in numbers.
type bond struct {
	kind, parent uint16
	policy       Policy
}

// bear notes whose child was spawned. There are as many bonds as kinds of actors on the loop, so that looking is cheap.
func (l *Loop) bear(child *mailbox) {
	b := bond{kind: child.kind, policy: child.policy}
	if child.parent != nil {
		b.parent = child.parent.kind
	}
	if !slices.Contains(l.bonds, b) {
		l.bonds = append(l.bonds, b)
	}
}

// Lineages are the kinds of actors that were spawned so far, loop by loop, each kind in the order of its first birth. It
// waits for the loops.
func (s *System) Lineages(ctx context.Context) ([]Lineage, error) {
	var all []Lineage
	for i, l := range s.loops {
		got := make(chan []bond, 1)
		l.post(item{kind: itemCall, msg: func() { got <- slices.Clone(l.bonds) }}, true)
		select {
		case bonds := <-got:
			for _, b := range bonds {
				all = append(all, Lineage{Loop: i, Name: s.ActorName(b.kind), Parent: s.ActorName(b.parent), Policy: b.policy})
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("loop %d: %w", i, ctx.Err())
		}
	}
	return all, nil
}
