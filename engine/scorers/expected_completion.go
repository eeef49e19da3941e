package scorers

import (
	"errors"
	"fmt"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/window"
)

// ExpectedCompletion prefers the server where a request costs all requests least, in seconds:
//
//	cost = wait + miss * (1 + ownWeight) + laterWeight * rate of requests * miss * (wait + miss / 2)
//	     + secondsPerRequest * requests in flight
//
// The wait is the time for the prompts that were sent to the server before, and for which the requests in flight there
// keep a new one from its first token, as where sequences have to end before others begin; miss is the time for what
// the server does not hold of this prompt. The term with the rate is what those requests pay that come to the server
// while it computes this prompt: as many as came of late. The last one is what requests in one batch cost one another.
//
// All is counted in Signalbox, without metrics pages. What a token of a prompt and a request in flight take is learned
// from first tokens, and a server that has not shown it has the mean of the others. The score is 1 / (1 + cost).
// signalbox explain shows the terms of the pick and of the runner-up in seconds, and /debug/endpoints what was learned
// of each server, and from how many first tokens.
type ExpectedCompletion struct {
	// TokensPerSecond is how many tokens of prompts a server computes in a second, until first tokens have shown it of
	// one of them.
	TokensPerSecond float64 `json:"tokensPerSecond"`
	// OwnWeight is the weight of computing what another server may hold, beside the time that it takes; 0 or more.
	OwnWeight float64 `json:"ownWeight"`
	// LaterWeight is the weight of what requests pay that come later; 0 or more.
	LaterWeight float64 `json:"laterWeight"`

	// SecondsPerRequest is what each request in flight at a server costs, whose tokens share its batch; 0 or more.
	SecondsPerRequest float64 `json:"secondsPerRequest"`

	wait, rate, requests, blocks, inflight attributes.NumberSlot
}

const (
	leastTokensPerSecond, mostTokensPerSecond = 1, 1e7
	mostCostWeight                            = 100
)

// Validate returns which parameters are out of range.
func (s *ExpectedCompletion) Validate() error {
	var errs []error
	if !(s.TokensPerSecond >= leastTokensPerSecond && s.TokensPerSecond <= mostTokensPerSecond) {
		errs = append(errs, fmt.Errorf("tokensPerSecond: got %v, want 1 to 10000000", s.TokensPerSecond))
	}
	if !(s.OwnWeight >= 0 && s.OwnWeight <= mostCostWeight) {
		errs = append(errs, fmt.Errorf("ownWeight: got %v, want 0 to 100", s.OwnWeight))
	}
	if !(s.LaterWeight >= 0 && s.LaterWeight <= mostCostWeight) {
		errs = append(errs, fmt.Errorf("laterWeight: got %v, want 0 to 100", s.LaterWeight))
	}
	if !(s.SecondsPerRequest >= 0 && s.SecondsPerRequest <= mostCostWeight) {
		errs = append(errs, fmt.Errorf("secondsPerRequest: got %v, want 0 to 100", s.SecondsPerRequest))
	}
	return errors.Join(errs...)
}

// Declare asks for what servers have to compute, how fast they do, how many requests come, and the matching blocks.
func (s *ExpectedCompletion) Declare(r *attributes.Reader) {
	s.wait = r.Number(attributes.PromptWait.Name, "")
	s.rate = r.Number(attributes.PromptRate.Name, "")
	s.requests = r.Number(attributes.RequestRate.Name, "")
	s.inflight = r.Number(attributes.InflightRequests.Name, "")
	s.blocks = r.Number(attributes.PrefixBlocks.Name, "")
}

// Score computes the cost at each candidate.
func (s *ExpectedCompletion) Score(in *schedule.Input, scores []float32) {
	waits, requests := in.Numbers(s.wait), in.Numbers(s.requests)
	blocks, prompt := in.Numbers(s.blocks), float64(in.Request().PromptTokens())
	rates, inflight := in.Numbers(s.rate), in.Numbers(s.inflight)
	mean := s.mean(rates, len(scores))
	for i := range scores {
		rate, wait := rates.At(i), waits.At(i)
		if !(rate > 0) {
			rate, wait = mean, wait*window.FirstRate/mean
		}
		own, later, batch := s.terms(wait, missing(prompt, blocks.At(i))/rate, requests.At(i), inflight.At(i))
		scores[i] = float32(1 / (1 + wait + own + later + batch))
	}
}

// missing returns how many tokens of a prompt are to be computed where so many lead blocks of it are held.
func missing(prompt, blocks float64) float64 { return max(prompt-max(blocks, 0)*blockTokens, 1) }

// terms returns what beside the wait a request costs where computing what is missing takes so long.
func (s *ExpectedCompletion) terms(wait, miss, requests, inflight float64) (own, later, batch float64) {
	return miss * (1 + s.OwnWeight), s.LaterWeight * requests * miss * (wait + miss/2), s.SecondsPerRequest * inflight
}

// Terms returns the terms of the cost.
func (s *ExpectedCompletion) Terms() []string {
	return []string{"seconds of wait", "seconds of prompt", "seconds of later requests", "seconds of batch"}
}

// Explain sets them. Those of an endpoint that has not shown how fast it computes are unknown.
func (s *ExpectedCompletion) Explain(of schedule.Scored, terms []float32) {
	rate, wait := of.Number(s.rate), of.Number(s.wait)
	miss := missing(float64(of.Request.PromptTokens()), of.Number(s.blocks)) / rate
	own, later, batch := s.terms(wait, miss, of.Number(s.requests), of.Number(s.inflight))
	for i, seconds := range [...]float64{wait, own, later, batch} {
		terms[i] = float32(seconds)
	}
}

// mean returns the mean of the rates that are known.
func (s *ExpectedCompletion) mean(rates schedule.Numbers, n int) float64 {
	sum, known := 0.0, 0
	for i := range n {
		if rate := rates.At(i); rate > 0 {
			sum += rate
			known++
		}
	}
	if known == 0 {
		return s.TokensPerSecond
	}
	return sum / float64(known)
}
