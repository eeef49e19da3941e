package scorers

import (
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// TokenLoad prefers servers with few tokens to compute: those of the prompts sent there that are not computed yet, and
// this request's prompt, all of it at each server. 1 = none, 0 = queueThresholdTokens or more. It counts them itself,
// estimated at 4 bytes a token, and needs no metrics page.
type TokenLoad struct {
	// QueueThresholdTokens is the number of tokens that scores 0; 0 or less = 4194304.
	QueueThresholdTokens int `json:"queueThresholdTokens"`
	// InFlightLoadProducerName names the inflight-load-producer that counts; empty = the only one.
	InFlightLoadProducerName string `json:"inFlightLoadProducerName" names:"inflight-load-producer"`

	tokens attributes.NumberSlot
}

// queueThresholdTokens is the default: 128 prompts of 32 768 tokens.
const queueThresholdTokens = 128 * 32768

// Declare asks for the tokens in flight.
func (s *TokenLoad) Declare(r *attributes.Reader) {
	s.tokens = r.Number(attributes.InflightTokens.Name, s.InFlightLoadProducerName)
}

// Score adds up the tokens of each candidate.
func (s *TokenLoad) Score(in *schedule.Input, scores []float32) {
	most := float64(s.QueueThresholdTokens)
	if most <= 0 {
		most = queueThresholdTokens
	}
	tokens, own := in.Numbers(s.tokens), float64(in.Request().PromptTokens())
	for i := range scores {
		scores[i] = float32(1 - min(max(tokens.At(i), 0)+own, most)/most)
	}
}
