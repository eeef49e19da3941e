package records

import "github.com/signalbox-epp/signalbox/messages"

const (
	maxEstimates = 1000     // models and forms that are told apart; others are not estimated
	learnRate    = 1.0 / 16 // of each request in its model's mean
)

// Estimates tell output tokens from the bytes of a response that did not say how many it has, or was not read. They are learned
// from responses that did, for each model, streamed and not, apart. They belong to one loop.
type Estimates struct{ means map[form]float64 }

// form is what decides how many bytes a token takes.
type form struct {
	model  string
	stream bool
}

// NewEstimates knows nothing.
func NewEstimates() *Estimates { return &Estimates{means: map[form]float64{}} }

// Learn takes a request of which both the bytes and the tokens are known.
func (e *Estimates) Learn(r *messages.Record) {
	if r.Usage.OutputTokens <= 0 || r.Usage.Estimated || r.ResponseBytes <= 0 || r.Status >= 400 || r.Reason != messages.NoReason {
		return
	}
	of, seen := form{r.Model, r.Stream}, float64(r.ResponseBytes)/float64(r.Usage.OutputTokens)
	mean, known := e.means[of]
	switch {
	case known:
		e.means[of] = mean + (seen-mean)*learnRate
	case len(e.means) < maxEstimates:
		e.means[of] = seen
	}
}

// Usage estimates the usage of a request whose response's body was not seen; zero if its model was never seen in full.
func (e *Estimates) Usage(r *messages.Record) messages.Usage {
	mean := e.means[form{r.Model, r.Stream}]
	if mean <= 0 || r.ResponseBytes <= 0 {
		return messages.Usage{}
	}
	return messages.Usage{OutputTokens: max(1, int(float64(r.ResponseBytes)/mean+0.5)), Estimated: true}
}
