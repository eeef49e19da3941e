package fairness

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/engine/clip"

	"github.com/signalbox-epp/signalbox/engine/flow"
)

// Token shares tokens among the flows that have requests waiting, by their weights: the flow is next that was charged
// the fewest tokens for its weight. A flow is charged for a prompt when it is dispatched, and for output as it comes.
// What a flow leaves idle is used by the others, and not saved: a flow that begins to wait counts as charged what the
// flow was that is served at that time.
//
// While two flows wait, what one was given by its weight exceeds what the other was given by no more than the prompts
// and output of the largest requests of both that run at a time. Source: Sheng et al., "Fairness in Serving Large
// Language Models", 2024, whose virtual token counters these are.
type Token struct {
	// Weights has the shares of flows beside each other by their fairness ids, each above 0; others have 1. Flows that
	// share one because there are too many have 1 together.
	Weights map[string]float64 `json:"weights"`
	// LocalityTokens has requests go first of whose prompts servers that have room hold the most, by the prefix index:
	// of the next few requests of flows that were charged up to so many tokens more for their weight than the flow
	// whose turn it is. No request is passed over for more tokens of prompts than that. 0 = they go in their order. A
	// few times the largest prompt is a good value.
	LocalityTokens int `json:"localityTokens"`
}

// Validate returns which parameters are out of range.
func (p *Token) Validate() error {
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(p.Weights)) {
		if w := p.Weights[id]; !(w >= leastWeight && w <= mostWeight) {
			errs = append(errs, fmt.Errorf("weights.%s: got %v, want %v to %v", clip.Value(id), w, leastWeight,
				mostWeight))
		}
	}
	if p.LocalityTokens < 0 || p.LocalityTokens > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("localityTokens: got %d, want 0 to %d", p.LocalityTokens, math.MaxInt32))
	}
	return errors.Join(errs...)
}

// Quantum returns how far locality goes.
func (p *Token) Quantum() int64 { return int64(p.LocalityTokens) }

// Weights beyond these bounds would make tokens overflow, or vanish.
const (
	leastWeight = 0.001
	mostWeight  = 1000
)

// FlowWeights returns the weights.
func (p *Token) FlowWeights() map[string]float64 { return p.Weights }

// Rank returns the tokens that the flow was charged, by its weight.
func (*Token) Rank(a *flow.Account, _ *flow.Entry) int64 { return int64(float64(a.Service) / a.Weight) }

// Charge charges the number of tokens.
func (*Token) Charge(a *flow.Account, _ time.Time, t flow.Tokens) { a.Service += t.Prompt + t.Output }

// Join lifts the flow to where the band stands.
func (*Token) Join(a *flow.Account, rank int64) {
	a.Service = max(a.Service, int64(float64(rank)*a.Weight))
}
