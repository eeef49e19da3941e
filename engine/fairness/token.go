package fairness

import "github.com/signalbox-epp/signalbox/engine/flow"

// Token shares tokens among the flows that have requests waiting, by their weights: the flow is next that was charged
// the fewest tokens for its weight. A flow is charged for a prompt when it is dispatched, and for output as it comes.
// What a flow leaves idle is used by the others, and not saved: a flow that begins to wait counts as charged what the
// flow was that is served at that time.
//
// While two flows of equal weights wait, what they were charged differs by no more than the largest charge between two
// decisions. Source: Sheng et al., "Fairness in Serving Large Language Models", 2024, whose virtual token counters
// these are.
type Token struct{}

// Validate returns nil: there are no parameters.
func (*Token) Validate() error { return nil }

// Rank returns the tokens that the flow was charged, by its weight.
func (*Token) Rank(a *flow.Account, _ *flow.Entry) int64 { return int64(float64(a.Service) / a.Weight) }

// Cost returns the number of tokens.
func (*Token) Cost(t flow.Tokens) int64 { return t.Prompt + t.Output }

// Join lifts the flow to where the band stands.
func (*Token) Join(a *flow.Account, rank int64) {
	a.Service = max(a.Service, int64(float64(rank)*a.Weight))
}
